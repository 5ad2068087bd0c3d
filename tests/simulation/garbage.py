"""Batches of sources that a broker takes and nobody can read, as somebody with nothing but WRITE can make them.

The in-memory log keeps records, not bytes: what is garbled is noted beside it, and readers get it as the real one hands it
out (`streamkit/kafka/record_batches.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Literal

import msgspec

from streamkit.model.ids import TopicPartition
from streamkit.model.records import FetchedBatch, LogRecord, Unreadable
from streamkit.testing.memory.partition import MemoryRecord, Read
from streamkit.testing.memory.reader import MemoryReader

# One that cannot be opened at all, one whose records end in damage, and one whose last record names an offset that is
# not of its batch.
GarbageKind = Literal["bomb", "torn", "lying"]
GARBLED: tuple[GarbageKind, ...] = ("bomb", "torn", "lying")
SIZE_BYTES = 100
MAX_OFFSET = 2**63 - 1


class Garbled(msgspec.Struct, frozen=True):
    """One such batch: the part of it that nobody can read reaches from `bad` to `end`."""

    kind: GarbageKind
    start: int
    bad: int
    end: int
    # What the log says of when it was written, which is its writer's word.
    timestamp: int
    # The offset that a lying record names.
    claims: int

    @property
    def unreadable(self) -> Unreadable:
        """What is told of it."""
        return Unreadable(self.bad, self.end, SIZE_BYTES, self.timestamp, f"{self.kind} at {self.bad}")


def garble(kind: str, start: int, good: int, count: int, chance: Random) -> Garbled:
    """A batch from this offset on, of which so many records are good."""
    (found,) = [each for each in GARBLED if each == kind]
    end = start + count
    claims = chance.choice((end, end + 1, end + 50, start - 1, start - 50, -1, MAX_OFFSET))
    timestamp = chance.choice((-1, 0, 1_600_000_000_000, MAX_OFFSET))
    return Garbled(found, start, start + good, end, timestamp, claims)


class Garbage:
    """All the garbage of one world."""

    def __init__(self) -> None:
        self.of: dict[TopicPartition, list[Garbled]] = {}

    def add(self, partition: TopicPartition, garbled: Garbled) -> None:
        """Before it is written."""
        self.of.setdefault(partition, []).append(garbled)

    def between(self, partition: TopicPartition, start: int, end: int) -> list[Garbled]:
        """What lies in a part of a partition."""
        return [each for each in self.of.get(partition, ()) if each.start < end and each.end > start]


class LyingRecord(MemoryRecord):
    """A record that names another offset than its own."""

    __slots__ = ()

    def __init__(self, record: MemoryRecord, claims: int) -> None:
        super().__init__(claims, (record.timestamp, record.key, record.value, record.headers))


class GarbledReader(MemoryReader):
    """Hands garbage out as it is."""

    def __init__(self, *args: Any, garbage: Garbage, **options: Any) -> None:
        super().__init__(*args, **options)
        self._garbage = garbage

    def _hand_out(self, partition: TopicPartition, read: Read) -> FetchedBatch:
        first = self._positions[partition]
        garbled = self._garbage.between(partition, first, read.next_offset)
        if not garbled:
            return super()._hand_out(partition, read)
        end = _end_of_first(garbled, first, read.next_offset)
        self._positions[partition] = end  # the rest comes with the next fetch
        records = [record for record in read.records if record.offset < end]
        garbled = [each for each in garbled if each.start < end]
        return FetchedBatch(
            partition,
            _parsed(records, garbled),
            first,
            end,
            read.size_bytes,
            partial(_carefully, records, garbled),
        )


def _end_of_first(garbled: Sequence[Garbled], first: int, end: int) -> int:
    """One that cannot be opened is handed out by itself, behind all that comes before it."""
    for each in garbled:
        if each.kind == "bomb":
            return each.start if first < each.start else each.end
    return end


def _of(garbled: Iterable[Garbled], offset: int) -> Garbled | None:
    return next((each for each in garbled if each.bad <= offset < each.end), None)


def _parsed(records: Iterable[MemoryRecord], garbled: Sequence[Garbled]) -> Iterator[LogRecord]:
    """As a quick parser sees it: it raises, or believes what it reads."""
    for record in records:
        found = _of(garbled, record.offset)
        if found is None:
            yield record
        elif found.kind == "lying":
            yield LyingRecord(record, found.claims)
        else:
            raise ValueError(found.unreadable.reason)


def _carefully(
    records: Iterable[MemoryRecord], garbled: Sequence[Garbled], offset: int
) -> Iterator[LogRecord | Unreadable]:
    """The same from an offset on, read by somebody who trusts nothing."""
    for record in records:
        found = _of(garbled, record.offset)
        if found is None:
            if record.offset >= offset:
                yield record
        elif record.offset == found.bad and found.end > offset:
            yield found.unreadable
