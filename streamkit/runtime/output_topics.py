"""output_topics: whether the topics that we write to still are what they were."""

import asyncio
from collections.abc import Mapping

import structlog

from streamkit.errors import Misconfigured, Retry
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Admin
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_shape import TopicInfo, so_many
from streamkit.task.emit import Outbox
from streamkit.task.limits import limits_of
from streamkit.task.routes import dead_letter_lane, output_codes, written_and_read

log = structlog.get_logger()

# A broker that has just started may not have heard of a topic yet: only what stays missing for this long is gone.
GONE_S = 5.0
LOOK_AGAIN_S = 0.5


class OutputTopics:
    """The output topics of a plan, as these are now, and how records get there."""

    def __init__(self, plan: Plan, outbox: Outbox, partition_counts: Mapping[str, int], admin: Admin) -> None:
        self._plan = plan
        self._outbox = outbox
        self._counts = dict(partition_counts)
        self._admin = admin
        # The statements that append to each topic; see `Scope.output`.
        self.codes = output_codes(plan, outbox, self._counts)
        self.letters = dead_letter_lane(plan, outbox, self._counts)
        # All partitions that we write to, which may become more, and all that we commit positions of.
        self.written, self.read = written_and_read(plan, self._counts)

    async def look_again(self) -> bool:
        """See what the topics are now; whether they take something else than before.

        Called when commits fail: a topic that somebody has deleted would otherwise be looked for, for ever.

        Raises:
            Misconfigured: a topic is gone, or has fewer partitions than it had.
        """
        try:
            found = await self._look_patiently()
        except Retry as error:
            log.info("could not look at the output topics", error=str(error))
            return False
        for topic in self._own:
            self._require(topic, found.get(topic))
            if found[topic].partitions > self._counts[topic]:
                log.warning(
                    "a topic has more partitions now", topic=topic, partitions=found[topic].partitions
                )
                more = range(self._counts[topic], found[topic].partitions)
                self.written += [TopicPartition(topic, number) for number in more]
                self._counts[topic] = found[topic].partitions
                self._outbox.grow(topic, found[topic].partitions)
        if not self._outbox.learn({topic: limits_of(info) for topic, info in found.items()}):
            return False
        self.codes.update(output_codes(self._plan, self._outbox, self._counts))
        log.warning("output topics take something else than before: going by their new settings")
        return True

    @property
    def _own(self) -> list[str]:
        """What nobody here reads, so that nobody else would notice that it is gone."""
        return [*self._plan.sinks(), self._plan.dead_letter_topic]

    async def _look_patiently(self) -> dict[str, TopicInfo]:
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + GONE_S
        while True:
            found = await self._admin.describe(self._outbox.topics)
            if found.keys() >= set(self._own) or clock() >= give_up_at:
                return found
            await asyncio.sleep(LOOK_AGAIN_S)

    def _require(self, topic: str, info: TopicInfo | None) -> None:
        if info is None:
            is_ours = topic == self._plan.dead_letter_topic
            apply = "create it with `streamkit topics apply --execute`, then start the worker again"
            raise Misconfigured(
                f'topic "{topic}" does not exist any more',
                detail="results cannot be written; nothing of them is lost, they will be made again",
                hint="start the worker again: it creates this topic itself" if is_ours else apply,
            )
        if info.partitions < self._counts[topic]:
            had = self._counts[topic]
            raise Misconfigured(
                f'topic "{topic}" has {so_many(info.partitions)}, and had {had} when the worker started',
                detail="it was deleted and created anew",
                hint="start the worker again if that was meant: it then uses those that there are",
            )
