"""Topics and positions on the broker of the run, through confluent-kafka: a client that is not ours."""

import contextlib
import time
import uuid
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4
ANSWER_LIMIT_S = 15.0
READ_LIMIT_S = 180.0  # without a single record for so long, the topic will not come any more
_END_OF_PARTITION = -191


class Cluster:
    """The broker of this run, as its judge sees it."""

    def __init__(self, bootstrap: str, pids: list[int]) -> None:
        self.bootstrap = bootstrap
        self.pids = pids
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=ANSWER_LIMIT_S).topics)

    def create(self, *topics: str) -> None:
        """Make topics; return when the broker lists them."""
        wanted = [NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"}) for name in topics]
        for future in self._admin.create_topics(wanted).values():
            future.result()
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while not set(topics) <= self.topics() and time.monotonic() < deadline:
            time.sleep(0.05)

    def delete_containing(self, tag: str) -> None:
        """Remove every topic of a finished case, those included that a framework made by itself."""
        if names := [name for name in self.topics() if tag in name]:
            for future in self._admin.delete_topics(names).values():
                with contextlib.suppress(KafkaException):  # it costs disk, not truth
                    future.result()

    def ends(self, topic: str) -> dict[int, int]:
        """The end offset of every partition."""
        consumer = self._consumer(uuid.uuid4().hex)
        try:
            found = consumer.list_topics(topic, timeout=ANSWER_LIMIT_S).topics[topic].partitions
            return {
                each: consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=ANSWER_LIMIT_S)[1]
                for each in found
            }
        finally:
            consumer.close()

    def committed(self, group: str, topic: str) -> "Positions":
        return Positions(self._consumer(group), topic)

    def read(self, topic: str) -> Iterator[list[Message]]:
        """Everything that is committed in a topic, from its beginning to its end of now."""
        consumer = self._consumer(uuid.uuid4().hex, **{"enable.partition.eof": True})
        ended: set[int] = set()
        quiet_since = time.monotonic()
        try:
            consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
            while len(ended) < PARTITIONS:
                messages = consumer.consume(20_000, 0.5)
                if messages:
                    quiet_since = time.monotonic()
                elif time.monotonic() - quiet_since > READ_LIMIT_S:
                    raise TimeoutError(f"{topic} cannot be read to its end")
                ends = {each.partition() for each in messages if _is_end(each)}
                ended |= ends
                yield [each for each in messages if not each.error()] if ends else messages
        finally:
            consumer.close()

    def _consumer(self, group: str, **more: object) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
                "log_level": 0,
                **more,
            }
        )


class Positions:
    """The committed positions of a group, asked again and again without joining it."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._partitions = [TopicPartition(topic, each) for each in range(PARTITIONS)]

    def now(self) -> dict[int, int]:
        found = self._consumer.committed(self._partitions, timeout=ANSWER_LIMIT_S)
        return {each.partition: max(each.offset, 0) for each in found}

    def close(self) -> None:
        self._consumer.close()


def _is_end(message: Message) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() == _END_OF_PARTITION:
        return True
    raise KafkaException(error)
