"""One partition as the broker keeps it: batches, markers, and how far committed readers may see."""

from bisect import bisect_right
from collections.abc import Sequence
from enum import Enum

from streamkit.model.ids import TopicPartition
from streamkit.model.records import Headers
from streamkit.testing.memory.batch import Draft


class MemoryRecord:
    """One record as a reader gets it."""

    __slots__ = ("headers", "key", "offset", "timestamp", "value")

    def __init__(self, offset: int, draft: Draft) -> None:
        self.offset = offset
        self.timestamp: int
        self.key: bytes | None
        self.value: bytes | None
        self.headers: Headers
        self.timestamp, self.key, self.value, self.headers = draft

    def __repr__(self) -> str:
        return f"MemoryRecord(offset={self.offset}, key={self.key!r}, value={self.value!r})"


class TransactionOutcome(Enum):
    """What became of a transaction: OPEN -> COMMITTED | ABORTED."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction:
    """What one writer did between two ends. `outcome` is the coordinator's word; each partition has its own marker."""

    __slots__ = ("deadline", "epoch", "groups", "outcome", "partitions", "writer_id")

    def __init__(self, writer_id: str, epoch: int, deadline: float) -> None:
        self.writer_id = writer_id
        self.epoch = epoch
        self.deadline = deadline
        self.outcome = TransactionOutcome.OPEN
        self.partitions: dict[TopicPartition, MemoryPartition] = {}
        self.groups: dict[str, None] = {}


class StoredBatch:
    """Records that were written together, or a marker, which has no record but takes an offset.

    `transaction` is None for what was written without one.
    """

    __slots__ = ("base_offset", "next_offset", "records", "size_bytes", "transaction")

    def __init__(
        self,
        base_offset: int,
        records: Sequence[MemoryRecord],
        size_bytes: int,
        transaction: Transaction | None,
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset + max(1, len(records))
        self.records = records
        self.size_bytes = size_bytes
        self.transaction = transaction


class Read:
    """What one fetch found: whole batches, so the first records may lie below the position asked for."""

    __slots__ = ("next_offset", "records", "size_bytes")

    def __init__(self, next_offset: int) -> None:
        self.records: list[MemoryRecord] = []
        self.next_offset = next_offset
        self.size_bytes = 0


class MemoryPartition:
    """An append-only list of batches, with the first offset of every open transaction."""

    __slots__ = ("_bases", "batches", "decided", "end_offset", "name", "open", "start_offset")

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.start_offset = 0
        self.end_offset = 0
        self.batches: list[StoredBatch] = []
        self._bases: list[int] = []
        # In the order of their first offsets, because a transaction enters with its first batch.
        self.open: dict[Transaction, int] = {}
        # What the markers on this partition said: a broker that forgets one leaves the transaction open here alone.
        self.decided: dict[Transaction, TransactionOutcome] = {}

    @property
    def stable_offset(self) -> int:
        """The first offset of the oldest open transaction, else the end: committed readers stop here."""
        for first_offset in self.open.values():
            return first_offset
        return self.end_offset

    def append(self, drafts: Sequence[Draft], size_bytes: int, transaction: Transaction | None) -> int:
        """Write a batch and return the offset after its last record."""
        base = self.end_offset
        if transaction is not None and transaction not in self.open:
            self.open[transaction] = base
        records = [MemoryRecord(offset, draft) for offset, draft in enumerate(drafts, base)]
        self._store(StoredBatch(base, records, size_bytes, transaction))
        return self.end_offset

    def end(self, transaction: Transaction) -> None:
        """Write the marker that ends this transaction here, and whatever else its writer had left open."""
        self._store(StoredBatch(self.end_offset, (), 0, transaction))
        for each in [each for each in self.open if each.writer_id == transaction.writer_id]:
            self.decided[each] = transaction.outcome
            del self.open[each]

    def is_committed(self, transaction: Transaction | None) -> bool:
        """Whether what was written here in this transaction, or without one, counts."""
        return transaction is None or self.decided.get(transaction) is TransactionOutcome.COMMITTED

    def _store(self, batch: StoredBatch) -> None:
        self.batches.append(batch)
        self._bases.append(batch.base_offset)
        self.end_offset = batch.next_offset

    def read(self, position: int, bytes_max: int, *, committed: bool) -> Read | None:
        """Batches from the one that holds this position on; None if there is nothing yet."""
        limit = self.stable_offset if committed else self.end_offset
        if position >= limit:
            return None
        found = Read(position)
        for at in range(bisect_right(self._bases, position) - 1, len(self.batches)):
            batch = self.batches[at]
            if batch.base_offset >= limit or found.size_bytes >= bytes_max:
                break
            if not committed or self.is_committed(batch.transaction):
                found.records.extend(batch.records)
            found.size_bytes += batch.size_bytes
            found.next_offset = batch.next_offset
        return found

    def offset_for_time(self, timestamp_ms: int) -> int:
        """First offset whose timestamp is at or after this time, else the end."""
        for batch in self.batches:
            for record in batch.records:
                if record.timestamp >= timestamp_ms and record.offset >= self.start_offset:
                    return record.offset
        return self.end_offset

    def delete_before(self, offset: int) -> None:
        """Drop what lies below this offset, as retention does."""
        self.start_offset = max(self.start_offset, min(offset, self.stable_offset))
        while self.batches and self.batches[0].next_offset <= self.start_offset:
            del self.batches[0], self._bases[0]

    def compact(self, up_to: int | None = None, *, tombstones_before_ms: int | None = None) -> int:
        """Keep only the last committed record of each key below the stable offset, as the log cleaner does.

        Offsets stay what they were, so holes appear. A record without a value says that the key is gone; it stays unless
        it is older than `tombstones_before_ms`. From `up_to` on lies the segment that is being written, which the cleaner
        leaves alone. Returns how many tombstones have gone for their age.
        """
        limit = self.stable_offset if up_to is None else min(up_to, self.stable_offset)
        last: dict[bytes | None, int] = {}
        dropped = 0
        settled = [batch for batch in self.batches if batch.next_offset <= limit]
        for batch in settled:
            if self.is_committed(batch.transaction):
                last.update((record.key, record.offset) for record in batch.records)
        for batch in settled:
            survives = self.is_committed(batch.transaction)
            kept = [record for record in batch.records if survives and last[record.key] == record.offset]
            batch.records = [record for record in kept if not _is_gone(record, tombstones_before_ms)]
            dropped += len(kept) - len(batch.records)
        return dropped


def _is_gone(record: MemoryRecord, tombstones_before_ms: int | None) -> bool:
    """Whether it is a tombstone that nobody needs to see any more."""
    return (
        tombstones_before_ms is not None and record.value is None and record.timestamp < tombstones_before_ms
    )
