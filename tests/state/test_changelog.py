import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import Misconfigured, StateCorrupt
from streamkit.state.changelog import CommitRecord

RECORD = CommitRecord(
    positions={"orders": {0: 5, 7: 2**40}, "clicks": {}},
    writer_id="shop-worker-1",
    generation=3,
    span=12,
    birth="5f3a",
    fingerprint="abc",
)

# What release 0.1.0 writes; whoever changes it must still read it.
GOLDEN = (
    "980182a66f72646572738200050"
    "7cf0000010000000000a6636c69636b7380ad73686f702d776f726b65722d31030ca435663361a361626380"
)

numbers = st.integers(0, 2**63 - 1)
records = st.builds(
    CommitRecord,
    positions=st.dictionaries(st.text(), st.dictionaries(st.integers(0, 2**31 - 1), numbers)),
    writer_id=st.text(),
    generation=numbers,
    span=numbers,
    birth=st.text(),
    fingerprint=st.text(),
    extra=st.dictionaries(st.text(), st.binary()),
)


@given(records)
def test_a_record_is_read_as_it_was_written(record: CommitRecord) -> None:
    assert CommitRecord.decode(record.encode()) == record


def test_the_bytes_of_the_first_release_stay_readable() -> None:
    assert RECORD.encode().hex() == "99" + GOLDEN[2:] + "00"  # one field more, at the end
    assert CommitRecord.decode(bytes.fromhex(GOLDEN)) == RECORD


def test_fields_that_a_later_release_adds_are_skipped() -> None:
    fields = msgspec.msgpack.decode(RECORD.encode(), strict=False)
    assert CommitRecord.decode(msgspec.msgpack.encode([*fields, {"new": 1}])) == RECORD


@pytest.mark.parametrize("rest", [[], ["quite", "different"]])
def test_a_format_that_this_release_must_not_read_is_refused(rest: list[Any]) -> None:
    with pytest.raises(Misconfigured, match="format 2") as caught:
        CommitRecord.decode(msgspec.msgpack.encode([2, *rest]))
    assert "release" in caught.value.hint


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"\xc1",
        b"hello",
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode([1]),
        msgspec.msgpack.encode({"version": 1}),
        msgspec.msgpack.encode([0, {}, "w", 1, 1, "b", "f"]),
        msgspec.msgpack.encode([1, {"t": {0: -1}}, "w", 1, 1, "b", "f"]),
        RECORD.encode()[:-3],
        RECORD.encode() + b"\x00",
    ],
)
def test_what_is_no_record_is_corrupt(data: bytes | None) -> None:
    with pytest.raises(StateCorrupt) as caught:
        CommitRecord.decode(data)
    assert caught.value.hint


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(StateCorrupt, Misconfigured):
        CommitRecord.decode(data)
