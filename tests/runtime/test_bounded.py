"""Reads that end: everything up to the end takes effect, and then the workers stop by themselves."""

from typing import Any

import pytest

import streamkit as sk
from streamkit.model.ids import MAX_TIME, TopicPartition
from streamkit.model.signal import EndOfInput
from streamkit.progress.channels import Status
from streamkit.runtime.last_commits import last_commits
from streamkit.task.clock_state import CLOCK, decode_clock
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
from tests.runtime.pages import COUNTS, VIEWS, View, as_count, check_running_counts, page_of


def send_orders(harness: Harness, count: int = 40) -> list[str]:
    """Orders whose timers are all still open at the end; returns what they will say."""
    for number in range(count):
        harness.send(ORDERS, Order(number, f"alarm-{number % 5}", set=[10_000 + number]), key=str(number))
    return sorted(f"alarm-{number % 5}@{10_000 + number}" for number in range(count))


def has_ended(harness: Harness) -> bool:
    """Whether all workers have stopped, soon after they were done."""
    harness.advance(3)
    return all(worker.work is not None and worker.work.done() for worker in harness.workers)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("shuffles", [1, 2])
def test_at_the_end_all_timers_fire_and_the_workers_stop(shuffles, workers, guarantee):
    pipeline = ringing(shuffles=shuffles, until="latest")
    with Harness(pipeline, workers=0, partitions=2, guarantee=guarantee) as harness:
        expected = send_orders(harness)
        harness.scale(workers)
        harness.run()
        assert sorted(harness.read(RINGS)) == expected
        assert has_ended(harness)


def test_without_a_shuffle_too():
    with Harness(ringing(until="latest"), workers=0, partitions=2) as harness:
        harness.send(ORDERS, Order(0, set=[5, MAX_TIME], set_in=[10**9]), key="a")
        harness.scale(1)
        harness.run()
        heard = harness.read(RINGS)
        assert len(heard) == 3
        assert {"a@5", f"a@{MAX_TIME}"} < set(heard)
        assert has_ended(harness)


def test_everything_is_counted_also_where_nobody_asks_for_time():
    pipeline = sk.pipeline("counted")
    keyed = pipeline.read(VIEWS, until="latest").key_by(page_of)
    keyed.count(name="n", updates="latest").map_keyed(as_count).write(COUNTS)
    with Harness(pipeline, workers=0) as harness:
        for number in range(100):
            harness.send(VIEWS, View(f"page-{number % 3}"), key=str(number))
        harness.scale(2)
        harness.run()
        last = {count.page: count.views for count in harness.read(COUNTS)}
        assert sum(last.values()) == 100
        assert has_ended(harness)


def test_every_partition_downstream_hears_the_end_of_every_task_once():
    pipeline = ringing(shuffles=1, until="latest")
    with Harness(pipeline, workers=0, partitions=3, local_shuffle=False) as harness:
        send_orders(harness)
        harness.scale(1)
        harness.run()
        (topic,) = shuffle_topics(pipeline)
        ends = [
            (reader, writer) for reader, writer, signal in signals(harness, topic) if signal == EndOfInput()
        ]
        assert sorted(ends) == [(reader, writer) for reader in range(3) for writer in range(3)]


@pytest.mark.parametrize("shuffles", [0, 1])
def test_an_empty_topic_ends_at_once(shuffles):
    with Harness(ringing(shuffles=shuffles, until="latest"), workers=0, partitions=2) as harness:
        harness.scale(2)
        harness.run()
        harness.advance(2)
        assert has_ended(harness)
        assert harness.read(RINGS) == []


def test_records_that_come_later_are_not_read():
    with Harness(ringing(shuffles=1, until="latest"), workers=0, partitions=1) as harness:
        harness.send(ORDERS, Order(0, "early", set=[10]), key="a")
        harness.scale(1)
        harness.send(ORDERS, Order(5, "later", set=[10]), key="a")
        harness.run()
        harness.advance(2)
        assert harness.read(RINGS) == ["early@10"]
        assert has_ended(harness)
        positions = harness._do(
            harness._log.admin().positions("alarms", [TopicPartition("orders", 0)], timeout_s=5.0)
        )
        assert positions == {TopicPartition("orders", 0): 1}


