"""The group coordinator in memory: join rounds, generations, sessions, positions.

A round begins when somebody joins, leaves or falls silent; it is over when every member has joined again, or when
its time is over and the silent ones are put out. The broker lets the assignor decide, in place of Kafka's leader.
"""

import math
from collections.abc import Iterable, Mapping
from enum import Enum

from streamkit.kafka.assignor import Claim, MemberShare, decide
from streamkit.kafka.group_calls import PROTOCOL, pack_claim, pack_decision
from streamkit.kafka.ports import MemberOptions
from streamkit.kafka.shown_member import ShownMember
from streamkit.model.commit import Member
from streamkit.model.ids import TopicPartition
from streamkit.testing.memory.bell import Bell
from streamkit.testing.memory.partition import Transaction, TransactionOutcome
from streamkit.testing.memory.refusal import ErrorCode, Refused


class Phase(Enum):
    """EMPTY -> JOINING <-> STABLE; back to EMPTY when the last member is gone."""

    EMPTY = "empty"
    JOINING = "joining"
    STABLE = "stable"


class GroupMember:
    """One member: what it asked for, whether it is in the round, and when its session ends."""

    __slots__ = ("claim", "deadline", "has_joined", "options")

    def __init__(self, options: MemberOptions, claim: Claim) -> None:
        self.options = options
        self.claim = claim
        self.has_joined = False
        self.deadline = math.inf


