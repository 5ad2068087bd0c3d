"""What every task of a pipeline last committed, read from its changelog by somebody who is not its worker."""

from collections.abc import AsyncIterator

from streamkit.errors import Retry
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Log, Reader
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.runtime.tail import require_commit
from streamkit.state.changelog import CommitRecord
from streamkit.state.keys import COMMIT_KEY

# A commit ends with its record, so the last one is a few offsets from the end; other tasks' markers may lie between.
# Where there is none, the look goes back further each time.
LOOK_BACK = 64
LOOK_BACK_FACTOR = 32
# How long a changelog may give no answer, and how often: a fetch that waits for another partition may be in the way.
ANSWER_S = 5.0
SILENCES_MAX = 3


async def last_commits(plan: Plan, log: Log) -> dict[TaskId, CommitRecord]:
    """The last commit record of each task that has one."""
    admin = log.admin()
    counts = await admin.partitions([stage.changelog for stage in plan.stages])
    places = {
        TopicPartition(stage.changelog, index): TaskId(stage.name, index)
        for stage in plan.stages
        for index in range(counts.get(stage.changelog, 0))
    }
    starts = await admin.start_offsets(places)
    ends = await admin.end_offsets(places, committed=True)
    reader = log.reader(committed=True)
    try:
        found: dict[TaskId, CommitRecord] = {}
        for place, task in places.items():
            last = await find_last_commit(reader, place, starts[place], ends[place])
            if last is not None:
                found[task] = last[1]
        return found
    finally:
        await reader.close()


async def find_last_commit(
    reader: Reader, place: TopicPartition, start: int, end: int
) -> tuple[int, CommitRecord] | None:
    """The last commit record of a changelog between two offsets, and where it stands; None if there is none.

    Raises:
        Misconfigured: what stands there under its key is no commit record.
    """
    found = await find_last(reader, place, COMMIT_KEY, (start, end))
    return None if found is None else (found[0], require_commit(place, *found))


async def find_last(
    reader: Reader, place: TopicPartition, key: bytes, between: tuple[int, int]
) -> tuple[int, bytes | None] | None:
    """Offset and value of the last record with this key, between two offsets; None if there is none."""
    start, end = between
    look_back = LOOK_BACK
    while start < end:
        first = max(start, end - look_back)
        record = await _last_between(reader, place, key, (first, end))
        if record is not None or first == start:
            return record
        look_back *= LOOK_BACK_FACTOR
    return None


async def _last_between(
    reader: Reader, place: TopicPartition, key: bytes, between: tuple[int, int]
) -> tuple[int, bytes | None] | None:
    found: tuple[int, bytes | None] | None = None
    async for offset, name, value in rows_between(reader, place, between):
        if name == key:
            found = (offset, value)
    return found


async def rows_between(
    reader: Reader, place: TopicPartition, between: tuple[int, int]
) -> AsyncIterator[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of every row of a changelog between two offsets.

    Raises:
        Retry: no answer. What was read until then must not be taken for all: an older commit would look like the last.
    """
    at, end = between
    reader.seek(place, at)
    silences = 0
    while at < end:
        fetched = await reader.poll(ANSWER_S)
        if not fetched:
            silences += 1
            if silences == SILENCES_MAX:
                raise Retry(
                    f"{place} gives no answer between offsets {at} and {end}",
                    hint="try again when its broker is back: `streamkit check` looks at it",
                )
            reader.seek(place, at)
            continue
        silences = 0
        for batch in fetched:
            at = batch.next_offset
            for record in batch.own_records():
                if record.key is not None and record.offset < end:
                    yield record.offset, record.key, record.value
    reader.forget(place)
