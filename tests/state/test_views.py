from typing import Any, assert_type

import msgspec
import pytest

from streamkit.errors import InvalidPipeline, Misconfigured
from streamkit.state.collection_views import ListState, MapState, list_of, map_of
from streamkit.state.memory import MemoryStores
from streamkit.state.task_state import TaskState
from streamkit.state.views import CurrentKey, Declaration, ValueState, value


class Basket(msgspec.Struct):
    items: list[str] = []


class Visits:
    count = value(int, 0)
    last = value(str)
    basket = value(Basket, Basket(["first"]))
    numbers = value(list[int], [])
    seen = map_of(str, float)
    by_day = map_of(int, list[str])
    pages = list_of(str)


class Bound:
    """The state of `Visits`, bound to one task."""

    def __init__(self) -> None:
        declared = {name: each for name, each in vars(Visits).items() if isinstance(each, Declaration)}
        specs = {name: each._spec("visits", name) for name, each in declared.items()}
        self.state = TaskState(MemoryStores().open("t"), list(specs.values()))
        self.current = CurrentKey()
        self.count: ValueState[int] = self.bind(declared, specs, "count")
        self.last: ValueState[str | None] = self.bind(declared, specs, "last")
        self.basket: ValueState[Basket] = self.bind(declared, specs, "basket")
        self.numbers: ValueState[list[int]] = self.bind(declared, specs, "numbers")
        self.seen: MapState[str, float] = self.bind(declared, specs, "seen")
        self.by_day: MapState[int, list[str]] = self.bind(declared, specs, "by_day")
        self.pages: ListState[str] = self.bind(declared, specs, "pages")

    def bind(self, declared: dict[str, Declaration], specs: dict[str, Any], name: str) -> Any:
        return declared[name]._bind(self.state.cells(specs[name]), self.current)

    def commit(self) -> None:
        self.state.committed(self.state.freeze(), self.state.changelog_offset + 1)
        self.state.drop()


@pytest.fixture
def bound() -> Bound:
    bound = Bound()
    bound.current.key = b"anna"
    return bound


def test_types_are_inferred() -> None:
    assert_type(Visits.count, ValueState[int])
    assert_type(Visits.last, ValueState[str | None])
    assert_type(Visits.numbers, ValueState[list[int]])
    assert_type(Visits.seen, MapState[str, float])
    assert_type(Visits.pages, ListState[str])

    def never(visits: Visits) -> None:
        assert_type(visits.count.get(), int)
        assert_type(visits.last.get(), str | None)
        assert_type(visits.seen.get("a"), float | None)
        assert_type(visits.seen.get("a", "none"), float | str)
        assert_type(visits.seen["a"], float)
        assert_type(visits.pages.get(), list[str])


def test_a_store_is_named_for_its_step_and_attribute_unless_it_has_a_name() -> None:
    assert Visits.count._spec("visits", "count").name == "visits.count"
    assert value(int, name="kept")._spec("visits", "count").name == "kept"
    spec = map_of(str, int, version=2, upcasters={1: int})._spec("visits", "by")
    assert (spec.kind, spec.map_key_type, spec.value_type, spec.version) == ("map", str, int, 2)
    assert spec.upcasters == {1: int}
    spec = list_of(str, name="kept", version=2, upcasters={1: str})._spec("visits", "by")
    assert (spec.name, spec.kind, spec.value_type, spec.version) == ("kept", "list", str, 2)


def test_a_value_belongs_to_the_key_in_hand(bound: Bound) -> None:
    bound.count.set(3)
    bound.current.key = b"ben"
    assert bound.count.get() == 0
    bound.count.set(4)
    bound.current.key = b"anna"
    assert bound.count.get() == 3


def test_a_value_survives_a_commit(bound: Bound) -> None:
    assert bound.count.update(lambda old: old + 1) == 1
    bound.last.set("x")
    bound.basket.set(Basket(["a"]))
    bound.commit()
    assert (bound.count.get(), bound.last.get(), bound.basket.get()) == (1, "x", Basket(["a"]))


def test_a_cleared_value_is_the_default_again(bound: Bound) -> None:
    bound.count.set(5)
    bound.commit()
    bound.count.clear()
    assert bound.count.get() == 0
    bound.commit()
    assert bound.count.get() == 0


def test_none_clears(bound: Bound) -> None:
    bound.last.set("x")
    bound.commit()
    bound.last.set(None)
    assert bound.last.get() is None
    bound.commit()
    assert bound.last.get() is None


def test_a_default_is_never_shared_by_two_keys(bound: Bound) -> None:
    numbers = bound.numbers.get()
    numbers.append(1)
    bound.numbers.set(numbers)
    bound.basket.get().items.append("lost")
    bound.current.key = b"ben"
    assert bound.numbers.get() == []
    assert bound.basket.get() == Basket(["first"])


def test_what_is_changed_in_place_and_not_set_is_lost(bound: Bound) -> None:
    bound.numbers.set([1])
    bound.commit()
    bound.numbers.get().append(2)
    bound.commit()
    assert bound.numbers.get() == [1]


