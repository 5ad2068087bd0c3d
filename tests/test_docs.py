"""The Python of README and guides runs, and their tables, commands and links are compared with the code."""

import ast
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from cyclopts import App

import streamkit as sk
from streamkit import runtime, task
from streamkit.cli.command import command_line
from streamkit.cli.ending import EXIT_ALL_DEAD
from streamkit.config import OTHER_VARIABLES, Security, Settings
from streamkit.model.by_hand import wanted_of
from streamkit.runtime.processes import EXIT_KILLED, EXIT_PERSON_MUST_ACT, EXIT_TRY_AGAIN
from streamkit.telemetry.metrics import WorkerMetrics
from streamkit.telemetry.status import WorkerStatus
from streamkit.testing import Harness
from tests.cli.test_hints import can_be_run
from tests.simulation.families import Family
from tests.test_errors import error_codes

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
DECISIONS = (ROOT / "streamkit" / "DECISIONS.md").read_text()
GUIDES = {path.stem: path.read_text() for path in sorted((ROOT / "streamkit" / "guides").glob("*.md"))}
DOCUMENTS = {"README.md": README, **{f"streamkit/guides/{name}.md": text for name, text in GUIDES.items()}}
# All but the outermost, whose docstring is for users.
PACKAGES = sorted(
    str(path.parent.relative_to(ROOT)) for path in (ROOT / "streamkit").glob("*/**/__init__.py")
)

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `([^`]+)` \| (.+?) \|(?: (.+?) \|)?(?: (.+?) \|)?$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)\)")
# In the text, and as a line of an example, perhaps behind variables; a line ends where its comment begins, or the pipe.
INLINE_COMMAND = re.compile(r"`(?:streamkit |(?=topics |offsets ))([^`]+)`")
EXAMPLE_COMMAND = re.compile(r"^    (?:[A-Z_]+=\S+ )*streamkit ([^#>|\n]+)", re.MULTILINE)
COMMANDS = sorted(
    {
        (name, " ".join(command.split()))
        for name, text in DOCUMENTS.items()
        for pattern in (INLINE_COMMAND, EXAMPLE_COMMAND)
        for command in pattern.findall(text)
    }
)
TITLE = r'"[^"]+"'
STATUS = re.compile(
    rf"Status: (?:holds|(?:partly )?struck by ({TITLE}(?:, {TITLE})*))\.(?: Formerly {TITLE}\.)?"
)


def section(title: str, text: str = README) -> str:
    _, _, rest = text.partition(f"\n## {title}\n")
    assert rest, f"there is no section {title!r}"
    return rest.partition("\n## ")[0]


def commands(of: App, prefix: str) -> set[str]:
    """Every command that does something, by its full name."""
    names = {name for name in of if not name.startswith("-")}
    inner = {name: commands(of[name], f"{prefix} {name}") for name in names}
    return {full for name in names for full in (inner[name] or {f"{prefix} {name}"})}


@pytest.mark.parametrize("name", [name for name, text in DOCUMENTS.items() if BLOCK.search(text)])
def test_the_python_of_a_document_runs_from_top_to_bottom(name: str) -> None:
    names: dict[str, object] = {"__name__": "document"}
    for number, block in enumerate(BLOCK.findall(DOCUMENTS[name]), 1):
        exec(compile(block, f"{name}, Python block {number}", "exec"), names)


def test_the_documents_that_need_examples_have_them() -> None:
    assert {
        "README.md",
        *(f"streamkit/guides/{each}.md" for each in ("concepts", "state", "windows", "errors", "testing")),
    } <= {name for name, text in DOCUMENTS.items() if BLOCK.search(text)}


def test_the_operator_for_quiet_users_fires_when_traffic_stops() -> None:
    names: dict[str, Any] = {"__name__": "document"}
    exec("\n".join(BLOCK.findall(GUIDES["windows"])), names)
    pipeline, quiet = sk.pipeline("quiet"), sk.topic("quiet-users", str)
    keyed = pipeline.read(names["visits"]).key_by(lambda visit: visit.user)
    keyed.process(names["Quiet"]()).write(quiet)
    with Harness(pipeline, partitions=1) as harness:
        for seconds in (0, 30):
            harness.advance(seconds)
            harness.send(names["visits"], names["Visit"]("ann", "home", harness.now_ms))
            harness.run()
        harness.advance(50)
        assert harness.read(quiet) == []
        harness.advance(20)
        assert harness.read(quiet) == ["ann"]


@pytest.mark.parametrize(("title", "struct"), [("All settings", Settings), ("Security", Security)])
def test_the_table_of_settings_names_every_one_with_its_default_and_bounds(
    title: str, struct: type[msgspec.Struct]
) -> None:
    defaults = struct()
    wanted = []
    for name in struct.__struct_fields__:
        default = getattr(defaults, name)
        shown = "Security()" if name == "security" else repr(default).replace("'", '"')
        wanted.append((name, f"`{shown}`", bounds_of(struct, name)))
    assert [row[:3] for row in ROW.findall(section(title, GUIDES["settings"]))] == wanted


def bounds_of(struct: type[msgspec.Struct], name: str) -> str:
    """What a value must be, as the table has it: from least to most, or the choices."""
    words = wanted_of(struct, name).removeprefix("a table") or "table"
    if numbers := re.search(r" between (\S+) and (\S+)$", words):
        return f"{numbers[1]} to {numbers[2]}"
    return re.sub(r'"(\w[\w-]*)"', r"`\1`", words)


def test_the_settings_file_of_the_guide_can_be_loaded(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```$", GUIDES["settings"], re.MULTILINE | re.DOTALL)
    (tmp_path / "production.toml").write_text(block)
    settings = Settings.load(tmp_path / "production.toml", {})
    assert settings.security.protocol == "SASL_SSL"


def test_the_other_variables_of_the_settings_guide_are_read_by_us() -> None:
    told = [name for name, *_ in ROW.findall(section("Other variables", GUIDES["settings"]))]
    of_ours_alone = {"STREAMKIT_WORKER_COUNT", "STREAMKIT_WORKER_NUMBER"}  # a parent tells its workers
    assert sorted(told) == sorted(OTHER_VARIABLES - of_ours_alone)


def test_the_table_of_commands_names_every_command() -> None:
    told = [name for name, *_ in ROW.findall(section("Operate")) if name.startswith("streamkit ")]
    assert sorted(told) == sorted(commands(command_line(), "streamkit"))


def test_documents_name_commands() -> None:
    assert len(COMMANDS) > 30


@pytest.mark.parametrize(
    ("name", "command"), COMMANDS, ids=[f"{name} {command}" for name, command in COMMANDS]
)
def test_a_command_in_a_document_can_be_run(name: str, command: str) -> None:
    if command.endswith("--help"):
        shown = f"streamkit {command.removesuffix('--help')}".strip()
        assert any(f"{each} ".startswith(f"{shown} ") for each in commands(command_line(), "streamkit"))
    else:
        assert can_be_run(command), f"{name}: streamkit {command}"


def test_the_table_of_exit_codes_names_every_code_that_is_used() -> None:
    table = section("Exit codes", GUIDES["errors"])
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    assert told == {0, 1, 2, 3, EXIT_ALL_DEAD, EXIT_TRY_AGAIN, EXIT_PERSON_MUST_ACT, EXIT_KILLED}


def test_the_table_of_error_codes_names_every_code() -> None:
    told = [code for code, *_ in ROW.findall(GUIDES["errors"]) if code.startswith("SK")]
    assert told == sorted(error_codes())


def test_every_guide_says_in_one_line_what_it_is_about_and_is_in_the_readme() -> None:
    for name, text in GUIDES.items():
        title, about, _ = text.split("\n\n", 2)
        assert title.startswith("# ")
        assert "\n" not in about
        assert about.endswith("."), name
    assert sorted(re.findall(r"^\| \[(\w+)\]", section("Guides"), re.MULTILINE)) == sorted(GUIDES)


def test_every_link_in_a_document_leads_somewhere() -> None:
    links = [(name, link) for name, text in DOCUMENTS.items() for link in LINK.findall(text)]
    assert len(links) > 20
    assert [(name, link) for name, link in links if not ((ROOT / name).parent / link).is_file()] == []


def walk_of(package: ModuleType) -> list[str]:
    """The files that a package counts to the walk of a record, in its order."""
    (line,) = re.findall(r"^the walk +(.+)$", package.__doc__ or "", re.MULTILINE)
    files: list[str] = line.split()
    return files


def drawn_of(package: ModuleType) -> list[str]:
    """The files of a package in the drawing of the walk, from top to bottom: a folder, files, and words about them."""
    drawing = section("How a record walks", GUIDES["concepts"]).split("```")[1]
    drawn, folder = [], ""
    for named, files in re.findall(r"^(\w+/)? +(\w+(?: ▸ \w+)*)", drawing, re.MULTILINE):
        folder = named or folder
        if folder == f"{package.__name__.rpartition('.')[2]}/":
            drawn += files.split(" ▸ ")
    return drawn


@pytest.mark.parametrize("package", [runtime, task])
def test_the_walk_of_a_record_names_the_files_of_a_package_in_their_order(package: ModuleType) -> None:
    told, folder = section("How a record walks", GUIDES["concepts"]), package.__name__.replace(".", "/")
    first = {stem: told.find(f"`{folder}/{stem}.py`") for stem in walk_of(package)}
    assert [stem for stem, at in first.items() if at < 0] == []
    assert sorted(first, key=first.__getitem__) == walk_of(package)
    drawn = drawn_of(package)
    assert len(drawn) > 5
    assert drawn == [stem for stem in walk_of(package) if stem in drawn]


def test_every_decision_has_a_status_and_names_later_ones_that_struck_it() -> None:
    parts = re.split(r"^## \d{4}-\d\d-\d\d (.+)\n", DECISIONS, flags=re.MULTILINE)
    titles, bodies = parts[1::2], parts[2::2]
    assert len(titles) == DECISIONS.count("\n## ")
    for at, (title, body) in enumerate(zip(titles, bodies, strict=True)):
        status = STATUS.fullmatch(body.split("\n", 1)[0])
        assert status, f"the first line of {title!r} is its status"
        struck_by = re.findall(r'"([^"]+)"', status[1] or "")
        assert set(struck_by) <= set(titles[at + 1 :]), title


def test_every_decision_stands_once_in_the_index_by_theme() -> None:
    index, _, bodies = DECISIONS.partition("\n## ")
    listed = re.findall(r"^  - \[(.+)\]\(#([^)]+)\)(?: \(struck\))?$", index, re.MULTILINE)
    headings = re.findall(r"^## (\S+ (.+))$", f"## {bodies}", re.MULTILINE)
    anchors = {
        title: re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading, title in headings
    }
    assert sorted(title for title, _ in listed) == sorted(anchors)
    assert dict(listed) == anchors


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+) +#", README))
    assert "test-fast" in named
    assert named <= targets


def test_make_simulate_runs_every_family_of_seeds() -> None:
    (families,) = re.findall(r"^FAMILY \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert families.split() == [family.name.lower() for family in Family]


def test_the_table_of_metrics_names_every_metric() -> None:
    told = [name for name, *_ in ROW.findall(section("Metrics and logs", GUIDES["deploy"]))]
    status = WorkerStatus(pipeline="p", commits=0, local_partitions=0, blocked_partitions=0, tasks=[])
    served = [
        f"{each.name}_total" if each.type == "counter" else each.name
        for each in WorkerMetrics(lambda: status).collect()
    ]
    assert sorted(told) == sorted(served)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_has_its_place_in_the_list_of_its_package(package: str) -> None:
    folder = ROOT / package
    described = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    listed = re.findall(r"^\w[\w ]*? {2,}(.+)$", described, re.MULTILINE)
    files = [each.stem for each in folder.glob("*.py") if each.stem != "__init__"]
    assert sorted(name for line in listed for name in line.split()) == sorted(files)


def test_the_last_three_are_the_last_three() -> None:
    names: dict[str, Any] = {"__name__": "document"}
    for number, block in enumerate(BLOCK.findall(GUIDES["state"]), 1):
        exec(compile(block, f"state, Python block {number}", "exec"), names)
    out = sk.topic("last-three", str)
    pipeline = sk.pipeline("last-three")
    read = pipeline.read(names["clicks"]).key_by(lambda click: click.user, key_type=str)
    read.process(names["LastThree"]()).write(out)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(names["clicks"], *(names["Click"]("ann", page) for page in "abcd"))
        harness.run()
        assert harness.read(out) == ["a", "a b", "a b c", "b c d"]
