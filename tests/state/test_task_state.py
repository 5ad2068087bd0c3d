import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamkit.errors import Bug, EncodeError, InvalidPipeline
from streamkit.state.budget import keep_within
from streamkit.state.committed import PENDING_BYTES_MAX, PENDING_ROWS_MAX
from streamkit.state.keys import COMMIT_KEY
from streamkit.state.memory import MemoryStores
from streamkit.state.spec import StoreSpec
from streamkit.state.task_state import TaskState

COUNTS = StoreSpec("counts", "value", int)
NAMES = StoreSpec("names", "value", str)
DAYS = StoreSpec("days", "map", int, str)
SPECS = [COUNTS, NAMES, DAYS]


def new_state(stores: MemoryStores | None = None) -> TaskState:
    stores = MemoryStores() if stores is None else stores
    return TaskState(stores.open("totals-0"), SPECS)


def commit(state: TaskState) -> None:
    state.committed(state.freeze(), state.changelog_offset + 1)


def test_a_frozen_span_holds_the_changes_of_all_stores() -> None:
    state = new_state()
    state.cells(COUNTS).put(b"a", 1)
    state.cells(NAMES).put(b"a", "x")
    state.cells(DAYS).put(b"a", "monday", 1)
    assert len(state.freeze()) == 3
    assert state.freeze() == {}


def test_the_next_span_sees_a_frozen_one() -> None:
    state = new_state()
    counts, days = state.cells(COUNTS), state.cells(DAYS)
    counts.put(b"a", 1)
    days.put(b"a", "x", 1)
    commit(state)
    counts.put(b"a", 2)
    counts.delete(b"b")
    days.put(b"a", "y", 2)
    days.remove(b"a", "x")
    first = state.freeze()
    counts.evict()
    days.evict()
    assert (counts.get(b"a"), counts.get(b"b"), list(days.items(b"a"))) == (2, None, [("y", 2)])
    days.put(b"a", "x", 3)
    counts.put(b"a", 4)
    second = state.freeze()
    days.evict()
    counts.evict()
    assert (counts.get(b"a"), list(days.items(b"a"))) == (4, [("x", 3), ("y", 2)])
    state.committed(first, 5)
    state.committed(second, 6)
    assert (counts.get(b"a"), list(days.items(b"a"))) == (4, [("x", 3), ("y", 2)])


def test_after_a_drop_only_committed_state_is_left() -> None:
    state = new_state()
    counts, days = state.cells(COUNTS), state.cells(DAYS)
    counts.put(b"a", 1)
    days.put(b"a", "x", 1)
    commit(state)
    counts.put(b"a", 2)
    days.put(b"a", "y", 2)
    days.remove(b"a", "x")
    state.freeze()
    counts.put(b"b", 3)
    days.clear(b"a")
    state.drop()
    assert (counts.get(b"a"), counts.get(b"b"), list(days.items(b"a"))) == (1, None, [("x", 1)])
    assert state.freeze() == {}


def test_only_committed_rows_reach_the_store_and_with_their_offset() -> None:
    state = new_state()
    counts = state.cells(COUNTS)
    counts.put(b"a", 1)
    rows = state.freeze()
    rows[COMMIT_KEY] = b"record"
    counts.put(b"b", 2)
    state.write_pending()
    assert (list(state.store.scan(b"")), state.read(COMMIT_KEY)) == ([], None)
    state.committed(rows, 7)
    assert (state.store.changelog_offset, state.changelog_offset, state.read(COMMIT_KEY)) == (0, 7, b"record")
    state.write_pending()
    assert (state.store.changelog_offset, state.read(COMMIT_KEY)) == (7, b"record")
    assert dict(state.store.scan(b"")) == rows
    assert counts.get(b"b") == 2


def test_spans_are_committed_in_the_order_of_freezing() -> None:
    state = new_state()
    counts = state.cells(COUNTS)
    with pytest.raises(Bug, match="never frozen"):
        state.committed({}, 1)
    counts.put(b"a", 1)
    first = state.freeze()
    counts.put(b"a", 2)
    second = state.freeze()
    with pytest.raises(Bug, match="not the oldest"):
        state.committed(second, 1)
    state.committed(dict(first) | {COMMIT_KEY: b""}, 1)
    with pytest.raises(Bug, match="backwards"):
        state.committed(second, 0)


def test_pending_rows_are_due_after_a_while() -> None:
    state = new_state()
    assert not state.committed_rows.write_due(0.0)
    state.cells(COUNTS).put(b"a", 1)
    commit(state)
    assert not state.committed_rows.write_due(100.0)
    assert not state.committed_rows.write_due(100.9)
    assert state.committed_rows.write_due(101.0)
    state.write_pending()
    assert not state.committed_rows.write_due(102.0)
    state.cells(COUNTS).put(b"a", 2)
    commit(state)
    assert not state.committed_rows.write_due(200.0)


