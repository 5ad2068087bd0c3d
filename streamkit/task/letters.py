"""letters: dead letters, written into the span: what could not be processed, where it came from and why it failed.

Nothing that a user's code raises may keep a letter from being written: texts are made printable and cut, and what makes a
letter too large for its topic is left out of it.
"""

import traceback
from collections.abc import Iterator
from types import CodeType, TracebackType

import msgspec

from streamkit.errors import EncodeError, Misconfigured, is_raised_by_us, line_of, printable, said
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.model.records import Headers, LogRecord, Unreadable
from streamkit.state.timers import StoredTimer
from streamkit.task.emit import NO_HEADERS, Lane
from streamkit.task.failure_book import Condemned
from streamkit.task.outside import DECODE, STATE

# A header holds at most this much of a message, and of a traceback: there the end is what tells.
MESSAGE_CHARACTERS_MAX = 1000
TRACEBACK_CHARACTERS_MAX = 4000
# The log names the class of an error with at most this much.
CLASS_CHARACTERS_MAX = 200
# Of a traceback that goes deep, this many calls at its end.
TRACEBACK_CALLS_MAX = 50
# Ways to a failure that are remembered before all are forgotten.
REMEMBERED_CALLS_MAX = 256
# A letter whose value is left out says so in this header, with the size; of its key this much is kept.
TOO_LARGE = "streamkit.too-large"
LETTER_KEY_BYTES_MAX = 10_000
# One that stands for a stretch of a topic says where that ends, and how many bytes of it nobody can read.
NEXT_OFFSET = "streamkit.next-offset"
UNREADABLE = "streamkit.unreadable"
# The value of a shuffled record, which is MessagePack, as JSON: people read letters. Left out where it does not fit.
SHOWN = "streamkit.value"
# What is always in a letter, if its topic takes next to nothing.
MESSAGE_CHARACTERS_MIN = 100

_shown: dict[tuple[tuple[CodeType, int], ...], str] = {}


def reason_of(step: str, cause: BaseException) -> Condemned:
    """Why a record, a result or a timer is set aside.

    The error forgets its traceback: one that is raised again and again would carry those of all times before.
    """
    text = "" if step == DECODE else _traceback(cause)
    kind, line = _class_and_line(cause)
    # A value that cannot be written: made of the same record, it is the same. State is made of others, too.
    is_lasting = isinstance(cause, EncodeError) and step != STATE and is_raised_by_us(cause)
    cause.__traceback__ = None
    return Condemned(step, said(cause)[:MESSAGE_CHARACTERS_MAX], text, kind, line, is_lasting)


def _class_and_line(cause: BaseException) -> tuple[str, str]:
    try:
        return printable(_name(type(cause))[:CLASS_CHARACTERS_MAX]), printable(line_of(cause))
    except Exception:  # noqa: BLE001 - the error is the user's, and so is everything that it is asked for
        return "", ""


def _traceback(cause: BaseException) -> str:
    try:
        lines = list(_told(cause))
    except BaseException as failed:  # the error is the user's, and so is everything that it is asked for
        if isinstance(failed, KeyboardInterrupt):
            raise
        lines = [f"no traceback: {said(failed)}"]
    return printable("".join(lines)[-TRACEBACK_CHARACTERS_MAX:])


def _told(error: BaseException) -> Iterator[str]:
    """An error as Python shows it, behind the one that it came of."""
    if isinstance(error, BaseExceptionGroup):
        yield from traceback.format_exception(error, limit=-TRACEBACK_CALLS_MAX)
        return
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None and before is not error:
        yield _calls(before.__traceback__)
        yield from _last_lines(before)
        yield "\nand of that came:\n\n"
    yield _calls(error.__traceback__)
    yield from _last_lines(error)


def _last_lines(error: BaseException) -> Iterator[str]:
    """The type of an error and what it says; the usual ones without Python's help, which looks at all that came before."""
    text = _text(error)
    if text is None or isinstance(error, SyntaxError) or hasattr(error, "__notes__"):
        yield from traceback.format_exception_only(error)
        return
    name = _name(type(error))
    yield f"{name}: {text}\n" if text else f"{name}\n"


def _name(kind: type[BaseException]) -> str:
    """The name of an error's class, as Python shows it."""
    is_plain = kind.__module__ in ("__main__", "builtins")
    return kind.__qualname__ if is_plain else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str | None:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - it may raise anything
        return None


