"""chain: the stage's operators as nested plain calls, run over a slice of records.

Before this step `task/ingest.py` cut a slice of records; after it the results stand in the outbox (`task/emit.py`)
and the changed state in the cells of the stores (`state/cells.py`). This is the hot loop: no await, no object per record.
"""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import msgspec

from streamkit.codec.naming import type_name
from streamkit.errors import DecodeError, Misconfigured, is_of_the_record, line_of, said
from streamkit.graph.stage import Input, Stage, StageStep, Target
from streamkit.model.records import LogRecord
from streamkit.operators.fused import InlineStep, fuse_loop, fuse_push, named, step_in
from streamkit.operators.step import MAIN, Fire, Held, NoOrigin, Origin, Ports, Push, Statements, Step, Timers
from streamkit.progress.source_clock import GeneratorFailed
from streamkit.progress.task_clock import StepTimers, TaskClock, TimerFailed
from streamkit.state.spec import StoreSpec
from streamkit.state.task_state import TaskState
from streamkit.task.heads import head_of, time_of
from streamkit.task.origin import RecordOrigin
from streamkit.task.outside import DECODE, WATERMARKS
from streamkit.task.time_passes import TimersLeft
from streamkit.task.time_rules import TimeRules

# Runs records through a chain, in order. Raises RecordFailed at the first record on which the chain raised: those
# before it are done, those after it are not.
Run = Callable[[list[LogRecord]], None]


class TaskScope:
    """What the steps of one task are bound to: its state, its time, the worker's outbox, the end of the span."""

    def __init__(
        self,
        partition: int,
        state: TaskState,
        clock: TaskClock,
        rules: TimeRules,
        outputs: Mapping[str, Statements],
    ) -> None:
        self.partition = partition
        self.clock = clock
        self.rules = rules
        self._state = state
        self._outputs = outputs
        self.held: list[tuple[Held, Push]] = []
        self.origin: Origin = NoOrigin()

    def of_record(self, origin: RecordOrigin) -> "TaskScope":
        """The same for steps that work on the record in hand: they know where it came from, and carry its headers on."""
        scope = copy(self)
        scope.origin = origin
        outputs = {topic: origin.carrying(out) for topic, out in self._outputs.items()}
        scope._outputs = outputs  # noqa: SLF001 - it is one of these itself
        return scope

    def cells(self, spec: StoreSpec) -> Any:
        """The cells of a declared store."""
        return self._state.cells(spec)

    def timers(self, spec: StoreSpec, fire: Fire) -> Timers:
        """The timers of a declared store, in the time that its kind says."""
        is_event = spec.kind == "event_timers"
        cells = self._state.cells(spec)
        timers = StepTimers(spec.name, cells, named(fire), self.clock, is_event=is_event)
        self.clock.add_step(timers)
        return timers

    def count(self, what: str, number: int = 1) -> None:
        """Count for the metrics."""
        self.clock.counts[what] += number

    def output(self, topic: str) -> Statements:
        """How to append to an output topic."""
        return self._outputs[topic]

    def at_span_end(self, held: Held, following: Push) -> None:
        """Remember who keeps results back until the span ends."""
        self.held.append((held, following))


class RecordFailed(Exception):
    """The chain raised on this record; `step` names the failing step, `DECODE` if it never entered the chain."""

    def __init__(self, record: LogRecord, step: str, cause: BaseException) -> None:
        super().__init__(step)
        self.record = record
        self.step = step
        self.cause = cause


def failed_behind(failed: GeneratorFailed) -> RecordFailed:
    """A record that was processed, and on which the watermark generator raised afterwards."""
    assert failed.record is not None
    return RecordFailed(failed.record, WATERMARKS, failed.cause)


class Paused(Exception):
    """There is too much due at once; go on with this record when the event loop has had its turn."""

    def __init__(self, record: LogRecord) -> None:
        super().__init__()
        self.record = record


class Chain(msgspec.Struct):
    """A stage bound to one task: what runs the records of each input, and who keeps results back until the span ends."""

    entries: dict[str, Run]
    # By source with event time: what the loop took for the event time of a record.
    times: dict[str, Callable[[LogRecord], int]]
    held: list[tuple[Held, Push]]
    clean_steps: frozenset[str]


def bind(stage: Stage, scope: TaskScope) -> Chain:
    """Bind the steps of a stage from its ends to its inputs; rows of simple steps are fused."""
    binding = _Binding(stage, scope)
    entries = {each.topic: binding.entry(each) for each in stage.inputs}
    clean = {step.step.name for step in stage.steps if step.fails_clean}
    sources = (each for each in stage.inputs if each.topic in scope.clock.sources)
    times = {each.topic: time_of(each, scope.clock.sources[each.topic], _decoder(each)) for each in sources}
    return Chain(entries, times, scope.held, frozenset(clean | {DECODE}))


