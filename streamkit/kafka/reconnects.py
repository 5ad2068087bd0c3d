"""Reconnects: a broker that refuses connections is knocked at more and more seldom, whoever wants it and for what.

Everybody who waits for a broker has pauses of their own, and there are many of them: readers, writers, the group, metadata.
The attempts of all who share a client are bounded here, per broker, as `reconnect.backoff.max.ms` does in Kafka's own clients.
"""

import random
import time
from collections.abc import Callable
from typing import NamedTuple

# A broker that is merely restarted is found again soon; one that stays away is asked once a second.
PAUSE_FIRST_S = 0.05
PAUSE_LAST_S = 1.0
# Not all clients of a broker come back in the same moment.
SPREAD = 0.2


class FailedAttempt(NamedTuple):
    """The next attempt is for then; it follows a pause of this length."""

    until_s: float
    pause_s: float


class Reconnects:
    """When each broker may be tried again."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._refusals: dict[object, FailedAttempt] = {}

    def is_due(self, node: object) -> bool:
        """Whether to try now."""
        refusal = self._refusals.get(node)
        return refusal is None or self._now_s() >= refusal.until_s

    def failed(self, node: object) -> None:
        """There was no connection; attempts that were under way at the same time count as one."""
        if not self.is_due(node):
            return
        before = self._refusals.get(node)
        pause_s = PAUSE_FIRST_S if before is None else min(2 * before.pause_s, PAUSE_LAST_S)
        spread = random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311 - nothing to guess
        self._refusals[node] = FailedAttempt(self._now_s() + pause_s * spread, pause_s)

    def succeeded(self, node: object) -> None:
        """The broker is back."""
        self._refusals.pop(node, None)
