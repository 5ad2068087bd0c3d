import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import Bug
from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.progress.channels import Channels, Status, combine
from streamkit.progress.source_clock import SourceState
from streamkit.progress.task_clock import ClockState, TaskClock
from streamkit.snapshots.manifest import (
    Manifest,
    Part,
    SourcePartition,
    SourceTime,
    StagePart,
    TaskTime,
)
from streamkit.snapshots.times import (
    UNHEARD,
    Upstream,
    announced_by,
    channels_of,
    clock_of_task,
    differing_watermarks,
    time_of_task,
)
from tests.snapshots.making import manifest_of

ACTIVE, IDLE, FINISHED = Status.ACTIVE, Status.IDLE, Status.FINISHED
READS = SourceState(highest=90, watermark=80, generator=b"\x01", end=7)


def source_stage(*announced: tuple[Status, int]) -> StagePart:
    parts = [
        Part(task=task, time=TaskTime(watermark=told[1], announced=told, counts={"late": task}))
        for task, told in enumerate(announced)
    ]
    return StagePart(placement="source", tasks=len(parts), parts=tuple(parts))


def keyed_stage(*times: TaskTime, channels: list[tuple[int, Status]] | None = None) -> StagePart:
    parts = [Part(task=task, time=time) for task, time in enumerate(times)]
    return StagePart(
        placement="groups",
        tasks=len(parts),
        parts=tuple(reversed(parts)),
        channels={} if channels is None else {"totals": channels},
    )


def at_cut() -> Manifest:
    """A source stage of two tasks, the second of which is finished, and behind it one of two, and one of three."""
    return manifest_of(
        {
            "reads": source_stage((ACTIVE, 80), (FINISHED, MAX_TIME)),
            "totals": keyed_stage(
                TaskTime(
                    watermark=80, advanced_at_ms=5, announced=(ACTIVE, 80), counts={"late": 1, "open": 4}
                ),
                TaskTime(watermark=82, advanced_at_ms=9, announced=(IDLE, 82), counts={"late": 2}),
                channels=[(80, ACTIVE), (MAX_TIME, FINISHED)],
            ),
            "report": keyed_stage(TaskTime(), TaskTime(), TaskTime()),
        },
        sources={
            "orders": {
                0: SourcePartition(position=3, time=SourceTime.of(READS)),
                1: SourcePartition(position=4),
            }
        },
    )


def test_a_task_of_a_stage_that_kept_its_count_goes_on_where_it_was() -> None:
    clock = clock_of_task(
        at_cut(), "totals", 1, 2, shuffles={"shop.g2.totals": Upstream("totals", "reads", 2)}
    )
    assert clock == ClockState(
        watermark=82,
        fired=82,
        advanced_at_ms=9,
        channels={"shop.g2.totals": ([80, MAX_TIME], [ACTIVE, FINISHED])},
        announced=(IDLE, 82),
        counts={"late": 2},
    )


@pytest.mark.parametrize("tasks", [1, 3, 8])
def test_a_task_of_a_rescaled_stage_takes_the_least_of_all(tasks: int) -> None:
    clocks = [clock_of_task(at_cut(), "totals", task, tasks) for task in range(tasks)]
    assert {(each.watermark, each.fired, each.advanced_at_ms, each.announced) for each in clocks} == {
        (80, 80, 9, (ACTIVE, 80))
    }
    assert clocks[0].counts == {"late": 3, "open": 4}
    assert all(each.counts == {} for each in clocks[1:])
    assert differing_watermarks(at_cut().stages["totals"]) == 1


def test_source_partitions_keep_their_time_and_new_ones_begin_at_the_beginning() -> None:
    old, untimed, new = (clock_of_task(at_cut(), "reads", task, 3, sources=["orders"]) for task in range(3))
    assert old.sources == {"orders": READS}
    assert (old.watermark, old.announced, old.counts) == (80, (ACTIVE, 80), {"late": 0})
    assert (untimed.sources, untimed.announced) == ({}, (FINISHED, MAX_TIME))
    assert new == ClockState()


