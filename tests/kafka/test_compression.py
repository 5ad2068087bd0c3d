"""Each codec comes back as it was, and none can be used to fill the memory."""

import gzip
import struct
import tracemalloc

import cramjam
import pytest

from streamkit.kafka.compression import GZIP, LZ4, SNAPPY, ZSTD, decompress

TEXT = b"".join(b"record %d;" % number for number in range(20_000))


def xerial(content: bytes, block_bytes: int = 32 * 1024) -> bytes:
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for at in range(0, len(content), block_bytes):
        block = bytes(cramjam.snappy.compress_raw(content[at : at + block_bytes]))
        framed += struct.pack(">i", len(block)) + block
    return framed


COMPRESS = {
    "gzip": (GZIP, gzip.compress),
    "snappy": (SNAPPY, lambda content: bytes(cramjam.snappy.compress_raw(content))),
    "snappy in Java's frame": (SNAPPY, xerial),
    "lz4": (LZ4, lambda content: bytes(cramjam.lz4.compress(content))),
    "zstd": (ZSTD, lambda content: bytes(cramjam.zstd.compress(content))),
}
codecs = pytest.mark.parametrize(("codec", "compress"), COMPRESS.values(), ids=COMPRESS)


@codecs
@pytest.mark.parametrize("content", [b"", b"x", TEXT], ids=["empty", "small", "large"])
def test_what_was_compressed_comes_back_behind_the_room(codec, compress, content) -> None:
    if content == b"" and compress is xerial:
        return
    result = decompress(codec, memoryview(compress(content)), room=61)
    assert bytes(result) == bytes(61) + content


@codecs
def test_data_of_just_the_largest_size_passes_and_one_byte_more_does_not(codec, compress) -> None:
    data = memoryview(compress(TEXT))
    assert len(decompress(codec, data, room=0, size_max=len(TEXT))) == len(TEXT)
    with pytest.raises(ValueError, match="larger than"):
        decompress(codec, data, room=0, size_max=len(TEXT) - 1)


@codecs
def test_a_bomb_is_refused_without_the_memory_it_asks_for(codec, compress) -> None:
    bomb = memoryview(compress(bytes(50_000_000)))
    limit = 1024 * 1024
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="larger than"):
            decompress(codec, bomb, room=61, size_max=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * limit


@codecs
def test_cut_off_data_is_refused(codec, compress) -> None:
    with pytest.raises(ValueError, match="compressed data is"):
        decompress(codec, memoryview(compress(TEXT)[:-7]), room=0)


@codecs
def test_noise_is_refused(codec, compress) -> None:
    with pytest.raises(ValueError, match=r"compressed data is|larger than"):
        decompress(codec, memoryview(b"\xff\xfe\xfd\xfc" * 20), room=0)


def test_a_codec_that_kafka_does_not_have_is_named() -> None:
    with pytest.raises(ValueError, match="number 6"):
        decompress(6, memoryview(b""), room=0)
