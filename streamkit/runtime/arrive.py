"""arrive: wait for a broker that is not up yet."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from streamkit.config import Settings
from streamkit.errors import BrokerUnreachable

log = structlog.get_logger()

PAUSE_FIRST_S = 0.5
PAUSE_LAST_S = 10.0


async def wait_for_broker(
    connect: Callable[[], Awaitable[None]], settings: Settings, stopping: asyncio.Event | None = None
) -> bool:
    """Connect, trying again for `start_timeout_s`; False if we were told to stop meanwhile.

    Raises:
        BrokerUnreachable: no broker answered in all this time.
        Misconfigured: one answers and refuses us, which waiting would not mend.
    """
    stopping = stopping or asyncio.Event()
    now_s = asyncio.get_running_loop().time
    began_s, pause_s = now_s(), PAUSE_FIRST_S
    while not stopping.is_set():
        try:
            await connect()
        except BrokerUnreachable as error:
            waited_s = now_s() - began_s
            if waited_s >= settings.start_timeout_s:
                waited = f"waited for {waited_s:.0f} s (start_timeout_s)"
                error.detail = "\n".join(each for each in (error.detail, waited) if each)
                raise
            _say(error, settings, waited_s)
        else:
            return True
        await _pause(stopping, min(pause_s, settings.start_timeout_s - waited_s))
        pause_s = min(2 * pause_s, PAUSE_LAST_S)
    return False


def _say(error: BrokerUnreachable, settings: Settings, waited_s: float) -> None:
    log.info(
        "waiting for a broker",
        brokers=settings.brokers,
        waited_s=round(waited_s),
        at_most_s=settings.start_timeout_s,
        error=error.detail or error.problem,
    )


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        pass
