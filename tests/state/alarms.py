"""A task's state with timers of both clocks, which two files of tests share."""

from streamkit.model.ids import MAX_TIME
from streamkit.state.memory import MemoryStores
from streamkit.state.spec import StoreSpec
from streamkit.state.store import StateStores
from streamkit.state.task_state import TaskState
from streamkit.state.timers import StoredTimer, TimerCells

MIB = 1024 * 1024
EVENT = StoreSpec("alarms.event_timers", "event_timers", bool)
PROCESSING = StoreSpec("alarms.processing_timers", "processing_timers", bool)
COUNTS = StoreSpec("alarms.rung", "value", int)
SPECS = [EVENT, PROCESSING, COUNTS]


def new_state(stores: StateStores | None = None) -> TaskState:
    stores = MemoryStores() if stores is None else stores
    return TaskState(stores.open("alarms-0"), SPECS)


def commit(state: TaskState) -> None:
    state.committed(state.freeze(), state.changelog_offset + 1)


def pop_all(cells: TimerCells, up_to: int = MAX_TIME) -> list[StoredTimer]:
    popped = []
    while (timer := cells.pop_due(up_to)) is not None:
        popped.append(timer)
    return popped
