"""Line: which barriers a task has heard in its shuffles, and whether it has come to the line that they draw.

Everything before a channel's barrier belongs to the cut. The tasks that write to a shuffle wait for each other, so that no
record of a channel stands between its own barrier and the last one: a task that has heard a barrier in every channel
of every shuffle has read what belongs to the cut, and nothing else. Barriers of a former round draw no line any more.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import chain, groupby, repeat
from typing import Annotated, NamedTuple

import msgspec

from streamkit.errors import Misconfigured
from streamkit.model.ids import KEY_GROUPS
from streamkit.model.signal import Barrier

# Under which name the commit record keeps a task's line.
LINE = "line"

FORMAT_VERSION = 1


class Heard(Enum):
    """What becomes of a barrier."""

    NOTED = "noted"
    # Of a round that is over: dropped.
    OLD = "old"
    # Of a round that began without us: noted, and the worker has to join the group again.
    LEFT_BEHIND = "left behind"


class Mark(NamedTuple):
    """The last barrier of a channel; no cut if there was none. One of a newer round is greater."""

    round: int = 0
    cut: int = 0


class Run(NamedTuple):
    """So many channels in a row with the same mark: after a cut all of them have."""

    channels: Annotated[int, msgspec.Meta(ge=1, le=KEY_GROUPS)]
    round: Annotated[int, msgspec.Meta(ge=0)]
    cut: Annotated[int, msgspec.Meta(ge=0)]


class LineState(msgspec.Struct, frozen=True, array_like=True):
    """What is committed of a line."""

    version: int = FORMAT_VERSION
    # The last cut whose line the task has passed, or at which it stands; 0 if none.
    passed: Annotated[int, msgspec.Meta(ge=0)] = 0
    # The marks of the channels of each shuffle.
    shuffles: dict[str, tuple[Run, ...]] = {}
    # Barriers of former rounds, so far.
    old: Annotated[int, msgspec.Meta(ge=0)] = 0


class Line:
    """The barriers that one task has heard, and the last cut that it has passed."""

    def __init__(self, channels: Mapping[str, int], round_now: int, state: LineState | None = None) -> None:
        """`channels` says for each shuffle that the task reads how many tasks write there."""
        state = state or LineState()
        self.round = round_now
        self.passed = state.passed
        self.old = state.old
        self._marks: dict[str, list[Mark]] = {topic: [Mark()] * count for topic, count in channels.items()}
        for topic, runs in state.shuffles.items():
            marks = self._marks.get(topic)
            if marks is not None:  # else an earlier version of the pipeline read it
                known = list(
                    chain.from_iterable(repeat(Mark(run.round, run.cut), run.channels) for run in runs)
                )
                marks[: len(known)] = known

    def enter(self, round_now: int) -> None:
        """The group has a new generation, and we are in it."""
        self.round = round_now

    def grow(self, shuffle: str, count: int) -> None:
        """Have this many channels at least; those that come new are waited for."""
        marks = self._marks[shuffle]
        marks += [Mark()] * (count - len(marks))

    def shrink(self, shuffle: str, count: int) -> None:
        """Forget the channels from this number on, which belong to nobody."""
        del self._marks[shuffle][count:]

    def hear(self, shuffle: str, channel: int, barrier: Barrier) -> Heard:
        """Note a barrier; hearing it twice changes nothing.

        One of a newer round is noted although nothing can follow from it yet: it is not read again once the span is
        committed, and after joining again it counts.
        """
        if barrier.round < self.round:
            self.old += 1
            return Heard.OLD
        self.grow(shuffle, channel + 1)
        marks = self._marks[shuffle]
        marks[channel] = max(marks[channel], Mark(barrier.round, barrier.cut))
        return Heard.NOTED if barrier.round == self.round else Heard.LEFT_BEHIND

    @property
    def coming(self) -> Barrier | None:
        """The newest barrier of this round that any channel shows, if the task has not passed it.

        Barriers may be heard before the cut's trigger is read in the control topic. They hold all the same: who has reached
        this one, or is complete in one shuffle, reads no further there until it is known that the cut is over.
        """
        newest = max(chain.from_iterable(self._marks.values()), default=Mark())
        is_news = newest.round == self.round and newest.cut > self.passed
        return Barrier(newest.cut, newest.round) if is_news else None

    def has_reached(self, barrier: Barrier) -> bool:
        """Whether every channel of every shuffle shows this barrier, and none a later one.

        Without shuffles there is nothing to wait for: such a task is there as soon as it knows of the cut.
        """
        return all(self._is_complete(marks, barrier) for marks in self._marks.values())

    def complete(self, barrier: Barrier) -> list[str]:
        """The shuffles that have come to the line while others have not: to be paused until those have, too."""
        found = [shuffle for shuffle, marks in self._marks.items() if self._is_complete(marks, barrier)]
        return found if len(found) < len(self._marks) else []

    def waits_for(self, barrier: Barrier) -> list[tuple[str, int]]:
        """The channels that have not shown it."""
        mark = Mark(barrier.round, barrier.cut)
        return [
            (shuffle, channel)
            for shuffle, marks in self._marks.items()
            for channel, each in enumerate(marks)
            if each != mark
        ]

    def pass_by(self, cut: int) -> None:
        """The task stands at the line of this cut, and its next commit says so."""
        self.passed = max(self.passed, cut)

    def snapshot(self) -> LineState:
        """What to commit."""
        shuffles = {shuffle: tuple(_runs(marks)) for shuffle, marks in self._marks.items()}
        return LineState(passed=self.passed, shuffles=shuffles, old=self.old)

    def _is_complete(self, marks: list[Mark], barrier: Barrier) -> bool:
        return marks.count(Mark(barrier.round, barrier.cut)) == len(marks)


def _runs(marks: Iterable[Mark]) -> Iterable[Run]:
    for mark, same in groupby(marks):
        yield Run(sum(1 for _ in same), mark.round, mark.cut)


class _Head(msgspec.Struct, array_like=True):
    """The part that every release can read."""

    version: Annotated[int, msgspec.Meta(ge=1)]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LineState).decode
_decode_head = msgspec.msgpack.Decoder(_Head).decode


def encode_line(line: Line) -> bytes:
    """A line as it stands in a commit record."""
    return _encode(line.snapshot())


def decode_line(data: bytes | None) -> LineState:
    """What a commit record says about barriers; before there were cuts it said nothing.

    Raises:
        Misconfigured: what it says cannot be, or a newer release wrote it in a way that this one must not read.
    """
    if data is None:
        return LineState()
    try:
        version = _decode_head(data).version
        if version > FORMAT_VERSION:
            raise Misconfigured(
                f"a commit record's line has format {version}, and this release reads up to {FORMAT_VERSION}",
                detail="a newer release of streamkit has committed to this pipeline",
                hint="run that release or a newer one",
            )
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(
            "a commit record does not say which barriers were heard",
            detail=str(error),
            hint="only streamkit may write to changelog topics: look at the ACLs; the pipeline can start under a new name",
        ) from error
