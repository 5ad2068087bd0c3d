"""A restore outlasts rebalances, and goes by who is alive now: not by who was when it began."""

import msgspec

from streamkit.model.ids import TaskId, TopicPartition
from streamkit.runtime.last_commits import last_commits
from streamkit.runtime.retire import life_of
from streamkit.state.keys import COMMIT_KEY
from streamkit.testing import Harness
from streamkit.testing.harness_worker import HarnessWorker
from streamkit.testing.memory.batch import MemoryBatch
from tests.runtime.pages import COUNTS, check_running_counts, counting
from tests.runtime.test_retire import held, send, writing


def pages() -> Harness:
    harness = Harness(counting(), workers=1, partitions=2, session_timeout_s=1.0)
    send(harness, 40)
    harness.run()
    return harness


def tasks_of(harness: Harness, worker: int) -> set[TaskId]:
    loop = harness.workers[worker].loop
    assert loop is not None
    return set(loop.roster.tasks)


def generation(harness: Harness, worker: int) -> int:
    loop = harness.workers[worker].loop
    assert loop is not None
    return loop.roster.assignment.member.generation


def is_restoring(harness: Harness, worker: int) -> bool:
    loop = harness.workers[worker].loop
    assert loop is not None
    return loop.roster.restoring


def tasks_that_move_to_a_second_worker() -> set[TaskId]:
    with pages() as harness:
        harness.scale(2)
        moved = tasks_of(harness, 1)
        harness.read(COUNTS)
    return moved


def leave_a_commit_open(harness: Harness, writer: str, task: TaskId) -> None:
    """What this writer leaves when it stops in the middle of a commit of this task."""
    record = harness._do(last_commits(harness._plan, harness._log))[task]
    record = msgspec.structs.replace(record, writer_id=writer, span=record.span + 1)
    batch = MemoryBatch(10_000)
    batch.append(0, 0, COMMIT_KEY, record.encode(), [])
    changelog = TopicPartition(harness._plan.stage(task.stage).changelog, task.partition)
    transactions = harness._broker.transactions
    epoch = transactions.init(writer, 1e9)
    transactions.produce(writer, epoch, changelog, batch, harness._broker.now)


def test_a_restore_retires_a_writer_whose_worker_was_alive_when_it_began() -> None:
    moved = min(tasks_that_move_to_a_second_worker())
    with pages() as harness:
        writer = f"{life_of(writing(harness, 0))}.99"
        leave_a_commit_open(harness, writer, moved)
        harness.workers.append(HarnessWorker(1))
        harness._start(harness.workers[1])
        harness.advance(10)
        assert moved in tasks_of(harness, 1)
        assert is_restoring(harness, 1)  # whoever holds it up is alive, and may end it
        assert held(harness)
        began_in = generation(harness, 1)
        harness.crash(0)
        harness.advance(10)
        assert generation(harness, 1) == began_in + 1
        assert not is_restoring(harness, 1)
        assert held(harness) == []
        send(harness, 40)
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 80
