"""What a test gives to a harness, as the runtime takes it; what cannot be meant is an error at once, with what is right."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from streamkit.codec.codec import DECODE_ERRORS, ENCODE_ERRORS
from streamkit.codec.naming import type_name, without_none
from streamkit.codec.values import key_codec, value_codec
from streamkit.config import Settings
from streamkit.errors import Misconfigured
from streamkit.model.by_hand import Written, read_value, unknown
from streamkit.model.event_time import as_milliseconds
from streamkit.model.records import Headers
from streamkit.model.topic import Topic

# By name, or as Kafka has them: pairs, of which several may have one name.
GivenHeaders = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]

# What an encoder or a decoder raises for a value of another type.
_UNFIT: tuple[type[Exception], ...] = (*ENCODE_ERRORS, *DECODE_ERRORS)


def settings_of(given: Mapping[str, Any]) -> Settings:
    """The settings of the workers; their state is in memory.

    Raises:
        Misconfigured: one is none, or has a value that it cannot have.
    """
    values: dict[str, Any] = {"store": "memory"}
    for name, value in given.items():
        if name not in Settings.__struct_fields__:
            raise unknown("setting", name, Settings.__struct_fields__)
        values[name] = value if value is None else _setting(name, value)
    return Settings(**values)


def _setting(name: str, value: Any) -> Any:
    return read_value(Settings, name, Written(name, value), is_text=False)


def whole_number(what: str, number: object, *, least: int) -> int:
    """A number of workers or partitions.

    Raises:
        Misconfigured: it is something else, or too small.
    """
    if not isinstance(number, int) or isinstance(number, bool):
        raise Misconfigured(f"{what} is a whole number, and not {number!r}", hint=f"give {least} or more")
    if number < least:
        raise Misconfigured(f"{what} cannot be {number}", hint=f"give {least} or more")
    return number


def seconds_of(time: object) -> float:
    """How long, from seconds or a duration.

    Raises:
        Misconfigured: it is something else, or less than nothing.
    """
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise Misconfigured(
            f"the time that passes is a number of seconds, and not {time!r}",
            hint="write advance(60), or advance(sk.minutes(1))",
        )
    if not seconds >= 0:
        raise Misconfigured(f"the time that passes cannot be {seconds}", hint="give 0 or more")
    return seconds


def milliseconds_of(what: str, time: object) -> int:
    """A moment, from milliseconds or a datetime with a time zone.

    Raises:
        Misconfigured: it is something else.
    """
    if isinstance(time, int) and not isinstance(time, bool):
        return time
    if isinstance(time, datetime) and time.tzinfo is not None:
        return as_milliseconds(time)
    told = "a datetime without a time zone" if isinstance(time, datetime) else repr(time)
    raise Misconfigured(
        f"{what} is a number of milliseconds or a datetime with a time zone, and not {told}",
        hint="write for example datetime(2026, 1, 31, 8, tzinfo=UTC)",
    )


def headers_of(given: GivenHeaders | None) -> Headers:
    """The headers of a record.

    Raises:
        Misconfigured: they are not names with bytes.
    """
    if given is None:
        return []
    pairs = list(given.items() if isinstance(given, Mapping) else given)
    for pair in pairs:
        if not isinstance(pair, Sequence) or len(pair) != 2 or not isinstance(pair[0], str):
            raise Misconfigured(
                f"a header is a name and its bytes, and not {pair!r}",
                hint='write headers={"traceparent": b"00-..."}, or pairs in a list',
            )
        name, value = pair
        if isinstance(value, str):
            raise Misconfigured(
                f'header "{name}" is text, and Kafka keeps bytes', hint=f"write {value.encode()!r}"
            )
        if not isinstance(value, bytes | None):
            raise Misconfigured(
                f'header "{name}" is {value!r}, and Kafka keeps bytes', hint="write b'...', or None"
            )
    return [(name, value) for name, value in pairs]


def key_bytes(topic: Topic[Any], key: Any) -> bytes | None:
    """A key as the topic writes it.

    Raises:
        Misconfigured: it is of another type than the topic's keys.
    """
    if key is None:
        return None
    codec = key_codec(topic.key_type)
    data = None if _is_other(topic.key_type, key) else _encoded(codec.encode, codec.decode, key)
    if data is None:
        raise Misconfigured(
            f'topic "{topic.name}" has keys of type {type_name(topic.key_type)}, and the key is {key!r}',
            hint=f"send such a key, or declare the topic with key={type_name(type(key))}",
        )
    return data


def value_bytes(topic: Topic[Any], value: Any) -> bytes | None:
    """A value as the topic writes it.

    Raises:
        Misconfigured: it is of another type than the topic's values.
    """
    codec = value_codec(topic.value_type)
    if value is None and codec.nullable:
        return None
    data = None if _is_other(topic.value_type, value) else _encoded(codec.encode, codec.decode, value)
    if data is None:
        raise Misconfigured(
            f'topic "{topic.name}" has values of type {type_name(topic.value_type)}, and the value is {value!r}',
            hint="send_bytes(topic, ...) sends what the pipeline cannot read",
        )
    return data


def _is_other(wanted: Any, value: Any) -> bool:
    """Whether a type that has instances of its own is wanted, and this is none of them."""
    inner, _ = without_none(wanted)
    inner = getattr(inner, "__origin__", inner)
    has_own = isinstance(inner, type) and (
        issubclass(inner, msgspec.Struct) or dataclasses.is_dataclass(inner)
    )
    return has_own and not isinstance(value, inner)


def _encoded(encode: Any, decode: Any, value: Any) -> bytes | None:
    """The bytes of a value, if a reader of the topic can read them."""
    try:
        data: bytes = encode(value)
        decode(data)
    except _UNFIT:
        return None
    return data
