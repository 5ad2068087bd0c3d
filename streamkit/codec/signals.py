"""Signals as records of a shuffle: no key, which no shuffled record lacks, and a value that only we write.

A header names the signal for people who look into the topic. Reading is strict: a signal that we do not know is not
skipped, because a newer release sent it for a reason.
"""

import msgspec

from streamkit.errors import Misconfigured
from streamkit.model.signal import Signal

FORMAT_VERSION = 1
HEADER = "streamkit.signal"


class SentSignal(msgspec.Struct, frozen=True, array_like=True):
    """A signal and the channel it came by: the partition of the stage upstream that sent it."""

    version: int
    channel: int
    signal: Signal


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SentSignal).decode


def encode_signal(channel: int, signal: Signal) -> bytes:
    """The value of a signal's record."""
    return _encode(SentSignal(FORMAT_VERSION, channel, signal))


def decode_signal(data: bytes | None) -> SentSignal:
    """The signal that a record without a key holds.

    Raises:
        Misconfigured: it holds none that this release knows.
    """
    try:
        sent = _decode(data or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(str(error)) from error
    if sent.version != FORMAT_VERSION:
        raise _unreadable(f"it has format {sent.version}, and this release reads {FORMAT_VERSION}")
    return sent


def _unreadable(detail: str) -> Misconfigured:
    return Misconfigured(
        "a shuffle topic holds a record without a key that is no signal",
        detail=detail,
        hint="only streamkit may write to shuffle topics: look at the ACLs; if a newer release did, run that one.\n"
        "STREAMKIT_SKIP_FOREIGN=true passes over it",
    )
