"""templates/edgepack.yml: its job is run as a runner runs it, with stand-ins for pip, edgepack and GitLab."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "templates" / "edgepack.yml").read_text(encoding="utf-8")
EDGEPACK = """\
#!/bin/sh
printf '%s\\n' "$@" > ARGUMENTS
[ "${CODE:-0}" != 3 ] || exit 3
mkdir -p dist
echo "## Gate: pass & 100 %" > dist/a-1.0.0.report.md
exit "${CODE:-0}"
"""


BOT = 9  # the user of the token


class GitLab(BaseHTTPRequestHandler):
    """Notes of one merge request."""

    notes: list[dict[str, Any]]

    def do_GET(self) -> None:
        if self.path == "/api/v4/user":
            self.answer({"id": BOT})
            return
        assert parse_qs(urlsplit(self.path).query)["order_by"] == ["updated_at"]
        self.answer(self.notes[::-1])

    def do_POST(self) -> None:
        self.notes.append({"id": 40 + len(self.notes), "body": self.body(), "author": {"id": BOT}})
        self.answer({})

    def do_PUT(self) -> None:
        [note] = [note for note in self.notes if note["id"] == int(self.path.rpartition("/")[2])]
        note["body"] = self.body()
        self.answer({})

    def body(self) -> str:
        return parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())["body"][0]

    def answer(self, content: Any) -> None:
        assert self.path == "/api/v4/user" or self.path.startswith("/api/v4/projects/5/merge_requests/7/notes")
        self.send_response(200 if self.headers["PRIVATE-TOKEN"] == "secret" else 401)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *arguments: Any) -> None:
        """Keep quiet."""


class Runner:
    """A project's folder, and a GitLab with one note of somebody else."""

    def __init__(self, folder: Path, address: str) -> None:
        self.project, self.address = folder / "project", address
        self.source, programs = folder / "source", folder / "bin"
        self.temporary = folder / "tmp"
        for made in (self.project, self.source / "requirements", programs, self.temporary):
            made.mkdir(parents=True)
        for name in ("bootstrap.txt", "build.txt"):
            (self.source / "requirements" / name).write_text("")
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "source"], ["init", "-q", str(self.project)]):
            self._git(*arguments)
        self.revision = self._git("rev-parse", "HEAD").strip()
        pip = f'#!/bin/sh\necho "$PIP_CACHE_DIR $*" >> {folder / "pip"}\n'
        (folder / "python").write_text(pip)
        (folder / "edgepack").write_text(EDGEPACK.replace("ARGUMENTS", str(folder / "arguments")))
        # `python3 -m venv DIR` makes an environment of stand-ins; anything else is Python.
        (programs / "python3").write_text(
            '#!/bin/sh\n[ "$2" = venv ] || exec /usr/bin/env -S PATH="$REAL_PATH" python3 "$@"\nmkdir -p "$3/bin"\n'
            f'cp {folder / "python"} {folder / "edgepack"} "$3/bin"\nchmod 755 "$3"/bin/*\n'
        )
        (programs / "python3").chmod(0o755)
        self.folder, self.programs = folder, programs

    def _git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(command, cwd=self.source, check=True, capture_output=True, text=True).stdout

    def run(
        self, part: str, token: str = "secret", settings: Sequence[str] = (), **inputs: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `script` or `after_script`. `settings` is the input `set`; names in capitals are variables of the job.

        GitLab replaces inputs in the text, before it reads it as YAML, and an array by its JSON.
        """
        head, body = YAML(typ="safe", pure=True).load_all(TEXT)
        values = {key: str(about.get("default", "")) for key, about in head["spec"]["inputs"].items()}
        values |= {"repository": str(self.source), "revision": self.revision, "set": json.dumps(settings)}
        values |= {key: value for key, value in inputs.items() if not key.isupper()}
        text = TEXT
        for key, value in values.items():
            text = text.replace(f"$[[ inputs.{key} ]]", value)
        assert "$[[" not in text
        job = list(YAML(typ="safe", pure=True).load_all(text))[1]["edgepack"]
        assert not any("inputs" in line for line in [*body["edgepack"]["script"], *body["edgepack"]["after_script"]])
        variables = {
            key: value.replace("$CI_PROJECT_DIR", str(self.project)) for key, value in job["variables"].items()
        }
        environment = {
            "PATH": f"{self.programs}:{os.environ['PATH']}", "REAL_PATH": os.environ["PATH"], "HOME": str(self.folder),
            "TMPDIR": str(self.temporary),
            "CI_PROJECT_DIR": str(self.project), "CI_API_V4_URL": f"{self.address}/api/v4", "CI_PROJECT_ID": "5",
            "CI_MERGE_REQUEST_IID": "7", "EDGEPACK_TOKEN": token, **variables,
            "CI_COMMIT_SHA": "0123456789abcdef", "CI_JOB_URL": "https://gitlab.example/jobs/5",
            **{key: value for key, value in inputs.items() if key.isupper()},
        }  # fmt: skip
        command = ["bash", "-eo", "pipefail", "-c", "\n".join(job[part])]
        return subprocess.run(command, cwd=self.project, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def notes() -> list[dict[str, Any]]:
    return [{"id": 1, "body": "looks good", "author": {"id": 3}}]


@pytest.fixture
def runner(tmp_path: Path, notes: list[dict[str, Any]]) -> Iterator[Runner]:
    handler = type("Handler", (GitLab,), {"notes": notes})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield Runner(tmp_path / "runner", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("code", [0, 6, 7])
def test_locked_packages_are_installed_and_the_build_s_exit_code_is_the_job_s(runner: Runner, code: int) -> None:
    done = runner.run("script", recipe="a b.yaml", targets="local,linux", CODE=str(code))
    assert done.returncode == code, done.stderr
    assert (runner.folder / "arguments").read_text().splitlines() == [
        "build", "a b.yaml", "--strict", "--workspace", ".edgepack", "--dist", "dist", "--set", "targets=[local,linux]",
    ]  # fmt: skip
    *locked, own = (runner.folder / "pip").read_text().splitlines()
    assert len(locked) == 2 and all("--require-hashes" in line for line in locked)
    assert "--no-deps" in own
    assert all(line.startswith(f"{runner.project}/.edgepack/cache/pip ") for line in (*locked, own))


def test_every_item_of_set_is_one_value(runner: Runner) -> None:
    settings = ['sign.key=a b"c$(touch x)`touch x`*\\n', "gates.golden.rows=9"]
    done = runner.run("script", settings=settings)
    assert done.returncode == 0, done.stderr
    rest = (runner.folder / "arguments").read_text().splitlines()[7:]
    assert rest == ["--set", settings[0], "--set", settings[1]]
    assert not (runner.project / "x").exists()


def test_the_note_is_written_once_and_then_edited(runner: Runner, notes: list[dict[str, Any]]) -> None:
    runner.run("script")
    for _ in range(2):
        done = runner.run("after_script")
        assert done.returncode == 0, done.stderr
        assert [note["body"].splitlines()[1:] for note in notes] == [
            [], ["Commit 01234567:", "", "## Gate: pass & 100 %"],
        ]  # fmt: skip
        notes[1]["body"] = notes[1]["body"].replace("pass", "fail")
    runner.run("after_script", CI_MERGE_REQUEST_SOURCE_BRANCH_SHA="fedcba9876543210")
    assert "Commit fedcba98:" in notes[1]["body"]
    runner.run("after_script", recipe="another.yaml")
    assert len(notes) == 3
    runner.run("after_script", targets="linux")
    assert len(notes) == 4
    notes[1]["body"] = notes[1]["body"].replace("pass", "fail")
    notes[1]["author"]["id"] = 3  # somebody else wrote the mark
    runner.run("after_script")
    assert len(notes) == 5 and "fail" in notes[1]["body"]


def test_a_build_without_a_verdict_replaces_the_note(runner: Runner, notes: list[dict[str, Any]]) -> None:
    for code, ended in ((None, "ended without"), (3, "ended with exit code 3, without")):
        if code is not None:
            assert runner.run("script", CODE=str(code)).returncode == code
        assert runner.run("after_script").returncode == 0
        text = f"The build of commit 01234567 {ended} a verdict: see [the log](https://gitlab.example/jobs/5)."
        assert [note["body"].splitlines()[1:] for note in notes] == [[], [text]]


def test_without_a_token_there_is_no_note_and_a_wrong_one_is_said(runner: Runner, notes: list[dict[str, Any]]) -> None:
    runner.run("script")
    assert runner.run("after_script", token="").returncode == 0
    done = runner.run("after_script", token="wrong")
    assert "401" in done.stderr
    assert len(notes) == 1


@pytest.mark.parametrize("name", [".edgepack/gate/x", "dist/a.report.md", "dist/exit-code"])
def test_results_that_a_merge_request_brings_are_refused(
    runner: Runner, notes: list[dict[str, Any]], name: str
) -> None:
    brought = runner.project / name
    brought.parent.mkdir(parents=True)
    brought.write_text("brought")
    subprocess.run(["git", "add", "-f", "."], cwd=runner.project, check=True)
    assert runner.run("script").returncode == 1
    runner.run("after_script")
    assert len(notes) == 2
    assert "ended without a verdict" in notes[1]["body"] and "brought" not in notes[1]["body"]


def test_artifacts_are_globs_and_the_cache_survives_a_missed_gate() -> None:
    job = list(YAML(typ="safe", pure=True).load_all(TEXT))[1]["edgepack"]
    assert all("*" in path for path in [*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]])
    assert job["artifacts"]["when"] == job["cache"]["when"] == "always"
    kept = [
        job["variables"][name].removeprefix("$CI_PROJECT_DIR/")
        for name in ("EDGEPACK_CACHE", "PPNLP_HOME", "PIP_CACHE_DIR")
    ]
    assert all(Path(path).is_relative_to(job["cache"]["paths"][0]) for path in kept)
