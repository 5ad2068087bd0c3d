"""Operators for full control: a class with its own state, called once per record.

    class Dedup(Operator[str, Click, Click]):
        seen = value(bool, False)

        def on_record(self, value: Click, ctx: Context[str, Click]) -> None:
            if not self.seen.get():
                self.seen.set(True)
                ctx.emit(value)

An operator that has `on_timer` may set timers for its keys, in event time or in processing time:

        def on_record(self, value: Click, ctx: Context[str, Click]) -> None:
            ctx.set_timer(value.at + 60_000)

        def on_timer(self, timer: Timer, ctx: Context[str, Click]) -> None:
            ctx.emit(...)

State belongs to the key of the record or timer. Agents (`operators/agent.py`) run on the same step.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from streamkit.codec.annotations import class_arguments, is_open
from streamkit.operators.misuse import as_time, no_timers, returned
from streamkit.operators.side import Side, declared_sides, listener, listeners
from streamkit.operators.stateless import GIVE_KEYS, DecodedKeys, missing_key
from streamkit.operators.step import MAIN, Origin, Ports, Push, Scope, Timers
from streamkit.state.holder import StateHolder, hold
from streamkit.state.spec import StoreSpec
from streamkit.state.views import CurrentKey, Declaration

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")

# What a record is handed to: (value, context). Its state is bound already.
# Both return None, and are asked, for a result that is returned would be lost.
Handler = Callable[[Any, "Context[Any, Any]"], object]
OnTimer = Callable[["Timer", "Context[Any, Any]"], object]
# Which time a timer goes by.
ClockName = Literal["event", "processing"]


class Handlers(NamedTuple):
    """What one task does with its records and its timers."""

    on_record: Handler
    on_timer: OnTimer


class Timer(NamedTuple):
    """A timer of the current key that came due: its time in ms, and the clock it went by."""

    time: int
    clock: ClockName = "event"


class Context(Generic[K, R]):
    """What an operator knows about the record in its hands, and how it answers. One per task, used for every record.

    Valid during `on_record` and `on_timer`; in `open` only `partition` is. In `on_timer` the timestamp is the timer's.
    `partition` is that of the task, and of every record it is given: partition i of each input belongs to task i.

    `headers`, `topic` and `offset` are there for a record of a topic that the pipeline reads. After a `key_by` the
    headers are those that `pipeline(carry_headers=...)` names, and topic and offset are None. A timer has none of
    them, and neither has what `reduce`, `aggregate` (hence `count` and its kin) or a window has made of many records.
    """

    __slots__ = ("_current", "_following", "_keys", "_origin", "_sides", "_timers", "partition", "timestamp")

    def __init__(
        self,
        partition: int,
        current: CurrentKey,
        keys: DecodedKeys,
        following: Push,
        sides: Mapping[Side[Any], Push],
        origin: Origin,
    ) -> None:
        self.partition = partition
        self.timestamp = 0
        self._current = current
        self._keys = keys
        self._following = following
        self._sides = sides
        self._origin = origin
        self._timers: Mapping[ClockName, Timers] = {}

    @property
    def watermark(self) -> int:
        """How far event time has come here, in ms: no record that is as old or older is still waited for."""
        return self._timers_of("event").now

    @property
    def now(self) -> int:
        """Processing time, in ms: what `set_timer(..., clock="processing")` goes by.

        It moves while your code runs: read it once where a timer is to be cancelled by the same time later.
        """
        return self._timers_of("processing").now

    def set_timer(self, at: int, *, clock: ClockName = "event") -> None:
        """Call `on_timer` for this key when this time (ms) has come; setting the same timer twice sets one.

        `at` is a time, not a duration: in five seconds is `ctx.set_timer(ctx.timestamp + 5_000)`, or `ctx.now + 5_000`
        with clock="processing". In event time it comes when the watermark has reached it. A timer that is in the past
        (5_000 is five seconds after 1970 began) fires at the next opportunity.
        """
        if type(at) is not int:
            at = as_time(at, clock)
        self._timers_of(clock).add(self._current.key, at)

    def cancel_timer(self, at: int, *, clock: ClockName = "event") -> None:
        """Forget the timer of this key for this time, if there is one."""
        if type(at) is not int:
            at = as_time(at, clock)
        self._timers_of(clock).remove(self._current.key, at)

    def _timers_of(self, clock: ClockName) -> Timers:
        timers = self._timers.get(clock)
        if timers is None:
            raise no_timers(clock)
        return timers

    @property
    def key(self) -> K:
        """The key of the record.

        Raises:
            UserCodeError: the record has none.
        """
        key: K = self._keys[self._current.key]
        return key

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The headers of the record, in order: `dict(ctx.headers).get("traceparent")` is the last of one name."""
        return self._origin.headers

    @property
    def topic(self) -> str | None:
        """The topic that the record was read from; None behind a `key_by`."""
        return self._origin.topic

    @property
    def offset(self) -> int | None:
        """The place of the record in its partition of that topic; None behind a `key_by`."""
        return self._origin.offset

    def emit(self, value: R, timestamp: int | None = None) -> None:
        """Send a value downstream, under the key of the record and, unless another is given, its timestamp (ms)."""
        self._following(self._current.key, value, self.timestamp if timestamp is None else timestamp)

    def emit_to(self, side: Side[S], value: S, timestamp: int | None = None) -> None:
        """Send a value out by a side output that the operator has in `sides`; key and timestamp as in `emit`.

        If no stream begins there, it goes nowhere.
        """
        push = listener(self._sides, side, value)
        push(self._current.key, value, self.timestamp if timestamp is None else timestamp)


