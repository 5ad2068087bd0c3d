"""The demo without Kafka: the same pipeline and the same runtime on the in-memory log, all in this process.

There is no process to kill here. A worker is cut off from the log in the middle of what it does, as after kill -9:
its open transaction stays behind, its disk stays, its memory is gone.
"""

import asyncio
import contextlib
import random
import time
from pathlib import Path

import msgspec

from services.page_views.demo_kafka import ROOT, TOPICS, Failed
from services.page_views.demo_view import WorkerSeen
from services.page_views.load import TICKS_PER_S, Sent, make_views
from services.page_views.pipeline import COUNTS, VIEWS, is_human, page_views
from streamkit.config import Settings
from streamkit.kafka.ports import WriterOptions
from streamkit.model.commit import Commit, Guarantee, Member
from streamkit.model.ids import TopicPartition
from streamkit.model.keys import KafkaPartitions
from streamkit.model.topic_file import read_topic_files
from streamkit.model.topic_shape import TopicSpec
from streamkit.runtime.assemble import assemble
from streamkit.runtime.disk import DiskThread
from streamkit.runtime.persist import Storage
from streamkit.state.budget import MemoryBudget
from streamkit.task.emit import Outbox
from streamkit.telemetry.logs import configure_logs
from streamkit.testing.harness import HarnessWorker
from streamkit.testing.memory import MemoryBroker, MemoryLog

READ_BYTES_MAX = 1 << 30


