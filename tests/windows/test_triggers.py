from typing import Any

import pytest

from streamkit.errors import InvalidPipeline, Misconfigured
from streamkit.model.duration import milliseconds, seconds
from streamkit.model.ids import MAX_TIME
from streamkit.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    Decision,
    DeltaTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeoutTrigger,
    Trigger,
    TriggerContext,
    Window,
    everything,
    session,
    tumbling,
)
from streamkit.windows.assigners import Assigner
from streamkit.windows.definition import windowing
from streamkit.windows.step import WindowStep
from tests.windows.scope import Task
from tests.windows.streams import Listed

TEN = tumbling(milliseconds(10))
SESSION = session(milliseconds(10))


def task(trigger: Trigger[Any] | None, windows: Assigner = TEN, lateness: int = 0) -> Task:
    chosen = windowing(windows, trigger=trigger, lateness=milliseconds(lateness) if lateness else None)
    return Task(WindowStep(name="w", windows=chosen, fold=Listed(), value_type=int))


def feed(task: Task, *records: tuple[int, int]) -> list[Any]:
    """Push (timestamp, value) pairs, and return what came out since the last call."""
    for timestamp, value in records:
        task.push(b"a", value, timestamp)
    taken = [value for _, value, _ in task.out]
    task.out.clear()
    return taken


def test_event_time_fires_once_at_the_end_and_at_each_late_record_that_is_allowed() -> None:
    each = task(None, lateness=5)
    assert feed(each, (1, 1), (9, 2)) == []
    each.advance(8)
    assert feed(each) == []
    each.advance(9)
    assert feed(each) == [[1, 2]]
    assert feed(each, (3, 3)) == [[1, 2, 3]]
    each.advance(13)
    assert feed(each, (3, 4)) == [[1, 2, 3, 4]]
    each.advance(14)
    assert feed(each, (3, 5)) == []
    assert each.late_records == 1
    assert each.rows == {}


def test_a_window_that_nobody_knew_may_still_open_while_it_is_allowed() -> None:
    each = task(None, lateness=5)
    each.advance(12)
    assert feed(each, (3, 1)) == [[1]]
    each.restart()
    assert feed(each, (3, 2)) == [[1, 2]]
    each.advance(14)
    assert each.rows == {}


def test_processing_time_fires_when_the_last_millisecond_is_over() -> None:
    each = task(None, tumbling(milliseconds(10), time="processing"))
    each.pass_time(9)
    assert feed(each, (1_000, 1), (5, 2)) == []
    each.pass_time(10)
    assert feed(each) == [[1, 2]]
    assert each.rows == {}


def test_at_the_end_of_all_input_nobody_waits_for_the_clock() -> None:
    each = task(None, tumbling(milliseconds(10), time="processing"))
    feed(each, (0, 1))
    each.advance(MAX_TIME)
    assert feed(each) == [[1]]
    assert each.rows == {}


def test_continuous_event_time_fires_at_every_multiple_and_at_the_end() -> None:
    each = task(
        ContinuousEventTimeTrigger(milliseconds(4)), tumbling(milliseconds(100), offset=milliseconds(-2))
    )
    feed(each, (1, 1))
    fired = []
    for watermark in range(100):
        each.advance(watermark)
        fired += [watermark] if feed(each) else []
    assert fired == [*range(4, 97, 4), 97]


def test_continuous_event_time_floors_also_before_1970() -> None:
    each = task(ContinuousEventTimeTrigger(milliseconds(4)), tumbling(milliseconds(100)))
    feed(each, (-99, 1))
    each.advance(-97)
    assert feed(each) == []
    each.advance(-96)
    assert feed(each) == [[1]]


def test_continuous_event_time_skips_multiples_that_are_over_already() -> None:
    each = task(ContinuousEventTimeTrigger(milliseconds(4)), tumbling(milliseconds(100)))
    each.advance(50)
    assert feed(each, (1, 1)) == []
    each.advance(51)
    assert feed(each) == []
    each.advance(52)
    assert feed(each) == [[1]]


def test_a_session_that_had_fired_at_its_end_and_grows_goes_on_with_the_next_multiple() -> None:
    each = task(ContinuousEventTimeTrigger(milliseconds(4)), SESSION, lateness=12)
    feed(each, (0, 1))
    each.advance(12)
    assert feed(each) == [[1]] * 3  # at 4, at 8 and at its end
    assert feed(each, (8, 2)) == []
    each.advance(15)
    assert feed(each) == []
    each.advance(17)
    assert feed(each) == [[1, 2]] * 2  # at 16 and at its end


