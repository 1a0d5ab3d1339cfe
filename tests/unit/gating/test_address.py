from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.errors import UsageError
from edgepack.gating import address
from edgepack.gating.address import Address


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
    found = address.parse(text)
    assert found == expected
    assert found.ssh_command == typed
    assert address.parse(found.url.replace(" ", "%20")) == expected


def test_this_machine() -> None:
    assert address.parse("local") is None


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        ("pi@line3", "'pi@line3' is not a target", "a target is local"),
        ("", "'' is not a target", "a target is local"),
        ("http://line3", "'http://line3' is not a target", "a target is local"),
        ("ssh://-oProxyCommand=x", "'-oProxyCommand=x' is not a host name", "no `-` at the start"),
        ("ssh://", "'' is not a host name", "letters"),
        ("ssh://a;b", "'a;b' is not a host name", "letters"),
        ("ssh://$(x)", "'$(x)' is not a host name", "letters"),
        ("ssh://-l@line3", "'-l' is not a user name", "letters"),
        ("ssh://@line3", "'' is not a user name", "letters"),
        ("ssh://pi:secret@line3", "ssh://pi:...@line3: 'pi' is not a user name", "cannot hold a password"),
        ("ssh://line3:x", "'x' is not a port", "1 to 65535"),
        ("ssh://line3:0", "'0' is not a port", "1 to 65535"),
        ("ssh://line3:٣", "'٣' is not a port", "1 to 65535"),
        ("ssh://line3/opt/../etc", "'/opt/../etc' is not a prefix", "without `..`"),
        ("ssh://line3/opt%0a", "not a prefix of an install", "without `..`"),
        ("ssh://[x]", "'[x]' is not a host name", "letters"),
    ],
)
def test_an_invalid_address_is_refused(text: str, what: str, why: str) -> None:
    with pytest.raises(UsageError) as error:
        address.parse(text)
    assert what in error.value.what
    assert why in error.value.why
    assert "--target " in error.value.fix
    assert "secret" not in f"{error.value.what}{error.value.why}{error.value.fix}"


def test_without_a_scheme_it_is_said_how_to_write_it() -> None:
    with pytest.raises(UsageError) as error:
        address.parse("pi@line3")
    assert error.value.fix == "--target ssh://pi@line3"


@given(st.one_of(st.text(), st.text().map("ssh://{}".format), st.from_regex(r"ssh://[^/]{0,9}(/.{0,9})?")))
def test_no_part_of_any_address_is_an_option_or_more_than_one_word(text: str) -> None:
    try:
        found = address.parse(text)
    except UsageError:
        return
    if found is not None:
        for part in (found.host, found.user or "x"):
            assert part
            assert not part.startswith("-")
            assert not set(part) & set(" \t\n;&|$`'\"\\<>(){}*?!#~@/")
        assert address.parse(found.url.replace("%", "%25") if "%" not in found.host else found.url) is not None
