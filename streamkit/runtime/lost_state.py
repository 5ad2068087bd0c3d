"""lost_state: what a pipeline has committed and the cluster no longer has, noticed before anything is built on its absence.

The group's positions carry the number of the span that they were committed with (`task/span_end.py`). So a position
says that there was a commit record; a changelog without one was deleted, created anew or emptied. Positions that
somebody set by hand carry no number, and begin a pipeline as they should.
"""

import contextlib
from collections.abc import Iterable, Mapping

from streamkit.errors import LogGap, Misconfigured, Retry, StateLost
from streamkit.graph.plan import Plan
from streamkit.graph.stage import Stage
from streamkit.kafka.ports import Admin
from streamkit.model.commit import Guarantee
from streamkit.model.ids import Position, TopicPartition
from streamkit.runtime.internal_topics import Altered
from streamkit.state.changelog import CommitRecord

BEGIN_ANEW = (
    "stop the workers; `streamkit offsets reset <pipeline> --to earliest --drop-state --execute` then begins\n"
    "anew with empty state, and writes results again; `--to latest` leaves the old records out"
)
# While workers commit, positions are pending for moments; whoever restores a task waits for them and looks again.
PENDING_S = 0.5


def span_of(position: int) -> int:
    """The number of the span that a position was committed with; 0 if somebody else set it."""
    return int(position.note) if isinstance(position, Position) and position.note.isdigit() else 0


def has_committed(positions: Iterable[int], guarantee: Guarantee) -> bool:
    """Whether these positions of a task say that its changelog was written to.

    At most once writes positions first: a crash may have come before the changelog of the first span.
    """
    least = 2 if guarantee is Guarantee.AT_MOST_ONCE else 1
    return any(span_of(position) >= least for position in positions)


def is_last_copy(local: CommitRecord | None, positions: Mapping[TopicPartition, int]) -> bool:
    """Whether local state is of the very commit that the group stands at."""
    places = {} if local is None else local.places()
    return bool(positions) and all(
        local is not None and span_of(position) == local.span and places.get(at) == position
        for at, position in positions.items()
    )


async def find_losses(
    plan: Plan, admin: Admin, existing: Mapping[str, int], guarantee: Guarantee
) -> list[Misconfigured]:
    """The stages of a resolved plan whose committed state is gone.

    Positions are read first: a commit is in the changelog before its positions can be seen.
    """
    inputs = [each for stage in plan.stages for its in _inputs(stage).values() for each in its]
    positions: Mapping[TopicPartition, int] = {}
    with contextlib.suppress(Retry):
        positions = await admin.positions(plan.group, inputs, timeout_s=PENDING_S)
    changelogs = [
        TopicPartition(name, number) for name in plan.changelogs() for number in range(existing.get(name, 0))
    ]
    starts = await admin.start_offsets(changelogs) if changelogs else {}
    ends = await admin.end_offsets(changelogs, committed=False) if changelogs else {}
    found: list[Misconfigured] = []
    for stage in plan.stages:
        written = [
            TopicPartition(stage.changelog, number)
            for number, its in _inputs(stage).items()
            if has_committed([positions[at] for at in its if at in positions], guarantee)
        ]
        if empty := [place for place in written if ends.get(place, 0) == 0]:
            found.append(state_lost(stage.changelog, empty, is_there=stage.changelog in existing))
        elif any(starts[place] > 0 for place in written):
            found.append(state_deleted(stage.changelog))
    return found


def _inputs(stage: Stage) -> dict[int, list[TopicPartition]]:
    """The partitions that each task of a stage reads."""
    return {
        number: [
            TopicPartition(each.topic, number) for each in stage.inputs if number < (each.partitions or 0)
        ]
        for number in range(stage.partitions or 0)
    }


def state_lost(changelog: str, partitions: Iterable[TopicPartition], *, is_there: bool) -> StateLost:
    """The changelog of tasks that have committed holds nothing of them."""
    places = ", ".join(str(place) for place in partitions)
    how = f"nothing is in {places}: it was created anew or emptied" if is_there else "the topic was deleted"
    return StateLost(
        f'changelog "{changelog}" no longer holds the state that was committed to it',
        detail=f"{how}, while the group's positions say that tasks have committed; state on local disks is left as it is",
        hint=BEGIN_ANEW,
    )


def state_deleted(changelog: str) -> StateLost:
    """Records were deleted from the beginning of a changelog; a compacted topic never does that by itself."""
    return StateLost(
        f'changelog "{changelog}" no longer holds all the state that was committed to it',
        detail="its oldest records were deleted: its cleanup policy was not `compact` for a while; state on local disks"
        " is left as it is",
        hint=BEGIN_ANEW,
    )


def shuffle_compacted(altered: Altered) -> LogGap:
    """A shuffle in which records of the same key may have taken each other's place before they were read."""
    return LogGap(
        f'shuffle "{altered.topic}" is compacted, and holds records that were not read yet',
        detail=f"{altered}; of several records of one key all but the last may be gone",
        hint=f"{BEGIN_ANEW};\nto go on with what is left: `kafka-configs --alter --entity-type topics --entity-name"
        f" {altered.topic} --add-config cleanup.policy=delete`",
    )


def records_lost(place: TopicPartition, position: int, end: int) -> LogGap:
    """A partition that ends before our position: it was deleted and created anew, or truncated."""
    return LogGap(
        f"{place} ends at {end}, and it was read up to {position}",
        detail="the topic was deleted and created anew, or the cluster lost its end; what was in it and not yet read is gone",
        hint=f"{BEGIN_ANEW};\n`--accept-gap` in place of `--to` and `--drop-state` goes on without what is gone",
    )
