"""chain: the stage's operators as nested plain calls, run over a slice of records.

Before this step `runtime/ingest.py` found the task and the decoder; after it the results stand in the outbox
(`runtime/emit.py`) and the changed state in the overlay. This is the hot loop: no await, no object per record.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from streamkit.graph.stage import Stage
from streamkit.kafka.ports import LogRecord
from streamkit.operators.step import Append, Held, Push
from streamkit.state.cells import MapCells, ValueCells
from streamkit.state.spec import StoreSpec
from streamkit.state.task_state import TaskState

Decode = Callable[[Any], Any]

# The name that stands for the step before the chain: bytes to a value.
DECODE = "decode"


class TaskScope:
    """What the steps of one task are bound to: its state, the worker's outbox, the end of the span."""

    def __init__(self, partition: int, state: TaskState, outputs: Mapping[str, Append]) -> None:
        self.partition = partition
        self._state = state
        self._outputs = outputs
        self.held: list[tuple[Held, Push]] = []

    def value_cells(self, spec: StoreSpec) -> ValueCells:
        """The cells of a declared value store."""
        return self._state.value_cells(spec)

    def map_cells(self, spec: StoreSpec) -> MapCells:
        """The cells of a declared map store."""
        return self._state.map_cells(spec)

    def output(self, topic: str) -> Append:
        """The outbox lane of an output topic."""
        return self._outputs[topic]

    def at_span_end(self, held: Held, following: Push) -> None:
        """Remember who keeps results back until the span ends."""
        self.held.append((held, following))


class RecordFailed(Exception):
    """The chain raised on this record; `step` names the failing step, `DECODE` if it never entered the chain."""

    def __init__(self, record: LogRecord, step: str, cause: Exception) -> None:
        super().__init__(step)
        self.record = record
        self.step = step
        self.cause = cause


class Chain(msgspec.Struct):
    """A stage bound to one task: where records of each input enter, and who keeps results back until the span ends."""

    entries: dict[str, Push]
    held: list[tuple[Held, Push]]
    clean_steps: frozenset[str]


def bind(stage: Stage, scope: TaskScope) -> Chain:
    """Bind the steps of a stage from its ends to its inputs."""
    steps = {step.id: step for step in stage.steps}
    bound: dict[int, Push] = {}

    def push_of(step_id: int) -> Push:
        if step_id not in bound:
            step = steps[step_id]
            bound[step_id] = step.step.bind(_fan_out([push_of(i) for i in step.downstream]), scope)
        return bound[step_id]

    entries = {entry.topic: _fan_out([push_of(i) for i in entry.entry]) for entry in stage.inputs}
    clean = {step.step.name for step in stage.steps if step.fails_clean}
    return Chain(entries, scope.held, frozenset(clean | {DECODE}))


def _fan_out(pushes: list[Push]) -> Push:
    if len(pushes) == 1:
        return pushes[0]

    def push(key: bytes | None, value: Any, timestamp: int) -> None:
        for following in pushes:
            following(key, value, timestamp)

    return push


def run(records: list[LogRecord], decode: Decode, push: Push) -> None:
    """Run records through a chain, in order.

    Raises:
        RecordFailed: at the first record on which the chain raised; those before it are done, those after it not.
    """
    record = records[0]
    try:
        for record in records:
            push(record.key, decode(record.value), record.timestamp)
    except Exception as error:
        raise RecordFailed(record, failing_step(error), error) from error


def failing_step(error: Exception) -> str:
    """The step in which an error was raised, read off its traceback; `DECODE` if none was entered."""
    step = DECODE
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "push":
            step = trace.tb_frame.f_locals.get("step", step)
        trace = trace.tb_next
    return step
