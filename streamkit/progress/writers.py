"""Writers: how many tasks may speak in each shuffle, as far as is known.

A worker may hear of a task before its own plan knows of it, because a source has grown. So a channel with a greater number is
waited for at once, while the cluster is asked (`runtime/unknown_channels.py`). If no task has that number, it is not believed
any more: a channel that never speaks again would hold event time for ever.
"""

from collections.abc import Mapping


class Writers:
    """The number of tasks that write to each shuffle; the same for all tasks of a worker."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = dict(counts)
        # Shuffles in which somebody spoke under a number that no task has, and those where that happened once more.
        self._refusing: set[str] = set()
        self._claimed: set[str] = set()

    def count(self, topic: str) -> int:
        """How many there are."""
        return self._counts[topic]

    def admits(self, topic: str, channel: int) -> bool:
        """Whether a signal of this channel is taken in, at least until more is known."""
        if channel < self._counts[topic]:
            return True
        self._claimed.add(topic)
        return topic not in self._refusing

    def learn(self, topic: str, count: int) -> None:
        """The cluster says that there are this many; there are never fewer than before."""
        self._counts[topic] = max(self._counts[topic], count)

    def refuse(self, topic: str) -> bool:
        """Believe nobody of a greater number from now on; whether that is new."""
        is_new = topic not in self._refusing
        self._refusing.add(topic)
        return is_new

    def take_claims(self) -> set[str]:
        """The shuffles in which a greater number was heard since the last call."""
        claimed, self._claimed = self._claimed, set()
        return claimed
