"""A scope without a runtime: real cells over a plain dict of rows, outputs in lists, spans ended by hand."""

from collections.abc import Iterable
from typing import Any

from streamkit.model.keys import GroupPrefixes
from streamkit.operators.fused import named, step_in
from streamkit.operators.step import MAIN, Held, NoOrigin, Push, Statements, Step
from streamkit.state.cells import Cells
from streamkit.state.keys import store_id
from streamkit.state.kinds import as_frozen, cells_class
from streamkit.state.spec import StoreSpec

Written = tuple[bytes | None, bytes | None, int]
Pushed = tuple[bytes | None, Any, int]


class Rows(dict[bytes, bytes]):
    """What was committed, as the cells read it."""

    def find(self, key: bytes) -> bytes | None:
        return self.get(key)

    def find_all(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        return [(key, data) for key, data in self.items() if key.startswith(prefix)]


def writing_to(written: list[Written]) -> Statements:
    """What a step does to write a record into a list."""
    return Statements("", ("written.append((out_key, data, timestamp))",), {"written": written})


class FakeScope:
    """Enough of a task to bind steps against. `rows` may be handed to another scope: a restart."""

    def __init__(self, partition: int = 0, rows: Rows | None = None) -> None:
        self.partition = partition
        self.origin = NoOrigin()
        self.rows = Rows() if rows is None else rows
        self.written: dict[str, list[Written]] = {}
        self._prefixes = GroupPrefixes()
        self._cells: dict[str, Cells] = {}
        self._held: list[tuple[Held, Push]] = []

    def cells(self, spec: StoreSpec) -> Any:
        if spec.name not in self._cells:
            self._cells[spec.name] = cells_class(spec)(spec, store_id(spec.name), self._prefixes, self.rows)
        return self._cells[spec.name]

    def output(self, topic: str) -> Statements:
        return writing_to(self.written.setdefault(topic, []))

    def at_span_end(self, held: Held, following: Push) -> None:
        self._held.append((held, following))

    def end_span(self) -> None:
        """Let go upstream first (steps are bound from the end), then commit."""
        for held, following in reversed(self._held):
            for record in held.take():
                following(*record)
        frozen: dict[bytes, bytes | None] = {}
        for cells in as_frozen(self._cells.values()):
            cells.freeze(frozen, {})
        for key, data in frozen.items():
            if data is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = data


class Chain:
    """Some steps in a row, and what came out at their end."""

    def __init__(self, *steps: Step, scope: FakeScope | None = None) -> None:
        self.scope = scope or FakeScope()
        self.out: list[Pushed] = []

        def collect(key: bytes | None, value: Any, timestamp: int) -> None:
            self.out.append((key, value, timestamp))

        push: Push = collect
        for step in reversed(steps):
            push = named(step.bind({MAIN: push}, self.scope)[MAIN])
        self.push = push

    @property
    def values(self) -> list[Any]:
        return [value for _, value, _ in self.out]


def steps_in(error: BaseException) -> list[str]:
    """The steps that an error came through, from the traceback."""
    found, trace = [], error.__traceback__
    while trace is not None:
        found += [step] if (step := step_in(trace)) else []
        trace = trace.tb_next
    return found
