"""stop signals: the first SIGTERM or Ctrl-C asks for a clean end, the second one is not asked twice."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Iterator

import structlog

log = structlog.get_logger()

# One wish may arrive twice: a terminal tells the whole process group, and `timeout`, `make` or `uv run` tell us again.
SAME_WISH_S = 0.3


@contextlib.contextmanager
def stop_signals(stop: Callable[[], None], kill: Callable[[], None]) -> Iterator[None]:
    """Inside the block, call `stop` at the first SIGTERM or SIGINT and `kill` at every later one."""
    loop = asyncio.get_running_loop()
    first_at: float | None = None

    def on_signal(name: str) -> None:
        nonlocal first_at
        if first_at is None:
            first_at = loop.time()
            log.info("stopping: what is open is committed first", signal=name)
            stop()
        elif loop.time() - first_at > SAME_WISH_S:
            log.warning("ending at once", signal=name)
            kill()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number.name)
    try:
        yield
    finally:
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
