"""Style that is not executed rots: the rules of the house, each a test that lists file and line.

A rule looks at what a fresh clone would hold: files that git tracks, and new ones that it does not ignore.
"""

import ast
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("streamkit/", "services/")

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
POSITIONAL_MAX = 6
PARAMETERS_MAX = 8  # the two beyond six must be keyword-only, so that each call names them
PUBLIC_METHODS_MAX = 15
# The fluent builders are the user's vocabulary: one short method per operator, no behaviour behind it.
BUILDERS = {"Stream", "Keyed"}
BUILDER_METHODS_MAX = 25

BANNED_MODULES = {"utils", "helpers", "common", "base", "core", "manager", "misc"}
BANNED_CLASSES = re.compile(r"Abstract|.*(Impl|Manager)$")
# Reading any of these can run code that the bytes chose.
BANNED_IMPORTS = {"pickle", "marshal", "dill", "cloudpickle"}
BANNED_YAML = {"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"}

UNFINISHED = re.compile(r"NotImplementedError|TODO|FIXME|XXX")
REGISTRY_HOST = re.compile(
    r"pypi\.org|pythonhosted\.|registry\.npmjs\.|repo1?\.maven\.|maven\.org/|deb\.debian\.|crates\.io/api"
)
MACHINE_PATH = re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm|root)/")
# A whole backticked span that reads as a path, perhaps with a test's name or a line behind it.
CITED = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?)(?:::\w+|:\d+)?`")
CITED_ENDINGS = (".py", ".md", ".toml", ".yaml", "/")
TOP_LEVEL = re.compile(
    r"pyproject\.toml|streamkit|services|topics|docker|tests|examples|README\.md|LICENSE|CHANGELOG\.md|Makefile"
    r"|SECURITY\.md|\.ci|\.github|\.gitignore|\.dockerignore|\.python-version|.*\.lock|requirements.*\.txt"
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Named = Function | ast.ClassDef


# What a clone would hold.


@cache
def ignored_names() -> tuple[str, ...]:
    entries = (ROOT / ".gitignore").read_text().splitlines()
    return tuple(entry.rstrip("/") for entry in entries if entry and not entry.startswith("#"))


def is_ignored(path: str) -> bool:
    """Whether a part of the path is named in .gitignore, whose lines are all plain names or globs."""
    return any(fnmatch(part, name) for part in path.split("/") for name in ignored_names())


@cache
def files() -> tuple[str, ...]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
        listed = answer.stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):  # no git, or an unpacked archive
        found = (path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*"))
        listed = [name for name in found if not name.startswith(".git/") and not is_ignored(name)]
    return tuple(sorted(name for name in set(listed) if (ROOT / name).is_file()))


@cache
def folders() -> frozenset[str]:
    return frozenset(str(parent) for name in files() for parent in PurePosixPath(name).parents)


@cache
def lines(name: str) -> tuple[str, ...]:
    content = (ROOT / name).read_bytes()
    return () if b"\0" in content else tuple(content.decode(errors="replace").split("\n"))


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_bytes(), filename=name)


def modules(*tops: str) -> list[str]:
    return [name for name in files() if name.endswith(".py") and name.startswith(tops or "")]


def nodes(*tops: str) -> Iterator[tuple[str, ast.AST]]:
    return ((name, node) for name in modules(*tops) for node in ast.walk(tree(name)))


def functions(*tops: str) -> Iterator[tuple[str, Function]]:
    return ((name, node) for name, node in nodes(*tops) if isinstance(node, Function))


def classes(*tops: str) -> Iterator[tuple[str, ast.ClassDef]]:
    return ((name, node) for name, node in nodes(*tops) if isinstance(node, ast.ClassDef))


def public_methods(node: ast.ClassDef) -> set[str]:
    """By name, so that overloads and a property's setter count once."""
    return {each.name for each in node.body if isinstance(each, Function) and not each.name.startswith("_")}


def matches(pattern: re.Pattern[str], names: Iterable[str]) -> Iterator[str]:
    for name in names:
        for number, line in enumerate(lines(name), 1):
            if pattern.search(line):
                yield f"{name}:{number}: {line.strip()[:120]}"


def none_of(findings: Iterable[str], rule: str) -> None:
    if found := list(findings):
        pytest.fail("\n  ".join([f"{rule}:", *found]), pytrace=False)


# Sizes.


def test_every_file_fits_in_400_lines() -> None:
    long = ((name, (ROOT / name).read_bytes().count(b"\n")) for name in modules())
    none_of(
        (f"{name}:{count}: {count} lines" for name, count in long if count > FILE_LINES_MAX),
        f"a file has at most {FILE_LINES_MAX} lines; split by idea, not by size",
    )


def test_every_function_fits_in_60_lines() -> None:
    sizes = ((name, node, (node.end_lineno or 0) - node.lineno + 1) for name, node in functions(*PRODUCT))
    none_of(
        (
            f"{name}:{node.lineno}: {node.name} has {size}"
            for name, node, size in sizes
            if size > FUNCTION_LINES_MAX
        ),
        f"a function has at most {FUNCTION_LINES_MAX} lines",
    )


def count_parameters(function: Function) -> tuple[int, int]:
    """How many parameters a call may give by position, and how many there are in all; self and cls are free."""
    given = function.args
    positional = [argument.arg for argument in given.posonlyargs + given.args]
    counted = len(positional) - (positional[:1] in (["self"], ["cls"]))
    return counted, counted + len(given.kwonlyargs) + bool(given.vararg) + bool(given.kwarg)


def test_no_function_takes_more_than_six_parameters_and_two_named_ones() -> None:
    counts = ((name, node, *count_parameters(node)) for name, node in functions("streamkit/"))
    none_of(
        (
            f"{name}:{node.lineno}: {node.name} has {total}, {positional} of them positional"
            for name, node, positional, total in counts
            if positional > POSITIONAL_MAX or total > PARAMETERS_MAX
        ),
        f"at most {POSITIONAL_MAX} positional parameters and {PARAMETERS_MAX} in all; then a struct",
    )


def test_no_class_has_more_than_15_public_methods() -> None:
    def allowed(name: str, node: ast.ClassDef) -> int:
        is_builder = name.startswith("streamkit/graph/") and node.name in BUILDERS
        return BUILDER_METHODS_MAX if is_builder else PUBLIC_METHODS_MAX

    counts = ((name, node, len(public_methods(node))) for name, node in classes("streamkit/"))
    none_of(
        (
            f"{name}:{node.lineno}: {node.name} has {count}"
            for name, node, count in counts
            if count > allowed(name, node)
        ),
        f"a class has at most {PUBLIC_METHODS_MAX} public methods",
    )


# Names and words.


def explains_itself(node: Named) -> bool:
    """A docstring, a decorator that says the words are elsewhere, or a protocol's attribute: a property of `...`."""
    decorators = [ast.unparse(each) for each in node.decorator_list]
    is_attribute = "property" in decorators and [ast.unparse(each) for each in node.body] == ["..."]
    elsewhere = ("override", "overload", ".setter", ".deleter")
    return (
        bool(ast.get_docstring(node)) or is_attribute or any(each.endswith(elsewhere) for each in decorators)
    )


def silent(body: list[ast.stmt]) -> Iterator[Named]:
    for node in body:
        if isinstance(node, Named) and not node.name.startswith("_"):
            if not explains_itself(node):
                yield node
            if isinstance(node, ast.ClassDef):
                yield from silent(node.body)


def test_every_module_says_what_it_is_for() -> None:
    none_of(
        (f"{name}:1" for name in modules("streamkit/") if not ast.get_docstring(tree(name))),
        "a module opens with a docstring",
    )


def test_every_public_class_and_function_has_a_docstring() -> None:
    none_of(
        (
            f"{name}:{node.lineno}: {node.name}"
            for name in modules("streamkit/")
            for node in silent(tree(name).body)
        ),
        "a public class, function or method has a docstring",
    )


def test_no_module_has_a_name_that_says_nothing() -> None:
    def last_words(name: str) -> set[str]:
        return {part.split("_")[-1] for part in PurePosixPath(name).with_suffix("").parts}

    none_of(
        (f"{name}:1: {word}" for name in modules() for word in last_words(name) & BANNED_MODULES),
        "a module is named for what it does",
    )


def test_no_class_is_named_for_its_layer() -> None:
    none_of(
        (f"{name}:{node.lineno}: {node.name}" for name, node in classes() if BANNED_CLASSES.match(node.name)),
        "no Abstract…, …Impl, …Manager: a protocol is named for its role, an implementation for its material",
    )


def test_no_product_code_carries_an_unfinished_mark() -> None:
    none_of(
        matches(UNFINISHED, (name for name in files() if name.startswith(PRODUCT))),
        "finish it, or leave it out",
    )


# Imports.


def imported(*tops: str) -> Iterator[tuple[str, int, str]]:
    """Every dotted name that a module brings in or reads from another: file, line, name."""
    for name, node in nodes(*tops):
        match node:
            case ast.Import(names=aliases):
                yield from ((name, node.lineno, alias.name) for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases):
                yield from ((name, node.lineno, f"{module}.{alias.name}") for alias in aliases)
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
                yield name, node.lineno, f"{owner}.{attribute}"
            case _:
                pass


def can_run_code(dotted: str) -> bool:
    module, _, member = dotted.partition(".")
    return module in BANNED_IMPORTS or (module == "yaml" and member in BANNED_YAML)


def test_no_product_code_reads_bytes_that_can_run_code() -> None:
    none_of(
        (f"{name}:{line}: {dotted}" for name, line, dotted in imported(*PRODUCT) if can_run_code(dotted)),
        "no pickle and its kin: reading them runs what the bytes say",
    )


def test_no_import_hides_behind_type_checking() -> None:
    none_of(
        (
            f"{name}:{line}: {dotted}"
            for name, line, dotted in imported()
            if dotted.endswith(".TYPE_CHECKING")
        ),
        "no TYPE_CHECKING: if two modules need each other's types, the layer is wrong",
    )


# Who may do what.

# Where a reader is pointed at partitions that nobody else reads: changelogs, and what tests look at.
OWN_READERS = {
    "streamkit/runtime/restore.py",
    "streamkit/runtime/last_commits.py",
    "streamkit/testing/received.py",
}


def orders_to_readers() -> Iterator[tuple[str, int, str]]:
    """Where a reader is told to pause, to resume or to read from a place: file, line, method."""
    for name, node in nodes("streamkit/"):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=who) | ast.Attribute(attr=who), attr=method)):
                if who.strip("_") == "reader" and method in {"pause", "resume", "seek"}:
                    yield name, node.lineno, method
            case _:
                pass


def test_only_the_owner_of_pauses_says_what_is_read() -> None:
    owner = "streamkit/runtime/pauses.py"
    orders = list(orders_to_readers())
    assert {method for name, _, method in orders if name == owner} == {"pause", "resume", "seek"}
    none_of(
        (
            f"{name}:{line}: {method}"
            for name, line, method in orders
            if name != owner and not (method == "seek" and name in OWN_READERS)
        ),
        "a partition is held and read through `runtime/pauses.py`, which knows who else has a reason",
    )


# Documents.


def docstrings(name: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Module | Named) and (text := ast.get_docstring(node, clean=False)):
            yield from enumerate(text.split("\n"), node.body[0].lineno)


def prose() -> Iterator[tuple[str, int, str]]:
    for name in files():
        if name.endswith(".md"):
            yield from ((name, number, line) for number, line in enumerate(lines(name), 1))
    for name in modules("streamkit/"):
        yield from ((name, number, line) for number, line in docstrings(name))


def exists(cited: str, name: str) -> bool:
    known = folders() if cited.endswith("/") else files()
    starts = (".", "streamkit", str(PurePosixPath(name).parent))
    return any(os.path.normpath(f"{start}/{cited}") in known for start in starts)


def test_every_path_cited_in_documents_and_docstrings_exists() -> None:
    cited = ((name, number, path) for name, number, line in prose() for path in CITED.findall(line))
    paths = (
        each
        for each in cited
        if "/" in each[2] and each[2].endswith(CITED_ENDINGS) and not is_ignored(each[2])
    )
    none_of(
        (f"{name}:{number}: {path}" for name, number, path in paths if not exists(path, name)),
        "a path in backticks exists, from the root, from streamkit/ or from beside the text",
    )


def test_the_readme_shows_how_to_see_it_and_how_to_test_it() -> None:
    text = "\n".join(lines("README.md")) if "README.md" in files() else ""
    none_of(
        (f"README.md:1: no `{command}`" for command in ("make demo", "make test") if command not in text),
        "the README shows both commands",
    )


# The tree.


def test_no_file_names_a_package_registry() -> None:
    none_of(matches(REGISTRY_HOST, files()), "a clone works with whatever registry its machine is set to")


def test_no_file_holds_a_path_of_the_machine_it_was_written_on() -> None:
    none_of(
        matches(MACHINE_PATH, (name for name in files() if not name.endswith(".lock"))),
        "a clone works in any folder",
    )


def test_the_top_level_holds_only_what_it_must() -> None:
    tops = {name.split("/")[0] for name in files()}
    none_of(
        (f"{top}:1" for top in sorted(tops) if not TOP_LEVEL.fullmatch(top)),
        "beside the seven folders and files of the house stands only what tools insist on",
    )
