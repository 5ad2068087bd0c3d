"""singly: where a task runs its records, timers or held-back results one at a time.

A chunk grows on quick records, and may then hold several of which none takes too long and all together do. Nobody is to
blame for that, but whoever comes next would cut the same chunk again. So its place is written down (`runtime/stuck_records.py`),
and up to there a task runs one record at a time: a turn ends soon after a slow one, and what is done is committed.
"""

from collections.abc import Callable, Mapping

from streamkit.model.ids import TopicPartition
from streamkit.progress.pace import Pace


class Singly:
    """What one task must not run in chunks."""

    def __init__(self, pace: Pace, now_ms: Callable[[], int]) -> None:
        self._pace = pace
        self._now_ms = now_ms
        # For each partition the last record up to which they come one by one, and when that is forgotten: a topic that was
        # created anew may not get there.
        self._until: dict[TopicPartition, tuple[int, int]] = {}
        # Their places are not in an order that positions tell: until the task is made anew without such a note. It costs a
        # look at the clock each.
        self.timers = False
        self.results = False

    def records_until(self, partition: TopicPartition, offset: int, forgotten_at_ms: int) -> None:
        """Run records one at a time until this one is committed, or it is then."""
        self._until[partition] = max((offset, forgotten_at_ms), self._until.get(partition, (0, 0)))
        self._pace.keep_single()

    def passed(self, positions: Mapping[TopicPartition, int]) -> None:
        """Everything before these positions is committed."""
        if self._until:
            now_ms = self._now_ms()
            self._until = {
                at: (last, forgotten_at_ms)
                for at, (last, forgotten_at_ms) in self._until.items()
                if positions.get(at, 0) <= last and now_ms < forgotten_at_ms
            }
            if not self._until:
                self._pace.grow_again()
