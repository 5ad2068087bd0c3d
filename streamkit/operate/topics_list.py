"""The topics that there are: all of them in a list or in sum, or one with its partitions. Asks; changes nothing."""

from collections.abc import Sequence

import msgspec

from streamkit.errors import Misconfigured
from streamkit.kafka.ports import Admin
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_file import DeclaredTopic
from streamkit.model.topic_name import did_you_mean


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in the list: as it is, and the file that declares it."""

    topic: str
    partitions: int | None
    replication: int | None
    declared_in: str | None
    owner: str


class TopicList(msgspec.Struct, frozen=True):
    """All topics, of the cluster and of the files."""

    topics: list[TopicRow]


class PartitionRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one partition holds."""

    partition: int
    start_offset: int
    end_offset: int


class TopicDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A topic of the cluster, and what its file says about it."""

    topic: str
    replication: int
    config: dict[str, str]
    partitions: list[PartitionRow]
    declared_in: str | None = None
    owner: str = ""
    description: str = ""
    key: str = ""
    value: str = ""


class TopicsTotal(msgspec.Struct, frozen=True, kw_only=True):
    """What all topics hold; `offsets` are records, and markers of transactions among them."""

    topics: int
    offsets: int


async def list_all(declared: Sequence[DeclaredTopic], admin: Admin) -> TopicList:
    """Every topic that exists or is declared, by name."""
    found = await admin.describe(await admin.list_topics())
    files = {each.name: each for each in declared}
    rows = []
    for name in sorted({*found, *files}):
        info, file = found.get(name), files.get(name)
        rows.append(
            TopicRow(
                topic=name,
                partitions=info.partitions if info else None,
                replication=info.replication if info else None,
                declared_in=file.path if file else None,
                owner=file.file.owner if file else "",
            )
        )
    return TopicList(rows)


async def count_all(admin: Admin) -> TopicsTotal:
    """How much all topics hold together."""
    counts = await admin.partitions(await admin.list_topics())
    partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    starts = await admin.start_offsets(partitions) if partitions else {}
    ends = await admin.end_offsets(partitions, committed=False) if partitions else {}
    return TopicsTotal(topics=len(counts), offsets=sum(ends[each] - starts[each] for each in partitions))


async def describe_topic(topic: str, declared: DeclaredTopic | None, admin: Admin) -> TopicDescription:
    """One topic as cluster and file know it.

    Raises:
        Misconfigured: the cluster has no such topic.
    """
    info = (await admin.describe([topic])).get(topic)
    if info is None:
        where = f"it is declared in {declared.path}: " if declared else ""
        near = "" if declared else did_you_mean(topic, await admin.list_topics())
        raise Misconfigured(
            f'topic "{topic}" does not exist',
            hint=f"{near}{where}`streamkit topics {'apply --execute` creates it' if declared else 'list` shows what there is'}",
        )
    partitions = [TopicPartition(topic, number) for number in range(info.partitions)]
    starts = await admin.start_offsets(partitions)
    ends = await admin.end_offsets(partitions, committed=False)
    words = declared.file if declared else None
    return TopicDescription(
        topic=topic,
        replication=info.replication,
        config=dict(info.config),
        partitions=[
            PartitionRow(partition=each.partition, start_offset=starts[each], end_offset=ends[each])
            for each in partitions
        ],
        declared_in=declared.path if declared else None,
        owner=words.owner if words else "",
        description=words.description if words else "",
        key=words.key if words else "",
        value=words.value if words else "",
    )
