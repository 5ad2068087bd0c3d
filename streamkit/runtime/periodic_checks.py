"""periodic_checks: periodic checks beside the loop; their errors are logged, and eight unexpected ones in a row end the worker.

    no answer, or a refusal       told more and more seldom; the next look comes at its time, for as long as the worker lives
    what nobody expected          told with its traceback; the next looks come later each time, and a few in a row end the worker

A worker without one of its looks would seem well while event time stands still, or a topic is blocked and nobody knows.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from streamkit.errors import Bug, StreamkitError, said
from streamkit.runtime.retries import Tries

log = structlog.get_logger()

# A strange answer of a broker that is being replaced passes; what has come this often in a row is a mistake of ours.
UNEXPECTED_MAX = 8
# Even looks that fail should see within a few minutes that all is well again.
PAUSE_MAX_S = 60.0


class CheckFailures:
    """What becomes of looks that fail, one after the other."""

    def __init__(self, name: str) -> None:
        """`name` is what they look for."""
        self._name = name
        self._tries = Tries()
        self._unexpected = 0

    def went_well(self) -> None:
        """A look has ended as it should."""
        self._tries.reset()
        self._unexpected = 0

    def failed(self, error: BaseException, pause_s: float) -> float:
        """A look has failed: say so; how long to wait for the next one, where it is `pause_s` while all is well.

        Raises:
            Bug: that has been so too often, for a reason that nobody expected.
        """
        if isinstance(error, StreamkitError) and not isinstance(error, Bug):
            self._tries.tell("a periodic check failed: will be tried again", error, look=self._name)
            return pause_s
        self._unexpected += 1
        log.error(
            "a periodic check failed unexpectedly", look=self._name, failures=self._unexpected, exc_info=error
        )
        if self._unexpected >= UNEXPECTED_MAX:
            raise Bug(
                f"the periodic check of {self._name} failed {self._unexpected} times in a row",
                detail=said(error),
                hint="the log has a traceback of each: report it; a worker that is started again goes on meanwhile",
            ) from error
        return max(pause_s, min(PAUSE_MAX_S, pause_s * float(2**self._unexpected)))


class PeriodicCheck:
    """One kind of question, at most one at a time, asked in the background; the loop comes by to start the next."""

    def __init__(self, name: str, first_after_s: float = 0.0) -> None:
        """`name` is what is looked for; the first look begins so long after the loop came by first."""
        self._name = name
        self._failures = CheckFailures(name)
        self._asking: asyncio.Task[None] | None = None
        self._first_after_s = first_after_s
        self._pause_s = 0.0
        self._next_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        """Whether the next look may begin; how the one before has ended is told here.

        Raises:
            Bug: looks fail again and again, for a reason that nobody expected.
        """
        asking = self._asking
        if self._next_s is None:
            self._next_s = now_s + self._first_after_s
        if asking is not None and asking.done():
            self._asking = None
            # Whoever cancels a look from here forgets it: one that is found cancelled was so by somebody else.
            error = asyncio.CancelledError() if asking.cancelled() else asking.exception()
            if error is None:
                self._failures.went_well()
            elif (pause_s := self._failures.failed(error, self._pause_s)) > self._pause_s:
                self._next_s = now_s + pause_s
        return self._asking is None and now_s >= self._next_s

    def begin(self, asking: Coroutine[Any, Any, None], now_s: float, pause_s: float) -> None:
        """Ask; the next question is due after this long, unless this one takes longer."""
        self._pause_s = pause_s
        self._next_s = now_s + pause_s
        self._asking = asyncio.create_task(asking, name=self._name)

    async def stop(self) -> None:
        """End what is under way."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.wait([asking])
