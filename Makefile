# Two commands do everything: `make quickstart` and `make test`. `make help` lists the rest.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
VENV := .venv
LIGHT := .venv-light
PADDLE26 := .venv-paddle26
CLIENTS := .venv-clients
PEERS := .venv-peers
PY := $(VENV)/bin/python
PIP_FLAGS := --quiet --disable-pip-version-check
# Locked with hashes; two packages of the Paddle stack exist as source only and build with the locked setuptools.
LOCKED_PIP = python -m pip install $(PIP_FLAGS) --require-hashes --no-build-isolation --no-compile
LOCKED_INSTALL = PYTHONWARNINGS=ignore $(VENV)/bin/$(LOCKED_PIP)
RECIPE ?= recipes/quickstart.yaml

.PHONY: help demo dist quickstart install install-light test test-all test-paddle26 test-arm64 coverage mutation lint format golden docs peers clean
help: ## list the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

demo: $(LIGHT)/.installed ## the whole way of a small model, without Paddle: half a minute after the install
	@$(LIGHT)/bin/edgepack demo

quickstart: $(VENV)/.installed ## install, build recipes/quickstart.yaml, say what to type next
	@$(VENV)/bin/edgepack build $(RECIPE)

install: $(VENV)/.installed ## make .venv with edgepack and the Paddle stack

install-light: $(LIGHT)/.installed ## make .venv-light, without Paddle: enough for gates in CI

# Whole files side by side, the slow ones of the integration tests first; each process may take 2 GB.
WORKERS ?= 4
# A process has one thread: two that take every core for their products keep each other waiting. Bytecode is written
# even if the environment says not to: otherwise each process compiles all tests again in each run.
test test-all coverage test-paddle26: export PYTHONDONTWRITEBYTECODE =
PYTEST = -m pytest --numprocesses=auto --maxprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder --durations=25

test: $(VENV)/.installed-dev $(CLIENTS)/.installed ## unit and integration tests, with the real Paddle stack, in two processes more than cores (at most WORKERS=4)
	@OMP_NUM_THREADS=1 $(PY) $(PYTEST) -m "not sweep"

test-all: $(VENV)/.installed-dev $(CLIENTS)/.installed ## the exhaustive sweeps too: builds killed everywhere, several machines, Pythons, simulated verdicts; with Paddle 3.3 and 2.6
	@OMP_NUM_THREADS=1 $(PY) $(PYTEST)
	@$(MAKE) test-paddle26 PADDLE26_TESTS="training width width_pruning resume ranks huggingface observers vocabulary qat build" PADDLE26_MARKS="not paddle33"

coverage: $(VENV)/.installed-dev $(CLIENTS)/.installed ## lines and branches that `make test` runs, child processes included (twice its time)
	@rm -f .coverage*
	@OMP_NUM_THREADS=1 $(PY) -m coverage run $(PYTEST) -m "not sweep"
	@$(PY) -m coverage combine --quiet
	@$(PY) -m coverage report

mutation: $(VENV)/.installed-dev ## changes to central modules that no test notices (an hour)
	@scripts/mutate

PADDLE26_TESTS ?= build
PADDLE26_MARKS ?= not paddle33 and not sweep
test-paddle26: $(PADDLE26)/.installed ## whole builds in the Paddle 2.6 stack
	@OMP_NUM_THREADS=1 $(PADDLE26)/bin/python $(PYTEST) -m "$(PADDLE26_MARKS)" $(PADDLE26_TESTS:%=tests/integration/test_%.py)

ARM64_ROOT ?= .arm64-root
test-arm64: $(VENV)/.installed-dev ## a real bundle for 64-bit ARM in an emulated Debian (root; debootstrap and qemu-user-static)
	@scripts/arm64-root $(ARM64_ROOT)
	@EDGEPACK_ARM64_ROOT=$(abspath $(ARM64_ROOT)) $(PY) -m pytest tests/integration/test_arm64.py

lint: $(VENV)/.installed-dev ## ruff, mypy --strict, and zizmor on the CI example and the action
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	@$(VENV)/bin/zizmor --offline --quiet docs/examples/github-actions.yml action.yml

