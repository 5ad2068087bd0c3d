"""Codec: how values of one type become bytes and come back."""

from collections.abc import Callable
from typing import Any

import msgspec
import orjson


class Codec(msgspec.Struct, frozen=True):
    """Two functions, called once per record, and the name of the type they serve.

    `encode` and `decode` are bound methods of C code wherever there is one: a record pays no Python frame. They raise
    whatever the library below raises (`DECODE_ERRORS`, `ENCODE_ERRORS`); whoever calls them turns that into our own
    errors, once per batch. They never see None bytes: a record without a value (a tombstone) decodes to None if
    `nullable`, else it cannot be decoded.
    """

    type_name: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    nullable: bool = False


# What `decode` raises on bytes it cannot read. A deeply nested document exhausts the parser's stack, hence the last.
DECODE_ERRORS: tuple[type[Exception], ...] = (
    msgspec.DecodeError,
    orjson.JSONDecodeError,
    UnicodeDecodeError,
    RecursionError,
)

# What `encode` raises on a value it cannot write: another type, a number beyond 64 bits, a lone surrogate.
ENCODE_ERRORS: tuple[type[Exception], ...] = (
    msgspec.EncodeError,
    orjson.JSONEncodeError,
    TypeError,
    OverflowError,
    UnicodeEncodeError,
    RecursionError,
)
