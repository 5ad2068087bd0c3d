"""TaskState: the state of one task between its operators, its changelog and its store.

A change walks down: the cells of the open span; the frozen rows of a span that is being committed; the pending
rows, which are committed; the rows that another thread is writing to the store; the store. Reading asks in the same
order, so a span sees everything before it. Only committed rows reach the store: a failed commit is forgotten by
dropping the two layers above.

Where records have failed, one more layer lies under the cells: the settled rows of the open span (`state/record_layer.py`).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice, takewhile
from typing import Any

import structlog

from streamkit.errors import Bug, StreamkitError
from streamkit.model.keys import GroupPrefixes
from streamkit.state.budget import Cache
from streamkit.state.cells import Changes, Touched
from streamkit.state.committed import CommittedRows, Layer
from streamkit.state.keys import store_ids
from streamkit.state.kinds import as_frozen, cells_class
from streamkit.state.record_layer import RecordLayer
from streamkit.state.spec import StoreSpec
from streamkit.state.store import StateStore, Writes

log = structlog.get_logger()


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
        apply_interval_s: float = 1.0,
        strays: Iterable[bytes] = (),
    ) -> None:
        """`strays` are keys of which the changelog has a newer row that was never committed: `runtime/tail.py`."""
        self.store = store
        # Sorted, or the changelog would depend on how a process orders its sets.
        self._strays = sorted(strays)
        self._frozen: deque[Changes] = deque()
        self.committed_rows = CommittedRows(store, apply_interval_s)
        self.is_closed = False
        ids = store_ids(spec.name for spec in specs)
        self._prefixes = GroupPrefixes()
        self._cells = {
            spec.name: cells_class(spec)(spec, ids[spec.name], self._prefixes, self) for spec in specs
        }
        self._as_frozen = as_frozen(self._cells.values())
        self.records = RecordLayer(self._as_frozen)

    @property
    def changelog_offset(self) -> int:
        """What is committed here reflects the changelog up to here (exclusive), written to the store or not."""
        return self.committed_rows.changelog_offset

    def cells(self, spec: StoreSpec) -> Any:
        """The cells of a declared store, of the class that its kind has; the same object for the life of the task."""
        cells = self._cells.get(spec.name)
        if type(cells) is not cells_class(spec):
            raise Bug(f'the task has no {spec.kind} store "{spec.name}"')
        return cells

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
        for cells in self._as_frozen:
            cells.freeze(frozen.rows, frozen.touched)
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
        self._require_progress(changelog_offset)
        self._frozen.popleft()
        self._strays.clear()
        self.committed_rows.add(rows, oldest.touched, changelog_offset)

    def drop(self) -> None:
        """The commit failed or the span did: forget all that is not committed."""
        self._frozen.clear()
        self.records.take()
        self._forget_cells()

    def caches(self) -> Iterator[Cache]:
        """What can be emptied at any time between two records when memory is short."""
        yield from self._as_frozen
        yield self._prefixes

    # Down to the store.

    def write_pending(self) -> None:
        """Write all committed rows to the store here and now; a write under way must have ended."""
        self.committed_rows.write_all()

    def restore(self, rows: Writes, changelog_offset: int) -> None:
        """Copy committed changelog records straight into the store; no span may be open.

        Raises:
            Bug: there are changes that are not committed, or the changelog went backwards.
        """
        if self._frozen or self.records.settled.rows or any(cells.is_dirty() for cells in self._as_frozen):
            raise Bug("state is restored under an open span")
        self._require_progress(changelog_offset)
        self._forget_cells()
        self.committed_rows.add(rows, {}, changelog_offset)
        self.write_pending()

    def close(self) -> None:
        """Write what is committed, drop what is not, and release the store; a write under way must have ended."""
        self.is_closed = True
        self.drop()
        try:
            self.write_pending()
        except StreamkitError as error:  # the changelog has it all
            log.warning("committed state could not be written to disk: it will be restored", error=str(error))
        self.store.close()

    # Reading.

    def read(self, key: bytes) -> bytes | None:
        """The committed bytes of a key, or None."""
        return self.committed_rows.read(key)

    def find(self, key: bytes) -> bytes | None:
        """The newest bytes of a state key below the cells; for them."""
        if key in self.records.settled.rows:
            return self.records.settled.rows[key]
        for frozen in reversed(self._frozen):
            if key in frozen.rows:
                return frozen.rows[key]
        return self.committed_rows.read(key)

    def find_all(
        self, prefix: bytes, start: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """The newest bytes of a map's entries below the cells, in order and as they are now; for them."""
        newer: dict[bytes, bytes | None] = {}
        for layer in self._upwards():
            _overlay(newer, prefix, layer.rows, layer.touched)
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
        for layer in self._upwards():
            newer.update(
                (key, data) for key, data in layer.rows.items() if key >= start and key.startswith(prefix)
            )
        added = sorted(key for key, data in newer.items() if data is not None)
        stored = (key for key, _ in self.store.scan(prefix, start) if key not in newer)
        return list(islice(merge(stored, added), count))

    def _upwards(self) -> list[Layer | Changes]:
        """All layers above the store, the oldest first."""
        return [*self.committed_rows.layers(), *self._frozen, self.records.settled]

    def _require_progress(self, changelog_offset: int) -> None:
        if changelog_offset < self.changelog_offset:
            raise Bug(
                f"the changelog went backwards, from offset {self.changelog_offset} to {changelog_offset}",
                hint="was the changelog topic deleted while the pipeline was running?",
            )

    def _forget_cells(self) -> None:
        for cells in self._as_frozen:
            cells.forget()


def _overlay(
    newer: dict[bytes, bytes | None], prefix: bytes, rows: Mapping[bytes, bytes | None], touched: Touched
) -> None:
    """Put the entries of one map that a layer has touched over those of the layers below it."""
    for encoded in touched.get(prefix, ()):
        newer[prefix + encoded] = rows[prefix + encoded]
