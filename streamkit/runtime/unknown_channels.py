"""unknown_channels: channels of a shuffle that no task has; they are not waited for.

A signal names the task that sent it. One with a greater number than there are tasks is of a source that has grown, and our
plan has not (`runtime/growth.py`), or it is damage. The cluster can tell: a task that speaks has a partition of its own in the
changelog of its stage, made before its first commit. Until it has told, event time waits for such a channel; afterwards what
comes by it is passed over and counted (`task/signal_checks.py`).
"""

import structlog

from streamkit.kafka.ports import Admin
from streamkit.model.counts import DOUBTED_SIGNALS
from streamkit.progress.writers import Writers
from streamkit.runtime.assign import Roster
from streamkit.runtime.periodic_checks import PeriodicCheck
from streamkit.runtime.prepare import HEARD_S

log = structlog.get_logger()

# How often the cluster is asked while event time waits for the answer, and when it does not.
ASK_S = 1.0
ASK_AGAIN_S = 20.0


class UnknownChannels:
    """Finds out whether channels beyond those that are known belong to a task."""

    def __init__(self, writers: Writers, admin: Admin, roster: Roster) -> None:
        self._writers = writers
        self._admin = admin
        self._roster = roster
        self._changelogs = {
            output.topic: stage.changelog
            for stage in roster.plan.stages
            for output in stage.outputs
            if output.kind == "shuffle"
        }
        # Since when a shuffle has channels that are waited for and not known.
        self._since_s: dict[str, float] = {}
        self._check = PeriodicCheck("tasks that write to a shuffle")

    def look(self, now_s: float) -> None:
        """Ask about the channels that are not known, if there are any; called with every beat."""
        if not self._check.is_due(now_s):
            return
        waiting = self._waiting()
        self._since_s = {topic: self._since_s.get(topic, now_s) for topic in waiting}
        if claimed := waiting | self._writers.take_claims():
            self._check.begin(self._ask(claimed, now_s), now_s, ASK_S if waiting else ASK_AGAIN_S)

    def _waiting(self) -> set[str]:
        """The shuffles in which a task waits for more channels than are known."""
        return {
            topic
            for task in self._roster.running()
            for topic, channels in task.clock.channels.items()
            if len(channels.watermarks) > self._writers.count(topic)
        }

    async def _ask(self, topics: set[str], now_s: float) -> None:
        """Learn how many tasks there are; a broker hears of new ones a little later than the first of their signals."""
        counts = await self._admin.partitions([self._changelogs[topic] for topic in topics])
        for topic in topics:
            self._writers.learn(topic, counts.get(self._changelogs[topic], 0))
        for topic in self._waiting() & topics:
            if now_s - self._since_s.get(topic, now_s) >= HEARD_S:
                self._refuse(topic)

    def _refuse(self, topic: str) -> None:
        """Wait no longer for channels that are nobody's."""
        known = self._writers.count(topic)
        if self._writers.refuse(topic):
            log.warning(
                "a shuffle holds signals of tasks that do not exist: event time does not wait for them",
                topic=topic,
                tasks=known,
                hint="only streamkit may write to shuffle topics: look at the ACLs",
            )
        for task in self._roster.running():
            channels = task.clock.channels.get(topic)
            if channels is not None and channels.cut(known):
                task.clock.counts[DOUBTED_SIGNALS] += 1
                task.moved = True

    async def stop(self) -> None:
        """End what is under way."""
        await self._check.stop()
