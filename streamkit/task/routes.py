"""routes: where results go: how each output topic is appended to, and which partitions are written and read."""

from collections.abc import Iterable, Mapping

from streamkit.errors import Misconfigured
from streamkit.graph.plan import Plan
from streamkit.model.ids import TopicPartition
from streamkit.model.keys import KafkaPartitions, ShufflePartitions
from streamkit.operators.step import Statements
from streamkit.task.emit import Outbox


class Routes:
    """How results get to the output topics of a plan, and which partitions that concerns."""

    def __init__(self, plan: Plan, outbox: Outbox, partition_counts: Mapping[str, int]) -> None:
        self._plan = plan
        self._outbox = outbox
        self.counts = dict(partition_counts)
        # The statements that append to each topic; see `Scope.output`.
        self.codes = self._output_codes()
        # Where dead letters go.
        self.letters = outbox.bound(outbox.lane(plan.dead_letter_topic, self._count(plan.dead_letter_topic)))
        outputs = [output.topic for stage in plan.stages for output in stage.outputs]
        inputs = [each.topic for stage in plan.stages for each in stage.inputs]
        # All partitions that we write to, which may become more, and all that we commit positions of.
        self.written = _all_of(
            dict.fromkeys([*plan.changelogs(), *outputs, plan.dead_letter_topic]), self.counts
        )
        self.read = _all_of(dict.fromkeys(inputs), self.counts)

    def grow(self, topic: str, partitions: int) -> None:
        """A topic that we write to has more partitions now."""
        self.written += [TopicPartition(topic, number) for number in range(self.counts[topic], partitions)]
        self.counts[topic] = partitions
        self._outbox.grow(topic, partitions)

    def renew(self) -> None:
        """Topics take something else than before: append to them by their new rules."""
        self.codes.update(self._output_codes())

    def _output_codes(self) -> dict[str, Statements]:
        """How to append to each output topic: sinks by Kafka's own partitioner, shuffles by key group."""
        codes: dict[str, Statements] = {}
        for stage in self._plan.stages:
            for output in stage.outputs:
                if output.topic not in codes:
                    count = self._count(output.topic)
                    by_key = ShufflePartitions(count) if output.kind == "shuffle" else KafkaPartitions(count)
                    codes[output.topic] = self._outbox.append_code(output.topic, by_key, count)
        return codes

    def _count(self, topic: str) -> int:
        """The number of partitions of a topic that must exist."""
        count = self.counts.get(topic)
        if count is None:
            raise Misconfigured(
                f'topic "{topic}" does not exist',
                hint="declare it in a file and create it with `streamkit topics apply --execute`, or let `streamkit check` list what is missing",
            )
        return count


def _all_of(topics: Iterable[str], partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number) for topic in topics for number in range(partition_counts.get(topic, 0))
    ]
