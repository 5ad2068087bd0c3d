"""RecordLayer: one record's changes of state, apart from those of the span until the record has succeeded.

Only a task that is careful (`task/careful.py`) has a use for it. The cells then hold what one record did, and no more:
`settle` makes rows of it, so that a value which cannot be stored is found at its record; `undo` forgets it. As every value
is read from bytes, what a record has changed in place is forgotten too.
"""

from collections.abc import Sequence

from streamkit.state.cells import Cells, Changes


class RecordLayer:
    """The cells of one task, seen as a layer over the settled rows of the open span."""

    def __init__(self, cells: Sequence[Cells]) -> None:
        self._cells = cells
        self.settled = Changes({}, {})

    def settle(self, row_bytes_max: int) -> None:
        """What was changed since the last time stays in the span; from now on `undo` can take back what comes.

        Raises:
            EncodeError: a value cannot be written or read back, or is larger than the changelog takes; undo it.
        """
        changed = Changes({}, {})
        for cells in self._cells:
            cells.prepare(changed, row_bytes_max)
        self.settled.rows.update(changed.rows)
        for prefix, entries in changed.touched.items():
            self.settled.touched.setdefault(prefix, {}).update(entries)
        for cells in self._cells:
            cells.settle()

    def undo(self) -> None:
        """Forget what was changed since the last `settle`."""
        for cells in self._cells:
            cells.undo()

    def trust(self) -> None:
        """Nothing has to be undone any more: values may be kept as objects again."""
        for cells in self._cells:
            cells.trust()

    def take(self) -> Changes:
        """The settled rows of the span that ends; the next one has none."""
        taken, self.settled = self.settled, Changes({}, {})
        return taken
