"""agree: what was committed and what is there, compared. The last step of a restore, and what `streamkit check` asks.

Decides; does not wait. Whoever calls looks again for `DISAGREEMENT_S`, because brokers may answer with what was true long
ago: one that was killed and started again tells older positions until it has loaded all of them.
"""

from collections.abc import Mapping

import msgspec

from streamkit.config import Settings
from streamkit.errors import IncompatiblePlan, LogGap, Misconfigured, PositionsMoved, Retry
from streamkit.graph.fingerprint import Advised, Description, compare, dropped_stores
from streamkit.model.commit import Guarantee
from streamkit.model.ids import Position, TopicPartition
from streamkit.runtime.lost_state import has_committed, records_lost, state_lost
from streamkit.state.changelog import CommitRecord
from streamkit.task.identity import PlanIdentity

# How long what was committed and what is there may disagree before we believe it.
DISAGREEMENT_S = 15.0


class Terms(msgspec.Struct, frozen=True):
    """What a worker brings along, with which that which was committed must agree."""

    plan: PlanIdentity
    guarantee: Guarantee
    allow_dropped_state: bool = False


def terms_of(plan: PlanIdentity, settings: Settings) -> Terms:
    """The terms of a worker with these settings."""
    return Terms(plan, Guarantee(settings.guarantee), settings.allow_dropped_state)


class Committed(msgspec.Struct, frozen=True):
    """What was found of one task: its last commit record, the plan stored with it, and the group's positions."""

    changelog: TopicPartition
    record: CommitRecord | None
    plan: Description | None
    positions: Mapping[TopicPartition, Position]


def agree(found: Committed, terms: Terms) -> dict[TopicPartition, int]:
    """Where a task goes on; inputs that are not named begin at their start.

    Raises:
        StateLost: the group says that there was a commit record, and there is none.
        IncompatiblePlan: the stored state belongs to another version of the pipeline.
        Disagreement: commit record and group name different places.
    """
    record = found.record
    group = {at: int(position) for at, position in found.positions.items()}
    if record is None:
        if has_committed(found.positions.values(), terms.guarantee):
            raise state_lost(found.changelog.topic, [found.changelog], is_there=True)
        return group
    if record.fingerprint != terms.plan.fingerprint:
        require_compatible(found.plan, terms.plan, allow_dropped=terms.allow_dropped_state)
    return agreed_positions(record.places(), group, terms.guarantee)


def require_records(positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    """Refuse to wait for ever behind the end of a topic that was created anew.

    Raises:
        BeyondEnd: a position is behind the end of its partition.
    """
    for place, position in positions.items():
        if position > ends[place]:
            raise BeyondEnd(place, position, ends[place])


def agreed_positions(
    record: Mapping[TopicPartition, int], group: Mapping[TopicPartition, int], guarantee: Guarantee
) -> dict[TopicPartition, int]:
    """Where to go on: what was written last by the guarantee's order counts.

    Raises:
        Disagreement: commit record and group name different places, though one transaction wrote both.
    """
    match guarantee:
        case Guarantee.AT_MOST_ONCE:  # the group's were written before anything that could be repeated
            return {at: max(record.get(at, 0), group.get(at, 0)) for at in {**record, **group}}
        case Guarantee.AT_LEAST_ONCE:
            return {**group, **record}  # the record was written behind the results that it speaks of
        case Guarantee.EXACTLY_ONCE:
            for partition, offset in group.items():
                if record.get(partition, offset) != offset:
                    raise Disagreement(partition, offset, record[partition])
            return {**group, **record}


def decode_plan(stored: bytes | None) -> Description | None:
    """The plan that is stored with a task's state."""
    return None if stored is None else msgspec.json.decode(stored)


def forgotten(stored: Description | None, plan: PlanIdentity) -> dict[str, list[str]]:
    """By stage the stores that this plan, or one before it, has given up: what is left of them must never be read."""
    return {} if stored is None else dropped_stores(stored, plan.description)


def require_compatible(stored: Description | None, plan: PlanIdentity, *, allow_dropped: bool) -> None:
    """Refuse a plan that would lose or misread the state which another plan has written.

    Raises:
        IncompatiblePlan: with a sentence for each thing that does not fit.
    """
    if stored is None:
        problems, is_allowable = ["It does not say which plan that was."], False
    else:
        problems = compare(stored, plan.description, allow_dropped=allow_dropped)
        is_allowable = not compare(stored, plan.description, allow_dropped=True)
    if problems:
        raise IncompatiblePlan(
            "the stored state was written by another version of this pipeline, which this one would lose",
            detail="\n".join(problems),
            hint=_ways(problems, is_allowable=is_allowable),
        )


def _ways(problems: list[str], *, is_allowable: bool) -> str:
    """What a person can do about all that does not fit; some of the sentences say it themselves."""
    ways = ["start under a new pipeline name"]
    if not all(isinstance(each, Advised) for each in problems):
        ways.insert(0, "give the steps their former names and types back")
    if any(isinstance(each, Advised) for each in problems):
        ways.insert(0, "do what the detail says")
    if is_allowable:
        ways.append("give up for good what is named here: `streamkit run --allow-dropped-state`")
    return ", or ".join(ways)


class NotAgreed(Retry):
    """What was committed and what is there do not fit; if that stays so, `lasting` says who must act."""

    lasting: type[Misconfigured] = Misconfigured

    def for_good(self) -> Misconfigured:
        """The same, when nobody believes any more that it passes."""
        return self.lasting(self.problem, detail=self.detail, hint=self.hint)


class BeyondEnd(NotAgreed):
    """A position behind the end of its partition: right after a change of leader, or because records are gone."""

    code = "SK150"
    lasting = LogGap

    def __init__(self, place: TopicPartition, position: int, end: int) -> None:
        error = records_lost(place, position, end)
        super().__init__(error.problem, detail=error.detail, hint=error.hint)


class Disagreement(NotAgreed):
    """Group position and commit record name different places.

    Either we stood still while a successor committed between our two looks, or the group's coordinator is still loading
    and tells positions of long ago, and looking again settles it; or somebody moved the group's offsets behind our
    back, and it stays. The commit record is what state and output agree with.
    """

    code = "SK140"
    lasting = PositionsMoved

    def __init__(self, partition: TopicPartition, group: int, record: int) -> None:
        super().__init__(
            f"group position and commit record of {partition} disagree",
            detail=f"the group says {group}, the commit record {record}",
            hint="somebody moved the group's offsets, or the cluster lost some: stop the workers, then\n"
            "`streamkit offsets reset <pipeline> --to committed --execute` sets them to what the commit records say",
        )
