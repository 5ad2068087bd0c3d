"""Documents that are not executed lie: the README's Python runs, its tables are compared with the code."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cyclopts import App

import streamkit as sk
from streamkit import runtime, task
from streamkit.cli.command import command_line
from streamkit.cli.ending import EXIT_ALL_DEAD
from streamkit.config import Settings
from streamkit.runtime.processes import EXIT_KILLED, EXIT_PERSON_MUST_ACT, EXIT_TRY_AGAIN
from streamkit.telemetry.metrics import WorkerMetrics
from streamkit.telemetry.status import WorkerStatus
from streamkit.testing import Harness
from tests.simulation.families import Family

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `([^`]+)` \| (.+?) \|(?: (.+?) \|)?$", re.MULTILINE)


def section(title: str) -> str:
    _, _, rest = README.partition(f"\n## {title}\n")
    assert rest, f"the README has no section {title!r}"
    return rest.partition("\n## ")[0]


def commands(of: App, prefix: str) -> set[str]:
    """Every command that does something, by its full name."""
    names = {name for name in of if not name.startswith("-")}
    inner = {name: commands(of[name], f"{prefix} {name}") for name in names}
    return {full for name in names for full in (inner[name] or {f"{prefix} {name}"})}


def test_the_python_of_the_readme_runs_from_top_to_bottom() -> None:
    blocks = BLOCK.findall(README)
    assert len(blocks) >= 4
    names: dict[str, object] = {"__name__": "readme"}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"README.md, Python block {number}", "exec"), names)


def test_the_operator_for_quiet_users_fires_when_traffic_stops() -> None:
    names: dict[str, Any] = {"__name__": "readme"}
    exec("\n".join(BLOCK.findall(README)), names)
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


def test_the_settings_table_names_every_setting_with_its_default() -> None:
    told = {name: default.strip("`") for name, default, _ in ROW.findall(section("Configuration"))}
    defaults = Settings()
    assert list(told) == list(Settings.__struct_fields__)
    for name, default in told.items():
        expected = getattr(defaults, name)
        wanted = "Security()" if name == "security" else repr(expected).replace("'", '"')
        assert default == wanted, f"{name} is {wanted}"


def test_the_command_table_names_every_command() -> None:
    told = [name for name, _, _ in ROW.findall(section("Operations")) if name.startswith("streamkit ")]
    assert sorted(told) == sorted(commands(command_line(), "streamkit"))


def test_the_table_of_exit_codes_names_every_code_that_is_used() -> None:
    told = {
        int(code)
        for row in re.findall(r"^\| ([\d, ]+) \|", section("Operations"), re.MULTILINE)
        for code in row.split(",")
    }
    assert told == {0, 1, 2, 3, EXIT_ALL_DEAD, EXIT_TRY_AGAIN, EXIT_PERSON_MUST_ACT, EXIT_KILLED}


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+) +#", README))
    assert "test-fast" in named
    assert named <= targets


def test_make_simulate_runs_every_family_of_seeds() -> None:
    (families,) = re.findall(r"^FAMILY \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert families.split() == [family.name.lower() for family in Family]


def test_the_table_of_metrics_names_every_metric() -> None:
    told = [name for name, _, _ in ROW.findall(section("Operations")) if name.startswith("streamkit_")]
    status = WorkerStatus(pipeline="p", commits=0, local_partitions=0, blocked_partitions=0, tasks=[])
    served = [
        f"{each.name}_total" if each.type == "counter" else each.name
        for each in WorkerMetrics(lambda: status).collect()
    ]
    assert sorted(told) == sorted(served)


@pytest.mark.parametrize("package", [runtime, task])
def test_every_file_has_its_place_in_the_list_of_its_package(package: ModuleType) -> None:
    listed = re.findall(r"^ *\w[\w ]*? {2,}(.+)$", package.__doc__ or "", re.MULTILINE)
    folder = ROOT / package.__name__.replace(".", "/")
    files = [each.stem for each in folder.glob("*.py") if each.stem != "__init__"]
    assert sorted(name for line in listed for name in line.split()) == sorted(files)
