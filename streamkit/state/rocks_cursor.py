"""Cursor: the iterator of a walk over a RocksDB, read some rows at a time."""

from collections.abc import Callable, Iterator
from typing import Any

from rocksdict import ReadOptions

from streamkit.errors import Bug, StreamkitError
from streamkit.state.row_groups import Row


class Cursor:
    """The iterator of a scan, where its store can take it away: a live one would keep the folder locked.

    The iterator looks at the bound in its options whenever it moves, and does not keep them alive: we must.
    """

    __slots__ = ("__weakref__", "_options", "at")

    def __init__(self, at: Any, options: ReadOptions) -> None:
        self.at = at
        self._options = options

    def walk(
        self, at_once: int, closed: str, explain: Callable[[Exception], StreamkitError]
    ) -> Iterator[Row]:
        """The rows from where it stands on; `closed` is what it says when the iterator was taken away meanwhile."""
        is_more = True
        while is_more:
            # A function of its own, so that no variable here holds the iterator while the caller has a row.
            rows = self._read(at_once, closed, explain)
            is_more = len(rows) == at_once
            yield from rows
        self.at = None

    def _read(self, at_once: int, closed: str, explain: Callable[[Exception], StreamkitError]) -> list[Row]:
        at = self.at
        if at is None:
            raise Bug(closed)
        rows: list[Row] = []
        try:
            while len(rows) < at_once and at.valid():
                rows.append((at.key(), at.value()))
                at.next()
            if not at.valid():
                at.status()
        except Exception as error:
            self.at = at = None  # or the traceback would hold the iterator, and the iterator the lock
            raise explain(error) from error
        return rows
