"""output_topics: whether the topics that we write to still are what they were."""

import asyncio

import structlog

from streamkit.errors import Misconfigured, Retry
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Admin
from streamkit.model.topic_shape import TopicInfo, so_many
from streamkit.task.engine import Engine
from streamkit.task.limits import limits_of

log = structlog.get_logger()

# A broker that has just started may not have heard of a topic yet: only what stays missing for this long is gone.
GONE_S = 5.0
LOOK_AGAIN_S = 0.5


class OutputTopics:
    """The output topics of a plan, as these are now."""

    def __init__(self, plan: Plan, engine: Engine, admin: Admin) -> None:
        self._plan = plan
        self._outbox = engine.outbox
        self._routes = engine.routes
        self._admin = admin

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
            partitions = found[topic].partitions
            if partitions > self._routes.counts[topic]:
                log.warning("a topic has more partitions now", topic=topic, partitions=partitions)
                self._routes.grow(topic, partitions)
        if not self._outbox.learn({topic: limits_of(info) for topic, info in found.items()}):
            return False
        self._routes.renew()
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
        if info.partitions < self._routes.counts[topic]:
            had = self._routes.counts[topic]
            raise Misconfigured(
                f'topic "{topic}" has {so_many(info.partitions)}, and had {had} when the worker started',
                detail="it was deleted and created anew",
                hint="start the worker again if that was meant: it then uses those that there are",
            )
