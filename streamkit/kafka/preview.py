"""What the worker group would tell us if we joined it now, found by looking: nobody joins, no round begins.

The members show what they said and what they were told; the leader's own code (`assignor.py`) then decides as if we had
come too.
"""

from collections.abc import Sequence

import msgspec

from streamkit.kafka.assignor import claim_of, decide
from streamkit.kafka.group_calls import PROTOCOL, read_claim, read_decision
from streamkit.kafka.group_line import refusal
from streamkit.kafka.ports import MemberOptions
from streamkit.kafka.shown_member import ShownMember
from streamkit.model.commit import Member
from streamkit.model.ids import TaskId

_INCONSISTENT_GROUP_PROTOCOL = 23
_NEWCOMER = "newcomer"
_NO_GENERATION = -1


class Preview(msgspec.Struct, frozen=True):
    """A group before we join: the tasks that are at work, and the plans of those that run them."""

    running: frozenset[TaskId]
    plans: frozenset[str]


def stranded_in(members: Sequence[ShownMember]) -> list[TaskId]:
    """The tasks that, as the leader of the last round said, no member can run."""
    return sorted({task for member in members for task in read_decision(member.decision).stranded})


def preview(options: MemberOptions, members: Sequence[ShownMember]) -> Preview:
    """What we would find.

    Raises:
        Misconfigured: the group would not take us, or is that of another pipeline.
    """
    if any(member.protocol not in ("", PROTOCOL) for member in members):
        raise refusal(options.group, _INCONSISTENT_GROUP_PROTOCOL, "JoinGroup")
    told = {member: read_decision(member.decision) for member in members}
    claims = {
        str(member): msgspec.structs.replace(read_claim(member.claim), owned=told[member].tasks)
        for member in members
        if member.claim
    }
    claims[_NEWCOMER] = claim_of(options, _NO_GENERATION, (), ())
    known = [claim.knows for claim in claims.values() if claim.knows]
    decision = decide(known[0], claims)[_NEWCOMER]
    assignment = decision.for_member(Member(options.group, _NEWCOMER, _NO_GENERATION), options)
    running = frozenset(task for each in told.values() for task in each.tasks)
    return Preview(running, assignment.plans)
