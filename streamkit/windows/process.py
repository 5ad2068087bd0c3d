"""WindowProcess: a class of the user's that sees a whole window, with state per key and per window.

class Ranking(WindowProcess[str, Sale, str]):
    best = value(int, 0)                    # of the key
    fired = window_value(int, 0)            # of the window; gone when it closes

    def process(self, key: str, window: Window, elements: list[Sale], ctx: WindowContext[str]) -> None:
        self.fired.set(self.fired.get() + 1)
        ctx.emit(max(elements, key=lambda sale: sale.amount).item)
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, overload

from streamkit.codec.annotations import class_arguments, is_open
from streamkit.codec.naming import given_as
from streamkit.errors import Bug, InvalidPipeline
from streamkit.operators.side import Side, declared_sides, listener
from streamkit.operators.step import MAIN, Push, Timers
from streamkit.state.holder import StateHolder
from streamkit.state.spec import StoreSpec
from streamkit.state.value_cells import ValueCells
from streamkit.state.views import CurrentKey, Declaration, Upcasters, ValueState, value
from streamkit.windows.assigners import Assigner, Session, Sliding
from streamkit.windows.late import LATE
from streamkit.windows.window import EVERYTHING, Window

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")
V = TypeVar("V")


class WindowContext(Generic[R]):
    """What a WindowProcess knows about the firing in its hands, and how it answers. One per task."""

    __slots__ = ("_event", "_following", "_key", "_processing", "_sides", "partition", "timestamp", "window")

    def __init__(self, partition: int, following: Push, sides: Mapping[Side[Any], Push]) -> None:
        self.partition = partition
        # With which the results go on, in ms.
        self.timestamp = 0
        self.window = EVERYTHING
        self._following = following
        self._sides = sides
        self._key = b""
        self._event: Timers | None = None
        self._processing: Timers | None = None

    def set_clocks(self, event: Timers | None, processing: Timers | None) -> None:
        """For the engine: where time is read."""
        self._event = event
        self._processing = processing

    def enter(self, key: bytes, window: Window, timestamp: int) -> None:
        """For the engine: this window is in hand now."""
        self._key = key
        self.window = window
        self.timestamp = timestamp

    @property
    def watermark(self) -> int:
        """Event time has come this far, in ms."""
        return _clock(self._event).now

    @property
    def now(self) -> int:
        """The clock on the wall, in ms."""
        return _clock(self._processing).now

    def emit(self, value: R, timestamp: int | None = None) -> None:
        """Send a value on, under the key of the window and, unless another is given, the timestamp of its results."""
        self._following(self._key, value, self.timestamp if timestamp is None else timestamp)

    def emit_to(self, side: Side[S], value: S, timestamp: int | None = None) -> None:
        """Send a value out by a side output that the process has in `sides`; key and timestamp as in `emit`.

        If no stream begins there, it goes nowhere.
        """
        listener(self._sides, side, value)(
            self._key, value, self.timestamp if timestamp is None else timestamp
        )


class WindowProcess(StateHolder, ABC, Generic[K, T, R]):
    """What `Windowed.process` takes: keys `K`, elements `T`, results `R`.

    State is declared as class attributes: `value(...)`, `map_of(...)` and `list_of(...)` belong to the key,
    `window_value(...)` to the key and the window. Every task works on a shallow copy; nothing but declared state survives a restart.
    """

    # The side outputs that it sends to with `ctx.emit_to`.
    sides: tuple[Side[Any], ...] = ()

    @abstractmethod
    def process(self, key: K, window: Window, elements: list[T], ctx: WindowContext[R]) -> None:
        """The window fires with these elements: emit any number of results.

        After `reduce` or `aggregate` there is one element, their result.
        """

    def clear(self, ctx: WindowContext[R]) -> None:
        """The window `ctx.window` closes for good; its own state is cleared after this call.

        There is no such moment for `everything()`, `counting(...)` and `sliding(...)`.
        """


class CurrentWindow(CurrentKey):
    """The key in hand, and beside it the pair of key and window: set before user code runs, read by its views."""

    __slots__ = ("pair",)

    def __init__(self) -> None:
        super().__init__()
        # Its key is the tuple (key, namespace), as in the cells.
        self.pair: Any = CurrentKey()

    def enter(self, key: bytes, namespace: bytes) -> None:
        """This window of this key is in hand now."""
        self.key = key
        self.pair.key = key, namespace


class WindowValue(ValueState[V]):
    """One value for the key and the window in hand."""

    def _bind(self, cells: ValueCells, current: CurrentKey) -> "ValueState[V]":
        """This state in one task: the value of whatever key and window `current` holds when it is used."""
        if not isinstance(current, CurrentWindow):
            raise InvalidPipeline(
                "window_value() was declared where there is no window",
                hint="declare it in a WindowProcess, or keep it by key: value(...) instead of window_value(...)",
            )
        return super()._bind(cells, current.pair)


@overload
def window_value(
    value_type: type[V],
    default: V,
    *,
    name: str | None = None,
    version: int = 1,
    upcasters: Upcasters | None = None,
) -> ValueState[V]: ...
@overload
def window_value(
    value_type: type[V],
    default: None = None,
    *,
    name: str | None = None,
    version: int = 1,
    upcasters: Upcasters | None = None,
) -> ValueState[V | None]: ...
def window_value(
    value_type: type[V],
    default: V | None = None,
    *,
    name: str | None = None,
    version: int = 1,
    upcasters: Upcasters | None = None,
) -> ValueState[V] | ValueState[V | None]:
    """Declare one value per key and window, in a WindowProcess; it is cleared with the window. As `value` otherwise.

    Raises:
        InvalidPipeline: the default is not of the declared type, or the type cannot be stored.
    """
    like = value(value_type, default, name=name, version=version, upcasters=upcasters)
    draft = StoreSpec(name or "", "window", value_type, version=version, upcasters=upcasters or {})
    return WindowValue(draft, like._default)  # noqa: SLF001 - a sister: the same default, elsewhere


def require_process(process: Any, assigner: Assigner) -> None:
    """Refuse state of a window where windows become one another, and nobody could say whose it is.

    Raises:
        InvalidPipeline: these windows can have no state of their own; or its side outputs are none.
    """
    if not isinstance(process, WindowProcess):
        raise InvalidPipeline(
            f"process() takes a WindowProcess, got {given_as(process)}",
            hint="subclass WindowProcess and pass an instance: process(Ranking())",
        )
    sides_of(process)
    own = [name for name, each in declarations(process).items() if isinstance(each, WindowValue)]
    if own and isinstance(assigner, Session | Sliding):
        raise InvalidPipeline(
            f'"{type(process).__name__}.{own[0]}" belongs to a window, and {assigner.definition} have no state of their own',
            hint="keep it by key: value(...) instead of window_value(...)",
        )


def declarations(process: WindowProcess[Any, Any, Any]) -> dict[str, Declaration]:
    """The state that a WindowProcess declares: class attributes, inherited ones first, in the order of writing."""
    found: dict[str, Declaration] = {}
    for cls in reversed(type(process).__mro__):
        found |= {name: each for name, each in vars(cls).items() if isinstance(each, Declaration)}
    return found


def sides_of(process: WindowProcess[Any, Any, Any]) -> tuple[Side[Any], ...]:
    """The side outputs that a WindowProcess declares."""
    return declared_sides(process, taken=(MAIN, LATE))


def emitted_type(process: WindowProcess[Any, Any, Any]) -> Any:
    """The type of what it emits, as its class says: the R of `WindowProcess[K, T, R]`; None if it does not say."""
    arguments = class_arguments(type(process), WindowProcess)
    return None if not arguments or is_open(arguments[2]) or arguments[2] is Any else arguments[2]


def _clock(timers: Timers | None) -> Timers:
    if timers is None:
        raise Bug("a window process has no clock")
    return timers
