"""align: event time in the walk of a record: timestamps are read, watermarks advance, timers come due.

Before this step `task/ingest.py` took records out of a batch; the statements made here run in the same loop as the
steps of `task/chain.py`, ahead of them. What time has passed is told downstream by `task/span_end.py`, as signals.

A record is processed before the event time that it brings: what it makes due fires before the record behind it.
"""

from collections.abc import Callable, Mapping

import msgspec

from streamkit.errors import DecodeError, IncompatiblePlan, Misconfigured
from streamkit.graph.stage import Input
from streamkit.model.event_time import Clock, as_milliseconds
from streamkit.model.ids import MAX_TIME, MIN_TIME, TopicPartition
from streamkit.model.signal import EndOfInput, Idle, Signal, Watermark
from streamkit.operators.step import Statements
from streamkit.progress.channels import Channels, Status
from streamkit.progress.source_clock import SourceClock, SourceState
from streamkit.progress.task_clock import ClockState, TaskClock
from streamkit.task.hearsay import listener
from streamkit.task.time_rules import TimeRules

# The name that stands for what happens before the chain: bytes to a value and its time.
DECODE = "decode"
# The ones for what comes behind it: what the user's watermark generator does, and state that is written.
WATERMARKS = "watermarks"
STATE = "state"

# Timers that fire in one go; then the event loop gets its turn, and the span may be committed.
TIMERS_AT_ONCE = 1_000
# Signals that one stage may send to the next per second, all tasks together: with many tasks event time is told more
# seldom. 32 tasks that tell 32 others stay at once a second.
SIGNALS_PER_S_MAX = 1_000

_encode = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(ClockState).decode


class TimersLeft(Exception):
    """More timers are due than fire in one go; the record in hand has not been processed."""


def open_clock(inputs: Mapping[TopicPartition, Input], rules: TimeRules, state: ClockState) -> TaskClock:
    """The clock of a task as it was committed."""
    elapsed_ms = rules.clocks.elapsed_ms()
    sources = {
        each.topic: SourceClock(each.time, _source_state(each, state), elapsed_ms)
        for each in inputs.values()
        if each.kind == "source" and (rules.is_timed or each.time.time is not Clock.KAFKA)
    }
    channels = {
        each.topic: Channels(rules.writers.count(each.topic))
        for each in inputs.values()
        if each.kind == "shuffle" and rules.is_timed
    }
    return TaskClock(state, sources, channels, rules.clocks.now_ms, rules.clocks.elapsed_ms)


def _source_state(source: Input, state: ClockState) -> SourceState:
    """What was committed of a source; one that was bounded and is not any more goes on behind its end."""
    committed = state.sources.get(source.topic, SourceState())
    if committed.end is None or source.is_bounded:
        return committed
    if state.fired == MAX_TIME:
        raise IncompatiblePlan(
            f'topic "{source.topic}" was read to its end, and with it event time came to its own',
            detail="every record that would be read now is late",
            hint='read it with until="latest" as before, or start under a new pipeline name',
        )
    return msgspec.structs.replace(committed, end=None, status=Status.ACTIVE)


def encode_clock(clock: TaskClock) -> bytes:
    """A clock as it stands in a commit record."""
    return _encode(clock.snapshot())


def decode_clock(data: bytes | None) -> ClockState:
    """What a commit record says about time; a pipeline that had no use for it says nothing.

    Raises:
        Misconfigured: what it says cannot be.
    """
    if data is None:
        return ClockState()
    try:
        state = _decode_state(data)
        statuses = [each.status for each in state.sources.values()]
        for _, some in state.channels.values():
            statuses += some
        for status in (*statuses, state.announced[0]):
            Status(status)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise Misconfigured(
            "a commit record does not say what event time it is",
            detail=str(error),
            hint="only streamkit may write to changelog topics: look at the ACLs; the pipeline can start under a new name",
        ) from error
    return state


# -- the statements of the loop ------------------------------------------------------------------------------------


def head_of(
    source: Input, clock: TaskClock, rules: TimeRules, decode: Callable[[object], object]
) -> Statements:
    """What happens to every record of an input before its first step."""
    if source.kind == "shuffle":
        return _shuffle_head(source, clock, rules, decode)
    source_clock = clock.sources.get(source.topic)
    if source_clock is None:
        lines = ("key = record.key", "timestamp = record.timestamp", "value = decode(record.value)")
        return Statements(DECODE, lines, {"decode": decode})
    return _source_head(source, clock, source_clock, decode)


def _shuffle_head(
    source: Input, clock: TaskClock, rules: TimeRules, decode: Callable[[object], object]
) -> Statements:
    on_signal = listener(source.topic, clock, rules, lambda: advance_or_pause(clock))
    lines = (
        "key = record.key",
        "if key is None:",
        "    on_signal(record.value)",
        "    continue",
        "timestamp = record.timestamp",
        "value = decode(record.value)",
    )
    return Statements(DECODE, lines, {"decode": decode, "on_signal": on_signal})


def _source_head(
    source: Input, clock: TaskClock, source_clock: SourceClock, decode: Callable[[object], object]
) -> Statements:
    def advance() -> None:
        advance_or_pause(clock)

    def observe() -> None:
        if source_clock.observe_in_hand():
            advance_or_pause(clock)

    names: dict[str, object] = {
        "clock": source_clock,
        "advance": advance,
        "observe": observe,
        "decode": decode,
        "read": source.time.reader(source.value_type),
        "as_milliseconds": as_milliseconds,
        "insane": _insane,
    }
    if source_clock.generator is not None:
        first, last = "if clock.in_hand is not None: observe()", "clock.in_hand = (record, value, timestamp)"
    else:
        first = "if clock.highest >= clock.limit: advance()"
        last = "if timestamp > clock.highest: clock.highest = timestamp"
    lines = (
        first,
        "key = record.key",
        "value = decode(record.value)",
        *_read_time(source),
        "if not 0 <= timestamp <= clock.latest: raise insane(timestamp, clock.latest)",
        last,
    )
    return Statements(DECODE, lines, names)


def _read_time(source: Input) -> tuple[str, ...]:
    match source.time.time:
        case Clock.KAFKA:
            return ("timestamp = record.timestamp",)
        case Clock.INGESTION:
            return ("timestamp = clock.ingested_ms",)
        case _:
            return (
                "timestamp = read(value)",
                "if type(timestamp) is not int: timestamp = as_milliseconds(timestamp)",
            )


def _insane(timestamp: int, latest: int) -> DecodeError:
    problem = (
        f"the event time {timestamp} is before 1970"
        if timestamp < 0
        else f"the event time {timestamp} is {timestamp - latest} ms further in the future than is allowed"
    )
    return DecodeError(
        problem,
        hint="event times are milliseconds since 1970; `future_max_s` bounds how far ahead they may be",
    )


# -- time passes -----------------------------------------------------------------------------------------------------


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


def signal_due(clock: TaskClock, rules: TimeRules, readers: int, writers: int) -> Signal | None:
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
