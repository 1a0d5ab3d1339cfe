"""Errors as JSON: what a child process reports is what its parent raises."""

from __future__ import annotations

import argparse
import json

import pytest

from edgepack.errors import RecipeInvalidError, TargetUnreachableError
from edgepack_runtime.cli.context import print_result
from edgepack_runtime.errors import (
    BundleInvalidError,
    EdgepackError,
    EnvironmentUnfitError,
    GateFailedError,
    GateInconclusiveError,
    RolledBackError,
    StageFailedError,
    UsageError,
    from_json,
    printable,
    printed,
    to_json,
)


@pytest.mark.parametrize(
    "kind",
    [
        UsageError, RecipeInvalidError, EnvironmentUnfitError, StageFailedError, GateFailedError,
        GateInconclusiveError, BundleInvalidError, TargetUnreachableError, RolledBackError,
    ],
)  # fmt: skip
def test_an_error_arrives_as_it_was_sent(kind: type[EdgepackError]) -> None:
    sent = kind("what\nerror: of two lines", why="a\nb", fix="retry")
    got = from_json(json.loads(json.dumps(to_json(sent))))
    assert type(got) is kind
    assert (got.what, got.why, got.fix, got.exit_code) == (sent.what, sent.why, sent.fix, sent.exit_code)


def test_an_exit_code_that_is_not_known_is_an_unexpected_error() -> None:
    got = from_json({"exit_code": 77, "what": "w", "why": "", "fix": ""})
    assert (type(got), got.exit_code) == (EdgepackError, 1)


@pytest.mark.parametrize("document", [{}, {"what": "w"}, {"what": 1, "why": "", "fix": ""}])
def test_an_object_without_the_three_texts_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="does not describe an error"):
        from_json(document)


@pytest.mark.parametrize(
    "text", ["##vso[task.setvariable variable=a]1", "a ##[warning] b", "  ::error::x", "::error::x"]
)
def test_no_printed_text_is_a_command_to_a_ci_server(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    words = "x" * 38 + " "  # as long as a line, so that the text begins the next one
    print_result(argparse.Namespace(json=False), {}, printed([f"{words}{text} and more"]))
    for said in (printable(text), capsys.readouterr().out):
        lines = said.splitlines()
        assert not any("##" in line and "[" in line for line in lines)
        assert not any(line.strip().startswith("::") for line in lines)
        assert "\\u00" in said
