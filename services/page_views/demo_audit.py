"""The audit at the end of the demo: plain Python over every value of both topics. Nothing of streamkit is in it.

If every view was counted exactly once, the counts of a page, in the order of its partition, are 1, 2, 3 ... and end
with the number of views that people, not bots, had of it. Whatever was lost is missing from this row, and whatever was
counted twice is in it twice or goes on beyond its end.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

READ_AT_ONCE = 10_000
READ_WAIT_S = 0.2
# How long a reader waits for the next records of a topic that nobody writes to any more.
SILENCE_LIMIT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What was found. `out_of_order` counts results that are not one more than the result before them."""

    records_in: int
    bots: int
    records_out: int
    lost: int
    twice: int
    out_of_order: int

    @property
    def expected(self) -> int:
        """How many views had to be counted."""
        return self.records_in - self.bots

    @property
    def good(self) -> bool:
        """True if every view was counted exactly once, in order."""
        return not (self.lost or self.twice or self.out_of_order) and self.records_out == self.expected


def audit(views: Iterable[bytes], counts: Iterable[bytes]) -> Audit:
    """Compare all of the input with all of the output; each partition in its order."""
    bots = records_in = 0
    wanted: Counter[str] = Counter()
    for value in views:
        view = json.loads(value)
        records_in += 1
        if view["user"].startswith("bot-"):
            bots += 1
        else:
            wanted[view["page"]] += 1
    rows: defaultdict[str, list[int]] = defaultdict(list)
    for value in counts:
        count = json.loads(value)
        rows[count["page"]].append(count["views"])
    lost = twice = out_of_order = 0
    for page in wanted.keys() | rows.keys():
        row, end = rows.get(page, []), wanted[page]
        found = {number for number in row if 1 <= number <= end}
        lost += end - len(found)
        twice += len(row) - len(found)
        out_of_order += sum(now != before + 1 for before, now in zip([0, *row], row, strict=False))
    return Audit(
        records_in=records_in,
        bots=bots,
        records_out=sum(map(len, rows.values())),
        lost=lost,
        twice=twice,
        out_of_order=out_of_order,
    )


def consumer(brokers: str) -> Consumer:
    """A reader that is not streamkit's: committed records only, and it leaves no trace in the cluster."""
    return Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "page-views-demo",  # must be given, is never joined
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )


def partitions_of(reader: Consumer, topic: str) -> list[TopicPartition]:
    """Every partition of a topic, from its first record on."""
    found = reader.list_topics(topic, timeout=SILENCE_LIMIT_S).topics[topic].partitions
    return [TopicPartition(topic, number, 0) for number in sorted(found)]


def read_topic(brokers: str, topic: str) -> list[bytes]:
    """Every committed value of a topic, from its start to its end.

    Raises:
        KafkaException: the topic cannot be read to its end.
    """
    reader = consumer(brokers)
    try:
        unfinished = partitions_of(reader, topic)
        reader.assign(unfinished)
        open_partitions = {each.partition for each in unfinished}
        values: list[bytes] = []
        heard_s = time.monotonic()
        while open_partitions:
            messages = reader.consume(READ_AT_ONCE, READ_WAIT_S)
            if messages:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > SILENCE_LIMIT_S:
                raise KafkaException(
                    f"{topic}: partitions {sorted(open_partitions)} do not come to their end"
                )
            for message in messages:
                error = message.error()
                if error is None:
                    values.append(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - so spelt by the library
                    open_partitions.discard(message.partition())
                else:
                    raise KafkaException(error)
        return values
    finally:
        reader.close()
