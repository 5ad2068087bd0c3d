"""RecordLayer: one record's changes of state, apart from those of the span until the record has succeeded.

Only a task that is careful (`task/careful.py`) has a use for it. The cells then hold what one record did, and no more:
`settle` makes rows of it, so that a value which cannot be stored is found at its record; `undo` forgets it. As every value
is read from bytes, what a record has changed in place is forgotten too.
"""

from collections.abc import Collection, Iterable

import msgspec

from streamkit.errors import EncodeError
from streamkit.state.cells import MapCells, Touched, ValueCells
from streamkit.state.timers import TimerCells


class Changes(msgspec.Struct, frozen=True):
    """Rows that a span has changed, and which entries of which maps are among them."""

    rows: dict[bytes, bytes | None]
    touched: Touched


class RecordLayer:
    """The cells of one task, seen as a layer over the settled rows of the open span."""

    def __init__(
        self, values: Collection[ValueCells], maps: Collection[MapCells], timers: Collection[TimerCells]
    ) -> None:
        self._values = values
        self._maps = maps
        self._timers = timers
        self.settled = Changes({}, {})

    def settle(self, row_bytes_max: int) -> None:
        """What was changed since the last time stays in the span; from now on `undo` can take back what comes.

        Raises:
            EncodeError: a value cannot be written or read back, or is larger than the changelog takes; undo it.
        """
        changed = Changes({}, {})
        for values in self._values:
            if values.dirty:
                rows: dict[bytes, bytes | None] = {}
                values.freeze(rows)
                values.require_storable(rows, row_bytes_max)
                changed.rows.update(rows)
        for maps in self._maps:
            if maps.is_dirty():
                rows = {}
                maps.freeze(rows, changed.touched)
                maps.require_storable(rows, row_bytes_max)
                changed.rows.update(rows)
        for timers in self._timers:
            _require_short(timers.changed(), row_bytes_max)
        _require_short(changed.rows, row_bytes_max)
        self.settled.rows.update(changed.rows)
        for prefix, entries in changed.touched.items():
            self.settled.touched.setdefault(prefix, {}).update(entries)
        self._forget()
        for timers in self._timers:
            timers.settle()

    def undo(self) -> None:
        """Forget what was changed since the last `settle`."""
        self._forget()
        for timers in self._timers:
            timers.undo()

    def trust(self) -> None:
        """Nothing has to be undone any more: values may be kept as objects again."""
        for timers in self._timers:
            timers.trust()

    def take(self) -> Changes:
        """The settled rows of the span that ends; the next one has none."""
        taken, self.settled = self.settled, Changes({}, {})
        return taken

    def _forget(self) -> None:
        """Drop the values in memory, changed or not: what is read next is read from bytes."""
        for values in self._values:
            values.forget()
        for maps in self._maps:
            maps.forget()


def _require_short(state_keys: Iterable[bytes], bytes_max: int) -> None:
    """Refuse a row whose key alone is more than its changelog takes: a timer, or the deletion of what is not there."""
    for state_key in state_keys:
        if len(state_key) >= bytes_max:
            raise EncodeError(
                f"a key with its timer or its state has {len(state_key)} bytes, and its changelog takes {bytes_max}",
                hint="use shorter keys, or raise max.message.bytes of the changelog topic and start the worker again",
            )
