"""Timers of operators, run by the real runtime."""

from typing import Any

import pytest

import streamkit as sk
from streamkit.task import time_passes
from streamkit.testing import Harness
from tests.progress.alarms import ORDERS, RINGS, Alarms, Order, ringing


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three timers fire in one go, so that every firing is interrupted."""
    monkeypatch.setattr(time_passes, "TIMERS_AT_ONCE", 3)


def settle(harness: Harness, seconds: float = 1.0) -> list[str]:
    """All that the timers said, when nothing more happens."""
    harness.run()
    harness.advance(seconds)
    harness.run()
    return harness.read(RINGS)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("shuffles", [0, 1, 2])
def test_timers_fire_in_the_order_of_their_time(shuffles, guarantee):
    with Harness(ringing(shuffles=shuffles), partitions=1, guarantee=guarantee) as harness:
        harness.send(ORDERS, Order(0, set=[50, 10, 30]), Order(40), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@10", "a@30"]
        harness.send(ORDERS, Order(51), key="a")
        harness.run()
        records = harness.records(RINGS)
        assert [(record.key, record.value, record.timestamp) for record in records] == [("a", "a@50", 50)]


def test_what_a_record_makes_due_fires_before_the_record_behind_it():
    class Both(Alarms):
        def on_record(self, value: Order, ctx: sk.Context[str, str]) -> None:
            super().on_record(value, ctx)
            ctx.emit(f"record {value.at}")

    with Harness(ringing(Both()), partitions=1) as harness:
        harness.send(
            ORDERS, Order(0, set=[10]), Order(10), Order(11), Order(11), Order(5, set=[3]), Order(6), key="a"
        )
        harness.run()
        heard = harness.read(RINGS)
    assert heard == ["record 0", "record 10", "record 11", "a@10", "record 11", "record 5", "a@3", "record 6"]


def test_the_same_timer_twice_is_one_and_a_cancelled_one_is_none():
    with Harness(ringing(), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10, 10, 20, 30]), Order(1, set=[10], cancel=[20, 99]), key="a")
        harness.run()
        harness.crash()
        harness.restart()
        harness.send(ORDERS, Order(2, set=[30]), Order(50), key="a")
        assert settle(harness) == ["a@10", "a@30"]


def test_timers_belong_to_their_key():
    with Harness(ringing(), partitions=1) as harness:
        for key in ("a", "ab", ""):
            harness.send(ORDERS, Order(0, set=[10]), key=key)
        harness.send(ORDERS, Order(1, cancel=[10]), key="a")
        harness.send(ORDERS, Order(20), key="z")
        assert sorted(settle(harness)) == ["@10", "ab@10"]


def test_processing_timers_fire_as_time_passes():
    with Harness(ringing(), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set_in=[5_000, 60_000]), key="a")
        harness.run()
        harness.advance(4.8)
        assert harness.read(RINGS) == []
        harness.advance(0.5)
        assert len(harness.read(RINGS)) == 1
        harness.crash()
        harness.advance(100)
        harness.restart()
        harness.advance(0.5)
        assert len(harness.read(RINGS)) == 1
        harness.advance(100)
        assert harness.read(RINGS) == []


def test_a_processing_timer_can_be_cancelled():
    class Switch(sk.Operator[str, Order, str]):
        armed = sk.value(int, 0)

        def on_record(self, value: Order, ctx: sk.Context[str, str]) -> None:  # noqa: ARG002
            if self.armed.get():
                ctx.cancel_timer(self.armed.get(), clock="processing")
            else:
                self.armed.set(ctx.now + 5_000)
                ctx.set_timer(self.armed.get(), clock="processing")

        def on_timer(self, timer: Any, ctx: sk.Context[str, str]) -> None:  # noqa: ARG002
            ctx.emit("never")

    with Harness(ringing(Switch()), partitions=1) as harness:
        harness.send(ORDERS, Order(0), key="a")
        harness.run()
        harness.send(ORDERS, Order(1), key="a")
        harness.run()
        harness.advance(20)
        assert harness.read(RINGS) == []


def test_a_timer_knows_its_key_its_time_its_clock_and_its_state():
    class Tell(sk.Operator[str, Order, str]):
        sent = sk.value(str, "")

        def on_record(self, value: Order, ctx: sk.Context[str, str]) -> None:
            self.sent.set(self.sent.get() + value.alarm)
            ctx.set_timer(10)
            ctx.set_timer(ctx.now + 1000, clock="processing")

        def on_timer(self, timer: Any, ctx: sk.Context[str, str]) -> None:
            ctx.emit(
                f"{ctx.key} {timer.clock} {self.sent.get()} {ctx.timestamp == timer.time} {ctx.watermark}"
            )

    with Harness(ringing(Tell()), partitions=1) as harness:
        harness.send(ORDERS, Order(0, "x"), Order(1, "y"), Order(15), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a event xya True 14"]
        harness.advance(2)
        assert set(harness.read(RINGS)) == {"a processing xya True 14"}


def test_an_operator_without_on_timer_is_told_what_is_missing():
    class Without(sk.Operator[str, Order, str]):
        def on_record(self, value: Order, ctx: sk.Context[str, str]) -> None:  # noqa: ARG002
            ctx.set_timer(10)

    with Harness(ringing(Without()), partitions=1) as harness:
        harness.send(ORDERS, Order(0), key="a")
        harness.run()
        (letter,) = harness.dead_letters()
        assert b"on_timer" in letter.headers["streamkit.error"]


# Restarts, crashes, deploys.


@pytest.mark.parametrize("shuffles", [0, 1])
def test_timers_and_event_time_survive_a_crash(shuffles):
    with Harness(ringing(shuffles=shuffles), partitions=2, workers=2) as harness:
        for key in ("a", "b", "c", "d"):
            harness.send(ORDERS, Order(100, key, set=[150, 5]), key=key)
        harness.run()
        for worker in (0, 1):
            harness.crash(worker)
            harness.restart(worker)
        for key in ("a", "b", "c", "d"):
            harness.send(ORDERS, Order(90, key, set=[80]), key=key)
        harness.run()
        harness.advance(1)
        early = harness.read(RINGS)
        # Event time stands at 99: what is set for 80 is of the past, also for whoever knows it only from a commit.
        assert sorted(each for each in early if each.endswith("@80")) == [f"{key}@80" for key in "abcd"]
        for key in ("a", "b", "c", "d"):
            harness.send(ORDERS, Order(200, key), key=key)
        assert sorted(settle(harness)) == [f"{key}@150" for key in "abcd"]


def test_a_deploy_keeps_timers():
    class Louder(Alarms):
        def on_timer(self, timer: Any, ctx: sk.Context[str, str]) -> None:
            ctx.emit(f"{ctx.key}@{timer.time}!")

    with Harness(ringing(shuffles=1), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10, 50], set_in=[60_000]), Order(20), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@10"]
        harness.change_pipeline(ringing(Louder(), shuffles=1))
        harness.send(ORDERS, Order(60), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@50!"]
        harness.advance(61)
        assert len(harness.read(RINGS)) == 1


@pytest.mark.parametrize("pause_s", [0.0, 0.002, 0.01, 0.03, 0.2])
def test_a_crash_at_any_moment_fires_every_timer_once(pause_s):
    with Harness(ringing(shuffles=1), partitions=2, workers=2) as harness:
        for turn in range(6):
            for key in ("a", "b", "c"):
                at = turn * 10
                harness.send(ORDERS, Order(at, key, set=[at + 3, at + 25]), key=key)
            harness.advance(pause_s)
            harness.crash(turn % 2)
            harness.restart(turn % 2)
        for key in ("a", "b", "c"):
            harness.send(ORDERS, Order(1000, key), key=key)
        heard = settle(harness, 40)  # a partition without records is waited for until it is idle
    expected = [f"{key}@{turn * 10 + ms}" for key in "abc" for turn in range(6) for ms in (3, 25)]
    assert sorted(heard) == sorted(expected)


# More due at once than fires in one go.


@pytest.mark.parametrize("shuffles", [0, 1])
def test_run_waits_until_all_timers_that_are_due_have_fired(few_at_once, shuffles):
    with Harness(ringing(shuffles=shuffles), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=list(range(1, 101))), Order(200), key="a")
        harness.run()
        assert harness.read(RINGS) == [f"a@{time}" for time in range(1, 101)]


def test_very_many_timers_fire_in_order_with_commits_in_between(few_at_once):
    with Harness(ringing(), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=list(range(1, 101))), Order(200), key="a")
        before = harness.workers[0].loop.committer.commits
        assert settle(harness, 5) == [f"a@{time}" for time in range(1, 101)]
        assert harness.workers[0].loop.committer.commits > before + 5


@pytest.mark.parametrize("pause_s", [0.0005, 0.003, 0.011])
@pytest.mark.parametrize("shuffles", [0, 1])
def test_crashes_while_very_many_timers_fire_lose_and_repeat_none(few_at_once, shuffles, pause_s):
    with Harness(ringing(shuffles=shuffles), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=list(range(1, 101))), Order(200, set=[150]), Order(300), key="a")
        for _ in range(12):
            harness.advance(pause_s)
            harness.crash()
            harness.restart()
        heard = settle(harness, 5)
    assert sorted(heard) == sorted([*(f"a@{time}" for time in range(1, 101)), "a@150"])
    assert heard[:100] == [f"a@{time}" for time in range(1, 101)]


def test_a_step_downstream_does_not_find_late_what_interrupted_timers_emit(few_at_once):
    class Late(sk.Operator[str, str, str]):
        def on_record(self, value: str, ctx: sk.Context[str, str]) -> None:
            ctx.emit(f"{value} {'late' if ctx.timestamp <= ctx.watermark else 'on time'}")

        def on_timer(self, timer: Any, ctx: sk.Context[str, str]) -> None: ...

    pipeline = sk.pipeline("rows")
    pipeline.read_keyed(ORDERS).process(Alarms(), name="alarms").process(Late(), name="late").write(RINGS)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=list(range(1, 40))), Order(200), key="a")
        assert settle(harness) == [f"a@{time} on time" for time in range(1, 40)]


# Timers that fail.


class Refusing(Alarms):
    """Changes state and emits, and then refuses some timers: all of it has to be taken back."""

    def __init__(self, *bad: int, times: int = 10**9) -> None:
        self.bad = set(bad)
        self.tries: dict[int, int] = {}
        self.times = times

    def on_timer(self, timer: Any, ctx: sk.Context[str, str]) -> None:
        super().on_timer(timer, ctx)
        time = timer.time if timer.clock == "event" else 0
        if time in self.bad:
            self.tries[time] = self.tries.get(time, 0) + 1
            if self.tries[time] <= self.times:
                raise ValueError(f"not {time}")
        ctx.emit(f"{self.rung.get()}")


def test_a_timer_that_fails_is_a_dead_letter_and_nothing_else_is_lost():
    with Harness(ringing(Refusing(20, 40)), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10, 20, 30, 40, 50]), Order(60), Order(70), key="a")
        assert settle(harness) == ["a@10", "1", "a@30", "2", "a@50", "3"]
        letters = harness.dead_letters()
        assert [letter.headers["streamkit.timestamp"] for letter in letters] == [b"20", b"40"]
        assert {(letter.key, letter.value) for letter in letters} == {(b"a", None)}
        assert letters[0].headers["streamkit.step"] == b"alarms"
        assert letters[0].headers["streamkit.error"] == b"ValueError: not 20"
        assert b"on_timer" in letters[0].headers["streamkit.traceback"]
        harness.crash()
        harness.restart()
        assert settle(harness) == []
        assert harness.dead_letters() == []


def test_a_timer_that_was_set_aside_may_be_set_again():
    with Harness(ringing(Refusing(20, times=1)), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[20]), Order(60), key="a")
        assert settle(harness) == []
        assert len(harness.dead_letters()) == 1
        harness.send(ORDERS, Order(70, set=[20]), key="a")
        assert settle(harness) == ["a@20", "1"]
        assert harness.dead_letters() == []


def test_skip_leaves_a_failing_timer_out():
    with Harness(ringing(Refusing(20), on_error=sk.skip()), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10, 20, 30]), Order(60), key="a")
        assert settle(harness) == ["a@10", "1", "a@30", "2"]
        assert harness.dead_letters() == []


def test_fail_stops_the_task_until_the_timer_works_and_the_others_go_on():
    operator = Refusing(20, times=3)
    with Harness(ringing(operator, on_error=sk.fail()), partitions=2) as harness:
        harness.send(ORDERS, Order(0, set=[10, 20, 30]), Order(60), key="0")
        harness.send(ORDERS, Order(0, set=[5]), Order(60), key="1")
        harness.advance(60)
        heard = harness.read(RINGS)
        assert sorted(heard) == sorted(["0@10", "1", "0@20", "2", "0@30", "3", "1@5", "1"])
        assert harness.dead_letters() == []
        assert operator.tries[20] == 4


def test_a_timer_that_works_at_the_third_try_is_not_set_aside():
    operator = Refusing(20, times=2)
    with Harness(ringing(operator, on_error=sk.dead_letter(retries=2, delay_s=0.1)), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10, 20, 30]), Order(60), key="a")
        assert settle(harness, 5) == ["a@10", "1", "a@20", "2", "a@30", "3"]
        assert harness.dead_letters() == []


def test_each_failing_timer_is_tried_as_often_as_the_policy_says():
    operator = Refusing(20, 21, 40)
    with Harness(ringing(operator, on_error=sk.dead_letter(retries=2, delay_s=0.1)), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10, 20, 21, 30, 40]), Order(60), key="a")
        assert settle(harness, 5) == ["a@10", "1", "a@30", "2"]
        assert len(harness.dead_letters()) == 3
        assert operator.tries == {20: 3, 21: 3, 40: 3}


def test_the_patience_with_a_processing_timer_ends_also_while_records_keep_coming():
    operator = Refusing(0)
    with Harness(
        ringing(operator, on_error=sk.dead_letter(retries=2, delay_s=0.05)), partitions=1
    ) as harness:
        harness.send(ORDERS, Order(0, set_in=[50]), key="a")
        for number in range(100):
            harness.send(ORDERS, Order(number + 1), key="a")
            harness.advance(0.02)
        harness.run()
        assert len(harness.dead_letters()) == 1
        assert operator.tries[0] == 3


def test_a_task_that_keeps_failing_is_tried_more_and_more_seldom():
    operator = Refusing(20)
    with Harness(ringing(operator, on_error=sk.fail()), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[20]), Order(60), key="a")
        harness.advance(60)
        assert 5 <= operator.tries[20] <= 10  # after 0.5, 1, 2, 4, 8, 16 and 30 s


def test_a_failing_timer_among_very_many_fails_alone(few_at_once):
    with Harness(ringing(Refusing(7, 50, 51)), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=list(range(1, 101))), Order(200), key="a")
        heard = [each for each in settle(harness, 5) if "@" in each]
        assert heard == [f"a@{time}" for time in range(1, 101) if time not in (7, 50, 51)]
        assert len(harness.dead_letters()) == 3


def test_a_timer_in_another_stage_that_fails_takes_nothing_else_with_it():
    with Harness(ringing(Refusing(20), shuffles=1), partitions=2, workers=2) as harness:
        for key in ("a", "b", "c"):
            harness.send(ORDERS, Order(0, key, set=[10, 20, 30]), Order(100, key), key=key)
        heard = [each for each in settle(harness, 2) if "@" in each]
        harness.advance(40)
        heard += [each for each in settle(harness, 2) if "@" in each]
        assert sorted(heard) == sorted(f"{key}@{time}" for key in "abc" for time in (10, 30))
        assert sorted(letter.key for letter in harness.dead_letters()) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("time", ["soon", 1.5, 2**63, None])
def test_a_timer_at_no_time_is_a_failure_of_the_record_that_sets_it(time):
    class Wrong(Alarms):
        def on_record(self, value: Order, ctx: sk.Context[str, str]) -> None:
            ctx.set_timer(time if value.alarm == "wrong" else value.at)

    with Harness(ringing(Wrong()), partitions=1) as harness:
        harness.send(ORDERS, Order(5), Order(6, "wrong"), Order(9), key="a")
        assert settle(harness) == ["a@5"]
        assert len(harness.dead_letters()) == 1