def test_a_batch_that_begins_before_the_end_and_goes_beyond_is_read_up_to_the_end():
    with Harness(ringing(until="latest"), workers=0, partitions=1) as harness:
        harness.send(ORDERS, *[Order(number, set=[number]) for number in range(10)], key="a")
        harness.scale(1)
        harness.crash()
        harness.send(ORDERS, *[Order(number, set=[number]) for number in range(10, 700)], key="a")
        harness.restart()
        harness.run()
        assert harness.read(RINGS) == [f"a@{number}" for number in range(10)]


@pytest.mark.parametrize("pause_s", [0.0, 0.001, 0.003, 0.01, 0.03, 0.3])
def test_a_restart_in_the_middle_ends_where_the_first_life_would_have_ended(pause_s):
    pipeline = ringing(shuffles=1, until="latest")
    with Harness(pipeline, workers=0, partitions=2, slice_records=3) as harness:
        expected = send_orders(harness)
        harness.scale(2)
        harness.advance(0.05)  # the ends are committed
        harness.send(ORDERS, Order(0, "later", set=[10]), key=key_on(0, 2))
        for turn in range(4):
            if not harness.workers[turn % 2].work.done():
                harness.crash(turn % 2)
                harness.send(ORDERS, Order(0, "later", set=[10]), key=key_on(turn % 2, 2))
                harness.restart(turn % 2)
            harness.advance(pause_s)
        harness.run()
        harness.advance(5)
        assert sorted(harness.read(RINGS)) == expected
        assert has_ended(harness)


def test_one_that_has_ended_ends_again_when_it_is_started_again():
    with Harness(ringing(shuffles=1, until="latest"), workers=0, partitions=2) as harness:
        expected = send_orders(harness)
        harness.scale(1)
        harness.run()
        assert sorted(harness.read(RINGS)) == expected
        assert has_ended(harness)
        harness.restart()
        harness.run()
        harness.advance(1)
        assert has_ended(harness)
        assert harness.read(RINGS) == []


def test_who_takes_over_a_task_that_has_ended_does_not_take_its_end_back():
    def told() -> set[tuple[int, int]]:
        commits = harness._do(last_commits(harness._plan, harness._log))
        return {
            decode_clock(record.extra[CLOCK]).announced
            for task, record in commits.items()
            if task.stage == "orders"
        }

    with Harness(ringing(shuffles=1, until="latest"), workers=0, partitions=2) as harness:
        send_orders(harness)
        harness.scale(2)
        harness.run()
        for number in (0, 1, 0):
            assert has_ended(harness)
            assert told() == {(Status.FINISHED, MAX_TIME)}
            harness.restart(number)
            harness.run()


def test_several_inputs_end_when_the_last_of_them_does():
    more = sk.topic("more-orders", Order, time="at")
    pipeline = sk.pipeline("both")
    both = pipeline.read(ORDERS, until="latest").union(pipeline.read(more, until="latest"))
    both.key_by(alarm_of).process(Alarms(), name="alarms").write(RINGS)
    with Harness(pipeline, workers=0, partitions=2) as harness:
        harness.send(ORDERS, Order(0, "one", set=[10]), Order(5000), key="a")
        for number in range(50):
            harness.send(more, Order(number, "two", set=[number]), key=str(number))
        harness.scale(2)
        harness.run()
        assert sorted(harness.read(RINGS)) == sorted(["one@10", *(f"two@{number}" for number in range(50))])
        assert has_ended(harness)


