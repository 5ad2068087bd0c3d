"""A topic as a pipeline knows it: a name, how its keys and values become bytes, and what time its records tell."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec

from streamkit.errors import InvalidPipeline
from streamkit.model.duration import seconds, to_ms
from streamkit.model.event_time import Clock, TimeRule, WatermarkGenerator, require_field
from streamkit.model.topic_name import ALLOWED, legal_name, name_problem

V = TypeVar("V")

# Records come in the order of their time unless the topic says otherwise.
ON_TIME = seconds(0)
# Longer than any pause of a producer that is well; short enough that a person who waits does not give up.
IDLE_AFTER = seconds(30)


class Topic(msgspec.Struct, Generic[V], frozen=True):
    """A Kafka topic whose values have the type `V`.

    `value_type` and `key_type` choose the codec: a msgspec struct (or dataclass) is JSON with its fields checked,
    `dict` is free JSON, `str` is UTF-8, `bytes` is left as it is, `int` and `float` are JSON numbers.
    """

    name: str
    value_type: Any
    key_type: Any = str
    time: TimeRule = TimeRule()


def topic(
    name: str,
    value: type[V],
    *,
    key: Any = str,
    time: str | Callable[[V], Any] | Clock = Clock.KAFKA,
    late: timedelta | Callable[[], WatermarkGenerator] = ON_TIME,
    idle: timedelta | None = IDLE_AFTER,
) -> Topic[V]:
    """Declare a topic: its name, the type of its values and, if it is not `str`, the type of its keys.

    `time` is where a record's event time stands: a field, a function of the value (milliseconds, or a datetime with a
    time zone), or a clock; without it, the timestamp of the Kafka record. `late` is how much older than the newest one
    a record may be and still be on time; or what makes watermarks, `punctuated(...)` or a `WatermarkGenerator` class.
    A partition that is silent for `idle` holds nobody back (None: it does).

    Raises:
        InvalidPipeline: Kafka does not take the name, there is no such field, or a duration makes no sense.
    """
    if isinstance(value, str) and isinstance(name, type):
        raise InvalidPipeline(
            "the arguments of topic() are swapped: the name comes first, then the type of the values",
            hint=f'write sk.topic("{value}", {name.__name__})',
        )
    if problem := name_problem(name):
        raise InvalidPipeline(
            f"{name!r} cannot be the name of a topic",
            detail=problem,
            hint=f'use {ALLOWED}, for example topic("{legal_name(str(name))}", ...)',
        )
    if isinstance(time, str):
        require_field(time, value)
    generator = None
    if not isinstance(late, timedelta) and callable(late):
        generator, late = late, ON_TIME
    where = f'of topic "{name}"'
    rule = TimeRule(
        time=time,
        late_ms=to_ms(late, of=f"late {where}"),
        idle_ms=None if idle is None else to_ms(idle, of=f"idle {where}"),
        generator=generator,
    )
    if rule.late_ms < 0 or (rule.idle_ms is not None and rule.idle_ms <= 0):
        raise InvalidPipeline(
            f'topic "{name}" has a duration below zero', hint="write for example late=seconds(5)"
        )
    return Topic(name, value, key, rule)
