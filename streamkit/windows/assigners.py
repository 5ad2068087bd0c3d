"""Assigners: to which windows a record belongs. Made by `tumbling(...)`, `session(...)` and their like.

Times are milliseconds in here. What needs the records themselves (the gap of a session) is asked per record; all else
depends on the timestamp alone.
"""

from collections.abc import Callable
from datetime import timedelta
from math import gcd
from typing import Any, Literal

import msgspec

from streamkit.errors import InvalidPipeline, UserCodeError
from streamkit.model.duration import above_zero_ms, in_words, seconds, to_ms
from streamkit.windows.window import EVERYTHING, Window, bounded

# Whose clock a window follows: that of the records, or that on the wall.
TimeDomain = Literal["event", "processing"]

_NO_OFFSET = seconds(0)


class Tumbling(msgspec.Struct, frozen=True):
    """Windows of one size, side by side: a record belongs to exactly one."""

    size: int
    offset: int = 0
    time: TimeDomain = "event"

    @property
    def pane(self) -> int:
        """Records of one pane, a stretch of this length that begins at the offset, share their windows."""
        return self.size

    def windows(self, timestamp: int) -> tuple[Window, ...]:
        """The windows of a record, by their end."""
        start = timestamp - (timestamp - self.offset) % self.size
        return (bounded(start, start + self.size),)

    @property
    def definition(self) -> str:
        """What state depends on, in words."""
        return f"tumbling windows of {self.size} ms{_shift(self.offset)}{_clock(self.time)}"


class Hopping(msgspec.Struct, frozen=True):
    """Windows of one size that begin every `slide`: a record belongs to size / slide of them."""

    size: int
    slide: int
    offset: int = 0
    time: TimeDomain = "event"

    @property
    def pane(self) -> int:
        """As `Tumbling.pane`."""
        return gcd(self.size, self.slide)

    def windows(self, timestamp: int) -> tuple[Window, ...]:
        """The windows of a record, by their end."""
        last = timestamp - (timestamp - self.offset) % self.slide
        starts = range(last, timestamp - self.size, -self.slide)
        return tuple(bounded(start, start + self.size) for start in reversed(starts))

    @property
    def definition(self) -> str:
        """As `Tumbling.definition`."""
        return (
            f"hopping windows of {self.size} ms every {self.slide} ms{_shift(self.offset)}{_clock(self.time)}"
        )


class Cumulating(msgspec.Struct, frozen=True):
    """Windows that begin together and end one `step` after the other, up to `size`: totals of the day so far."""

    size: int
    step: int
    offset: int = 0
    time: TimeDomain = "event"

    @property
    def pane(self) -> int:
        """As `Tumbling.pane`."""
        return self.step

    def windows(self, timestamp: int) -> tuple[Window, ...]:
        """The windows of a record, by their end."""
        into = (timestamp - self.offset) % self.size
        start = timestamp - into
        first = start + into - into % self.step + self.step
        return tuple(bounded(start, end) for end in range(first, start + self.size + 1, self.step))

    @property
    def definition(self) -> str:
        """As `Tumbling.definition`."""
        return (
            f"cumulating windows of {self.size} ms by {self.step} ms{_shift(self.offset)}{_clock(self.time)}"
        )


class Session(msgspec.Struct, frozen=True):
    """A window as long as records keep coming: one ends when none has come for `gap`."""

    gap: int | Callable[[Any], timedelta]
    time: TimeDomain = "event"

    def window(self, value: Any, timestamp: int) -> Window:
        """The session of this record alone."""
        gap = self.gap if isinstance(self.gap, int) else _own_gap(self.gap, value)
        return bounded(timestamp, timestamp + gap)

    @property
    def definition(self) -> str:
        """As `Tumbling.definition`. What a function will say cannot be compared."""
        gap = f"of {self.gap} ms" if isinstance(self.gap, int) else "from a function"
        return f"sessions with a gap {gap}{_clock(self.time)}"


class Sliding(msgspec.Struct, frozen=True):
    """Windows that look back: one ends at each record, one begins behind each. Both ends belong to the window."""

    difference: int
    time: TimeDomain = "event"

    @property
    def definition(self) -> str:
        """As `Tumbling.definition`."""
        return f"sliding windows over {self.difference} ms"


class Everything(msgspec.Struct, frozen=True):
    """One window for all records of a key, without an end."""

    time: TimeDomain = "event"

    def windows(self, timestamp: int) -> tuple[Window, ...]:  # noqa: ARG002 - every time is in it
        """The only window."""
        return (EVERYTHING,)

    @property
    def definition(self) -> str:
        """As `Tumbling.definition`."""
        return "one window of everything"


class Counting(msgspec.Struct, frozen=True):
    """Windows of so many records: each ends with its `size`-th, or there is one of the last `size` every `slide`."""

    size: int
    slide: int | None = None
    time: TimeDomain = "event"

    def windows(self, timestamp: int) -> tuple[Window, ...]:  # noqa: ARG002 - time does not matter
        """The only window: the trigger counts."""
        return (EVERYTHING,)

    @property
    def definition(self) -> str:
        """As `Tumbling.definition`."""
        every = "" if self.slide is None else f" every {self.slide}"
        return f"windows of {self.size} records{every}"


