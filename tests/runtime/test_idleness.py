"""Partitions that are silent: who waits for them, how long, and what happens when they wake up."""

import pytest

import streamkit as sk
from streamkit.model.duration import minutes, seconds
from streamkit.model.ids import TopicPartition
from streamkit.model.signal import Idle, Watermark
from streamkit.progress.channels import Status
from streamkit.testing import Harness
from streamkit.testing.memory.partition import TransactionOutcome
from tests.progress.alarms import (
    ORDERS,
    RINGS,
    Alarms,
    Order,
    alarm_of,
    key_on,
    ringing,
    shuffle_topics,
    signals,
)


def keep_busy(harness: Harness, partition: int, start: int, passed_s: int, partitions: int = 2) -> None:
    """One record a second on this partition: it is not idle, and the others grow silent."""
    for number in range(passed_s):
        harness.send(ORDERS, Order(start + number, "busy"), key=key_on(partition, partitions))
        harness.advance(1)


@pytest.mark.parametrize("shuffles", [1, 2])
def test_a_partition_that_never_had_a_record_is_waited_for_half_a_minute(shuffles):
    with Harness(ringing(shuffles=shuffles), partitions=2) as harness:
        harness.send(ORDERS, Order(0, set=[10]), Order(100), key=key_on(0, 2))
        keep_busy(harness, 0, 100, 27)
        assert harness.read(RINGS) == []
        keep_busy(harness, 0, 200, 8)
        assert harness.read(RINGS) == ["a@10"]


def test_a_partition_that_falls_silent_is_not_waited_for_any_more():
    with Harness(ringing(shuffles=1), partitions=2) as harness:
        harness.send(ORDERS, Order(0, set=[10, 50]), key=key_on(0, 2))
        harness.send(ORDERS, Order(20), key=key_on(1, 2))
        keep_busy(harness, 0, 100, 5)
        assert harness.read(RINGS) == ["a@10"]
        keep_busy(harness, 0, 200, 35)
        assert harness.read(RINGS) == ["a@50"]


@pytest.mark.parametrize(("idle", "waited_s"), [(seconds(5), 5), (minutes(2), 120)])
def test_how_long_is_said_by_the_topic(idle, waited_s):
    topic = sk.topic("orders", Order, time="at", idle=idle)
    with Harness(ringing(topic=topic, shuffles=1), partitions=2) as harness:
        harness.send(ORDERS, Order(0, set=[10]), key=key_on(0, 2))
        keep_busy(harness, 0, 100, waited_s - 3)
        assert harness.read(RINGS) == []
        keep_busy(harness, 0, 1000, 8)
        assert harness.read(RINGS) == ["a@10"]


def test_with_idle_none_it_is_waited_for_always():
    topic = sk.topic("orders", Order, time="at", idle=None)
    with Harness(ringing(topic=topic, shuffles=1), partitions=2) as harness:
        harness.send(ORDERS, Order(0, set=[10]), Order(100), key=key_on(0, 2))
        harness.run()
        harness.advance(300)
        assert harness.read(RINGS) == []


def test_when_all_are_silent_event_time_is_the_greatest_that_was_promised():
    with Harness(ringing(shuffles=1), partitions=2) as harness:
        harness.send(ORDERS, Order(0, set=[10, 50, 200]), Order(100), key=key_on(0, 2))
        harness.send(ORDERS, Order(20), key=key_on(1, 2))
        harness.run()
        assert harness.read(RINGS) == ["a@10"]
        harness.advance(60)
        assert harness.read(RINGS) == ["a@50"]
        assert {task.clock.status for task in harness._running()} == {Status.IDLE}
        commits = harness.workers[0].loop.committer.commits
        harness.advance(200)
        assert harness.workers[0].loop.committer.commits == commits


