"""Writers that write no more: what they left open is ended as it was decided, by whoever comes after them."""

from typing import Any, Self

import pytest
from structlog.testing import capture_logs

from streamkit.kafka.transaction_port import LastTransaction, LeftOpen, Producer, TransactionState
from streamkit.model.ids import TopicPartition
from streamkit.runtime.retire import Retirement, life_of
from streamkit.state.memory import MemoryStores
from streamkit.testing import Harness
from streamkit.testing.memory import MemoryBroker, MemoryLog
from streamkit.testing.memory.batch import MemoryBatch
from streamkit.testing.memory.partition import MemoryPartition, TransactionOutcome
from streamkit.testing.virtual_time import run
from tests.runtime.pages import COUNTS, VIEWS, View, check_running_counts, counting


def send(harness: Harness, count: int) -> None:
    for number in range(count):
        harness.send(VIEWS, View(f"page-{number % 9}"), key=str(number))


def slow_markers(harness: Harness) -> None:
    """From now on markers are written long after the answer: time enough to lose them."""
    harness._broker.transactions.marker_delay_s = lambda: 5.0


def quick_markers(harness: Harness) -> None:
    harness._broker.transactions.marker_delay_s = None


def writing(harness: Harness, worker: int) -> str:
    loop = harness.workers[worker].loop
    assert loop is not None
    return loop._parts.writer.writer_id


def held(harness: Harness) -> list[TopicPartition]:
    """Where readers wait for a marker."""
    topics = harness._broker.topics
    partitions: list[MemoryPartition] = [p for name in topics.names() for p in topics.topic(name).partitions]
    return [each.name for each in partitions if each.open]


def let_the_last_commit_hang(harness: Harness, *, positions: bool, partitions: bool) -> str:
    """Have a transaction committed, of which the broker then forgets markers; returns its writer."""
    slow_markers(harness)
    send(harness, 40)
    transactions = harness._broker.transactions
    for _ in range(2000):
        ended = [
            name for name, writer in transactions._writers.items() if writer.markers and "worker" in name
        ]
        if ended:
            break
        harness.advance(0.0005)
    quick_markers(harness)
    forgotten = transactions.restart(
        lambda writer_id, is_position: writer_id == ended[0] and (positions if is_position else partitions)
    )
    assert forgotten
    return ended[0]


@pytest.mark.parametrize(("positions", "partitions"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "alive"])
def test_a_committed_transaction_without_its_markers_is_committed(positions, partitions, is_killed):
    with Harness(counting(), workers=2, partitions=2, session_timeout_s=1.0) as harness:
        send(harness, 40)
        harness.run()
        writer = let_the_last_commit_hang(harness, positions=positions, partitions=partitions)
        victim = next(number for number in (0, 1) if writing(harness, number) == writer)
        if is_killed:
            harness.crash(victim)  # and it never comes back: somebody else must restore what it had
        harness.advance(10)
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 80
        assert held(harness) == []
        assert not harness._broker.groups.group("pages").pending


def test_an_aborted_transaction_without_its_markers_is_aborted():
    with Harness(counting(), partitions=1) as harness:
        send(harness, 40)
        harness.run()
        slow_markers(harness)
        sent = 40
        transactions = harness._broker.transactions
        writer = writing(harness, 0)
        while transactions.state(writer).transaction is None:  # until it is killed in the middle of a commit
            send(harness, 1)
            sent += 1
            for _ in range(40):
                if transactions.state(writer).transaction is None:
                    harness.advance(0.00003)
            assert sent < 500, "no transaction was ever seen open"
        harness.crash()
        epoch = transactions.state(writer).epoch
        transactions.end(
            writer, epoch, harness._broker.now, TransactionOutcome.ABORTED
        )  # as its time-out would
        assert transactions.restart(lambda *_: True)
        quick_markers(harness)
        assert held(harness)
        harness.workers[0].stores = MemoryStores()
        harness.restart()
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == sent
        assert held(harness) == []


def test_an_idle_worker_does_not_leave_to_its_next_commit_what_a_broker_forgot():
    with Harness(counting(), partitions=1) as harness:
        send(harness, 9)
        let_the_last_commit_hang(harness, positions=True, partitions=True)
        assert held(harness)
        harness.advance(1.0)  # and nothing comes in any more
        assert held(harness) == []


def test_every_life_and_every_loss_of_the_broker_takes_another_writer_id():
    with Harness(counting(), partitions=1) as harness:
        seen = [writing(harness, 0)]
        harness._broker.transactions.restart()
        send(harness, 3)
        harness.run()
        seen.append(writing(harness, 0))
        harness.crash()
        harness.restart()
        seen.append(writing(harness, 0))
        assert len(set(seen)) == 3
        assert all(name.startswith("pages.worker-0.") for name in seen)
        assert life_of(seen[0]) == life_of(seen[1]) != life_of(seen[2])


