"""writer_life: the id that a worker writes under, and the end of those that it wrote under before."""

from streamkit.runtime.parts import Parts
from streamkit.runtime.retire import Retirement
from streamkit.runtime.retries import Backoff, retried


class WriterLife:
    """Gives the worker's writer a new id whenever the one before may have left something open."""

    def __init__(self, parts: Parts, retirement: Retirement, backoff: Backoff) -> None:
        self._writer = parts.writer
        self._names = parts.names
        self._retirement = retirement
        self._backoff = backoff
        self._is_transactional = parts.settings.guarantee == "exactly_once"
        # False once somebody else may have fenced the id.
        self.is_open = False

    async def open(self) -> None:
        """Take an id that nobody has ever used, and retire the one before."""
        begin = self._renew if self._is_transactional else self._writer.open
        await retried("taking a writer id", self._backoff, begin)
        self.is_open = True

    async def look_after(self) -> None:
        """After a broker was lost: what it may have forgotten is not left to the next commit, which may never come."""
        if self._writer.needs_renewal:
            await self.open()

    async def _renew(self) -> None:
        if self._names.former is not None:
            await self._retirement.retire(self._names.former)
        await self._writer.open(self._names.next())