class Operator(StateHolder, ABC, Generic[K, T, R]):
    """A step that users write as a class: keys `K`, values `T` in, values `R` out.

    State is declared as class attributes (`value(...)`, `map_of(...)`, `list_of(...)`) and belongs to the current key. Every task works
    on a shallow copy of the operator that was given to `process()`; other attributes are for what never changes, since
    nothing but declared state survives a restart.
    """

    # The side outputs that it sends to with `ctx.emit_to`.
    sides: tuple[Side[Any], ...] = ()

    def open(self, ctx: Context[K, R]) -> None:
        """Called once per task before the first record, and again when a task starts over."""

    @abstractmethod
    def on_record(self, value: T, ctx: Context[K, R]) -> None:
        """Handle one record: read and write the state of its key, emit any number of results."""

    def on_timer(self, timer: Timer, ctx: Context[K, R]) -> None:
        """Handle a timer of the current key; an operator that sets timers must have this."""


class Processor(Protocol):
    """What a ProcessStep runs: an operator class or an agent, seen from the engine's side."""

    def declarations(self) -> Mapping[str, Declaration]:
        """The state it declares, by name."""
        ...

    @property
    def has_timers(self) -> bool:
        """Whether it may set timers."""
        ...

    @property
    def sides(self) -> tuple[Side[Any], ...]:
        """Its side outputs."""
        ...

    @property
    def keyless(self) -> str:
        """What to do about a record without a key, for whoever wrote it."""
        ...

    def start(self, views: Mapping[str, Any], ctx: Context[Any, Any]) -> Handlers:
        """Handlers of its own for one task, working on these views."""
        ...


class OperatorProcessor(msgspec.Struct, frozen=True):
    """An operator instance as a Processor."""

    operator: Operator[Any, Any, Any]

    def declarations(self) -> Mapping[str, Declaration]:
        """Class attributes, inherited ones first, in the order of writing."""
        found: dict[str, Declaration] = {}
        for cls in reversed(type(self.operator).__mro__):
            found |= {name: each for name, each in vars(cls).items() if isinstance(each, Declaration)}
        return found

    @property
    def has_timers(self) -> bool:
        """As `Processor.has_timers`."""
        return type(self.operator).on_timer is not Operator.on_timer

    @property
    def sides(self) -> tuple[Side[Any], ...]:
        """As `Processor.sides`."""
        return declared_sides(self.operator, taken=(MAIN,))

    @property
    def keyless(self) -> str:
        """As `Processor.keyless`."""
        return GIVE_KEYS

    def start(self, views: Mapping[str, Any], ctx: Context[Any, Any]) -> Handlers:
        """As `Processor.start`."""
        own = copy.copy(self.operator)
        for name, view in views.items():
            hold(own, name, view)
        own.open(ctx)
        return Handlers(own.on_record, own.on_timer)


