"""A folder with a service, and the real `streamkit` command in it."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).with_name("streamkit"))

PIPELINE = """
import msgspec
import streamkit as sk


class View(msgspec.Struct):
    page: str


views = sk.topic("{views}", View)
counts = sk.topic("{counts}", int)
page_views = sk.pipeline("{name}")
page_views.read(views).key_by(lambda view: view.page, key_type=str, name="by_page").count(name="per_page").write(counts)
"""


class Workspace:
    """A folder as a user has it: one service, its topic files, and names that no other test uses."""

    command = COMMAND
    target = "services.page_views.pipeline:page_views"

    def __init__(self, folder: Path, brokers: str) -> None:
        mark = uuid.uuid4().hex[:8]
        self.folder = folder
        self.brokers = brokers
        self.name = f"count-{mark}"
        self.views = f"views-{mark}"
        self.counts = f"counts-{mark}"
        module = folder / "services" / "page_views" / "pipeline.py"
        module.parent.mkdir(parents=True)
        module.write_text(PIPELINE.format(views=self.views, counts=self.counts, name=self.name))
        (folder / "topics").mkdir()
        self.declare(self.views, "partitions = 2\nowner = 'tests'")
        self.declare(self.counts, "partitions = 2\n[config]\ncleanup.policy = 'compact'")

    def declare(self, topic: str, content: str) -> None:
        (self.folder / "topics" / f"{topic}.toml").write_text(content)

    def environment(self, **extra: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STREAMKIT_")}
        return {**kept, "STREAMKIT_BROKERS": self.brokers, "COLUMNS": "100", **extra}

    def run(self, *arguments: str, **extra: str) -> "subprocess.CompletedProcess[str]":
        """The command, run to its end."""
        return subprocess.run(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=self.environment(**extra),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


MakeWorkspace = Callable[[str], Workspace]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Without a broker: nobody listens on port 9."""
    return Workspace(tmp_path, "127.0.0.1:9")


@pytest.fixture
def make_workspace(tmp_path: Path) -> MakeWorkspace:
    return lambda brokers: Workspace(tmp_path, brokers)
