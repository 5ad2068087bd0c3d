"""No module of streamkit needs another that needs it in turn, also within one package.

What counts is what runs when a module is imported: its own import statements outside of functions. That a module's package
is imported before it is Python's affair, and counts only where the package is named.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "streamkit"


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All that runs at import: branches, blocks and classes are entered, functions are not."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.iter_child_nodes(statement):
                if isinstance(inner, ast.stmt):
                    yield from statements([inner])
                elif isinstance(inner, ast.ExceptHandler | ast.match_case):
                    yield from statements(inner.body)


def needed(source: str, known: set[str]) -> set[str]:
    """The known modules that this source imports; `from a import b` means a.b where that is a module."""
    found = set()
    for statement in statements(ast.parse(source).body):
        match statement:
            case ast.Import(names=aliases):
                found |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=str(module), names=aliases):
                inner = {f"{module}.{alias.name}" for alias in aliases}
                found |= inner & known
                found |= {module} if inner - known else set()
            case _:
                pass
    return found & known


def imports() -> dict[str, set[str]]:
    sources = {module_name(path): path.read_text() for path in PACKAGE.rglob("*.py")}
    return {name: needed(source, set(sources)) for name, source in sources.items()}


def cycles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The largest groups of modules that all need each other."""
    reached = {name: reachable(name, graph) for name in graph}
    groups = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }
    return {group for group in groups if group}


def reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = [start]
    while left:
        new = graph[left.pop()] - found
        found |= new
        left += new
    return found


def test_no_modules_import_each_other() -> None:
    found = cycles(imports())
    assert not found, f"these need each other; move what both need below them: {sorted(map(sorted, found))}"


def test_a_cycle_is_found_however_long_and_the_way_to_it_is_no_part_of_it() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}, "e": {"e"}, "f": {"a"}}
    assert cycles(graph) == {frozenset("bcd"), frozenset("e")}


def test_imports_are_read_where_they_run() -> None:
    known = {"p", "p.a", "p.b", "p.c", "p.d", "p.e"}
    source = """
import p.a
from p import b, name
try:
    from p.c import something
except ImportError:
    import p.d
def later():
    import p.e
"""
    assert needed(source, known) == {"p", "p.a", "p.b", "p.c", "p.d"}
    assert needed("class A:\n    if True:\n        from p import e", known) == {"p.e"}
