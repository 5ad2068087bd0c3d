"""supervisor: how long to wait before what failed is tried again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from streamkit.config import Settings
from streamkit.errors import Retry

R = TypeVar("R")

log = structlog.get_logger()


class Backoff:
    """Delays that double from the first to the last, and begin anew after a success."""

    def __init__(self, settings: Settings) -> None:
        self._first_s = settings.restart_delay_first_s
        self._last_s = settings.restart_delay_last_s
        self._failures = 0

    def next_delay_s(self) -> float:
        """The delay after one more failure."""
        delay_s = min(self._last_s, self._first_s * 2 ** min(self._failures, 30))
        self._failures += 1
        return float(delay_s)

    def reset(self) -> None:
        """Something succeeded."""
        self._failures = 0


async def retried(backoff: Backoff, action: Callable[[], Awaitable[R]]) -> R:
    """Do it again, later each time, while the reason to fail is a passing one."""
    while True:
        try:
            result = await action()
        except Retry as error:
            delay_s = backoff.next_delay_s()
            log.warning("will be tried again", error=str(error), seconds=delay_s)
            await asyncio.sleep(delay_s)
        else:
            backoff.reset()
            return result