def operator_processor(operator: Operator[Any, Any, Any]) -> OperatorProcessor:
    """Check what an operator declares.

    Raises:
        InvalidPipeline: its side outputs are none, or share a name.
    """
    declared_sides(operator, taken=(MAIN,))
    return OperatorProcessor(operator)


class ProcessStep(msgspec.Struct, frozen=True):
    """Hand every record to an operator or an agent, whose state is kept under `<step>.<attribute>`."""

    kind: ClassVar[str] = "process"
    inputs: ClassVar[tuple[str, ...]] = (MAIN,)
    fails_clean: ClassVar[bool] = False

    name: str
    processor: Processor
    key_type: Any = str
    has_effects: bool = True
    makes_of_many: ClassVar[bool] = False

    @property
    def sides(self) -> tuple[Side[Any], ...]:
        """The side outputs that its operator declares."""
        return self.processor.sides

    @property
    def outputs(self) -> tuple[str, ...]:
        """As `Step.outputs`."""
        return (MAIN, *(each.name for each in self.sides))

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """One store per declaration, and two for timers."""
        return (*self._specs().values(), *self._timer_specs().values())

    def bind(self, outputs: Ports, scope: Scope) -> Ports:
        """As `Step.bind`."""
        current = CurrentKey()
        declared = self.processor.declarations()
        views = {
            name: declared[name]._bind(scope.cells(spec), current)  # noqa: SLF001 - for the runtime alone
            for name, spec in self._specs().items()
        }
        keys, sides = DecodedKeys(self.key_type, self.name), listeners(self.sides, outputs)
        ctx: Context[Any, Any] = Context(scope.partition, current, keys, outputs[MAIN], sides, scope.origin)
        handle, on_timer = self.processor.start(views, ctx)
        timers = self._bind_timers(scope, current, ctx, on_timer)
        ctx._timers = timers  # noqa: SLF001 - the context belongs to this step
        # Without state a record needs no key, unless the user asks for it.
        is_keyed = bool(views) or bool(timers)
        keyless = self.processor.keyless

        def push(key: Any, value: Any, timestamp: int, step: str = self.name) -> None:
            if key is None and is_keyed:
                raise missing_key(step, keyless)
            current.key = key
            ctx.timestamp = timestamp
            if handle(value, ctx) is not None:
                raise returned(step)

        return {MAIN: push}

    def _bind_timers(
        self, scope: Scope, current: CurrentKey, ctx: Context[Any, Any], on_timer: OnTimer
    ) -> dict[ClockName, Timers]:
        def bind(clock: ClockName, spec: StoreSpec) -> Timers:
            def fire(key: bytes, time: int, namespace: bytes, step: str = self.name) -> None:  # noqa: ARG001
                current.key = key
                ctx.timestamp = time
                if on_timer(Timer(time, clock), ctx) is not None:
                    raise returned(step)

            return scope.timers(spec, fire)

        return {clock: bind(clock, spec) for clock, spec in self._timer_specs().items()}

    def _timer_specs(self) -> dict[ClockName, StoreSpec]:
        if not self.processor.has_timers:
            return {}
        return {
            "event": StoreSpec(f"{self.name}.event_timers", "event_timers", bool),
            "processing": StoreSpec(f"{self.name}.processing_timers", "processing_timers", bool),
        }

    def _specs(self) -> dict[str, StoreSpec]:
        return {
            name: each._spec(self.name, name)  # noqa: SLF001 - for the runtime alone
            for name, each in self.processor.declarations().items()
        }


def emitted_type(operator: Operator[Any, Any, Any]) -> Any:
    """The type of what an operator emits, as its class says: the R of `Operator[K, T, R]`; None if it does not say."""
    arguments = class_arguments(type(operator), Operator)
    return None if not arguments or is_open(arguments[2]) or arguments[2] is Any else arguments[2]
