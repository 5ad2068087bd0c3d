"""The checksum of record batches: known answers, any length, and the same with and without the compiled library."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.kafka import checksum


@pytest.mark.parametrize("crc32c", [checksum._by_pieces, checksum._by_tables])
def test_known_answers(crc32c: checksum.Checksum) -> None:
    assert crc32c(memoryview(b"123456789")) == 0xE3069283
    assert crc32c(memoryview(bytes(32))) == 0x8A9136AA  # RFC 3720, B.4
    assert crc32c(memoryview(b"")) == 0


@given(st.integers(min_value=0, max_value=200_000), st.binary(min_size=1, max_size=40))
def test_pieces_do_not_show(size: int, pattern: bytes) -> None:
    data = memoryview((pattern * (size // len(pattern) + 1))[:size])
    assert checksum._by_pieces(data) == checksum._by_tables(data)


def test_here_the_processor_does_it() -> None:
    assert checksum.crc32c is checksum._by_pieces
