"""What is printed: aligned for people, whole for programs."""

import json

import msgspec

from streamkit.cli.output import cross, grid, say_error, show, verdict
from streamkit.errors import Misconfigured


class Row(msgspec.Struct):
    name: str
    count: int | None


def test_a_table_in_a_pipe_has_no_colour_no_cut_and_no_trailing_space(capsys) -> None:
    long = "x" * 300
    show(Row("a", 1), "table", grid(("name", "count"), [["a", 1234567], [long, None]]))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert long in out
    assert "1,234,567" in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_a_column_that_no_row_fills_is_left_out_and_a_gap_is_a_dash(capsys) -> None:
    show(Row("a", 1), "table", grid(("name", "owner", "count"), [["a", "", 1], ["b", None, None]]))
    head, _, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "COUNT"]
    assert last.split() == ["b", "-"]


def test_json_is_the_struct(capsys) -> None:
    show(Row("a", None), "json", "not this")
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"name": "a", "count": None}
    assert captured.err == ""


def test_a_verdict_has_its_mark_in_front() -> None:
    assert verdict(good=True, what="topic").plain == "✓ topic"
    assert verdict(good=None, what="topic", detail="not tried").plain == "- topic  not tried"


def test_an_error_that_is_foreseen_looks_as_it_would_when_it_comes() -> None:
    error = Misconfigured("it is so", detail="a\nb", hint="do that")
    assert cross(error.render()).plain == "✗ " + error.render()


def test_an_error_goes_to_standard_error_in_its_own_words(capsys) -> None:
    say_error(Misconfigured("it [bold]is[/bold] so", where="here", hint="do that"), debug=False)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error[SK500]: it [bold]is[/bold] so\n  where   here\n  hint    do that\n"


def test_an_error_that_nobody_expected_says_how_to_see_more(capsys) -> None:
    say_error(ValueError("boo"), debug=False)
    assert "ValueError: boo" in (text := capsys.readouterr().err)
    assert "--debug" in text
