"""Harness: a whole pipeline in a unit test. No broker, no waiting, the real runtime.

    with Harness(page_counts, workers=2) as harness:
        harness.send(clicks, Click("home"), key="home")
        harness.run()
        assert harness.read(counts) == [PageCount("home", 1)]

It runs on the in-memory log and a virtual clock: minutes pass in milliseconds, and the same seed gives the same run.
The clock begins now, unless `start=` says otherwise. At the end of the `with` block dead letters that nobody has read
fail the test.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

import structlog

from streamkit.codec.values import key_codec, value_codec
from streamkit.errors import Misconfigured
from streamkit.graph.pipeline import Pipeline
from streamkit.kafka.ports import WriterOptions
from streamkit.model.commit import Commit, Guarantee, Member, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.model.keys import kafka_partition
from streamkit.model.topic import Topic
from streamkit.model.topic_shape import TopicSpec
from streamkit.operate.time_report import TaskTime, explain
from streamkit.runtime.assemble import assemble
from streamkit.runtime.growth import run_until_grown
from streamkit.runtime.loop import WorkerLoop
from streamkit.runtime.persist import Storage
from streamkit.runtime.pulse import BEAT_S, is_at_rest
from streamkit.state.budget import MemoryBudget
from streamkit.task.task import Task
from streamkit.testing.given import (
    GivenHeaders,
    headers_of,
    key_bytes,
    milliseconds_of,
    seconds_of,
    settings_of,
    value_bytes,
    whole_number,
)
from streamkit.testing.harness_worker import HarnessWorker
from streamkit.testing.left_open import left_open
from streamkit.testing.memory import MemoryBroker, MemoryLog
from streamkit.testing.names import (
    name_of,
    require_plan,
    require_source,
    require_topic,
    require_windows,
    require_worker,
)
from streamkit.testing.received import Decode, Received, committed, said_of_unread
from streamkit.testing.virtual_disk import VirtualDisk
from streamkit.testing.virtual_time import VirtualLoop, in_process
from streamkit.windows.look import OpenWindow, open_windows

V = TypeVar("V")
R = TypeVar("R")

# How long, in virtual time, a pipeline may take to work off what was sent to it.
PATIENCE_S = 300.0


class Harness:
    """Runs a pipeline with any number of workers; every call returns when the pipeline has come to rest."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        workers: int = 1,
        partitions: int = 4,
        topic_configs: Mapping[str, Mapping[str, str]] | None = None,
        seed: int = 0,
        start: int | datetime | None = None,
        **settings: Any,
    ) -> None:
        """`start` is the processing time at which it begins: milliseconds, or a datetime with a time zone."""
        self._plan = require_plan(pipeline)
        whole_number("the number of workers", workers, least=0)
        whole_number("the number of partitions, one for all topics,", partitions, least=1)
        configs = topic_configs or {}
        for topic in configs:
            require_topic(self._plan, topic)
        self._settings = settings_of(settings)
        self._is_quiet = _keep_quiet()
        bytes_max = self._settings.memory_bytes
        self._budget = MemoryBudget() if bytes_max is None else MemoryBudget(bytes_max)
        self._loop = VirtualLoop(seed)
        self._broker = MemoryBroker(clock_ms=self._now_ms)
        self._log = MemoryLog(self._broker)
        self._start_ms = _milliseconds(start)
        self._sent = 0
        self._read_from: dict[TopicPartition, int] = {}
        topics = dict.fromkeys([*self._plan.sources(), *self._plan.sinks()])
        specs = [TopicSpec(topic, partitions, config=configs.get(topic, {})) for topic in topics]
        self._do(self._log.admin().create(specs))
        self._writer = self._log.writer(WriterOptions("harness", Guarantee.AT_LEAST_ONCE))
        self._do(self._writer.open())
        self.workers: list[HarnessWorker] = []
        left_open.add(self)
        try:
            self.scale(workers)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        """Stop everything.

        Raises:
            AssertionError: there are dead letters that no call of `dead_letters` has returned.
        """
        try:
            unread = self.dead_letters() if failure is None else []
        finally:
            self.close()
        if unread:
            raise AssertionError(said_of_unread(unread))

    def close(self) -> None:
        """Stop everything; called at the end of a `with` block."""
        left_open.discard(self)
        if self._loop.is_closed():
            return
        for worker in self.workers:
            self._kill(worker)
        left = asyncio.all_tasks(self._loop)
        if left:  # heartbeats and requests of those that were killed
            for work in left:
                work.cancel()
            self._do(asyncio.wait(left))
        self._loop.close()
        if self._is_quiet:
            structlog.reset_defaults()

    # -- records in, records out ----------------------------------------------------------------------------------

    def send(
        self,
        topic: Topic[V],
        *values: V,
        key: Any = None,
        timestamp: int | datetime | None = None,
        headers: GivenHeaders | None = None,
    ) -> None:
        """Write records to a source topic, all with this key and these headers: {"traceparent": b"00-..."}."""
        require_source(self._plan, name_of(topic))
        key_, pairs = key_bytes(topic, key), headers_of(headers)
        for data in [value_bytes(topic, value) for value in values]:
            self.send_bytes(topic, data, key=key_, timestamp=timestamp, headers=pairs)

    def send_bytes(
        self,
        topic: str | Topic[Any],
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp: int | datetime | None = None,
        headers: GivenHeaders | None = None,
    ) -> None:
        """Write one record as it is, for instance one that cannot be decoded."""
        topic = topic if isinstance(topic, str) else name_of(topic)
        require_topic(self._plan, topic)
        self._sent += 1  # two records of one moment still have an order
        now = self._now_ms() + self._sent % 1000
        batch = self._writer.batch()
        at = now if timestamp is None else milliseconds_of("a timestamp", timestamp)
        batch.append(0, at, key, value, headers_of(headers))
        partition = (
            0 if key is None else kafka_partition(key, self._do(self._log.admin().partitions([topic]))[topic])
        )
        out = OutBatch(TopicPartition(topic, partition), batch, 1)
        self._do(self._writer.commit(Commit([out], {}, Member("", "", -1))))

    def read(self, topic: Topic[V]) -> list[V]:
        """Values that were committed to a topic since the last call, by partition and offset."""
        return [record.value for record in self.records(topic)]

    def records(self, topic: Topic[Any]) -> list[Received]:
        """As `read`, with keys, timestamps and headers."""
        require_topic(self._plan, name_of(topic))
        decode, decode_key = value_codec(topic.value_type).decode, key_codec(topic.key_type).decode
        return self._do(self._records(topic.name, decode, decode_key))

    def dead_letters(self) -> list[Received]:
        """Records that were set aside since the last call, with their reason in the headers."""
        return self._do(self._records(self._plan.dead_letter_topic))

    async def _records(
        self, topic: str, decode: Decode = bytes, decode_key: Decode = bytes
    ) -> list[Received]:
        return await committed(self._log, self._read_from, topic, decode, decode_key)

    # -- time and trouble -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let the pipeline work until everything that was sent is processed and committed."""
        self._do(self._until(self._is_idle))

    def advance(
        self,
        seconds: float | timedelta = 0.0,
        *,
        event_time: Mapping[Topic[Any], int | datetime] | None = None,
    ) -> None:
        """Let processing time pass; and promise that of these source topics nothing as old (ms) or older will come.

        With `event_time` the pipeline then works until it has come to rest, as in `run`.
        """
        self._do(asyncio.sleep(seconds_of(seconds)))
        if event_time is None:
            return
        promises = {name_of(topic): milliseconds_of("event time", to) for topic, to in event_time.items()}
        for topic in promises:
            require_source(self._plan, topic)
        for task in self._running():
            for topic, source in task.clock.sources.items():
                source.promise(promises.get(topic))
        self._do(asyncio.sleep(2 * BEAT_S))
        self.run()

    def watermarks(self) -> list[TaskTime]:
        """How far event time has come in each task, and which input holds it back."""
        clocks = {task.id: task.clock.snapshot() for task in self._running()}
        return explain(self._plan, clocks, self._now_ms())

    def windows(self, step: str) -> list[OpenWindow]:
        """The committed contents of the open windows of a step, by key and window."""
        require_windows(self._plan, step)
        found: list[OpenWindow] = []
        for task in self._running():
            stores = {store.name: store for store in task.stage.stores}
            if step in stores:
                found += open_windows(task.state.committed_rows, stores[step], stores.get(f"{step}.sessions"))
        return sorted(found, key=lambda each: (each.window, each.key))

    @property
    def now_ms(self) -> int:
        """Processing time, in ms: a virtual clock that only passes when the harness works or waits."""
        return self._now_ms()

    def crash(self, worker: int = 0) -> None:
        """Kill a worker as `kill -9` does; its disk stays, its open transaction is left to be fenced."""
        require_worker(self.workers, worker)
        self._kill(self.workers[worker])
        self.workers[worker].stores.crash()

    def restart(self, worker: int = 0) -> None:
        """Start a crashed worker again, on the same disk and under the same name; waits until it has its tasks."""
        require_worker(self.workers, worker)
        self._start(self.workers[worker])
        self._do(self._until(self._is_settled))

    def scale(self, workers: int) -> None:
        """Have this many workers: the last ones stop cleanly, or new ones join."""
        whole_number("the number of workers", workers, least=0)
        while len(self.workers) > workers:
            self._do(_stop(self.workers.pop()))
        while len(self.workers) < workers:
            self.workers.append(HarnessWorker(len(self.workers)))
            self._start(self.workers[-1])
        self._do(self._until(self._is_settled))

    def change_pipeline(self, pipeline: Pipeline) -> None:
        """Deploy another version: every worker stops cleanly and starts again with this pipeline."""
        self._plan = require_plan(pipeline)
        for worker in self.workers:
            self._do(_stop(worker))
            self._start(worker)
        self._do(self._until(self._is_settled))

    def _start(self, worker: HarnessWorker) -> None:
        if worker.work is not None and not worker.work.done():
            raise Misconfigured(f"{worker.name} is running", hint="crash it first")
        worker.begin_life()
        worker.log = MemoryLog(self._broker)
        worker.loop = self._do(self._assemble(worker, worker.log))
        worker.work = self._loop.create_task(
            self._live(worker), name=worker.name, context=in_process(worker.name)
        )

    async def _live(self, worker: HarnessWorker) -> None:
        while worker.loop is not None and worker.log is not None:
            if not await run_until_grown(worker.loop, worker.log.admin()):
                return
            worker.begin_life()
            worker.loop = await self._assemble(worker, worker.log)

    async def _assemble(self, worker: HarnessWorker, log: MemoryLog) -> WorkerLoop:
        storage = Storage(worker.stores, VirtualDisk(), self._budget)
        return await assemble(self._plan, self._settings, log, storage, worker, self._now_ms)

    def _kill(self, worker: HarnessWorker) -> None:
        if worker.log is not None and worker.work is not None:
            worker.log.kill()
            self._do(_cancelled(worker.work))
            worker.log = worker.loop = worker.work = None

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        deadline = self._loop.time() + PATIENCE_S
        while not await condition():
            works = [worker.work for worker in self.workers if worker.work is not None]
            for work in works:
                if work.done():
                    work.result()
            if works and all(work.done() for work in works):
                return  # bounded input: they have ended by themselves
            if self._loop.time() > deadline:
                raise TimeoutError(
                    f"the pipeline did not come to rest within {PATIENCE_S:.0f} s of virtual time"
                )
            await asyncio.sleep(0.01)

    async def _is_settled(self) -> bool:
        """Every worker that is alive has its share of the tasks, and every task is running."""
        rosters = [worker.loop.roster for worker in self.workers if worker.loop is not None]
        if not all(roster.joined and not roster.restoring for roster in rosters):
            return False
        shares = [(roster.assignment.tasks, {*roster.tasks, *roster.declined.tasks}) for roster in rosters]
        if not all(taken.issuperset(given) for given, taken in shares):
            return False  # told, and not yet begun
        return len({roster.assignment.member.generation for roster in rosters}) <= 1

    async def _is_idle(self) -> bool:
        """Every position of the group stands at the end of its log, and no transaction is open."""
        admin = self._log.admin()
        inputs = [each.topic for stage in self._plan.stages for each in stage.inputs]
        counts = await admin.partitions(inputs)
        partitions = [
            TopicPartition(topic, index) for topic in inputs for index in range(counts.get(topic, 0))
        ]
        # Positions first: what a commit of theirs wrote downstream is then in the ends that are read after them.
        positions = await admin.positions(self._plan.group, partitions, timeout_s=PATIENCE_S)
        ends = await admin.end_offsets(partitions, committed=False)
        if not all(positions.get(partition, 0) == end for partition, end in ends.items()):
            return False
        return all(is_at_rest(task) for task in self._running())

    def _running(self) -> list[Task]:
        """The tasks of all workers that are processing."""
        self._require_open()
        loops = [worker.loop for worker in self.workers if worker.loop is not None]
        return [task for loop in loops for task in loop.roster.running()]

    def _now_ms(self) -> int:
        """Processing time: the virtual clock, from the start on."""
        return self._start_ms + int(self._loop.time() * 1000)

    def _require_open(self) -> None:
        if self._loop.is_closed():
            raise Misconfigured(
                "the harness has ended with its `with` block", hint="read and look inside the block"
            )

    def _do(self, work: Awaitable[R]) -> R:
        if self._loop.is_closed() and isinstance(work, Coroutine):
            work.close()  # nobody will run it
        self._require_open()
        return self._loop.run_until_complete(work)


def _milliseconds(start: int | datetime | None) -> int:
    return int(time.time() * 1000) if start is None else milliseconds_of("the start", start)


def _keep_quiet() -> bool:
    """In a test that did not ask for logs only errors are worth a line; whether this had to be said."""
    if structlog.is_configured():
        return False
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    return True


async def _stop(worker: HarnessWorker) -> None:
    if worker.loop is not None and worker.work is not None:
        worker.loop.stop()
        await worker.work


async def _cancelled(work: asyncio.Task[None]) -> None:
    work.cancel()
    await asyncio.wait([work])
