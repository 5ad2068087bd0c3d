"""heads: what happens to a record before the first step of its stage, as statements of the loop: bytes become a value and its time.

They run in the same function as the steps behind them (`task/chain.py`). A record is processed before the event time that it
brings: what it makes due fires before the record behind it (`task/time_passes.py`).
"""

from collections.abc import Callable
from operator import attrgetter

from streamkit.errors import DecodeError
from streamkit.graph.stage import Input
from streamkit.model.duration import about
from streamkit.model.event_time import Clock, as_milliseconds, in_date
from streamkit.model.records import LogRecord
from streamkit.operators.step import Statements
from streamkit.progress.source_clock import SourceClock
from streamkit.progress.task_clock import TaskClock
from streamkit.task.outside import DECODE
from streamkit.task.signal_checks import listener
from streamkit.task.time_passes import advance_or_pause
from streamkit.task.time_rules import TimeRules


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


def time_of(
    source: Input, clock: SourceClock, decode: Callable[[object], object]
) -> Callable[[LogRecord], int]:
    """What the head of a source has taken for the event time of a record; for records that it has let through."""
    read = source.time.reader(source.value_type)
    if source.time.time is Clock.INGESTION:
        return lambda _: clock.ingested_ms
    if read is None:
        return attrgetter("timestamp")

    def found(record: LogRecord) -> int:
        time = read(decode(record.value))
        return time if type(time) is int else as_milliseconds(time)

    return found


def _insane(timestamp: int, latest: int) -> DecodeError:
    ahead_ms = timestamp - latest
    problem = (
        f"the event time {timestamp} is before 1970"
        if timestamp < 0
        else f"the event time {timestamp} ({in_date(timestamp)}) is {ahead_ms} ms ({about(ahead_ms)}) further in the"
        " future than is allowed"
    )
    return DecodeError(
        problem,
        hint="event times are milliseconds since 1970; `future_max_s` bounds how far ahead they may be",
    )