def test_one_that_wakes_up_is_waited_for_again_and_takes_nothing_back():
    with Harness(ringing(shuffles=1), partitions=2) as harness:
        harness.send(ORDERS, Order(20), key=key_on(1, 2))
        keep_busy(harness, 0, 100, 40)
        harness.run()
        before = {task.id: task.clock.watermark for task in harness._running() if not task.clock.sources}
        assert set(before.values()) == {138}
        harness.send(ORDERS, Order(60, set=[130]), key=key_on(1, 2))
        harness.run()
        harness.advance(1)
        assert harness.read(RINGS) == ["a@130"]  # late, and event time stays where it is
        harness.send(ORDERS, Order(500, set=[400]), key=key_on(0, 2))
        harness.run()
        harness.advance(2)
        assert harness.read(RINGS) == []
        assert {task.clock.watermark for task in harness._running() if not task.clock.sources} == {138}
        harness.send(ORDERS, Order(450), key=key_on(1, 2))
        harness.run()
        harness.advance(1)
        assert harness.read(RINGS) == ["a@400"]


def test_idleness_is_told_once_and_the_next_watermark_ends_it():
    pipeline = ringing(shuffles=1)
    with Harness(pipeline, partitions=1, local_shuffle=False) as harness:
        harness.send(ORDERS, Order(100), key="a")
        harness.run()
        harness.advance(200)
        harness.send(ORDERS, Order(50), key="a")
        harness.run()
        (topic,) = shuffle_topics(pipeline)
        assert [signal for _, _, signal in signals(harness, topic)] == [
            Watermark(99),
            Idle(99),
            Watermark(99),
        ]


class Producer:
    """Somebody else who writes orders, in a transaction that is left open until it is told otherwise."""

    def __init__(self, harness: Harness, partition: int) -> None:
        self._transactions = harness._broker.transactions
        self._harness = harness
        self._epoch = self._transactions.init("somebody", timeout_s=10_000.0)
        batch = harness._writer.batch()
        batch.append(0, 5, b"x", b'{"at": 5, "set": [3]}', [])
        at = TopicPartition("orders", partition)
        self._transactions.produce("somebody", self._epoch, at, batch, harness._broker.now)

    def end(self, outcome: TransactionOutcome) -> None:
        self._transactions.end("somebody", self._epoch, self._harness._broker.now, outcome)


@pytest.mark.parametrize("outcome", [TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED])
def test_a_partition_is_not_idle_while_records_are_left_unread(outcome):
    """An open transaction hides what is in the log: silence, and yet more is to come."""
    with Harness(ringing(shuffles=1), partitions=2) as harness:
        harness.send(ORDERS, Order(0, set=[10]), key=key_on(0, 2))
        producer = Producer(harness, 1)
        keep_busy(harness, 0, 100, 60)
        assert harness.read(RINGS) == []
        producer.end(outcome)
        keep_busy(harness, 0, 200, 5)
        assert harness.read(RINGS) == (
            ["a@3"] if outcome is TransactionOutcome.COMMITTED else []
        )  # and it is not late
        keep_busy(harness, 0, 300, 35)
        assert harness.read(RINGS) == ["a@10"]


def test_a_restart_does_not_make_an_idle_partition_busy():
    with Harness(ringing(shuffles=1), partitions=2) as harness:
        harness.send(ORDERS, Order(20), key=key_on(1, 2))
        keep_busy(harness, 0, 100, 40)
        harness.crash()
        harness.restart()
        harness.send(ORDERS, Order(500, set=[400]), Order(600), key=key_on(0, 2))
        harness.run()
        harness.advance(2)
        assert harness.read(RINGS) == ["a@400"]


def test_two_topics_of_one_task_wait_for_each_other_until_one_is_idle():
    other = sk.topic("more-orders", Order, time="at", idle=seconds(5))
    pipeline = sk.pipeline("both")
    pipeline.read(ORDERS).union(pipeline.read(other)).key_by(alarm_of).process(Alarms()).write(RINGS)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10]), Order(100))
        harness.send(other, Order(5))
        harness.run()
        harness.advance(4)
        assert harness.read(RINGS) == []
        harness.send(ORDERS, Order(101))
        harness.advance(3)
        assert harness.read(RINGS) == ["a@10"]


def test_a_late_partition_that_wakes_does_not_lose_its_records():
    with Harness(ringing(shuffles=1), partitions=2) as harness:
        keep_busy(harness, 0, 1000, 40)
        for number in range(10):
            harness.send(ORDERS, Order(number, f"late-{number}", set=[number]), key=key_on(1, 2))
        harness.run()
        harness.advance(1)
        assert sorted(harness.read(RINGS)) == sorted(f"late-{number}@{number}" for number in range(10))
