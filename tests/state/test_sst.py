from pathlib import Path

import pytest

from streamkit.errors import Bug, StateCorrupt
from streamkit.state.row_groups import Row
from streamkit.state.sst import READ_ROWS, SstRows, SstWriter

ROWS = [(b"%06d" % number, b"v%d" % number) for number in range(20 * READ_ROWS)]


def written(path: Path, rows: list[Row]) -> Path:
    writer = SstWriter(path)
    for key, value in rows:
        writer.add(key, value)
    writer.finish()
    return path


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    file = written(tmp_path / "a.sst", ROWS)
    with SstRows(tmp_path / "db", file) as opened:
        assert list(opened.rows()) == ROWS
        assert not file.exists()
    with SstRows(tmp_path / "db") as again:
        assert list(again.rows(b"000005", b"000100")) == ROWS[5:100]
        assert list(again.rows(b"", b"000000")) == []
        assert list(again.rows(b"999999")) == []


def test_keys_and_values_may_be_empty_or_large(tmp_path: Path) -> None:
    rows = [(b"", b""), (b"\x00", b"x" * 2_000_000), (b"\xff" * 1000, b"")]
    with SstRows(tmp_path / "db", written(tmp_path / "a.sst", rows)) as opened:
        assert list(opened.rows()) == rows


def test_rows_out_of_order_are_a_bug(tmp_path: Path) -> None:
    writer = SstWriter(tmp_path / "a.sst")
    writer.add(b"b", b"")
    with pytest.raises(Bug, match="not written"):
        writer.add(b"a", b"")


def test_what_is_no_such_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.sst").write_bytes(b"hello" * 1000)
    with pytest.raises(StateCorrupt, match="cannot be read"):
        SstRows(tmp_path / "db", tmp_path / "a.sst")


def test_damage_inside_is_told_when_it_is_reached(tmp_path: Path) -> None:
    file = written(tmp_path / "a.sst", ROWS)
    content = bytearray(file.read_bytes())
    content[len(content) * 2 // 5] ^= 1  # not in the first block or the last, which are read at once
    file.write_bytes(content)
    with SstRows(tmp_path / "db", file) as opened:
        walk = opened.rows()
        assert next(walk) == ROWS[0]
        with pytest.raises(StateCorrupt, match="cannot be read"):
            list(walk)


def test_no_walk_outlives_its_file(tmp_path: Path) -> None:
    opened = SstRows(tmp_path / "db", written(tmp_path / "a.sst", ROWS))
    walk = opened.rows()
    assert next(walk) == ROWS[0]
    opened.close()
    opened.close()
    with pytest.raises(Bug, match="closed"):
        list(walk)
    with pytest.raises(Bug, match="closed"):
        opened.rows()
    with SstRows(tmp_path / "db") as again:
        assert next(again.rows()) == ROWS[0]
