"""Lists under any sequence of spans, undone records, restarts and evictions, against a plain Python list."""

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamkit.state import list_cells
from streamkit.state.budget import keep_within
from streamkit.state.list_cells import ListCells
from streamkit.state.memory import MemoryStores
from streamkit.state.rocks import RocksStores
from streamkit.state.spec import StoreSpec
from streamkit.state.task_state import TaskState

MIB = 1024 * 1024
ROW_BYTES_MAX = 10_000
EVENTS = StoreSpec("events", "list", int)
COUNTS = StoreSpec("counts", "value", int)
KEYS = [b"", b"a", b"ab"]
Model = dict[bytes, list[int]]
Actions = list[tuple[str, bytes, list[int]]]
actions = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "extend", "put", "clear", "length", "read", "trim", "evict"]),
        st.sampled_from(KEYS),
        st.lists(st.integers(-2, 300), min_size=1, max_size=5),
    ),
    min_size=2,
    max_size=8,
)


class ListMachine(RuleBasedStateMachine):
    """Any sequence of changes, undone records, commits, drops and restarts reads like a plain list.

    A list of more than three elements counts as long, or none would be.
    """

    def __init__(self) -> None:
        super().__init__()
        self.long = patch.object(list_cells, "WHOLE_ROWS_MAX", 3)
        self.long.start()
        self.changelog: list[dict[bytes, bytes | None]] = []
        self.frozen: list[tuple[dict[bytes, bytes | None], Model]] = []
        self.committed: Model = {}
        self.current: Model = {}
        self.is_careful = False
        self.stores = self.new_stores()
        self.open()

    def new_stores(self) -> Any:
        self.survive = 0
        return MemoryStores(survives=lambda _, unflushed: min(self.survive, unflushed))

    def open(self) -> None:
        self.state = TaskState(self.stores.open("t-0"), [COUNTS, EVENTS])
        self.cells: ListCells = self.state.cells(EVENTS)
        self.is_careful = False

    def process(self, actions: Actions) -> None:
        for name, key, numbers in actions:
            getattr(self, name)(key, numbers, self.current.setdefault(key, []))

    def add(self, key: bytes, numbers: list[int], expected: list[int]) -> None:
        self.cells.add(key, numbers[0])
        expected.append(numbers[0])

    def extend(self, key: bytes, numbers: list[int], expected: list[int]) -> None:
        self.cells.extend(key, numbers)
        expected += numbers

    def put(self, key: bytes, numbers: list[int], expected: list[int]) -> None:
        self.cells.replace(key, numbers)
        expected[:] = numbers

    def trim(self, key: bytes, _numbers: list[int], expected: list[int]) -> None:
        self.cells.replace(key, list(self.cells.elements(key))[-2:])
        expected[:] = expected[-2:]

    def clear(self, key: bytes, _numbers: list[int], expected: list[int]) -> None:
        self.cells.clear(key)
        expected.clear()

    def length(self, key: bytes, _numbers: list[int], expected: list[int]) -> None:
        assert self.cells.length(key) == len(expected)

    def read(self, key: bytes, _numbers: list[int], expected: list[int]) -> None:
        assert list(self.cells.elements(key)) == expected

    def evict(self, _key: bytes, _numbers: list[int], _expected: list[int]) -> None:
        keep_within(0, self.state.caches())

    def went_back(self) -> None:
        self.frozen.clear()
        self.current = copied(self.committed)
        self.is_careful = False

    @rule(actions=actions, meanwhile=actions, left_in_flight=st.integers(0, 2))
    def commit(self, actions: Actions, meanwhile: Actions, left_in_flight: int) -> None:
        self.process(actions)
        if self.is_careful:
            self.state.records.settle(ROW_BYTES_MAX)
        self.frozen.append((self.state.freeze(), copied(self.current)))
        self.process(meanwhile)
        while len(self.frozen) > left_in_flight:
            rows, self.committed = self.frozen.pop(0)
            self.changelog.append(dict(rows))
            self.state.committed(rows, len(self.changelog))

    @rule(actions=actions, failing=actions)
    def careful(self, actions: Actions, failing: Actions) -> None:
        """One record that succeeds, and one that fails: the task has become careful, or is."""
        self.process(actions)
        self.state.records.settle(ROW_BYTES_MAX)
        self.is_careful = True
        before = copied(self.current)
        self.process(failing)
        self.state.records.undo()
        self.current = before

    @rule(actions=actions)
    def write_pending(self, actions: Actions) -> None:
        self.process(actions)
        self.state.write_pending()

    @rule(actions=actions)
    def drop(self, actions: Actions) -> None:
        self.process(actions)
        self.state.drop()
        self.went_back()

    @rule(actions=actions, survive=st.integers(0, 3), is_clean=st.booleans())
    def restart(self, actions: Actions, survive: int, *, is_clean: bool) -> None:
        self.process(actions)
        self.stop(survive, is_clean=is_clean)
        self.open()
        offset = self.state.changelog_offset
        for at, rows in enumerate(self.changelog[offset:], offset + 1):
            self.state.restore(rows, at)
        self.went_back()

    def stop(self, survive: int, *, is_clean: bool) -> None:
        self.survive = survive
        if is_clean:
            self.state.close()
        self.stores.crash()

    @invariant()
    def what_is_in_memory_is_counted(self) -> None:
        inside = {key: len(changed.added) for key, changed in self.cells._changed.items()}
        inside |= {key: len(whole) for key, whole in self.cells._whole.items()}
        assert self.cells._size == sum(inside.values())

    def teardown(self) -> None:
        try:
            for key in KEYS:
                assert self.cells.length(key) == len(self.current.get(key, []))
                assert list(self.cells.elements(key)) == self.current.get(key, [])
        finally:
            self.long.stop()


class RocksMachine(ListMachine):
    """The same on RocksDB, stopped cleanly; its crashes are tested by themselves."""

    def new_stores(self) -> Any:
        self.folder = tempfile.TemporaryDirectory()
        return RocksStores(Path(self.folder.name), 8 * MIB, 8 * MIB)

    def stop(self, survive: int, *, is_clean: bool) -> None:  # noqa: ARG002
        self.state.close()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.state.close()
            self.stores.close()
            self.folder.cleanup()


def copied(model: Model) -> Model:
    return {key: list(numbers) for key, numbers in model.items()}


ListMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)
RocksMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
TestAnySequenceInMemory = ListMachine.TestCase
TestAnySequenceInRocks = RocksMachine.TestCase
