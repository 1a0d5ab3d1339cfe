"""The manifests in deploy/, against the schemas of Kubernetes and the rules of its restricted pod security."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.integration.conftest import SMALL_STEPS, write_rows
from tests.integration.doc_commands import parse_build_side

from edgepack.recipe.loader import load_recipe
from edgepack_runtime.cli.parser import Context, build_parser
from edgepack_runtime.errors import ExitCode
from edgepack_runtime.serve.metrics import Metrics
from edgepack_runtime.serve.server import DEFAULT_PORT
from edgepack_runtime.serve.settings import Settings

ROOT = Path(__file__).parents[2]
VALIDATE = ROOT / ".venv-clients" / "bin" / "kubernetes-validate"
MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
VERSIONS = ("1.35", "1.36", "1.37")

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_are_valid(version: str) -> None:
    if not VALIDATE.exists():
        pytest.skip("`make .venv-clients/.installed` installs kubernetes-validate")
    line = [str(VALIDATE), "--strict", "--kubernetes-version", version, *map(str, MANIFESTS)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("passed") >= len(MANIFESTS)


def test_a_wrong_manifest_is_refused(tmp_path: Path) -> None:
    if not VALIDATE.exists():
        pytest.skip("`make .venv-clients/.installed` installs kubernetes-validate")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((ROOT / "deploy" / "kubernetes" / "serve.yaml").read_text().replace("replicas:", "replica:"))
    done = subprocess.run([str(VALIDATE), "--strict", "-k", VERSIONS[-1], str(wrong)], capture_output=True, check=False)
    assert done.returncode != 0


def documents(name: str) -> list[dict[str, Any]]:
    return list(YAML(typ="safe", pure=True).load_all(ROOT / "deploy" / "kubernetes" / name))


def job(name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The Job of a manifest, the pod of its template, and its container."""
    found = documents(name)[0]
    pod = found["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return found, pod, container


def arguments(container: dict[str, Any], index: int) -> list[str]:
    """The arguments of a container in the pod with this index, as Kubernetes fills them in."""
    return [word.replace("$(JOB_COMPLETION_INDEX)", str(index)) for word in container["args"]]


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container["env"]}


def pods() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for file in MANIFESTS:
        for document in YAML(typ="safe", pure=True).load_all(file):
            template = document.get("spec", {}).get("template")
            if isinstance(template, dict):
                found.append((f"{file.name} {document['metadata']['name']}", template["spec"]))
    return found


@pytest.mark.parametrize(("name", "pod"), pods(), ids=[name for name, _ in pods()])
def test_pods_keep_to_restricted_pod_security(name: str, pod: dict[str, Any]) -> None:
    security = pod["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 65532)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    # Variables of a Service named edgepack-serve would look like settings.
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    for container in pod["containers"]:
        own = container["securityContext"]
        assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} <= set(container["resources"])