@pytest.mark.parametrize(
    "trigger",
    [ContinuousEventTimeTrigger(milliseconds(4)), ContinuousProcessingTimeTrigger(milliseconds(4))],
    ids=["event", "processing"],
)
@pytest.mark.parametrize("windows", [everything(), tumbling(seconds(100))], ids=["everything", "tumbling"])
def test_continuous_triggers_come_to_an_end_with_the_input(trigger: Trigger[Any], windows: Assigner) -> None:
    each = task(trigger, windows)
    feed(each, (1, 1))
    each.advance(MAX_TIME)
    assert 1 <= len(feed(each)) <= 2


def test_continuous_processing_time_fires_by_the_clock_and_at_the_end_of_the_window() -> None:
    each = task(
        ContinuousProcessingTimeTrigger(milliseconds(4)), tumbling(milliseconds(10), time="processing")
    )
    each.pass_time(1)
    feed(each, (0, 1))
    fired = []
    for now in range(1, 30):
        each.pass_time(now)
        fired += [now] if feed(each) else []
    assert fired == [4, 8, 10]
    assert each.rows == {}


def test_continuous_processing_time_goes_on_for_windows_that_are_long_over_on_the_wall() -> None:
    """Old records are read again: their windows end in event time, which the clock left behind long ago."""
    each = task(ContinuousProcessingTimeTrigger(milliseconds(4)))
    each.pass_time(1_001)
    feed(each, (1, 1))
    fired = []
    for now in range(1_001, 1_014):
        each.pass_time(now)
        fired += [now] if feed(each) else []
    assert fired == [1_004, 1_008, 1_012]
    feed(each, (1, 2))
    each.advance(9)
    assert feed(each) == [[1, 2]]
    assert each.rows == {}


def test_count_fires_at_every_nth_record_and_not_at_the_end() -> None:
    each = task(CountTrigger(2))
    assert feed(each, (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)) == [[1, 2], [1, 2, 3, 4]]
    each.advance(9)
    assert feed(each) == []
    assert each.rows == {}


def test_counts_of_sessions_add_up_when_they_become_one() -> None:
    each = task(CountTrigger(4), SESSION)
    assert feed(each, (0, 1), (18, 2), (19, 3)) == []
    assert feed(each, (9, 4)) == [[1, 2, 3, 4]]


def test_a_session_that_grows_takes_the_timers_of_its_former_self_with_it() -> None:
    times: list[int] = []

    class Noted(EventTimeTrigger):
        def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> Decision:
            times.append(time)
            return super().on_event_time(time, window, ctx)

    each = task(Noted(), SESSION)
    feed(each, (0, 1), (5, 2), (20, 3), (14, 4))
    each.advance(100)
    assert feed(each) == [[1, 2, 3, 4]]
    assert times == [29]


def test_delta_fires_when_a_value_is_far_from_the_one_it_last_fired_at() -> None:
    each = task(DeltaTrigger[int](3, lambda last, new: new - last))
    assert feed(each, (1, 10), (2, 13), (3, 14), (4, 17), (5, 18)) == [[10, 13, 14], [10, 13, 14, 17, 18]]


def test_purging_drops_what_it_has_sent_on() -> None:
    each = task(PurgingTrigger(CountTrigger(2)))
    assert feed(each, (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)) == [[1, 2], [3, 4]]
    each.advance(9)
    assert feed(each) == []
    assert each.rows == {}
    late = task(PurgingTrigger(EventTimeTrigger()), lateness=5)
    feed(late, (1, 1))
    late.advance(9)
    assert feed(late, (2, 2)) == [[1], [2]]


def test_a_timeout_fires_what_another_trigger_leaves_waiting() -> None:
    each = task(TimeoutTrigger(CountTrigger(3), milliseconds(5)))
    assert feed(each, (1, 1)) == []
    each.pass_time(4)
    assert feed(each, (1, 2)) == []
    each.pass_time(5)
    assert feed(each) == [[1, 2]]
    each.pass_time(50)
    assert feed(each) == []
    # The count has begun anew.
    assert feed(each, (1, 3), (1, 4)) == []
    assert feed(each, (1, 5)) == [[1, 2, 3, 4, 5]]
    each.pass_time(100)
    assert feed(each) == []
    each.advance(9)
    assert each.rows == {}


def test_a_timeout_goes_with_its_window() -> None:
    each = task(TimeoutTrigger(CountTrigger(3), milliseconds(5)))
    feed(each, (1, 1))
    each.advance(9)
    assert each.rows == {}


