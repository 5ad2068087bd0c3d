"""service.toml says what is true."""

import tomllib
from pathlib import Path

from streamkit.cli.load import load_pipeline
from streamkit.config import Settings
from streamkit.model.topic_file import read_topic_files

FOLDER = Path(__file__).resolve().parent
SERVICE = tomllib.loads((FOLDER / "service.toml").read_text())
DECLARED = {each.name: each.file for each in read_topic_files(FOLDER.parents[1] / "topics")}


def test_its_topics_are_those_of_the_pipeline() -> None:
    """And each is declared in topics/."""
    plan = load_pipeline(SERVICE["pipeline"]).plan()
    assert SERVICE["name"] == plan.name
    assert SERVICE["topics"]["reads"] == list(plan.sources())
    assert SERVICE["topics"]["writes"] == list(plan.sinks())
    assert {*plan.sources(), *plan.sinks()} <= DECLARED.keys()


def test_no_worker_would_be_idle() -> None:
    """A worker needs a partition."""
    partitions = max(DECLARED[topic].partitions for topic in SERVICE["topics"]["reads"])
    assert SERVICE["scale"]["workers"] <= SERVICE["scale"]["workers_max"] <= partitions


def test_its_settings_are_settings() -> None:
    """With the types that they have there."""
    environment = {f"STREAMKIT_{name.upper()}": str(value) for name, value in SERVICE["settings"].items()}
    settings = Settings.load(environment=environment)
    assert {name: getattr(settings, name) for name in SERVICE["settings"]} == SERVICE["settings"]
