"""The rig: real worker processes, a steady load, faults, and an audit by a client that is not ours."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from streamkit.runtime.processes import EXIT_TRY_AGAIN

PARTITIONS = 4
USERS = 150
# By then an interpreter has loaded a worker, also on a busy machine.
LOADED_S = 5.0
# A pipeline that makes no progress for this long is stuck. The longest honest wait is a worker that died while it was
# joining (a session) behind a transaction that has to time out (30 s, swept every 10).
STUCK_S = 90.0
CREATED_S = 20.0
# A worker that commits while we look has something open for a moment; a broker that was killed takes its time.
HANGING_S = 60.0
# The auditor's client may begin while no broker is up, and then never look again: one that hears nothing is renewed.
RENEWED_S = 12.0


def create_topics(brokers: str, topics: Iterable[str]) -> None:
    """Make the topics that are ours to make; a broker that is fenced at this moment refuses, and is asked again."""
    admin = AdminClient({"bootstrap.servers": brokers})
    for topic in topics:
        give_up_at = time.monotonic() + CREATED_S
        while True:
            try:
                admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
                break
            except KafkaException as error:
                passing = (KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.REQUEST_TIMED_OUT)
                if error.args[0].code() not in passing or time.monotonic() > give_up_at:
                    raise
                time.sleep(0.1)


class Load(threading.Thread):
    """Sends visits at a steady rate until it is stopped; every acknowledged visit must come out again.

    Its client is idempotent, but takes a new epoch when a broker is killed at the wrong moment, and may then write a few
    visits twice. So what must come out is what stands in the topic.
    """

    def __init__(self, brokers: str, topic: str, rate: int) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": brokers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "message.timeout.ms": 120_000,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self._topic = topic
        self.rate = self._rate = rate
        self._stopping = threading.Event()
        self.sent: dict[str, int] = {}
        self.total = 0

    def run(self) -> None:
        started = time.monotonic() - self.total / self._rate
        while not self._stopping.is_set():
            while self.total < (time.monotonic() - started) * self._rate:
                user = f"user-{self.total * 7919 % USERS}"
                number = self.sent[user] = self.sent.get(user, 0) + 1
                value = json.dumps({"user": user, "number": number}).encode()
                self._producer.produce(self._topic, value, user.encode())
                self.total += 1
            self._producer.poll(0)
            time.sleep(0.005)

    def finish(self) -> None:
        """Stop sending; returns when the broker has acknowledged everything."""
        self._stopping.set()
        self.join()
        left = self._producer.flush(120)
        assert left == 0, f"{left} visits were never acknowledged"


class Audit:
    """Reads what was committed, in order, and compares every record with what must stand there."""

    def __init__(self, brokers: str, topic: str) -> None:
        self._brokers = brokers
        self._topic = topic
        self._at = dict.fromkeys(range(PARTITIONS), 0)
        self._consumer = self._begin()
        self._heard = time.monotonic()
        # The numbers of the visits that were counted, in order, by user.
        self.counted: dict[str, list[int]] = {}
        self.total = 0
        self.faults: list[str] = []

    def _begin(self) -> Consumer:
        """A consumer that goes on where the audit stands."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._brokers,
                "group.id": f"audit-{uuid.uuid4().hex}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(self._topic, partition, at) for partition, at in self._at.items()])
        return consumer

    def read(self, timeout_s: float) -> int:
        """Check what came; returns how many records that were."""
        if time.monotonic() - self._heard > RENEWED_S:
            self._consumer.close()
            self._consumer = self._begin()
            self._heard = time.monotonic()
        try:
            messages = self._consumer.consume(5000, timeout_s)
        except KafkaException:
            return 0
        fine = [message for message in messages if message.error() is None]
        if fine:
            self._heard = time.monotonic()
        for message in fine:
            self._at[message.partition()] = message.offset() + 1
            self._check(json.loads(message.value()), f"{message.partition()}@{message.offset()}")
        self.total += len(fine)
        return len(fine)

    def _check(self, tally: dict[str, int | str], place: str) -> None:
        counted = self.counted.setdefault(str(tally["user"]), [])
        counted.append(int(tally["number"]))
        if tally["count"] != len(counted):
            self.faults.append(f"{place}: {tally}, expected count {len(counted)}")

    def close(self) -> None:
        self._consumer.close()


def held_back(admin: AdminClient, run: str) -> list[str]:
    """The partitions whose stable end lies below their end."""
    known = admin.list_topics(timeout=20).topics
    places = [
        TopicPartition(name, number)
        for name, topic in known.items()
        if run in name or name == "__consumer_offsets"
        for number in topic.partitions
    ]
    ends = {
        isolation: {
            (at.topic, at.partition): found.result().offset
            for at, found in admin.list_offsets(
                dict.fromkeys(places, OffsetSpec.latest()), isolation_level=isolation
            ).items()
        }
        for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    }
    stable, all_of_it = ends[IsolationLevel.READ_COMMITTED], ends[IsolationLevel.READ_UNCOMMITTED]
    return [
        f"{topic}[{number}] at {at}"
        for (topic, number), at in stable.items()
        if at < all_of_it[topic, number]
    ]