dist: $(LIGHT)/.installed ## a wheel, an sdist and the tested versions in build/dist, for pip and uvx; needs no Paddle
	@rm -rf build/dist build/lib build/bdist.* && mkdir -p build/dist
	@PYTHONWARNINGS=ignore $(LIGHT)/bin/python -c "from setuptools.build_meta import build_sdist, build_wheel; [make('build/dist') for make in (build_sdist, build_wheel)]" >build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	@cp packager/edgepack/training/constraints.txt build/dist/
	@ls build/dist/*

format: $(VENV)/.installed-dev ## rewrite the sources in the project's format
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

golden: $(VENV)/.installed-dev ## write the files again that tests compare with (tests/unit/golden)
	EDGEPACK_WRITE_GOLDEN=1 $(PY) -m pytest -k golden tests/unit/commands tests/unit/console tests/unit/data \
		tests/unit/recipe tests/unit/report

docs: $(VENV)/.installed-dev ## write the generated pages and build the documentation site (build/site)
	@$(PY) -m edgepack.recipe.schema_files recipes/recipe.schema.json docs/reference/recipe.md
	@$(PY) scripts/commands_page.py docs/reference/commands.md
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs --quiet build --strict --clean
	@echo "open build/site/index.html"

DATA ?= data
WEIGHTS ?= weights
peers: $(VENV)/.installed $(PADDLE26)/.installed $(PEERS)/.installed ## this project beside Optimum, Olive, NNCF, Paddle, PyTorch (DATA=, WEIGHTS=; an hour; one JSON line)
	$(PY) benchmarks/peers.py --data $(DATA) --weights $(WEIGHTS)

clean: ## remove the environment, stage results and dist/
	rm -rf $(VENV) $(LIGHT) $(PADDLE26) $(CLIENTS) $(PEERS) $(ARM64_ROOT) .edgepack dist recipes/.edgepack recipes/dist build *.egg-info

# An environment that holds what the locked installs need.
define make-venv
@python=$$(scripts/find-python) && echo "making $(1) with $$python" && "$$python" -m venv --clear $(1)
@$(1)/bin/python -m pip install $(PIP_FLAGS) --require-hashes -r requirements/bootstrap.txt
endef

# The locked set of a file in requirements/, and this project, into an environment that was made.
define install-locked
@PYTHONWARNINGS=ignore $(1)/bin/$(LOCKED_PIP) -r requirements/$(2).txt
@$(1)/bin/python -W ignore -m pip install $(PIP_FLAGS) --no-deps --no-build-isolation --editable .
@touch $(1)/.installed
endef

# Stamps, not .venv/bin/python: that is a link, and make would look at the age of the Python it leads to.
$(VENV)/.created: scripts/find-python requirements/bootstrap.txt
	$(call make-venv,$(VENV))
	@touch $@

$(VENV)/.installed: $(VENV)/.created requirements/build.txt pyproject.toml
	@echo "installing the pinned build environment (about 150 packages, 600 MB to fetch; one to three minutes)"
	$(call install-locked,$(VENV),build)

$(VENV)/.installed-dev: $(VENV)/.installed requirements/dev.txt
	@echo "installing the pinned test tools"
	@$(LOCKED_INSTALL) -r requirements/dev.txt
	@touch $@

$(LIGHT)/.installed: scripts/find-python requirements/bootstrap.txt requirements/base.txt pyproject.toml
	$(call make-venv,$(LIGHT))
	@echo "installing the pinned packages that it takes without Paddle (about 50, 400 MB on the disk)"
	$(call install-locked,$(LIGHT),base)

$(PADDLE26)/.installed: scripts/find-python requirements/bootstrap.txt requirements/paddle26.txt pyproject.toml
	$(call make-venv,$(PADDLE26))
	@echo "installing the environment of Paddle 2.6 (about 150 packages)"
	$(call install-locked,$(PADDLE26),paddle26)

$(CLIENTS)/.installed: scripts/find-python requirements/bootstrap.txt requirements/clients.txt
	$(call make-venv,$(CLIENTS))
	@echo "installing the reference clients of KServe v2 (about 85 packages)"
	@$(CLIENTS)/bin/$(LOCKED_PIP) --only-binary=:all: -r requirements/clients.txt
	@touch $@

$(PEERS)/.installed: requirements/bootstrap.txt requirements/peers.txt
	@python3.11 -m venv --clear $(PEERS)
	@$(PEERS)/bin/python -m pip install $(PIP_FLAGS) --require-hashes -r requirements/bootstrap.txt
	@echo "installing what this project is compared with (about 75 packages; requirements/peers.in says where torch comes from)"
	@$(PEERS)/bin/$(LOCKED_PIP) -r requirements/peers.txt
	@touch $@
