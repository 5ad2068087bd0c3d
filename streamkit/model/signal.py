"""Signals: what travels among the records of a channel without being one."""

import msgspec

from streamkit.model.ids import CutNumber, RoundNumber


class Watermark(msgspec.Struct, frozen=True, array_like=True, tag="watermark"):
    """A promise: no record with this event time or an older one will follow on this channel."""

    event_time_ms: int


class Idle(msgspec.Struct, frozen=True, array_like=True, tag="idle"):
    """Nothing comes here for a while: do not wait for this channel. The next watermark ends it."""

    event_time_ms: int


class EndOfInput(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """Nothing will ever follow on this channel."""


class Barrier(msgspec.Struct, frozen=True, array_like=True, tag="barrier"):
    """What the channel sent before this belongs to the cut, what it sends afterwards does not.

    It counts only in the round in which the cut was begun.
    """

    cut: CutNumber
    round: RoundNumber


# What says how far event time has come, or that nobody is to wait for it.
TimeSignal = Watermark | Idle | EndOfInput
Signal = TimeSignal | Barrier
