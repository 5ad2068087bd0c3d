"""Who holds event time back: a pipeline's clocks, as they were last committed, explained."""

from collections.abc import Mapping

import msgspec

from streamkit.graph.plan import Plan
from streamkit.graph.stage import Stage
from streamkit.kafka.ports import Log
from streamkit.model.ids import MAX_TIME, MIN_TIME, TaskId
from streamkit.progress.channels import Status, combine
from streamkit.progress.source_clock import SourceClock
from streamkit.progress.task_clock import ClockState
from streamkit.runtime.last_commits import last_commits
from streamkit.task.clock_state import CLOCK, decode_clock


class InputTime(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a task: a source partition or a channel, by the name of who sends."""

    name: str
    status: str
    event_time_ms: int | None
    # The task upstream, if it is one.
    task: TaskId | None = None


class TaskTime(msgspec.Struct, frozen=True, kw_only=True):
    """How far one task has come. `held_back_by` is the input that everything waits for; `root` is why that one waits.

    `event_time_ms` is None before the first record; `still_for_ms` is how long it has not advanced.
    """

    stage: str
    partition: int
    status: str
    event_time_ms: int | None
    delay_ms: int | None
    still_for_ms: int
    held_back_by: str | None
    root: str | None
    inputs: list[InputTime]


class TimeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Event time of a pipeline, as it was last committed; no tasks if nothing was."""

    pipeline: str
    tasks: list[TaskTime]


async def report_time(plan: Plan, log: Log, now_ms: int) -> TimeReport:
    """Read the clocks of all tasks from their last commits and explain them.

    Raises:
        Retry: a changelog gives no answer.
    """
    commits = await last_commits(plan, log)
    clocks = {
        task: decode_clock(record.extra[CLOCK]) for task, record in commits.items() if CLOCK in record.extra
    }
    return TimeReport(pipeline=plan.name, tasks=explain(plan, clocks, now_ms))


def explain(plan: Plan, clocks: Mapping[TaskId, ClockState], now_ms: int) -> list[TaskTime]:
    """Every task, in the order of the stages."""
    senders = _writers_of(plan)
    inputs = {task: _inputs(plan.stage(task.stage), task, clock, senders) for task, clock in clocks.items()}
    order = {stage.name: number for number, stage in enumerate(plan.stages)}
    return [
        _task_time(task, clocks[task], inputs, now_ms)
        for task in sorted(clocks, key=lambda each: (order[each.stage], each.partition))
    ]


def _task_time(
    task: TaskId, clock: ClockState, inputs: Mapping[TaskId, list[InputTime]], now_ms: int
) -> TaskTime:
    status, _ = combine((Status[each.status.upper()], _time(each)) for each in inputs[task])
    event_time = _shown(clock.fired)
    held = _holder(inputs[task]) if status is Status.ACTIVE else None
    return TaskTime(
        stage=task.stage,
        partition=task.partition,
        status=status.name.lower(),
        event_time_ms=event_time,
        delay_ms=None if event_time is None else max(0, now_ms - event_time),
        still_for_ms=max(0, now_ms - clock.advanced_at_ms),
        held_back_by=None if held is None else held.name,
        root=None if held is None else _root(held, inputs),
        inputs=inputs[task],
    )


def _inputs(stage: Stage, task: TaskId, clock: ClockState, senders: Mapping[str, str]) -> list[InputTime]:
    found: list[InputTime] = []
    for each in stage.inputs:
        if each.kind == "source" and each.topic in clock.sources:
            source = SourceClock(each.time, clock.sources[each.topic], elapsed_ms=0)
            name = f"{each.topic}[{task.partition}]"
            found.append(
                InputTime(
                    name=name, status=source.status.name.lower(), event_time_ms=_shown(source.watermark)
                )
            )
        for index, (watermark, status) in enumerate(
            zip(*clock.channels.get(each.topic, ([], [])), strict=True)
        ):
            sender = TaskId(senders[each.topic], index)
            found.append(
                InputTime(
                    name=str(sender),
                    status=Status(status).name.lower(),
                    event_time_ms=_shown(watermark),
                    task=sender,
                )
            )
    return found


def _holder(inputs: list[InputTime]) -> InputTime | None:
    """The input that is waited for: the least of the active ones."""
    active = [each for each in inputs if each.status == "active"]
    return min(active, key=_time, default=None)


def _root(held: InputTime, inputs: Mapping[TaskId, list[InputTime]]) -> str:
    """Follow what holds back to where it begins: a source partition, or a task that nothing is known of."""
    while held.task is not None:
        above = _holder(inputs.get(held.task, []))
        if above is None:
            break
        held = above
    return held.name


def _time(each: InputTime) -> int:
    return MIN_TIME if each.event_time_ms is None else each.event_time_ms


def _shown(time: int) -> int | None:
    return None if time in (MIN_TIME, MAX_TIME) else time


def _writers_of(plan: Plan) -> Mapping[str, str]:
    """For every shuffle topic the stage that writes to it."""
    return {
        output.topic: stage.name
        for stage in plan.stages
        for output in stage.outputs
        if output.kind == "shuffle"
    }
