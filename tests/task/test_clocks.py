"""A clock on the wall that somebody sets: nothing stands still, nothing happens twice, no record becomes late by it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamkit as sk
from streamkit.model.event_time import ingestion_time
from streamkit.progress.channels import Status
from streamkit.task.clocks import ProcessingTime
from streamkit.testing import Harness
from streamkit.windows import Window, tumbling
from tests.progress.alarms import ORDERS, RINGS, Order, ringing

HOUR_S = 3600
PINGS = sk.topic("pings", str)


class Seen(msgspec.Struct):
    start: int
    n: int


SEEN = sk.topic("seen", Seen)
LATE = sk.topic("late", str)


def seen(_key: str, window: Window, n: int) -> Seen:
    return Seen(window.start, n)


def per_minute(time: str) -> sk.Pipeline:
    """Count pings per minute: by the clock on the wall, or by event time that is taken from it."""
    topic = PINGS if time == "processing" else sk.topic("pings", str, time=ingestion_time)
    pipeline = sk.pipeline("per-minute")
    keyed = pipeline.read(topic).key_by(lambda ping: ping, name="by_ping", key_type=str)
    if time == "processing":
        by_wall = tumbling(sk.minutes(1), time="processing")
        keyed.window(by_wall).count(into=seen, name="n").write(SEEN)
    else:
        keyed.window(tumbling(sk.minutes(1)), late=LATE).count(into=seen, name="n").write(SEEN)
    return pipeline


def set_clock(harness: Harness, by_s: int) -> None:
    """Somebody sets the clocks on the wall, forward or back."""
    harness._start_ms += by_s * 1000


class Wall:
    """Both clocks of a host, in the hands of a test."""

    def __init__(self) -> None:
        self.wall, self.elapsed = 1_000_000, 0
        self.time = ProcessingTime(lambda: self.wall, lambda: self.elapsed)

    def passes(self, ms: int) -> int:
        self.wall += ms
        self.elapsed += ms
        return self.time.now_ms()


def test_processing_time_is_the_clock_on_the_wall() -> None:
    host = Wall()
    assert [host.passes(ms) for ms in (0, 1, 7, 100_000)] == [1_000_000, 1_000_001, 1_000_008, 1_100_008]


def test_after_a_step_back_it_goes_on_at_half_its_pace_until_the_wall_has_caught_up() -> None:
    host = Wall()
    host.wall -= 60_000
    assert [host.passes(30_000) for _ in range(6)] == [
        1_015_000, 1_030_000, 1_045_000, 1_060_000, 1_090_000, 1_120_000,
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(-100_000, 100_000), st.integers(0, 50_000)), max_size=20))
def test_it_never_goes_back_never_stands_still_and_always_meets_the_wall_again(
    steps: list[tuple[int, int]],
) -> None:
    host = Wall()
    before = host.time.now_ms()
    for step, passed in steps:
        host.wall += step
        now = host.passes(passed)
        assert now >= max(host.wall, before + passed // 2)
        before = now
    assert host.passes(2 * max(0, before - host.wall) + 1) == host.wall


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
@pytest.mark.parametrize("is_local", [True, False])
def test_event_time_is_told_on_when_the_clock_is_set(step_s: int, is_local: bool) -> None:
    with Harness(ringing(shuffles=1), partitions=1, local_shuffle=is_local) as harness:
        harness.send(ORDERS, Order(0, set=[10, 50]), Order(20), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@10"]
        set_clock(harness, step_s)
        began = harness.now_ms
        harness.send(ORDERS, Order(100), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@50"]
        assert harness.now_ms - began < 2_000  # told at once, and not when the partition was found idle


def test_silence_is_measured_whatever_the_clock_on_the_wall_says() -> None:
    with Harness(ringing(shuffles=1), partitions=2) as harness:
        harness.send(ORDERS, Order(0, set=[10]), Order(20), key="a")
        harness.run()
        set_clock(harness, HOUR_S)
        harness.advance(5)
        assert Status.IDLE not in {task.clock.status for task in harness._running()}
        set_clock(harness, -2 * HOUR_S)
        harness.advance(40)
        assert {task.clock.status for task in harness._running()} == {Status.IDLE}
        assert harness.read(RINGS) == ["a@10"]


def test_a_window_of_the_wall_clock_is_not_sent_twice_after_a_step_back() -> None:
    with Harness(per_minute("processing"), partitions=1) as harness:
        harness.send(PINGS, "a")
        harness.run()
        harness.advance(61)
        first = harness.read(SEEN)
        assert [each.n for each in first] == [1]
        set_clock(harness, -50)
        harness.send(PINGS, "a")
        harness.run()
        harness.advance(240)
        (second,) = harness.read(SEEN)
        assert second.start > first[0].start


def test_timers_fire_at_once_when_the_clock_is_set_far_ahead_and_never_again() -> None:
    with Harness(per_minute("processing"), partitions=1) as harness:
        harness.send(PINGS, "a")
        harness.run()
        set_clock(harness, 365 * 24 * HOUR_S)
        harness.advance(1)
        assert [each.n for each in harness.read(SEEN)] == [1]
        set_clock(harness, -365 * 24 * HOUR_S)
        harness.send(PINGS, "a")
        harness.run()
        harness.advance(130)  # half its pace
        assert [each.n for each in harness.read(SEEN)] == [1]
        harness.advance(HOUR_S)
        assert harness.read(SEEN) == []


def test_ingestion_time_makes_no_record_late_on_a_host_whose_clock_is_behind() -> None:
    with Harness(per_minute("ingestion"), partitions=1) as harness:
        harness.send(PINGS, "a")
        harness.run()
        harness.crash(0)
        set_clock(harness, -HOUR_S)
        harness.restart(0)
        harness.send(PINGS, "a", "a")
        harness.run()
        set_clock(harness, HOUR_S)
        harness.advance(61)
        harness.send(PINGS, "a")
        harness.run()
        assert [each.n for each in harness.read(SEEN)] == [3]
        assert harness.read(LATE) == []