def test_a_map_is_used_like_a_dict(bound: Bound) -> None:
    bound.seen["b"] = 2.0
    bound.seen.put("a", 1.0)
    assert (bound.seen["a"], bound.seen.get("b"), bound.seen.get("c"), bound.seen.get("c", -1)) == (
        1,
        2,
        None,
        -1,
    )
    assert "a" in bound.seen
    assert "c" not in bound.seen
    assert list(bound.seen.items()) == [("a", 1.0), ("b", 2.0)]
    assert list(bound.seen) == list(bound.seen.keys()) == ["a", "b"]
    with pytest.raises(KeyError):
        bound.seen["c"]


def test_entries_are_removed(bound: Bound) -> None:
    bound.seen.put("a", 1.0)
    bound.seen.put("b", 2.0)
    bound.commit()
    bound.seen.remove("a")
    del bound.seen["never"]
    assert list(bound.seen.items()) == [("b", 2.0)]
    bound.commit()
    assert list(bound.seen.items()) == [("b", 2.0)]
    bound.seen.clear()
    assert list(bound.seen.items()) == []
    bound.commit()
    assert list(bound.seen.items()) == []


def test_a_map_may_change_while_it_is_walked(bound: Bound) -> None:
    for day in (3, -1, 2):
        bound.by_day.put(day, [str(day)])
    for day in bound.by_day.keys():  # noqa: SIM118 - keys() is what is tested
        bound.by_day.remove(day)
        bound.by_day.put(day + 10, ["moved"])
    assert list(bound.by_day.keys()) == [9, 12, 13]


def test_a_part_of_a_map_is_walked(bound: Bound) -> None:
    for day in range(10):
        bound.by_day.put(day, [str(day)])
        bound.seen.put(f"{day % 2}-{day}", day)
    assert list(bound.by_day.items(start=8)) == [(8, ["8"]), (9, ["9"])]
    assert list(bound.by_day.keys(start=3, end=5)) == [3, 4]
    assert list(bound.seen.keys(prefix="1-")) == ["1-1", "1-3", "1-5", "1-7", "1-9"]
    bound.commit()
    assert list(bound.seen.keys(prefix="1-", end="1-5")) == ["1-1", "1-3"]


def test_maps_of_two_keys_are_two_maps(bound: Bound) -> None:
    bound.seen.put("a", 1.0)
    bound.current.key = b"ann"
    assert list(bound.seen.items()) == []
    bound.seen.put("b", 2.0)
    bound.commit()
    bound.seen.clear()
    bound.current.key = b"anna"
    assert list(bound.seen.items()) == [("a", 1.0)]


def test_a_list_keeps_its_elements_in_the_order_of_adding(bound: Bound) -> None:
    bound.pages.add("b")
    bound.pages.extend(["a", "b"])
    bound.commit()
    bound.pages.add("c")
    assert (bound.pages.get(), len(bound.pages), bool(bound.pages)) == (["b", "a", "b", "c"], 4, True)
    bound.pages.replace(page for page in bound.pages if page != "b")
    bound.commit()
    assert list(bound.pages) == ["a", "c"]
    bound.current.key = b"ben"
    assert (bound.pages.get(), len(bound.pages), bool(bound.pages)) == ([], 0, False)
    bound.current.key = b"anna"
    bound.pages.clear()
    bound.commit()
    assert bound.pages.get() == []


def test_a_list_that_was_read_is_the_readers_own(bound: Bound) -> None:
    bound.pages.add("a")
    bound.pages.get().append("lost")
    assert bound.pages.get() == ["a"]


def test_a_list_may_change_while_it_is_walked(bound: Bound) -> None:
    bound.pages.extend("abc")
    for page in bound.pages:
        bound.pages.add(page.upper())
    assert bound.pages.get() == ["a", "b", "c", "A", "B", "C"]


def test_what_is_only_declared_cannot_be_used() -> None:
    uses = (
        Visits.count.get,
        lambda: Visits.count.set(1),
        lambda: Visits.count.update(lambda old: old),
        Visits.count.clear,
        lambda: Visits.seen.get("a"),
        lambda: Visits.seen["a"],
        lambda: "a" in Visits.seen,
        lambda: Visits.seen.put("a", 1.0),
        lambda: Visits.seen.remove("a"),
        lambda: list(Visits.seen.items()),
        Visits.seen.keys,
        Visits.seen.clear,
        lambda: Visits.pages.add("a"),
        lambda: Visits.pages.extend(["a"]),
        Visits.pages.get,
        lambda: Visits.pages.replace([]),
        Visits.pages.clear,
        lambda: len(Visits.pages),
    )
    for use in uses:
        with pytest.raises(Misconfigured, match="no record in hand") as caught:
            use()
        assert "self" in caught.value.hint


def test_a_bound_state_without_a_record_says_so() -> None:
    with pytest.raises(Misconfigured, match="no record in hand"):
        Bound().count.get()


def test_a_default_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match="'zero' is not of the declared type"):
        value(int, "zero")


def test_a_type_that_cannot_be_stored_is_refused_by_name() -> None:
    with pytest.raises(InvalidPipeline, match=r'store "visits\.bad"'):
        value(CurrentKey)._spec("visits", "bad")


@pytest.mark.parametrize("view", [value(int), map_of(str, int), list_of(str)])
def test_help_shows_what_a_user_calls(view: Declaration) -> None:
    assert not {"bind", "spec"} & set(dir(view))
