"""Shuffles that do not become quiet: nothing is read while a worker gathers, so it does so more and more seldom."""

from structlog.testing import capture_logs

from streamkit.model.ids import TopicPartition
from streamkit.testing import Harness
from streamkit.testing.memory.batch import MemoryBatch
from tests.progress.alarms import shuffle_topics
from tests.runtime.pages import VIEWS, View, counting

STEP_S = 0.05


def hold(harness: Harness, topic: str) -> None:
    """Somebody else's transaction stays open on a partition of this topic."""
    transactions = harness._broker.transactions
    epoch = transactions.init("somebody", 1e9)
    batch = MemoryBatch()
    batch.append(0, 0, b"k", b"v", [])
    transactions.produce("somebody", epoch, TopicPartition(topic, 0), batch, harness._loop.time())


def waited_s(harness: Harness, number: int) -> float:
    """How long it takes until one more record has been read and committed; ten seconds are enough."""
    loop = harness.workers[0].loop
    assert loop is not None

    def read() -> int:
        tasks = loop.roster.tasks.values()
        return sum(task.committed.get(at, 0) for task in tasks for at in task.inputs if at.topic == "views")

    before, took_s = read(), 0.0
    harness.send(VIEWS, View("x"), key=str(number))
    while took_s < 10 and read() == before:
        harness.advance(STEP_S)
        took_s += STEP_S
    return took_s


def test_a_transaction_that_stays_open_on_a_shuffle_does_not_stop_all_reading() -> None:
    pipeline = counting()
    (topic,) = shuffle_topics(pipeline)
    with capture_logs() as logs, Harness(pipeline, transaction_timeout_s=60.0) as harness:
        harness.advance(0.2)
        hold(harness, topic)
        loop = harness.workers[0].loop
        assert loop is not None
        loop.local.leave()  # as after any record that failed, and any commit in doubt
        waits_s = []
        for number in range(60):
            waits_s.append(waited_s(harness, number))
            harness.advance(max(0.0, 1.0 - waits_s[-1]))
        assert len([wait for wait in waits_s[-20:] if wait > 1]) <= 2
    told = [each for each in logs if each["event"].startswith("shuffles did not become quiet")]
    assert [each["log_level"] for each in told[:3]] == ["info", "warning", "warning"]
    assert told[0]["waiting_for"] == [f"{topic}[0]"]
