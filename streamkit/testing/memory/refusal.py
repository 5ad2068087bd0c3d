"""How the broker says no: Kafka's own codes, which each client then judges as the real one does."""

from collections.abc import Sequence
from enum import IntEnum


class ErrorCode(IntEnum):
    """The answers of a Kafka broker that the in-memory one can give too."""

    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    MESSAGE_TOO_LARGE = 10
    ILLEGAL_GENERATION = 22
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    INVALID_TIMESTAMP = 32
    INVALID_PARTITIONS = 37
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    NON_EMPTY_GROUP = 68
    INVALID_RECORD = 87
    PRODUCER_FENCED = 90


class Refused(Exception):
    """The broker did nothing and says why; of a batch also which records, by their numbers, if it is about those."""

    def __init__(self, code: ErrorCode, where: object = "", records: Sequence[int] = ()) -> None:
        super().__init__(code.name, str(where))
        self.code = code
        self.at = where
        self.where = str(where)
        self.records = tuple(records)
