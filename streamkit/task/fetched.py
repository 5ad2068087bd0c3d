"""The records of a fetched batch, slice by slice, also of a batch that somebody has garbled.

Anybody who may write to a source may write what the log's parser refuses, and that shows only when records are taken out.
From there on the batch is read carefully: records as far as they can be read, and what cannot be read as `Unreadable`.

A record may also name an offset that is not its own, and positions are made of offsets. So each slice is looked at where it
ends: it must lie between the position and the record behind it. What is in between matters once a record fails or has to
wait there; then all of the slice is looked at, once.
"""

from collections.abc import Callable, Iterator
from itertools import chain as join
from itertools import islice, pairwise, takewhile

from streamkit.model.records import FetchedBatch, LogRecord, Unreadable

ReadAgain = Callable[[int], Iterator[LogRecord | Unreadable]]


class FetchedRecords:
    """One batch up to an offset; `unreadable` is what comes next if nobody can read it, until it is passed."""

    def __init__(self, batch: FetchedBatch, end: int) -> None:
        self._batch = batch
        self._end = end
        self._records: Iterator[LogRecord] | None = None
        self._careful: Iterator[LogRecord | Unreadable] | None = None
        # The record behind the last slice, if there is one; and that slice, until somebody has asked whether it lies.
        self._ahead: list[LogRecord] = []
        self._unproven: list[LogRecord] = []
        self.unreadable: Unreadable | None = None
        self.is_done = False

    def take(self, limit: int, position: int, *, is_each_proven: bool = False) -> list[LogRecord]:
        """The next records, those from `position` on; fewer than `limit` at the end, or before what cannot be read.

        With `is_each_proven` the offset of each of them is its own, else `lies` tells.
        """
        if self._careful is not None:
            return self._take_carefully(limit)
        position, again = max(position, self._batch.first_offset), self._batch.again
        if self._records is None and again is not None and self._end < self._batch.next_offset:
            # A record that says it lies behind the end of a bounded input would hide all that follow it in this fetch.
            return self._begin_carefully(again, limit, position)
        try:
            if self._records is None:
                self._records = self._opened()
            records = self._ahead
            records.extend(islice(self._records, limit + 1 - len(records)))
            self._ahead = records[limit:]
            del records[limit:]
        except Exception:
            if again is None:
                raise
        else:
            if again is None or self._is_plausible(records, position, is_each=is_each_proven):
                self._unproven = records
                self.is_done = len(records) < limit
                return records
        return self._begin_carefully(again, limit, position)

    def _begin_carefully(self, again: ReadAgain, limit: int, position: int) -> list[LogRecord]:
        end = self._end
        self._careful = takewhile(lambda found: found.offset < end, again(position))
        return self._take_carefully(limit)

    def lies(self) -> bool:
        """Whether some record of the last slice names an offset that cannot be its own."""
        taken, self._unproven = self._unproven, []
        return self._batch.again is not None and self._careful is None and not _is_rising(taken)

    def _is_plausible(self, records: list[LogRecord], position: int, *, is_each: bool) -> bool:
        """Whether the offsets of a slice can be right, as positions are made of them; looks at its ends only, or at each."""
        if not records:
            return True
        first, last = records[0].offset, records[-1].offset
        end = min(self._end, self._ahead[0].offset) if self._ahead else self._end
        if not (position <= first and last < end and last - first >= len(records) - 1):
            return False
        return not is_each or _is_rising(records)

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


def _is_rising(records: list[LogRecord]) -> bool:
    return all(before.offset < after.offset for before, after in pairwise(records))


def _from_offset(batch: FetchedBatch) -> Iterator[LogRecord]:
    """The records from `first_offset` on; only a batch that is entered in its middle has others.

    The client's batches refuse a second `iter`, also by the tools of itertools; an islice in between does not ask.
    """
    records = islice(iter(batch.records), None)
    for record in records:
        if record.offset >= batch.first_offset:
            return join((record,), records)
    return iter(())