class InMemory:
    """Two workers on one in-memory broker, restarted by us as a supervisor would."""

    killing = "is cut off in the middle of its work"
    reader = "of the in-memory log itself, read directly: both topics, all that is committed"

    def __init__(self, reason: str, log_file: Path) -> None:
        self._reason = reason
        self._logs = log_file.open("a")
        self._settings = Settings(store="memory")
        self._broker = MemoryBroker()
        self._log = MemoryLog(self._broker)
        self._workers = [HarnessWorker(0), HarnessWorker(1)]
        self._restarts = [0, 0]
        self._reborn: set[asyncio.Task[None]] = set()
        self._load: asyncio.Task[Sent] | None = None
        self._positions: dict[TopicPartition, int] = {}

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What the audience should know."""
        return [
            ("no kafka", self._reason),
            (
                "instead",
                "the in-memory log, everything in one process; a worker is cut off instead of killed",
            ),
            ("pipeline", f"{VIEWS.name} ▸ not a bot ▸ by page ▸ count ▸ {COUNTS.name}"),
        ]

    async def start(self) -> None:
        """Create the topics and start the workers."""
        configure_logs("json", self._logs)
        declared = {each.name: each for each in read_topic_files(ROOT / "topics")}
        names = dict(zip(TOPICS, (VIEWS.name, COUNTS.name), strict=True))
        specs = [TopicSpec(name, declared[file].file.partitions) for file, name in names.items()]
        await self._log.admin().create(specs)
        for topic in specs:
            self._positions |= {TopicPartition(topic.name, index): 0 for index in range(topic.partitions)}
        for worker in self._workers:
            await self._start(worker)

    async def _start(self, worker: HarnessWorker) -> None:
        worker.log = MemoryLog(self._broker)
        storage = Storage(worker.stores, DiskThread(), MemoryBudget())
        worker.loop = await assemble(page_views.plan(), self._settings, worker.log, storage, worker)
        worker.work = asyncio.create_task(worker.loop.run(), name=worker.name)

    async def is_ready(self) -> bool:
        """Both workers have their tasks, and all of these run."""
        rosters = [worker.loop.roster for worker in self._workers if worker.loop is not None]
        joined = [roster for roster in rosters if roster.joined and not roster.restoring]
        return len({roster.assignment.member.generation for roster in joined}) == 1 and len(joined) == 2

    def start_load(self, rate: float, seconds: float) -> None:
        """Let the visitors come."""
        self._load = asyncio.create_task(self._send(rate, seconds), name="load")

    async def _send(self, rate: float, seconds: float) -> Sent:
        choose = random.Random()  # noqa: S311 - visitors, not secrets
        writer = self._log.writer(WriterOptions("load", Guarantee.AT_LEAST_ONCE))
        await writer.open()
        outbox = Outbox(writer)
        partitions = sum(each.topic == VIEWS.name for each in self._positions)
        partition_of, lane = KafkaPartitions(partitions), outbox.lane(VIEWS.name, partitions)
        sent = bots = 0
        began = time.monotonic()
        while sent < int(rate * seconds):
            due = int(rate * min(time.monotonic() - began, seconds)) - sent
            for view in make_views(due, choose):
                user = view.user.encode()
                lane.add(partition_of[user], user, msgspec.json.encode(view), view.at)
                bots += not is_human(view)
            sent += due
            await writer.commit(Commit(outbox.take(), {}, Member("", "", -1)))
            await asyncio.sleep(1 / TICKS_PER_S)
        passed_s = round(time.monotonic() - began, 1)
        return Sent(topic=VIEWS.name, sent=sent, acknowledged=sent, failed=0, bots=bots, seconds=passed_s)

    def sent(self) -> Sent | None:
        """What the load has sent, once it has ended."""
        return self._load.result() if self._load is not None and self._load.done() else None

    def read_new(self) -> tuple[list[bytes], list[bytes]]:
        """Values that were committed to both topics since the last call."""
        return self._read(VIEWS.name, self._positions), self._read(COUNTS.name, self._positions)

    def _read(self, topic: str, positions: dict[TopicPartition, int]) -> list[bytes]:
        values: list[bytes] = []
        for at, position in positions.items():
            if at.topic != topic:
                continue
            found = self._broker.topics.partition(at).read(position, READ_BYTES_MAX, committed=True)
            if found is not None:
                values += [
                    each.value for each in found.records if each.offset >= position and each.value is not None
                ]
                positions[at] = found.next_offset
        return values

    def workers(self) -> list[WorkerSeen]:
        """The two workers as they are now."""
        seen = []
        for index, worker in enumerate(self._workers):
            if worker.work is not None and worker.work.done():
                worker.work.result()
                raise Failed(f"worker {index + 1} ended by itself")
            life = None if worker.work is None else f"life {self._restarts[index] + 1}"
            seen.append(WorkerSeen(index + 1, life, self._restarts[index]))
        return seen

    async def kill(self, number: int) -> None:
        """Cut a worker off in the middle of what it does; a supervisor starts it again."""
        worker = self._workers[number - 1]
        if worker.log is None or worker.work is None:
            raise Failed(f"worker {number} is not there to be killed")
        worker.log.kill()
        await _cancelled(worker.work)
        worker.log = worker.loop = worker.work = None
        worker.stores.crash()
        reborn = asyncio.create_task(self._start_again(number - 1))
        self._reborn.add(reborn)
        reborn.add_done_callback(self._reborn.discard)

    async def _start_again(self, index: int) -> None:
        await asyncio.sleep(self._settings.restart_delay_first_s)
        await self._start(self._workers[index])
        self._restarts[index] += 1

    async def stop_workers(self) -> None:
        """The clean end: each worker finishes its span, commits and leaves."""
        for worker in self._workers:
            if worker.loop is not None and worker.work is not None:
                worker.loop.stop()
                await worker.work
                worker.loop = worker.work = None

    def everything(self) -> tuple[list[bytes], list[bytes]]:
        """All committed values of both topics, read anew from the start."""
        start = dict.fromkeys(self._positions, 0)
        return self._read(VIEWS.name, start), self._read(COUNTS.name, start)

    async def close(self) -> None:
        """End whatever is still there."""
        left = [worker.work for worker in self._workers if worker.work is not None]
        for work in (*left, *self._reborn, *([self._load] if self._load else [])):
            await _cancelled(work)
        self._logs.close()


async def _cancelled(work: "asyncio.Task[object]") -> None:
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await work