def test_pending_rows_are_due_when_they_are_many_or_large() -> None:
    state = new_state()
    for number in range(PENDING_ROWS_MAX):
        state.cells(COUNTS).put(b"%d" % number, 1)
    commit(state)
    assert state.committed_rows.write_due(0.0)
    state.write_pending()
    state.cells(NAMES).put(b"a", "x" * PENDING_BYTES_MAX)
    commit(state)
    assert state.committed_rows.write_due(0.0)
    state.write_pending()
    state.cells(NAMES).put(b"a", "x")
    commit(state)
    assert not state.committed_rows.write_due(0.0)


def test_caches_can_be_emptied_while_a_span_is_open() -> None:
    state = new_state()
    counts, days = state.cells(COUNTS), state.cells(DAYS)
    for number in range(11):
        counts.put(b"%d" % number, number)
        days.put(b"k", str(number), number)
    rows = state.freeze()
    counts.put(b"0", 100)
    state.committed(rows, 1)
    keep_within(0, state.caches())
    assert (counts.cache, days._size, state._prefixes) == ({b"0": 100}, 0, {})
    assert [counts.get(b"%d" % number) for number in range(3)] == [100, 1, 2]
    assert len(list(days.items(b"k"))) == 11


def test_restored_records_go_over_everything_committed_before() -> None:
    state = new_state()
    counts = state.cells(COUNTS)
    counts.put(b"a", 1)
    rows = state.freeze()
    state.committed(rows, 1)
    (key,) = rows
    state.restore({key: b"\x01\x05"}, 4)
    assert counts.get(b"a") == 5
    assert (state.store.changelog_offset, state.store.get(key)) == (4, b"\x01\x05")
    state.write_pending()
    assert state.store.get(key) == b"\x01\x05"
    with pytest.raises(Bug, match="backwards"):
        state.restore({}, 3)


def test_nothing_is_restored_under_an_open_span() -> None:
    for spec in (COUNTS, DAYS):
        state = new_state()
        if spec is COUNTS:
            state.cells(COUNTS).put(b"a", 1)
        else:
            state.cells(DAYS).put(b"a", "x", 1)
        with pytest.raises(Bug, match="open span"):
            state.restore({}, 1)
        state.freeze()
        with pytest.raises(Bug, match="open span"):
            state.restore({}, 1)
        state.drop()
        state.restore({}, 1)


def test_closing_keeps_what_is_committed_and_nothing_else() -> None:
    stores = MemoryStores()
    state = new_state(stores)
    state.cells(COUNTS).put(b"a", 1)
    commit(state)
    state.cells(COUNTS).put(b"a", 2)
    state.freeze()
    state.cells(COUNTS).put(b"b", 3)
    state.close()
    again = new_state(stores)
    counts = again.cells(COUNTS)
    assert (again.changelog_offset, counts.get(b"a"), counts.get(b"b")) == (1, 1, None)


def test_a_value_that_cannot_be_written_freezes_nothing() -> None:
    state = new_state()
    state.cells(COUNTS).put(b"a", 1)
    state.cells(NAMES).put(b"a", object())
    with pytest.raises(EncodeError):
        state.freeze()
    state.drop()
    assert state.cells(COUNTS).get(b"a") is None
    assert state.freeze() == {}


def test_cells_are_asked_for_by_what_was_declared() -> None:
    state = new_state()
    with pytest.raises(Bug, match='no value store "days"'):
        state.cells(StoreSpec("days", "value", int))
    with pytest.raises(Bug, match='no map store "counts"'):
        state.cells(StoreSpec("counts", "map", int, str))
    with pytest.raises(Bug, match='"rows" is of kind "table", and nobody keeps such state'):
        TaskState(MemoryStores().open("x"), [StoreSpec("rows", "table", int)])
    with pytest.raises(InvalidPipeline):
        TaskState(MemoryStores().open("x"), [COUNTS, COUNTS])


KEYS = [b"", b"a", b"ab"]
MAP_KEYS = ["", "x"]
Model = dict[tuple[bytes, str | None], int]  # (key, map key or None for the value store) -> value
Actions = list[tuple[str, bytes, str, int]]
# What user code does, at the beginning of every step: a machine that mostly commits nothing finds nothing.
actions = st.lists(
    st.tuples(
        st.sampled_from(
            ["put", "count", "delete", "put_entry", "remove_entry", "clear_map", "read", "read_map"]
        ),
        st.sampled_from(KEYS),
        st.sampled_from(MAP_KEYS),
        st.integers(-2, 300),
    ),
    min_size=2,
    max_size=10,
)


