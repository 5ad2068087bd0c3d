"""Transactions that the broker forgot to end on a changelog: what was decided about them, and that it is so."""

from collections.abc import Callable

import pytest

from streamkit.model.ids import Position, TopicPartition
from streamkit.runtime.hanging import FENCED_S, LIVING_S, was_committed
from streamkit.state.changelog import CommitRecord
from streamkit.state.memory import MemoryStores
from streamkit.testing import Harness
from streamkit.testing.memory.partition import MemoryPartition, Transaction
from tests.runtime.pages import COUNTS, VIEWS, View, check_running_counts, counting

IN = TopicPartition("in", 0)


def record(offset: int, span: int = 1, writer: str = "w") -> CommitRecord:
    return CommitRecord(
        positions={"in": {0: offset}}, writer_id=writer, generation=1, span=span, birth="b", fingerprint="f"
    )


def at(offset: int, note: str) -> dict[TopicPartition, Position]:
    return {IN: Position(offset, note)}


@pytest.mark.parametrize(
    ("open_records", "group", "decided"),
    [
        ([record(5, span=2)], at(5, "2"), True),
        ([record(5, span=2)], at(3, "1"), False),
        ([record(3, span=2)], at(3, "2"), True),  # nothing was read in that span
        ([record(5, span=2)], at(5, ""), None),
        ([record(5, span=1)], at(5, ""), None),
        ([record(5, span=1)], {}, False),
        ([record(5, span=9)], at(4, "7"), None),  # a coordinator that is still loading
        ([record(5, span=2)], {}, None),
        ([record(5, span=2), record(6, span=3)], at(5, ""), True),
        # Two of one number: a former owner woke up, and one of the two was refused.
        ([record(5, span=2), record(4, span=2)], at(3, "1"), False),
        ([record(5, span=2), record(4, span=2)], at(5, "2"), True),
        ([record(5, span=2), record(4, span=2)], at(4, "2"), False),
        ([record(5, span=2), record(5, span=2)], at(5, "2"), None),
        ([record(5, span=2), record(4, span=2), record(6, span=3)], at(6, "3"), None),
    ],
)
def test_positions_and_those_who_went_on_tell_what_was_decided(open_records, group, decided):
    assert was_committed(open_records, group) is decided


def test_a_span_whose_number_is_taken_was_refused():
    assert was_committed([record(5, span=2), record(6, span=3)], at(6, "3"), known_span=2) is False


def forgetting(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[TopicPartition]]:
    """A broker that, when it is told so, writes no marker to the next changelog of a stage that is ended."""
    end = MemoryPartition.end
    wanted: list[str] = []
    forgotten: list[TopicPartition] = []

    def forgetful(self: MemoryPartition, transaction: Transaction) -> None:
        if wanted and wanted[0] in self.name.topic and not forgotten:
            forgotten.append(self.name)
        else:
            end(self, transaction)

    monkeypatch.setattr(MemoryPartition, "end", forgetful)

    def forget(stage: str) -> list[TopicPartition]:
        wanted.append(stage)
        return forgotten

    return forget


def send(harness: Harness, count: int) -> None:
    for number in range(count):
        harness.send(VIEWS, View(f"page-{number % 9}"), key=str(number))


@pytest.mark.parametrize("stage", ["views.changelog", "page_of.changelog"])
def test_a_committed_transaction_without_its_marker_does_not_hold_a_restore_for_ever(monkeypatch, stage):
    forget = forgetting(monkeypatch)
    with Harness(counting(), workers=2, partitions=2, session_timeout_s=1.0) as harness:
        send(harness, 40)
        harness.run()
        forgotten = forget(stage)
        send(harness, 40)
        while not forgotten:
            harness.advance(0.0005)
        victim = next(
            index
            for index, worker in enumerate(harness.workers)
            if forgotten[0] in [task.changelog for task in worker.agent.roster.tasks.values()]
        )
        harness.crash(victim)  # and it never comes back: somebody else must restore what it had
        survivor = harness.workers[1 - victim]
        harness.advance(FENCED_S + 5)
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 80
        assert len(survivor.agent.roster.tasks) == 4
        partition = harness._broker.topics.partition(forgotten[0])
        assert partition.stable_offset == partition.end_offset


def test_an_aborted_transaction_without_its_marker_is_ended_as_aborted(monkeypatch):
    forget = forgetting(monkeypatch)
    with Harness(counting(), partitions=1) as harness:
        send(harness, 40)
        harness.run()
        sent = 40
        writers = harness._broker.transactions
        while (
            writers.state("pages.worker-0").transaction is None
        ):  # until it is killed in the middle of a commit
            send(harness, 1)
            sent += 1
            for _ in range(40):
                if writers.state("pages.worker-0").transaction is None:
                    harness.advance(0.00003)
            assert sent < 500, "no transaction was ever seen open"
        forgotten = forget("page_of.changelog")
        harness.crash()
        harness.workers[0].stores = MemoryStores()
        harness.restart()
        assert forgotten
        harness.advance(LIVING_S + 10)
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == sent
        partition = harness._broker.topics.partition(forgotten[0])
        assert partition.stable_offset == partition.end_offset
