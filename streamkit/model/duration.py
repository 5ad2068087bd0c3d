"""Durations: how long, said with a unit. Inside the engine they are whole milliseconds."""

from datetime import timedelta

from streamkit.errors import InvalidPipeline

_MILLISECOND = timedelta(milliseconds=1)
_UNITS_MS = {
    "years": 31_557_600_000,
    "days": 86_400_000,
    "hours": 3_600_000,
    "minutes": 60_000,
    "seconds": 1_000,
}


def milliseconds(number: float) -> timedelta:
    """So many thousandths of a second."""
    return _duration("milliseconds", number)


def seconds(number: float) -> timedelta:
    """So many seconds."""
    return _duration("seconds", number)


def minutes(number: float) -> timedelta:
    """So many minutes."""
    return _duration("minutes", number)


def hours(number: float) -> timedelta:
    """So many hours."""
    return _duration("hours", number)


def days(number: float) -> timedelta:
    """So many days of 24 hours."""
    return _duration("days", number)


def _duration(unit: str, number: float) -> timedelta:
    try:
        return timedelta(**{unit: number})
    except (TypeError, OverflowError, ValueError) as error:
        raise InvalidPipeline(
            f"{unit}() takes a number that a duration can have, got {number!r}",
            hint=f"write for example sk.{unit}(5)",
        ) from error


def in_words(duration: timedelta) -> str:
    """A duration with its unit, the largest that leaves no fraction: `10 s`, `90 min`, `1.5 s`."""
    for unit, length in (("d", days(1)), ("h", hours(1)), ("min", minutes(1)), ("s", seconds(1))):
        whole, rest = divmod(duration, length)
        if whole and not rest:
            return f"{whole} {unit}"
    if duration >= seconds(1):
        return f"{duration / seconds(1):g} s"
    return f"{duration / _MILLISECOND:g} ms"


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


def about(length_ms: int) -> str:
    """About how long, in the largest unit of which there are two or more: `3 days`, `90 minutes`, `1500 ms`."""
    for unit, unit_ms in _UNITS_MS.items():
        if length_ms >= 2 * unit_ms:
            return f"{length_ms // unit_ms} {unit}"
    return f"{length_ms} ms"
