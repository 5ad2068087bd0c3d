"""What a window step is told by the user, checked, and which stores that needs. Plain data; nothing runs here."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar, Literal

import msgspec

from streamkit.errors import InvalidPipeline
from streamkit.model.duration import to_ms
from streamkit.operators.aggregators import Aggregator
from streamkit.operators.side import Side
from streamkit.operators.step import MAIN
from streamkit.state.spec import StoreSpec
from streamkit.windows.assigners import Assigner, Counting, Everything, Session, Sliding
from streamkit.windows.contents import elements_type
from streamkit.windows.evictors import CountEvictor, Evictor
from streamkit.windows.late import LATE
from streamkit.windows.process import WindowProcess, declarations, sides_of
from streamkit.windows.triggers import (
    CountTrigger,
    EventTimeTrigger,
    EveryRecordTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)

# "close": as the trigger says, by default when the window closes. "update": every record sends the new result on.
Emit = Literal["close", "update"]


class Windowing(msgspec.Struct, frozen=True):
    """How records are put together: what `window(...)` says, with its defaults filled in."""

    assigner: Assigner
    trigger: Trigger[Any]
    evictor: Evictor[Any] | None = None
    lateness: int = 0
    # Whether the trigger is the default one of the assigner.
    is_default: bool = True

    @property
    def is_event_time(self) -> bool:
        """Whether windows end by the time of the records."""
        return self.assigner.time == "event"

    @property
    def has_end(self) -> bool:
        """Whether windows have an end, at which they are cleaned up."""
        return not isinstance(self.assigner, Everything | Counting)


class WindowDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A window step as data: how records are put together, and what is made of them.

    Without a `fold` all elements are kept, for the process. The results of a fold go on as they are, or as what
    `into(key, window, result)` or the process makes of them. Records that are late for all their windows leave by a
    port of their own.
    """

    kind: ClassVar[str] = "window"
    inputs: ClassVar[tuple[str, ...]] = (MAIN,)
    fails_clean: ClassVar[bool] = False

    name: str
    windows: Windowing
    fold: Aggregator[Any, Any, Any] | None = None
    into: Callable[[Any, Any, Any], Any] | None = None
    process: WindowProcess[Any, Any, Any] | None = None
    key_type: Any = str
    value_type: Any = None
    has_effects: bool = True
    makes_of_many: ClassVar[bool] = True

    @property
    def sides(self) -> tuple[Side[Any], ...]:
        """The side outputs that its process declares."""
        return () if self.process is None else sides_of(self.process)

    @property
    def outputs(self) -> tuple[str, ...]:
        """As `Step.outputs`."""
        return (MAIN, LATE, *(each.name for each in self.sides))

    @property
    def definition(self) -> str:
        """What the stored state depends on, in words; for the fingerprint."""
        return self.windows.assigner.definition

    @property
    def keeps_elements(self) -> bool:
        """Whether the elements of a window are kept, and not an accumulator."""
        is_sliding = isinstance(self.windows.assigner, Sliding)
        return is_sliding or self.fold is None or self.windows.evictor is not None

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """The contents of the windows, and whatever else is needed to know when they end."""
        optional = (self.trigger_store, self.sessions_store, self.event_timers, self.processing_timers)
        declared = tuple(self.declared_stores.values())
        return (self.contents_store, *(each for each in optional if each is not None), *declared)

    @property
    def contents_store(self) -> StoreSpec:
        """What is in each window; for sliding windows the elements of each key."""
        kept = elements_type(self.value_type) if self.fold is None or self.keeps_elements else None
        kind: Literal["value", "window"] = "value" if isinstance(self.windows.assigner, Sliding) else "window"
        if kept is None:
            assert self.fold is not None
            kept = self.fold.accumulator_type
        return StoreSpec(self.name, kind, kept)

    @property
    def trigger_store(self) -> StoreSpec | None:
        """What the trigger remembers of each window."""
        remembered = self.windows.trigger.stored_type(self.value_type)
        return None if remembered is None else StoreSpec(f"{self.name}.trigger", "window", remembered)

    @property
    def sessions_store(self) -> StoreSpec | None:
        """The sessions of each key, which are open: start and end, and those of the window that holds the contents."""
        if not isinstance(self.windows.assigner, Session):
            return None
        return StoreSpec(f"{self.name}.sessions", "value", list[tuple[int, int, int, int]])

    @property
    def event_timers(self) -> StoreSpec | None:
        """Timers by the time of the records."""
        ends = self.windows.has_end and self.windows.is_event_time
        if not (ends or self.windows.trigger.uses_event_time or self.process is not None):
            return None
        return StoreSpec(f"{self.name}.event_timers", "event_timers", bool)

    @property
    def processing_timers(self) -> StoreSpec | None:
        """Timers by the clock on the wall."""
        ends = self.windows.has_end and not self.windows.is_event_time
        if not (ends or self.windows.trigger.uses_processing_time or self.process is not None):
            return None
        return StoreSpec(f"{self.name}.processing_timers", "processing_timers", bool)

    @property
    def declared_stores(self) -> dict[str, StoreSpec]:
        """What the process declares, by attribute."""
        if self.process is None:
            return {}
        return {
            name: each._spec(self.name, name)  # noqa: SLF001 - for the runtime alone
            for name, each in declarations(self.process).items()
        }


