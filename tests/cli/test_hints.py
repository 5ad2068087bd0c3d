"""No message recommends what cannot be done: every command that a text of ours names exists and takes what is named."""

import ast
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from cyclopts import CycloptsError

import streamkit
from streamkit.cli.command import command_line

PACKAGE = Path(streamkit.__file__).parent
COMMAND = re.compile(r"`streamkit ([^`]+)`")
# Commands that only show a plan unless they are told to act.
ACTING = ("topics apply", "offsets reset")
# What stands for something that is only known when it is said.
PLACE = "<x>"
# What a person would write where a text has a place to fill in.
TARGET = "services.page_views.pipeline:page_views"


def texts() -> Iterator[tuple[str, str]]:
    """Every piece of text in the code that a person may read, with its place; docstrings are for readers of the code."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docs = {
            id(each.body[0].value)
            for each in ast.walk(tree)
            if isinstance(each, documented) and _has_doc(each)
        }
        inner = {
            id(part) for each in ast.walk(tree) if isinstance(each, ast.JoinedStr) for part in each.values
        }
        for each in ast.walk(tree):
            if id(each) in docs or id(each) in inner:
                continue
            where = f"{path.relative_to(PACKAGE)}:{getattr(each, 'lineno', 0)}"
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield where, each.value
            elif isinstance(each, ast.JoinedStr):
                for parts in product(*map(_ways, each.values)):
                    yield where, "".join(parts)


def _ways(part: ast.expr) -> list[str]:
    """What a part of an f-string may say: a choice between two texts is either, and anything else is a place to fill in."""
    value = part.value if isinstance(part, ast.FormattedValue) else part
    each = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    texts = [one.value for one in each if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return texts if len(texts) == len(each) else [PLACE]


def _has_doc(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(node.body) and isinstance(node.body[0], ast.Expr)


def can_be_run(command: str) -> bool:
    """Whether the command exists and takes what is named; a text may leave out which pipeline is meant, or which place."""
    words = [TARGET if word.startswith("<") else word for word in command.split() if word not in ("...", "…")]
    app = command_line()

    def parses(*more: str) -> bool:
        try:
            found, _, _ = app.parse_args([*words, *more], exit_on_error=False, print_error=False)
        except CycloptsError:
            return False
        return found.__name__ not in ("help_print", "version_print")

    return parses() or parses(TARGET) or parses(TARGET, "--to", "latest")


RECOMMENDED = sorted({(where, text, found) for where, text in texts() for found in COMMAND.findall(text)})


def test_there_are_some() -> None:
    assert len(RECOMMENDED) > 8
    assert any(PLACE in command for _, _, command in RECOMMENDED)


@pytest.mark.parametrize(
    ("where", "text", "command"), RECOMMENDED, ids=[f"{w} {c}" for w, _, c in RECOMMENDED]
)
def test_a_command_that_is_recommended_can_be_run(where: str, text: str, command: str) -> None:
    assert can_be_run(command), f"{where}: streamkit {command}"
    if command.startswith(ACTING):
        assert "--execute" in text, f"{where}: without --execute nothing happens"
