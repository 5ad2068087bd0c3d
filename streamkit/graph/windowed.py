"""The steps behind windows: what `window(...)` was told, and one window step for each result that is made of it."""

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

from streamkit.codec.annotations import returned_type
from streamkit.codec.naming import call_name
from streamkit.errors import InvalidPipeline
from streamkit.graph.builder import Builder
from streamkit.graph.functions import require_aggregator
from streamkit.graph.node import Node, Operation
from streamkit.model.topic import Topic
from streamkit.operators.aggregators import Aggregator
from streamkit.windows.assigners import Session
from streamkit.windows.contents import Reducing, require_merge
from streamkit.windows.definition import Emit, Windowing, emitting
from streamkit.windows.late import LATE
from streamkit.windows.process import WindowProcess, emitted_type, require_process
from streamkit.windows.step import WindowStep
from streamkit.windows.window import Window

K = TypeVar("K")
R = TypeVar("R")
M = TypeVar("M")

# What makes the records that go on of the results R of a fold: into(key, window, result), or a class with its own state.
Into = Callable[[K, Window, R], M] | WindowProcess[K, R, M]


class How(TypedDict, total=False):
    """What every result of windows may be told."""

    to: Any
    name: str | None
    emit: Emit


class WindowSteps:
    """Adds the steps of one `window(...)` to a graph. The topic for late records is for one of them alone."""

    def __init__(
        self, builder: Builder, parent: Node, windows: Windowing, late: Topic[Any] | None, name: str | None
    ) -> None:
        self.builder = builder
        self._parent = parent
        self._windows = windows
        self._late = late
        self._name = name
        self._is_used = False

    def reducing(self, fn: Callable[[Any, Any], Any], name: str | None) -> Reducing:
        """The fold of a `reduce`, with the type of the values for its state."""
        chosen = name or self._name or call_name(fn) or "reduce"
        return Reducing(chosen, fn, self.builder.known_type(self._parent, needed_by=chosen))

    def fold(
        self, aggregator: Aggregator[Any, Any, Any], into: Any, to: Any, name: str | None, emit: Emit
    ) -> Operation:
        """Add a step that folds the values of each window."""
        require_aggregator(aggregator)
        process = into if isinstance(into, WindowProcess) else None
        made = into if process is None else None
        step = WindowStep(
            name=name or self._name or aggregator.name,
            windows=emitting(self._windows, emit),
            fold=aggregator,
            into=made,
            process=process,
            key_type=self._parent.key_type,
            value_type=self._parent.value_type,
        )
        if isinstance(self._windows.assigner, Session):
            require_merge(aggregator)
        if made is not None:
            found = returned_type(made)
        else:
            found = aggregator.result_type if process is None else emitted_type(process)
        return self._add(step, to or found, is_named=bool(name or self._name))

    def process(
        self, process: WindowProcess[Any, Any, Any], to: Any, name: str | None, emit: Emit
    ) -> Operation:
        """Add a step that hands the elements of each window to a class of the user's."""
        step = WindowStep(
            name=name or self._name or type(process).__name__,
            windows=emitting(self._windows, emit),
            process=process,
            key_type=self._parent.key_type,
            value_type=self._parent.value_type,
        )
        return self._add(step, to or emitted_type(process), is_named=bool(name or self._name))

    def _add(self, step: WindowStep, value_type: Any, *, is_named: bool) -> Operation:
        builder, parent = self.builder, self._parent
        if step.keeps_elements or not step.windows.is_default:  # a trigger may remember a record
            builder.known_type(parent, needed_by=step.name)
        if step.process is not None:
            require_process(step.process, step.windows.assigner)
        node = builder.operate(parent, step, value_type=value_type, is_named=is_named)
        if self._late is not None:
            self._require_first_use()
            late = builder.side(node, LATE, value_type=parent.value_type)
            builder.write(late, self._late, is_late=True)
        return node

    def _require_first_use(self) -> None:
        if self._is_used:
            raise InvalidPipeline(
                "two results of the same windows would write each late record twice",
                hint="call window(...) once for each result, and give late= to one of them",
            )
        self._is_used = True
