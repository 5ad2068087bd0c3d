import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.codec.signals import FORMAT_VERSION, decode_signal, encode_signal
from streamkit.errors import Misconfigured
from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.model.signal import Barrier, EndOfInput, Idle, Signal, Watermark

times = st.integers(MIN_TIME, MAX_TIME)
barriers = st.builds(Barrier, st.integers(1, 2**31), st.integers(0, 2**31 - 1))
signals: st.SearchStrategy[Signal] = st.one_of(
    times.map(Watermark), times.map(Idle), st.just(EndOfInput()), barriers
)


@given(channel=st.integers(0, 10_000), signal=signals)
def test_a_signal_is_read_as_it_was_written(channel, signal):
    sent = decode_signal(encode_signal(channel, signal))
    assert (sent.version, sent.channel, sent.signal) == (FORMAT_VERSION, channel, signal)


@given(signal=signals)
def test_a_signal_is_small(signal):
    assert len(encode_signal(1023, signal)) < 32


def pack(*parts: object) -> bytes:
    return msgspec.msgpack.encode(parts)


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"\x00",
        b"\xc1",
        b"{not a signal}",
        "{größe".encode("latin-1"),
        pack(),
        pack(FORMAT_VERSION),
        pack(FORMAT_VERSION, 0),
        pack(FORMAT_VERSION, 0, []),
        pack(FORMAT_VERSION, 0, ["watermark"]),
        pack(FORMAT_VERSION, 0, ["watermark", "soon"]),
        pack(FORMAT_VERSION, 0, ["watermark", 1.5]),
        pack(FORMAT_VERSION, 0, ["watermark", None]),
        pack(FORMAT_VERSION, "0", ["end"]),
        pack(FORMAT_VERSION, 0, ["barrier", 7]),
        pack(FORMAT_VERSION, 0, ["barrier", 0, 1]),
        pack(FORMAT_VERSION, 0, ["barrier", 7, -1]),
        pack(FORMAT_VERSION, 0, ["barrier", "7", 1]),
        pack(FORMAT_VERSION, 0, ["fence", 7]),
        pack(FORMAT_VERSION, 0, {"watermark": 7}),
        pack("1", 0, ["end"]),
        encode_signal(0, Watermark(7)) + b"\x00",
        encode_signal(0, Watermark(7))[:-1],
    ],
)
def test_what_is_no_signal_stops_the_worker_and_says_what_to_do(data):
    with pytest.raises(Misconfigured, match="no signal") as caught:
        decode_signal(data)
    assert caught.value.detail
    assert "run that one" in caught.value.hint


@given(data=st.binary(max_size=30))
def test_bytes_that_anybody_wrote_are_a_signal_or_refused(data):
    try:
        sent = decode_signal(data)
    except Misconfigured:
        return
    assert isinstance(sent.signal, Watermark | Idle | EndOfInput | Barrier)


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1])
def test_another_format_is_refused_and_named(version):
    with pytest.raises(Misconfigured) as caught:
        decode_signal(pack(version, 0, ["end"]))
    assert f"format {version}" in caught.value.detail


def test_a_newer_format_is_refused_as_such_although_its_signals_are_not_ours():
    with pytest.raises(Misconfigured) as caught:
        decode_signal(pack(FORMAT_VERSION + 1, 0, ["fence", 7]))
    assert "no signal" in caught.value.problem


def test_the_bytes_of_a_release_are_the_bytes_of_the_next():
    assert encode_signal(
        3, Watermark(1_600_000_000_000)
    ).hex() == "93010392a977617465726d61726bcf000001748" + ("76e8000")
    assert encode_signal(0, EndOfInput()).hex() == "93010091a3656e64"
    assert encode_signal(5, Barrier(7, 12)).hex() == "93010593a762617272696572070c"
