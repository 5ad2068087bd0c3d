"""missing: what is said of a topic or partition that is not there; the in-memory log says the same."""

from streamkit.errors import Misconfigured
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_shape import so_many

_LIST = "`streamkit topics list` shows those that exist"


def no_topic(name: str) -> Misconfigured:
    """Asked for something of a topic that is not there."""
    return Misconfigured(f'there is no topic "{name}"', hint=_LIST)


def not_readable(partition: TopicPartition, count: int | None, detail: str = "") -> Misconfigured:
    """A partition that is to be read, of a topic that has only so many; None if there is no such topic."""
    topic, number = partition
    problem = (
        f'topic "{topic}" does not exist'
        if count is None
        else f'topic "{topic}" has {so_many(count)}, so there is no partition {number}'
    )
    declare = "declare the missing one in a file, then `streamkit topics apply --execute`"
    return Misconfigured(problem, detail=detail, hint=f"{_LIST}; {declare}")
