"""`streamkit run` with several workers on a real broker: it counts, drains, survives, and leaves nobody behind."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from streamkit.testing.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

LIMIT_S = 90.0


class Run:
    """A running command whose log is a file."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.log = log

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def events(self, event: str) -> list[dict[str, object]]:
        return [line for line in self.lines() if line["event"] == event]

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not is_so():
            assert self.process.poll() is None, f"ended before {what}:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.log.read_text()}"
            time.sleep(0.1)


@contextmanager
def running(space, *arguments: str, log: str = "log") -> Iterator[Run]:
    path = space.folder / log
    with path.open("wb") as file:
        process = subprocess.Popen(
            [space.command, "run", space.target, *arguments],
            cwd=space.folder,
            env=space.environment(),
            stderr=file,
        )
    run = Run(process, path)
    try:
        yield run
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture
def space(make_workspace, kafka_broker: Broker):
    made = make_workspace(kafka_broker.bootstrap)
    assert made.run("topics", "apply", "--execute").returncode == 0
    return made


def produce(space, pages: list[str]) -> None:
    producer = Producer({"bootstrap.servers": space.brokers})
    for number, page in enumerate(pages):
        producer.produce(space.views, json.dumps({"page": page}).encode(), str(number).encode())
    assert producer.flush(30) == 0


def last_counts(space, pages: int, total: int) -> dict[str, int]:
    """The newest count of every page, read until they sum up."""
    consumer = Consumer(
        {
            "bootstrap.servers": space.brokers,
            "group.id": "audit",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([space.counts])
    counts: dict[str, int] = {}
    deadline = time.monotonic() + LIMIT_S
    while (len(counts) < pages or sum(counts.values()) < total) and time.monotonic() < deadline:
        record = consumer.poll(0.5)
        if record is not None and not record.error():
            counts[record.key().decode()] = int(record.value())
    consumer.close()
    return counts


def move_back(space) -> None:
    """Somebody else's hand in the group: every source position goes back to the first record."""
    places = [TopicPartition(space.views, partition, 0) for partition in range(2)]
    admin = AdminClient({"bootstrap.servers": space.brokers})
    moved = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(space.name, places)])
    moved[space.name].result(30)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_two_workers_count_and_sigterm_drains_both(space) -> None:
    with running(space, "--workers", "2") as run:
        run.until("two workers started", lambda: len(run.events("worker started")) == 2)
        produce(space, [f"page-{number % 5}" for number in range(500)])
        assert last_counts(space, 5, 500) == {f"page-{number}": 100 for number in range(5)}
        os.kill(run.process.pid, signal.SIGTERM)
        assert run.process.wait(LIMIT_S) == 0
        assert len(run.events("worker stopped")) == 2
        assert "Traceback" not in run.log.read_text()
    first = [line["event"] for line in run.lines()[:3]]
    assert first == ["pipeline loaded", "settings", "press Ctrl-C to commit and quit"]

    report = json.loads(space.run("offsets", "show", space.target, "-o", "json").stdout)
    assert (report["members"], report["lag_records"]) == (0, 0)
    refused = space.run("offsets", "reset", space.target, "--to", "earliest", "--execute")
    assert refused.returncode == 1
    assert "has committed state" in refused.stderr
    assert "new name" in refused.stderr


def test_a_killed_worker_comes_back_and_counts_on(space) -> None:
    with running(space, "--workers", "2") as run:
        run.until("two workers started", lambda: len(run.events("worker started")) == 2)
        produce(space, ["a"] * 100)
        os.kill(run.children()[0], signal.SIGKILL)
        run.until("a third start", lambda: len(run.events("worker started")) == 3)
        (death,) = run.events("worker died: starting it again")
        assert death["how"] == "SIGKILL"
        produce(space, ["a"] * 100)
        assert last_counts(space, 1, 200) == {"a": 200}
        refused = space.run("offsets", "reset", space.target, "--to", "latest")
        assert refused.returncode == 1
        assert "is running" in refused.stderr
        os.kill(run.process.pid, signal.SIGINT)
        assert run.process.wait(LIMIT_S) == 0


def test_workers_end_when_their_parent_is_killed(space) -> None:
    with running(space, "--workers", "2") as run:
        run.until("two workers started", lambda: len(run.events("worker started")) == 2)
        children = run.children()
        assert len(children) == 2
        run.process.kill()
        run.process.wait()
        deadline = time.monotonic() + LIMIT_S
        while any(is_alive(child) for child in children):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert len(run.events("worker stopped")) == 2  # they drained, as after SIGTERM


def test_one_worker_ends_well_by_ctrl_c(space) -> None:
    with running(space) as run:
        run.until("the worker started", lambda: bool(run.events("worker started")))
        os.kill(run.process.pid, signal.SIGINT)
        assert run.process.wait(LIMIT_S) == 0
        assert len(run.events("worker stopped")) == 1


def test_moved_positions_stop_the_worker_and_can_be_set_right(space) -> None:
    produce(space, ["a"] * 100)
    with running(space) as run:
        assert last_counts(space, 1, 100) == {"a": 100}
        os.kill(run.process.pid, signal.SIGTERM)
        assert run.process.wait(LIMIT_S) == 0

    move_back(space)
    stopped = space.run("run", space.target, STREAMKIT_LOGS="quiet")
    assert stopped.returncode == 1
    assert "SK530" in stopped.stderr
    assert "--to committed" in stopped.stderr

    planned = space.run("offsets", "reset", space.target, "--to", "committed", "-o", "json")
    moves = json.loads(planned.stdout)["moves"]
    assert {move["topic"] for move in moves} > {space.views}  # shuffles too
    assert sum(move["after"] for move in moves if move["topic"] == space.views) == 100
    assert space.run("offsets", "reset", space.target, "--to", "committed", "--execute").returncode == 0
    produce(space, ["a"] * 10)
    with running(space):
        assert last_counts(space, 1, 110) == {"a": 110}
