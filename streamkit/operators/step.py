"""Step: one operator of a stage, and how it is bound into a chain of plain calls.

A chain is built from its end: every step is bound to the `Push` of what follows and returns its own. Inside a
stage a record is three arguments, never an object: the key as bytes, the value, the timestamp in milliseconds.

Records enter and leave a step by ports, which have names. Nearly every step has one of each, the port `MAIN`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from streamkit.state.spec import StoreSpec

# (key bytes or None, value, timestamp in ms); synchronous, returns nothing, may call the next step any number of times.
Push = Callable[[bytes | None, Any, int], None]
# By the name of a port: what takes the records that go through it.
Ports = Mapping[str, Push]
# The input of a step that has no other, and the output for its results.
MAIN = "main"
# (key bytes, time in ms, namespace): what happens when a timer comes due. Must be named `fire` and have a last
# parameter `step=<name of the step>`, for the same reason as `push`.
Fire = Callable[[bytes, int, bytes], None]


class Statements(msgspec.Struct, frozen=True):
    """What one step does with a record, as statements about `key`, `value` and `timestamp`.

    Results are assigned to `value`. What follows comes behind the last line, or inside it if that ends with a colon.
    `names` are the objects which the lines mention; every other name is a variable that is set before it is read.
    """

    step: str
    lines: tuple[str, ...]
    names: Mapping[str, Any]
    # Nothing follows: the record leaves the stage here.
    is_end: bool = False


class Held(Protocol):
    """Results that a step keeps back until the span ends."""

    @property
    def step(self) -> str:
        """The name of that step."""
        ...

    def take(self) -> Iterable[tuple[bytes | None, Any, int]]:
        """All of them, (key, value, timestamp) each; none is left."""
        ...

    def settle(self) -> None:
        """What was kept up to here stays; from now on `undo` can take back what comes."""
        ...

    def undo(self) -> None:
        """Forget what was kept since the last `settle`."""
        ...


class Timers(Protocol):
    """The timers of one step, in event time or in processing time; kept and committed like any state."""

    @property
    def now(self) -> int:
        """Event time: the watermark that this step has reached. Processing time: the wall clock. In ms."""
        ...

    def add(self, key: bytes, time: int, namespace: bytes = b"") -> None:
        """Call `fire(key, time, namespace)` once `now` has reached `time`; the same timer twice is one."""
        ...

    def remove(self, key: bytes, time: int, namespace: bytes = b"") -> None:
        """Forget this timer, if there is one."""
        ...


class Origin(Protocol):
    """What is known of the record in hand beside its key, value and time. Of a timer, or of many records, nothing is."""

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """Its headers, in order; behind a shuffle those that were carried."""
        ...

    @property
    def topic(self) -> str | None:
        """The topic that it was read from; None behind a shuffle, where a record may have no place in any topic."""
        ...

    @property
    def offset(self) -> int | None:
        """Its place in its partition of that topic."""
        ...


class NoOrigin:
    """What is known of a result that was made of many records; keeps the promises of `Origin`."""

    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str | None = None
    offset: int | None = None


class Scope(Protocol):
    """What a step is given by whoever runs it: the runtime, or a test. One scope per task."""

    @property
    def partition(self) -> int:
        """The partition of the task."""
        ...

    @property
    def origin(self) -> Origin:
        """Where the record came from that the step is called with."""
        ...

    def cells(self, spec: StoreSpec) -> Any:
        """The cells of a store that this step declared, of the class that its kind has in `state/kinds.py`."""
        ...

    def timers(self, spec: StoreSpec, fire: Fire) -> Timers:
        """The timers that this step declared, in the time that the kind of their store says.

        They fire in the order of their time; when time passes, the timers of steps upstream come first.
        """
        ...

    def count(self, what: str, number: int = 1) -> None:
        """Count something under this name, for the metrics."""
        ...

    def output(self, topic: str) -> Statements:
        """The statements that put a record into the span's batch of the right partition of an output topic.

        They are about `out_key`, `data` (bytes, or None) and `timestamp`, and become part of the step that writes. One
        that has `headers` for its records leaves that name out of theirs, and sets it.
        """
        ...

    def at_span_end(self, held: Held, following: Push) -> None:
        """When the span is about to be committed, push what `held` has into `following`, record by record.

        Those registered last come first: steps are bound from the end of the chain.
        """
        ...


class Step(Protocol):
    """One operator of the graph: frozen data plus `bind`.

    The functions that `bind` returns take a last parameter `step=<name of the step>`: this puts the name into the
    frame, so that after an exception the failing step is read off the traceback and costs nothing while all is well.
    """

    @property
    def kind(self) -> str:
        """The word with which the user wrote it: map, key_by, write..."""
        ...

    @property
    def inputs(self) -> tuple[str, ...]:
        """The ports by which records may enter."""
        ...

    @property
    def outputs(self) -> tuple[str, ...]:
        """The ports by which records may leave; none where the stream ends."""
        ...

    @property
    def name(self) -> str:
        """Unique within the pipeline."""
        ...

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """The state this step needs; empty for a stateless one."""
        ...

    @property
    def has_effects(self) -> bool:
        """True if a call may change state, write output or push more than once before something after it raises.

        A record that fails with no such step above the failing one can be set aside on the spot.
        """
        ...

    @property
    def fails_clean(self) -> bool:
        """True if a record that raises in the step itself has left nothing of it behind: no state, output or push."""
        ...

    @property
    def makes_of_many(self) -> bool:
        """True if a result is made of more than the record in hand: it has no headers and no place of its own."""
        ...

    def bind(self, outputs: Ports, scope: Scope) -> Ports:
        """A function for each of its inputs, which handles one record and calls what stands behind its outputs.

        `MAIN` is always among the `outputs`; any other only if somebody listens to it.
        """
        ...
