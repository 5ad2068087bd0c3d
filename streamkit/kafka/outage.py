"""Outage: while no broker answers, one line when it begins, then more seldom each time, and one when it is over."""

import asyncio
import threading
import time

import structlog

log = structlog.get_logger()

# After the first line: the next one after this long, then twice as long each time, up to the last.
SAY_AGAIN_FIRST_S = 5.0
SAY_AGAIN_LAST_S = 300.0
# A change of leader, and a round of the group, are over by then.
WAITING_SAID_S = 30.0


class Outage:
    """What was tried in vain, however often, told to a person who reads logs."""

    def __init__(self, brokers: str) -> None:
        self._brokers = brokers
        self._began_s: float | None = None
        self._say_at_s = 0.0
        self._pause_s = SAY_AGAIN_FIRST_S
        # Heartbeats have a thread of their own.
        self._lock = threading.Lock()

    def failed(self, why: str) -> None:
        """No broker has answered; said now, or left to a later line."""
        now_s = time.monotonic()
        with self._lock:
            if self._began_s is None:
                self._began_s = self._say_at_s = now_s
                self._pause_s = SAY_AGAIN_FIRST_S
            if now_s < self._say_at_s:
                return
            self._say_at_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, SAY_AGAIN_LAST_S)
            seconds = round(now_s - self._began_s)
        log.warning(
            "no broker answers: trying again until one does",
            brokers=self._brokers,
            seconds=seconds,
            error=why,
        )

    def over(self) -> None:
        """A broker has answered."""
        with self._lock:
            began_s, self._began_s = self._began_s, None
        if began_s is not None:
            log.info("a broker answers again", seconds=round(time.monotonic() - began_s))


class Waiting:
    """What is tried again and again although brokers answer: told once it lasts, then more seldom; after minutes as an error."""

    def __init__(self, event: str, **fields: str) -> None:
        self._event, self._fields = event, fields
        self._began_s: float | None = None
        self._say_at_s = self._pause_s = 0.0

    def failed(self, why: str) -> None:
        """Once more in vain."""
        now_s = asyncio.get_running_loop().time()
        if self._began_s is None:
            self._began_s, self._say_at_s, self._pause_s = now_s, now_s + WAITING_SAID_S, WAITING_SAID_S
        if now_s < self._say_at_s:
            return
        self._say_at_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, SAY_AGAIN_LAST_S)
        seconds = round(now_s - self._began_s)
        say = log.error if seconds >= SAY_AGAIN_LAST_S else log.warning
        say(f"{self._event} now: trying again", seconds=seconds, error=why, **self._fields)

    def over(self) -> None:
        """It has succeeded."""
        self._began_s = None
