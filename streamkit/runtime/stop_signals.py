"""stop signals: the first SIGTERM or Ctrl-C asks for a clean end, the second ends the process at once."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import structlog

R = TypeVar("R")

log = structlog.get_logger()

# One wish may arrive twice: a terminal tells the whole process group, and `timeout`, `make` or `uv run` tell us again.
SAME_WISH_S = 0.3


class _Wish:
    """What was asked of us, and since when."""

    def __init__(self, stop: Callable[[], None], kill: Callable[[], None], limit_s: float | None) -> None:
        self._stop = stop
        self._kill = kill
        self._limit_s = limit_s
        self._since: float | None = None
        self._patience: asyncio.TimerHandle | None = None

    def hear(self, name: str) -> None:
        """A signal has come."""
        loop = asyncio.get_running_loop()
        if self._since is None:
            self._since = loop.time()
            log.info("stopping: what is open is committed first", signal=name)
            if self._limit_s is not None:
                self._patience = loop.call_later(self._limit_s, self._give_up)
            self._stop()
        elif loop.time() - self._since > SAME_WISH_S:
            log.warning("ending at once", signal=name)
            self._kill()

    def _give_up(self) -> None:
        log.warning("ending at once: the clean end takes too long", limit_s=self._limit_s)
        self._kill()

    def fulfil(self) -> None:
        """It has ended."""
        if self._patience is not None:
            self._patience.cancel()


@contextlib.contextmanager
def stop_signals(
    stop: Callable[[], None], kill: Callable[[], None], limit_s: float | None = None
) -> Iterator[None]:
    """Inside the block, call `stop` at the first SIGTERM or SIGINT and `kill` at every later one.

    Also call `kill` if the block has not ended `limit_s` after the first: what it waits for may be away.
    """
    loop = asyncio.get_running_loop()
    wish = _Wish(stop, kill, limit_s)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, wish.hear, number.name)
    try:
        yield
    finally:
        wish.fulfil()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@contextlib.asynccontextmanager
async def stopped_when(asked: asyncio.Event, stop: Callable[[], None]) -> AsyncIterator[None]:
    """Call `stop` once it was asked for, which may have been before."""

    async def wait() -> None:
        await asked.wait()
        stop()

    waiting = asyncio.create_task(wait(), name="stop")
    try:
        yield
    finally:
        waiting.cancel()


async def unless_asked(asked: asyncio.Event, work: Coroutine[Any, Any, R]) -> R | None:
    """What comes of this work; None if we are asked to stop before it has ended, which then it is made to."""
    working, asking = asyncio.create_task(work, name="work"), asyncio.create_task(asked.wait(), name="stop")
    try:
        await asyncio.wait([working, asking], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        asking.cancel()
        await asyncio.wait([working, asking])
