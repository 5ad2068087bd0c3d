"""Views: state as a user sees it, always that of the record's key. What all of them have in common, and the view of one value.

They are declared as attributes of an operator class, and bound to the cells of a task when the task starts:

    class Visits:
        count = value(int, 0)
        seen = map_of(str, float)
        latest = list_of(str)

None means absent in values and maps. A list, dict or struct that was changed in place must be set again. Maps and lists
are in `state/collection_views.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, NoReturn, TypeVar, overload

import msgspec

from streamkit.errors import Bug, InvalidPipeline, Misconfigured
from streamkit.state.spec import StoreSpec
from streamkit.state.value_cells import ValueCells
from streamkit.state.values import ValueFormat

V = TypeVar("V")

Upcasters = Mapping[int, Callable[[Any], Any]]

# A default of one of these types is shared; any other is copied for each reader, who may change it.
_UNCHANGEABLE = (type(None), bool, int, float, str, bytes)


class CurrentKey:
    """The key of the record in hand: set by the operator before user code runs, read by its views."""

    __slots__ = ("key",)

    def __init__(self, key: bytes | None = None) -> None:
        if key is not None:
            self.key = key

    def __getattr__(self, name: str) -> NoReturn:
        """Reached only while there is no key, so that a view needs no check of its own."""
        raise Misconfigured(
            "state was used where there is no record in hand",
            detail=f"what a class declares has no {name} and no store until the runtime binds it and a record comes",
            hint="use it through `self` inside the operator's methods; in tests, run the pipeline in the test harness",
        )


class Declaration:
    """A piece of state as a user declares it: what `ValueState`, `MapState` and `ListState` have in common."""

    __slots__ = ("_current", "_draft")

    def __init__(self, draft: StoreSpec) -> None:
        # Without a name if the user gave none.
        self._draft = draft
        self._current = CurrentKey()

    def _spec(self, owner_step_name: str, attribute_name: str) -> StoreSpec:
        """The store of this state, named by the user or else for the step and the attribute that hold it.

        Raises:
            InvalidPipeline: a type that cannot be stored.
        """
        name = self._draft.name or f"{owner_step_name}.{attribute_name}"
        spec = msgspec.structs.replace(self._draft, name=name)
        ValueFormat(spec)  # for its checks, at the place that the user can correct
        return spec

    def _bind(self, cells: Any, current: CurrentKey) -> Any:
        """This state in one task: that of whatever key `current` holds when it is used."""
        raise Bug(f"a {type(self).__name__} is no state", detail=f"cells {cells!r}, key {current!r}")


class ValueState(Declaration, Generic[V]):
    """One value for the key of the record in hand.

    As declared it belongs to no task, and every use of it raises Misconfigured.
    """

    __slots__ = ("_cache", "_default", "_dirty", "_load")

    _cache: dict[bytes, Any]
    _dirty: dict[bytes, None]
    _load: Callable[[bytes], Any]

    def __init__(self, draft: StoreSpec, default: Callable[[], V]) -> None:
        super().__init__(draft)
        self._default = default

    def _bind(self, cells: ValueCells, current: CurrentKey) -> "ValueState[V]":
        """This state in one task: the value of whatever key `current` holds when it is used."""
        bound = ValueState(self._draft, self._default)
        bound._current = current
        bound._cache = cells.cache
        bound._dirty = cells.dirty
        bound._load = cells.load
        return bound

    def get(self) -> V:
        """The value, or the default if there is none."""
        key = self._current.key
        found: V | None = self._cache.get(key)
        if found is None:
            found = self._load(key)
            if found is None:
                return self._default()
        return found

    def set(self, new: V) -> None:
        """Replace the value; None clears it."""
        key = self._current.key
        self._cache[key] = new
        self._dirty[key] = None

    def update(self, change: Callable[[V], V]) -> V:
        """Replace the value by what `change` makes of it, and return that."""
        new = change(self.get())
        self.set(new)
        return new

    def clear(self) -> None:
        """Leave the key without a value."""
        key = self._current.key
        self._cache[key] = None
        self._dirty[key] = None


@overload
def value(
    value_type: type[V],
    default: V,
    *,
    name: str | None = None,
    version: int = 1,
    upcasters: Upcasters | None = None,
) -> ValueState[V]: ...
@overload
def value(
    value_type: type[V],
    default: None = None,
    *,
    name: str | None = None,
    version: int = 1,
    upcasters: Upcasters | None = None,
) -> ValueState[V | None]: ...
@overload
def value(
    value_type: type[V],
    default: V | None = None,
    *,
    name: str | None = None,
    version: int = 1,
    upcasters: Upcasters | None = None,
) -> ValueState[V] | ValueState[V | None]: ...
def value(
    value_type: type[V],
    default: V | None = None,
    *,
    name: str | None = None,
    version: int = 1,
    upcasters: Upcasters | None = None,
) -> ValueState[V] | ValueState[V | None]:
    """Declare one value per key.

    A default that can be changed in place, like a list, is copied for each reader. `name` keeps the state when the
    step or the attribute is renamed; `version` and `upcasters` read what older versions of the type have written.

    Raises:
        InvalidPipeline: the default is not of the declared type, or the type cannot be stored.
    """
    draft = StoreSpec(name or "", "value", value_type, version=version, upcasters=upcasters or {})
    return ValueState(draft, _default_maker(draft, default))


def _default_maker(draft: StoreSpec, default: Any) -> Callable[[], Any]:
    """A function that gives the default to one reader: itself if it cannot change, else a copy."""
    if default is None:
        return lambda: None
    stored = ValueFormat(draft)
    data = stored.encode(default)
    try:
        copy = stored.decode(data)
    except Misconfigured as error:
        raise InvalidPipeline(
            f"the default {default!r} is not of the declared type",
            detail=error.detail,
            hint="give a default of the type, or none",
        ) from error
    if isinstance(default, _UNCHANGEABLE):
        return lambda: copy
    return lambda: stored.decode(data)