def windowing(
    assigner: Assigner,
    *,
    lateness: timedelta | None = None,
    trigger: Trigger[Any] | None = None,
    evictor: Evictor[Any] | None = None,
    sends_late: bool = False,
) -> Windowing:
    """What a user says about windows, if it makes sense.

    Raises:
        InvalidPipeline: it does not.
    """
    if not isinstance(assigner, Assigner):
        raise InvalidPipeline(
            f"window() takes windows, got {assigner!r}",
            hint="write for example window(sk.tumbling(sk.minutes(1)))",
        )
    lateness_ms = 0 if lateness is None else to_ms(lateness, of="the lateness of a window")
    _require_lateness(assigner, lateness_ms, has_lateness=lateness is not None or sends_late)
    _require_trigger(assigner, trigger)
    _require_evictor(assigner, evictor)
    if isinstance(assigner, Counting) and assigner.slide is not None:
        evictor = CountEvictor(assigner.size)
    return Windowing(assigner, trigger or _default_trigger(assigner), evictor, lateness_ms, trigger is None)


def emitting(windows: Windowing, emit: Any) -> Windowing:
    """The same windows with results sent on as `emit` says.

    Raises:
        InvalidPipeline: it is neither "close" nor "update", or a trigger has said otherwise.
    """
    if emit not in ("close", "update"):
        raise InvalidPipeline(
            f'emit is "close" or "update", got {emit!r}',
            hint='"close" sends results on when a window closes, "update" the new one after every record',
        )
    if emit == "close":
        return windows
    if not windows.is_default or isinstance(windows.assigner, Counting):
        raise InvalidPipeline(
            'emit="update" and a trigger both say when results are sent on',
            hint="leave out one of them; a counting window has its own trigger",
        )
    return msgspec.structs.replace(windows, trigger=EveryRecordTrigger())


def _default_trigger(assigner: Assigner) -> Trigger[Any]:
    if isinstance(assigner, Counting):
        if assigner.slide is not None:
            return CountTrigger(assigner.slide)
        return PurgingTrigger(CountTrigger(assigner.size))
    return EventTimeTrigger() if assigner.time == "event" else ProcessingTimeTrigger()


def _require_lateness(assigner: Assigner, lateness_ms: int, *, has_lateness: bool) -> None:
    if lateness_ms < 0:
        raise InvalidPipeline(
            "the lateness of a window is below zero",
            hint="lateness=minutes(1) keeps windows open for one more minute of event time",
        )
    if has_lateness and (assigner.time == "processing" or isinstance(assigner, Everything | Counting)):
        raise InvalidPipeline(
            f"nothing is ever late for {assigner.definition}",
            hint="leave out lateness= and late=; they belong to windows that end by event time",
        )


def _require_trigger(assigner: Assigner, trigger: Trigger[Any] | None) -> None:
    if trigger is None:
        return
    if not isinstance(trigger, Trigger):
        raise InvalidPipeline(
            f"trigger is a Trigger, got {trigger!r}", hint="write for example trigger=CountTrigger(100)"
        )
    if isinstance(assigner, Counting | Sliding):
        raise InvalidPipeline(
            f"{assigner.definition} cannot have another trigger",
            hint='sk.everything() and sk.tumbling() take any trigger; sliding windows also know emit="update"',
        )
    if isinstance(assigner, Session) and not trigger.can_merge:
        raise InvalidPipeline(
            f'trigger "{type(trigger).__name__}" does not say what happens when two windows become one, and sessions grow together',
            hint="define on_merge(self, window, ctx) in it",
        )


def _require_evictor(assigner: Assigner, evictor: Evictor[Any] | None) -> None:
    if evictor is None:
        return
    if not isinstance(evictor, Evictor):
        raise InvalidPipeline(
            f"evictor is an Evictor, got {evictor!r}", hint="write for example evictor=CountEvictor(10)"
        )
    if isinstance(assigner, Counting | Sliding):
        raise InvalidPipeline(
            f"{assigner.definition} cannot have an evictor", hint="sk.everything() and sk.tumbling() can"
        )
