"""tail: changelog records on their way into a store, whole spans only.

A commit record ends the rows of its span. In a transaction they come together or not at all; without one they are
written batch by batch, and a worker that dies in between leaves rows that no commit record follows: stray rows. They must
not reach the store, and they must not be forgotten: what stands between them and the next span may be compacted away, and
they would look like a part of it. So the first commit of the restored task writes what is true of their keys behind them.

Compaction also takes commit records away that a later one has replaced. Rows before the last commit record are whole
all the same: whatever is still to come of their spans comes before it.
"""

import asyncio
from collections.abc import Iterator

import structlog

from streamkit.errors import Misconfigured, StateCorrupt
from streamkit.model.ids import TopicPartition
from streamkit.model.records import FetchedBatch
from streamkit.state.changelog import CommitRecord
from streamkit.state.keys import COMMIT_KEY

log = structlog.get_logger()

# How often a long restore says how far it has come.
PROGRESS_S = 5.0


class Tail:
    """Gathers the rows of whole spans; `sure_to` is an offset up to which (exclusive) a commit record is known to follow.

    Whoever writes `rows` to the store, with the offset `whole_to`, calls `taken`.
    """

    def __init__(self, start: int, sure_to: int) -> None:
        # The next record to read.
        self.at = start
        self.rows: dict[bytes, bytes | None] = {}
        self.rows_bytes = 0
        # In `rows`, or written before them, is all that the changelog has up to here (exclusive).
        self.whole_to = start
        self._open: dict[bytes, bytes | None] = {}
        self._sure_to = sure_to

    def add(self, batch: FetchedBatch) -> None:
        """Take the records of the next batch."""
        for offset, key, value in _rows(batch):
            self._open[key] = value
            self.rows_bytes += len(key) + len(value or b"")
            if key == COMMIT_KEY:
                require_commit(batch.partition, offset, value)
                self._close(offset + 1)
        self.at = batch.next_offset
        if not self._open or self.at <= self._sure_to:
            self._close(self.at)

    def taken(self) -> None:
        """The rows were written to the store."""
        self.rows = {}
        self.rows_bytes = 0

    @property
    def strays(self) -> frozenset[bytes]:
        """At the end of the changelog: the keys of the rows that no commit record follows."""
        return frozenset(self._open)

    def _close(self, whole_to: int) -> None:
        """All rows so far belong to whole spans."""
        self.whole_to = whole_to
        if self.rows:
            self.rows.update(self._open)
        else:
            self.rows = self._open
        self._open = {}


class RestoreProgress:
    """Says how far a long restore has come."""

    def __init__(self, task: str, start: int, end: int) -> None:
        self._task = task
        self._start = start
        self._end = end
        self._began_s = self._said_s = asyncio.get_running_loop().time()

    def tell(self, at: int) -> None:
        """Everything up to this offset is in the store; said every few seconds."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._said_s < PROGRESS_S:
            return
        self._said_s = now_s
        share = (at - self._start) / (self._end - self._start)
        left_s = (now_s - self._began_s) * (1 - share) / share
        log.info("restoring", task=self._task, percent=round(100 * share), left_s=round(left_s))


def require_commit(changelog: TopicPartition, offset: int, value: bytes | None) -> CommitRecord:
    """Refuse a commit record that no worker has written: without it nobody knows what the rows before it stand for.

    Raises:
        Misconfigured: it is none, or one of a newer release.
    """
    try:
        return CommitRecord.decode(value)
    except StateCorrupt as error:
        raise Misconfigured(
            f"the commit record at offset {offset} is no commit record",
            where=str(changelog),
            detail=error.detail,
            hint="only streamkit may write to changelog topics: look at the ACLs; the pipeline can start under a new name",
        ) from error


def _rows(batch: FetchedBatch) -> Iterator[tuple[int, bytes, bytes | None]]:
    """The changelog records of a batch as rows of the store, with their offsets."""
    return (
        (record.offset, record.key, record.value) for record in batch.own_records() if record.key is not None
    )
