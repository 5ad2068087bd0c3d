"""Map keys as bytes: how they are written, so that they sort as they should, and which bytes a range of them is."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from streamkit.errors import EncodeError, UserCodeError
from streamkit.state.keys import successor
from streamkit.state.spec import StoreSpec
from streamkit.state.values import ENCODE_ERRORS

# Added to an integer map key, so that its bytes sort like the number: negative ones first.
_SIGN = 1 << 63
# Types whose bytes sort as the keys do.
_SORTED = (str, int, bytes)


class KeyRange(NamedTuple):
    """Encoded map keys from `start` on and before `end`."""

    start: bytes = b""
    end: bytes | None = None


EVERYTHING = KeyRange()


def key_range(
    spec: StoreSpec, encode: Callable[[Any], bytes], start: Any = None, end: Any = None, prefix: Any = None
) -> KeyRange:
    """The range of map keys from `start` on, before `end`, that begin with `prefix`.

    Raises:
        UserCodeError: keys of this type have no such order.
        EncodeError: a bound is not of the type of the keys.
    """
    if start is None and end is None and prefix is None:
        return EVERYTHING
    if spec.map_key_type not in _SORTED or (prefix is not None and spec.map_key_type is int):
        raise UserCodeError(
            f'the map "{spec.name}" cannot be walked by a {"range" if prefix is None else "prefix"}',
            detail=f"its keys are of type {spec.map_key_type!r}",
            hint="ranges are for keys of type str, int or bytes, prefixes for str or bytes",
        )
    first = b"" if start is None else encode(start)
    last = None if end is None else encode(end)
    if prefix is not None:
        begins = encode(prefix)
        behind = successor(begins)
        first = max(first, begins)
        last = behind if last is None else last if behind is None else min(last, behind)
    return KeyRange(first, last)


def map_key_format(spec: StoreSpec) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """How to write and read the map keys of a store, so that text, integers and bytes sort as they should."""

    def fail(map_key: Any, error: Exception) -> EncodeError:
        return EncodeError(
            f'store "{spec.name}" got a map key of type "{type(map_key).__name__}" that cannot be written',
            detail=f"{type(error).__name__}: {error}",
            hint=f"the map was declared with keys of type {spec.map_key_type!r}; integers have 64 bits",
        )

    pack, unpack = _plain_map_key_format(spec.map_key_type)

    def encode(map_key: Any) -> bytes:
        try:
            return pack(map_key)
        except (*ENCODE_ERRORS, AttributeError) as error:
            raise fail(map_key, error) from error

    return encode, unpack


def _plain_map_key_format(kind: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    if kind is str:
        return str.encode, bytes.decode
    if kind is int:
        return (
            lambda number: (number + _SIGN).to_bytes(8, "big"),
            lambda data: int.from_bytes(data, "big") - _SIGN,
        )
    if kind is bytes:
        return _as_bytes, _as_bytes
    # Deterministic, because two spellings of one key would be two entries.
    return (
        msgspec.msgpack.Encoder(order="deterministic").encode,
        msgspec.msgpack.Decoder(kind if kind is not None else Any).decode,
    )


def _as_bytes(data: Any) -> bytes:
    if type(data) is not bytes:
        raise TypeError("bytes are expected")
    return data
