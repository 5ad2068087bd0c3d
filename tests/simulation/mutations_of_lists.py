"""Deliberate faults in lists: what of them is forgotten, and what is not."""

from typing import Any

from streamkit.state.cells import Cells
from streamkit.state.list_cells import ChangedList, ListCells


def shorter_lists_keep_their_rows(patch: Any) -> None:
    """What a list had more of before stays in the store."""
    freeze_list = ListCells._freeze_list

    def broken(self: ListCells, key: bytes, changed: ChangedList, *into: Any) -> None:
        changed.before = changed.length
        freeze_list(self, key, changed, *into)

    patch(ListCells, "_freeze_list", broken)


def emptied_lists_count_their_rows(patch: Any) -> None:
    """What is added to an emptied list is numbered behind the rows that it had."""
    clear = ListCells.clear

    def broken(self: ListCells, key: bytes) -> None:
        length = self.length(key)
        clear(self, key)
        if length:
            self._changed[key].kept = length

    patch(ListCells, "clear", broken)


def lists_kept_on_rewind(patch: Any) -> None:
    """Cached lists outlive the span whose elements they hold."""
    patch(ListCells, "forget", lambda self: self._changed.clear())


def undone_record_keeps_its_list(patch: Any) -> None:
    """What a failed record has added is settled with the next one."""

    def broken(self: Cells) -> None:
        if not isinstance(self, ListCells):
            self.forget()

    patch(Cells, "undo", broken)