def _calls(trace: TracebackType | None) -> str:
    """The calls of a traceback, remembered: to show one costs more than a record, and a thousand failures show the same."""
    places = []
    at = trace
    while at is not None:
        places.append((at.tb_frame.f_code, at.tb_lasti))
        at = at.tb_next
    way = tuple(places)
    shown = _shown.get(way)
    if shown is None:
        if len(_shown) >= REMEMBERED_CALLS_MAX:
            _shown.clear()
        calls = traceback.format_tb(trace, limit=-TRACEBACK_CALLS_MAX)
        shown = _shown[way] = "".join(["Traceback (most recent call last):\n", *calls])
    return shown


class Letters:
    """Writes dead letters to their topic."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def of_record(
        self,
        task: TaskId,
        partition: TopicPartition,
        record: LogRecord,
        reason: Condemned,
        *,
        is_shuffled: bool = False,
    ) -> None:
        """A record as it was read, its headers included."""
        headers: list[tuple[str, bytes | None]] = [
            ("streamkit.topic", partition.topic.encode()),
            ("streamkit.partition", b"%d" % partition.partition),
            ("streamkit.offset", b"%d" % record.offset),
            ("streamkit.timestamp", b"%d" % record.timestamp),
            *_reason_headers(task, reason),
        ]
        carried = [*(_shown_value(record.value) if is_shuffled else ()), *record.headers]
        self._write(partition.partition, record.key, record.value, record.timestamp, headers, carried)

    def of_stretch(
        self, task: TaskId, partition: TopicPartition, stretch: Unreadable, reason: Condemned
    ) -> None:
        """A stretch of a source that nobody can read: its place, not its bytes."""
        headers: list[tuple[str, bytes | None]] = [
            ("streamkit.topic", partition.topic.encode()),
            ("streamkit.partition", b"%d" % partition.partition),
            ("streamkit.offset", b"%d" % stretch.offset),
            (NEXT_OFFSET, b"%d" % stretch.next_offset),
            (UNREADABLE, b"%d" % stretch.size_bytes),
            *_reason_headers(task, reason),
        ]
        self._write(partition.partition, None, None, stretch.timestamp, headers)

    def of_timer(self, task: TaskId, timer: StoredTimer, reason: Condemned) -> None:
        """A timer: its key and its time."""
        headers = [("streamkit.timestamp", b"%d" % timer.time), *_reason_headers(task, reason)]
        self._write(task.partition, timer.key, None, timer.time, headers)

    def of_result(
        self, task: TaskId, key: bytes | None, value: object, timestamp: int, reason: Condemned
    ) -> None:
        """A result that was held back: there is no one record behind it, so its value is shown as JSON."""
        headers = [("streamkit.timestamp", b"%d" % timestamp), *_reason_headers(task, reason)]
        self._write(task.partition, key, _as_json(value), timestamp, headers)

    def _write(
        self,
        number: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        carried: Headers = NO_HEADERS,
    ) -> None:
        """Write a letter; one that its topic would refuse without what makes it large: that stands where it came from."""
        index = number % len(self._lane.batches)
        size = (TOO_LARGE, b"%d" % (len(key or b"") + len(value or b"")))
        short = key if key is not None and len(key) <= LETTER_KEY_BYTES_MAX else None
        least: list[tuple[str, bytes | None]] = [
            (name, (content or b"")[:MESSAGE_CHARACTERS_MIN]) for name, content in headers
        ]
        for letter in (
            (key, value, [*headers, *carried]),
            (key, value, [*headers, *(each for each in carried if each[0] != SHOWN)]),
            (short, None, [*headers, size]),
            (None, None, [*least, size]),
        ):
            try:
                self._lane.add(index, letter[0], letter[1], timestamp, letter[2])
            except EncodeError:
                continue
            return
        raise Misconfigured(
            f'the dead letter topic "{self._lane.topic}" takes no record that says what has failed',
            hint=f'raise max.message.bytes of "{self._lane.topic}" to 10000 or more',
        )


def _reason_headers(task: TaskId, reason: Condemned) -> list[tuple[str, bytes | None]]:
    return [
        ("streamkit.stage", _bytes(task.stage)),
        ("streamkit.step", _bytes(reason.step)),
        ("streamkit.error", _bytes(reason.error)),
        ("streamkit.traceback", _bytes(reason.traceback)),
    ]


def _shown_value(value: bytes | None) -> Headers:
    """The value of a shuffled record for people; nothing if it is none of ours, or has no form in JSON."""
    try:
        return [] if value is None else [(SHOWN, msgspec.json.encode(msgspec.msgpack.decode(value)))]
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return []


def _bytes(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _as_json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except Exception:  # noqa: BLE001 - the value is the user's, and so is the code that it may bring
        try:
            return _bytes(repr(value))
        except Exception as error:  # noqa: BLE001 - likewise
            return _bytes(f"a {type(value).__name__} that cannot be shown: {said(error)}")
