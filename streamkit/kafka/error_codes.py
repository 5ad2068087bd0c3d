"""What a broker's error code means for the request it answers.

One table per kind of request: the same code may be harmless on one and fatal on another. A code that is in no table
means `DEAD`: we send nothing more under this epoch. The tables are the measured ones, see `tests/kafka/`.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum

from streamkit.errors import Fenced, Misconfigured, StreamkitError, WriterDead


class ErrorCode(IntEnum):
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


class Reaction(Enum):
    """What to do next; the order is from harmless to final, the worst of several answers counts."""

    DONE = 0
    AGAIN = 1  # nothing happened: the same bytes again, soon
    MOVED = 2  # nothing happened: look up who is responsible now, then the same bytes
    DOUBT = 3  # may have happened: the same bytes again, which the broker recognises
    DEAD = 4  # this epoch is of no use any more
    FORBIDDEN = 5  # a person must change rights or settings
    REFUSED = 6  # the broker does not take this data
    FENCED = 7  # somebody else is the owner


Table = Mapping[int, Reaction]

_TRANSACTION: Table = {
    ErrorCode.OK: Reaction.DONE,
    ErrorCode.CONCURRENT_TRANSACTIONS: Reaction.AGAIN,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.MOVED,
    ErrorCode.NOT_COORDINATOR: Reaction.MOVED,
    ErrorCode.INVALID_PRODUCER_EPOCH: Reaction.FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Reaction.FENCED,
    ErrorCode.PRODUCER_FENCED: Reaction.FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Reaction.FORBIDDEN,
    ErrorCode.UNSUPPORTED_VERSION: Reaction.FORBIDDEN,
}

# InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn: repeating any of them changes nothing.
PREPARE: Table = {
    **_TRANSACTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.AGAIN,
    ErrorCode.REQUEST_TIMED_OUT: Reaction.AGAIN,
    ErrorCode.OPERATION_NOT_ATTEMPTED: Reaction.AGAIN,  # another partition of the same request has the reason
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: Reaction.FORBIDDEN,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.FORBIDDEN,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.FORBIDDEN,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Reaction.FORBIDDEN,
}

PRODUCE: Table = {
    ErrorCode.OK: Reaction.DONE,
    ErrorCode.CONCURRENT_TRANSACTIONS: Reaction.AGAIN,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.MOVED,
    ErrorCode.LEADER_NOT_AVAILABLE: Reaction.MOVED,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Reaction.MOVED,
    ErrorCode.REPLICA_NOT_AVAILABLE: Reaction.MOVED,
    # With transaction version 2 also: two adds of one transaction met inside the broker. That passes at once.
    ErrorCode.NOT_ENOUGH_REPLICAS: Reaction.AGAIN,
    ErrorCode.KAFKA_STORAGE_ERROR: Reaction.DOUBT,
    ErrorCode.REQUEST_TIMED_OUT: Reaction.DOUBT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Reaction.DOUBT,
    ErrorCode.INVALID_PRODUCER_EPOCH: Reaction.FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Reaction.FENCED,
    ErrorCode.PRODUCER_FENCED: Reaction.FENCED,
    ErrorCode.MESSAGE_TOO_LARGE: Reaction.REFUSED,
    ErrorCode.RECORD_LIST_TOO_LARGE: Reaction.REFUSED,
    ErrorCode.INVALID_TIMESTAMP: Reaction.REFUSED,
    ErrorCode.INVALID_RECORD: Reaction.REFUSED,
    ErrorCode.INVALID_TOPIC: Reaction.FORBIDDEN,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.FORBIDDEN,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Reaction.FORBIDDEN,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Reaction.FORBIDDEN,
    ErrorCode.UNSUPPORTED_VERSION: Reaction.FORBIDDEN,
}

# TxnOffsetCommit and OffsetCommit: the last one wins, so repeating is harmless.
POSITIONS: Table = {
    **_TRANSACTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.AGAIN,
    ErrorCode.REQUEST_TIMED_OUT: Reaction.AGAIN,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.AGAIN,
    ErrorCode.ILLEGAL_GENERATION: Reaction.FENCED,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.FENCED,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FENCED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.FORBIDDEN,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.FORBIDDEN,
}

# Heartbeat, asked for nothing but "is this member still in this generation": during a round it is.
MEMBERSHIP: Table = {**POSITIONS, ErrorCode.REBALANCE_IN_PROGRESS: Reaction.DONE}

# EndTxn: INVALID_TXN_STATE is not here on purpose, it means that the transaction was aborted.
END: Table = _TRANSACTION


def name_of(code: int) -> str:
    """A code as people write it: name and number."""
    try:
        return f"{ErrorCode(code).name} ({code})"
    except ValueError:
        return f"error code {code}"


def worst(codes: Iterable[int], table: Table) -> tuple[Reaction, int]:
    """The verdict that decides among several answers of one request, and the code that it came from."""
    return max(
        ((table.get(code, Reaction.DEAD), code) for code in codes),
        key=lambda judged: judged[0].value,
        default=(Reaction.DEAD, int(ErrorCode.UNKNOWN_SERVER_ERROR)),
    )


_ERRORS: Mapping[Reaction, tuple[type[StreamkitError], str, str]] = {
    Reaction.FENCED: (Fenced, "the broker refused us as a former owner", ""),
    Reaction.FORBIDDEN: (
        Misconfigured,
        "the broker refused the request",
        "check the ACLs of topics, group and transactional id, and the broker's transaction limits",
    ),
}


def error_for(
    verdict: Reaction, code: int, *, doing: str, where: str = "", detail: str = ""
) -> StreamkitError:
    """The error to raise for a verdict that ends the attempt; everything without a class of its own is doubt."""
    kind, problem, hint = _ERRORS.get(verdict, (WriterDead, "the writer's epoch is of no use any more", ""))
    said = f"{doing} answered {name_of(code)}"
    return kind(problem, where=where, detail=f"{said}: {detail}" if detail else said, hint=hint)