class Rig:
    """One run of the pipeline under fire."""

    def __init__(self, brokers: str, folder: Path, *, workers: int = 2, rate: int = 1500) -> None:
        self.run = uuid.uuid4().hex[:8]
        self.brokers = brokers
        self._folder = folder
        self._log = (folder / "workers.log").open("ab")
        # Which version of the pipeline the next worker starts with.
        self.version = "tally"
        self._partitions = PARTITIONS
        self._topics = (f"visits-{self.run}", f"tallies-{self.run}", f"notes-{self.run}", f"seen-{self.run}")
        create_topics(brokers, self._topics)
        self.workers = [self._start() for _ in range(workers)]
        self.load = Load(brokers, self._topics[0], rate)
        self.audit = Audit(brokers, self._topics[1])
        self.random = random.Random(self.run)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "tests.crash.worker",
            self.version,
            self.run,
            self.brokers,
            str(self._folder / "state"),
        ]
        return subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)

    def grow(self, partitions: int) -> None:
        """More partitions for the visits. Keys move, so the visits before must be counted first: order is per partition."""
        before = self.load
        before.finish()
        self.wait_for(before.total)
        topic = self._topics[0]
        admin = AdminClient({"bootstrap.servers": self.brokers})
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(CREATED_S)
        self._partitions = partitions
        self.load = Load(self.brokers, topic, before.rate)
        self.load.sent, self.load.total = before.sent, before.total
        self.load.start()

    def watch(self, seconds: float) -> None:
        """Let it work, and audit what comes out meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.audit.read(min(left, 0.2))
            self.raise_dead()

    def raise_dead(self) -> None:
        """A worker ends by itself only where its parent starts it again: it found no broker when it began."""
        for index, worker in enumerate(self.workers):
            code = worker.poll()
            if code == EXIT_TRY_AGAIN:
                self.workers[index] = self._start()
            else:
                assert code is None, f"a worker ended by itself with {code}:\n{self.log_tail()}"

    def wait_for(self, total: int) -> None:
        """Audit until this many records came out."""
        moved = time.monotonic()
        while self.audit.total < total:
            if self.audit.read(0.5):
                moved = time.monotonic()
            assert time.monotonic() - moved < STUCK_S, f"stuck at {self.audit.total}:\n{self.log_tail()}"
            self.raise_dead()

    def kill(self, index: int | None = None) -> None:
        """kill -9 of a worker, and a new one in its place."""
        index = self.random.randrange(len(self.workers)) if index is None else index
        self.workers[index].kill()
        self.workers[index].wait()
        self.workers[index] = self._start()

    def freeze(self, index: int) -> None:
        """SIGSTOP: alive, but it does not answer."""
        os.kill(self.workers[index].pid, signal.SIGSTOP)

    def thaw(self, index: int) -> None:
        """SIGCONT: a zombie that believes it still owns its tasks."""
        os.kill(self.workers[index].pid, signal.SIGCONT)

    def join(self) -> None:
        """One more worker."""
        self.workers.append(self._start())

    def leave(self, index: int = 0) -> None:
        """SIGTERM: the worker commits, leaves and ends with 0."""
        worker = self.workers.pop(index)
        # Before the interpreter has loaded the program there is no handler, and nothing that could be committed.
        age_s = time.time() - psutil.Process(worker.pid).create_time()
        self.watch(max(0.0, LOADED_S - age_s))
        worker.terminate()
        code = worker.wait(60)
        assert code == 0, f"exit code {code}\n{self.log_tail()}"

    def finish(self) -> None:
        """End the load, wait until everything came out, and judge."""
        self.load.finish()
        visits = self._visits()
        self.wait_for(sum(map(len, visits.values())))
        assert self.audit.read(2.0) == 0, "there is more than came in"
        assert not self.audit.faults, "\n".join(self.audit.faults[:10])
        assert self.audit.counted == visits
        assert {user: set(range(1, sent + 1)) for user, sent in self.load.sent.items()} == {
            user: set(numbers) for user, numbers in visits.items()
        }
        self.check_that_nothing_hangs()
        while self.workers:
            self.leave()

    def _visits(self) -> dict[str, list[int]]:
        """The numbers of all visits that stand in the input topic, in order, by user."""
        settings = {"bootstrap.servers": self.brokers, "group.id": f"visits-{uuid.uuid4().hex}"}
        consumer = Consumer(settings | {"enable.partition.eof": True, "enable.auto.commit": False})
        consumer.assign(
            [TopicPartition(self._topics[0], partition, 0) for partition in range(self._partitions)]
        )
        found: dict[str, list[int]] = {}
        ended = 0
        while ended < self._partitions:
            for message in consumer.consume(5000, 20):
                if message.error() is None:
                    visit = json.loads(message.value())
                    found.setdefault(visit["user"], []).append(visit["number"])
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended += 1
        consumer.close()
        if (
            self._partitions > PARTITIONS
        ):  # a user's visits lie in two of them, in the order in which they were numbered
            found = {user: sorted(numbers) for user, numbers in found.items()}
        return found

    def check_that_nothing_hangs(self) -> None:
        """No reader waits for a marker: on any topic of the run, nor on the one that holds the group's positions."""
        admin = AdminClient({"bootstrap.servers": self.brokers})
        give_up_at = time.monotonic() + HANGING_S
        while held := self._held_back(admin):
            assert time.monotonic() < give_up_at, f"open transactions hold {held} back\n{self.log_tail()}"
            time.sleep(0.5)

    def _held_back(self, admin: AdminClient) -> list[str]:
        try:
            return held_back(admin, self.run)
        except KafkaException as error:  # a broker that is fenced at this moment leads nothing
            return [f"cannot be asked: {error}"]

    def log_tail(self) -> str:
        """The end of what the workers said."""
        return (self._folder / "workers.log").read_text(errors="replace")[-4000:]

    def close(self) -> None:
        """End whatever is left."""
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.audit.close()
        self._log.close()


@contextmanager
def rig(brokers: str, folder: Path, **options: int) -> Iterator[Rig]:
    """A run with its load started; ends every process, whatever happens."""
    made = Rig(brokers, folder, **options)
    try:
        made.wait_for(0)
        made.load.start()
        made.wait_for(200)
        yield made
    finally:
        made.close()
