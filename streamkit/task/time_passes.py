"""time_passes: event time advances in a task and timers come due, before and after its records and beside them.

What time has passed is told downstream when the span ends (`task/span_end.py`), as the signal that is due here.
"""

from streamkit.model.ids import MIN_TIME
from streamkit.model.signal import EndOfInput, Idle, TimeSignal, Watermark
from streamkit.progress.channels import Status
from streamkit.progress.task_clock import TaskClock
from streamkit.task.time_rules import TimeRules

# Timers that fire in one go; then the event loop gets its turn, and the span may be committed.
TIMERS_AT_ONCE = 1_000
# Signals that one stage may send to the next per second, all tasks together: with many tasks event time is told more
# seldom. 32 tasks that tell 32 others stay at once a second.
SIGNALS_PER_S_MAX = 1_000


class TimersLeft(Exception):
    """More timers are due than fire in one go; the record in hand has not been processed."""


def advance_or_pause(clock: TaskClock) -> None:
    """Advance event time; if that makes too much due at once, leave the loop.

    Raises:
        TimersLeft: come back for the rest, with the same record.
        TimerFailed: a step raised.
    """
    if not clock.advance(TIMERS_AT_ONCE):
        raise TimersLeft


def hear(clock: TaskClock, topic: str, rules: TimeRules) -> None:
    """Records of a topic have arrived: if it was idle, it is waited for from now on, and not when its turn comes."""
    source = clock.sources.get(topic)
    if rules.is_timed and source is not None and source.status is Status.IDLE:
        source.wake(rules.clocks.now_ms(), rules.clocks.elapsed_ms())
        clock.look()


def fire_due(clock: TaskClock, now_ms: int) -> bool:
    """Fire what has come due in either time, as much as goes at once; returns whether nothing is left.

    Raises:
        TimerFailed: a step raised.
    """
    return clock.advance(TIMERS_AT_ONCE) and clock.fire_processing(now_ms, TIMERS_AT_ONCE)


def begin_slice(clock: TaskClock, topic: str, rules: TimeRules) -> bool:
    """Before records of a topic are run: whether nothing is due any more, so that they may."""
    source = clock.sources.get(topic)
    if source is not None:
        now_ms = rules.clocks.now_ms()
        source.wake(now_ms, rules.clocks.elapsed_ms())
        source.latest = now_ms + rules.future_max_ms
    return not rules.is_timed or clock.advance(TIMERS_AT_ONCE)


def end_slice(clock: TaskClock, topic: str, rules: TimeRules, *, is_single: bool = False) -> None:
    """After records of a topic were run: the last one brings its event time too.

    If they are run singly, what it makes due fires in a turn of its own, before the next one.
    """
    if not rules.is_timed:
        return
    source = clock.sources.get(topic)
    if source is not None and source.in_hand is not None:
        source.observe_in_hand()
    if not clock.is_single:  # else what it makes due is for the next span
        clock.advance(0 if is_single or clock.pace.is_single else TIMERS_AT_ONCE)


def signal_due(clock: TaskClock, rules: TimeRules, readers: int, writers: int) -> TimeSignal | None:
    """What downstream should be told now, if anything has changed that it does not know.

    `readers` partitions hear of it, and `writers` tasks speak like this one.
    """
    news = clock.status, clock.fired
    if news == clock.announced or (news[1] == MIN_TIME and news[0] is Status.ACTIVE):
        return None
    if clock.fired != clock.watermark:
        return None  # what is still to fire must not be late downstream
    if clock.status is Status.FINISHED:
        return EndOfInput() if clock.is_finished else None
    if clock.status is clock.announced[0]:
        interval_ms = max(rules.interval_ms, readers * writers * 1000 // SIGNALS_PER_S_MAX)
        if rules.clocks.elapsed_ms() - clock.announced_at_ms < interval_ms:
            return None
    return Idle(clock.fired) if clock.status is Status.IDLE else Watermark(clock.fired)
