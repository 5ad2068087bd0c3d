"""Event time in the real runtime: where it comes from, how it walks through shuffles, who holds it back."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
import pytest

import streamkit as sk
from streamkit.model.duration import seconds
from streamkit.model.event_time import WatermarkGenerator, ingestion_time, punctuated
from streamkit.testing import Harness
from tests.progress.alarms import (
    ORDERS,
    RINGS,
    Alarms,
    Order,
    alarm_of,
    ringing,
)

# When the harness begins: 13 September 2020.
START_MS = 1_600_000_000_000
DAY_MS = 86_400_000


class Times(sk.Operator[str, Any, str]):
    """Says the timestamp of every record, and where event time stood."""

    def on_record(self, value: Any, ctx: sk.Context[str, str]) -> None:  # noqa: ARG002
        ctx.emit(f"{ctx.timestamp} {ctx.watermark}")

    def on_timer(self, timer: Any, ctx: sk.Context[str, str]) -> None: ...


def telling(topic: sk.Topic[Any]) -> sk.Pipeline:
    pipeline = sk.pipeline("telling")
    pipeline.read_keyed(topic).process(Times(), name="times").write(RINGS)
    return pipeline


def timestamps(harness: Harness) -> list[int]:
    return [int(each.split()[0]) for each in harness.read(RINGS)]


# Where it comes from.


class Reading(msgspec.Struct):
    at: int
    when: datetime = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("at", 1234),
        (lambda reading: reading.at * 10, 12340),
        ("when", 1577836800000),
        (lambda reading: reading.when, 1577836800000),
    ],
)
def test_event_time_stands_in_the_value(time, expected):
    topic = sk.topic("readings", Reading, time=time)
    with Harness(telling(topic), partitions=1, start=START_MS) as harness:
        harness.send(topic, Reading(1234), key="a", timestamp=5)
        harness.run()
        assert timestamps(harness) == [expected]


def test_event_time_stands_in_a_dict():
    topic = sk.topic("readings", dict, time="at")
    with Harness(telling(topic), partitions=1, start=START_MS) as harness:
        harness.send(topic, {"at": 7}, {"on": 8}, {"at": "9"}, key="a")
        harness.run()
        assert timestamps(harness) == [7]
        assert len(harness.dead_letters()) == 2


def test_without_time_it_is_the_timestamp_of_the_record():
    topic = sk.topic("readings", Reading)
    with Harness(telling(topic), partitions=1, start=START_MS) as harness:
        harness.send(topic, Reading(1), key="a", timestamp=77)
        harness.run()
        assert timestamps(harness) == [77]


def test_ingestion_time_is_when_the_record_is_read():
    topic = sk.topic("readings", Reading, time=ingestion_time)
    with Harness(telling(topic), partitions=1, start=START_MS) as harness:
        for _ in range(3):
            harness.advance(10)
            harness.send(topic, Reading(1), key="a", timestamp=77)
            harness.run()
        times = timestamps(harness)
    assert all(START_MS <= time <= START_MS + 31_000 for time in times)
    assert [round((later - earlier) / 1000) for earlier, later in pairwise(times)] == [
        10,
        10,
    ]


def test_event_time_is_read_also_where_nobody_waits_for_it():
    out = sk.topic("copies", Order)
    pipeline = sk.pipeline("copies")
    pipeline.read(ORDERS).write(out)
    with Harness(pipeline, start=START_MS) as harness:
        harness.send(ORDERS, Order(5), Order(-1), Order(3), timestamp=77)
        harness.run()
        assert [record.timestamp for record in harness.records(out)] == [5, 3]
        assert len(harness.dead_letters()) == 1


def test_it_travels_with_the_record_through_shuffles():
    pipeline = sk.pipeline("travel")
    keyed = pipeline.read(ORDERS).key_by(alarm_of, name="one").key_by(alarm_of, name="two")
    keyed.process(Times(), name="times").write(RINGS)
    with Harness(pipeline, start=START_MS) as harness:
        harness.send(ORDERS, Order(5), timestamp=77)
        harness.run()
        assert [(record.timestamp, record.value[:2]) for record in harness.records(RINGS)] == [(5, "5 ")]


# What makes no sense is set aside, and does not carry event time away.


@pytest.mark.parametrize(
    ("time", "problem"),
    [
        (-1, b"before 1970"),
        (-(2**70), b"before 1970"),
        (START_MS + 2 * DAY_MS, b"in the future"),
        (2**70, b"in the future"),
        (1.5, b"got float"),
        ("2020", b"got str"),
        (None, b"got NoneType"),
        (True, b"got bool"),
        ([], b"got list"),
    ],
)
def test_an_insane_time_is_a_dead_letter_and_moves_nothing(time, problem):
    topic = sk.topic("orders", Order, time=lambda order: time if order.alarm == "mad" else order.at)
    with Harness(ringing(topic=topic), partitions=1, start=START_MS) as harness:
        harness.send(topic, Order(0, set=[50]), Order(1, "mad"), Order(2, set=[40]), key="a")
        harness.run()
        assert harness.read(RINGS) == []
        (letter,) = harness.dead_letters()
        assert problem in letter.headers["streamkit.error"]
        assert letter.headers["streamkit.step"] == b"decode"
        harness.send(topic, Order(51), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@40", "a@50"]


def test_a_function_that_raises_makes_a_dead_letter_of_its_own_record():
    topic = sk.topic("orders", Order, time=lambda order: order.at // len(order.set))
    with Harness(ringing(topic=topic), partitions=1, start=START_MS) as harness:
        harness.send(topic, Order(8, set=[5]), Order(9), Order(20, set=[7]), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@5", "a@7"]
        (letter,) = harness.dead_letters()
        assert b"ZeroDivisionError" in letter.headers["streamkit.error"]


def test_how_far_in_the_future_is_too_far_is_a_setting():
    for future_max_s, letters in ((3600.0, 1), (3 * 86_400.0, 0)):
        with Harness(ringing(), partitions=1, future_max_s=future_max_s, start=START_MS) as harness:
            harness.send(ORDERS, Order(START_MS + 2 * DAY_MS), key="a")
            harness.run()
            assert len(harness.dead_letters()) == letters


def test_how_much_too_far_is_said():
    with Harness(ringing(), partitions=1, start=START_MS) as harness:
        harness.send(ORDERS, Order(START_MS + 2 * DAY_MS), key="a")
        harness.run()
        (letter,) = harness.dead_letters()
        assert b" -" not in letter.headers["streamkit.error"]


# How it advances.


def test_event_time_is_behind_the_newest_record_by_what_may_be_late():
    topic = sk.topic("orders", Order, time="at", late=seconds(1))
    with Harness(ringing(topic=topic), partitions=1, start=START_MS) as harness:
        harness.send(topic, Order(0, set=[10]), Order(1010), key="a")
        harness.run()
        assert harness.read(RINGS) == []
        harness.send(topic, Order(1011), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@10"]


def test_event_time_never_goes_back_whatever_comes_late():
    with Harness(telling(sk.topic("orders", Order, time="at")), partitions=1) as harness:
        for at in (100, 50, 120, 0, 119):
            harness.send(ORDERS, Order(at), key="a")
        harness.run()
        watermarks = [int(each.split()[1]) for each in harness.read(RINGS)]
        assert watermarks == sorted(watermarks)
        harness.crash()
        harness.restart()
        harness.send(ORDERS, Order(3), key="a")
        harness.run()
        assert harness.read(RINGS) == ["3 119"]


def test_punctuated_watermarks_come_with_the_records_that_carry_them():
    topic = sk.topic(
        "orders", Order, time="at", late=punctuated(lambda order, at: at if order.alarm == "mark" else None)
    )
    with Harness(ringing(topic=topic), partitions=1, start=START_MS) as harness:
        harness.send(topic, Order(0, set=[10, 30]), Order(100), key="a")
        harness.run()
        assert harness.read(RINGS) == []
        harness.send(topic, Order(20, "mark"), Order(200), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@10"]
        harness.send(topic, Order(5, "mark"), Order(30, "mark"), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@30"]


def test_what_a_punctuated_watermark_makes_due_fires_before_the_record_behind_it():
    class Both(Alarms):
        def on_record(self, value: Order, ctx: sk.Context[str, str]) -> None:
            super().on_record(value, ctx)
            ctx.emit(f"record {value.at}")

    topic = sk.topic(
        "orders", Order, time="at", late=punctuated(lambda order, at: at if order.alarm == "mark" else None)
    )
    with Harness(ringing(Both(), topic=topic), partitions=1) as harness:
        harness.send(topic, Order(0, set=[10]), Order(20, "mark"), Order(21), key="a")
        harness.run()
        assert harness.read(RINGS) == ["record 0", "record 20", "a@10", "record 21"]


class Ticking(WatermarkGenerator):
    """Event time follows the wall clock by ten seconds, from the first record on; its state is what it has seen."""

    seen: int = 0

    def on_record(self, value: Any, timestamp: int) -> int | None:  # noqa: ARG002
        self.seen += 1
        return None

    def on_tick(self, now_ms: int) -> int | None:
        return now_ms - 10_000 if self.seen >= 2 else None


@pytest.mark.parametrize("shuffles", [0, 1])
def test_an_own_generator_sees_the_clock_and_keeps_its_state(shuffles):
    topic = sk.topic("orders", Order, time="at", late=Ticking)
    with Harness(ringing(topic=topic, shuffles=shuffles), partitions=1, start=START_MS) as harness:
        harness.send(topic, Order(START_MS, set=[START_MS + 1000]), key="a")
        harness.run()
        harness.advance(20)
        assert harness.read(RINGS) == []  # it has seen one record
        harness.crash()
        harness.restart()
        harness.send(topic, Order(START_MS), key="a")
        harness.run()
        harness.advance(1)
        assert harness.read(RINGS) == [f"a@{START_MS + 1000}"]


@pytest.mark.parametrize("behind", [True, False])
def test_a_generator_that_raises_makes_no_dead_letter_of_another_record(behind):
    def mark(order: Order, at: int) -> int:
        if order.alarm == "bad":
            raise ValueError("bad mark")
        return at

    topic = sk.topic("orders", Order, time="at", late=punctuated(mark))
    with Harness(ringing(topic=topic), partitions=1, start=START_MS) as harness:
        orders = [Order(0, set=[50]), Order(1, "bad")]
        harness.send(topic, *orders, *([Order(2, set=[40])] if behind else []), key="a")
        harness.run()
        harness.send(topic, Order(60), key="a")
        harness.run()
        assert harness.read(RINGS) == (["a@40", "a@50"] if behind else ["a@50"])
        assert all(b"bad" in letter.value for letter in harness.dead_letters())


def test_a_generator_whose_tick_raises_does_not_end_the_worker():
    class Broken(WatermarkGenerator):
        def on_tick(self, now_ms: int) -> int | None:  # noqa: ARG002
            raise ValueError("no tick")

    topic = sk.topic("orders", Order, time="at", late=Broken)
    with Harness(ringing(topic=topic), partitions=1, start=START_MS) as harness:
        harness.send(topic, Order(0), key="a")
        harness.advance(2)
        assert not harness.workers[0].work.done()


# Through shuffles.
