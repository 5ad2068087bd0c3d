"""SourceClock: the event time of one partition of a source topic, advanced by its records.

On the hot path the loop of a stage (`task/chain.py`) works on the attributes directly: it compares a record's
time with `highest` and asks for an advance only when `limit` is reached.
"""

from typing import Any

import msgspec

from streamkit.errors import Misconfigured, is_of_the_record
from streamkit.model.event_time import TimeRule, WatermarkGenerator
from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.progress.channels import Status

_encode = msgspec.msgpack.Encoder().encode


class SourceState(msgspec.Struct, frozen=True, array_like=True):
    """What is committed of a source clock."""

    highest: int = MIN_TIME
    watermark: int = MIN_TIME
    status: int = Status.ACTIVE
    generator: bytes = b""
    # Where the input ends, if it is bounded: decided once, when the task first began.
    end: int | None = None


class GeneratorFailed(Exception):
    """The user's watermark generator raised, on this record if it saw one."""

    def __init__(self, record: Any | None, cause: BaseException) -> None:
        super().__init__("the watermark generator raised")
        self.record = record
        self.cause = cause


class SourceClock:
    """One partition's event time: by how old records may be, or by a generator of the user's."""

    __slots__ = (
        "_rule",
        "end",
        "generator",
        "heard_ms",
        "highest",
        "in_hand",
        "ingested_ms",
        "latest",
        "limit",
        "stated",
        "status",
    )

    def __init__(self, rule: TimeRule, state: SourceState, elapsed_ms: int) -> None:
        self._rule = rule
        # The greatest timestamp so far, and the one from which on a record may make a timer due.
        self.highest = state.highest
        self.limit = MIN_TIME
        # What was promised otherwise: by a generator, by a test, or before the rule was changed.
        self.stated = state.watermark
        self.status = Status(state.status)
        self.end = state.end
        # When something last came, by the clock that only measures, and the ingestion time of what is being run.
        self.heard_ms = elapsed_ms
        self.ingested_ms = state.highest
        # A record with a greater timestamp claims to be too far in the future.
        self.latest = MAX_TIME
        # A record that was processed and that the generator has not seen yet, with its value and timestamp.
        self.in_hand: tuple[Any, Any, int] | None = None
        self.generator: WatermarkGenerator | None = None
        if rule.generator is not None:
            self.generator = rule.generator()
            if state.generator:
                self.generator = _restored(state.generator, type(self.generator))

    @property
    def watermark(self) -> int:
        """What this partition promises."""
        if self.generator is not None or self.highest == MIN_TIME:
            return self.stated
        return max(self.stated, self.highest - self._rule.late_ms - 1)

    @property
    def combined(self) -> tuple[Status, int]:
        """Status and event time, as `Channels.combined`."""
        return self.status, self.watermark

    def timestamp_for(self, watermark: int) -> int:
        """The smallest timestamp that brings this partition to a watermark."""
        if self.generator is not None:
            return MIN_TIME  # only it knows
        return min(watermark, MAX_TIME - self._rule.late_ms - 1) + self._rule.late_ms + 1

    def observe_in_hand(self) -> bool:
        """Let the generator see the record that was processed last; whether event time advances.

        Raises:
            GeneratorFailed: it raised on that record.
        """
        assert self.generator is not None
        assert self.in_hand is not None
        record, value, timestamp = self.in_hand
        self.in_hand = None
        self.highest = max(self.highest, timestamp)
        try:
            return self.promise(self.generator.on_record(value, timestamp))
        except BaseException as error:
            if not is_of_the_record(error):
                raise
            raise GeneratorFailed(record, error) from error

    def tick(self, now_ms: int) -> None:
        """Let the generator see the wall clock.

        Raises:
            GeneratorFailed: it raised.
        """
        if self.generator is not None:
            try:
                self.promise(self.generator.on_tick(now_ms))
            except BaseException as error:
                if not is_of_the_record(error):
                    raise
                raise GeneratorFailed(None, error) from error

    def promise(self, watermark: int | None) -> bool:
        """Promise this much, unless more was promised already; whether it was news.

        Raises:
            TypeError: it is no event time.
        """
        if watermark is None:
            return False
        if type(watermark) is not int or not MIN_TIME <= watermark <= MAX_TIME:
            raise TypeError(f"a watermark is an int of milliseconds, got {watermark!r}")
        if watermark <= self.stated:
            return False
        self.stated = watermark
        return True

    def wake(self, now_ms: int, elapsed_ms: int) -> None:
        """Records have come. Ingestion time never goes back, whosever clock it was before."""
        self.heard_ms = elapsed_ms
        self.ingested_ms = max(now_ms, self.highest)
        if self.status is Status.IDLE:
            self.status = Status.ACTIVE

    def is_silent(self, elapsed_ms: int) -> bool:
        """Whether nothing has come for so long that it may be idle; the log must say that there is nothing left."""
        idle_ms = self._rule.idle_ms
        return self.status is Status.ACTIVE and idle_ms is not None and elapsed_ms - self.heard_ms >= idle_ms

    def mark(self) -> tuple[int, int, bytes]:
        """What one record may change, as it is now."""
        generator = b"" if self.generator is None else _encode(self.generator)
        return self.highest, self.stated, generator

    def undo(self, mark: tuple[int, int, bytes]) -> None:
        """Be as it was at the mark; a record in hand was not processed."""
        self.in_hand = None
        self.highest, self.stated, generator = mark
        if self.generator is not None:
            self.generator = _restored(generator, type(self.generator))

    def snapshot(self) -> SourceState:
        """What to commit."""
        generator = b"" if self.generator is None else _encode(self.generator)
        return SourceState(self.highest, self.watermark, self.status, generator, self.end)


def _restored(data: bytes, generator: type[WatermarkGenerator]) -> WatermarkGenerator:
    try:
        return msgspec.msgpack.decode(data, type=generator)
    except msgspec.DecodeError as error:
        raise Misconfigured(
            f'the watermark generator "{generator.__name__}" cannot read the state that another version of it committed',
            detail=str(error),
            hint="keep the names and types of its fields, and give new ones a default",
        ) from error
