"""The simulation's own road to the broker: traps at chosen requests, a trace of everything, an audit of positions."""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar

from streamkit.kafka.ports import WriterOptions
from streamkit.model.commit import Batch, Member
from streamkit.model.ids import TopicPartition
from streamkit.testing.memory import MemoryLog
from streamkit.testing.memory.batch import MemoryBatch
from streamkit.testing.memory.network import Fate, SeededNetwork
from streamkit.testing.memory.reader import MemoryReader
from streamkit.testing.memory.transactions import Transactions
from streamkit.testing.memory.writer import MemoryWriter
from tests.simulation.garbage import Garbage, GarbledReader

R = TypeVar("R")


class Trace:
    """What happened, as one number that two runs share only if everything was the same; lines if somebody reads."""

    def __init__(self, now: Callable[[], float], *, verbose: bool) -> None:
        self.number = 0
        self.counts: Counter[str] = Counter()
        self._now = now
        self._verbose = verbose

    def note(self, who: str, what: str) -> None:
        """Something happened."""
        line = f"{self._now():9.4f} {who:<8} {what}"
        self.number = zlib.crc32(line.encode(), self.number)
        if self._verbose:
            print(line)

    def count(self, fault: str) -> None:
        """A fault really struck."""
        self.counts[fault] += 1


class Trap:
    """Springs once, at a request of one kind: before it leaves, or after it arrived."""

    def __init__(self, what: str, spring: Callable[[], None], *, after: bool) -> None:
        self.what = what
        self.spring = spring
        self.after = after


class SimNetwork(SeededNetwork):
    """One life's network."""

    def __init__(self, name: str, random: Random, trace: Trace, delay_s_max: float) -> None:
        super().__init__(random, delay_s_max=delay_s_max)
        self.trap: Trap | None = None
        self.name = name
        self._trace = trace

    def fate(self, what: str) -> Fate:
        """As the seed says, and noted."""
        fate = super().fate(what)
        if fate is not Fate.DELIVERED:
            self._trace.count(f"{fate.value} {what}")
            self._trace.note(self.name, f"{what}: {fate.value}")
        return fate

    async def call(self, what: str, apply: Callable[[], R], timeout_s: float) -> R:
        """As `SeededNetwork.call`, with the trap in between."""
        trap = self.trap
        if trap is not None and trap.what == what and not self.is_killed:
            if trap.after:
                apply = self._and_spring(trap, apply)
            else:
                self._spring(trap)
        return await super().call(what, self._noted(what, apply), timeout_s)

    def _noted(self, what: str, apply: Callable[[], R]) -> Callable[[], R]:
        def arrive() -> R:
            try:
                result = apply()
            except Exception as error:
                self._trace.note(self.name, f"{what}: {error!r}")
                raise
            if what != "reader.fetch" or result:
                self._trace.note(self.name, what)
            return result

        return arrive

    def _and_spring(self, trap: Trap, apply: Callable[[], R]) -> Callable[[], R]:
        def arrive() -> R:
            try:
                return apply()
            finally:
                self._spring(trap)

        return arrive

    def _spring(self, trap: Trap) -> None:
        if self.trap is trap:
            self.trap = None
            self._trace.count(f"trap {trap.what} {'after' if trap.after else 'before'}")
            trap.spring()


class AuditedTransactions(Transactions):
    """The broker's own, which remembers by whom the positions of each transaction were given."""

    __slots__ = ("given",)

    def __init__(self, like: Transactions) -> None:
        super().__init__(like._topics, like._groups, like._moved)
        self.marker_delay_s = like.marker_delay_s
        self.clock_ms = like.clock_ms
        self.given: dict[tuple[str, int], tuple[Member, dict[TopicPartition, int]]] = {}

    def add_positions(
        self, writer_id: str, epoch: int, member: Member, positions: Mapping[TopicPartition, int], now: float
    ) -> None:
        """As the broker does, then remembered."""
        super().add_positions(writer_id, epoch, member, positions, now)
        self.given[writer_id, epoch] = (member, dict(positions))


class SmallBatchWriter(MemoryWriter):
    """Begins a new batch early, even one for each record, but takes records as large as any."""

    full_at_bytes = 1

    def batch(self, bytes_max: int | None = None) -> Batch:
        """A new, empty output batch."""
        return MemoryBatch(min(self.full_at_bytes, bytes_max or self.batch_bytes_max))


class SmallBatchLog(MemoryLog):
    """A log whose writers begin a new batch at this many bytes, and whose readers meet what was garbled."""

    def __init__(self, *args: Any, batch_bytes_max: int, garbage: Garbage, **options: Any) -> None:
        super().__init__(*args, **options)
        self._batch_bytes_max = batch_bytes_max
        self._garbage = garbage

    def reader(self, *, committed: bool) -> MemoryReader:
        """A new reader without partitions."""
        reader = GarbledReader(
            self._client, self._fetch_bytes_max, garbage=self._garbage, committed=committed
        )
        self._readers.append(reader)
        return reader

    def writer(self, options: WriterOptions) -> MemoryWriter:
        """A new writer; call `open` before the first commit."""
        writer = SmallBatchWriter(self._client, options)
        writer.full_at_bytes = self._batch_bytes_max
        self._writers.append(writer)
        return writer
