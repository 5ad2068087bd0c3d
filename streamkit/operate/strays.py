"""Stray rows (`runtime/tail.py`), for somebody who commits in a task's place without having restored it.

The first commit behind stray rows makes them a part of its span, unless it says itself what is true of their keys. A worker
reads that in its store; here it is read in the changelog, whose rows up to the last commit record are the state.
"""

from streamkit.kafka.ports import Log, Reader
from streamkit.model.ids import TopicPartition
from streamkit.runtime.last_commits import find_last_commit, rows_between


async def true_rows(log: Log, changelog: TopicPartition) -> dict[bytes, bytes | None]:
    """What the last commit left under each stray key, None for nothing; empty if there are no stray rows.

    Raises:
        Retry: the changelog gives no answer.
    """
    admin = log.admin()
    start = (await admin.start_offsets([changelog]))[changelog]
    end = (await admin.end_offsets([changelog], committed=True))[changelog]
    reader = log.reader(committed=True)
    try:
        last = await find_last_commit(reader, changelog, start, end)
        return {} if last is None else await _rows_up_to(reader, changelog, (start, last[0] + 1, end))
    finally:
        await reader.close()


async def _rows_up_to(
    reader: Reader, changelog: TopicPartition, offsets: tuple[int, int, int]
) -> dict[bytes, bytes | None]:
    """Only the stray keys are kept on the way: the state of a task may be larger than memory."""
    start, committed_to, end = offsets
    strays = {key async for _, key, _ in rows_between(reader, changelog, (committed_to, end))}
    rows: dict[bytes, bytes | None] = dict.fromkeys(sorted(strays))
    if rows:
        async for _, key, value in rows_between(reader, changelog, (start, committed_to)):
            if key in rows:
                rows[key] = value
    return rows
