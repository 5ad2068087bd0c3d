from typing import Any

import pytest

from streamkit.codec.naming import type_name
from streamkit.errors import Bug, EncodeError
from streamkit.state.kinds import KINDS, as_frozen, cells_class
from streamkit.state.list_cells import ListCells
from streamkit.state.map_cells import MapCells
from streamkit.state.memory import MemoryStores
from streamkit.state.spec import StoreSpec
from streamkit.state.task_state import TaskState
from streamkit.state.timers import TimerCells
from streamkit.state.value_cells import ValueCells, WindowCells

SPECS = {kind: StoreSpec(f"of_{kind}", kind, int, str) for kind in KINDS}


def new_state(*kinds: str) -> TaskState:
    return TaskState(MemoryStores().open("t-0"), [SPECS[kind] for kind in kinds])


def change(cells: Any, key: bytes) -> None:
    """Have one row of this key in the cells, whatever their kind."""
    match cells:
        case WindowCells():
            cells.put((key, b"namespace"), 1)
        case ValueCells():
            cells.put(key, 1)
        case MapCells():
            cells.put(key, "entry", 1)
        case ListCells():
            cells.add(key, 1)
        case TimerCells():
            cells.add(key, 1)


def test_the_names_of_kinds_stay_what_they_are() -> None:
    """They stand in the fingerprints of running pipelines."""
    assert set(KINDS) >= {"value", "window", "map", "list", "event_timers", "processing_timers"}


def test_a_kind_that_nobody_keeps_is_refused() -> None:
    with pytest.raises(Bug, match='store "rows" is of kind "table", and nobody keeps such state'):
        cells_class(StoreSpec("rows", "table", int))


def test_the_rows_of_a_span_are_written_by_kind_then_as_declared() -> None:
    """Windows are values: between those two the order of the declarations counts."""
    declared = ("event_timers", "map", "window", "value")
    state = new_state(*declared)
    made = [state.cells(SPECS[kind]) for kind in declared]
    timers, maps, windows, values = made
    assert as_frozen(made) == [windows, values, maps, timers]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_describes_itself(kind: str) -> None:
    spec = SPECS[kind]
    assert type_name(int) in cells_class(spec).in_words(spec) or "timers" in kind
    assert not {"kind", "type", "version"} & cells_class(spec).details(spec).keys()


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_failed_record_did_is_undone_in_every_kind(kind: str) -> None:
    state = new_state(kind)
    cells = state.cells(SPECS[kind])
    state.records.settle(1000)
    change(cells, b"kept")
    state.records.settle(1000)
    change(cells, b"undone")
    state.records.undo()
    change(cells, b"kept, too")
    state.records.settle(1000)
    keys = list(state.freeze())
    assert len(keys) == 2
    assert all(b"kept" in key for key in keys)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_is_too_large_is_found_at_its_record_in_every_kind(kind: str) -> None:
    state = new_state(kind)
    cells = state.cells(SPECS[kind])
    state.records.settle(100)
    change(cells, b"x" * 100)
    with pytest.raises(EncodeError, match="its changelog takes"):
        state.records.settle(100)
    state.records.undo()
    assert state.freeze() == {}


@pytest.mark.parametrize("kind", KINDS)
def test_evicted_cells_keep_what_the_span_has_changed_in_every_kind(kind: str) -> None:
    state = new_state(kind)
    cells = state.cells(SPECS[kind])
    change(cells, b"a")
    cells.evict()
    assert cells.is_dirty()
    assert len(state.freeze()) == 1
    change(cells, b"b")
    cells.forget()
    assert not cells.is_dirty()
    assert state.freeze() == {}
