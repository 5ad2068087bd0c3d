"""One budget of memory for all tasks of a worker, and what its caches say that they take."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from streamkit.model.keys import KafkaPartitions, ShufflePartitions
from streamkit.state.budget import MemoryBudget, keep_within
from streamkit.state.memory import MemoryStores
from streamkit.state.spec import StoreSpec
from streamkit.state.task_state import TaskState
from streamkit.state.timers import LOADED_AT_ONCE

MIB = 1024 * 1024
KEYS = 20_000

COUNTS = StoreSpec("counts", "value", int)
TEXTS = StoreSpec("texts", "value", str)
MAPS = StoreSpec("maps", "map", int, str)
LISTS = StoreSpec("lists", "list", int)
PAGES = StoreSpec("pages", "map", str, str)
LINES = StoreSpec("lines", "list", str)
ALARMS = StoreSpec("alarms", "event_timers", int)


class Fixed:
    """A cache of one size."""

    def __init__(self, size: int) -> None:
        self.size = size

    def size_bytes(self) -> int:
        return self.size

    def evict(self) -> None:
        self.size = 0


def test_the_parts_of_a_budget_leave_a_tenth_of_it_free() -> None:
    budget = MemoryBudget(1000 * MIB)
    parts = (
        budget.cached_bytes,
        budget.block_cache_bytes,
        budget.write_buffer_bytes,
        budget.waiting_bytes,
    )
    assert sum(parts) == budget.total_bytes * 90 // 100


def test_the_largest_caches_are_emptied_and_only_when_all_together_are_too_large() -> None:
    caches = [Fixed(10), Fixed(50), Fixed(30), Fixed(10)]
    keep_within(100, caches)
    assert [each.size for each in caches] == [10, 50, 30, 10]
    keep_within(99, caches)
    assert [each.size for each in caches] == [10, 0, 30, 10]
    keep_within(0, caches)
    assert [each.size for each in caches] == [0, 0, 0, 0]


def count(state: TaskState, key: bytes, number: int) -> None:
    state.cells(COUNTS).put(key, number + 1000)


def text(state: TaskState, key: bytes, number: int) -> None:
    state.cells(TEXTS).put(key, f"{number:0500}")


def entry(state: TaskState, key: bytes, number: int) -> None:
    state.cells(MAPS).put(key, "only", number + 1000)


def entries(state: TaskState, key: bytes, number: int) -> None:
    state.cells(MAPS).put(key[:-1], key[-1:].decode(), number + 1000)


def element(state: TaskState, key: bytes, number: int) -> None:
    state.cells(LISTS).add(key, number + 1000)


def elements(state: TaskState, key: bytes, number: int) -> None:
    state.cells(LISTS).add(key[:-1], number + 1000)


def alarm(state: TaskState, key: bytes, number: int) -> None:
    state.cells(ALARMS).add(key, number)


@pytest.mark.parametrize("fill", [count, text, entry, entries, element, elements, alarm])
def test_what_caches_say_that_they_take_is_about_what_they_take(
    fill: Callable[[TaskState, bytes, int], None],
) -> None:
    state = TaskState(MemoryStores().open("task"), [COUNTS, TEXTS, MAPS, LISTS, ALARMS])
    state.cells(ALARMS).pop_due(0)  # or they would not be kept in memory at all
    gc.collect()
    tracemalloc.start()
    for number in range(KEYS):
        fill(state, b"key-%08d" % number, number)
        if number % 1000 == 0:
            state.freeze()
            state._frozen.clear()
    state.freeze()
    state._frozen.clear()
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    said = sum(cache.size_bytes() for cache in state.caches())
    assert taken * 0.7 < said < taken * 3.5


def put_text(state: TaskState, number: int) -> None:
    state.cells(TEXTS).put(b"%d" % number, "x" * 10_000)


def put_page(state: TaskState, number: int) -> None:
    state.cells(PAGES).put(b"%d" % (number % 4), str(number), "x" * 10_000)


def add_line(state: TaskState, number: int) -> None:
    state.cells(LINES).add(b"%d" % (number % 4), "x" * 10_000)


def get_text(state: TaskState, number: int) -> Any:
    return state.cells(TEXTS).get(b"%d" % number)


def walk_pages(state: TaskState, number: int) -> Any:
    return list(state.cells(PAGES).items(b"%d" % (number % 4)))


def walk_lines(state: TaskState, number: int) -> Any:
    return list(state.cells(LINES).elements(b"%d" % (number % 4)))


@pytest.mark.parametrize(
    ("fill", "read"), [(put_text, get_text), (put_page, walk_pages), (add_line, walk_lines)]
)
def test_what_is_read_tells_the_size_too(
    fill: Callable[[TaskState, int], None], read: Callable[[TaskState, int], Any]
) -> None:
    stores, specs = MemoryStores(), [TEXTS, PAGES, LINES]
    state = TaskState(stores.open("task"), specs)
    for number in range(200):
        fill(state, number)
    state.committed(state.freeze(), 1)
    state.close()
    again = TaskState(stores.open("task"), specs)
    for number in range(200):
        assert read(again, number)
    assert sum(cache.size_bytes() for cache in again.caches()) > 200 * 10_000


def test_small_lists_that_come_and_go_do_not_hide_how_large_others_are() -> None:
    state = TaskState(MemoryStores().open("task"), [LINES])
    lines, offset = state.cells(LINES), 0
    for turn in range(20):
        for _ in range(50):
            lines.add(b"large-%d" % turn, "x" * 10_000)
        for number in range(20):
            lines.add(b"small-%d" % number, "y")
        state.committed(state.freeze(), offset := offset + 1)
        for number in range(20):
            lines.clear(b"small-%d" % number)
        state.committed(state.freeze(), offset := offset + 1)
    assert sum(cache.size_bytes() for cache in state.caches()) > 20 * 50 * 10_000


def test_timers_in_memory_go_back_to_being_rows() -> None:
    state = TaskState(MemoryStores().open("task"), [ALARMS])
    alarms = state.cells(ALARMS)
    alarms.pop_due(-1)
    for number in range(3 * LOADED_AT_ONCE):
        alarms.add(b"%d" % number, number)
    state.committed(state.freeze(), 1)
    keep_within(0, state.caches())
    assert alarms.near() <= LOADED_AT_ONCE
    found = [alarms.pop_due(1 << 40) for _ in range(3 * LOADED_AT_ONCE)]
    assert [timer.time for timer in found if timer is not None] == list(range(3 * LOADED_AT_ONCE))


@pytest.mark.parametrize("known", [KafkaPartitions(7), ShufflePartitions(7)])
def test_what_is_known_of_keys_counts_and_can_be_forgotten(
    known: KafkaPartitions | ShufflePartitions,
) -> None:
    answers = [known[b"%d" % number] for number in range(1000)]
    assert known.size_bytes() > 50_000
    keep_within(10_000, [known])
    assert known.size_bytes() == 0
    assert [known[b"%d" % number] for number in range(1000)] == answers
