"""A place to wait for one thing with a time-out, without an asyncio.Task per wait."""

import asyncio


class Wakeup:
    """Set by many, waited on by one; a set that nobody waited for is kept for the next wait."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_set(self) -> bool:
        """Whether a wait that begins now returns at once, or one that has begun is about to."""
        return self._is_set

    def set(self) -> None:
        """Let the waiter go on, now or when it comes."""
        self._is_set = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def clear(self) -> None:
        """Forget what was set."""
        self._is_set = False

    async def wait(self, timeout_s: float | None) -> None:
        """Return when set, or when the time is over; None waits for ever. Clears it."""
        if not self._is_set:
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            timer = None if timeout_s is None else loop.call_later(timeout_s, _finish, waiter)
            try:
                await waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        self._is_set = False


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
