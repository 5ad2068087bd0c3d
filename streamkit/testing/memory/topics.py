"""The topics of the in-memory cluster: what exists, with which settings, and what lies in its partitions."""

from collections.abc import Iterable, Mapping

from streamkit.kafka.ports import TopicInfo, TopicSpec
from streamkit.model.ids import TopicPartition
from streamkit.testing.memory.partition import MemoryPartition
from streamkit.testing.memory.refusal import Code, Refused

# Kafka's default of `max.message.bytes`, which the topic of that setting overrides.
MESSAGE_BYTES_MAX = 1_048_588


class MemoryTopic:
    """One topic: its partitions and the settings that were given."""

    __slots__ = ("config", "message_bytes_max", "name", "partitions", "replication")

    def __init__(self, spec: TopicSpec) -> None:
        self.name = spec.name
        self.replication = spec.replication or 1
        self.partitions: list[MemoryPartition] = []
        self.config: dict[str, str] = {}
        self.message_bytes_max = MESSAGE_BYTES_MAX
        self.grow(spec.partitions)
        self.configure(spec.config)

    def grow(self, partitions: int) -> None:
        """Raise the number of partitions to this."""
        for number in range(len(self.partitions), partitions):
            self.partitions.append(MemoryPartition(TopicPartition(self.name, number)))

    def configure(self, config: Mapping[str, str]) -> None:
        """Set these entries and leave the others as they are."""
        self.config.update(config)
        self.message_bytes_max = int(self.config.get("max.message.bytes", MESSAGE_BYTES_MAX))

    def info(self) -> TopicInfo:
        """The topic as an admin sees it."""
        return TopicInfo(self.name, len(self.partitions), self.replication, dict(self.config))


class Topics:
    """Every topic by name."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, MemoryTopic] = {}

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._topics)

    def find(self, topic: str) -> MemoryTopic | None:
        """The topic, if there is one."""
        return self._topics.get(topic)

    def topic(self, topic: str) -> MemoryTopic:
        """The topic, which must exist."""
        found = self._topics.get(topic)
        if found is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, topic)
        return found

    def partition(self, partition: TopicPartition) -> MemoryPartition:
        """The partition, which must exist."""
        found = self._topics.get(partition.topic)
        if found is None or not 0 <= partition.partition < len(found.partitions):
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, partition)
        return found.partitions[partition.partition]

    def create(self, spec: TopicSpec) -> None:
        """Create a topic; one that exists already is left as it is."""
        if spec.partitions < 1:
            raise Refused(Code.INVALID_PARTITIONS, spec.name)
        if spec.name not in self._topics:
            self._topics[spec.name] = MemoryTopic(spec)

    def grow(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions; Kafka refuses to keep or lower it."""
        found = self.topic(topic)
        if partitions <= len(found.partitions):
            raise Refused(Code.INVALID_PARTITIONS, topic)
        found.grow(partitions)

    def delete(self, topics: Iterable[str]) -> None:
        """Delete topics; one that does not exist is fine."""
        for topic in topics:
            self._topics.pop(topic, None)