def test_the_channels_of_a_rescaled_stage_are_what_it_had_announced_together() -> None:
    reads_totals = {"new": Upstream("report", "totals", 4)}
    clock = clock_of_task(at_cut(), "report", 0, 3, shuffles=reads_totals)
    assert clock.channels == {"new": ([80] * 4, [ACTIVE] * 4)}


def test_the_channels_of_a_source_that_grew_are_as_they_were_and_the_new_ones_are_waited_for() -> None:
    clock = clock_of_task(at_cut(), "totals", 0, 5, shuffles={"new": Upstream("totals", "reads", 3)})
    assert clock.channels == {"new": ([80, MAX_TIME, MIN_TIME], [ACTIVE, FINISHED, ACTIVE])}


def test_a_shuffle_that_is_new_begins_with_what_its_writer_had_announced() -> None:
    """Or a writer that has nothing more to say would be waited for for ever."""
    clock = clock_of_task(at_cut(), "totals", 0, 2, shuffles={"new": Upstream("others", "reads", 2)})
    assert clock.channels == {"new": ([80, MAX_TIME], [ACTIVE, FINISHED])}
    fresh = clock_of_task(at_cut(), "brand new", 0, 2, shuffles={"new": Upstream("others", "totals", 2)})
    assert fresh.channels == {"new": ([80, 82], [ACTIVE, IDLE])}
    assert msgspec.structs.replace(fresh, channels={}) == ClockState()


def test_a_stage_that_is_new_has_said_nothing() -> None:
    clock = clock_of_task(at_cut(), "totals", 0, 2, shuffles={"new": Upstream("totals", "brand new", 3)})
    assert clock.channels == {"new": ([MIN_TIME] * 3, [ACTIVE] * 3)}


TOLD = st.tuples(st.sampled_from(Status), st.integers(0, 9)).map(
    lambda told: (told[0], MAX_TIME) if told[0] is FINISHED else told
)


@given(told=st.lists(TOLD, min_size=1, max_size=5), tasks=st.integers(1, 8))
def test_rescaling_upstream_changes_nothing_of_what_its_reader_knows(
    told: list[tuple[Status, int]], tasks: int
) -> None:
    stage = keyed_stage(*(TaskTime(announced=each) for each in told))
    assert combine(announced_by(stage, tasks)) == combine(told)


@given(told=st.lists(TOLD, min_size=1, max_size=5), more=st.integers(1, 4))
def test_a_source_that_grows_holds_its_reader_where_it_is(told: list[tuple[Status, int]], more: int) -> None:
    announced = announced_by(source_stage(*told), len(told) + more)
    assert announced == told + [UNHEARD] * more


def clock(
    watermark: int = 5, fired: int | None = None, channels: tuple[list[int], list[int]] = ([1], [0])
) -> ClockState:
    return ClockState(
        watermark=watermark,
        fired=watermark if fired is None else fired,
        advanced_at_ms=3,
        channels={"topic": channels},
        announced=(1, 4),
        counts={"late": 1},
    )


def test_what_a_clock_says_goes_into_the_manifest() -> None:
    assert time_of_task(clock()) == TaskTime(
        watermark=5, advanced_at_ms=3, announced=(IDLE, 4), counts={"late": 1}
    )
    assert channels_of([clock(), clock(), ClockState()], {"topic": "totals"}) == {"totals": [(1, ACTIVE)]}


def test_what_cannot_be_at_a_cut_is_a_bug() -> None:
    with pytest.raises(Bug, match="timers have fired up to 4"):
        time_of_task(clock(fired=4))
    with pytest.raises(Bug, match='task 1 has heard other times of shuffle "topic"'):
        channels_of([clock(), clock(channels=([2], [0]))], {"topic": "totals"})


def test_a_clock_opens_with_what_was_made_of_a_manifest() -> None:
    state = clock_of_task(at_cut(), "totals", 0, 2, shuffles={"new": Upstream("totals", "reads", 2)})
    opened = TaskClock(state, {}, {"new": Channels(2)}, lambda: 0, lambda: 0)
    assert opened.snapshot() == state
    assert opened.channels["new"].combined == (ACTIVE, 80)
