"""The manifests in deploy/, against the schemas of Kubernetes and the rules of its restricted pod security."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

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


def pods() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for file in MANIFESTS:
        for document in YAML(typ="safe", pure=True).load_all(file):
            template = document["spec"].get("template")
            if isinstance(template, dict):
                found.append((f"{file.name} {document['metadata']['name']}", template["spec"]))
    return found


@pytest.mark.parametrize(("name", "pod"), pods(), ids=[name for name, _ in pods()])
def test_pods_keep_to_restricted_pod_security(name: str, pod: dict[str, Any]) -> None:
    security = pod["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 65532)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in pod["containers"]:
        own = container["securityContext"]
        assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} <= set(container["resources"])


def test_the_compose_file_reads_as_one_service() -> None:
    document = YAML(typ="safe", pure=True).load(ROOT / "deploy" / "compose.yaml")
    (service,) = document["services"].values()
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert set(service["secrets"]) == set(document["secrets"])
