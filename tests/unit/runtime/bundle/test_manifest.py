"""The manifest: round trip, and refusal of anything else."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.sweeps import examples

from edgepack_runtime.bundle.manifest import (
    VERSION,
    FileEntry,
    Interpreter,
    Manifest,
    TargetFacts,
    dump,
    parse,
    release_id,
    safe_path,
    sequence_of,
)
from edgepack_runtime.errors import BundleInvalidError

NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5), JSON, max_size=3)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20)
PATHS = st.lists(st.from_regex(r"[a-z\u4e00-\u4e20]{1,6}/[a-z]{1,3}\.py", fullmatch=True), max_size=5, unique=True)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    entries = [
        FileEntry(path, draw(st.integers(0, 10**9)), draw(st.from_regex(r"[0-9a-f]{64}", fullmatch=True)))
        for path in sorted(draw(PATHS))
    ]
    machines = draw(st.sampled_from([("aarch64",), ("x86_64",), ("aarch64", "x86_64")]))
    return Manifest(
        name=draw(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)),
        version=draw(st.from_regex(VERSION, fullmatch=True)),
        sequence=draw(st.integers(0, 2**53)),
        task=draw(TEXTS),
        target=TargetFacts(draw(TEXTS), machines, draw(TEXTS), draw(st.sampled_from(["host", "bundled"])), draw(TEXTS)),
        model=draw(OBJECTS),
        gates=draw(OBJECTS),
        ledger=tuple(draw(st.lists(OBJECTS, max_size=2))),
        tools=draw(st.dictionaries(st.text(max_size=5), TEXTS, max_size=2)),
        recipe_sha256=draw(st.from_regex(r"[0-9a-f]{64}", fullmatch=True)),
        stub_sha256=draw(st.from_regex(r"[0-9a-f]{64}", fullmatch=True)),
        interpreters=tuple(Interpreter(one, draw(TEXTS), draw(st.integers(0, 10**9)), "0" * 64) for one in machines),
        files=tuple(entries),
    )


@given(manifests())
def test_dump_and_parse_round_trip(manifest: Manifest) -> None:
    raw = dump(manifest)
    assert parse(raw) == manifest
    assert dump(parse(raw)) == raw
    assert release_id(manifest, raw).startswith(manifest.version + "-")


@given(st.binary(max_size=200))
@example(b"[" * 100_000)
@example(b'{"edgepack_bundle": ' + b"9" * 5000 + b"}")
@example(b'"\\ud800"')
def test_any_bytes_give_a_manifest_or_an_error(raw: bytes) -> None:
    with pytest.raises(BundleInvalidError):
        parse(raw)


@given(manifests(), st.data())
@settings(max_examples=examples(200))
def test_any_value_in_any_field_gives_a_manifest_or_an_error(manifest: Manifest, data: st.DataObject) -> None:
    document = json.loads(dump(manifest))
    place: Any = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        deeper = place[key]
        if not (isinstance(deeper, (dict, list)) and deeper and data.draw(st.booleans())):
            break
        place = deeper
    if data.draw(st.booleans()) and isinstance(place, dict):
        del place[key]
    else:
        place[key] = data.draw(JSON)
    try:
        parsed = parse(json.dumps(document).encode())
    except BundleInvalidError:
        return
    assert isinstance(parsed, Manifest)
    assert all(safe_path(entry.path) for entry in parsed.files)


MANIFEST = Manifest(
    "sentiment", "1.2.0", 1, "text-classification", TargetFacts("t", ("x86_64",), "2.28", "host", "CPU"),
    {}, {}, (), {}, "0" * 64, "1" * 64, (), (),
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "../x"}, "name"),
        ({"version": "1.2"}, "version"),
        ({"version": "1.2.1000"}, "version"),
        ({"sequence": -1}, "sequence"),
        ({"sequence": True}, "sequence"),
        ({"extra": 1}, "extra"),
        ({"edgepack_bundle": 1}, "edgepack_bundle"),
        ({"target": {}}, "target"),
        ({"files": {}}, "files"),
        ({"files": [{"path": "/etc/x", "size": 1, "sha256": "0" * 64}]}, "/etc/x"),
        ({"files": [{"path": "manifest.json", "size": 1, "sha256": "0" * 64}]}, "manifest.json"),
        ({"files": [{"path": p, "size": 1, "sha256": "0" * 64} for p in ("b", "a")]}, "sorted"),
        ({"files": [{"path": p, "size": 1, "sha256": "0" * 64} for p in ("A", "a")]}, "collide"),
        ({"files": [{"path": p, "size": 1, "sha256": "0" * 64} for p in ("a", "a/b")]}, "as a folder"),
    ],
)
def test_errors_name_the_field(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BundleInvalidError) as caught:
        parse(json.dumps({**json.loads(dump(MANIFEST)), **change}).encode())
    assert named in str(caught.value)


@pytest.mark.parametrize("path", ["a", "a/b.c", "词/x", ".hidden/x", "a b"])
def test_plain_paths_are_safe(path: str) -> None:
    """`test_hostile.py` has those that are not."""
    assert safe_path(path)


def test_sequences_order_versions_and_fit_a_manifest() -> None:
    versions = ("0.0.1", "0.1.0", "1.9.999", "1.10.0", "1.999.999", "2.0.0", "999999999.999.999")
    assert all(VERSION.match(version) for version in versions)
    numbers = [sequence_of(version) for version in versions]
    assert numbers == sorted(set(numbers))
    parse(dump(dataclasses.replace(MANIFEST, version=versions[-1], sequence=numbers[-1])))
