"""supervisor: how long to wait before what failed is tried again."""

from streamkit.config import Settings


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
