"""Event time on a real broker: windows over two shuffles, an idle partition, late records, and kill -9 throughout."""

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.crash.hours import LATE_MS, WINDOW_MS

pytestmark = [pytest.mark.kafka, pytest.mark.crash, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 4
# Nothing is ever sent to this one: it must not hold event time back for ever.
IDLE_PARTITION = 3
USERS = 40
KILLS = 8
LATE_RECORDS = 60
PATIENCE_S = 120.0


class Rig:
    """Workers, a load whose event time is of its own making, and an auditor that is not ours."""

    def __init__(self, brokers: str, folder: Path) -> None:
        self.run = uuid.uuid4().hex[:8]
        self.brokers = brokers
        self.random = random.Random(7)
        self._folder = folder
        self._log = (folder / "workers.log").open("ab")
        names = [f"{kind}-{self.run}" for kind in ("visits", "late", "per-user", "totals")]
        admin = AdminClient({"bootstrap.servers": brokers})  # its answers end with it
        topics = [NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"}) for name in names]
        for future in admin.create_topics(topics).values():
            future.result()
        self._producer = Producer(
            {"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self.now = int(time.time() * 1000) // WINDOW_MS * WINDOW_MS
        self.sent: list[tuple[str, int]] = []
        self.number = 0
        self.workers = [self._start() for _ in range(2)]

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.crash.worker", "hours", self.run, self.brokers]
        return subprocess.Popen(
            [*command, str(self._folder / "state")], stdout=self._log, stderr=subprocess.STDOUT
        )

    def send(self, at: int, *, partition: int | None = None) -> tuple[str, int]:
        """One visit; returns who paid it, and its number."""
        user = f"user-{self.random.randrange(USERS)}"
        self.number += 1
        value = json.dumps({"user": user, "number": self.number, "at": at}).encode()
        chosen = self.random.randrange(PARTITIONS - 1) if partition is None else partition
        self._producer.produce(f"visits-{self.run}", value, user.encode(), chosen)
        return user, self.number

    def work(self, seconds: float) -> None:
        """Send visits whose event time advances with the clock, out of order by less than is allowed."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.now += 10
            for _ in range(10):
                at = self.now + self.random.randrange(LATE_MS)
                user, _ = self.send(at)
                self.sent.append((user, at))
            self._producer.poll(0)
            time.sleep(0.01)

    def kill(self) -> None:
        """kill -9 of a worker, and a new one in its place."""
        index = self.random.randrange(len(self.workers))
        self.workers[index].kill()
        self.workers[index].wait()
        self.workers[index] = self._start()

    def bring_time_to(self, at: int) -> None:
        """A last visit on every partition that is in use, long after all others."""
        for partition in range(PARTITIONS - 1):
            user, _ = self.send(at, partition=partition)
            self.sent.append((user, at))
        assert self._producer.flush(60) == 0

    def read(self, kind: str, wanted: int) -> list[dict[str, object]]:
        """Everything that is committed in an output topic, once there are so many records."""
        settings = {"bootstrap.servers": self.brokers, "group.id": uuid.uuid4().hex}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "log_level": 0})
        consumer.assign([TopicPartition(f"{kind}-{self.run}", each, 0) for each in range(PARTITIONS)])
        found: list[dict[str, object]] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < wanted:
            assert time.monotonic() < deadline, f"{kind}: {len(found)} of {wanted}\n{self.log_tail()}"
            found += [
                json.loads(each.value()) for each in consumer.consume(5000, 0.5) if each.error() is None
            ]
        found += [json.loads(each.value()) for each in consumer.consume(5000, 2.0) if each.error() is None]
        consumer.close()
        return found

    def log_tail(self) -> str:
        return (self._folder / "workers.log").read_text(errors="replace")[-4000:]

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self._log.close()


@pytest.fixture
def rig(kafka_broker, tmp_path):
    made = Rig(kafka_broker.bootstrap, tmp_path)
    yield made
    made.close()


def end_of(at: int) -> int:
    return at // WINDOW_MS * WINDOW_MS + WINDOW_MS


def test_windows_close_exactly_once_whatever_is_killed(rig):
    rig.work(3.0)
    for _ in range(KILLS):
        rig.kill()
        rig.work(rig.random.uniform(0.5, 2.5))
    last = rig.now + 60_000
    rig.bring_time_to(last)
    rig.kill()  # in the middle of open windows, with all their timers pending

    closed = [(user, end_of(at)) for user, at in rig.sent if at < last]
    per_user = rig.read("per-user", len(set(closed)))
    assert Counter((each["user"], each["end"]) for each in per_user).most_common(1)[0][1] == 1
    assert {(each["user"], each["end"]): each["n"] for each in per_user} == Counter(closed)

    ends = Counter(end for _, end in closed)
    totals = rig.read("totals", len(ends))
    assert sorted((each["end"], each["n"]) for each in totals) == sorted(ends.items())

    # What comes now is older than any window that is open: it goes to the topic of late records, and nowhere else.
    late = [rig.send(rig.now - rig.random.randrange(10_000))[1] for _ in range(LATE_RECORDS)]
    rig.kill()
    found = rig.read("late", LATE_RECORDS)
    assert sorted(each["number"] for each in found) == sorted(late)
    assert len(rig.read("per-user", len(per_user))) == len(per_user)
    check_explanation(rig)


def check_explanation(rig: Rig) -> None:
    """`streamkit watermarks` names every task, and says of the partition that is silent that it is idle."""
    folder = rig._folder
    (folder / "hours_of_run.py").write_text(
        f"from tests.crash.hours import hours\npipeline = hours({rig.run!r})\n"
    )
    command = [sys.executable, "-m", "streamkit.cli.main", "watermarks", "hours_of_run:pipeline"]
    shown = subprocess.run(
        [*command, "--brokers", rig.brokers, "--output", "json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    tasks = {(each["stage"], each["partition"]): each for each in json.loads(shown.stdout)["tasks"]}
    assert len(tasks) == 3 * PARTITIONS
    assert tasks[f"visits-{rig.run}", IDLE_PARTITION]["status"] == "idle"
    assert all(tasks["end_of", each]["event_time_ms"] for each in range(PARTITIONS))
