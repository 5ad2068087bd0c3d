"""Event time on its way through shuffles: signals, and what holds them back."""

from itertools import pairwise
from typing import Any

import pytest

import streamkit as sk
from streamkit.codec.signals import decode_signal
from streamkit.model.ids import MIN_TIME
from streamkit.model.signal import Watermark
from streamkit.testing import Harness
from tests.progress.alarms import (
    ORDERS,
    RINGS,
    Alarms,
    Order,
    alarm_of,
    key_on,
    raw,
    ringing,
    shuffle_topics,
    signals,
)
from tests.runtime.pages import VIEWS, View, counting

DAY_MS = 86_400_000


@pytest.mark.parametrize("shuffles", [1, 2])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_slowest_partition_holds_everybody_back(shuffles, workers):
    with Harness(ringing(shuffles=shuffles), partitions=4, workers=workers) as harness:
        for partition in range(4):
            harness.send(ORDERS, Order(0, f"alarm-{partition}", set=[10]), key=key_on(partition))
        for partition in range(3):
            harness.send(ORDERS, Order(100), key=key_on(partition))
        harness.run()
        harness.advance(2)
        assert harness.read(RINGS) == []
        harness.send(ORDERS, Order(11), key=key_on(3))
        harness.run()
        harness.advance(1)
        assert sorted(harness.read(RINGS)) == [f"alarm-{partition}@10" for partition in range(4)]


def test_several_topics_of_one_stage_hold_each_other_back():
    other = sk.topic("more-orders", Order, time="at")
    pipeline = sk.pipeline("both")
    pipeline.read(ORDERS).union(pipeline.read(other)).key_by(alarm_of).process(Alarms()).write(RINGS)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10]), Order(100))
        harness.send(other, Order(5))
        harness.run()
        assert harness.read(RINGS) == []
        harness.send(other, Order(11))
        harness.run()
        assert harness.read(RINGS) == ["a@10"]


def test_a_watermark_never_overtakes_the_records_it_speaks_of():
    class Late(sk.Operator[str, Order, str]):
        def on_record(self, value: Order, ctx: sk.Context[str, str]) -> None:  # noqa: ARG002
            if ctx.timestamp <= ctx.watermark:
                ctx.emit(f"{ctx.timestamp} came after {ctx.watermark}")

        def on_timer(self, timer: Any, ctx: sk.Context[str, str]) -> None: ...

    with Harness(ringing(Late(), shuffles=2), partitions=3, workers=2) as harness:
        for number in range(200):
            harness.send(ORDERS, Order(number, f"alarm-{number % 7}"), key=str(number))
            if number % 10 == 0:
                harness.advance(0.05)
            if number in (60, 140):
                harness.crash(0)
                harness.restart(0)
        harness.run()
        late = harness.read(RINGS)
    # Within one source partition records come in order, so nothing may ever be late.
    assert late == []


def test_event_time_does_not_go_back_in_a_restart_or_when_tasks_move():
    with Harness(ringing(shuffles=1), partitions=2) as harness:
        for key in (key_on(0, 2), key_on(1, 2)):
            harness.send(ORDERS, Order(100), key=key)
        harness.run()
        before = {task.id: task.clock.watermark for task in harness._running()}
        assert set(before.values()) == {99}
        harness.scale(3)
        harness.crash(0)
        harness.restart(0)
        assert {task.id: task.clock.watermark for task in harness._running()} == before
        harness.send(ORDERS, Order(3, set=[50]), key=key_on(0, 2))
        harness.run()
        harness.advance(1)
        assert harness.read(RINGS) == ["a@50"]  # long past, and nobody has forgotten it


# Signals: few, small, and only where somebody listens.


def test_a_pipeline_that_has_no_use_for_time_writes_no_signals():
    pipeline = counting()
    with Harness(pipeline, local_shuffle=False) as harness:
        for number in range(20):
            harness.send(VIEWS, View(f"page-{number}"), key=str(number))
        harness.run()
        harness.advance(40)
        (topic,) = shuffle_topics(pipeline)
        records = raw(harness, topic)
    assert len(records) == 20
    assert all(record.key is not None and not record.headers for record in records)


def test_signals_are_sent_when_something_has_changed_and_then_no_more():
    pipeline = ringing(shuffles=1, topic=sk.topic("orders", Order, time="at", idle=None))
    with Harness(pipeline, partitions=2, local_shuffle=False) as harness:
        for partition in range(2):
            harness.send(ORDERS, Order(100), key=key_on(partition, 2))
        harness.run()
        (topic,) = shuffle_topics(pipeline)
        said = signals(harness, topic)
        assert sorted(set(said), key=repr) == sorted(
            [(reader, writer, Watermark(99)) for reader in range(2) for writer in range(2)], key=repr
        )
        assert len(said) == 4
        commits = harness.workers[0].loop.committer.commits
        harness.advance(120)
        assert signals(harness, topic) == []
        assert harness.workers[0].loop.committer.commits == commits
        harness.send(ORDERS, Order(100), Order(99), key=key_on(0, 2))
        harness.run()
        assert signals(harness, topic) == []


@pytest.mark.parametrize("interval_s", [0.2, 1.0])
def test_signals_are_not_sent_more_often_than_the_setting_says(interval_s):
    pipeline = ringing(shuffles=1)
    with Harness(pipeline, partitions=1, watermark_interval_s=interval_s, local_shuffle=False) as harness:
        for number in range(200):
            harness.send(ORDERS, Order(number), key="a")
            harness.advance(0.05)
        harness.run()
        (topic,) = shuffle_topics(pipeline)
        times = [record.timestamp for record in raw(harness, topic) if record.key is None]
    assert len(times) <= 200 * 0.05 / interval_s + 2
    assert all(later - earlier >= interval_s * 999 for earlier, later in pairwise(times))


def test_signals_among_sixteen_times_sixteen_partitions_stay_few():
    pipeline = ringing(shuffles=1)
    with Harness(pipeline, partitions=16, local_shuffle=False) as harness:
        keys = [key_on(partition, 16) for partition in range(16)]
        passed_s = 0.0
        for number in range(20):
            for key in keys:
                harness.send(ORDERS, Order(number * 100), key=key)
            harness.advance(0.1)
            passed_s += 0.1
        harness.run()
        (topic,) = shuffle_topics(pipeline)
        records = raw(harness, topic)
    said = [record for record in records if record.key is None]
    # Every task tells its time to every partition, all together a thousand times a second at most.
    told = [
        record.timestamp
        for record in said
        if record.partition == 0 and decode_signal(record.value).channel == 0
    ]
    assert len(told) > 3
    assert all(later - earlier >= 256 for earlier, later in pairwise(told))
    rounds = len(said) / 256
    assert rounds <= (passed_s + 1.0) / 0.256 + 2
    assert max(len(record.value) for record in said) < 32


def test_a_keyless_record_in_a_shuffle_that_is_no_signal_stops_the_worker():
    pipeline = ringing(shuffles=1)
    with Harness(pipeline, partitions=1) as harness:
        (topic,) = shuffle_topics(pipeline)
        harness.send_bytes(topic, b"not a signal")
        with pytest.raises(sk.errors.Misconfigured, match="no signal"):
            harness.run()


def test_nothing_is_known_before_the_first_record():
    with Harness(ringing(shuffles=1), partitions=1) as harness:
        harness.advance(5)
        assert {task.clock.watermark for task in harness._running()} == {MIN_TIME}
