"""The group protocol as packed bytes: join, sync, heartbeat, leave, and what the members tell each other.

The versions are the last without tagged fields; every broker from Kafka 2.4 to 4.x speaks them. Claims and
decisions travel in the layout of Kafka's own consumers, so that Kafka's tools can show the group and its members.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from streamkit.errors import Misconfigured
from streamkit.kafka.assignor import Claim, MemberShare
from streamkit.kafka.ports import MemberOptions
from streamkit.kafka.wire import Call, Fields, array, data, string

C = TypeVar("C", Claim, MemberShare)

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14

# As "consumer" a group is shown by Kafka's tools; but then the broker forgets a committed position of a live group
# after offsets.retention.minutes without a new commit, unless the members name its topic (measured on 4.3: 7 days of
# silence in one partition, and its position is gone). So we are one only if we can name our topics.
CONSUMER_TYPE = "consumer"
OWN_TYPE = "streamkit"
PROTOCOL = "streamkit"

_INT32 = struct.Struct(">i")
_VERSION = b"\0\0"
_FORMAT = b"\x01"


class Joined(NamedTuple):
    """The answer to a join; `members` is filled for the leader only."""

    error: int
    generation: int
    leader: str
    member_id: str
    members: dict[str, bytes]


class Synced(NamedTuple):
    """The answer to a sync."""

    error: int
    assignment: bytes


_claim_decoder = msgspec.msgpack.Decoder(Claim)
_decision_decoder = msgspec.msgpack.Decoder(MemberShare)


def pack_claim(claim: Claim, topics: Sequence[str]) -> bytes:
    """A claim as the subscription of one of Kafka's consumers to these topics."""
    return _VERSION + array([string(topic) for topic in topics]) + _packed(claim)


def pack_decision(decision: MemberShare) -> bytes:
    """A decision as an assignment of no partitions, for Kafka's tools know partitions and not tasks."""
    return _VERSION + array([]) + _packed(decision)


def _packed(content: Claim | MemberShare) -> bytes:
    return data(_FORMAT + msgspec.msgpack.encode(content))


def read_claim(content: bytes) -> Claim:
    """What a member said when it joined."""
    return _read(content, _claim_decoder)


def read_topics(content: bytes) -> list[str]:
    """The topics that a member named when it joined; none that we could read if it does not speak our format."""
    fields = Fields(content)
    try:
        fields.int16()  # version
        return [fields.string() or "" for _ in range(fields.count())]
    except (struct.error, IndexError, UnicodeDecodeError):
        return []


def read_decision(content: bytes) -> MemberShare:
    """What the leader decided for us; nothing at all means that it knew nothing of us."""
    return _read(content, _decision_decoder) if content else MemberShare((), ())


def join_group(options: MemberOptions, member_id: str, claim: Claim) -> Call[Joined]:
    """Take part in the next round; answered when all have come or the rebalance time-out is over."""
    session_ms, rebalance_ms = int(options.session_timeout_s * 1000), int(options.rebalance_timeout_s * 1000)
    body = (
        string(options.group),
        struct.pack(">ii", session_ms, rebalance_ms),
        string(member_id),
        string(None),  # instance id
        string(CONSUMER_TYPE if options.topics else OWN_TYPE),
        array([string(PROTOCOL) + data(pack_claim(claim, options.topics))]),
    )
    return Call(JOIN_GROUP, 5, b"".join(body), _read_joined, flexible=False)


def sync_group(group: str, generation: int, member_id: str, decisions: Mapping[str, bytes]) -> Call[Synced]:
    """Fetch our assignment; the leader brings those of all."""
    assignments = array([string(member) + data(content) for member, content in decisions.items()])
    body = _who(group, generation, member_id) + assignments
    return Call(SYNC_GROUP, 3, body, _read_synced, flexible=False)


def heartbeat(group: str, generation: int, member_id: str) -> Call[int]:
    """We are alive; the answer is an error code."""
    return Call(HEARTBEAT, 3, _who(group, generation, member_id), _read_code, flexible=False)


def leave_group(group: str, member_ids: Sequence[str]) -> Call[int]:
    """Remove members at once. The error code is of the request; a member that is not there is fine."""
    members = array([string(member) + string(None) for member in member_ids])
    return Call(LEAVE_GROUP, 3, string(group) + members, _read_code, flexible=False)


def _who(group: str, generation: int, member_id: str) -> bytes:
    return string(group) + _INT32.pack(generation) + string(member_id) + string(None)


def _read_joined(fields: Fields) -> Joined:
    fields.int32()  # throttle
    error, generation = fields.int16(), fields.int32()
    fields.string()  # protocol: there is only one
    leader, member_id = fields.string() or "", fields.string() or ""
    members = {}
    for _ in range(fields.count()):
        name = fields.string() or ""
        fields.string()  # instance id
        members[name] = fields.data() or b""
    return Joined(error, generation, leader, member_id, members)


def _read_synced(fields: Fields) -> Synced:
    fields.int32()  # throttle
    return Synced(fields.int16(), fields.data() or b"")


def _read_code(fields: Fields) -> int:
    fields.int32()  # throttle
    return fields.int16()


def _read(content: bytes, decoder: msgspec.msgpack.Decoder[C]) -> C:
    fields = Fields(content)
    try:
        fields.int16()  # version
        for _ in range(fields.count()):
            fields.string()
        user_data = fields.data() or b""
        if user_data.startswith(_FORMAT):
            return decoder.decode(user_data[len(_FORMAT) :])
        detail = f"its data begins with {user_data[:1]!r}, ours with {_FORMAT!r}"
    except (struct.error, IndexError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        detail = str(error)
    raise Misconfigured(
        "the worker group has a member that does not speak our format",
        detail=detail,
        hint="stop workers of other streamkit versions, or other consumers that use this group",
    )
