"""What the contract suite asks of a cluster, in memory or real: clients, names, and ways to hurt."""

import asyncio
import functools
import itertools
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from streamkit.config import Security
from streamkit.kafka.ports import (
    Admin,
    Assignment,
    Log,
    MemberOptions,
    Membership,
    Reader,
    StageTasks,
    Writer,
    WriterOptions,
)
from streamkit.model.commit import Commit, Guarantee, Member, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.model.records import FetchedBatch, LogRecord
from streamkit.model.topic_shape import TopicSpec
from streamkit.testing.memory import MemoryBroker, MemoryLog
from streamkit.testing.memory.batch import MemoryBatch
from streamkit.testing.virtual_time import VirtualLoop, in_process, run

R = TypeVar("R")

SEEDS = range(3)
STAGES = (StageTasks("one", 4), StageTasks("two", 2))
# Kafka's default minimum (group.min.session.timeout.ms).
SESSION_S = 6.0


def contract(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on the cluster it asks for: in virtual time or in real time."""

    @functools.wraps(test)
    def on_cluster(cluster: "Cluster", **parameters: object) -> None:
        cluster.run(functools.partial(test, **parameters))

    return on_cluster


class Sleeper(Protocol):
    """A member in a process of its own, which can be stopped (SIGSTOP) and continued."""

    assignment: Assignment
    membership: Membership

    def hold(self, seconds: float) -> None:
        """Let code hold its event loop for so long, and only that."""

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    async def wait_lost(self) -> None: ...


class Cluster(ABC):
    """A cluster and the clients of one test."""

    def __init__(self) -> None:
        self._logs: list[Log] = []
        self._numbers = itertools.count(1)
        self._prefix = ""

    @abstractmethod
    def run(self, test: Callable[["Cluster"], Awaitable[None]]) -> None:
        """Run a test to its end."""

    @abstractmethod
    def make_log(self) -> Log:
        """A client that is not connected yet."""

    @abstractmethod
    def now_ms(self) -> int:
        """The clock on the broker's wall."""

    @abstractmethod
    async def sleeper(self, options: MemberOptions) -> Sleeper:
        """A member that has joined and can be frozen."""

    @abstractmethod
    async def leave_open(
        self,
        writer_id: str,
        records: Mapping[TopicPartition, bytes],
        group: str,
        positions: Mapping[TopicPartition, int],
    ) -> None:
        """Leave a transaction open: records and pending positions, by a writer that nobody hears of again."""

    def name(self, what: str) -> str:
        return f"{self._prefix}{what}-{next(self._numbers)}"

    async def log(self) -> Log:
        log = self.make_log()
        self._logs.append(log)
        await log.connect()
        return log

    async def admin(self) -> Admin:
        return (await self.log()).admin()

    async def topic(self, partitions: int = 1, **config: str) -> str:
        name = self.name("topic")
        settings = {key.replace("_", "."): value for key, value in config.items()}
        await (await self.admin()).create([TopicSpec(name, partitions, 1, settings)])
        return name

    async def partition(self, **config: str) -> TopicPartition:
        return TopicPartition(await self.topic(1, **config), 0)

    async def writer(
        self, writer_id: str | None = None, guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    ) -> Writer:
        options = WriterOptions(writer_id or self.name("writer"), guarantee, transaction_timeout_s=60.0)
        writer = (await self.log()).writer(options)
        await writer.open()
        return writer

    async def reader(self, *partitions: TopicPartition, committed: bool = True) -> Reader:
        reader = (await self.log()).reader(committed=committed)
        for partition in partitions:
            reader.seek(partition, 0)
        return reader

    def member_options(self, group: str, writer_id: str | None = None, **options: Any) -> MemberOptions:
        given: dict[str, Any] = {"session_timeout_s": SESSION_S, "rebalance_timeout_s": 10.0} | options
        return MemberOptions(group, writer_id or self.name("writer"), given.pop("stages", STAGES), **given)

    async def membership(self, group: str, writer_id: str | None = None, **options: Any) -> Membership:
        return (await self.log()).membership(self.member_options(group, writer_id, **options))

    async def member(self, group: str | None = None) -> Member:
        """A member in good standing, alone in its group."""
        membership = await self.membership(group or self.name("group"))
        return (await membership.join(())).member

    async def close(self) -> None:
        for log in self._logs:
            await log.close()

    async def _to_the_end(self, test: Callable[["Cluster"], Awaitable[None]]) -> None:
        try:
            await test(self)
        finally:
            await self.close()


class MemoryCluster(Cluster):
    """Every run has a broker, a seed and a clock of its own."""

    def run(self, test: Callable[[Cluster], Awaitable[None]]) -> None:
        for seed in SEEDS:
            MemoryCluster._once(test, seed)

    @staticmethod
    def _once(test: Callable[[Cluster], Awaitable[None]], seed: int) -> None:
        cluster = MemoryCluster()
        cluster.broker = MemoryBroker(clock_ms=cluster.now_ms)
        run(cluster._to_the_end(test), seed)

    broker: MemoryBroker

    def make_log(self) -> Log:
        return MemoryLog(self.broker)

    def now_ms(self) -> int:
        return 1_900_000_000_000 + int(asyncio.get_running_loop().time() * 1000)

    async def sleeper(self, options: MemberOptions) -> Sleeper:
        log = MemoryLog(self.broker)
        self._logs.append(log)
        membership = log.membership(options)
        loop = asyncio.get_running_loop()
        joining = loop.create_task(membership.join(()), context=in_process("sleeper"))
        return MemorySleeper(log, membership, await joining)

    async def leave_open(
        self,
        writer_id: str,
        records: Mapping[TopicPartition, bytes],
        group: str,
        positions: Mapping[TopicPartition, int],
    ) -> None:
        transactions, now = self.broker.transactions, asyncio.get_running_loop().time()
        epoch = transactions.init(writer_id, 60.0)
        for partition, value in records.items():
            batch = MemoryBatch()
            batch.append(0, 0, None, value, [])
            transactions.produce(writer_id, epoch, partition, batch, now)
        if positions:
            # A client of another make may send no generation, and then the broker checks none.
            transaction = transactions._begin(writer_id, epoch, now)
            transaction.groups[group] = None
            self.broker.groups.group(group).pend(transaction, positions)


class MemorySleeper:
    def __init__(self, log: MemoryLog, membership: Membership, assignment: Assignment) -> None:
        self._log = log
        self.membership = membership
        self.assignment = assignment

    def hold(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_soon(loop.spend, seconds, context=in_process("sleeper"))

    def freeze(self) -> None:
        self._log.network.freeze()

    def thaw(self) -> None:
        self._log.network.thaw()

    async def wait_lost(self) -> None:
        await self.membership.wait_rejoin()
        assert self.membership.lost


class KafkaCluster(Cluster):
    """The real broker, whose names nobody else uses."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._bootstrap = bootstrap
        self._prefix = f"contract-{uuid.uuid4().hex[:8]}-"
        self._sleepers: list[KafkaSleeper] = []

    def run(self, test: Callable[[Cluster], Awaitable[None]]) -> None:
        asyncio.run(self._to_the_end(test))

    def make_log(self) -> Log:
        from streamkit.kafka.log import KafkaLog

        return KafkaLog(self._bootstrap, Security(), request_timeout_s=10.0)

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    async def sleeper(self, options: MemberOptions) -> Sleeper:
        sleeper = KafkaSleeper(self.make_log, options)
        self._sleepers.append(sleeper)
        await sleeper.start()
        return sleeper

    async def leave_open(
        self,
        writer_id: str,
        records: Mapping[TopicPartition, bytes],
        group: str,
        positions: Mapping[TopicPartition, int],
    ) -> None:
        await asyncio.to_thread(self._leave_open, writer_id, records, group, positions)

    def _leave_open(
        self,
        writer_id: str,
        records: Mapping[TopicPartition, bytes],
        group: str,
        positions: Mapping[TopicPartition, int],
    ) -> None:
        """By a client that is not ours; it says nothing more, so the broker keeps the transaction open."""
        import confluent_kafka as other

        producer = other.Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": writer_id, "linger.ms": 0}
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        for partition, value in records.items():
            producer.produce(partition.topic, value, partition=partition.partition)
        assert producer.flush(20) == 0
        if positions:
            consumer = other.Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
            offsets = [other.TopicPartition(each.topic, each.partition, at) for each, at in positions.items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20)
            consumer.close()

    async def close(self) -> None:
        for sleeper in self._sleepers:
            await sleeper.stop()
        await super().close()


class KafkaSleeper:
    """A member whose event loop runs in a thread of its own, so that the whole loop can be held."""

    assignment: Assignment
    membership: Membership

    def __init__(self, make_log: Callable[[], Log], options: MemberOptions) -> None:
        self._make_log = make_log
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._log: Log

    async def start(self) -> None:
        self._thread.start()
        self.assignment = await self._there(self._join())

    def hold(self, seconds: float) -> None:
        self._loop.call_soon_threadsafe(time.sleep, seconds)

    def freeze(self) -> None:
        self._running.clear()
        for loop in (self._loop, self.membership._heartbeat._loop):  # type: ignore[attr-defined]
            loop.call_soon_threadsafe(self._running.wait)

    def thaw(self) -> None:
        self._running.set()

    async def wait_lost(self) -> None:
        await self._there(self._wait_lost())

    async def stop(self) -> None:
        self.thaw()
        await self._there(self._log.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def _there(self, work: Coroutine[Any, Any, R]) -> R:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _join(self) -> Assignment:
        self._log = self._make_log()
        await self._log.connect()
        self.membership = self._log.membership(self._options)
        return await self.membership.join(())

    async def _wait_lost(self) -> None:
        async with asyncio.timeout(20):
            await self.membership.wait_rejoin()
        assert self.membership.lost


def out(writer: Writer, partition: TopicPartition, *values: bytes | None, timestamp: int = 1000) -> OutBatch:
    """A batch of these values."""
    batch = writer.batch()
    for index, value in enumerate(values):
        assert batch.append(index, timestamp, b"k", value, []) is not None
    return OutBatch(partition, batch, len(values))


async def write(
    writer: Writer, member: Member, *batches: OutBatch, positions: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, int]:
    """Commit these batches and positions."""
    return await writer.commit(Commit(batches, positions or {}, member))


async def read_until(
    reader: Reader, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[LogRecord]]:
    """Poll until each partition's position reached its end; what was handed out, without what must be skipped."""
    records: dict[TopicPartition, list[LogRecord]] = {partition: [] for partition in ends}
    reached = dict.fromkeys(ends, 0)
    async with asyncio.timeout(20):
        while any(reached[partition] < end for partition, end in ends.items()):
            for fetched in await reader.poll(1.0):
                records[fetched.partition] += take(fetched)
                reached[fetched.partition] = fetched.next_offset
    return records


async def read_all(
    cluster: Cluster, *partitions: TopicPartition, committed: bool = True
) -> list[bytes | None]:
    """The values that a fresh reader sees, partition after partition."""
    ends = await (await cluster.admin()).end_offsets(partitions, committed=committed)
    reader = await cluster.reader(*partitions, committed=committed)
    found = await read_until(reader, ends)
    return [record.value for partition in partitions for record in found[partition]]


def take(fetched: FetchedBatch) -> Sequence[LogRecord]:
    """The records of a batch that are at or after its position."""
    return [record for record in fetched.records if record.offset >= fetched.first_offset]
