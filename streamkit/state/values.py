"""Value bytes: what a store entry holds, one byte of schema version and then MessagePack.

Reading is typed, so bytes that do not fit the declared type are noticed here and nowhere later. A value written by
an older version of the pipeline is decoded to plain builtins, taken through the upcasters and converted.

A value is read back when it is written, so that one which is not of its type is an error of the record that set it. One that
is found later all the same is for a person: most likely its type was changed, and the version of the store was not.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from streamkit.codec.exact import plain_class
from streamkit.codec.naming import given_as
from streamkit.errors import (
    EncodeError,
    InvalidPipeline,
    Misconfigured,
    StateCorrupt,
    is_of_the_record,
    said,
)
from streamkit.state.spec import StoreSpec

# One byte carries the version.
VERSION_MAX = 255

# Of a key in an error this much is shown.
KEY_BYTES_SHOWN = 200
# And this much of a value that nobody can read.
VALUE_BYTES_SHOWN = 16

# Everything msgspec raises for a value that it cannot write.
ENCODE_ERRORS = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


class ValueFormat:
    """How the values of one store are written and read.

    A value's bytes are `header + pack(value)`; the write path joins them itself, because a call costs more than
    packing an integer. It also has `read_back` try what it has packed, except for values of the class `plain`.
    """

    __slots__ = ("_spec", "_version", "header", "pack", "plain", "read_back")

    def __init__(self, spec: StoreSpec) -> None:
        """Check what can be checked before the first value.

        Raises:
            InvalidPipeline: the version or the type of the spec cannot be stored.
        """
        if not 1 <= spec.version <= VERSION_MAX:
            raise InvalidPipeline(
                f'store "{spec.name}" has version {spec.version}',
                hint=f"versions count from 1 to {VERSION_MAX}",
            )
        self.header = bytes([spec.version])
        self.pack: Callable[[Any], bytes] = _pack
        self._version = spec.version
        self._spec = spec
        # Reads what `pack` has written; raises if it is not of the declared type.
        self.read_back: Callable[[bytes], Any] = _typed_decoder(spec)
        self.plain = plain_class(spec.value_type)

    def encode(self, value: Any) -> bytes:
        """The bytes of `value`.

        Raises:
            EncodeError: MessagePack has no form for it.
        """
        try:
            return self.header + self.pack(value)
        except ENCODE_ERRORS as error:
            raise unwritable(self._spec, None, error) from error

    def decode(self, data: bytes, key: Any = None) -> Any:
        """The value that these bytes hold, in the spec's version; errors name the key, if it is given.

        Raises:
            StateCorrupt: the bytes were not written by `encode`.
            Misconfigured: they are not of the declared type, or of a version that this pipeline cannot read.
        """
        if data and data[0] == self._version:
            try:
                return self.read_back(data[1:])
            except msgspec.ValidationError as error:
                raise Misconfigured(**self._of_another_type(error, "", key)) from error
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise self._corrupt(str(error), data, key) from error
        return self._decode_older(data, key)

    def require_storable(self, key: bytes, data: bytes, bytes_max: int) -> None:
        """Refuse bytes which `encode` made of a value that is too large.

        Raises:
            EncodeError: with the store and the key in it.
        """
        if len(data) > bytes_max:
            raise EncodeError(
                f'a value of store "{self._spec.name}" has {len(data)} bytes, and its changelog takes {bytes_max}',
                where=f"key {shown(key)}",
                hint="keep less in one value: a map (sk.map_of) or a list (sk.list_of) stores each entry on its own; or raise max.message.bytes of the changelog topic",
            )

    def not_of_its_type(self, key: Any, error: BaseException) -> EncodeError:
        """The error for a value of this key that was written and that `read_back` then refused.

        A constructor of the user's may be at work there, and raise anything.
        """
        if not is_of_the_record(error):
            raise error
        return EncodeError(
            f'a value of store "{self._spec.name}" is not of the declared type',
            where=_where(key),
            detail=str(error) if isinstance(error, msgspec.MsgspecError) else said(error),
            hint="set values of the type that the state was declared with",
        )

    def _decode_older(self, data: bytes, key: Any) -> Any:
        if not data or data[0] == 0:
            raise self._corrupt("it has no schema version", data, key)
        written = data[0]
        if written > self._version:
            raise Misconfigured(
                f'store "{self._spec.name}" holds version {written} of its values, and the pipeline says version {self._version}',
                detail="the state was written by a newer version of the pipeline",
                hint="run that version again, or raise the store's version and declare how to read the older ones",
            )
        try:
            value = _unpack(data[1:])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._corrupt(str(error), data, key) from error
        for version in range(written, self._version):
            upcast = self._spec.upcasters.get(version)
            if upcast is None:
                raise Misconfigured(
                    f'store "{self._spec.name}" has no upcaster from version {version} to {version + 1}',
                    detail=f"a value of version {written} was read; the pipeline says version {self._version}",
                    hint=f"declare it: upcasters={{{version}: lambda old: ...}}",
                )
            value = upcast(value)
        try:
            return msgspec.convert(value, self._spec.value_type)
        except msgspec.ValidationError as error:
            when = f" after its upcasters from version {written}"
            raise Misconfigured(**self._of_another_type(error, when, key)) from error

    def _of_another_type(self, error: Exception, when: str, key: Any) -> dict[str, str]:
        return {
            "problem": f'store "{self._spec.name}" holds a value of another type than declared{when}',
            "where": _where(key),
            "detail": str(error),
            "hint": "after a change of the type, raise the store's version and add an upcaster for the old one",
        }

    def _corrupt(self, detail: str, data: bytes, key: Any) -> StateCorrupt:
        return StateCorrupt(
            f'store "{self._spec.name}" holds bytes that are no value',
            where=_where(key),
            detail=f"{detail}; its {len(data)} bytes begin with 0x{data[:VALUE_BYTES_SHOWN].hex()}",
            hint="the local state is discarded and restored; if it comes back, the changelog topic has foreign records",
        )


def unwritable(spec: StoreSpec, key: Any, error: Exception) -> EncodeError:
    """The error for a value of this store, of this key if one is known, that cannot be written."""
    return EncodeError(
        f'a value of store "{spec.name}" cannot be written',
        where=_where(key),
        detail=f"{type(error).__name__}: {error}",
        hint="keep builtins, dataclasses or msgspec structs of them; integers have 64 bits",
    )


def shown(key: Any) -> str:
    """The key of a cell, for people: what belongs to a window shows its key."""
    plain = key[0] if isinstance(key, tuple) else key
    return repr(plain[:KEY_BYTES_SHOWN])


def _where(key: Any) -> str:
    return "" if key is None else f"key {shown(key)}"


def _typed_decoder(spec: StoreSpec) -> Callable[[bytes], Any]:
    try:
        decoder = msgspec.msgpack.Decoder(spec.value_type)
        # msgspec takes any class and fails at the first value; say it before there is one.
        is_foreign = isinstance(msgspec.inspect.type_info(spec.value_type), msgspec.inspect.CustomType)
    except TypeError as error:
        is_text = isinstance(spec.value_type, str)
        raise _unstorable(
            spec, "a type is wanted, and this is a text: write it without quotes" if is_text else str(error)
        ) from error
    if is_foreign:
        raise _unstorable(
            spec, f"{given_as(spec.value_type)} is neither a builtin nor a struct nor a dataclass"
        )
    return decoder.decode


def _unstorable(spec: StoreSpec, detail: str) -> InvalidPipeline:
    return InvalidPipeline(
        f'store "{spec.name}" declares a type that cannot be stored',
        detail=detail,
        hint="declare a builtin, a dataclass or a msgspec.Struct; not a union of two of the same shape",
    )