@pytest.fixture
def rendered(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """What the kustomization makes with everything that it offers, by kind."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl renders kustomizations")
    folder = tmp_path / "kubernetes"
    shutil.copytree(ROOT / "deploy" / "kubernetes", folder)
    (folder / "token").write_text("a-token-for-the-test\n")
    file = folder / "kustomization.yaml"
    file.write_text(re.sub(r"^  # - ", "  - ", file.read_text(), flags=re.MULTILINE))
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if VALIDATE.exists():
        (tmp_path / "rendered.yaml").write_text(done.stdout)
        line = [str(VALIDATE), "--strict", "-k", VERSIONS[-1], str(tmp_path / "rendered.yaml")]
        subprocess.run(line, check=True, capture_output=True)
    return {document["kind"]: document for document in YAML(typ="safe", pure=True).load_all(done.stdout)}


def test_the_kustomization_names_everything_alike(rendered: dict[str, dict[str, Any]]) -> None:
    kinds = {
        "Secret", "Service", "Deployment", "PodDisruptionBudget", "HorizontalPodAutoscaler", "ServiceMonitor",
        "NetworkPolicy",
    }  # fmt: skip
    assert set(rendered) == kinds
    deployment = rendered["Deployment"]["metadata"]["name"]
    pod = rendered["Deployment"]["spec"]["template"]
    assert {found["metadata"]["name"] for kind, found in rendered.items() if kind != "Secret"} == {deployment}
    labels = pod["metadata"]["labels"]
    for selector in (
        rendered["Service"]["spec"]["selector"],
        rendered["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        rendered["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ):
        assert selector == labels
    assert rendered["ServiceMonitor"]["spec"]["selector"]["matchLabels"] == rendered["Service"]["metadata"]["labels"]
    assert rendered["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == deployment
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "REGISTRY/reviews:1.0.0"
    assert pod["spec"]["volumes"][0]["secret"]["secretName"] == rendered["Secret"]["metadata"]["name"]
    assert list(rendered["Secret"]["data"]) == [Path(container["args"][2].partition("=")[2]).name]


def test_the_deployment_fits_the_server(rendered: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    pod = rendered["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    options = build_parser(Context("reviews", None, tmp_path)).parse_args(container["args"])
    settings = Settings()
    assert options.metrics_host == options.host == "0.0.0.0"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": DEFAULT_PORT, "metrics": options.metrics_port}
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(options.metrics_port)
    assert {port["targetPort"] for port in rendered["Service"]["spec"]["ports"]} == set(ports)
    assert {port["port"] for rule in rendered["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]} == set(
        ports
    )
    assert [one["port"] for one in rendered["ServiceMonitor"]["spec"]["endpoints"]] == ["metrics"]
    (metric,) = rendered["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] in Metrics().values()
    # All that may last after SIGTERM, and a margin; no program of the image is run before.
    assert pod["spec"]["terminationGracePeriodSeconds"] >= settings.drain_s + settings.timeout_s + 5
    assert "lifecycle" not in container


@pytest.mark.parametrize("name", ["train.yaml", "sweep.yaml"])
def test_jobs_run_a_build_and_write_on_volumes(name: str) -> None:
    found, pod, container = job(name)
    assert found["spec"]["completionMode"] == "Indexed"
    assert pod["restartPolicy"] == "Never"
    parse_build_side(arguments(container, 1))
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    written = [
        word.partition("=")[2] for word in arguments(container, 1) if word.startswith(("--workspace=", "--dist="))
    ]
    written += [environment(container)[variable] for variable in ("HOME", "EDGEPACK_CACHE", "PPNLP_HOME")]
    assert len(written) == 5
    assert [path for path in written if not any(Path(path).is_relative_to(place) for place in writable)] == []


@pytest.mark.parametrize(
    ("name", "action", "codes"),
    [
        ("train.yaml", "FailIndex", {"USAGE", "RECIPE_INVALID", "GATE_FAILED", "GATE_INCONCLUSIVE", "BUNDLE_INVALID"}),
        ("sweep.yaml", "FailJob", {"USAGE", "RECIPE_INVALID"}),
    ],
)
def test_jobs_try_again_only_what_may_get_better(name: str, action: str, codes: set[str]) -> None:
    found, _, container = job(name)
    assert found["spec"]["backoffLimitPerIndex"] > 0
    disruption, rule = found["spec"]["podFailurePolicy"]["rules"]
    assert disruption["action"] == "Ignore"
    assert (rule["action"], rule["onExitCodes"]["operator"]) == (action, "In")
    assert rule["onExitCodes"]["containerName"] == container["name"]
    assert {ExitCode(code).name for code in rule["onExitCodes"]["values"]} == codes


def write_recipe(folder: Path) -> Path:
    """A tiny recipe with the how-to's fragment."""
    page = (ROOT / "docs" / "how-to" / "clusters.md").read_text(encoding="utf-8")
    fragment = page.partition("```yaml\n")[2].partition("```")[0]
    data, student = re.split(r"^student: .*\n", fragment, flags=re.MULTILINE)
    shape = "{scratch: {layers: 1, hidden: 16, heads: 2}}"
    tiny = f"student:\n  model: {shape}\n  distill: null\n  max_length: 16\n  batch_size: 8\n{SMALL_STEPS}"
    file = folder / "recipe.yaml"
    file.write_text(f"edgepack: 1\nname: tiny\nversion: 0.1.0\n{data}{tiny}{student}", encoding="utf-8")
    return file


def test_pods_meet_at_the_name_of_the_first(tmp_path: Path) -> None:
    found, pod, container = job("train.yaml")
    service = documents("train.yaml")[1]
    write_rows(tmp_path)
    variables = environment(container) | {"DATA": str(tmp_path)}
    nodes = load_recipe(write_recipe(tmp_path), ["local"], environment=variables).student.nodes
    assert nodes is not None
    assert nodes.count == found["spec"]["completions"] == found["spec"]["parallelism"]
    assert nodes.master.partition(":")[0] == f"{found['metadata']['name']}-0.{pod['subdomain']}"
    assert (service["kind"], service["metadata"]["name"]) == ("Service", pod["subdomain"])
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert service["spec"]["selector"].items() <= found["spec"]["template"]["metadata"]["labels"].items()
    assert found["spec"]["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}


def test_pods_that_train_together_share_no_workspace_and_candidates_share_one() -> None:
    for name, count in (("train.yaml", 2), ("sweep.yaml", 1)):
        _, _, container = job(name)
        lines = [arguments(container, index) for index in (0, 1)]
        assert len({word for line in lines for word in line if word.startswith("--workspace=")}) == count


# Two pods: network namespaces that a cable joins, and a hosts file with the names that the Service would give.
PODS = r"""
mount --bind "$1" /etc/hosts; shift
unshare --net sleep 1000 & one=$!
unshare --net sleep 1000 & two=$!
until [ "$(readlink /proc/$one/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
until [ "$(readlink /proc/$two/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
ip link add eth1 netns $one type veth peer name eth2 netns $two
nsenter --net --target $one sh -c 'ip link set lo up; ip address add 10.99.0.1/24 dev eth1; ip link set eth1 up'
nsenter --net --target $two sh -c 'ip link set lo up; ip address add 10.99.0.2/24 dev eth2; ip link set eth2 up'
nsenter --net --target $one $1 & first=$!
nsenter --net --target $two $2 & second=$!
wait $first; wait $second
"""


@pytest.mark.sweep
def test_two_pods_train_one_model(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nsenter", "unshare"))):
        pytest.skip("needs root, iproute2 and util-linux")
    _, _, container = job("train.yaml")
    for name in ("recipe", "workspace/data", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    write_recipe(tmp_path / "recipe")
    write_rows(tmp_path / "workspace" / "data")
    hosts = "".join(f"10.99.0.{index + 1} reviews-train-{index}.reviews-train\n" for index in (0, 1))
    (tmp_path / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}", encoding="utf-8")

    def here(text: str) -> str:
        """A path on a volume, as a path on this machine."""
        return re.sub(rf"^((?:--\w+=)?)({volumes})\b", rf"\1{tmp_path}\2", text)

    volumes = "|".join(mount["mountPath"] for mount in container["volumeMounts"])
    variables = {**os.environ, **{name: here(value) for name, value in environment(container).items()}}
    edgepack = [sys.executable, "-I", "-m", "edgepack.cli"]
    # What pods that reach no package index need to be filled with.
    subprocess.run([*edgepack, "fetch", here("/recipe/recipe.yaml")], env=variables, capture_output=True, check=True)
    builds = [" ".join([*edgepack, *map(here, arguments(container, i)), "--until=student"]) for i in (0, 1)]
    apart = ["--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]  # no process outlives the shell
    line = ["unshare", *apart, "bash", "-euc", PODS, "pods", str(tmp_path / "hosts"), *builds]
    done = subprocess.run(line, env=variables, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "meet at reviews-train-0.reviews-train:8379" in done.stderr
    one, two = (tmp_path / "workspace").glob("[01]/.edgepack/student/*/model_state.pdparams")
    assert one.read_bytes() == two.read_bytes()


def test_the_compose_file_reads_as_one_service() -> None:
    document = YAML(typ="safe", pure=True).load(ROOT / "deploy" / "compose.yaml")
    (service,) = document["services"].values()
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert set(service["secrets"]) == set(document["secrets"])
    assert service["restart"] == "unless-stopped"  # a server whose model hangs ends itself
