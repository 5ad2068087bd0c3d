"""Local state that is brought up to date by the tail of its changelog, or set aside."""

import pytest

from streamkit.runtime import restore
from streamkit.testing import Harness
from streamkit.testing.harness_worker import HarnessWorker
from tests.progress.alarms import ORDERS, RINGS, Order, ringing


def forget_tombstones(harness: Harness) -> None:
    """As Kafka's cleaner does once tombstones are older than `delete.retention.ms`."""
    for topic in harness._broker.topics.names():
        if "changelog" in topic:
            for partition in harness._broker.topics.find(topic).partitions:
                partition.compact()
                for batch in partition.batches[:-2]:
                    batch.records = [record for record in batch.records if record.value is not None]


def test_state_so_old_that_deletions_were_forgotten_is_restored_from_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restore, "LOCAL_STATE_MS_MAX", 500)
    with Harness(ringing(), partitions=1, workers=1) as harness:
        for key in ("a", "b", "c"):
            harness.send(ORDERS, Order(0, set=[10]), key=key)
        harness.run()
        harness.crash(0)  # its disk stays as it is, with three timers on it
        harness.workers.append(HarnessWorker(1))
        harness._start(harness.workers[1])
        harness._do(harness._until(harness._is_settled))
        harness.send(ORDERS, Order(100), key="a")
        harness.run()
        assert sorted(harness.read(RINGS)) == ["a@10", "b@10", "c@10"]
        harness.advance(1)
        harness.send(ORDERS, Order(101), key="zz")
        harness.run()
        forget_tombstones(harness)
        harness.crash(1)
        harness.restart(0)
        harness.send(ORDERS, Order(102), key="zz")
        harness.run()
        harness.advance(1)
        assert harness.read(RINGS) == []