def test_a_span_that_is_dropped_gives_its_number_back():
    with Harness(counting(), partitions=1) as harness:
        send(harness, 9)
        harness.run()
        loop = harness.workers[0].loop
        assert loop is not None
        for task in loop.roster.tasks.values():
            committed = task.span
            assert committed > 0
            task.span += 1
            task.rewind(loop._engine.routes.codes)
            assert task.span == committed


def test_what_a_writer_left_open_that_nobody_names_is_found_and_ended():
    with Harness(counting(), partitions=1) as harness:
        send(harness, 9)
        harness.run()
        transactions, now = harness._broker.transactions, harness._broker.now
        ghost = "pages.gone.1.1"  # died in its first transaction, on a host that never comes back
        epoch = transactions.init(ghost, 60.0)
        batch = MemoryBatch(1000)
        batch.append(0, 0, b"k", b"v", [])
        transactions.produce(ghost, epoch, TopicPartition(COUNTS.name, 0), batch, now)
        slow_markers(harness)
        transactions.end(ghost, epoch, now, TransactionOutcome.ABORTED)
        transactions.restart(lambda *_: True)
        quick_markers(harness)
        assert held(harness)
        harness.advance(120)
        assert held(harness) == []


PRODUCER = Producer(7, 3)
SHARED = TopicPartition("shared", 0)


class Unreadable:
    """A log whose one output we may write to and not read: somebody else holds it, for ever."""

    def __init__(self) -> None:
        self.ended: list[bool] = []

    def transactions(self) -> Self:
        return self

    def admin(self) -> Self:
        return self

    async def last(self, writer_id: str) -> LastTransaction | None:
        is_note = writer_id.endswith((".committed", ".fenced"))
        return None if is_note else LastTransaction(TransactionState.COMPLETE_ABORT, PRODUCER)

    async def left_open(self, producer: Producer, *_: object) -> LeftOpen:
        return LeftOpen(producer, frozenset({SHARED}), guessed=frozenset({SHARED}))

    async def end(self, *_: object, **__: object) -> bool:
        return True

    async def end_left(self, *_: object, commit: bool) -> bool:
        self.ended.append(commit)
        return True


def test_what_others_hold_where_we_may_not_ask_who_it_is_gets_one_marker_and_keeps_nobody_from_starting():
    log: Any = Unreadable()
    with capture_logs() as told:
        run(Retirement(log, "pages", [SHARED], []).retire("pages.worker-0.1.1"), 0)
    assert log.ended == [False]
    assert ["a topic that may not be read" in each["event"] for each in told] == [
        True
    ]  # once, and nothing else
    assert told[0]["partitions"] == [str(SHARED)]


def test_a_sweep_ends_when_our_place_in_the_group_is_lost_meanwhile():
    with Harness(counting(), partitions=1) as harness:
        loop = harness.workers[0].loop
        assert loop is not None
        transactions = loop._parts.log.transactions()
        known = transactions.known

        async def lose(prefix: str) -> set[str]:
            names = await known(prefix)
            loop.roster._assignment = None
            return names

        assignment = loop.roster._assignment
        transactions.known = lose  # type: ignore[method-assign]
        loop._retirement._log.transactions = lambda: transactions  # type: ignore[method-assign]
        writer = writing(harness, 0)
        harness._do(loop._sweep())
        loop.roster._assignment = assignment
        send(harness, 9)
        harness.run()
        assert writing(harness, 0) == writer  # nobody was retired


def test_partitions_that_a_sink_got_later_are_looked_after_too():
    with Harness(counting(), partitions=1) as harness:
        loop = harness.workers[0].loop
        assert loop is not None
        late = TopicPartition(COUNTS.name, len(harness._broker.topics.topic(COUNTS.name).partitions))
        harness._do(loop._parts.log.admin().add_partitions(COUNTS.name, late.partition + 1))
        harness._do(loop._topics.look_again())
        assert late in loop._retirement._outputs
        assert late in loop.blocked._outputs


def test_the_name_of_a_writer_that_is_not_of_this_pipeline_is_told_once():
    async def retire():
        retirement = Retirement(MemoryLog(MemoryBroker()), "pages", [], [])
        for _ in range(240):
            await retirement.retire("other.1.1")

    with capture_logs() as logs:
        run(retire(), 0)
    assert len(logs) == 1
