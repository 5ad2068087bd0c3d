"""Steps at the end of a stage: write to a sink topic, or shuffle to the owner of a key."""

from collections.abc import Callable
from typing import Any

import msgspec

from streamkit.codec.codec import ENCODE_ERRORS
from streamkit.codec.naming import type_name
from streamkit.codec.values import internal_codec, key_codec, value_codec
from streamkit.errors import EncodeError, UserCodeError
from streamkit.operators.step import Append, Push, Scope
from streamkit.state.spec import StoreSpec


class WriteStep(msgspec.Struct, frozen=True):
    """Write every record to a topic that others read.

    The key goes out with the bytes it came with, unless `key_fn` makes a new one from the value. A value of None is
    written as a record without a value (a tombstone) if the topic's type allows None.
    """

    name: str
    topic: str
    value_type: Any
    key_type: Any = str
    key_fn: Callable[[Any], Any] | None = None
    has_effects: bool = True
    stores: tuple[StoreSpec, ...] = ()

    def bind(self, following: Push, scope: Scope) -> Push:  # noqa: ARG002 - nothing follows a sink
        """As `Step.bind`."""
        codec = value_codec(self.value_type)
        append = scope.output(self.topic)
        encode = nullable(codec.encode) if codec.nullable else codec.encode
        return self._bind_kept(encode, append) if self.key_fn is None else self._bind_keyed(encode, append)

    def _bind_kept(self, encode: Callable[[Any], bytes | None], append: Append) -> Push:
        def push(key: bytes | None, value: Any, timestamp: int, step: str = self.name) -> None:
            try:
                data = encode(value)
            except ENCODE_ERRORS as error:
                raise self._unwritable(step, "value", value, self.value_type) from error
            append(key, data, timestamp)

        return push

    def _bind_keyed(self, encode: Callable[[Any], bytes | None], append: Append) -> Push:
        assert self.key_fn is not None
        key_fn = self.key_fn
        encode_key = nullable(key_codec(self.key_type).encode)

        def push(key: bytes | None, value: Any, timestamp: int, step: str = self.name) -> None:  # noqa: ARG001
            new_key = key_fn(value)
            try:
                key_data = encode_key(new_key)
            except ENCODE_ERRORS as error:
                raise self._unwritable(step, "key", new_key, self.key_type) from error
            try:
                data = encode(value)
            except ENCODE_ERRORS as error:
                raise self._unwritable(step, "value", value, self.value_type) from error
            append(key_data, data, timestamp)

        return push

    def _unwritable(self, step: str, part: str, got: Any, wanted: Any) -> EncodeError:
        return EncodeError(
            f'topic "{self.topic}" takes a {part} of type {type_name(wanted)}, got a {type_name(type(got))}',
            where=f'step "{step}"',
            hint=f"convert it with map() before write(), or declare the topic with the {part} type you write",
        )


class ShuffleStep(msgspec.Struct, frozen=True):
    """Send every record to the task that owns its key: `key_fn(value)` becomes the key, the value travels as it is."""

    name: str
    topic: str
    key_fn: Callable[[Any], Any]
    key_type: Any
    value_type: Any
    has_effects: bool = True
    stores: tuple[StoreSpec, ...] = ()

    def bind(self, following: Push, scope: Scope) -> Push:  # noqa: ARG002 - what follows is another stage
        """As `Step.bind`."""
        key_fn = self.key_fn
        encode_key = key_codec(self.key_type).encode
        encode = internal_codec(self.value_type).encode
        append = scope.output(self.topic)

        def push(key: bytes | None, value: Any, timestamp: int, step: str = self.name) -> None:  # noqa: ARG001
            new_key = key_fn(value)
            if new_key is None:
                raise UserCodeError(
                    "key_by got None as the key of a record",
                    where=f'step "{step}"',
                    hint="filter such records out before key_by, or give them a key of their own",
                )
            try:
                key_data = encode_key(new_key)
            except ENCODE_ERRORS as error:
                raise self._unwritable_key(step, new_key) from error
            try:
                data = encode(value)
            except ENCODE_ERRORS as error:
                raise self._unwritable_value(step, value, error) from error
            append(key_data, data, timestamp)

        return push

    def _unwritable_key(self, step: str, key: Any) -> EncodeError:
        got = type_name(type(key))
        return EncodeError(
            f"key_by expects keys of type {type_name(self.key_type)}, got a {got}",
            where=f'step "{step}"',
            hint=f"pass key_type={got} to key_by, or annotate the return type of its function",
        )

    def _unwritable_value(self, step: str, value: Any, error: Exception) -> EncodeError:
        return EncodeError(
            f"key_by cannot send on a value of type {type_name(type(value))}, expected {type_name(self.value_type)}",
            where=f'step "{step}"',
            detail=str(error),
            hint="use a msgspec.Struct, a dataclass, or builtins; integers have 64 bits",
        )


def nullable(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes | None]:
    """The same encoding, with None left out of it: None as bytes means a record without key or value."""

    def encode_or_none(value: Any) -> bytes | None:
        return None if value is None else encode(value)

    return encode_or_none
