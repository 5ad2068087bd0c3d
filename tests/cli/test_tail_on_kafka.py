"""After `kill -9` on a real broker only a small tail of the changelog is read again: state reaches the disk by time."""

import os
import signal
import time

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from streamkit.state.rocks import RocksStores
from streamkit.testing.broker import Broker
from tests.cli.test_run_on_kafka import LIMIT_S, Run, last_counts, produce, running

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

MIB = 1 << 20
# A steady load: so many views at a time, of pages on both partitions, and a commit for each time.
PAGES = 20
STEPS = 40
STEP_S = 0.2


@pytest.fixture
def space(make_workspace, kafka_broker: Broker):
    made = make_workspace(kafka_broker.bootstrap)
    assert made.run("topics", "apply", "--execute").returncode == 0
    return made


def kill_all(run: Run) -> None:
    """The command and whatever it has started: nobody drains."""
    children = run.children()
    os.kill(run.process.pid, signal.SIGSTOP)
    for pid in (*children, run.process.pid):
        os.kill(pid, signal.SIGKILL)
    run.process.wait()


def changelog_ends(space) -> list[int]:
    """Where the changelog of the counts ends, by partition, for those who read what is committed."""
    admin = AdminClient({"bootstrap.servers": space.brokers})
    topic = f"{space.name}.by_page.changelog.1"
    places = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(2)}
    found = admin.list_offsets(places, isolation_level=IsolationLevel.READ_COMMITTED)
    ends = {place.partition: each.result(30).offset for place, each in found.items()}
    return [ends[0], ends[1]]


def on_disk(space) -> list[int]:
    """From where on a restart reads that changelog, by partition: all before it is in the files of the store."""
    stores = RocksStores(space.folder / ".streamkit" / "state" / space.name / "tasks", 8 * MIB, 8 * MIB)
    offsets = []
    for partition in range(2):
        store = stores.open(f"by_page-{partition}")
        offsets.append(store.changelog_offset)
        store.close()
    stores.close()
    return offsets


@pytest.mark.parametrize(("flush_interval_s", "share_max"), [("1", 0.5), ("3600", None)])
def test_a_restart_after_kill_9_reads_as_much_as_the_flush_interval_says(
    space, monkeypatch: pytest.MonkeyPatch, flush_interval_s: str, share_max: float | None
) -> None:
    environment = space.environment
    monkeypatch.setattr(
        space,
        "environment",
        lambda **extra: environment(STREAMKIT_STATE_FLUSH_INTERVAL_S=flush_interval_s, **extra),
    )
    pages = [f"page-{number}" for number in range(PAGES)]
    with running(space) as run:
        run.until("the worker started", lambda: bool(run.events("worker started")))
        for _ in range(STEPS):
            produce(space, pages)
            time.sleep(STEP_S)
        assert last_counts(space, PAGES, PAGES * STEPS) == dict.fromkeys(pages, STEPS)
        kill_all(run)

    ends, offsets = changelog_ends(space), on_disk(space)
    if share_max is None:
        assert offsets == [0, 0]  # all of it, from the first row on
    else:
        assert all(end - at < share_max * end for at, end in zip(offsets, ends, strict=True)), (offsets, ends)

    with running(space, log="again") as run:
        produce(space, pages)
        assert last_counts(space, PAGES, PAGES * (STEPS + 1)) == dict.fromkeys(pages, STEPS + 1)
        os.kill(run.process.pid, signal.SIGTERM)
        assert run.process.wait(LIMIT_S) == 0
        assert run.events("local state is discarded") == []
