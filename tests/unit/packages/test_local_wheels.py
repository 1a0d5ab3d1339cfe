from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.errors import EnvironmentUnfitError, UsageError
from edgepack.packages import local_wheels
from edgepack.targets import profile_file

JETSON = profile_file.load_profiles()["jetpack6"]
LOCKED = {"numpy", "onnxruntime", "tokenizers"}
FITS = "onnxruntime_gpu-1.23.0-cp310-cp310-linux_aarch64.whl"


def wheel(folder: Path, name: str) -> Path:
    (folder / name).write_bytes(b"")
    return folder / name


def test_a_gpu_wheel_stands_for_the_one_of_the_lock(tmp_path: Path) -> None:
    file = wheel(tmp_path, FITS)
    found = local_wheels.checked([file], JETSON, LOCKED)
    assert found == {"onnxruntime-gpu": file}
    assert local_wheels.replaced(found, JETSON) == {"onnxruntime-gpu", "onnxruntime"}


def test_a_jetson_without_one_is_refused_with_what_to_type() -> None:
    with pytest.raises(EnvironmentUnfitError) as caught:
        local_wheels.checked([], JETSON, LOCKED)
    assert "onnxruntime-gpu" in caught.value.what
    assert "wheels: {jetpack6: [FILE.whl]}" in caught.value.fix
    assert "linux-aarch64" in caught.value.fix


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("onnxruntime_gpu-1.23.0-cp310-cp310-linux_x86_64.whl", "linux_x86_64"),
        ("onnxruntime_gpu-1.23.0-cp310-cp310-manylinux_2_39_aarch64.whl", "manylinux_2_35_aarch64"),
        ("torch-2.4.0-cp310-cp310-linux_aarch64.whl", "do not carry torch"),
    ],
)
def test_one_that_does_not_fit_is_refused_with_the_reason(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(EnvironmentUnfitError) as caught:
        local_wheels.checked([wheel(tmp_path, name)], JETSON, LOCKED)
    assert why in caught.value.why


def test_two_of_a_kind_and_missing_ones_are_refused(tmp_path: Path) -> None:
    """The same one may be given by the recipe and by `--wheel`."""

    def why(*files: Path) -> str:
        with pytest.raises(EnvironmentUnfitError, match="cannot go into") as caught:
            local_wheels.checked(files, JETSON, LOCKED)
        return caught.value.why

    assert "there is no file" in why(tmp_path / FITS)
    file = wheel(tmp_path, FITS)
    assert "is one of onnxruntime-gpu too" in why(file, wheel(tmp_path, FITS.replace("1.23.0", "1.23.1")))
    (tmp_path / "link").symlink_to(tmp_path)
    assert why(file, tmp_path / "link" / FITS) == "it is given twice"


def test_what_is_no_wheel_is_a_matter_of_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a valid wheel file name"):
        local_wheels.checked([wheel(tmp_path, "onnxruntime.whl")], JETSON, LOCKED)


def test_each_target_gets_those_that_it_takes(tmp_path: Path) -> None:
    """A target for the CPU of the same machine carries no GPU build."""
    gpu, numpy = wheel(tmp_path, FITS), wheel(tmp_path, "numpy-2.2.6-cp310-cp310-linux_aarch64.whl")
    cpu = profile_file.load_profiles()["linux-aarch64"]
    takers = {"jetpack6": (JETSON, LOCKED), "linux-aarch64": (cpu, LOCKED)}
    assert local_wheels.shared_out([gpu, numpy], takers) == {"jetpack6": (gpu, numpy), "linux-aarch64": (numpy,)}
    foreign = wheel(tmp_path, FITS.replace("aarch64", "x86_64"))
    with pytest.raises(UsageError) as caught:
        local_wheels.shared_out([foreign], takers)
    assert "jetpack6: it is for linux_x86_64" in caught.value.why
    assert "linux-aarch64: bundles for this target do not carry onnxruntime-gpu" in caught.value.why
