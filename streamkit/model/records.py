"""What a reader hands out: batches of records, as the log holds them, and what of them cannot be read."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from streamkit.errors import Misconfigured, StreamkitError
from streamkit.model.ids import TopicPartition

# A real list: the client's record builder takes nothing else.
Headers = list[tuple[str, bytes | None]]


class LogRecord(Protocol):
    """One record as the log holds it; attributes are read at most once each on the hot path."""

    @property
    def offset(self) -> int: ...  # noqa: D102 - the class says it
    @property
    def timestamp(self) -> int: ...  # noqa: D102
    @property
    def key(self) -> bytes | None: ...  # noqa: D102
    @property
    def value(self) -> bytes | None: ...  # noqa: D102
    @property
    def headers(self) -> Headers: ...  # noqa: D102


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """A stretch of a partition, up to `next_offset`, of which nobody can make records: its size and the reason."""

    offset: int
    next_offset: int
    size_bytes: int
    timestamp: int
    reason: str


class FetchedBatch(msgspec.Struct, gc=False):
    """Committed records of one partition, in order; `records` can be iterated once.

    Records below `first_offset` belong to an earlier position and must be skipped. `next_offset` is the position
    after this batch; it also moves when there is no record at all (transaction markers, aborted data), so progress
    is always measured by it and never by the last record. `timestamp` of a record is what the writer gave it, also
    on topics with LogAppendTime.

    What others wrote may be damaged in ways that show only when it is iterated, which then raises. `again` gives the
    same from an offset on, slowly and once more: records as far as they can be read, the rest as `Unreadable`.
    """

    partition: TopicPartition
    records: Iterable[LogRecord]
    first_offset: int
    next_offset: int
    size_bytes: int
    again: Callable[[int], Iterator[LogRecord | Unreadable]] | None = None

    def own_records(self) -> Iterator[LogRecord]:
        """The records from `first_offset` on, of a topic that only streamkit writes: all of it must be readable.

        Raises:
            Misconfigured: it is damaged, or somebody else has written to it.
        """
        try:
            for record in self.records:
                if record.offset >= self.first_offset:
                    yield record
        except StreamkitError:
            raise
        except Exception as error:
            raise Misconfigured(
                f"the records from offset {self.first_offset} on cannot be read",
                where=str(self.partition),
                detail=f"{type(error).__name__}: {error}",
                hint="only streamkit may write to this topic: look at it with kafka-dump-log.sh, and at the ACLs",
            ) from error
