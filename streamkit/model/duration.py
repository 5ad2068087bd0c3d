"""Durations: how long, said with a unit. Inside the engine they are whole milliseconds."""

from datetime import timedelta

from streamkit.errors import InvalidPipeline

_MILLISECOND = timedelta(milliseconds=1)


def milliseconds(number: float) -> timedelta:
    """So many thousandths of a second."""
    return timedelta(milliseconds=number)


def seconds(number: float) -> timedelta:
    """So many seconds."""
    return timedelta(seconds=number)


def minutes(number: float) -> timedelta:
    """So many minutes."""
    return timedelta(minutes=number)


def hours(number: float) -> timedelta:
    """So many hours."""
    return timedelta(hours=number)


def days(number: float) -> timedelta:
    """So many days of 24 hours."""
    return timedelta(days=number)


def to_ms(duration: timedelta, *, of: str = "a duration") -> int:
    """Whole milliseconds.

    Raises:
        InvalidPipeline: it is not a duration, or has a part smaller than a millisecond.
    """
    if not isinstance(duration, timedelta):
        raise InvalidPipeline(
            f"{of} is a duration, got {duration!r}",
            hint="write sk.seconds(5), sk.minutes(1) or a datetime.timedelta",
        )
    whole, rest = divmod(duration, _MILLISECOND)
    if rest:
        raise InvalidPipeline(f"{of} is {duration}, which is no whole number of milliseconds")
    return whole


def above_zero_ms(duration: timedelta, *, of: str) -> int:
    """Whole milliseconds, at least one.

    Raises:
        InvalidPipeline: as `to_ms`, or it is zero or less.
    """
    length = to_ms(duration, of=of)
    if length <= 0:
        raise InvalidPipeline(
            f"{of} is {duration}, and must be above zero", hint="write for example sk.minutes(1)"
        )
    return length
