"""The pipelines that the simulation runs, and the records that they are fed.

Every record knows its source, its key and its number among the records of both, so that an output record says
exactly which inputs it reflects. `fate` is what the pipeline will do to it.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

import streamkit as sk
from streamkit.graph.policy import ErrorPolicy
from streamkit.model.duration import milliseconds
from streamkit.operators.process import Timer
from streamkit.windows import Window, session, tumbling

Fate = Literal[
    "fine", "drop", "raise_early", "raise_late", "flaky", "unwritable", "too_large", "undecodable", "refused", "ghost",
    "slow", "long", "stuck", "stuck_late"
]  # fmt: skip
# How often a flaky record fails before it passes: an error policy must allow as many retries.
FLAKES = 2
# The source that records of somebody else name; whether they have an effect depends on who reads them.
STRANGER = "stranger"
# More than a changelog takes in one record.
TOO_LARGE = "x" * 1_200_000
# What an operator keeps of a key beside its count: the numbers of its last records.
RECENT = 3
# Event time: how far records of one partition may be out of order, and how long its buckets and session gaps are.
LATE_MS = 120
BUCKET_MS = 90
GAP_MS = 60


class Event(msgspec.Struct, frozen=True):
    """One input record."""

    source: str
    key: str
    seq: int
    fate: Fate
    # Event time, in pipelines that have a use for it.
    at: int = 0


class Out(msgspec.Struct, frozen=True):
    """One output record: the input it came from, and what the state said at that moment."""

    source: str
    key: str
    seq: int
    n: int = 0
    previous: int = 0
    recent: int = 0
    mark: int = 0
    m: int = 0


class Broken(Exception):
    """What the user's code raises here."""


class Mute(Broken):
    """What it raises at times: an error that cannot even be shown."""

    def __str__(self) -> str:
        raise ValueError("no words for it")

    __repr__ = __str__


# What records of each fate take, in scenarios in which work takes time; called with the fate, before a record's work.
Work = Callable[[Fate], None]
_work: Work | None = None


def set_work(work: Work | None) -> None:
    """Let records take time from now on, or none."""
    global _work  # noqa: PLW0603 - one run at a time, and what it runs are plain functions
    _work = work


def check_early(event: Event) -> Event:
    """Take time, then raise before anything has happened to the record."""
    if _work is not None and event.fate in ("slow", "long", "stuck"):
        _work(event.fate)
    if event.fate == "raise_early":
        raise Broken(f"{event.key} {event.seq}")
    return event


def is_wanted(event: Event) -> bool:
    """Whether the filter lets it through."""
    return event.fate != "drop"


def plain_out(event: Event) -> Out:
    """The output of a pipeline without state."""
    return Out(event.source, event.key, event.seq)


class Tally(sk.Operator[str, Event, Out]):
    """Counts the records of a key and remembers their numbers; fails late, after state and output were touched."""

    n = sk.value(int, 0)
    last = sk.map_of(str, int)
    recent = sk.map_of(int, int)
    # Never set by a record that may stay.
    bulk = sk.value(str)
    # Set by every other record, and cleared by the one after it.
    mark = sk.value(int, 0)

    def __init__(self, flakes: dict[tuple[str, str, int], int]) -> None:
        self.flakes = flakes

    def on_record(self, value: Event, ctx: sk.Context[str, Out]) -> None:
        n = self.n.get() + 1
        self.n.set(n)
        previous = self.last.get(value.source, 0)
        self.last.put(value.source, value.seq)
        self.recent.put(n, value.seq)
        self.recent.remove(n - RECENT)
        recent = sum(seq for _, seq in self.recent.items())
        mark = self.mark.get()
        if mark:
            self.mark.clear()
        else:
            self.mark.set(value.seq)
        ctx.emit(Out(value.source, value.key, value.seq, n, previous, recent, mark))
        fail_late(value, self.flakes)
        if value.fate == "unwritable":
            self.n.set(1 << 70)
        if value.fate == "too_large":
            self.bulk.set(TOO_LARGE)


class Retally(sk.Operator[str, Out, Out]):
    """Counts the records of a bucket."""

    m = sk.value(int, 0)

    def on_record(self, value: Out, ctx: sk.Context[str, Out]) -> None:
        ctx.emit(msgspec.structs.replace(value, m=self.m.update(lambda m: m + 1)))


