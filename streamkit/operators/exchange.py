"""Steps at the end of a stage: write to a sink topic, or shuffle to the owner of a key."""

import re
from collections.abc import Callable
from typing import Any, ClassVar

from streamkit.codec.codec import ENCODE_ERRORS, Codec
from streamkit.codec.exact import checking, exact_class
from streamkit.codec.floats import L_OF_NULL, find_null, float_fields, reading_back
from streamkit.codec.naming import one, type_name
from streamkit.codec.values import internal_codec, key_codec, value_codec
from streamkit.errors import EncodeError, UserCodeError, said
from streamkit.operators.fused import InlineStep
from streamkit.operators.step import Scope, Statements
from streamkit.state.spec import StoreSpec

# The statements that both steps share; encoders are C functions that raise what `ENCODE_ERRORS` lists.
_ENCODE_VALUE = (
    "try:",
    "    data = encode(value)",
    "except ENCODE_ERRORS as error:",
    "    raise bad_value(value, error) from error",
)
# Only where the type has one class: a value of another may still be of the type, and is looked at more closely.
_CHECK_VALUE = ("if type(value) is not exact: check(value)",)
_ENCODE_KEY = (
    "try:",
    "    out_key = encode_key(new_key)",
    "except ENCODE_ERRORS as error:",
    "    raise bad_key(new_key, error) from error",
)


# What a codec says of a value that is of another type as a whole: what is inside of one has a path behind it.
_TWO_TYPES = re.compile(r"Expected `[^`]*`, got `[^`]*`")

# Says what time a record was about, where its own timestamp may be another: that of a broker that goes by its clock.
TIMESTAMP_HEADER = "streamkit.timestamp"
_WITH_TIMESTAMP = ('headers = [(TIMESTAMP_HEADER, b"%d" % timestamp)]',)


class WriteStep(InlineStep, frozen=True):
    """Write every record to a topic that others read.

    The key goes out with the bytes it came with, unless `key_fn` makes a new one from the value. A value of None is
    written as a record without a value (a tombstone) if the topic's type allows None. Late records carry their time in
    a header too.
    """

    kind: ClassVar[str] = "write"
    outputs: ClassVar[tuple[str, ...]] = ()

    name: str
    topic: str
    value_type: Any
    key_type: Any = str
    key_fn: Callable[[Any], Any] | None = None
    is_late: bool = False
    has_effects: bool = True
    stores: tuple[StoreSpec, ...] = ()

    def code(self, scope: Scope) -> Statements:
        """As `InlineStep.code`."""
        codec = value_codec(self.value_type)
        out = self._output(scope)
        names = {
            **out.names,
            "encode": nullable(codec.encode) if codec.nullable else codec.encode,
            "bad_value": self._unwritable_value,
            "ENCODE_ERRORS": ENCODE_ERRORS,
        }
        checked, more = checked_lines(self.value_type, codec, self._unwritable_value)
        names |= more
        read_back, more = read_back_lines(self.value_type, codec, self._unreadable_value)
        names |= more
        encoded = (*_ENCODE_VALUE, *read_back)
        if self.key_fn is None:
            return Statements(
                self.name, (*checked, *encoded, "out_key = key", *out.lines), names, is_end=True
            )
        names |= {
            "key_fn": self.key_fn,
            "encode_key": nullable(key_codec(self.key_type).encode),
            "bad_key": self._unwritable_key,
        }
        lines = ("new_key = key_fn(value)", *_ENCODE_KEY, *checked, *encoded, *out.lines)
        return Statements(self.name, lines, names, is_end=True)

    def _output(self, scope: Scope) -> Statements:
        out = scope.output(self.topic)
        if not self.is_late:
            return out
        names = {name: thing for name, thing in out.names.items() if name != "headers"}
        names["TIMESTAMP_HEADER"] = TIMESTAMP_HEADER
        return Statements(out.step, (*_WITH_TIMESTAMP, *out.lines), names)

    def _unwritable_value(self, value: Any, error: Exception) -> EncodeError:
        return self._unwritable("value", value, self.value_type, error)

    def _unwritable_key(self, key: Any, error: Exception) -> EncodeError:
        return self._unwritable("key", key, self.key_type, error)

    def _unwritable(self, part: str, given: Any, wanted_type: Any, error: Exception) -> EncodeError:
        got, wanted = type_name(type(given)), type_name(wanted_type)
        where = f'step "{self.name}"'
        if got == wanted:
            return EncodeError(
                f'topic "{self.topic}" cannot take this {part} of type {got}', where=where, detail=said(error)
            )
        return EncodeError(
            f'topic "{self.topic}" takes a {part} of type {wanted}, got {one(type(given))}',
            where=where,
            detail=_more_than_types(error),
            hint=f"convert it with map() before write(), or declare the topic with the {part} type you write",
        )

    def _unreadable_value(self, value: Any, error: Exception) -> EncodeError:
        return EncodeError(
            f'topic "{self.topic}" cannot take this value of type {type_name(type(value))}: it could not be read back',
            where=f'step "{self.name}"',
            detail=str(error),
            hint="convert it with map() before write(); nan and infinity cannot be written as JSON, and become null",
        )