class _Binding:
    """The steps of one stage on their way to functions, each bound once."""

    def __init__(self, stage: Stage, scope: TaskScope) -> None:
        self._steps = {step.id: step for step in stage.steps}
        # Two scopes that share all but what they know of the record in hand.
        self._origin = RecordOrigin(scope.clock, stage.carry_headers)
        self._scope = scope.of_record(self._origin)
        self._scope_of_many = scope
        self._bound: dict[int, Ports] = {}

    def entry(self, source: Input) -> Run:
        """The loop over the records of one input, with the first steps inside it."""
        codes, following = self._row(source.entry)
        loop = fuse_loop(
            head_of(source, self._scope.clock, self._scope.rules, _decoder(source)), codes, following
        )
        origin, topic = self._origin, source.topic if source.kind == "source" else None

        def run(records: list[LogRecord]) -> None:
            try:
                loop(origin.enter(topic, records))
            except TimerFailed:
                raise
            except TimersLeft as left:
                raise Paused(_record_in_hand(left, loop)) from None
            except GeneratorFailed as failed:
                raise failed_behind(failed) from failed
            except BaseException as error:
                if not is_of_the_record(error):
                    raise
                record, step = _record_in_hand(error, loop), failing_step(error)
                if step == DECODE and record.value is None and not source.value_codec().nullable:
                    error = _without_value(source)
                raise RecordFailed(record, step, error) from error
            finally:
                origin.leave()

        return run

    def push(self, targets: tuple[Target, ...]) -> Push:
        """What stands behind an output of a step: the inputs to which its records go."""
        if len(targets) != 1:
            return _fan_out([self.push((target,)) for target in targets])
        target = targets[0]
        if target.step not in self._bound:
            self._bound[target.step] = self._inputs(target)
        return self._bound[target.step][target.port]

    def _inputs(self, target: Target) -> Ports:
        """The functions of the step of a target, bound to all that follows it."""
        step = self._steps[target.step]
        if isinstance(step.step, InlineStep):
            return {MAIN: fuse_push(*self._row((target,)))}
        outputs = {MAIN: self.push(step.downstream)}
        outputs |= {port: self.push(targets) for port, targets in step.sides.items()}
        bound = start_step(step.step, outputs, self._scope_for(step))
        return {port: named(push) for port, push in bound.items()}

    def _row(self, targets: tuple[Target, ...]) -> tuple[list[Statements], Push]:
        """The simple steps in a row from here on, and the push of what comes behind them."""
        codes = []
        while len(targets) == 1:
            step = self._steps[targets[0].step]
            if not isinstance(step.step, InlineStep):
                break
            codes.append(step.step.code(self._scope_for(step)))
            targets = step.downstream
        return codes, self.push(targets)

    def _scope_for(self, step: StageStep) -> TaskScope:
        return self._scope_of_many if step.is_of_many else self._scope


def start_step(step: Step, outputs: Ports, scope: TaskScope) -> Ports:
    """A step bound to its task, which may call the user's `open`.

    Raises:
        Misconfigured: that raised; there is no record to blame, so a person must look.
    """
    try:
        return step.bind(outputs, scope)
    except BaseException as error:
        if not is_of_the_record(error):
            raise
        raise Misconfigured(
            f'step "{step.name}" cannot be started: its open() raised',
            where=line_of(error),
            detail=said(error),
            hint="fix it, or do what may fail in on_record, where the pipeline's error policy decides; then start again",
        ) from error


def _fan_out(pushes: list[Push]) -> Push:
    def push(key: bytes | None, value: Any, timestamp: int) -> None:
        for following in pushes:
            following(key, value, timestamp)

    return push


def _decoder(source: Input) -> Callable[[Any], Any]:
    codec = source.value_codec()
    if not codec.nullable:
        return codec.decode
    decode = codec.decode
    return lambda value: None if value is None else decode(value)


def _without_value(source: Input) -> DecodeError:
    name = type_name(source.value_type)
    return DecodeError(
        f'topic "{source.topic}" has a record without a value (a tombstone), and its values are of type {name}',
        hint=f'declare it as topic("{source.topic}", {name} | None): such a record is then None; a filter leaves it out',
    )


def _record_in_hand(error: BaseException, loop: Any) -> LogRecord:
    """The record at which a loop was when it raised: a variable of its frame, which is the outermost of this code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not loop.__code__:
        trace = trace.tb_next
    assert trace is not None
    record: LogRecord = trace.tb_frame.f_locals["record"]
    return record


def failing_step(error: BaseException) -> str:
    """The step in which an error was raised, read off its traceback; `DECODE` if none was entered."""
    step = DECODE
    trace = error.__traceback__
    while trace is not None:
        step = step_in(trace) or step
        trace = trace.tb_next
    return step
