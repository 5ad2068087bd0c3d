"""Misuse of a context or of a handler, in words: what an operator has done with it that cannot have been meant."""

import operator
from datetime import datetime, timedelta
from typing import Any

from streamkit.codec.naming import given_as
from streamkit.errors import UserCodeError

CLOCKS = ("event", "processing")


def as_time(given: Any, clock: str) -> int:
    """The time of a timer, as an int; other kinds of integers are taken for what they say.

    Raises:
        UserCodeError: it is no time in milliseconds.
    """
    try:
        return operator.index(given)
    except TypeError:
        pass
    if isinstance(given, datetime):
        hint = "write int(at.timestamp() * 1000) for a datetime that has a time zone"
    else:
        now = "ctx.now" if clock == "processing" else "ctx.timestamp"
        more = int(given / timedelta(milliseconds=1)) if isinstance(given, timedelta) else 5_000
        end = ', clock="processing"' if clock == "processing" else ""
        hint = f"a timer has a time, not a duration: write ctx.set_timer({now} + {more:_}{end})"
    raise UserCodeError(f"the time of a timer is an int of milliseconds, got {given_as(given)}", hint=hint)


def no_timers(clock: str) -> UserCodeError:
    """What is said where there are no timers that go by this clock."""
    if clock not in CLOCKS:
        return UserCodeError(
            f'clock is "event" or "processing", got {clock!r}',
            hint='clock="event", the default, goes by the watermark; clock="processing" by the clock on the wall',
        )
    return UserCodeError(
        "time and timers are for operators that have on_timer",
        hint="write def on_timer(self, timer, ctx) in the operator class; agents have no timers",
    )


def returned(step: str) -> UserCodeError:
    """What is said of a handler that returned something, which nobody would take."""
    return UserCodeError(
        "a result was returned, and a result that is returned goes nowhere",
        where=f'step "{step}"',
        hint="send results with ctx.emit(value), as often as needed, and return nothing",
    )
