"""Who waits for whom before ranks exchange anything, with a store in this process."""

from __future__ import annotations

from threading import Thread

import pytest

from edgepack.errors import StageFailedError
from edgepack.paddle_ml.meeting import BEAT_SECONDS, GONE, SILENCE_SECONDS, Meeting


class Store:
    """As Paddle's, for threads."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def add(self, name: str, number: int) -> int:
        self.numbers[name] = self.numbers.get(name, 0) + number
        return self.numbers[name]


class Lost:
    """The process that keeps the store has ended."""

    def add(self, name: str, number: int) -> int:
        raise ValueError("(InvalidArgument) TCP receive error.\n  [Hint: ...]")


def test_nobody_goes_on_before_all_have_come() -> None:
    store, met = Store(), list[str]()
    first, second = Meeting(store, 2), Meeting(store, 2)

    def come_twice() -> None:
        for number in (1, 2):
            first.wait()
            met.append(f"first {number}")

    other = Thread(target=come_twice)
    other.start()
    assert met == []
    second.wait()
    second.wait()
    other.join(60)
    assert met == ["first 1", "first 2"]


def test_one_that_ends_lets_the_others_go() -> None:
    store = Store()
    Meeting(store, 2).end()
    with pytest.raises(StageFailedError, match=GONE) as caught:
        Meeting(store, 2).wait()
    assert "an error of its own" in caught.value.why
    assert "on all of them" in caught.value.fix


def test_one_that_does_not_come_is_waited_for_no_longer_than_the_limit() -> None:
    with pytest.raises(StageFailedError, match=GONE) as caught:
        Meeting(Store(), 2, limit_seconds=0).wait()
    assert caught.value.why == "one of them did not go on for 0 minutes"


class Clock:
    """Goes on by a second whenever somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 1.0


class Beaten(Store):
    """A store in which the other ranks give signs of life, until some time."""

    def __init__(self, clock: Clock, until: float, ranks: tuple[int, ...]) -> None:
        super().__init__()
        self._clock, self._until, self._ranks = clock, until, ranks

    def add(self, name: str, number: int) -> int:
        if name.rpartition("/")[2] in map(str, self._ranks) and self._clock.now < self._until:
            return super().add(name, 1)
        return super().add(name, number)


def test_one_that_gives_no_sign_of_life_any_more_is_missed() -> None:
    clock = Clock()
    store = Beaten(clock, 50.0, (0, 2))
    with pytest.raises(StageFailedError, match=GONE) as caught:
        Meeting(store, 3, clock=clock, sleep=clock.sleep).wait()
    assert caught.value.why == "process 1 of 3 was killed, or its machine is lost"
    silence = clock.now - 50.0
    assert SILENCE_SECONDS < silence + BEAT_SECONDS < SILENCE_SECONDS + 3 * BEAT_SECONDS


def test_one_that_has_given_no_sign_yet_is_waited_for() -> None:
    clock = Clock()
    with pytest.raises(StageFailedError, match=GONE) as caught:
        Meeting(Store(), 2, limit_seconds=100.0, clock=clock, sleep=clock.sleep).wait()
    assert "did not go on" in caught.value.why


def test_a_lost_store_is_a_process_that_has_ended() -> None:
    with pytest.raises(StageFailedError, match=GONE) as caught:
        Meeting(Lost(), 2).wait()
    assert caught.value.why == "(InvalidArgument) TCP receive error."


def test_the_keeper_of_the_store_leaves_last() -> None:
    store = Store()
    left = list[str]()

    def leave() -> None:
        Meeting(store, 2).leave(last=True)
        left.append("keeper")

    keeper = Thread(target=leave)
    keeper.start()
    assert left == []
    Meeting(store, 2).leave(last=False)
    keeper.join(60)
    assert left == ["keeper"]
