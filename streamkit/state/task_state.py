"""TaskState: the state of one task between its operators, its changelog and its store.

A change walks down: the cells of the open span; the frozen rows of a span that is being committed; the pending
rows, committed but not in the store yet; the store. Reading asks in the same order, so a span sees everything
before it. Only committed rows reach the store: a failed commit is forgotten by dropping the two layers above.

Where records have failed, one more layer lies under the cells: the settled rows of the open span (`state/record_layer.py`).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice, takewhile

import structlog

from streamkit.errors import Bug, Retry, StateCorrupt
from streamkit.model.keys import GroupPrefixes
from streamkit.state.cells import MapCells, Touched, ValueCells
from streamkit.state.keys import store_ids
from streamkit.state.record_layer import Changes, RecordLayer
from streamkit.state.spec import StoreSpec
from streamkit.state.store import StateStore, Writes
from streamkit.state.timers import TimerCells

log = structlog.get_logger()

# Pending rows are written early beyond these: one write of 50 000 rows holds the event loop for about 60 ms, and
# values may be large.
PENDING_ROWS_MAX = 50_000
PENDING_BYTES_MAX = 32 * 1024 * 1024


class TaskState:
    """Owns the cells, the rows on their way down and the store of one task.

    A span is frozen, then committed or dropped; spans are committed in the order in which they were frozen. Every
    `committed` needs its `freeze`, even if nothing changed.
    """

    def __init__(
        self,
        store: StateStore,
        specs: Sequence[StoreSpec],
        *,
        cached_values_max: int,
        flush_interval_s: float = 1.0,
        strays: Iterable[bytes] = (),
    ) -> None:
        """`strays` are keys of which the changelog has a newer row that was never committed: `runtime/tail.py`."""
        self.store = store
        # Sorted, or the changelog would depend on how a process orders its sets.
        self._strays = sorted(strays)
        self._cached_values_max = cached_values_max
        self._flush_interval_s = flush_interval_s
        self._frozen: deque[Changes] = deque()
        self._pending: dict[bytes, bytes | None] = {}
        self._pending_touched: Touched = {}
        self._pending_bytes = 0
        self._pending_since_s: float | None = None
        self._changelog_offset = store.changelog_offset
        ids = store_ids(spec.name for spec in specs)
        prefixes = GroupPrefixes()
        self._values: dict[str, ValueCells] = {}
        self._maps: dict[str, MapCells] = {}
        self._timers: dict[str, TimerCells] = {}
        for spec in specs:
            place = (spec, ids[spec.name], prefixes, self)
            match spec.kind:
                case "value" | "window":
                    self._values[spec.name] = ValueCells(*place)
                case "map":
                    self._maps[spec.name] = MapCells(*place)
                case "event_timers" | "processing_timers":
                    self._timers[spec.name] = TimerCells(*place)
        self._cells: list[ValueCells | MapCells | TimerCells] = [
            *self._values.values(),
            *self._maps.values(),
            *self._timers.values(),
        ]
        self.records = RecordLayer(self._values.values(), self._maps.values(), self._timers.values())

    @property
    def changelog_offset(self) -> int:
        """What is committed here reflects the changelog up to here (exclusive), written to the store or not."""
        return self._changelog_offset

    def value_cells(self, spec: StoreSpec) -> ValueCells:
        """The cells of a value or window store; the same object for the life of the task."""
        if spec.name not in self._values:
            raise Bug(f'the task has no value store "{spec.name}"')
        return self._values[spec.name]

    def map_cells(self, spec: StoreSpec) -> MapCells:
        """The cells of a map store; the same object for the life of the task."""
        if spec.name not in self._maps:
            raise Bug(f'the task has no map store "{spec.name}"')
        return self._maps[spec.name]

    def timer_cells(self, spec: StoreSpec) -> TimerCells:
        """The cells of a store of timers; the same object for the life of the task."""
        if spec.name not in self._timers:
            raise Bug(f'the task has no timers "{spec.name}"')
        return self._timers[spec.name]

    # The life of a span.

    def freeze(self) -> dict[bytes, bytes | None]:
        """End the span: its changed state as changelog records, key to value. The next span begins at once.

        The caller may add reserved keys, and nothing else, to what it gets. The first span writes again what is true of
        the stray keys.

        Raises:
            EncodeError: a value cannot be written; drop the span.
        """
        frozen = self.records.take()
        for key in self._strays:
            frozen.rows.setdefault(key, self.read(key))
        for values in self._values.values():
            values.freeze(frozen.rows)
        for maps in self._maps.values():
            maps.freeze(frozen.rows, frozen.touched)
        for timers in self._timers.values():
            timers.freeze(frozen.rows)
        self._frozen.append(frozen)
        return frozen.rows

    def committed(self, rows: Writes, changelog_offset: int) -> None:
        """The oldest frozen span is committed, and the changelog with it up to `changelog_offset` (exclusive).

        Raises:
            Bug: these are not the rows of that span, or the changelog went backwards.
        """
        if not self._frozen:
            raise Bug("a span was committed that was never frozen")
        oldest = self._frozen[0]
        if rows is not oldest.rows and not oldest.rows.items() <= rows.items():
            raise Bug("a span was committed that is not the oldest frozen one")
        self._advance(changelog_offset)
        self._frozen.popleft()
        self._strays.clear()
        self._pending.update(rows)
        self._pending_bytes += sum(map(len, filter(None, rows.values())))
        for prefix, changed in oldest.touched.items():
            self._pending_touched.setdefault(prefix, {}).update(changed)
        self._evict()

    def drop(self) -> None:
        """The commit failed or the span did: forget all that is not committed."""
        self._frozen.clear()
        self.records.take()
        self._forget_cells()

    def _evict(self) -> None:
        """Empty the caches that have outgrown their bound, except for what only they know."""
        for cells in self._cells:
            if cells.size() > self._cached_values_max:
                cells.evict()

    # Down to the store.

    def flush_due(self, now_s: float) -> bool:
        """Whether pending rows have waited long enough, or are many; ask after every commit and when idle."""
        if not self._pending:
            self._pending_since_s = None
            return False
        if self._pending_since_s is None:
            self._pending_since_s = now_s
        return (
            now_s - self._pending_since_s >= self._flush_interval_s
            or len(self._pending) >= PENDING_ROWS_MAX
            or self._pending_bytes >= PENDING_BYTES_MAX
        )

    def write_pending(self) -> None:
        """Write all committed rows to the store, with the offset that belongs to them."""
        if self._changelog_offset == self.store.changelog_offset and not self._pending:
            return
        self.store.apply(self._pending, self._changelog_offset)
        self._pending.clear()
        self._pending_touched.clear()
        self._pending_bytes = 0
        self._pending_since_s = None

    def restore(self, rows: Writes, changelog_offset: int) -> None:
        """Copy committed changelog records straight into the store; no span may be open.

        Raises:
            Bug: there are changes that are not committed, or the changelog went backwards.
        """
        if self._frozen or self.records.settled.rows or any(cells.is_dirty() for cells in self._cells):
            raise Bug("state is restored under an open span")
        self.write_pending()  # older than the records, so it goes first
        self._advance(changelog_offset)
        self._forget_cells()
        self.store.apply(rows, changelog_offset)

    def close(self) -> None:
        """Write what is committed, drop what is not, and release the store."""
        self.drop()
        try:
            self.write_pending()
        except (StateCorrupt, Retry) as error:  # the changelog has it all
            log.warning("committed state could not be written to disk: it will be restored", error=str(error))
        self.store.close()

    # Reading.

    def read(self, key: bytes) -> bytes | None:
        """The committed bytes of a reserved key, or None."""
        if key in self._pending:
            return self._pending[key]
        return self.store.get(key)

    def find(self, key: bytes) -> bytes | None:
        """The newest bytes of a state key below the cells; for them."""
        if key in self.records.settled.rows:
            return self.records.settled.rows[key]
        for frozen in reversed(self._frozen):
            if key in frozen.rows:
                return frozen.rows[key]
        if key in self._pending:
            return self._pending[key]
        return self.store.get(key)

    def find_all(
        self, prefix: bytes, start: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """The newest bytes of a map's entries below the cells, in order and as they are now; for them."""
        newer: dict[bytes, bytes | None] = {}
        _overlay(newer, prefix, self._pending, self._pending_touched)
        for frozen in self._frozen:
            _overlay(newer, prefix, frozen.rows, frozen.touched)
        _overlay(newer, prefix, self.records.settled.rows, self.records.settled.touched)
        first = prefix + start
        added = sorted((key, data) for key, data in newer.items() if data is not None and key >= first)
        stored = self.store.scan(prefix, first)
        rows = merge((row for row in stored if row[0] not in newer), added) if newer else stored
        if end is None:
            return rows
        last = prefix + end
        return takewhile(lambda row: row[0] < last, rows)

    def find_keys(self, prefix: bytes, start: bytes, count: int) -> list[bytes]:
        """The first `count` state keys from `start` on below the open span that begin with `prefix`; for the timers."""
        newer: dict[bytes, bytes | None] = {}
        for rows in (self._pending, *(frozen.rows for frozen in self._frozen)):
            newer.update((key, data) for key, data in rows.items() if key >= start and key.startswith(prefix))
        added = sorted(key for key, data in newer.items() if data is not None)
        stored = (key for key, _ in self.store.scan(prefix, start) if key not in newer)
        return list(islice(merge(stored, added), count))

    def _advance(self, changelog_offset: int) -> None:
        if changelog_offset < self._changelog_offset:
            raise Bug(
                f"the changelog went backwards, from offset {self._changelog_offset} to {changelog_offset}",
                hint="was the changelog topic deleted while the pipeline was running?",
            )
        self._changelog_offset = changelog_offset

    def _forget_cells(self) -> None:
        for cells in self._cells:
            cells.forget()


def _overlay(
    newer: dict[bytes, bytes | None], prefix: bytes, rows: Mapping[bytes, bytes | None], touched: Touched
) -> None:
    """Put the entries of one map that a layer has touched over those of the layers below it."""
    for encoded in touched.get(prefix, ()):
        newer[prefix + encoded] = rows[prefix + encoded]
