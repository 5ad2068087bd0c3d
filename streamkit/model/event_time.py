"""Event time: when the thing happened that a record tells of, and how long to wait for more of the same age."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from streamkit.errors import InvalidPipeline

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# The types of fields that never hold an event time.
_NO_TIMES = (str, bytes, float, bool, list, dict)


class Clock(Enum):
    """Where a topic's event time comes from, if not from its values."""

    KAFKA = "kafka"
    INGESTION = "ingestion"


# The time at which streamkit reads the record.
ingestion_time = Clock.INGESTION


class WatermarkGenerator(msgspec.Struct):
    """Says how far event time has come on one partition. A struct: its fields are its state, kept with every commit.

    Return a watermark (ms) to advance event time to it, None to leave it as it is; it never goes back.
    """

    def on_record(self, value: Any, timestamp: int) -> int | None:
        """Called after every record."""

    def on_tick(self, now_ms: int) -> int | None:
        """Called about ten times a second of processing time, also when no record comes."""


class TimeRule(msgspec.Struct, frozen=True):
    """How the records of a topic get their event time, and how event time advances with them."""

    # A field, a function of the value, or a clock.
    time: str | Callable[[Any], Any] | Clock = Clock.KAFKA
    # How much older than the newest record a record may be without being late.
    late_ms: int = 0
    # A partition that is silent for so long, and read to its end, is not waited for; None: always wait.
    idle_ms: int | None = 30_000
    # Instead of `late_ms`: makes one generator per partition.
    generator: Callable[[], WatermarkGenerator] | None = None

    def reader(self, value_type: Any) -> Callable[[Any], Any] | None:
        """The function that finds the event time in a value; None if a clock tells it."""
        if isinstance(self.time, Clock):
            return None
        if callable(self.time):
            return self.time
        return itemgetter(self.time) if value_type is dict else attrgetter(self.time)


def as_milliseconds(time: Any) -> int:
    """An event time as a user's function gave it: whole milliseconds, or a datetime with a time zone.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(time, datetime) and time.tzinfo is not None:
        return (time - _EPOCH) // _MILLISECOND
    got = "a datetime without a time zone" if isinstance(time, datetime) else type(time).__name__
    raise TypeError(f"an event time is an int of milliseconds or a datetime with a time zone, got {got}")


def in_date(time_ms: int) -> str:
    """An event time as a date in UTC, for people."""
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).strftime("%Y-%m-%d %H:%M:%S UTC")
    except OverflowError:
        return "after the year 9999: perhaps it is in microseconds"


def punctuated(fn: Callable[[Any, int], int | None]) -> Callable[[], WatermarkGenerator]:
    """Watermarks that some records carry: `fn(value, timestamp)` returns one, or None."""

    class Found(WatermarkGenerator):
        def on_record(self, value: Any, timestamp: int) -> int | None:
            return fn(value, timestamp)

    return Found


def require_field(name: str, value_type: Any) -> None:
    """Refuse a time field that the values do not have, or that holds no time.

    Raises:
        InvalidPipeline: there is no such field, or its type is known and is none of a time.
    """
    if not isinstance(value_type, type):
        return  # only the records can tell
    if issubclass(value_type, msgspec.Struct):
        fields = {each.name: each.type for each in msgspec.structs.fields(value_type)}
    elif dataclasses.is_dataclass(value_type):
        fields = {each.name: each.type for each in dataclasses.fields(value_type)}
    else:
        return
    if name not in fields:
        if not issubclass(value_type, msgspec.Struct) and hasattr(value_type, name):
            return  # a property
        raise InvalidPipeline(
            f'type "{value_type.__name__}" has no field "{name}" that could be its event time',
            hint=f"its fields are {', '.join(sorted(fields))}; or pass a function: time=lambda value: ...",
        )
    found = fields[name]
    if found in _NO_TIMES:
        raise InvalidPipeline(
            f'field "{name}" of type "{value_type.__name__}" holds a {found.__name__}, and an event time is an int of'
            " milliseconds or a datetime with a time zone",
            hint="name another field, or pass a function that makes one of it: time=lambda value: ...",
        )
