"""Which record is in hand: told by what is left of the records that a loop walks, and by nothing that it does itself."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamkit.operators.step import NoOrigin, Statements
from streamkit.runtime.local import HandedRecord
from streamkit.task.origin import RecordOrigin


def records(count: int) -> list[Any]:
    return [HandedRecord(0, b"k", b"v", [("number", b"%d" % each)], offset=each) for each in range(count)]


def origin_of(*carried: str) -> tuple[RecordOrigin, Any]:
    clock: Any = SimpleNamespace(is_firing=False)
    return RecordOrigin(clock, carried), clock


def known_of(origin: RecordOrigin) -> tuple[Any, ...]:
    return origin.headers, origin.topic, origin.offset


NOTHING = known_of(NoOrigin())  # type: ignore[arg-type]


@given(st.integers(0, 30))
def test_every_record_that_is_walked_is_in_hand_while_it_is(count: int) -> None:
    origin, _ = origin_of()
    walked = []
    for record in origin.enter("views", records(count)):
        assert known_of(origin) == ((("number", b"%d" % record.offset),), "views", record.offset)
        walked.append(record.offset)
    assert walked == list(range(count))
    origin.leave()
    assert known_of(origin) == NOTHING


def test_nothing_is_known_before_a_loop_and_while_timers_fire() -> None:
    origin, clock = origin_of("number")
    assert known_of(origin) == NOTHING
    for _ in origin.enter("views", records(2)):
        clock.is_firing = True
        assert known_of(origin) == NOTHING
        assert origin.carried() == []
        clock.is_firing = False
        assert origin.offset is not None
        assert origin.carried() != []


def test_a_record_of_a_shuffle_has_headers_and_no_place() -> None:
    origin, _ = origin_of()
    for _ in origin.enter(None, records(1)):
        assert known_of(origin) == ((("number", b"0"),), None, None)


def test_of_the_headers_those_that_are_named_go_on_in_their_order() -> None:
    origin, _ = origin_of("b", "a")
    record = HandedRecord(0, b"k", b"v", [("a", b"1"), ("x", b"2"), ("b", None), ("a", b"3")])
    for _ in origin.enter("views", [record]):
        assert origin.carried() == [("a", b"1"), ("b", None), ("a", b"3")]


def test_where_none_go_on_a_record_is_written_as_ever() -> None:
    out = Statements("", ("append(headers)",), {"headers": [], "append": print})
    assert origin_of()[0].carrying(out) is out
    carrying = origin_of("a")[0].carrying(out)
    assert carrying.lines == ("headers = carried()", "append(headers)")
    assert set(carrying.names) == {"append", "carried"}
