"""Times: how far event time had come at a cut, and where the tasks of a new generation take it up. Pure.

Source partitions go on with their own time. A stage with as many tasks as it had goes on task by task; one that has another
number takes the least time of all, which is equal in all of them but after odd awakenings. What a task hears from a stage
upstream is what that stage had announced, since at a cut nothing is under way between them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamkit.errors import Bug
from streamkit.model.ids import MIN_TIME
from streamkit.progress.channels import Status, combine
from streamkit.progress.source_clock import SourceState
from streamkit.progress.task_clock import ClockState
from streamkit.snapshots.manifest import Manifest, Part, StagePart, TaskTime

# What nobody has said anything of yet.
UNHEARD = (Status.ACTIVE, MIN_TIME)
# For each shuffle the watermark and the status of each of its channels.
ChannelTimes = dict[str, list[tuple[int, Status]]]


class Upstream(NamedTuple):
    """Where a shuffle of the new generation comes from, in names that do not change with it."""

    # As `StagePart.channels` calls it.
    shuffle: str
    # The stage that writes it, and how many tasks that has now.
    stage: str
    tasks: int


# Into the manifest.


def time_of_task(clock: ClockState) -> TaskTime:
    """What a part says of its task's time.

    Raises:
        Bug: timers are due, so this was no cut.
    """
    if clock.fired != clock.watermark:
        raise Bug(
            f"a cut has a task whose timers have fired up to {clock.fired}, and its watermark is {clock.watermark}"
        )
    return TaskTime(
        watermark=clock.watermark,
        advanced_at_ms=clock.advanced_at_ms,
        announced=(Status(clock.announced[0]), clock.announced[1]),
        counts=dict(clock.counts),
    )


def channels_of(clocks: Sequence[ClockState], names: Mapping[str, str]) -> ChannelTimes:
    """What the channels had said that the tasks of a stage read; `names` has the lasting name of each topic.

    Raises:
        Bug: two tasks have heard different things, so the cut was not aligned.
    """
    channels: ChannelTimes = {}
    for number, clock in enumerate(clocks):
        for topic, (watermarks, statuses) in clock.channels.items():
            heard = [(time, Status(status)) for time, status in zip(watermarks, statuses, strict=True)]
            if channels.setdefault(names[topic], heard) != heard:
                raise Bug(f'task {number} has heard other times of shuffle "{topic}" than an earlier one')
    return channels


# Out of it.


def clock_of_task(
    manifest: Manifest,
    stage: str,
    task: int,
    tasks: int,
    *,
    sources: Sequence[str] = (),
    shuffles: Mapping[str, Upstream] | None = None,
) -> ClockState:
    """The time with which a task begins, one of `tasks` of its stage; what the snapshot does not know begins at MIN_TIME.

    `sources` are the topics that it reads, `shuffles` the others, by their names in the new generation.
    """
    old = manifest.stages.get(stage)
    time = TaskTime() if old is None else _time_of(old, task, tasks)
    return ClockState(
        watermark=time.watermark,
        fired=time.watermark,
        advanced_at_ms=time.advanced_at_ms,
        sources={topic: state for topic in sources if (state := _source(manifest, topic, task)) is not None},
        channels={topic: _split(_channels(manifest, old, each)) for topic, each in (shuffles or {}).items()},
        announced=time.announced,
        counts=dict(time.counts),
    )


def differing_watermarks(stage: StagePart) -> int:
    """How many tasks of a stage had come further than the one that is furthest behind; for the report of a start."""
    watermarks = [part.time.watermark for part in stage.parts]
    return sum(watermark != min(watermarks) for watermark in watermarks)


def announced_by(stage: StagePart, tasks: int) -> list[tuple[Status, int]]:
    """What each of so many tasks is taken to have announced downstream."""
    told = [part.time.announced for part in _in_order(stage)]
    if tasks == stage.tasks:
        return told
    if stage.placement == "source":
        return (told + [UNHEARD] * tasks)[:tasks]
    return [combine(told)] * tasks


def _time_of(stage: StagePart, task: int, tasks: int) -> TaskTime:
    times = [part.time for part in _in_order(stage)]
    if tasks == stage.tasks:
        return times[task]
    if stage.placement == "source":
        return times[task] if task < len(times) else TaskTime()
    counts: Counter[str] = Counter()
    for each in times if task == 0 else ():
        counts.update(each.counts)
    return TaskTime(
        watermark=min(each.watermark for each in times),
        advanced_at_ms=max(each.advanced_at_ms for each in times),
        announced=announced_by(stage, tasks)[task],
        counts=dict(counts),
    )


def _source(manifest: Manifest, topic: str, partition: int) -> SourceState | None:
    found = manifest.sources.get(topic, {}).get(partition)
    return None if found is None or found.time is None else found.time.state()


def _channels(manifest: Manifest, reader: StagePart | None, upstream: Upstream) -> list[tuple[int, Status]]:
    writer = manifest.stages.get(upstream.stage)
    if writer is None:
        return [(MIN_TIME, Status.ACTIVE)] * upstream.tasks
    heard = None if reader is None else reader.channels.get(upstream.shuffle)
    if heard is not None and upstream.tasks == writer.tasks == len(heard):
        return heard
    return [(time, status) for status, time in announced_by(writer, upstream.tasks)]


def _split(channels: Sequence[tuple[int, Status]]) -> tuple[list[int], list[int]]:
    return [time for time, _ in channels], [int(status) for _, status in channels]


def _in_order(stage: StagePart) -> list[Part]:
    return sorted(stage.parts, key=lambda part: part.task)
