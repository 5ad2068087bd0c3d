"""clocks: the two of a worker. One hangs on the wall and may be set by anybody; the other only measures how long things take.

Processing time, which users see, follows the one on the wall, but never goes back: what has fired would fire again. When the
wall clock is set back, processing time goes on at half its pace until the wall has caught up, so that timers are late and
none stands still. When it is set forward, timers fire early; that cannot be known from the right thing, so it is told.
"""

from collections.abc import Callable

import msgspec
import structlog

log = structlog.get_logger()

# Time servers correct by less; a step that is larger has been made by a person, or by a machine that slept.
STEP_MS = 10_000


class Clocks(msgspec.Struct, frozen=True):
    """What a worker asks for the time."""

    # Processing time, in ms since 1970: for users, and for whatever outlives this process.
    now_ms: Callable[[], int]
    # For how long something lasts, in ms from any moment on: nobody can set it.
    elapsed_ms: Callable[[], int]


def clocks_of(wall_ms: Callable[[], int], elapsed_ms: Callable[[], int]) -> Clocks:
    """The clocks of a worker whose host has this one on the wall."""
    return Clocks(ProcessingTime(wall_ms, elapsed_ms).now_ms, elapsed_ms)


class ProcessingTime:
    """The clock on the wall, as a worker goes by it."""

    def __init__(self, wall_ms: Callable[[], int], elapsed_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._elapsed_ms = elapsed_ms
        self._wall = wall_ms()
        self._now = float(self._wall)
        self._at = elapsed_ms()

    def now_ms(self) -> int:
        """Processing time."""
        wall, at = self._wall_ms(), self._elapsed_ms()
        passed = at - self._at
        step = wall - self._wall - passed
        if abs(step) > STEP_MS:
            effect = "jumps ahead" if step > 0 else "goes on at half its pace until the clock has caught up"
            log.warning("the clock of this host was set", seconds=step // 1000, processing_time=effect)
        self._wall, self._at = wall, at
        self._now = max(wall, self._now + passed / 2)
        return int(self._now)
