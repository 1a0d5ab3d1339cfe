from __future__ import annotations

from dataclasses import replace

import pytest

from edgepack.binaries import dynamic_loader
from edgepack.binaries.elf import Binary, Need
from edgepack.errors import StageFailedError
from edgepack.targets.profiles import Cuda, Profile

ORIN = Cuda(version="12.6", sm=("87",))


def binary(*libraries: str, paths: tuple[str, ...] = (), stack: bool = False, text: bool = False) -> Binary:
    needs: frozenset[Need] = frozenset()
    return Binary("EM_X86_64", 64, needs, frozenset(libraries), paths, executable_stack=stack, text_relocations=text)


@pytest.mark.parametrize(
    "path", ["$ORIGIN", "${ORIGIN}", "$ORIGIN/../../fakelib.libs", "$ORIGIN/../../nvidia/cublas/lib", "$ORIGIN/./x"]
)
def test_paths_within_the_bundle_are_fine(path: str) -> None:
    assert list(dynamic_loader.check_search_paths("fakelib/core/a.so", binary(paths=(path,)))) == []
    assert list(dynamic_loader.check_search_paths("a.so", binary(paths=("$ORIGIN", "$ORIGIN/a.libs")))) == []


@pytest.mark.parametrize(
    "path",
    [
        *(".", "lib", "../lib", "/tmp", "/tmp/build/lib", "/var/tmp/x", "/dev/shm", "/tmp/", "/opt/../tmp"),
        *("//tmp/x", "///tmp", "/run/lock", "/var/lock/x", "/proc/self/cwd", "/proc/self/cwd/lib"),
    ],
)
def test_places_that_anybody_fills_are_refused(path: str) -> None:
    with pytest.raises(
        StageFailedError, match=r"fakelib/a\.so would load libraries that are not the bundle's"
    ) as caught:
        list(dynamic_loader.check_search_paths("fakelib/a.so", binary(paths=("$ORIGIN", path))))
    assert "RPATH" in caught.value.why


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "the folder that a program is started in"),
        ("/usr/local/cuda/lib64", "as it was on the machine that built it"),
        ("/home/builder/lib", "as it was on the machine that built it"),
        ("/tmpfs/lib", "as it was on the machine that built it"),
        ("$ORIGIN/../..", "outside of the bundle"),
        ("$ORIGIN/../../../lib", "outside of the bundle"),
    ],
)
def test_other_places_are_noted(path: str, message: str) -> None:
    [line] = dynamic_loader.check_search_paths("fakelib/a.so", binary(paths=(path,)))
    assert line.startswith("fakelib/a.so ")
    assert path in line
    assert message in line


def test_libraries_that_the_device_must_have_leave_out_glibc_and_what_is_carried() -> None:
    files = {"a.so": binary("libc.so.6", "libm.so.6", "libmvec.so.1", "libresolv.so.2", "libz.so.1", "libx.so")}
    assert dynamic_loader.needed(files, {"libx.so"}) == ("libz.so.1",)


@pytest.mark.parametrize(
    ("libraries", "gpu", "note"),
    [
        (("libgomp.so.1",), False, "a.so needs libgomp.so.1: neither carried nor part of every system"),
        (("libstdc++.so.6",), False, ""),
        (("libcublas.so.12",), False, "the target has no GPU"),
        (("libcuda.so.1", "libcudart.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcudnn.so.9"), True, ""),
        *(
            (
                ("libnvinfer.so.10", "libnvonnxparser.so.10"), gpu,
                "a.so needs libnvinfer.so.10, libnvonnxparser.so.10: edgepack does not use TensorRT",
            )
            for gpu in (False, True)
        ),
    ],
)  # fmt: skip
def test_libraries_that_nobody_promises_are_noted(
    profile: Profile, libraries: tuple[str, ...], gpu: bool, note: str
) -> None:
    meant = replace(profile, cuda=ORIN) if gpu else profile
    found = list(dynamic_loader.check_needed({"b.so": binary(*libraries), "a.so": binary(*libraries)}, (), meant))
    assert len(found) == bool(note) and all(note in line for line in found)


@pytest.mark.parametrize(("library", "has"), [("libcudart.so.13", "CUDA 12.6"), ("libcublas.so.11", "CUDA 12.6")])
def test_another_release_of_the_gpu_stack_is_refused(profile: Profile, library: str, has: str) -> None:
    meant = replace(profile, cuda=ORIN)
    with pytest.raises(StageFailedError) as caught:
        list(dynamic_loader.check_needed({"pkg/a.so": binary(library)}, (), meant))
    assert caught.value.why == f"it needs {library}, and the target has {has}"
    assert list(dynamic_loader.check_needed({"pkg/a.so": binary(library)}, {library}, meant)) == [], "it is carried"


def test_what_hardened_systems_refuse_is_noted() -> None:
    assert list(dynamic_loader.check_flags("a.so", binary())) == []
    [stack] = dynamic_loader.check_flags("a.so", binary(stack=True))
    assert "executable stack" in stack
    [text] = dynamic_loader.check_flags("a.so", binary(text=True))
    assert "text relocations" in text