def fail_late(event: Event, flakes: dict[tuple[str, str, int], int]) -> None:
    """Take time behind a shuffle, and raise there: always, or the first times."""
    if _work is not None and event.fate in ("slow", "stuck_late"):
        _work(event.fate)
    if event.fate == "raise_late":
        raise _broken(event)
    if event.fate == "flaky":
        fail_at_first(event, flakes)


def _broken(event: Event) -> Broken:
    """An error as users raise them: of five, one has no form in UTF-8 and one no text at all."""
    texts = ("", "", "", "", " \udcff")
    at = event.seq % (len(texts) + 1)
    return Broken(f"{event.key} {event.seq}{texts[at]}") if at < len(texts) else Mute(event.key)


def fail_at_first(event: Event, flakes: dict[tuple[str, str, int], int]) -> None:
    """Raise the first times that a record comes by, in whichever process."""
    place = (event.source, event.key, event.seq)
    flakes[place] = flakes.get(place, 0) + 1
    if flakes[place] <= FLAKES:
        raise Broken(f"{event.key} {event.seq}, time {flakes[place]}")


class Bucketed(sk.Operator[str, Event, Out]):
    """Counts the records of a key in buckets of event time, and tells of each when a timer says that it is full."""

    counts = sk.map_of(int, int)

    def __init__(self, flakes: dict[tuple[str, str, int], int]) -> None:
        self.flakes = flakes

    def on_record(self, value: Event, ctx: sk.Context[str, Out]) -> None:
        end = bucket_end(value.at)
        if end - 1 <= ctx.watermark:
            raise AssertionError(f"{value} is late: event time stands at {ctx.watermark}")
        self.counts.put(end, self.counts.get(end, 0) + 1)
        ctx.set_timer(end - 1)
        fail_late(value, self.flakes)

    def on_timer(self, timer: Timer, ctx: sk.Context[str, Out]) -> None:
        n = self.counts.get(timer.time + 1, 0)
        self.counts.remove(timer.time + 1)
        ctx.emit(Out("bucket", ctx.key, timer.time + 1, n))


class Summed(sk.Operator[str, Out, Out]):
    """Adds up the counts of all keys for a bucket, once no task upstream can send another."""

    total = sk.value(int, 0)

    def on_record(self, value: Out, ctx: sk.Context[str, Out]) -> None:
        self.total.set(self.total.get() + value.n)
        ctx.set_timer(value.seq - 1)

    def on_timer(self, timer: Timer, ctx: sk.Context[str, Out]) -> None:
        ctx.emit(Out("sum", ctx.key, timer.time + 1, self.total.get()))
        self.total.clear()


class Watchful(sk.Operator[str, Event, Out]):
    """Tells of every record, late or not, and sets a timer, so that somebody waits for event time."""

    def on_record(self, value: Event, ctx: sk.Context[str, Out]) -> None:
        ctx.set_timer(value.at + 1)
        ctx.emit(plain_out(value))

    def on_timer(self, timer: Timer, ctx: sk.Context[str, Out]) -> None:
        """All is said."""


def bucket_end(at: int) -> int:
    """The end of the bucket of an event time."""
    return at // BUCKET_MS * BUCKET_MS + BUCKET_MS


class Shape(msgspec.Struct, frozen=True):
    """One kind of pipeline: its sources, what it writes, and what can fail in it."""

    name: str
    build: Callable[["Making"], None]
    sources: tuple[str, ...] = ("left",)
    out: type = Out
    fails_late: bool = False
    # Whether a record can leave state that cannot be stored.
    spoils: bool = False
    is_timed: bool = False
    # How long a source may be silent before it is idle: records may then be late, by no fault of ours.
    idle_ms: int | None = None
    # Whether what it writes has a second key, with a count of its own.
    has_buckets: bool = False


class Making:
    """A pipeline that is being put together."""

    def __init__(self, shape: Shape, policy: ErrorPolicy, partitions: int | None) -> None:
        self.pipeline = sk.pipeline("sim", on_error=policy, partitions=partitions)
        time: dict[str, Any] = {"time": "at", "late": milliseconds(LATE_MS)} if shape.is_timed else {}
        if shape.idle_ms is not None:
            time["idle"] = milliseconds(shape.idle_ms)
        self.topics = {name: sk.topic(name, Event, **time) for name in shape.sources}
        self.out = sk.topic("out", shape.out)
        self.flakes: dict[tuple[str, str, int], int] = {}

    def events(self) -> sk.Stream[Event]:
        """All sources as one stream, with the checks that come first."""
        first, *others = [
            self.pipeline.read(topic, name=f"read_{name}") for name, topic in self.topics.items()
        ]
        stream = first.union(*others) if others else first
        return stream.map(check_early).filter(is_wanted)


