"""What a broker's error code means for the request it answers.

One table per kind of request: the same code may be harmless on one and fatal on another. A code that is in no table
means `DEAD`: we send nothing more under this epoch. The tables are the measured ones, see `tests/kafka/`.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum

from streamkit.errors import Fenced, Misconfigured, StreamkitError, WriterDead


class Code(IntEnum):
    """Kafka's error codes, as far as we act on them or want to name them."""

    UNKNOWN_SERVER_ERROR = -1
    OK = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    GROUP_ID_NOT_FOUND = 69
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
    FENCED_INSTANCE_ID = 82
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    TRANSACTIONAL_ID_NOT_FOUND = 105
    TRANSACTION_ABORTABLE = 120


class Verdict(Enum):
    """What to do next; the order is from harmless to final, the worst of several answers counts."""

    DONE = 0
    AGAIN = 1  # nothing happened: the same bytes again, soon
    MOVED = 2  # nothing happened: look up who is responsible now, then the same bytes
    DOUBT = 3  # may have happened: the same bytes again, which the broker recognises
    DEAD = 4  # this epoch is of no use any more
    FORBIDDEN = 5  # a person must change rights or settings
    REFUSED = 6  # the broker does not take this data
    FENCED = 7  # somebody else is the owner


Table = Mapping[int, Verdict]

_TRANSACTION: Table = {
    Code.OK: Verdict.DONE,
    Code.CONCURRENT_TRANSACTIONS: Verdict.AGAIN,
    Code.COORDINATOR_LOAD_IN_PROGRESS: Verdict.AGAIN,
    Code.COORDINATOR_NOT_AVAILABLE: Verdict.MOVED,
    Code.NOT_COORDINATOR: Verdict.MOVED,
    Code.INVALID_PRODUCER_EPOCH: Verdict.FENCED,
    Code.INVALID_PRODUCER_ID_MAPPING: Verdict.FENCED,
    Code.PRODUCER_FENCED: Verdict.FENCED,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FORBIDDEN,
    Code.UNSUPPORTED_VERSION: Verdict.FORBIDDEN,
}

# InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn: repeating any of them changes nothing.
PREPARE: Table = {
    **_TRANSACTION,
    Code.UNKNOWN_TOPIC_OR_PARTITION: Verdict.AGAIN,
    Code.REQUEST_TIMED_OUT: Verdict.AGAIN,
    Code.OPERATION_NOT_ATTEMPTED: Verdict.AGAIN,  # another partition of the same request has the reason
    Code.INVALID_TRANSACTION_TIMEOUT: Verdict.FORBIDDEN,
    Code.TOPIC_AUTHORIZATION_FAILED: Verdict.FORBIDDEN,
    Code.GROUP_AUTHORIZATION_FAILED: Verdict.FORBIDDEN,
    Code.CLUSTER_AUTHORIZATION_FAILED: Verdict.FORBIDDEN,
}

PRODUCE: Table = {
    Code.OK: Verdict.DONE,
    Code.CONCURRENT_TRANSACTIONS: Verdict.AGAIN,
    Code.UNKNOWN_TOPIC_OR_PARTITION: Verdict.MOVED,
    Code.LEADER_NOT_AVAILABLE: Verdict.MOVED,
    Code.NOT_LEADER_OR_FOLLOWER: Verdict.MOVED,
    Code.REPLICA_NOT_AVAILABLE: Verdict.MOVED,
    # With transaction version 2 also: two adds of one transaction met inside the broker. That passes at once.
    Code.NOT_ENOUGH_REPLICAS: Verdict.AGAIN,
    Code.KAFKA_STORAGE_ERROR: Verdict.DOUBT,
    Code.REQUEST_TIMED_OUT: Verdict.DOUBT,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Verdict.DOUBT,
    Code.INVALID_PRODUCER_EPOCH: Verdict.FENCED,
    Code.INVALID_PRODUCER_ID_MAPPING: Verdict.FENCED,
    Code.PRODUCER_FENCED: Verdict.FENCED,
    Code.MESSAGE_TOO_LARGE: Verdict.REFUSED,
    Code.RECORD_LIST_TOO_LARGE: Verdict.REFUSED,
    Code.INVALID_TIMESTAMP: Verdict.REFUSED,
    Code.INVALID_RECORD: Verdict.REFUSED,
    Code.INVALID_TOPIC: Verdict.FORBIDDEN,
    Code.TOPIC_AUTHORIZATION_FAILED: Verdict.FORBIDDEN,
    Code.CLUSTER_AUTHORIZATION_FAILED: Verdict.FORBIDDEN,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FORBIDDEN,
    Code.UNSUPPORTED_VERSION: Verdict.FORBIDDEN,
}

# TxnOffsetCommit and OffsetCommit: the last one wins, so repeating is harmless.
POSITIONS: Table = {
    **_TRANSACTION,
    Code.UNKNOWN_TOPIC_OR_PARTITION: Verdict.AGAIN,
    Code.REQUEST_TIMED_OUT: Verdict.AGAIN,
    Code.REBALANCE_IN_PROGRESS: Verdict.AGAIN,
    Code.ILLEGAL_GENERATION: Verdict.FENCED,
    Code.UNKNOWN_MEMBER_ID: Verdict.FENCED,
    Code.FENCED_INSTANCE_ID: Verdict.FENCED,
    Code.TOPIC_AUTHORIZATION_FAILED: Verdict.FORBIDDEN,
    Code.GROUP_AUTHORIZATION_FAILED: Verdict.FORBIDDEN,
}

# Heartbeat, asked for nothing but "is this member still in this generation": during a round it is.
MEMBERSHIP: Table = {**POSITIONS, Code.REBALANCE_IN_PROGRESS: Verdict.DONE}

# EndTxn: INVALID_TXN_STATE is not here on purpose, it means that the transaction was aborted.
END: Table = _TRANSACTION


def name_of(code: int) -> str:
    """A code as people write it: name and number."""
    try:
        return f"{Code(code).name} ({code})"
    except ValueError:
        return f"error code {code}"


def worst(codes: Iterable[int], table: Table) -> tuple[Verdict, int]:
    """The verdict that decides among several answers of one request, and the code that it came from."""
    return max(
        ((table.get(code, Verdict.DEAD), code) for code in codes),
        key=lambda judged: judged[0].value,
        default=(Verdict.DEAD, int(Code.UNKNOWN_SERVER_ERROR)),
    )


_ERRORS: Mapping[Verdict, tuple[type[StreamkitError], str, str]] = {
    Verdict.FENCED: (Fenced, "the broker refused us as a former owner", ""),
    Verdict.FORBIDDEN: (
        Misconfigured,
        "the broker refused the request",
        "check the ACLs of topics, group and transactional id, and the broker's transaction limits",
    ),
}


def error_for(
    verdict: Verdict, code: int, *, doing: str, where: str = "", detail: str = ""
) -> StreamkitError:
    """The error to raise for a verdict that ends the attempt; everything without a class of its own is doubt."""
    kind, problem, hint = _ERRORS.get(verdict, (WriterDead, "the writer's epoch is of no use any more", ""))
    said = f"{doing} answered {name_of(code)}"
    return kind(problem, where=where, detail=f"{said}: {detail}" if detail else said, hint=hint)
