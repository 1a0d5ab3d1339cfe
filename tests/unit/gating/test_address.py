from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.errors import UsageError
from edgepack.gating import ssh
from edgepack.gating.ssh import Address


@pytest.mark.parametrize(
    ("text", "expected", "typed"),
    [
        ("ssh://line3", Address("line3"), "ssh line3"),
        ("ssh://Line3.yard.example/", Address("Line3.yard.example"), "ssh Line3.yard.example"),
        ("ssh://pi@line3:2222", Address("line3", "pi", 2222), "ssh -p 2222 pi@line3"),
        ("ssh://pi@line3/opt/hotel/", Address("line3", "pi", None, "/opt/hotel"), "ssh pi@line3"),
        ("ssh://line3/~/my%20hotel", Address("line3", None, None, "~/my hotel"), "ssh line3"),
        ("ssh://[fe80::1%eth0]:22/opt/x", Address("fe80::1%eth0", None, 22, "/opt/x"), "ssh -p 22 fe80::1%eth0"),
        ("ssh://192.0.2.7", Address("192.0.2.7"), "ssh 192.0.2.7"),
    ],
)
def test_what_an_address_says(text: str, expected: Address, typed: str) -> None:
    found = ssh.parse(text)
    assert found == expected
    assert found.typed == typed
    assert ssh.parse(found.url.replace(" ", "%20")) == expected


def test_this_machine() -> None:
    assert ssh.parse("local") is None


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        ("pi@line3", "'pi@line3' is no target", "a target is local"),
        ("", "'' is no target", "a target is local"),
        ("http://line3", "'http://line3' is no target", "a target is local"),
        ("ssh://-oProxyCommand=x", "'-oProxyCommand=x' is no name of a host", "no `-` in front"),
        ("ssh://", "'' is no name of a host", "letters"),
        ("ssh://a;b", "'a;b' is no name of a host", "letters"),
        ("ssh://$(x)", "'$(x)' is no name of a host", "letters"),
        ("ssh://-l@line3", "'-l' is no name of a user", "letters"),
        ("ssh://@line3", "'' is no name of a user", "letters"),
        ("ssh://pi:secret@line3", "ssh://pi:...@line3: 'pi' is no name of a user", "a password never stands"),
        ("ssh://line3:x", "'x' is no port", "1 to 65535"),
        ("ssh://line3:0", "'0' is no port", "1 to 65535"),
        ("ssh://line3:٣", "'٣' is no port", "1 to 65535"),
        ("ssh://line3/opt/../etc", "'/opt/../etc' is no folder", "without `..`"),
        ("ssh://line3/opt%0a", "no folder of an install", "without `..`"),
        ("ssh://[x]", "'[x]' is no name of a host", "letters"),
    ],
)
def test_what_is_no_address(text: str, what: str, why: str) -> None:
    with pytest.raises(UsageError) as error:
        ssh.parse(text)
    assert what in error.value.what
    assert why in error.value.why
    assert "--target " in error.value.fix
    assert "secret" not in f"{error.value.what}{error.value.why}{error.value.fix}"


def test_without_a_scheme_it_is_said_how_to_write_it() -> None:
    with pytest.raises(UsageError) as error:
        ssh.parse("pi@line3")
    assert error.value.fix == "--target ssh://pi@line3"


@given(st.one_of(st.text(), st.text().map("ssh://{}".format), st.from_regex(r"ssh://[^/]{0,9}(/.{0,9})?")))
def test_no_part_of_any_address_is_an_option_or_more_than_one_word(text: str) -> None:
    try:
        found = ssh.parse(text)
    except UsageError:
        return
    if found is not None:
        for part in (found.host, found.user or "x"):
            assert part
            assert not part.startswith("-")
            assert not set(part) & set(" \t\n;&|$`'\"\\<>(){}*?!#~@/")
        assert ssh.parse(found.url.replace("%", "%25") if "%" not in found.host else found.url) is not None
