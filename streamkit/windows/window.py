"""A window: a stretch of time that the records of a key are put together in, and its bytes as part of a state key."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from streamkit.errors import StateCorrupt
from streamkit.model.ids import MAX_TIME, MIN_TIME

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
# Added to a time, so that its bytes sort like the number: negative ones first.
_SIGN = 1 << 63
_NAMESPACE_BYTES = 16
# A pipeline works on the same few windows all the time; an hour of tumbling seconds fits.
_REMEMBERED_MAX = 4_096


class Window(NamedTuple):
    """From `start` up to but not including `end`, in milliseconds since 1970.

    A window that ends at `MAX_TIME` never ends: it closes when all input is finished.
    """

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The last millisecond that belongs to the window; its results carry it."""
        return self.end - 1 if self.end < MAX_TIME else MAX_TIME

    @property
    def start_time(self) -> datetime:
        """The start in UTC; the first or last year there is if it lies beyond."""
        return _as_datetime(self.start)

    @property
    def end_time(self) -> datetime:
        """The end in UTC, likewise."""
        return _as_datetime(self.end)


EVERYTHING = Window(MIN_TIME, MAX_TIME)


def bounded(start: int, end: int) -> Window:
    """The window between two times that may lie outside of what 64 bits can say."""
    return Window(max(start, MIN_TIME), min(end, MAX_TIME))


@lru_cache(maxsize=_REMEMBERED_MAX)
def encode_namespace(window: Window) -> bytes:
    """Sixteen bytes that sort like the window: by start, then by end."""
    return (window.start + _SIGN).to_bytes(8, "big") + (window.end + _SIGN).to_bytes(8, "big")


@lru_cache(maxsize=_REMEMBERED_MAX)
def decode_namespace(namespace: bytes) -> Window:
    """The window that these bytes stand for.

    Raises:
        StateCorrupt: they were not made by `encode_namespace`.
    """
    if len(namespace) != _NAMESPACE_BYTES:
        raise StateCorrupt(f"the namespace {namespace.hex()} is no window")
    return Window(int.from_bytes(namespace[:8], "big") - _SIGN, int.from_bytes(namespace[8:], "big") - _SIGN)


def _as_datetime(time_ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return _LAST if time_ms > 0 else _FIRST