# A record of these belongs to windows that its timestamp alone decides, and shares them with its pane.
Aligned = Tumbling | Hopping | Cumulating
Assigner = Aligned | Session | Sliding | Everything | Counting


def tumbling(size: timedelta, *, offset: timedelta = _NO_OFFSET, time: TimeDomain = "event") -> Tumbling:
    """Windows of one size side by side, counted from 1970 in UTC; `offset` shifts them.

    Raises:
        InvalidPipeline: the durations make no sense.
    """
    size_ms = above_zero_ms(size, of="the size of a tumbling window")
    return Tumbling(size_ms, _offset(offset, size_ms), _domain(time))


def hopping(
    size: timedelta, slide: timedelta, *, offset: timedelta = _NO_OFFSET, time: TimeDomain = "event"
) -> Hopping:
    """Windows of one size that begin every `slide`, so that they overlap.

    Raises:
        InvalidPipeline: the durations make no sense.
    """
    size_ms = above_zero_ms(size, of="the size of a hopping window")
    slide_ms = above_zero_ms(slide, of="the slide of a hopping window")
    if slide_ms > size_ms:
        raise InvalidPipeline(
            f"windows of {in_words(size)} that begin every {in_words(slide)} would leave records out",
            hint="make the slide at most the size; with filter() before, records are left out on purpose",
        )
    return Hopping(size_ms, slide_ms, _offset(offset, slide_ms), _domain(time))


def cumulating(
    size: timedelta, step: timedelta, *, offset: timedelta = _NO_OFFSET, time: TimeDomain = "event"
) -> Cumulating:
    """Windows that begin together every `size` and end one `step` after the other: CUMULATE of SQL.

    Raises:
        InvalidPipeline: the durations make no sense.
    """
    size_ms = above_zero_ms(size, of="the size of a cumulating window")
    step_ms = above_zero_ms(step, of="the step of a cumulating window")
    if size_ms % step_ms:
        raise InvalidPipeline(
            f"windows that grow by {in_words(step)} never reach {in_words(size)}",
            hint="choose a step that divides the size",
        )
    return Cumulating(size_ms, step_ms, _offset(offset, size_ms), _domain(time))


def session(gap: timedelta | Callable[[Any], timedelta], *, time: TimeDomain = "event") -> Session:
    """Windows that last as long as the next record of the key comes within `gap`, or within what `gap(value)` says.

    Raises:
        InvalidPipeline: the gap makes no sense.
    """
    domain = _domain(time)
    if not isinstance(gap, timedelta) and callable(gap):
        return Session(gap, domain)
    return Session(above_zero_ms(gap, of="the gap of a session"), domain)


def sliding(difference: timedelta) -> Sliding:
    """Windows that look back over `difference` from each record, both ends included: those of Kafka Streams.

    For records at time t there is a window [t - difference, t], and [t + 1, t + 1 + difference] if it holds records.

    Raises:
        InvalidPipeline: the difference makes no sense.
    """
    return Sliding(above_zero_ms(difference, of="the difference of a sliding window"))


def everything() -> Everything:
    """One window without an end for each key. Give it a trigger, or it fires only when all input is finished."""
    return Everything()


def counting(size: int, slide: int | None = None) -> Counting:
    """Windows of `size` records of a key; with `slide`, the last `size` after every `slide` records.

    Raises:
        InvalidPipeline: the numbers make no sense.
    """
    for number, what in ((size, "size"), (1 if slide is None else slide, "slide")):
        if not isinstance(number, int) or number < 1:
            raise InvalidPipeline(
                f"the {what} of a counting window is a number of records, got {number!r}",
                hint="write for example counting(100), or counting(100, 10)",
            )
    return Counting(size, slide)


def _offset(offset: timedelta, period_ms: int) -> int:
    shift = to_ms(offset, of="the offset of a window")
    if abs(shift) >= period_ms:
        raise InvalidPipeline(
            f"an offset of {in_words(offset)} is as long as the windows themselves",
            hint="windows repeat: an offset shorter than their size (or slide) says the same",
        )
    return shift


def _domain(time: Any) -> TimeDomain:
    if time not in ("event", "processing"):
        raise InvalidPipeline(
            f'time is "event" or "processing", got {time!r}',
            hint='"event" is the time of the records, "processing" that of the clock on the wall',
        )
    found: TimeDomain = time
    return found


def _own_gap(gap: Callable[[Any], timedelta], value: Any) -> int:
    try:
        return above_zero_ms(gap(value), of="the gap of a session")
    except InvalidPipeline as error:
        raise UserCodeError(
            error.problem, hint="the function given to sk.session() returns sk.seconds(5) or the like"
        ) from error


def _shift(offset: int) -> str:
    return f" from {offset} ms on" if offset else ""


def _clock(time: TimeDomain) -> str:
    return " of processing time" if time == "processing" else ""
