"""The records of a fetched batch, slice by slice, also of a batch that somebody has garbled.

Anybody who may write to a source may write what the log's parser refuses, and that shows only when records are taken out.
From there on the batch is read carefully: records as far as they can be read, and what cannot be read as `Unreadable`.
"""

from collections.abc import Iterator
from itertools import chain as join
from itertools import islice, takewhile

from streamkit.model.records import FetchedBatch, LogRecord, Unreadable


class FetchedRecords:
    """One batch up to an offset; `unreadable` is what comes next if nobody can read it, until it is passed."""

    def __init__(self, batch: FetchedBatch, end: int) -> None:
        self._batch = batch
        self._end = end
        self._records: Iterator[LogRecord] | None = None
        self._careful: Iterator[LogRecord | Unreadable] | None = None
        self.unreadable: Unreadable | None = None
        self.is_done = False

    def take(self, limit: int, position: int) -> list[LogRecord]:
        """The next records, those from `position` on; fewer than `limit` at the end, or before what cannot be read."""
        if self._careful is not None:
            return self._take_carefully(limit)
        position, again = max(position, self._batch.first_offset), self._batch.again
        try:
            if self._records is None:
                self._records = self._opened()
            records = list(islice(self._records, limit))
        except Exception:
            if again is None:
                raise
        else:
            if again is None or _is_plausible(records, position, self._end):
                self.is_done = len(records) < limit
                return records
        end = self._end
        self._careful = takewhile(lambda found: found.offset < end, again(position))
        return self._take_carefully(limit)

    def _opened(self) -> Iterator[LogRecord]:
        end, records = self._end, _from_offset(self._batch)
        if end == self._batch.next_offset:
            return records
        return takewhile(lambda record: record.offset < end, records)

    def _take_carefully(self, limit: int) -> list[LogRecord]:
        assert self._careful is not None
        records: list[LogRecord] = []
        for found in islice(self._careful, limit):
            if isinstance(found, Unreadable):
                self.unreadable = found
                return records
            records.append(found)
        self.is_done = len(records) < limit
        return records


def _is_plausible(records: list[LogRecord], position: int, end: int) -> bool:
    """Whether the offsets of a slice can be right, as positions are made of them; looks at its ends only."""
    if not records:
        return True
    first, last = records[0].offset, records[-1].offset
    return position <= first and last < end and last - first >= len(records) - 1


def _from_offset(batch: FetchedBatch) -> Iterator[LogRecord]:
    """The records from `first_offset` on; only a batch that is entered in its middle has others.

    The client's batches refuse a second `iter`, also by the tools of itertools; an islice in between does not ask.
    """
    records = islice(iter(batch.records), None)
    for record in records:
        if record.offset >= batch.first_offset:
            return join((record,), records)
    return iter(())