def test_a_timeout_can_run_from_the_latest_record() -> None:
    each = task(TimeoutTrigger(EventTimeTrigger(), milliseconds(5), reset_on_record=True))
    feed(each, (1, 1))
    each.pass_time(4)
    feed(each, (1, 2))
    each.pass_time(8)
    assert feed(each) == []
    each.pass_time(9)
    assert feed(each) == [[1, 2]]
    each.advance(9)
    assert feed(each) == []
    assert each.rows == {}


def test_the_first_timeout_of_sessions_that_become_one_counts_for_both() -> None:
    each = task(TimeoutTrigger(CountTrigger(9), milliseconds(5)), SESSION)
    feed(each, (0, 1))
    each.pass_time(3)
    feed(each, (18, 2), (9, 3))
    each.pass_time(5)
    assert feed(each) == [[1, 2, 3]]
    each.advance(MAX_TIME)
    assert each.rows == {}


class AtEleven(Trigger[int]):
    """A trigger of a user's: fires when the sum of its values has passed eleven, and one millisecond later again."""

    state_type = int

    def on_record(self, value: int, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        ctx.state = (ctx.state or 0) + value
        if ctx.state <= 11:
            return Decision.CONTINUE
        ctx.add_event_timer(timestamp + 1)
        return Decision.FIRE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
        assert ctx.watermark >= time
        return Decision.FIRE_AND_PURGE

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.remove_event_timer(window.start)


def test_a_trigger_of_the_user_has_state_and_timers() -> None:
    each = task(AtEleven(), everything())
    assert feed(each, (1, 5), (2, 6)) == []
    each.restart()
    assert feed(each, (3, 1)) == [[5, 6, 1]]
    each.advance(4)
    assert feed(each) == [[5, 6, 1]]
    each.advance(100)
    assert feed(each) == []


def test_what_a_user_trigger_remembers_goes_with_its_window() -> None:
    each = task(AtEleven())
    feed(each, (1, 5))
    each.advance(9)
    assert each.rows == {}


def test_a_trigger_cannot_remove_the_timer_that_cleans_up() -> None:
    class Rude(CountTrigger):
        uses_event_time = True

        def on_record(self, value: int, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
            ctx.remove_event_timer(window.max_timestamp)
            return Decision.CONTINUE

    each = task(Rude(1))
    feed(each, (1, 1), (2, 2))
    each.advance(9)
    assert each.rows == {}


def test_nor_can_it_by_the_clock() -> None:
    class Rude(CountTrigger):
        uses_processing_time = True

        def on_record(self, value: int, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
            ctx.remove_processing_timer(window.end)
            return Decision.CONTINUE

    each = task(Rude(1), tumbling(milliseconds(10), time="processing"))
    feed(each, (1, 1), (2, 2))
    each.pass_time(10)
    assert each.rows == {}


def test_a_trigger_that_forgot_to_declare_its_state_or_time_is_told() -> None:
    class Forgetful(Trigger[int]):
        uses_processing_time = False

        def on_record(self, value: int, timestamp: int, window: Window, ctx: TriggerContext) -> Decision:  # noqa: ARG002
            if value == 1:
                ctx.state = 1
            return Decision.FIRE if ctx.now else Decision.CONTINUE

    with pytest.raises(Misconfigured, match="does not say of which type"):
        feed(task(Forgetful()), (1, 1))
    with pytest.raises(Misconfigured, match="asks for processing time"):
        feed(task(Forgetful()), (1, 2))


def test_triggers_say_which_stores_they_need() -> None:
    def stores(trigger: Trigger[Any] | None, windows: Assigner = TEN) -> list[str]:
        return [store.name for store in task(trigger, windows).step.stores]

    assert stores(None) == ["w", "w.event_timers"]
    assert stores(CountTrigger(2)) == ["w", "w.trigger", "w.event_timers"]
    assert stores(CountTrigger(2), everything()) == ["w", "w.trigger"]
    assert stores(None, everything()) == ["w", "w.event_timers"]
    assert stores(ProcessingTimeTrigger()) == ["w", "w.event_timers", "w.processing_timers"]
    assert stores(None, SESSION) == ["w", "w.sessions", "w.event_timers"]
    assert stores(PurgingTrigger(TimeoutTrigger(CountTrigger(2), seconds(1)))) == [
        "w",
        "w.trigger",
        "w.event_timers",
        "w.processing_timers",
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: CountTrigger(0),
        lambda: CountTrigger(1.5),  # type: ignore[arg-type]
        lambda: ContinuousEventTimeTrigger(seconds(0)),
        lambda: ContinuousProcessingTimeTrigger(seconds(-1)),
        lambda: TimeoutTrigger(CountTrigger(1), seconds(0)),
    ],
)
def test_triggers_that_make_no_sense_are_refused_with_a_hint(make: Any) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        make()
    assert caught.value.hint
