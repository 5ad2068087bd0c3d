"""A topic as a pipeline knows it: a name, and how its keys and values become bytes."""

from typing import Any, Generic, TypeVar

import msgspec

V = TypeVar("V")


class Topic(msgspec.Struct, Generic[V], frozen=True):
    """A Kafka topic whose values have the type `V`.

    `value_type` and `key_type` choose the codec: a msgspec struct (or dataclass) is JSON with its fields checked,
    `dict` is free JSON, `str` is UTF-8, `bytes` is left as it is, `int` and `float` are JSON numbers.
    """

    name: str
    value_type: Any
    key_type: Any = str


def topic(name: str, value: type[V], *, key: Any = str) -> Topic[V]:
    """Declare a topic: its name, the type of its values and, if it is not `str`, the type of its keys."""
    return Topic(name, value, key)
