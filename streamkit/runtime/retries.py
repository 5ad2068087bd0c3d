"""retries: how long to wait before what failed is tried again, and how often to tell of it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from streamkit.config import Settings
from streamkit.errors import Retry

R = TypeVar("R")

log = structlog.get_logger()

# What has not passed by then will hardly pass by itself.
LASTING_S = 300.0
# With the longest of the usual delays, 30 s, about an hour.
TOLD_EVERY = 128


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


class Tries:
    """Counts failures that nobody but time, or a person elsewhere, can mend, and tells of them more and more seldom.

    What may pass is tried for as long as the worker lives; a person hears of it as an error once it has lasted.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._since_s = 0.0
        self._is_lasting = False
        self._progress = 0

    def tell(self, event: str, error: BaseException, **fields: object) -> None:
        """One more failure: the first, second, fourth, eighth and so on are told, the first that is lasting, and one an hour."""
        now_s = asyncio.get_running_loop().time()
        if self._failures == 0:
            self._since_s, self._is_lasting = now_s, False
        self._failures += 1
        lasts_s = round(now_s - self._since_s)
        was_lasting, self._is_lasting = self._is_lasting, lasts_s >= LASTING_S
        is_seldom = not self._failures & (self._failures - 1) or self._failures % TOLD_EVERY == 0
        if not is_seldom and was_lasting == self._is_lasting:
            return
        say = log.error if self._is_lasting else log.warning
        say(event, error=str(error), failures=self._failures, lasts_s=lasts_s, **fields)

    def reset(self) -> None:
        """Something succeeded."""
        self._failures = 0

    def look_at(self, progress: int) -> None:
        """Before `tell`: what failed before this number changed was another story, and has passed."""
        if progress != self._progress:
            self._progress = progress
            self.reset()


async def retried(what: str, backoff: Backoff, action: Callable[[], Awaitable[R]]) -> R:
    """Do it again, later each time, while the reason to fail is a passing one; `Tries` says who hears of it."""
    tries = Tries()
    while True:
        try:
            result = await action()
        except Retry as error:
            tries.tell(f"{what} will be tried again", error)
            await asyncio.sleep(backoff.next_delay_s())
        else:
            backoff.reset()
            return result
