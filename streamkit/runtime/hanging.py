"""hanging: a transaction that the broker forgot to end, on a changelog that is to be restored.

Kafka can call a transaction complete without having written its marker to every partition (DECISIONS.md). Committed
readers then wait there for ever. What was decided can still be known, because the group's positions were part of the
same transaction, and name the span that they are of. So it is ended here: in the name of its writer a record without
meaning is written behind it, in a transaction that ends in the same way. The marker of that one ends everything that
the writer had left there.
"""

import contextlib
from collections.abc import Mapping, Sequence

import structlog

from streamkit.errors import EncodeError, Fenced, Retry, WriterDead
from streamkit.kafka.ports import Commit, Guarantee, Log, Member, OutBatch, WriterOptions
from streamkit.model.ids import Position, TopicPartition
from streamkit.state.changelog import CommitRecord
from streamkit.state.keys import NOTHING_KEY

log = structlog.get_logger()

# A writer that was fenced has no open transaction any more: what is still open after this long was forgotten.
FENCED_S = 2.0
# That of a writer that lives ends by itself, or by its time-out of 30 s, which the broker looks at every 10.
LIVING_S = 45.0

# A member of no group: its positions are refused, and what it proves is nothing.
NOBODY = Member("", "", -1)


def was_committed(
    open_records: Sequence[CommitRecord], group: Mapping[TopicPartition, Position], known_span: int = 0
) -> bool | None:
    """Whether the transaction of the first of these commit records was committed; None if nothing tells.

    `open_records` are those from the stable end of the changelog on, `known_span` is of the last one before it. The
    positions of the group carry the number of the task's last committed span.
    """
    hanging, *later = open_records
    if hanging.span <= known_span:
        return False  # of a former owner that woke up: another span of this number is committed already
    rivals = [record for record in later if record.span <= hanging.span]
    if later and not rivals:
        return True  # only whoever knew it as committed could go on behind it
    spans = [int(position.note) for position in group.values() if position.note.isdigit()]
    last = max(spans, default=0)
    # Older than what is known to be committed, or set by somebody else.
    if last < hanging.span - 1 or len(spans) < len(group):
        return None
    if last < hanging.span or not rivals:
        return last >= hanging.span
    # Two claim to be that span, and one of them was refused: the positions are those of the other.
    claims = [record for record in (hanging, *rivals) if record.places() == group]
    return None if last > hanging.span or len(claims) != 1 else claims[0] is hanging


async def end_hanging(
    log_: Log, group: str, changelog: TopicPartition, writer_id: str, *, commit: bool
) -> None:
    """End what this writer left open on a changelog, as it was decided. The writer is fenced.

    Raises:
        Retry: it could not be done; look again.
    """
    log.warning(
        "the broker forgot to end a transaction: it is ended now",
        partition=str(changelog),
        writer=writer_id,
        outcome="committed" if commit else "aborted",
    )
    writer = log_.writer(WriterOptions(writer_id, Guarantee.EXACTLY_ONCE))
    try:
        await writer.open()
        batch = writer.batch()
        batch.append(0, 0, NOTHING_KEY, None, [])
        batches = [OutBatch(changelog, batch, 1)]
        if commit:
            await writer.commit(Commit(batches, {}, NOBODY))
            return
        # Positions of a member that there is not are refused, and the next epoch aborts what stands open.
        with contextlib.suppress(Fenced):
            await writer.commit(Commit(batches, {changelog: 0}, Member(group, "nobody", 0)))
        await writer.open()
    except (WriterDead, Fenced, EncodeError) as error:
        raise Retry(
            f"a transaction that the broker forgot on {changelog} could not be ended", detail=str(error)
        ) from error
    finally:
        await writer.close()
