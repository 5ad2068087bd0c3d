"""A look beside the loop that fails is told, tried again, and ends the worker if it never works again."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from streamkit.errors import Bug, Misconfigured, Retry
from streamkit.runtime.growth import LOOK_S
from streamkit.runtime.periodic_checks import PAUSE_MAX_S, UNEXPECTED_MAX, CheckFailures, PeriodicCheck
from streamkit.testing import Harness
from streamkit.testing.memory.admin import MemoryAdmin
from streamkit.testing.virtual_time import VirtualLoop
from tests.progress.alarms import ORDERS, RINGS, Order, key_on, ringing
from tests.runtime.pages import VIEWS, View, counting

HOUR_S = 3600


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(0)
    yield loop
    loop.close()


class Looker:
    """A loop that comes by four times a second, for so long."""

    def __init__(self, answers: Callable[[int], BaseException | None]) -> None:
        self.look = PeriodicCheck("something")
        self.began_at: list[float] = []
        self._answers = answers

    async def ask(self) -> None:
        self.began_at.append(asyncio.get_running_loop().time())
        if (error := self._answers(len(self.began_at))) is not None:
            raise error

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + seconds
        while loop.time() < until_s:
            if self.look.is_due(loop.time()):
                self.look.begin(self.ask(), loop.time(), 1.0)
            await asyncio.sleep(0.25)
        await self.look.stop()


@pytest.mark.parametrize("error", [ZeroDivisionError("ours"), Bug("ours"), asyncio.CancelledError()])
def test_what_nobody_expected_is_told_with_its_traceback_and_looked_for_later_each_time(
    loop: VirtualLoop, error: BaseException
) -> None:
    looker = Looker(lambda times: error if times < UNEXPECTED_MAX else None)
    with capture_logs() as told:
        loop.run_until_complete(looker.run(600))
    assert [each["exc_info"] for each in told if type(each["exc_info"]) is type(error)] == [
        each["exc_info"] for each in told
    ]
    assert [each["failures"] for each in told] == list(range(1, UNEXPECTED_MAX))
    assert {each["log_level"] for each in told} == {"error"}
    times = looker.began_at
    pauses = [round(after - before) for before, after in itertools.pairwise(times)]
    assert pauses[: UNEXPECTED_MAX - 1] == [2, 4, 8, 16, 32, PAUSE_MAX_S, PAUSE_MAX_S]
    assert set(pauses[UNEXPECTED_MAX:]) == {1}  # all is well again


def test_a_look_that_never_works_again_ends_with_a_person(loop: VirtualLoop) -> None:
    looker = Looker(lambda _: ZeroDivisionError("ours"))
    with pytest.raises(Bug, match="the periodic check of something failed 8 times in a row") as ended:
        loop.run_until_complete(looker.run(HOUR_S))
    assert "ZeroDivisionError: ours" in ended.value.detail
    assert isinstance(ended.value.__cause__, ZeroDivisionError)


def test_unexpected_failures_that_do_not_follow_each_other_end_nothing(loop: VirtualLoop) -> None:
    looker = Looker(lambda times: ZeroDivisionError("ours") if times % UNEXPECTED_MAX else None)
    loop.run_until_complete(looker.run(HOUR_S))


@pytest.mark.parametrize("error", [Retry("nobody answers"), Misconfigured("not for us")])
def test_a_cluster_that_does_not_answer_is_asked_for_ever_and_told_of_seldom(
    loop: VirtualLoop, error: BaseException
) -> None:
    looker = Looker(lambda _: error)
    with capture_logs() as told:
        loop.run_until_complete(looker.run(HOUR_S))
    assert len(looker.began_at) > 3000  # at its time, as ever
    assert 5 <= len(told) <= 60
    assert {each["look"] for each in told} == {"something"}
    assert told[-1]["log_level"] == "error"


def test_patience_begins_anew_after_a_success(loop: VirtualLoop) -> None:
    async def play() -> None:
        patience = CheckFailures("something")
        for _ in range(3):
            for _ in range(UNEXPECTED_MAX - 1):
                patience.failed(ZeroDivisionError(), 1.0)
            patience.went_well()

    loop.run_until_complete(play())


def break_looks(monkeypatch: pytest.MonkeyPatch, name: str, times: float, error: Exception) -> list[int]:
    """The admin of the cluster fails so often from now on; how often it has."""
    asked, failed = getattr(MemoryAdmin, name), [0]

    async def ask(self: MemoryAdmin, *args: Any, **options: Any) -> Any:
        if failed[0] < times:
            failed[0] += 1
            raise error
        return await asked(self, *args, **options)

    monkeypatch.setattr(MemoryAdmin, name, ask)
    return failed


def keep_busy(harness: Harness, seconds: int, start: int = 100) -> None:
    for number in range(seconds):
        harness.send(ORDERS, Order(start + number, "busy"), key=key_on(0, 2))
        harness.advance(1)


def test_event_time_goes_on_after_looks_for_idle_partitions_have_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Harness(ringing(shuffles=1), partitions=2, local_shuffle=False) as harness:
        harness.send(ORDERS, Order(0, set=[10]), Order(100), key=key_on(0, 2))
        keep_busy(harness, 25)
        broken = break_looks(monkeypatch, "end_offsets", 3, ZeroDivisionError("ours"))
        with capture_logs() as told:
            keep_busy(harness, 60, 200)
        assert broken == [3]
        assert sum("exc_info" in each for each in told) == 3
        assert harness.read(RINGS) == ["a@10"]


@pytest.mark.parametrize("name", ["end_offsets", "partitions"])
def test_a_worker_whose_looks_never_work_again_ends(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """By the ends of outputs, of which some may be blocked, and by the partitions of sources, which may grow."""
    with Harness(counting(), partitions=2, local_shuffle=False) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        with monkeypatch.context() as patch:
            break_looks(patch, name, float("inf"), ZeroDivisionError("ours"))
            harness.advance(600)
        work = harness.workers[0].work
        assert work is not None
        assert work.done()
        with pytest.raises(Bug, match="failed 8 times in a row"):
            work.result()


def test_a_cluster_that_cannot_tell_its_partitions_is_told_of_seldom_and_growth_is_noticed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    structlog.configure()  # a harness leaves the logs of others alone: quiet, it would keep the first lines to itself
    with Harness(counting(), partitions=2) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        broken = break_looks(monkeypatch, "partitions", 100, Retry("nobody answers"))
        with capture_logs() as told:
            harness.advance(101 * LOOK_S)
        assert broken == [100]
        about = [each for each in told if each.get("look") == "new partitions of sources"]
        assert [each["failures"] for each in about] == [1, 2, 4, 8, 16, 32, 64]
        harness._do(harness._log.admin().add_partitions("views", 3))
        harness.advance(3 * LOOK_S)
        assert {task.partition for task in harness.workers[0].loop.roster.tasks} == {0, 1, 2}
