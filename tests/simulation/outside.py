"""Who writes the input: plainly, in transactions that commit, and in transactions that are aborted."""

import asyncio
import contextlib

from streamkit.codec.values import value_codec
from streamkit.errors import WriterDead
from streamkit.kafka.ports import WriterOptions
from streamkit.model.commit import Commit, Guarantee, Member, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_shape import TopicSpec
from streamkit.testing.memory import MemoryLog
from streamkit.testing.memory.batch import Draft, MemoryBatch
from streamkit.testing.memory.partition import TransactionOutcome
from streamkit.testing.memory.writer import MemoryWriter
from tests.simulation.garbage import GARBLED, garble
from tests.simulation.pipelines import STRANGER, Event, Out
from tests.simulation.scenario import Growth, Load, stream
from tests.simulation.world import World

# How long an aborted transaction is kept open.
GHOST_S_MAX = 0.3


class Outside:
    """Creates the topics of a world and writes its load."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._scenario = world.scenario
        self._broker = world.broker
        self._loop = world.loop
        self._trace = world.trace
        self._log = MemoryLog(world.broker)
        self._chance = stream(world.scenario.seed, "world")

    async def create_topics(self) -> None:
        specs = [TopicSpec(name, count) for name, count in self._scenario.partitions.items()]
        await self._log.admin().create(specs)
        refused = {
            (event.source, event.key, event.seq)
            for load in self._scenario.loads
            for _, event in load.records
            if event.fate == "refused"
        }
        if refused:
            self._broker.topics.topic("out").refuses = lambda draft: self._is_refused(draft, refused)

    def _is_refused(self, draft: Draft, refused: set[tuple[str, str, int]]) -> bool:
        """What the broker says of a result, in scenarios in which it refuses some."""
        out = value_codec(Out).decode(draft[2])
        is_refused = (out.source, out.key, out.seq) in refused
        self._trace.counts["refused"] += is_refused
        return is_refused

    async def feed(self) -> None:
        """Write the whole load at its times."""
        plain = self._log.writer(WriterOptions("outside-plain", Guarantee.AT_LEAST_ONCE))
        bound = self._log.writer(WriterOptions("outside", Guarantee.EXACTLY_ONCE))
        await plain.open()
        await bound.open()
        ghosts = []
        growths = list(self._scenario.growths)
        for number, load in enumerate(self._scenario.loads):
            while growths and growths[0].at_s <= load.at_s:
                await self._grow(growths.pop(0))
            await asyncio.sleep(max(0.0, load.at_s - self._loop.time()))
            if load.manner == "aborted":
                ghosts.append(asyncio.create_task(self._haunt(f"ghost-{number}", load)))
                continue
            if load.manner in GARBLED:
                self._write_garbage(load)
                continue
            writer = plain if load.manner == "plain" else bound
            batch = writer.batch()
            self._fill(batch, load)
            out = OutBatch(TopicPartition(load.topic, load.partition), batch, len(load.records))
            await self._write(writer, Commit([out], {}, Member("", "", -1)))
        await asyncio.gather(*ghosts)

    async def _grow(self, growth: Growth) -> None:
        await asyncio.sleep(max(0.0, growth.at_s - self._loop.time()))
        await self._log.admin().add_partitions(growth.topic, growth.partitions)

    def _write_garbage(self, load: Load) -> None:
        """Write a batch of which nobody can read all."""
        at = TopicPartition(load.topic, load.partition)
        batch = MemoryBatch()
        self._fill(batch, load)
        self._broker.tick(self._loop.time())  # which may write markers
        start = self._broker.topics.partition(at).end_offset
        good = sum(event.source != STRANGER for _, event in load.records)
        garbled = garble(load.manner, start, good, len(load.records), self._chance)
        self._world.garbage.add(at, garbled)
        self._broker.transactions.append(at, batch)
        self._trace.note("stranger", f"{garbled.unreadable.reason} of {at}")
        self._trace.count(f"garbage {load.manner}")

    async def _write(self, writer: MemoryWriter, commit: Commit) -> None:
        """Write it once, however often the broker starts anew: before the end of a transaction nothing has happened."""
        while True:
            if writer.needs_renewal:
                await writer.open()
            with contextlib.suppress(WriterDead):
                await writer.commit(commit)
                return

    async def _haunt(self, writer_id: str, load: Load) -> None:
        """Write records in a transaction that will be aborted."""
        batch = self._log.writer(WriterOptions(writer_id, Guarantee.EXACTLY_ONCE)).batch()
        self._fill(batch, load)
        transactions = self._broker.transactions
        self._broker.tick(self._loop.time())
        epoch = transactions.init(writer_id, 60.0)
        at = TopicPartition(load.topic, load.partition)
        transactions.produce(writer_id, epoch, at, batch, self._loop.time())
        await asyncio.sleep(self._chance.random() * GHOST_S_MAX)
        self._broker.tick(self._loop.time())
        transactions.end(writer_id, epoch, self._loop.time(), TransactionOutcome.ABORTED)

    def _fill(self, batch: object, load: Load) -> None:
        encode = value_codec(Event).encode
        for index, (key, event) in enumerate(load.records):
            value = encode(event) if event.fate != "undecodable" else undecodable(event)
            batch.append(index, int(load.at_s * 1000), key.encode(), value, [])  # type: ignore[attr-defined]


def undecodable(event: Event) -> bytes:
    """Bytes that no codec reads, but a checker does."""
    return f"!{event.source} {event.key} {event.seq}".encode()