# The topic that only the new version of a pipeline reads.
SIDE = "side"


def renew(making: Making) -> None:
    """The next version of a pipeline: beside all that it did, it counts the records of one more topic."""
    side = making.pipeline.read(sk.topic(SIDE, Event), name="read_side")
    side.key_by(key_of, name="by_side").count(name="side").write(sk.topic(f"{SIDE}-counts", int))


def key_of(event: Event) -> str:
    return event.key


def bucket_of(out: Out) -> str:
    return bucket(out.key)


def bucket(key: str) -> str:
    """The second key of a record: two or three keys share one."""
    return f"bucket-{int(key[1:]) % 3}"


def _count(making: Making) -> None:
    making.events().key_by(key_of).count(name="counts").write(making.out)


def _latest(making: Making) -> None:
    def check_late(event: Event) -> Event:
        fail_late(event, making.flakes)
        return event

    keyed = making.events().key_by(key_of).map(check_late)
    keyed.count(name="counts", updates="latest").write(making.out)


def _process(making: Making) -> None:
    making.events().key_by(key_of).process(Tally(making.flakes), name="tally").write(making.out)


def _two_shuffles(making: Making) -> None:
    tallied = making.events().key_by(key_of).process(Tally(making.flakes), name="tally")
    tallied.key_by(bucket_of).process(Retally(), name="retally").write(making.out)


def _stateless(making: Making) -> None:
    making.events().map(plain_out).write(making.out)


def _keyed(making: Making) -> None:
    keyed = making.pipeline.read_keyed(making.topics["left"], name="read_left")
    tallied = keyed.map(check_early).filter(is_wanted).process(Tally(making.flakes), name="tally")
    tallied.write(making.out)


def _timers(making: Making) -> None:
    bucketed = making.events().key_by(key_of).process(Bucketed(making.flakes), name="bucketed")
    bucketed.key_by(lambda out: str(out.seq), key_type=str, name="by_bucket").process(Summed()).write(
        making.out
    )


def _windows(making: Making) -> None:
    sessions = making.events().key_by(key_of).window(session(milliseconds(GAP_MS)))
    found = sessions.count(into=session_out, name="sessions")
    found.key_by(lambda out: out.source, key_type=str, name="by_kind").window(
        tumbling(milliseconds(BUCKET_MS))
    ).sum(lambda out: out.n, into=bucket_out, name="buckets").write(making.out)


def _sleepers(making: Making) -> None:
    making.events().key_by(key_of).process(Watchful(), name="watchful").write(making.out)


def session_out(key: str, window: Window, n: int) -> Out:
    return Out("session", key, window.end, n)


def bucket_out(key: str, window: Window, n: int) -> Out:
    return Out("sum", key, window.end, n)


# Shapes that live by event time; seeds from `Family.TIMED` on draw from these.
TIMED_SHAPES = (
    Shape("timers", _timers, fails_late=True, is_timed=True),
    Shape("timers_of_two", _timers, sources=("left", "right"), is_timed=True),
    Shape("windows", _windows, is_timed=True),
)

# Sources that fall asleep and wake up again, time after time; seeds from `Family.SLEEPY` on.
SLEEPY_SHAPES = (
    Shape("sleepers", _sleepers, is_timed=True, idle_ms=100),
    Shape("sleepers_of_two", _sleepers, sources=("left", "right"), is_timed=True, idle_ms=100),
)

SHAPES = (
    Shape("count", _count, out=int),
    Shape("latest", _latest, out=int, fails_late=True),
    Shape("process", _process, fails_late=True, spoils=True),
    Shape("two_shuffles", _two_shuffles, fails_late=True, spoils=True, has_buckets=True),
    Shape("union", _process, sources=("left", "right"), fails_late=True, spoils=True),
    Shape("stateless", _stateless),
    Shape("keyed", _keyed, fails_late=True, spoils=True),
)
