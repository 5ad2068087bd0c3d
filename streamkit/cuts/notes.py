"""Notes: what workers, the coordinator of cuts and the command line tell each other in the control topic.

The topic has one partition, and its order decides. It is compacted: of the notes with one key only the last is sure to stay.
Here the first one counts, so no note may take another's place: what a former round may still write late has the round of
its writer in its key, and nobody writes a second time under one key without having read the log to its end.
"""

from enum import Enum
from typing import Annotated

import msgspec

from streamkit.errors import Misconfigured
from streamkit.model.ids import CutNumber, RoundNumber, TaskId

FORMAT_VERSION = 1

Size = Annotated[int, msgspec.Meta(ge=0)]


class Kind(Enum):
    """Whose a cut is: a checkpoint is the runtime's, a savepoint that of the person who asked for it."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"


class Round(msgspec.Struct, frozen=True, array_like=True, tag="round"):
    """The coordinator's first note in a round: from here on those of older rounds are void, except `Stored`."""

    round: RoundNumber
    # By its transactional id.
    writer: str

    @property
    def key(self) -> str:
        """Of every round its own: which one came next after a cut was begun must still be told when more have followed."""
        return f"round/{self.round}"


class Trigger(msgspec.Struct, frozen=True, array_like=True, tag="trigger"):
    """The coordinator begins a cut."""

    cut: CutNumber
    round: RoundNumber
    kind: Kind
    # The stages, and how many tasks each of them has: all of these are in the cut, and nobody else.
    stages: dict[str, Size]
    # Of the plan; whoever has another one declines.
    fingerprint: str
    # Whether its tasks stay where they are until the workers leave, and whether sources are finished first.
    is_stopping: bool = False
    is_draining: bool = False
    # The command that asked for it, if one did.
    command: str | None = None
    at_ms: int = 0

    @property
    def key(self) -> str:
        """One for each round: a coordinator of a former one may write late, and under the same number."""
        return f"cut/{self.cut}/trigger/{self.round}"


class Reached(msgspec.Struct, frozen=True, array_like=True, tag="reached"):
    """The owner of a task has come to the cut; written in the transaction that holds the task's barriers."""

    cut: CutNumber
    round: RoundNumber
    task: TaskId
    # Which of the task's commits this is, and in which life of its changelog.
    span: Size
    birth: str
    # Topic to partition to the offset of the next record to read.
    positions: dict[str, dict[int, Size]]
    # The task's time and line as its commit record has them, byte for byte.
    clock: bytes = b""
    line: bytes = b""
    at_ms: int = 0

    @property
    def key(self) -> str:
        """One for each task and round."""
        return f"cut/{self.cut}/reached/{self.round}/{self.task}"


class Declined(msgspec.Struct, frozen=True, array_like=True, tag="declined"):
    """The owner of a task cannot take part, or not any more. `round` is the owner's, which may be newer than the cut's."""

    cut: CutNumber
    round: RoundNumber
    task: TaskId
    reason: str

    @property
    def key(self) -> str:
        """One for each task and round."""
        return f"cut/{self.cut}/declined/{self.round}/{self.task}"


class StoredFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of an image, by the digest of its bytes."""

    path: str
    sha256: str
    bytes: Size


class Stored(msgspec.Struct, frozen=True, array_like=True, tag="stored"):
    """A task's image of the cut lies in the snapshot store. Of several the last counts: each of them is right."""

    cut: CutNumber
    round: RoundNumber
    task: TaskId
    # Where the task's changelog ends in the image.
    offset: Size
    files: tuple[StoredFile, ...]
    # How many of the bytes had to be uploaded for it.
    new_bytes: Size

    @property
    def key(self) -> str:
        """One for each task: whoever made the image, it is of the same commit."""
        return f"cut/{self.cut}/stored/{self.task}"


class End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """The coordinator ends a cut; the first end counts. `round` is the coordinator's, which may be newer than the cut's."""

    cut: CutNumber
    round: RoundNumber
    is_complete: bool
    why: str = ""
    # The tasks that were still waited for.
    missing: tuple[TaskId, ...] = ()
    at_ms: int = 0

    @property
    def key(self) -> str:
        """One for each round: what a former coordinator says late must not take the place of what counts."""
        return f"cut/{self.cut}/end/{self.round}"


class Wish(Enum):
    """What a person may ask for."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    STOP = "stop"


class Command(msgspec.Struct, frozen=True, array_like=True, tag="command"):
    """A person asks for a cut."""

    id: str
    wish: Wish
    is_draining: bool = False
    at_ms: int = 0

    @property
    def key(self) -> str:
        """One for each command."""
        return f"command/{self.id}"


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """What became of a command."""

    id: str
    is_done: bool
    # The cut that was made, if one was.
    cut: CutNumber | None = None
    why: str = ""
    at_ms: int = 0

    @property
    def key(self) -> str:
        """One for each command."""
        return f"answer/{self.id}"


Note = Round | Trigger | Reached | Declined | Stored | End | Command | Answer


class _Written(msgspec.Struct, frozen=True, array_like=True):
    version: int
    note: Note


class _Head(msgspec.Struct, array_like=True):
    """The part that every release can read."""

    version: Annotated[int, msgspec.Meta(ge=1)]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Written).decode
_decode_head = msgspec.msgpack.Decoder(_Head).decode


def encode_note(note: Note) -> tuple[bytes, bytes]:
    """The key and the value of a note's record."""
    return note.key.encode(), _encode(_Written(FORMAT_VERSION, note))


def decode_note(key: bytes | None, value: bytes | None) -> Note | None:
    """The note that a record of the control topic holds; None if it only says that one was deleted.

    Raises:
        Misconfigured: it holds none that this release knows.
    """
    if key is not None and value is None:
        return None  # what is over is deleted, of whatever kind it was
    try:
        version = _decode_head(value or b"").version
        if version > FORMAT_VERSION:
            raise _unreadable(key, f"it has format {version}, and this release reads up to {FORMAT_VERSION}")
        note = _decode(value or b"").note
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(key, str(error)) from error
    if key != note.key.encode():
        raise _unreadable(key, f'what it says belongs under "{note.key}"')
    return note


def _unreadable(key: bytes | None, detail: str) -> Misconfigured:
    shown = "without a key" if key is None else f'"{key.decode(errors="backslashreplace")}"'
    return Misconfigured(
        f"the control topic holds a record {shown} that is no note of this release",
        detail=detail,
        hint="only streamkit may write to the control topic: look at the ACLs; if a newer release did, run that one",
    )
