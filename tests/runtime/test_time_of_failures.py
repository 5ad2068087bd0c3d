"""The event time of a record that is set aside: it counts for nothing, however its task runs its records."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

import streamkit as sk
from streamkit.testing import Harness

LATE, COUNTS = sk.topic("late", int), sk.topic("counts", int)
MINUTE_MS = 60_000


class Reading(msgspec.Struct):
    """A number, when it was read, and the same as a date."""

    value: int
    at: int
    on: datetime


class Picky(sk.Operator[str, Reading, int]):
    """Raises once it may have left a trace: from then on its task is careful."""

    def on_record(self, value: Reading, ctx: sk.Context[str, int]) -> None:
        if value.value == 99:
            raise ValueError("not clean")
        ctx.emit(value.value)


class Highest(sk.WatermarkGenerator):
    """Promises what it has seen."""

    highest: int = 0

    def on_record(self, value: Any, timestamp: int) -> int:  # noqa: ARG002
        self.highest = max(self.highest, timestamp)
        return self.highest - 1


def refuse(reading: Reading) -> Reading:
    if reading.value < 0:
        raise ValueError(reading.value)
    return reading


@pytest.mark.parametrize("is_careful", [False, True])
@pytest.mark.parametrize("time", [{}, {"time": "at"}, {"time": "on"}, {"late": Highest}])
@pytest.mark.parametrize("retries", [0, 2])
def test_a_record_that_is_set_aside_makes_no_other_late(
    time: dict[str, Any], retries: int, *, is_careful: bool
):
    readings = sk.topic("readings", Reading, **time)
    pipeline = sk.pipeline("p", on_error=sk.dead_letter(retries=retries, delay_s=0.1))
    keyed = pipeline.read_keyed(readings).map(refuse)  # fails clean: it is set aside where it stands
    keyed.process(Picky()).window(sk.tumbling(sk.seconds(1)), late=LATE).count().write(COUNTS)
    with Harness(pipeline, partitions=1) as harness:
        start = (harness.now_ms // MINUTE_MS - 100) * MINUTE_MS

        def send(value: int, after_ms: int) -> None:
            at = start + after_ms
            reading = Reading(value, at, datetime.fromtimestamp(at / 1000, UTC))
            harness.send(readings, reading, key="a", timestamp=at)

        if is_careful:
            send(99, 0)
            harness.run()
        for value, after_ms in ((1, 0), (2, 900), (-1, 90 * MINUTE_MS), (3, 300), (4, 5_000), (5, 9_000)):
            send(value, after_ms)
        harness.run()
        assert len(harness.dead_letters()) == 1 + is_careful
        assert harness.read(LATE) == []
        assert harness.read(COUNTS) == [3, 1]


def test_the_time_of_the_records_before_it_stays():
    readings = sk.topic("readings", Reading, time="at")
    pipeline = sk.pipeline("p")
    keyed = pipeline.read_keyed(readings).map(refuse).map(lambda reading: reading.value, to=int)
    keyed.window(sk.tumbling(sk.seconds(1)), late=LATE).count().write(COUNTS)
    with Harness(pipeline, partitions=1) as harness:
        start = (harness.now_ms // MINUTE_MS - 100) * MINUTE_MS
        for value, after_ms in ((1, 0), (2, 5_000), (-1, 4_000), (-2, 9_000), (3, 10)):
            at = start + after_ms
            harness.send(readings, Reading(value, at, datetime.fromtimestamp(0, UTC)), key="a", timestamp=at)
        harness.run()
        assert len(harness.dead_letters()) == 2
        assert harness.read(LATE) == [3]
        assert harness.read(COUNTS) == [1]


def test_it_does_not_count_either_where_records_are_run_one_by_one_and_nothing_is_undone():
    readings = sk.topic("readings", Reading, time="at")
    pipeline = sk.pipeline("p", on_error=sk.dead_letter(retries=1, delay_s=0.1))
    keyed = pipeline.read_keyed(readings).map(refuse).map(lambda reading: reading.value, to=int)
    keyed.window(sk.tumbling(sk.seconds(1)), late=LATE).count().write(COUNTS)
    with Harness(pipeline, partitions=1, slice_records=2) as harness:
        start = (harness.now_ms // MINUTE_MS - 100) * MINUTE_MS
        for value, after_ms in ((-1, 9_000), (-2, 20_000), (1, 0), (2, 10), (3, 5_000)):
            at = start + after_ms
            harness.send(readings, Reading(value, at, datetime.fromtimestamp(0, UTC)), key="a", timestamp=at)
        harness.run()
        assert len(harness.dead_letters()) == 2
        assert harness.read(LATE) == []
        assert harness.read(COUNTS) == [2]