class StateMachine(RuleBasedStateMachine):
    """Any sequence of changes, freezes, commits, drops, writes and crashes reads like a plain dict.

    The changelog is a list of what was committed; a crash leaves any prefix of what was not flushed, and the rest
    is restored from that list.
    """

    def __init__(self) -> None:
        super().__init__()
        self.survive = 0
        self.stores = MemoryStores(survives=lambda _, unflushed: min(self.survive, unflushed))
        self.changelog: list[dict[bytes, bytes | None]] = []
        self.frozen: list[tuple[dict[bytes, bytes | None], Model]] = []
        self.committed: Model = {}
        self.current: Model = {}
        self.open()

    def open(self) -> None:
        self.state = new_state(self.stores)
        self.values = self.state.cells(COUNTS)
        self.maps = self.state.cells(DAYS)

    def process(self, actions: Actions) -> None:
        for name, key, map_key, number in actions:
            getattr(self, name)(key, map_key, number)

    def put(self, key: bytes, _map_key: str, number: int) -> None:
        self.values.put(key, number)
        self.current[key, None] = number

    def count(self, key: bytes, _map_key: str, _number: int) -> None:
        cache = self.values.cache
        known = cache.get(key)
        if known is None:
            known = self.values.load(key)
        assert known == self.current.get((key, None))
        cache[key] = self.current[key, None] = 1 if known is None else known + 1
        self.values.dirty[key] = None

    def delete(self, key: bytes, _map_key: str, _number: int) -> None:
        self.values.delete(key)
        self.current.pop((key, None), None)

    def put_entry(self, key: bytes, map_key: str, number: int) -> None:
        self.maps.put(key, map_key, number)
        self.current[key, map_key] = number

    def remove_entry(self, key: bytes, map_key: str, _number: int) -> None:
        self.maps.remove(key, map_key)
        self.current.pop((key, map_key), None)

    def clear_map(self, key: bytes, _map_key: str, _number: int) -> None:
        self.maps.clear(key)
        self.current = {at: value for at, value in self.current.items() if at[0] != key or at[1] is None}

    def read(self, key: bytes, map_key: str, _number: int) -> None:
        assert self.values.get(key) == self.current.get((key, None))
        assert self.maps.get(key, map_key) == self.current.get((key, map_key))

    def read_map(self, key: bytes, _map_key: str, _number: int) -> None:
        expected = {at[1]: value for at, value in self.current.items() if at[0] == key and at[1] is not None}
        assert list(self.maps.items(key)) == sorted(expected.items())
        for start, end, prefix in (("b", None, None), (None, "b", None), ("a", "b", None), (None, None, "a")):
            within = self.maps.key_range(start, end, prefix)
            assert list(self.maps.items(key, within)) == sorted(
                (map_key, value)
                for map_key, value in expected.items()
                if (start or "") <= map_key < (end or "~") and map_key.startswith(prefix or "")
            )

    @rule(actions=actions, meanwhile=actions, left_in_flight=st.integers(0, 2))
    def commit(self, actions: Actions, meanwhile: Actions, left_in_flight: int) -> None:
        self.process(actions)
        self.frozen.append((self.state.freeze(), dict(self.current)))
        self.process(meanwhile)
        while len(self.frozen) > left_in_flight:
            rows, self.committed = self.frozen.pop(0)
            self.changelog.append(dict(rows))
            self.state.committed(rows, len(self.changelog))
            keep_within(500, self.state.caches())

    @rule(actions=actions, is_flushed=st.booleans())
    def write_pending(self, actions: Actions, is_flushed: bool) -> None:
        self.process(actions)
        self.state.write_pending()
        if is_flushed:
            self.state.store.flush()

    @rule(actions=actions)
    def drop(self, actions: Actions) -> None:
        self.process(actions)
        self.state.drop()
        self.frozen.clear()
        self.current = dict(self.committed)

    @rule(actions=actions, survive=st.integers(0, 3), is_clean=st.booleans())
    def crash(self, actions: Actions, survive: int, is_clean: bool) -> None:
        self.process(actions)
        self.survive = survive
        if is_clean:
            self.state.close()
        self.stores.crash()
        self.open()
        stored = self.state.changelog_offset
        assert stored == len(self.changelog) or not is_clean
        for offset, rows in enumerate(self.changelog[stored:], stored + 1):
            self.state.restore(rows, offset)
        self.frozen.clear()
        self.current = dict(self.committed)

    @rule(actions=actions)
    def recover_in_place(self, actions: Actions) -> None:
        """A commit whose outcome was in doubt has landed: its records come back through the changelog."""
        if self.frozen:
            rows, self.committed = self.frozen[0]
            self.changelog.append(dict(rows))
        self.drop(actions)
        for offset, rows in enumerate(
            self.changelog[self.state.changelog_offset :], self.state.changelog_offset + 1
        ):
            self.state.restore(rows, offset)

    @invariant()
    def the_store_is_a_prefix_of_the_changelog(self) -> None:
        model: dict[bytes, bytes | None] = {}
        for rows in self.changelog[: self.state.store.changelog_offset]:
            model.update(rows)
        assert dict(self.state.store.scan(b"")) == {key: row for key, row in model.items() if row is not None}

    def teardown(self) -> None:
        for key in KEYS:
            self.read_map(key, "", 0)
            self.read(key, "x", 0)


StateMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
TestAnySequence = StateMachine.TestCase