class Group:
    """One group: its members and its positions, those of open transactions set apart."""

    __slots__ = (
        "_numbered",
        "changed",
        "decisions",
        "generation",
        "members",
        "name",
        "pending",
        "phase",
        "positions",
        "round_deadline",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.phase = Phase.EMPTY
        self.generation = 0
        self.members: dict[str, GroupMember] = {}
        self.decisions: dict[str, MemberShare] = {}
        self.round_deadline = math.inf
        self.positions: dict[TopicPartition, int] = {}
        self.pending: dict[Transaction, dict[TopicPartition, int]] = {}
        self.changed = Bell()
        self._numbered = 0

    # Membership.

    def join(self, member_id: str | None, options: MemberOptions, claim: Claim, now: float) -> str:
        """Take part in the round, which begins now if there is none; None is a newcomer. Returns the member id."""
        if member_id is None:
            self._numbered += 1
            member_id = f"{options.writer_id}-{self._numbered}"
            self.members[member_id] = GroupMember(options, claim)
        member = self._member(member_id)
        if self.phase is not Phase.JOINING:
            self._begin_round(now)
        member.claim = claim
        member.has_joined = True
        # Who waits for a round can not send heartbeats, so its session does not run.
        member.deadline = math.inf
        self._end_round_if_complete(now)
        return member_id

    def sync(self, member_id: str, now: float) -> tuple[Member, MemberShare] | None:
        """What the round decided for this member, and its proof of membership; None while it is going on."""
        member = self._member(member_id)
        if self.phase is Phase.JOINING:
            if not member.has_joined:
                raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, member_id)
            return None
        member.deadline = now + member.options.session_timeout_s
        return Member(self.name, member_id, self.generation), self.decisions[member_id]

    def is_waiting(self, member_id: str) -> bool:
        """Whether the round that this member joined is still going on."""
        member = self.members.get(member_id)
        return self.phase is Phase.JOINING and member is not None and member.has_joined

    def heartbeat(self, member: Member, now: float) -> None:
        """Say that a member lives; refused if a round wants it, or if it is not of this generation."""
        self.check(member)
        found = self.members[member.member_id]
        found.deadline = now + found.options.session_timeout_s
        if self.phase is Phase.JOINING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)

    def leave(self, member_id: str, now: float) -> None:
        """Remove a member at once; one that is not there is fine."""
        if self.members.pop(member_id, None) is not None:
            self._lost_members(now)

    def check(self, member: Member) -> None:
        """Refuse a proof of membership that is not of this generation."""
        self._member(member.member_id)
        if member.generation != self.generation:
            raise Refused(ErrorCode.ILLEGAL_GENERATION, member.member_id)

    def expire(self, now: float) -> None:
        """Put out members whose session is over, or who did not come to a round in time."""
        overdue = self.phase is Phase.JOINING and self.round_deadline <= now
        gone = [
            member_id
            for member_id, member in self.members.items()
            if member.deadline <= now or (overdue and not member.has_joined)
        ]
        for member_id in gone:
            del self.members[member_id]
        if gone:
            self._lost_members(now)

    def shown(self) -> list[ShownMember]:
        """The members, as Kafka shows them: while a round is going on, without what they said."""
        if self.phase is not Phase.STABLE:
            return [ShownMember(member_id, PROTOCOL) for member_id in self.members]
        return [
            ShownMember(
                member_id,
                PROTOCOL,
                pack_claim(member.claim, member.options.topics),
                pack_decision(self.decisions[member_id]),
            )
            for member_id, member in self.members.items()
        ]

    def deadline(self) -> float:
        """When something happens by itself next."""
        deadline = min((member.deadline for member in self.members.values()), default=math.inf)
        return min(deadline, self.round_deadline) if self.phase is Phase.JOINING else deadline

    def _member(self, member_id: str) -> GroupMember:
        member = self.members.get(member_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        return member

    def _lost_members(self, now: float) -> None:
        if not self.members:
            self.phase = Phase.EMPTY
            self.generation += 1
            self.changed.fire()
            return
        if self.phase is not Phase.JOINING:
            self._begin_round(now)
        self._end_round_if_complete(now)

    def _begin_round(self, now: float) -> None:
        self.phase = Phase.JOINING
        waits = [member.options.rebalance_timeout_s for member in self.members.values()]
        self.round_deadline = now + max(waits)
        for member in self.members.values():
            member.has_joined = False
        self.changed.fire()

    def _end_round_if_complete(self, now: float) -> None:
        if not all(member.has_joined for member in self.members.values()):
            return
        self.phase = Phase.STABLE
        self.generation += 1
        claims = {member_id: member.claim for member_id, member in self.members.items()}
        # The longest-standing member speaks for the group, as Kafka's leader does.
        stages = next(iter(self.members.values())).options.stages
        self.decisions = decide(stages, claims)
        for member in self.members.values():
            member.deadline = now + member.options.session_timeout_s
        self.changed.fire()

    # Positions.

    def pend(self, transaction: Transaction, positions: Mapping[TopicPartition, int]) -> None:
        """Hold positions back until their transaction ends."""
        self.pending.setdefault(transaction, {}).update(positions)

    def settle(self, transaction: Transaction) -> None:
        """The marker of a transaction: its positions count or are forgotten, with all that its writer had left."""
        for each in [each for each in self.pending if each.writer_id == transaction.writer_id]:
            positions = self.pending.pop(each)
            if transaction.outcome is TransactionOutcome.COMMITTED:
                self.positions.update(positions)
        self.changed.fire()

    def is_pending(self, partition: TopicPartition) -> bool:
        """Whether an open transaction holds a position of this partition."""
        return any(partition in positions for positions in self.pending.values())


class Groups:
    """Every group by name; one that nobody asked for yet is empty."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def group(self, name: str) -> Group:
        """The group of this name."""
        found = self._groups.get(name)
        if found is None:
            found = self._groups[name] = Group(name)
        return found

    def check(self, member: Member) -> None:
        """Refuse a proof of membership that is not of its group's generation."""
        self.group(member.group).check(member)

    def store(self, member: Member, positions: Mapping[TopicPartition, int]) -> None:
        """Set positions without a transaction, for a member of this generation."""
        group = self.group(member.group)
        group.check(member)
        group.positions.update(positions)

    def reset(self, name: str, positions: Mapping[TopicPartition, int]) -> None:
        """Set positions of a group without members."""
        group = self.group(name)
        if group.members:
            raise Refused(ErrorCode.NON_EMPTY_GROUP, name)
        group.positions.update(positions)

    def forget_topics(self, topics: Iterable[str]) -> None:
        """Topics were deleted, and with them goes what groups knew of them."""
        gone = set(topics)
        for group in self._groups.values():
            group.positions = {at: place for at, place in group.positions.items() if at.topic not in gone}

    def expire(self, now: float) -> None:
        """Let time pass in every group."""
        for group in self._groups.values():
            group.expire(now)

    def deadline(self) -> float:
        """When something happens by itself next."""
        return min((group.deadline() for group in self._groups.values()), default=math.inf)
