"""The demo on a real Kafka: workers and load are processes, the reader is confluent-kafka."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import psutil

from services.page_views import demo_audit
from services.page_views.demo_view import WorkerSeen
from services.page_views.load import Sent
from streamkit.config import Security
from streamkit.kafka.log import KafkaLog
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_file import DeclaredTopic, read_topic_files
from streamkit.model.topic_shape import TopicSpec
from streamkit.testing.broker import Broker

ROOT = Path(__file__).resolve().parents[2]
TARGET = "services.page_views.pipeline:page_views"
TOPICS = ("page-views", "page-counts")
POLL_RECORDS = 10_000
# The workers finish their span within this time, or are killed.
STOP_LIMIT_S = 30.0
POSITIONS_WAIT_S = 1.0
REQUEST_TIMEOUT_S = 10.0


class Failed(Exception):
    """The demo cannot go on; the message says why."""


class OnKafka:
    """Topics, two workers under `streamkit run`, a load generator, and a reader of both topics."""

    killing = "is killed: kill -9"
    reader = "by confluent-kafka, which knows nothing of streamkit: both topics, all that is committed"

    def __init__(self, broker: Broker, suffix: str, log_file: Path) -> None:
        self._brokers = broker.bootstrap
        self._is_guest = broker.kind == "external"
        self._suffix = suffix
        self._views, self._counts = (f"{name}{suffix}" for name in TOPICS)
        self._group = f"page_views{suffix}"
        self._log_file = log_file
        self._folder = tempfile.TemporaryDirectory(prefix="streamkit-demo-")
        self._environment = {
            **os.environ,
            "PAGE_VIEWS_SUFFIX": suffix,
            "STREAMKIT_BROKERS": self._brokers,
            "STREAMKIT_STATE_DIR": f"{self._folder.name}/state",
            "STREAMKIT_LOGS": "json",
        }
        self._log = KafkaLog(self._brokers, Security(), request_timeout_s=REQUEST_TIMEOUT_S)
        self._tail = demo_audit.consumer(self._brokers)
        self._parent: subprocess.Popen[bytes] | None = None
        self._load: subprocess.Popen[bytes] | None = None
        self._topics_are_ours = False
        self._lives: list[tuple[int | None, int]] = [(None, -1), (None, -1)]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What the audience should know."""
        return [
            ("kafka", self._brokers),
            ("pipeline", f"{self._views} ▸ not a bot ▸ by page ▸ count ▸ {self._counts}"),
            ("running", f"streamkit run {TARGET} --workers 2"),
        ]

    async def start(self) -> None:
        """Create the topics and start the workers."""
        await self._log.connect()
        if taken := await self._log.admin().partitions([self._views, self._counts]):
            raise Failed(f'topic "{next(iter(taken))}" exists already: choose another --suffix')
        self._topics_are_ours = True
        declared = {each.name: each for each in read_topic_files(ROOT / "topics")}
        await self._log.admin().create([self._spec(declared[name]) for name in TOPICS])
        self._tail.assign(
            [
                each
                for topic in (self._views, self._counts)
                for each in demo_audit.partitions_of(self._tail, topic)
            ]
        )
        command = [sys.executable, "-m", "streamkit.cli.main", "run", TARGET, "--workers", "2"]
        with self._log_file.open("ab") as log:
            self._parent = self._spawn(command, log.fileno(), log.fileno())

    def _spec(self, declared: DeclaredTopic) -> TopicSpec:
        """As the file declares it, except that nothing is compacted away: the auditor reads every count."""
        file = declared.file
        config = {**file.config, "cleanup.policy": "delete"}
        return TopicSpec(f"{declared.name}{self._suffix}", file.partitions, file.replication, config)

    def _spawn(self, command: list[str], output: int, errors: int) -> "subprocess.Popen[bytes]":
        # In a session of its own: a Ctrl-C reaches the demo alone, which then ends the others in order.
        return subprocess.Popen(  # noqa: S603 - our own command
            command, cwd=ROOT, env=self._environment, stdout=output, stderr=errors, start_new_session=True
        )

    async def is_ready(self) -> bool:
        """Both workers are in the group, and every task has told so with its first commit."""
        admin = self._log.admin()
        if len(await admin.members(self._group)) < 2:
            return False
        shuffles = [
            topic
            for topic in await admin.list_topics()
            if topic.startswith(f"{self._group}.") and ".shuffle." in topic
        ]
        counts = await admin.partitions([self._views, *shuffles])
        wanted = [TopicPartition(topic, index) for topic, count in counts.items() for index in range(count)]
        found = await admin.positions(self._group, wanted, timeout_s=POSITIONS_WAIT_S)
        return len(counts) == 2 and len(found) == len(wanted)

    def start_load(self, rate: float, seconds: float) -> None:
        """Let the visitors come."""
        command = [sys.executable, "-m", "services.page_views.load", "--topic", self._views]
        command += ["--rate", str(rate), "--seconds", str(seconds)]
        with self._log_file.open("ab") as log:
            self._load = self._spawn(command, subprocess.PIPE, log.fileno())

    def sent(self) -> Sent | None:
        """What the load has sent, once it has ended."""
        if self._load is None or self._load.poll() is None or self._load.stdout is None:
            return None
        report = self._load.stdout.read()
        self._load.stdout.close()
        if self._load.returncode != 0:
            raise Failed(f"the load generator ended with exit code {self._load.returncode}")
        return msgspec.json.decode(report, type=Sent)

    def read_new(self) -> tuple[list[bytes], list[bytes]]:
        """Values that were committed to both topics since the last call."""
        views: list[bytes] = []
        counts: list[bytes] = []
        for message in self._tail.consume(POLL_RECORDS, 0.0):
            if message.error() is None:
                (views if message.topic() == self._views else counts).append(message.value())
        return views, counts

    def workers(self) -> list[WorkerSeen]:
        """The two workers as they are now: a new process takes the place of the one that is gone."""
        if self._parent is None:
            return []
        if (code := self._parent.poll()) is not None:
            raise Failed(f"`streamkit run` ended by itself, with exit code {code}")
        alive = [each.pid for each in _children(self._parent.pid)]
        fresh = [pid for pid in alive if pid not in {known for known, _ in self._lives}]
        for index, (pid, restarts) in enumerate(self._lives):
            if pid not in alive:
                self._lives[index] = (fresh.pop(0), restarts + 1) if fresh else (None, restarts)
        return [
            WorkerSeen(number, None if pid is None else f"pid {pid}", restarts)
            for number, (pid, restarts) in enumerate(self._lives, 1)
        ]

    async def kill(self, number: int) -> None:
        """SIGKILL: no handler, no goodbye, an open transaction left behind."""
        pid, _ = self._lives[number - 1]
        if pid is None:
            raise Failed(f"worker {number} is not there to be killed")
        os.kill(pid, signal.SIGKILL)

    async def stop_workers(self) -> None:
        """The clean end: each worker finishes its span, commits and leaves."""
        parent, self._parent = self._parent, None
        if parent is None:
            return
        code = await asyncio.to_thread(_end, parent)
        if code != 0:
            raise Failed(f"`streamkit run` ended with exit code {code}")

    def everything(self) -> tuple[list[bytes], list[bytes]]:
        """All committed values of both topics, read anew from the start."""
        return demo_audit.read_topic(self._brokers, self._views), demo_audit.read_topic(
            self._brokers, self._counts
        )

    async def close(self) -> None:
        """End whatever is still there, and leave no file behind."""
        for process in (self._load, self._parent):
            if process is not None and process.poll() is None:
                _end(process)
        self._tail.close()
        if self._is_guest and self._topics_are_ours:
            await self._delete_topics()
        await self._log.close()
        self._folder.cleanup()

    async def _delete_topics(self) -> None:
        """On a broker of others nothing of ours stays."""
        admin = self._log.admin()
        topics = await admin.list_topics()
        await admin.delete(
            topic
            for topic in topics
            if topic in (self._views, self._counts) or topic.startswith(f"{self._group}.")
        )


def _children(pid: int) -> list[psutil.Process]:
    try:
        found = psutil.Process(pid).children()
        return sorted(
            (each for each in found if each.status() != psutil.STATUS_ZOMBIE), key=psutil.Process.create_time
        )
    except psutil.NoSuchProcess:
        return []


def _end(process: "subprocess.Popen[bytes]") -> int:
    """Stop a process and its children: politely, then not."""
    children = _children(process.pid)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(STOP_LIMIT_S)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    process.kill()
    return process.wait()
