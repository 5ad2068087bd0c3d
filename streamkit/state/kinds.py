"""Kinds of state: the name that each kind has in plans and fingerprints, and the class of its cells.

A new kind is a class of cells and an entry here, and for users a view with its declaration
(`state/views.py`, `state/collection_views.py`).
"""

from collections.abc import Iterable, Mapping

from streamkit.errors import Bug
from streamkit.state.cells import Cells
from streamkit.state.list_cells import ListCells
from streamkit.state.map_cells import MapCells
from streamkit.state.spec import StoreSpec
from streamkit.state.timers import TimerCells
from streamkit.state.value_cells import ValueCells, WindowCells

# A name is for ever: it stands in the fingerprints of running pipelines.
KINDS: Mapping[str, type[Cells]] = {
    "value": ValueCells,
    "window": WindowCells,
    "map": MapCells,
    "list": ListCells,
    "event_timers": TimerCells,
    "processing_timers": TimerCells,
}


def cells_class(spec: StoreSpec) -> type[Cells]:
    """The class of the cells that keep this store."""
    kind = KINDS.get(spec.kind)
    if kind is None:
        raise Bug(
            f'store "{spec.name}" is of kind "{spec.kind}", and nobody keeps such state',
            hint=f"known are {', '.join(KINDS)}; a new kind is an entry in state/kinds.py",
        )
    return kind


def as_frozen(cells: Iterable[Cells]) -> list[Cells]:
    """The cells of a task in the order in which a span's rows are written: by kind, then as they were declared.

    A kind that is made from another, as windows are from values, has no place of its own.
    """
    kinds = list(KINDS.values())
    return sorted(cells, key=lambda each: next(at for at, kind in enumerate(kinds) if isinstance(each, kind)))
