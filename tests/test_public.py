"""All that a pipeline is written with comes from `streamkit`, and speaks to users."""

import ast
import re
from pathlib import Path

import streamkit as sk

ROOT = Path(__file__).resolve().parent.parent
# Beside it a user may need the harness, and the classes of errors.
ALLOWED = {"streamkit.errors", "streamkit.testing"}


def imports(source: str) -> list[str]:
    nodes = ast.walk(ast.parse(source))
    return [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]


def test_dir_shows_what_a_user_writes_and_nothing_else() -> None:
    assert dir(sk) == sorted(sk.__all__)
    assert all(hasattr(sk, name) for name in sk.__all__)


def test_every_public_name_is_explained() -> None:
    things = {name: getattr(sk, name) for name in sk.__all__}
    assert [name for name, thing in things.items() if not (thing.__doc__ or "").strip()] == []


def test_examples_and_documents_need_nothing_from_the_packages_behind() -> None:
    documents = [ROOT / "README.md", *(ROOT / "streamkit" / "guides").glob("*.md")]
    blocks = [
        each for path in documents for each in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
    ]
    numbered = [path.read_text() for path in sorted((ROOT / "examples").glob("[0-9]*.py"))]
    used = {module for source in [*blocks, *numbered] for module in imports(source)}
    assert {module for module in used if module.startswith("streamkit")} <= ALLOWED
