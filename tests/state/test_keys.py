import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import InvalidPipeline
from streamkit.model.ids import KEY_GROUPS
from streamkit.model.keys import GroupPrefixes, murmur2
from streamkit.state.keys import COMMIT_KEY, PLAN_KEY, map_key_prefix, store_id, store_ids, uvarint


def test_a_store_id_never_changes() -> None:
    assert store_id("totals").hex() == f"{murmur2(b'totals') & 0xFFFF:04x}"
    assert [store_id(name).hex() for name in ("totals", "dedupe.seen", "größe")] == ["a905", "cb99", "abf4"]


def test_every_name_gets_its_id() -> None:
    names = [f"step.{number}" for number in range(20)]
    ids = store_ids(names)
    assert list(ids) == names
    assert all(len(each) == 2 for each in ids.values())


def test_two_stores_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidPipeline, match='two stores are named "totals"') as caught:
        store_ids(["totals", "other", "totals"])
    assert caught.value.hint


def test_two_names_with_one_id_are_refused() -> None:
    seen: dict[bytes, str] = {}
    number = 0
    while (other := seen.setdefault(store_id(f"s{number}"), f"s{number}")) == f"s{number}":
        number += 1
    with pytest.raises(InvalidPipeline, match="have the same id") as caught:
        store_ids([other, f"s{number}"])
    assert caught.value.hint
    assert other in str(caught.value)


def test_no_key_group_looks_like_a_reserved_key() -> None:
    highest = (KEY_GROUPS - 1).to_bytes(2, "big")
    assert highest < COMMIT_KEY[:2] == PLAN_KEY[:2]


@pytest.mark.parametrize(("number", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02")])
def test_a_varint_has_seven_bits_per_byte(number: int, encoded: str) -> None:
    assert uvarint(number).hex() == encoded


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=5))
def test_no_entry_of_one_map_looks_like_one_of_another(key: bytes, other: bytes, map_key: bytes) -> None:
    groups = GroupPrefixes()
    mine = map_key_prefix(groups[key], b"id", key) + map_key
    if key != other:
        assert not mine.startswith(map_key_prefix(groups[key], b"id", other))