class ShuffleStep(InlineStep, frozen=True):
    """Send every record to the task that owns its key: `key_fn(value)` becomes the key, the value travels as it is."""

    kind: ClassVar[str] = "key_by"
    outputs: ClassVar[tuple[str, ...]] = ()

    name: str
    topic: str
    key_fn: Callable[[Any], Any]
    key_type: Any
    value_type: Any
    has_effects: bool = True
    stores: tuple[StoreSpec, ...] = ()

    def code(self, scope: Scope) -> Statements:
        """As `InlineStep.code`."""
        out = scope.output(self.topic)
        codec = internal_codec(self.value_type)
        checked, more = checked_lines(self.value_type, codec, self._unwritable_value)
        names = {
            **out.names,
            **more,
            "key_fn": self.key_fn,
            "encode_key": key_codec(self.key_type).encode,
            "encode": codec.encode,
            "no_key": self._no_key,
            "bad_key": self._unwritable_key,
            "bad_value": self._unwritable_value,
            "ENCODE_ERRORS": ENCODE_ERRORS,
        }
        lines = (
            "new_key = key_fn(value)",
            "if new_key is None:",
            "    raise no_key()",
            *_ENCODE_KEY,
            *checked,
            *_ENCODE_VALUE,
            *out.lines,
        )
        return Statements(self.name, lines, names, is_end=True)

    def _no_key(self) -> UserCodeError:
        return UserCodeError(
            "key_by got None as the key of a record",
            where=f'step "{self.name}"',
            hint="filter such records out before key_by, or give them a key of their own",
        )

    def _unwritable_key(self, key: Any, error: Exception) -> EncodeError:
        got, wanted = type_name(type(key)), type_name(self.key_type)
        where = f'step "{self.name}"'
        if got == wanted:
            return EncodeError(
                f"key_by cannot send on this key of type {got}", where=where, detail=said(error)
            )
        return EncodeError(
            f"key_by expects keys of type {wanted}, got {one(type(key))}",
            where=where,
            detail=_more_than_types(error),
            hint=f"pass key_type={got} to key_by, or annotate the return type of its function",
        )

    def _unwritable_value(self, value: Any, error: Exception) -> EncodeError:
        got, wanted = type_name(type(value)), type_name(self.value_type)
        instead = f", expected {wanted}" if got != wanted else ""
        return EncodeError(
            f"key_by cannot send on a value of type {got}{instead}",
            where=f'step "{self.name}"',
            detail=_more_than_types(error) if instead else str(error),
            hint="use a msgspec.Struct, a dataclass, or builtins; integers have 64 bits",
        )


def _more_than_types(error: Exception) -> str:
    """What an error says about a value of the wrong type, "" if that is no more than the two types."""
    text = str(error)
    is_bare = text.startswith("descriptor ") or _TWO_TYPES.fullmatch(text)
    return "" if is_bare else said(error)


def checked_lines(
    value_type: Any, codec: Codec, refuse: Callable[[Any, Exception], Exception]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The statements that refuse a value of another type, and what they mention; none if no class tells."""
    exact = exact_class(value_type)
    if exact is None:
        return (), {}
    return _CHECK_VALUE, {"exact": exact, "check": checking(codec, refuse)}


def read_back_lines(
    value_type: Any, codec: Codec, refuse: Callable[[Any, Exception], Exception]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The statements that refuse a float which JSON has no form for, and what they mention; none if there are no floats."""
    fields = float_fields(value_type)
    if fields == []:
        return (), {}
    names = {"read_back": reading_back(codec, refuse)}
    is_there = "data is not None and " if codec.nullable else ""
    if fields is None:
        lines: tuple[str, ...] = (
            f"if {is_there}L_OF_NULL in data and find_null(data): read_back(value, data)",
        )
        return lines, {**names, "find_null": find_null, "L_OF_NULL": L_OF_NULL}
    floats = " + ".join(f"value{field}" for field in fields)
    lines = (
        "try:",
        f"    is_odd = {is_there}({floats}) * 0.0",
        "except Exception:",  # a value of another class, or one with something else inside
        "    is_odd = True",
        "if is_odd: read_back(value, data)",
    )
    return lines, names


def nullable(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes | None]:
    """The same encoding, with None left out of it: None as bytes means a record without key or value."""

    def encode_or_none(value: Any) -> bytes | None:
        return None if value is None else encode(value)

    return encode_or_none
