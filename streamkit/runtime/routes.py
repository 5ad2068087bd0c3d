"""routes: the output topics: which partition a record goes to, and whether they still are what they were."""

import asyncio
from collections.abc import Iterable, Mapping

import structlog

from streamkit.errors import Misconfigured, Retry
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Admin, TopicInfo
from streamkit.model.ids import TopicPartition
from streamkit.model.keys import KafkaPartitions, ShufflePartitions
from streamkit.operators.step import Code
from streamkit.runtime.emit import Lane, Outbox
from streamkit.runtime.limits import limits_of

log = structlog.get_logger()

# A broker that has just started may not have heard of a topic yet: only what stays missing for this long is gone.
GONE_S = 5.0
LOOK_AGAIN_S = 0.5


class Routes:
    """How records get to the output topics of a plan, as these are now."""

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
            _require(topic, found.get(topic), self._counts[topic])
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


def _require(topic: str, info: TopicInfo | None, partitions: int) -> None:
    if info is None:
        raise Misconfigured(
            f'topic "{topic}" does not exist any more',
            detail="results cannot be written; nothing of them is lost, they will be made again",
            hint="create it with `streamkit topics apply --execute`, then start the worker again",
        )
    if info.partitions < partitions:
        raise Misconfigured(
            f'topic "{topic}" has {info.partitions} partitions, and had {partitions} when the worker started',
            detail="it was deleted and created anew",
            hint="start the worker again if that was meant: it then uses those that there are",
        )


def output_codes(plan: Plan, outbox: Outbox, partition_counts: Mapping[str, int]) -> dict[str, Code]:
    """How to append to each output topic: sinks by Kafka's own partitioner, shuffles by key group."""
    codes: dict[str, Code] = {}
    for stage in plan.stages:
        for output in stage.outputs:
            if output.topic not in codes:
                count = partitions_of(output.topic, partition_counts)
                by_key = ShufflePartitions(count) if output.kind == "shuffle" else KafkaPartitions(count)
                codes[output.topic] = outbox.append_code(output.topic, by_key, count)
    return codes


def dead_letter_lane(plan: Plan, outbox: Outbox, partition_counts: Mapping[str, int]) -> Lane:
    """Where dead letters go."""
    lane = outbox.lane(plan.dead_letter_topic, partitions_of(plan.dead_letter_topic, partition_counts))
    return outbox.bound(lane)


def written_and_read(
    plan: Plan, partition_counts: Mapping[str, int]
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """All partitions that workers of this plan write to, and all that they commit positions of."""
    outputs = [output.topic for stage in plan.stages for output in stage.outputs]
    inputs = [each.topic for stage in plan.stages for each in stage.inputs]
    written = dict.fromkeys([*plan.changelogs(), *outputs, plan.dead_letter_topic])
    return _all_of(written, partition_counts), _all_of(dict.fromkeys(inputs), partition_counts)


def _all_of(topics: Iterable[str], partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number) for topic in topics for number in range(partition_counts.get(topic, 0))
    ]


def partitions_of(topic: str, partition_counts: Mapping[str, int]) -> int:
    """The number of partitions of a topic that must exist."""
    count = partition_counts.get(topic)
    if count is None:
        raise Misconfigured(
            f'topic "{topic}" does not exist',
            hint="declare it in a file and create it with `streamkit topics apply --execute`, or let `streamkit check` list what is missing",
        )
    return count
