"""Finishing: what happens when a window fires. Its contents become results, and those go downstream."""

import copy
from collections.abc import Callable
from typing import Any

from streamkit.operators.side import listeners
from streamkit.operators.stateless import DecodedKeys
from streamkit.operators.step import MAIN, Ports, Push, Scope
from streamkit.state.holder import hold
from streamkit.state.value_cells import WindowCells
from streamkit.windows.contents import Element, adding_to_accumulator, fold_elements
from streamkit.windows.definition import WindowDefinition
from streamkit.windows.process import (
    CurrentWindow,
    WindowContext,
    WindowProcess,
    WindowValue,
    declarations,
)
from streamkit.windows.window import Window, encode_namespace

# Called with key, window, the result of the fold and a timestamp in ms: sends it on.
Send = Callable[[bytes, Window, Any, int], None]
# Called with key, window, contents and a timestamp in ms: sends on what they amount to, and returns what stays of them.
Finish = Callable[[bytes, Window, Any, int], Any]


class Process:
    """A WindowProcess in one task: a copy of its own, bound to the state that it declares."""

    def __init__(
        self, step: WindowDefinition, process: WindowProcess[Any, Any, Any], outputs: Ports, scope: Scope
    ) -> None:
        self.ctx: WindowContext[Any] = WindowContext(
            scope.partition, outputs[MAIN], listeners(step.sides, outputs)
        )
        self._own = copy.copy(process)
        self._keys = DecodedKeys(step.key_type, step.name)
        self._current = CurrentWindow()
        self._window_cells: list[WindowCells] = []
        declared = declarations(process)
        for name, spec in step.declared_stores.items():
            cells = scope.cells(spec)
            if isinstance(declared[name], WindowValue):
                self._window_cells.append(cells)
            hold(self._own, name, declared[name]._bind(cells, self._current))  # noqa: SLF001 - for the runtime alone

    def run(self, key: bytes, window: Window, elements: list[Any], timestamp: int) -> None:
        """The window fires."""
        self._enter(key, window, timestamp)
        self._own.process(self._keys[key], window, elements, self.ctx)

    def clear(self, key: bytes, window: Window, timestamp: int) -> None:
        """The window closes for good."""
        self._enter(key, window, timestamp)
        self._own.clear(self.ctx)
        pair = self._current.pair.key
        for cells in self._window_cells:
            if cells.get(pair) is not None:
                cells.delete(pair)

    def _enter(self, key: bytes, window: Window, timestamp: int) -> None:
        self._current.enter(key, encode_namespace(window))
        self.ctx.enter(key, window, timestamp)


def sending(step: WindowDefinition, following: Push, process: Process | None = None) -> Send:
    """How the result of a fold goes on: as it is, or as what `into` or the process makes of it."""
    into = step.into
    if process is not None:

        def send(key: bytes, window: Window, result: Any, timestamp: int) -> None:
            process.run(key, window, [result], timestamp)

    elif into is not None:
        keys = DecodedKeys(step.key_type, step.name)

        def send(key: bytes, window: Window, result: Any, timestamp: int) -> None:
            following(key, into(keys[key], window, result), timestamp)

    else:

        def send(key: bytes, window: Window, result: Any, timestamp: int) -> None:  # noqa: ARG001
            following(key, result, timestamp)

    return send


def finishing(step: WindowDefinition, following: Push, process: Process | None) -> Finish:
    """What firing does with the contents of a window."""
    send = sending(step, following, process)
    if step.keeps_elements:
        return _finishing_elements(step, send, process)
    assert step.fold is not None
    result = step.fold.result

    def finish(key: bytes, window: Window, contents: Any, timestamp: int) -> Any:
        send(key, window, result(contents), timestamp)
        return contents

    return finish


def _finishing_elements(step: WindowDefinition, send: Send, process: Process | None) -> Finish:
    evictor = step.windows.evictor
    send_all = _sending_elements(step, send, process)

    def finish(key: bytes, window: Window, elements: list[Element], timestamp: int) -> list[Element]:
        kept = elements if evictor is None else evictor.before(elements, window)
        if kept:
            send_all(key, window, kept, timestamp)
        return kept if evictor is None or not kept else evictor.after(kept, window)

    return finish


def _sending_elements(step: WindowDefinition, send: Send, process: Process | None) -> Send:
    """Fold the elements, or hand them all to the process."""
    fold = step.fold
    if fold is None:
        assert process is not None

        def send_all(key: bytes, window: Window, elements: list[Element], timestamp: int) -> None:
            process.run(key, window, [value for _, value in elements], timestamp)

        return send_all
    add, result = adding_to_accumulator(fold), fold.result

    def send_folded(key: bytes, window: Window, elements: list[Element], timestamp: int) -> None:
        contents = fold_elements(add, elements)
        if contents is not None:
            send(key, window, result(contents), timestamp)

    return send_folded
