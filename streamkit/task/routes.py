"""routes: which partition of which output topic a record goes to."""

from collections.abc import Iterable, Mapping

from streamkit.errors import Misconfigured
from streamkit.graph.plan import Plan
from streamkit.model.ids import TopicPartition
from streamkit.model.keys import KafkaPartitions, ShufflePartitions
from streamkit.operators.step import Statements
from streamkit.task.emit import Lane, Outbox


def output_codes(plan: Plan, outbox: Outbox, partition_counts: Mapping[str, int]) -> dict[str, Statements]:
    """How to append to each output topic: sinks by Kafka's own partitioner, shuffles by key group."""
    codes: dict[str, Statements] = {}
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
