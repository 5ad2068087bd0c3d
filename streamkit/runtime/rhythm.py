"""rhythm: how long the loop waits for records, when it rests, and when a span is due.

Under load the next span is processed while the last commit is in flight. When little comes in, requests cost more than
records: the loop ends its commit, waits a moment, then asks once.
"""

import asyncio

from streamkit.config import Settings
from streamkit.runtime.commit import Committer
from streamkit.task.emit import Outbox

# How long an idle loop sleeps in a poll before it looks at the group and its tasks again.
IDLE_POLL_S = 0.1
# The same while something is about to change: tasks are restored, timers are left to fire.
BUSY_POLL_S = 0.002
# After a commit the broker takes about 2 ms to let its readers see it, and a question half of that to reach it; one that
# comes earlier brings only what came since.
VISIBLE_S = 0.001


class Rhythm:
    """The times of the loop."""

    def __init__(self, settings: Settings, committer: Committer, outbox: Outbox) -> None:
        self._settings = settings
        self._committer = committer
        self._outbox = outbox
        self._span_started_s: float | None = None
        self._rounds_left = 0

    @property
    def is_span_open(self) -> bool:
        """True if records have come in since the last span was ended."""
        return self._span_started_s is not None

    def begin_span(self) -> None:
        """The first records of a span have come."""
        self._span_started_s = now_s()

    def end_span(self) -> None:
        """The span is committed or dropped."""
        self._span_started_s = None

    def is_due(self, *, is_drained: bool) -> bool:
        """Whether to commit: as soon as the input is drained, at the latest after the interval or at the size bound."""
        started_s = self._span_started_s
        if started_s is not None and now_s() - started_s >= self._settings.commit_interval_s:
            return True
        if is_drained and not self._committer.busy:
            return True
        return self._outbox.bytes_waiting >= self._settings.span_bytes_max

    async def rest(self, hops: int) -> None:
        """End the commit, then wait a moment for more to come.

        What has just been sent through a topic should not wait: as many rounds as a record has `hops` of that kind
        before it follow each other quickly, and take it from its source to its sink.
        """
        await self._committer.settle()
        if self._rounds_left > 0:
            self._rounds_left -= 1
            pause_s = VISIBLE_S
        else:
            self._rounds_left = hops
            pause_s = self._settings.commit_pause_s
        left_s = self._committer.ended_at + pause_s - now_s()
        if left_s > 0:
            await asyncio.sleep(left_s)


def now_s() -> float:
    """The clock of the event loop."""
    return asyncio.get_running_loop().time()