def test_beside_an_input_without_end_a_bounded_one_holds_nobody_back_when_it_has_ended():
    more = sk.topic("more-orders", Order, time="at")
    pipeline = sk.pipeline("both")
    both = pipeline.read(ORDERS).union(pipeline.read(more, until="latest"))
    both.key_by(alarm_of).process(Alarms(), name="alarms").write(RINGS)
    with Harness(pipeline, workers=0, partitions=1) as harness:
        harness.send(more, Order(3, "old", set=[100]), key="a")
        harness.scale(1)
        harness.send(ORDERS, Order(50), key="a")
        harness.run()
        assert harness.read(RINGS) == []
        harness.send(ORDERS, Order(101), key="a")
        harness.run()
        assert harness.read(RINGS) == ["old@100"]
        assert not has_ended(harness)


def test_a_failing_timer_at_the_end_is_a_dead_letter_and_the_workers_stop():
    class Refusing(Alarms):
        def on_timer(self, timer: Any, ctx: sk.Context[str, str]) -> None:
            super().on_timer(timer, ctx)
            if timer.time == 20:
                raise ValueError("not 20")

    with Harness(ringing(Refusing(), shuffles=1, until="latest"), workers=0, partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10, 20, 30]), key="a")
        harness.scale(1)
        harness.run()
        assert harness.read(RINGS) == ["a@10", "a@30"]
        assert len(harness.dead_letters()) == 1
        assert has_ended(harness)


def test_a_record_that_cannot_be_read_at_the_very_end_does_not_keep_it_from_ending():
    with Harness(ringing(shuffles=1, until="latest"), workers=0, partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10]), key="a")
        harness.send_bytes("orders", b"garbage", key=b"a")
        harness.scale(1)
        harness.run()
        harness.advance(2)
        assert harness.read(RINGS) == ["a@10"]
        assert len(harness.dead_letters()) == 1
        assert has_ended(harness)


@pytest.mark.parametrize("outcome", [TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED])
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_topic_whose_last_offset_is_no_record_ends_too(outcome, is_alone):
    """Behind a transaction stands a marker, and an aborted one leaves nothing but offsets."""
    with Harness(ringing(until="latest"), workers=0, partitions=1) as harness:
        if not is_alone:
            harness.send(ORDERS, Order(0, set=[10]), key="a")
        transactions = harness._broker.transactions
        epoch = transactions.init("somebody", timeout_s=1000.0)
        batch = harness._writer.batch()
        batch.append(0, 5, b"x", b'{"at": 5, "set": [3]}', [])
        transactions.produce("somebody", epoch, TopicPartition("orders", 0), batch, harness._broker.now)
        transactions.end("somebody", epoch, harness._broker.now, outcome)
        harness.scale(1)
        harness.run()
        harness.advance(5)
        expected = [] if is_alone else ["a@10"]
        assert sorted(harness.read(RINGS)) == expected + (
            ["x@3"] if outcome is TransactionOutcome.COMMITTED else []
        )
        assert has_ended(harness)


def test_one_that_has_ended_and_is_deployed_without_an_end_goes_on_or_is_refused():
    with Harness(ringing(until="latest"), workers=0, partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10]), key="a")
        harness.scale(1)
        harness.run()
        assert harness.read(RINGS) == ["a@10"]
        harness.send(ORDERS, Order(20, set=[30]), Order(40), key="a")
        try:
            harness.change_pipeline(ringing())
            harness.advance(5)
        except sk.errors.StreamkitError:
            return
        assert harness.read(RINGS) == ["a@30"]


def test_a_crash_on_the_way_to_the_end_counts_nothing_twice():
    pipeline = sk.pipeline("counted")
    pipeline.read(VIEWS, until="latest").key_by(page_of).count(name="n").map_keyed(as_count).write(COUNTS)
    with Harness(pipeline, workers=0) as harness:
        for number in range(60):
            harness.send(VIEWS, View(f"page-{number % 3}"), key=str(number))
        harness.scale(1)
        harness.advance(0.004)
        harness.crash()
        harness.restart()
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 60
