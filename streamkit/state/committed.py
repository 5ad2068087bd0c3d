"""CommittedRows: what one task has committed, in the store or on its way there.

Rows wait here for a while, so that what changes often is written once; then another thread writes them. Until they are
in the store they are read from here.
"""

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from streamkit.state.cells import Touched
from streamkit.state.store import StateStore, Writes

# Rows are written early beyond these: RocksDB's binding keeps all other Python from running while it copies a batch,
# about 20 ms for this many rows, and values may be large.
PENDING_ROWS_MAX = 20_000
PENDING_BYTES_MAX = 16 * 1024 * 1024
# What a row takes in memory beside its value: its key, two objects, a place in a dict.
ROW_BYTES = 200


class Layer(msgspec.Struct):
    """Rows on their way down: of a span that is being committed, or committed and not in the store yet."""

    rows: dict[bytes, bytes | None]
    # Which entries of which maps are among them.
    touched: Touched
    # About how much they hold: a row that was replaced counts twice.
    size_bytes: int = 0


class CommittedRows:
    """Owns the rows between the last commit and the store.

    A write is begun, done by any thread, and `written` is said where it was begun; there is one at a time.
    """

    def __init__(self, store: StateStore, apply_interval_s: float) -> None:
        self.store = store
        self.changelog_offset = store.changelog_offset
        self._apply_interval_s = apply_interval_s
        self._pending = Layer({}, {})
        self._pending_since_s: float | None = None
        # What another thread is writing; None: nobody writes.
        self._writing: Layer | None = None

    def add(self, rows: Writes, touched: Touched, changelog_offset: int) -> None:
        """A span was committed."""
        self.changelog_offset = changelog_offset
        pending = self._pending
        pending.rows.update(rows)
        pending.size_bytes += sum(map(len, filter(None, rows.values()))) + len(rows) * ROW_BYTES
        for prefix, changed in touched.items():
            pending.touched.setdefault(prefix, {}).update(changed)

    # Down to the store.

    @property
    def waiting_bytes(self) -> int:
        """About how much is not in the store yet."""
        return self._pending.size_bytes + (0 if self._writing is None else self._writing.size_bytes)

    def write_due(self, now_s: float) -> bool:
        """Whether rows have waited long enough, or are many; ask after every commit and when idle."""
        if not self._pending.rows:
            self._pending_since_s = None
            return False
        if self._pending_since_s is None:
            self._pending_since_s = now_s
        return (
            now_s - self._pending_since_s >= self._apply_interval_s
            or len(self._pending.rows) >= PENDING_ROWS_MAX
            or self._pending.size_bytes >= PENDING_BYTES_MAX
        )

    def begin_write(self) -> Callable[[], None] | None:
        """Hand all waiting rows over: the work to be done, with the offset that belongs to them.

        None if there is nothing to write, or the last write has not ended well yet.
        """
        is_new = bool(self._pending.rows) or self.changelog_offset != self.store.changelog_offset
        if self._writing is not None or not is_new:
            return None
        self._writing, self._pending = self._pending, Layer({}, {})
        self._pending_since_s = None
        return partial(self.store.apply, self._writing.rows, self.changelog_offset)

    def written(self) -> None:
        """The rows that were handed over are in the store."""
        self._writing = None

    def write_all(self) -> None:
        """Write everything here and now; a write under way must have ended.

        What was handed over is written again: whether it went well may not be known here yet.
        """
        rows = {key: data for layer in self.layers() for key, data in layer.rows.items()}
        if rows or self.changelog_offset != self.store.changelog_offset:
            self.store.apply(rows, self.changelog_offset)
        self._pending, self._writing, self._pending_since_s = Layer({}, {}), None, None

    # Reading.

    def layers(self) -> list[Layer]:
        """What is not in the store yet, the oldest first."""
        return [self._pending] if self._writing is None else [self._writing, self._pending]

    def read(self, key: bytes) -> bytes | None:
        """The committed bytes of a key, or None."""
        if key in self._pending.rows:
            return self._pending.rows[key]
        if self._writing is not None and key in self._writing.rows:
            return self._writing.rows[key]
        return self.store.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All that begins with `prefix`, in key order; reads everything, so for people and tests."""
        found: dict[bytes, bytes | None] = dict(self.store.scan(prefix))
        for layer in self.layers():
            found.update((key, data) for key, data in layer.rows.items() if key.startswith(prefix))
        return ((key, data) for key, data in sorted(found.items()) if data is not None)
