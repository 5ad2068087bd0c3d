"""A chunk that outlasts the limit, and of which nothing alone does, is not cut again: its parts are run one at a time."""

import asyncio
import sys

import pytest
from structlog.testing import capture_logs

import streamkit as sk
from streamkit.graph.policy import ErrorPolicy
from streamkit.runtime.whereabouts import whereabouts
from streamkit.testing import Harness
from streamkit.testing.virtual_time import VirtualLoop
from tests.runtime.test_watch import LENGTHS, LIMIT_S, WORDS, slow, watch_over

LATER_MS = 10_000


def test_long_records_in_one_chunk_are_run_singly_from_then_on() -> None:
    """The quick ones make the chunk grow, at each start anew to the same size."""
    ran: list[str] = []
    work = {"quick": 0.0, "long": 0.3 * LIMIT_S}
    with (
        capture_logs() as logs,
        Harness(slow(work, ran), partitions=1, processing_max_s=LIMIT_S, workers=0) as harness,
    ):
        harness.send(WORDS, *["quick"] * 31, *["long"] * 5, *["quick"] * 31)
        harness.scale(1)
        watch_over(harness, [])
        harness.run()
        assert len(harness.read(LENGTHS)) == 67
        assert harness.dead_letters() == []
    left = [entry for entry in logs if entry["event"].startswith("a step holds the event loop")]
    assert len(left) == 1
    assert ran.count("long") == 5 + 5


def test_a_long_record_is_not_blamed_for_those_before_it_in_its_chunk() -> None:
    """It takes most of its limit: behind others it seems to have taken more, alone it does not."""
    ran: list[str] = []
    work = {"quick": 0.0, "long": 0.2 * LIMIT_S, "longest": 0.9 * LIMIT_S}
    with Harness(slow(work, ran), partitions=1, processing_max_s=LIMIT_S, workers=0) as harness:
        harness.send(WORDS, *["quick"] * 31, *["long"] * 2, "longest", *["quick"] * 31)
        harness.scale(1)
        watch_over(harness, [])
        harness.run()
        assert len(harness.read(LENGTHS)) == 65
        assert harness.dead_letters() == []
    assert ran.count("longest") == 2


class Ringing(sk.Operator[str, int, int]):
    """A timer for every record, all due at once; those of the records from 2000 on take some time."""

    def __init__(self, fired: list[int]) -> None:
        self.fired = fired

    def on_record(self, value: int, ctx: sk.Context[str, int]) -> None:
        ctx.set_timer(value + LATER_MS)

    def on_timer(self, timer: sk.Timer, ctx: sk.Context[str, int]) -> None:
        self.fired.append(timer.time)
        spend(0.3 * LIMIT_S if timer.time >= 2000 + LATER_MS else 0.0)
        ctx.emit(timer.time - LATER_MS)


