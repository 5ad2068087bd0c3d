"""Channels: what a task knows of the event time of each of its inputs, and the least of it.

A channel is ACTIVE, IDLE or FINISHED. Event time is the least watermark of the active channels. If none is active, those
that are idle hold nobody back, so it is the greatest that any of them had promised. Only when all are finished is it
the end of time. A channel that wakes up holds event time where it is until it has caught up; it never goes back.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import assert_never

from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.model.signal import EndOfInput, Idle, TimeSignal, Watermark


class Status(IntEnum):
    """Whether a channel is waited for. The numbers are stored."""

    ACTIVE = 0
    IDLE = 1
    FINISHED = 2


def combine(parts: Iterable[tuple[Status, int]]) -> tuple[Status, int]:
    """Status and event time of several channels together."""
    active, idle = MAX_TIME, MIN_TIME
    status = Status.FINISHED
    for each, watermark in parts:
        if each is Status.ACTIVE:
            status = Status.ACTIVE
            active = min(active, watermark)
        elif each is Status.IDLE:
            idle = max(idle, watermark)
            if status is Status.FINISHED:
                status = Status.IDLE
    if status is Status.ACTIVE:
        return status, active
    return (status, idle) if status is Status.IDLE else (status, MAX_TIME)


class Channels:
    """The channels by which one shuffle comes: one for each task of the stage upstream."""

    __slots__ = ("_combined", "statuses", "watermarks")

    def __init__(self, count: int) -> None:
        self.watermarks = [MIN_TIME] * count
        self.statuses = [Status.ACTIVE] * count
        self._combined: tuple[Status, int] | None = None

    @property
    def combined(self) -> tuple[Status, int]:
        """Status and event time of all of them together."""
        if self._combined is None:
            self._combined = combine(zip(self.statuses, self.watermarks, strict=True))
        return self._combined

    def grow(self, count: int) -> None:
        """Have this many channels at least; those that come new are waited for."""
        missing = count - len(self.watermarks)
        if missing > 0:
            self.watermarks += [MIN_TIME] * missing
            self.statuses += [Status.ACTIVE] * missing
            self._combined = None

    def cut(self, count: int) -> bool:
        """Forget the channels from this number on, which belong to nobody; whether there were any."""
        if len(self.watermarks) <= count:
            return False
        del self.watermarks[count:], self.statuses[count:]
        self._combined = None
        return True

    def accept(self, channel: int, signal: TimeSignal) -> None:
        """Take in what a channel has said; saying it twice changes nothing."""
        match signal:
            case Watermark(event_time_ms=time):
                self._set(channel, Status.ACTIVE, time)
            case Idle(event_time_ms=time):
                self._set(channel, Status.IDLE, time)
            case EndOfInput():
                self._set(channel, Status.FINISHED, MAX_TIME)
            case _:
                assert_never(signal)

    def _set(self, channel: int, status: Status, watermark: int) -> None:
        if self.statuses[channel] is Status.FINISHED:
            return  # nothing follows the end; what seems to was sent a second time, by a worker that had crashed
        held = self._combined
        before = self.watermarks[channel]
        watermark = max(watermark, before)
        is_same = self.statuses[channel] is status
        self.statuses[channel] = status
        self.watermarks[channel] = watermark
        # One that was ahead of the least and is still active cannot have moved it.
        if held is None or not is_same or before <= held[1]:
            self._combined = None
