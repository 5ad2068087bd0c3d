"""families: kinds of seeds. The number of a seed says what its history has beside the faults that all know."""

from enum import IntEnum


class Family(IntEnum):
    """Kinds of histories, each by its first seed: what is added to one leaves the histories of the others alone."""

    PLAIN = 0
    # Pipelines that live by event time.
    TIMED = 1_000_000
    # Sources that fall asleep and wake up.
    SLEEPY = 1_500_000
    # Guarantees without transactions: at least once, or at most once.
    LOOSE = 2_000_000
    # A new version of the pipeline comes, worker by worker.
    DEPLOYED = 3_000_000
    # Many records that fail, in a row and in every way.
    FAILING = 4_000_000
    # Records that take time: much in sum, longer than a session, or longer than they may.
    SLOW = 5_000_000
    # Brokers that refuse some results, for reasons that nobody can know before.
    REFUSING = 6_000_000
    # Sources that get more partitions.
    GROWING = 7_000_000
    # Somebody with nothing but WRITE writes garbage; functions work in place and raise.
    HOSTILE = 8_000_000
    # Lists as state, and results that leave by a side; many records fail.
    LISTS = 9_000_000


def family_of(seed: int) -> Family:
    """The family that a seed belongs to."""
    return max(family for family in Family if family <= seed)
