"""Limits of a server: from the command line and from the environment."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from edgepack_runtime.cli import serve_command
from edgepack_runtime.cli.parser import Context, build_parser
from edgepack_runtime.errors import EnvironmentUnfitError, UsageError
from edgepack_runtime.serve import server
from edgepack_runtime.serve.settings import LOG_LEVELS, LOOPBACK_HOSTS, Settings, from_environment, service_links, token

TOKEN = "abcdefghijklmnop"


def parsed(*words: str) -> Any:
    return build_parser(Context("edgert", None, None)).parse_args(["serve", "--model", "m", *words])


def test_what_the_help_says_is_what_happens(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--help")
    shown = " ".join(capsys.readouterr().out.split())
    fields = {field.name: getattr(Settings(), field.name) for field in dataclasses.fields(Settings)}
    defaults = {name.replace("_", "-"): value for name, value in fields.items()}
    assert f"--log-level {{{','.join(LOG_LEVELS)}}}" in shown
    defaults |= {"host": server.DEFAULT_HOST, "port": server.DEFAULT_PORT}
    # What `tune` found; as the items of the model need; at least three times `timeout_s`.
    del defaults["threads"], defaults["max-body-kib"], defaults["stuck-s"]
    del defaults["model"], defaults["token"], defaults["hosts"]  # other options say where they come from
    for name, value in defaults.items():
        told = re.search(rf"--{name} [^(]*\(([^)]*)\)", shown.partition("options:")[2])
        assert told is not None, name
        assert told.group(1) == (f"{value:g}" if isinstance(value, int | float) else value), name


def test_options_become_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEPACK_TOKEN", raising=False)
    assert serve_command.read(parsed()) == Settings(model=Path("m"))
    found = serve_command.read(parsed("--max-batch", "1", "--timeout-s", "0.5", "--allow-host", "Device.example"))
    assert (found.max_batch, found.timeout_s) == (1, 0.5)
    assert found.hosts == (*LOOPBACK_HOSTS, "device.example")
    (tmp_path / "token").write_text(TOKEN + "\n")
    with_token = serve_command.read(parsed("--token-file", str(tmp_path / "token")))
    assert (with_token.token, with_token.hosts, with_token.model) == (TOKEN, (), Path("m"))
    assert TOKEN not in repr(with_token)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--uds", "s", "--fd", "3"], "--uds and --fd"),
        (["--host", "::1", "--uds", "s"], "--host and --uds"),
        (["--fd", "3", "--port", "1"], "--fd has no port"),
        (["--max-texts", "300"], "never fit into a queue of 256"),
        (["--timeout-s", "0"], "timeout_s is 0"),
        (["--workers", "65"], "workers is 65"),
        (["--max-wait-ms", "1e9"], "max_wait_ms is"),
        (["--max-wait-ms", "nan"], "'nan' is not a number"),
        (["--port", "65536"], "'65536' is not a whole number"),
        (["--metrics-host", "0.0.0.0"], "--metrics-host needs --metrics-port"),
    ],
)
def test_options_that_make_no_sense(words: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=re.escape(named)):
        serve_command.read(parsed(*words))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("", "it has 0 characters"), ("short", "it has 5 characters"), ("x" * 4097, "it has 4097 characters"),
        ("with a blank inside it", "a blank"), ("schlüssel-schlüssel", "ASCII"), ("tab\tinside-a-token", "a blank"),
    ],
)  # fmt: skip
def test_a_token_that_cannot_be_used_is_not_told(bad: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        Settings(token=bad)
    assert why in caught.value.why
    assert not bad or bad not in str(caught.value)


@pytest.mark.parametrize("end", ["", "\n", "\r\n", " \n\n"])
def test_the_token_comes_from_a_file_or_the_environment(tmp_path: Path, end: str) -> None:
    for before in (b"", b" ", b"\xef\xbb\xbf"):  # the last as editors of Windows write it
        (tmp_path / "t").write_bytes(before + TOKEN.encode() + end.encode())
        assert token(tmp_path / "t", {"EDGEPACK_TOKEN": "x" * 20}) == TOKEN
    assert token(None, {"EDGEPACK_TOKEN": TOKEN + end}) == TOKEN
    assert token(None, {}) is None
    (tmp_path / "t").write_bytes(b"x" * 5000)  # not a part of it
    with pytest.raises(UsageError):
        token(tmp_path / "t", {})
    with pytest.raises(EnvironmentUnfitError):
        token(tmp_path / "none", {})


def test_the_environment() -> None:
    found = from_environment(
        {"EDGEPACK_SERVE_MODEL": "/m", "EDGEPACK_SERVE_QUEUE": "64", "EDGEPACK_SERVE_TIMEOUT_S": "2.5", "PATH": "/bin",
         "EDGEPACK_SERVE_HOSTS": "a.example, B.example", "EDGEPACK_SERVE_LOG_LEVEL": "warning"}
    )  # fmt: skip
    assert found == Settings(
        model=Path("/m"), queue=64, timeout_s=2.5, hosts=("a.example", "b.example"), log_level="warning"
    )
    assert from_environment({"EDGEPACK_SERVE_HOSTS": "*", "EDGEPACK_TOKEN": TOKEN}).hosts == ()
    assert from_environment({}) == Settings()
    assert (from_environment({"EDGEPACK_SERVE_STUCK_S": "5"}).stuck_after_s, Settings().stuck_after_s) == (5, 60)
    assert Settings(timeout_s=100).stuck_after_s == 300


LINKS = {
    "EDGEPACK_SERVE_SERVICE_HOST": "10.96.0.10", "EDGEPACK_SERVE_SERVICE_PORT": "80",
    "EDGEPACK_SERVE_SERVICE_PORT_HTTP": "80", "EDGEPACK_SERVE_PORT": "tcp://10.96.0.10:80",
    "EDGEPACK_SERVE_PORT_80_TCP": "tcp://10.96.0.10:80", "EDGEPACK_SERVE_PORT_80_TCP_PROTO": "tcp",
    "EDGEPACK_SERVE_PORT_80_TCP_PORT": "80", "EDGEPACK_SERVE_PORT_80_TCP_ADDR": "10.96.0.10",
    "EDGEPACK_SERVE_V2_PORT": "udp://10.96.0.10:53", "EDGEPACK_SERVE_V2_SERVICE_HOST": "10.96.0.10",
}  # fmt: skip


def test_what_kubernetes_sets_for_a_service_of_that_name_is_no_setting() -> None:
    assert from_environment({**LINKS, "EDGEPACK_SERVE_QUEUE": "64"}) == Settings(queue=64)
    assert service_links({**LINKS, "EDGEPACK_SERVE_QUEUE": "64", "OTHER_PORT": "tcp://10.96.0.10:80"}) == sorted(LINKS)
    with pytest.raises(UsageError, match="EDGEPACK_SERVE_PORT is not a setting"):
        from_environment({"EDGEPACK_SERVE_PORT": "9000"})


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("QUEU", "1", "did you mean EDGEPACK_SERVE_QUEUE"),
        ("QUEUE", "1.5", "'1.5'"),
        ("QUEUE", "0", "queue is 0"),
        ("TIMEOUT_S", "nan", "'nan'"),
        ("LOG_LEVEL", "loud", "loud"),
        ("LONG", "drop", "truncate, windows"),
        ("HOSTS", "*", "needs a token"),
        ("TOKEN", TOKEN, "TOKEN is not a setting"),
        ("TOKEN_FILE", "", "EDGEPACK_SERVE_TOKEN_FILE is empty"),
    ],
)
def test_an_environment_that_makes_no_sense(name: str, value: str, named: str) -> None:
    with pytest.raises(UsageError, match=re.escape(named)):
        from_environment({f"EDGEPACK_SERVE_{name}": value})


def test_every_setting_has_an_option_or_a_reason() -> None:
    names = {field.name for field in dataclasses.fields(Settings)}
    assert names - set(vars(parsed())) == {"token", "hosts"}  # --token-file, --allow-host
