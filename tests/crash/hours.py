"""The windowed pipeline under fire: two shuffles, two levels of windows, late records to a topic of their own."""

import msgspec

import streamkit as sk
from streamkit.model.duration import milliseconds, seconds
from streamkit.windows import Window, tumbling

WINDOW_MS = 500
LATE_MS = 200
IDLE_S = 3


class Visit(msgspec.Struct):
    """One visit, at an event time in ms."""

    user: str
    number: int
    at: int


class PerUser(msgspec.Struct):
    """How many visits one user paid in one window."""

    user: str
    end: int
    n: int


class Total(msgspec.Struct):
    """How many visits all users paid in one window."""

    end: int
    n: int


def per_user(user: str, window: Window, n: int) -> PerUser:
    return PerUser(user, window.end, n)


def total(_: str, window: Window, n: int) -> Total:
    return Total(window.end, n)


def user_of(visit: Visit) -> str:
    return visit.user


def end_of(counted: PerUser) -> str:
    return str(counted.end)


def visits_of(counted: PerUser) -> int:
    return counted.n


def hours(run: str) -> sk.Pipeline:
    """The pipeline of one run; runs beside each other do not meet."""
    pipeline = sk.pipeline(f"hours-{run}")
    visits = sk.topic(f"visits-{run}", Visit, time="at", late=milliseconds(LATE_MS), idle=seconds(IDLE_S))
    window = tumbling(milliseconds(WINDOW_MS))
    windows = pipeline.read(visits).key_by(user_of).window(window, late=sk.topic(f"late-{run}", Visit))
    counted = windows.count(into=per_user, name="per_user")
    counted.write(sk.topic(f"per-user-{run}", PerUser))
    totals = counted.key_by(end_of).window(window).sum(visits_of, into=total, name="totals")
    totals.write(sk.topic(f"totals-{run}", Total))
    return pipeline
