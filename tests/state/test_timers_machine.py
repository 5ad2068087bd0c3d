"""Timers against a sorted set: whatever is done to them, in memory and on disk."""

from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.state import timers as module
from streamkit.state.memory import MemoryStores
from streamkit.state.rocks import RocksStores
from streamkit.state.store import StateStores
from streamkit.state.timers import StoredTimer
from tests.state.alarms import EVENT, MIB, PROCESSING, new_state

KEYS = [b"", b"a", b"ab", b"abc", b"b"]
TIMES = [MIN_TIME, MIN_TIME + 1, -256, -1, 0, 1, 2, 3, 255, 256, MAX_TIME - 1, MAX_TIME]
NAMESPACES = [b"", b"a", b"\x00"]
STEPS = [EVENT, PROCESSING]

Changes = list[tuple[str, int, bytes, int, bytes]]
changes = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "remove", "pop", "pop_all"]),
        st.integers(0, len(STEPS) - 1),
        st.sampled_from(KEYS),
        st.sampled_from(TIMES),
        st.sampled_from(NAMESPACES),
    ),
    min_size=2,
    max_size=14,
)
Model = list[set[StoredTimer]]


class TimersMachine(RuleBasedStateMachine):
    """Changes, commits, drops, writes and restarts in any order: what comes due is what a sorted set would give."""

    make_stores: Callable[[Path], StateStores]

    def __init__(self) -> None:
        super().__init__()
        self.patches = [patch.object(module, "LOADED_AT_ONCE", 2), patch.object(module, "NEAR_MAX", 4)]
        for each in self.patches:
            each.start()
        self.folder = Path(mkdtemp())
        self.stores = type(self).make_stores(self.folder)
        self.frozen: list[tuple[dict[bytes, bytes | None], Model]] = []
        self.committed: Model = [set() for _ in STEPS]
        self.open()

    def open(self) -> None:
        self.state = new_state(self.stores)
        self.cells = [self.state.cells(spec) for spec in STEPS]
        self.go_back()

    def go_back(self) -> None:
        self.frozen.clear()
        self.current: Model = [set(each) for each in self.committed]

    def process(self, changes: Changes) -> None:
        for name, step, key, time, namespace in changes:
            cells, model, timer = self.cells[step], self.current[step], StoredTimer(key, time, namespace)
            match name:
                case "add":
                    cells.add(*timer)
                    model.add(timer)
                case "remove":
                    cells.remove(*timer)
                    model.discard(timer)
                case "pop":
                    self.pop(step, time)
                case _:
                    while self.pop(step, time):
                        pass
            assert cells.next_due <= min((each.time for each in model), default=MAX_TIME)

    def pop(self, step: int, up_to: int) -> bool:
        """The earliest timer that is due; which of several of one moment is not promised."""
        cells, model = self.cells[step], self.current[step]
        earliest = min((each.time for each in model), default=None)
        popped = cells.pop_due(up_to)
        if earliest is None or earliest > up_to:
            assert popped is None
            assert cells.next_due == (MAX_TIME if earliest is None else earliest)
            return False
        assert popped is not None
        assert popped.time == earliest
        model.remove(popped)
        return True

    @rule(changes=changes, meanwhile=changes, left_in_flight=st.integers(0, 2))
    def commit(self, changes: Changes, meanwhile: Changes, left_in_flight: int) -> None:
        self.process(changes)
        self.frozen.append((self.state.freeze(), [set(each) for each in self.current]))
        self.process(meanwhile)
        while len(self.frozen) > left_in_flight:
            rows, self.committed = self.frozen.pop(0)
            self.state.committed(rows, self.state.changelog_offset + 1)

    @rule(changes=changes)
    def drop(self, changes: Changes) -> None:
        self.process(changes)
        self.state.drop()
        self.go_back()

    @rule(changes=changes)
    def write_pending(self, changes: Changes) -> None:
        self.process(changes)
        self.state.write_pending()

    @rule(changes=changes)
    def restart(self, changes: Changes) -> None:
        self.process(changes)
        self.state.close()
        self.open()

    @rule(changes=changes)
    def recover_in_place(self, changes: Changes) -> None:
        """A commit in doubt has landed: its rows come back through the changelog."""
        self.process(changes)
        landed: dict[bytes, bytes | None] = {}
        if self.frozen:
            landed, self.committed = self.frozen[0]
            landed = dict(landed)
        self.state.drop()
        self.state.restore(landed, self.state.changelog_offset + 1)
        self.go_back()

    @invariant()
    def little_is_in_memory(self) -> None:
        assert all(cells.near() <= 4 for cells in self.cells)

    def teardown(self) -> None:
        for step in range(len(STEPS)):
            while self.pop(step, MAX_TIME):
                pass
        self.state.close()
        self.stores.close()
        rmtree(self.folder)
        for each in self.patches:
            each.stop()


class OnMemory(TimersMachine):
    make_stores = staticmethod(lambda _: MemoryStores())


class OnRocks(TimersMachine):
    make_stores = staticmethod(lambda folder: RocksStores(folder, 8 * MIB, 8 * MIB))


def machine_test(machine: type[TimersMachine], examples: int) -> Any:
    # Without shrinking: on a disk it takes minutes, and a sequence that fails fails on any machine.
    machine.TestCase.settings = settings(
        max_examples=examples, stateful_step_count=12, deadline=None, phases=[Phase.explicit, Phase.generate]
    )
    return machine.TestCase


TestAnySequenceOnMemory = machine_test(OnMemory, 60)
TestAnySequenceOnRocks = machine_test(OnRocks, 8)
