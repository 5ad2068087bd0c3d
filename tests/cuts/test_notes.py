import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.cuts.notes import (
    FORMAT_VERSION,
    Answer,
    Command,
    Declined,
    End,
    Kind,
    Note,
    Reached,
    Round,
    Stored,
    StoredFile,
    Trigger,
    Wish,
    decode_note,
    encode_note,
)
from streamkit.errors import Misconfigured
from streamkit.model.ids import TaskId

TASK = TaskId("orders/by_customer", 3)

cuts, rounds, times = st.integers(1, 2**40), st.integers(0, 2**31 - 1), st.integers(0, 2**50)
sizes, words = st.integers(0, 2**50), st.text(max_size=8)
tasks = st.builds(TaskId, words, st.integers(0, 1023))
positions = st.dictionaries(words, st.dictionaries(st.integers(0, 1023), sizes, max_size=2), max_size=2)
files = st.lists(st.builds(StoredFile, words, words, sizes), max_size=2).map(tuple)
notes: st.SearchStrategy[Note] = st.one_of(
    st.builds(Round, rounds, words),
    st.builds(
        Trigger,
        cuts,
        rounds,
        st.sampled_from(Kind),
        st.dictionaries(words, sizes, max_size=2),
        words,
        st.booleans(),
        st.booleans(),
        st.none() | words,
        times,
    ),
    st.builds(
        Reached, cuts, rounds, tasks, sizes, words, positions, st.binary(max_size=4), st.binary(max_size=4)
    ),
    st.builds(Declined, cuts, rounds, tasks, words),
    st.builds(Stored, cuts, rounds, tasks, sizes, files, sizes),
    st.builds(End, cuts, rounds, st.booleans(), words, st.lists(tasks, max_size=2).map(tuple), times),
    st.builds(Command, words, st.sampled_from(Wish), st.booleans(), times),
    st.builds(Answer, words, st.booleans(), st.none() | cuts, words, times),
)


@given(note=notes)
def test_a_note_is_read_as_it_was_written(note):
    assert decode_note(*encode_note(note)) == note


@pytest.mark.parametrize(
    ("note", "key"),
    [
        (Round(12, "w"), "round/12"),
        (Trigger(7, 12, Kind.SAVEPOINT, {"orders": 2}, "f"), "cut/7/trigger/12"),
        (Reached(7, 12, TASK, 1, "b", {}), "cut/7/reached/12/orders/by_customer/3"),
        (Declined(7, 12, TASK, "restoring"), "cut/7/declined/12/orders/by_customer/3"),
        (Stored(7, 12, TASK, 1, (), 0), "cut/7/stored/orders/by_customer/3"),
        (End(7, 13, is_complete=True), "cut/7/end/13"),
        (Command("c-1", Wish.STOP), "command/c-1"),
        (Answer("c-1", is_done=True), "answer/c-1"),
    ],
)
def test_keys_are_plain_text(note, key):
    assert encode_note(note)[0] == key.encode()


def test_the_bytes_of_a_release_are_the_bytes_of_the_next():
    assert encode_note(Round(12, "w"))[1].hex() == "920193a5726f756e640ca177"
    assert encode_note(End(7, 12, is_complete=False, why="slow", missing=(TASK,)))[1].hex() == (
        "920197a3656e64070cc2a4736c6f779192b26f72646572732f62795f637573746f6d65720300"
    )


def test_a_deleted_note_says_nothing():
    assert decode_note(b"cut/7/end/12", None) is None
    assert decode_note(b"generation/2/an-id", None) is None


def pack(*parts: object) -> bytes:
    return msgspec.msgpack.encode(parts)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (None, b""),
        (b"round/3", b""),
        (b"round/3", b"\xc1"),
        (b"round/3", pack()),
        (b"round/3", pack(FORMAT_VERSION)),
        (b"round/3", pack(FORMAT_VERSION, ["round"])),
        (b"round/3", pack(FORMAT_VERSION, ["round", 3])),
        (b"round/3", pack(FORMAT_VERSION, ["round", "3", "w"])),
        (b"round/-1", pack(FORMAT_VERSION, ["round", -1, "w"])),
        (b"round/3", pack(0, ["round", 3, "w"])),
        (None, pack(FORMAT_VERSION, ["round", 3, "w"])),
        (b"round/4", pack(FORMAT_VERSION, ["round", 3, "w"])),
        (b"cut/0/end/3", pack(FORMAT_VERSION, ["end", 0, 3, True])),
        (b"cut/7/end/3", pack(FORMAT_VERSION, ["end", 7, 3, 1])),
        (b"cut/7/trigger/3", pack(FORMAT_VERSION, ["trigger", 7, 3, "snapshot", {}, "f"])),
        (b"\xff/3", pack(FORMAT_VERSION, ["round", 3, "w"])),
        (b"round/3", encode_note(Round(3, "w"))[1] + b"\x00"),
        (b"round/3", encode_note(Round(3, "w"))[1][:-1]),
        (b"generation/2/an-id", pack(FORMAT_VERSION, ["generation", 2])),
    ],
)
def test_what_is_no_note_is_refused_and_says_what_to_do(key, value):
    with pytest.raises(Misconfigured, match="no note of this release") as caught:
        decode_note(key, value)
    assert caught.value.detail
    assert "run that one" in caught.value.hint


def test_a_newer_format_is_refused_as_such_although_its_notes_are_not_ours():
    with pytest.raises(Misconfigured) as caught:
        decode_note(b"peace/1", pack(FORMAT_VERSION + 1, ["peace", 1]))
    assert f"format {FORMAT_VERSION + 1}" in caught.value.detail
    assert '"peace/1"' in caught.value.problem


def test_what_a_later_release_adds_at_the_end_is_passed_over():
    assert decode_note(b"round/3", pack(FORMAT_VERSION, ["round", 3, "w", "more"])) == Round(3, "w")


@given(key=st.none() | st.binary(max_size=10), value=st.binary(max_size=30))
def test_bytes_that_anybody_wrote_are_a_note_or_refused(key, value):
    try:
        note = decode_note(key, value)
    except Misconfigured:
        return
    assert note is not None
    assert encode_note(note)[0] == key
