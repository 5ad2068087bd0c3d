"""Views of what has many rows: one map or one list, always that of the record's key. See `state/views.py`."""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar, overload

from streamkit.state.list_cells import ListCells
from streamkit.state.map_cells import MapCells
from streamkit.state.spec import StoreSpec
from streamkit.state.views import CurrentKey, Declaration, Upcasters

V = TypeVar("V")
K = TypeVar("K")
D = TypeVar("D")


class MapState(Declaration, Generic[K, V]):
    """One map for the key of the record in hand; each entry is stored on its own, so a map may be large.

    As declared it belongs to no task, and every use of it raises Misconfigured.
    """

    __slots__ = ("_cells",)

    _cells: MapCells

    def _bind(self, cells: MapCells, current: CurrentKey) -> "MapState[K, V]":
        """This state in one task: the map of whatever key `current` holds when it is used."""
        bound: MapState[K, V] = MapState(self._draft)
        bound._current = current
        bound._cells = cells
        return bound

    @overload
    def get(self, map_key: K) -> V | None: ...
    @overload
    def get(self, map_key: K, default: D) -> V | D: ...
    def get(self, map_key: K, default: Any = None) -> Any:
        """The value of an entry, or `default` if there is none."""
        key = self._current.key
        found = self._cells.get(key, map_key)
        return default if found is None else found

    def put(self, map_key: K, new: V) -> None:
        """Set an entry; None removes it."""
        key = self._current.key
        self._cells.put(key, map_key, new)

    def remove(self, map_key: K) -> None:
        """Leave the map without this entry, whether or not it had one."""
        key = self._current.key
        self._cells.remove(key, map_key)

    def items(
        self, *, start: K | None = None, end: K | None = None, prefix: K | None = None
    ) -> Iterator[tuple[K, V]]:
        """The entries, sorted by map key (text by its UTF-8, integers by size), as they are at this moment.

        With `start` those from this key on, with `end` those before this one, with `prefix` those that begin with it. A
        large map is read as it is walked. The map may change meanwhile, and the walk does not: it shows what was there.
        """
        key = self._current.key
        return self._cells.items(key, self._cells.key_range(start, end, prefix))

    def clear(self) -> None:
        """Remove every entry."""
        key = self._current.key
        self._cells.clear(key)

    def keys(self, *, start: K | None = None, end: K | None = None, prefix: K | None = None) -> Iterator[K]:
        """The map keys, as in `items`."""
        return (map_key for map_key, _ in self.items(start=start, end=end, prefix=prefix))

    def __iter__(self) -> Iterator[K]:
        return self.keys()

    def __getitem__(self, map_key: K) -> V:
        found = self.get(map_key)
        if found is None:
            raise KeyError(map_key)
        return found

    def __setitem__(self, map_key: K, new: V) -> None:
        self.put(map_key, new)

    def __delitem__(self, map_key: K) -> None:
        self.remove(map_key)

    def __contains__(self, map_key: K) -> bool:
        return self.get(map_key) is not None


class ListState(Declaration, Generic[V]):
    """One list for the key of the record in hand; each element is stored on its own, so adding to a long list is cheap.

    As declared it belongs to no task, and every use of it raises Misconfigured.
    """

    __slots__ = ("_cells",)

    _cells: ListCells

    def _bind(self, cells: ListCells, current: CurrentKey) -> "ListState[V]":
        """This state in one task: the list of whatever key `current` holds when it is used."""
        bound: ListState[V] = ListState(self._draft)
        bound._current = current
        bound._cells = cells
        return bound

    def add(self, new: V) -> None:
        """Append one element; the others are not read."""
        key = self._current.key
        self._cells.add(key, new)

    def extend(self, new: Iterable[V]) -> None:
        """Append these elements, in their order."""
        key = self._current.key
        self._cells.extend(key, new)

    def get(self) -> list[V]:
        """All elements in the order in which they were added, in a list of their own; walk a long one instead."""
        return list(self)

    def replace(self, new: Iterable[V]) -> None:
        """Have these elements and no others; each of them is written again."""
        key = self._current.key
        self._cells.replace(key, new)

    def clear(self) -> None:
        """Remove every element."""
        key = self._current.key
        self._cells.clear(key)

    def __iter__(self) -> Iterator[V]:
        """The elements in the order in which they were added, as they are at this moment.

        A long list is read as it is walked. The list may change meanwhile, and the walk does not: it shows what was there.
        """
        key = self._current.key
        return self._cells.elements(key)

    def __len__(self) -> int:
        key = self._current.key
        return self._cells.length(key)


def map_of(
    key_type: type[K],
    value_type: type[V],
    *,
    name: str | None = None,
    version: int = 1,
    upcasters: Upcasters | None = None,
) -> MapState[K, V]:
    """Declare one map per key.

    Map keys are text, integers of 64 bits or bytes, which sort as such, or anything else that MessagePack can
    write. `name`, `version` and `upcasters` are those of `value`.
    """
    return MapState(StoreSpec(name or "", "map", value_type, key_type, version, upcasters or {}))


def list_of(
    value_type: type[V],
    *,
    name: str | None = None,
    version: int = 1,
    upcasters: Upcasters | None = None,
) -> ListState[V]:
    """Declare one list per key.

    `value_type` is that of an element. `name`, `version` and `upcasters` are those of `value`.
    """
    return ListState(StoreSpec(name or "", "list", value_type, version=version, upcasters=upcasters or {}))
