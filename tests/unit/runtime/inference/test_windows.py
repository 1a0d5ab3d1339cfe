"""Windows over a long text: nothing is left out, and each token has one that speaks for it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.tiny_model import write_model_folder

from edgepack_runtime.bundle.model_config import TokenizerConfig
from edgepack_runtime.inference.tokenizer import ErnieTokenizer
from edgepack_runtime.inference.windows import Window, pair_windows, windows


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ErnieTokenizer:
    folder = write_model_folder(tmp_path_factory.mktemp("model"))
    return ErnieTokenizer(folder / "vocab.txt", TokenizerConfig())


def test_windows_are_spread_evenly_and_meet_in_the_middle_of_what_they_share() -> None:
    assert windows(0, 14) == [Window(0, 0, 0)]
    assert windows(14, 14) == [Window(0, 0, 14)]
    assert windows(15, 14) == [Window(0, 0, 8), Window(1, 8, 15)]
    assert windows(36, 16) == [Window(0, 0, 13), Window(10, 13, 23), Window(20, 23, 36)]
    assert [window.own for window in windows(36, 16)] == [13, 10, 13]


@given(st.integers(0, 3000), st.integers(1, 130))
def test_every_token_belongs_to_one_window_in_which_it_lies_farthest_from_an_edge(n: int, length: int) -> None:
    found = windows(n, length)
    assert [token for window in found for token in range(window.first, window.after)] == list(range(n))
    if n <= length:
        assert len(found) == 1
        return
    assert found[0].start == 0
    assert found[-1].start + length == n

    def depth(window: Window, token: int) -> int:
        return min(token - window.start, window.start + length - 1 - token)

    for window, after in itertools.pairwise(found):
        assert 0 < after.start - window.start <= length - length // 4
    for number, window in enumerate(found):
        near = found[max(0, number - 3) : number + 4]  # at most that many hold one token, at this overlap
        for token in range(window.first, window.after):
            assert window.start <= token < window.start + length
            assert depth(window, token) >= max(depth(other, token) for other in near)


@given(st.integers(1, 3000), st.integers(4, 130))
def test_there_are_no_more_windows_than_the_overlap_asks_for(n: int, length: int) -> None:
    found = windows(n, length)
    if len(found) > 1:
        fewer = (n - length) / (len(found) - 2) if len(found) > 2 else n
        assert fewer > length - length // 4


@given(st.text("好差很ok, ", max_size=8), st.text("好差很ok, \u0301", max_size=60), st.integers(12, 40))
def test_windows_of_a_pair_hold_the_first_text_and_all_of_the_second(
    tokenizer: ErnieTokenizer, first: str, second: str, max_length: int
) -> None:
    found = list(pair_windows(tokenizer, first, second, max_length))
    [ids], [places] = tokenizer.encode_with_offsets([second], 1000)
    [head] = tokenizer.encode([first], max_length // 2)
    seen: list[int] = []
    for one in found:
        assert len(one.ids) == len(one.offsets) <= max_length
        assert one.ids[: one.n_first] == head and one.ids[-1] == ids[-1]
        assert set(one.offsets[: one.n_first]) == {(0, 0)} == {one.offsets[-1]}
        own = slice(
            one.n_first + one.window.first - one.window.start, one.n_first + one.window.after - one.window.start
        )
        seen += one.ids[own]
        assert list(one.offsets[own]) == places[1 + one.window.first : 1 + one.window.after]
    assert seen == ids[1:-1]
