"""Outage: while no broker answers, one line when it begins, then more seldom each time, and one when it is over."""

import threading
import time

import structlog

log = structlog.get_logger()

# After the first line: the next one after this long, then twice as long each time, up to the last.
SAY_AGAIN_FIRST_S = 5.0
SAY_AGAIN_LAST_S = 300.0


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
