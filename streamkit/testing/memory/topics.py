"""The topics of the in-memory cluster: what exists, with which settings, and what lies in its partitions."""

from collections.abc import Callable, Iterable, Mapping

from streamkit.model.ids import TopicPartition
from streamkit.model.topic_shape import TopicInfo, TopicSpec
from streamkit.testing.memory.batch import Draft, MemoryBatch
from streamkit.testing.memory.partition import MemoryPartition
from streamkit.testing.memory.refusal import ErrorCode, Refused

# Kafka 4's defaults of what counts here; a topic's own settings come first.
DEFAULTS = {
    "max.message.bytes": "1048588",
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
}

# What else a broker may hold against a record: a test's own rule, about which no setting says a word.
Rule = Callable[[Draft], bool]


class MemoryTopic:
    """One topic: its partitions, the settings that were given, and what it takes."""

    __slots__ = ("config", "name", "partitions", "refuses", "replication", "settings")

    def __init__(self, spec: TopicSpec) -> None:
        self.name = spec.name
        self.replication = spec.replication or 1
        self.partitions: list[MemoryPartition] = []
        self.config: dict[str, str] = {}
        self.refuses: Rule | None = None
        self.grow(spec.partitions)
        self.configure(spec.config)

    def grow(self, partitions: int) -> None:
        """Raise the number of partitions to this."""
        for number in range(len(self.partitions), partitions):
            self.partitions.append(MemoryPartition(TopicPartition(self.name, number)))

    def configure(self, config: Mapping[str, str]) -> None:
        """Set these entries and leave the others as they are."""
        self.config.update(config)
        self.settings = {**DEFAULTS, **self.config}

    def info(self) -> TopicInfo:
        """The topic as an admin sees it."""
        own, effective = dict(self.config), dict(self.settings)
        return TopicInfo(self.name, len(self.partitions), self.replication, own, effective)

    def judge(self, partition: TopicPartition, batch: MemoryBatch, now_ms: int | None) -> None:
        """Refuse a batch as Kafka does: as a whole, for its size or for any one of its records.

        `now_ms` is the broker's clock; without one it says nothing about timestamps.
        """
        if batch.size_bytes > int(self.settings["max.message.bytes"]):
            raise Refused(ErrorCode.MESSAGE_TOO_LARGE, partition)
        drafts = batch.drafts
        if "compact" in self.settings["cleanup.policy"]:
            _refuse(
                ErrorCode.INVALID_RECORD, partition, [n for n, draft in enumerate(drafts) if draft[1] is None]
            )
        if now_ms is not None and self.settings["message.timestamp.type"] == "CreateTime":
            earliest = now_ms - int(self.settings["message.timestamp.before.max.ms"])
            latest = now_ms + int(self.settings["message.timestamp.after.max.ms"])
            odd = [n for n, draft in enumerate(drafts) if not earliest <= draft[0] <= latest]
            _refuse(ErrorCode.INVALID_TIMESTAMP, partition, odd)
        if self.refuses is not None:
            bad = [n for n, draft in enumerate(drafts) if self.refuses(draft)]
            _refuse(ErrorCode.INVALID_RECORD, partition, bad)


def _refuse(code: ErrorCode, partition: TopicPartition, records: list[int]) -> None:
    if records:
        raise Refused(code, partition, records)


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
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)
        return found

    def partition(self, partition: TopicPartition) -> MemoryPartition:
        """The partition, which must exist."""
        found = self._topics.get(partition.topic)
        if found is None or not 0 <= partition.partition < len(found.partitions):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partition)
        return found.partitions[partition.partition]

    def create(self, spec: TopicSpec) -> None:
        """Create a topic; one that exists already is left as it is."""
        if spec.partitions < 1:
            raise Refused(ErrorCode.INVALID_PARTITIONS, spec.name)
        if spec.name not in self._topics:
            self._topics[spec.name] = MemoryTopic(spec)

    def grow(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions; Kafka refuses to keep or lower it."""
        found = self.topic(topic)
        if partitions <= len(found.partitions):
            raise Refused(ErrorCode.INVALID_PARTITIONS, topic)
        found.grow(partitions)

    def delete(self, topics: Iterable[str]) -> None:
        """Delete topics; one that does not exist is fine."""
        for topic in topics:
            self._topics.pop(topic, None)