def spend(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.spend(seconds, whereabouts(sys._getframe(1)))


def test_long_timers_in_one_chunk_are_fired_singly_from_then_on() -> None:
    fired: list[int] = []
    times = sk.topic("times", int, time=lambda value: value)
    pipeline = sk.pipeline("slow-timers")
    pipeline.read(times).key_by(lambda _: "k").process(Ringing(fired), name="ringing").write(LENGTHS)
    with Harness(pipeline, partitions=1, processing_max_s=LIMIT_S) as harness:
        watch_over(harness, [])
        harness.send(times, *range(1000, 1031), *range(2000, 2005))
        harness.run()
        # Not past its own timer, or that would be due too.
        harness.send(times, LATER_MS + 3_000)
        harness.advance(60)
        assert harness.read(LENGTHS) == [*range(1000, 1031), *range(2000, 2005)]
        assert harness.dead_letters() == []
    assert fired.count(2004 + LATER_MS) == 2


def test_long_steps_behind_held_back_results_are_run_singly_from_then_on() -> None:
    ran: list[str] = []

    def work(key: str, count: int) -> int:
        ran.append(key)
        spend(0.3 * LIMIT_S if key.startswith("long") else 0.0)
        return count

    pipeline = sk.pipeline("held")
    counts = pipeline.read(WORDS).key_by(lambda word: word).count(name="n", updates="latest")
    counts.map_keyed(work).write(LENGTHS)
    words = [f"quick{number}" for number in range(31)] + [f"long{number}" for number in range(5)]
    with Harness(
        pipeline, partitions=1, workers=0, processing_max_s=LIMIT_S, commit_interval_s=1.0
    ) as harness:
        harness.send(WORDS, *words)
        harness.scale(1)
        watch_over(harness, [])
        harness.run()
        assert harness.read(LENGTHS) == [1] * 36
        assert harness.dead_letters() == []
    assert ran.count("long4") <= 4  # in virtual time the watch may hear the answer a turn later


def held_back(work: dict[str, float], ran: list[str], policy: ErrorPolicy) -> sk.Pipeline:
    """Counts of words, sent on at the end of each span, by a step that takes as long as the word says."""

    def publish(key: str, count: int) -> int:
        ran.append(key)
        spend(work.get(key, 0.0))
        return count

    pipeline = sk.pipeline("held", on_error=policy)
    counts = pipeline.read(WORDS).key_by(lambda word: word).count(name="n", updates="latest")
    counts.map_keyed(publish, name="publish").write(LENGTHS)
    return pipeline


@pytest.mark.parametrize("policy", [sk.dead_letter(), sk.skip()])
def test_a_held_back_result_that_outlasts_the_limit_is_set_aside(policy: ErrorPolicy) -> None:
    """Also the later ones of its key: the step hangs on them too, as far as anybody can tell."""
    ran: list[str] = []
    pipeline = held_back({"stuck": 1.5 * LIMIT_S}, ran, policy)
    with Harness(pipeline, partitions=1, workers=0, processing_max_s=LIMIT_S) as harness:
        harness.send(WORDS, "a", "stuck", "b")
        harness.scale(1)
        watch_over(harness, [])
        harness.run()
        assert harness.read(LENGTHS) == [1, 1]
        letters = harness.dead_letters()
        assert [(letter.key, letter.value) for letter in letters] == (
            [(b"stuck", b"1")] if policy.action == "dead_letter" else []
        )
        if letters:
            assert letters[0].headers["streamkit.step"] == b"publish"
            assert b"processing_max_s" in (letters[0].headers["streamkit.error"] or b"")
        for _ in range(2):
            harness.send(WORDS, "stuck", "a")
            harness.run()
        assert harness.read(LENGTHS) == [2, 3]
        assert [letter.value for letter in harness.dead_letters()] == [b"2", b"3"][: 2 * len(letters)]
    assert ran.count("stuck") == 2


def test_a_policy_to_fail_stops_the_task_at_a_condemned_result_without_running_it() -> None:
    ran: list[str] = []
    pipeline = held_back({"stuck": 1.5 * LIMIT_S}, ran, sk.fail())
    with Harness(pipeline, partitions=1, workers=0, processing_max_s=LIMIT_S) as harness:
        harness.send(WORDS, "stuck")
        harness.scale(1)
        watch_over(harness, [])
        harness.advance(100 * LIMIT_S)
        assert harness.read(LENGTHS) == []
        loop = harness.workers[0].loop
        assert loop is not None
        assert max(task.book.in_a_row for task in loop.roster.tasks.values()) > 1
    assert ran.count("stuck") == 2


def test_a_result_that_never_returns_is_condemned_by_the_next_life() -> None:
    ran: list[str] = []
    ended: list[bool] = []
    pipeline = held_back({"stuck": 1000 * LIMIT_S}, ran, sk.dead_letter())
    with Harness(pipeline, partitions=1, workers=0, processing_max_s=LIMIT_S) as harness:
        harness.send(WORDS, "a", "stuck", "b")
        harness.scale(1)
        for _ in range(2):
            watch_over(harness, ended)
            harness.advance(4 * LIMIT_S)
            harness.crash(0)
            harness.advance(1000 * LIMIT_S)  # the code of the crashed one is gone by then
            harness.restart(0)
        harness.run()
        assert harness.read(LENGTHS) == [1, 1]
        assert [letter.key for letter in harness.dead_letters()] == [b"stuck"]
    assert ended == [True, True]
    assert ran.count("stuck") == 2
