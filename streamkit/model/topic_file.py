"""A topic as a file declares it: `topics/<name>.toml`. Reading files only; no broker is asked here."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from streamkit.errors import Misconfigured
from streamkit.model.topic_name import ALLOWED, TOPIC_NAME_MAX, name_problem


class TopicFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One declared topic. `key`, `value`, `owner` and `description` are words for people.

    `replication` is left to the broker unless given. Entries of `config` that are not named here are left alone.
    """

    partitions: int
    name: str = ""
    replication: int | None = None
    config: dict[str, str] = {}
    owner: str = ""
    description: str = ""
    key: str = ""
    value: str = ""


class DeclaredTopic(msgspec.Struct, frozen=True):
    """A topic file and where it was read."""

    path: str
    file: TopicFile

    @property
    def name(self) -> str:
        """The topic's name: what the file says, else what the file is called."""
        return self.file.name or Path(self.path).stem


def read_topic_files(folder: Path) -> list[DeclaredTopic]:
    """All topics that `*.toml` in this folder declare, sorted by name.

    Raises:
        Misconfigured: there is no such folder, a file cannot be read, or two files declare the same topic.
    """
    if not folder.is_dir():
        raise Misconfigured(
            f'folder "{folder}" does not exist',
            hint="name the folder that holds your topic files with --dir; each topic is one <name>.toml",
        )
    declared = [_declared(path) for path in sorted(folder.glob("*.toml"))]
    _require_unique(declared)
    return sorted(declared, key=lambda each: each.name)


def parse_topic(text: str, path: str) -> TopicFile:
    """The content of one topic file.

    Raises:
        Misconfigured: it is not TOML, has a key that means nothing, or a value that cannot be.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured("topic file is not TOML", where=path, detail=str(error)) from None
    if isinstance(table.get("config"), dict):
        table["config"] = _flat(table["config"])
    try:
        return msgspec.convert(table, TopicFile)
    except msgspec.ValidationError as error:
        raise Misconfigured(
            f"topic file: {error}",
            where=path,
            hint=f"a topic file may say: {', '.join(TopicFile.__struct_fields__)}",
        ) from None


def _declared(path: Path) -> DeclaredTopic:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured("topic file cannot be read", where=str(path), detail=str(error)) from None
    topic = DeclaredTopic(str(path), parse_topic(text, str(path)))
    if problem := name_problem(topic.name):
        raise Misconfigured(
            f'"{topic.name}" cannot be the name of a topic',
            where=topic.path,
            detail=problem,
            hint=f'use up to {TOPIC_NAME_MAX} of {ALLOWED}: in the name of the file, or as name = "..." in it',
        )
    for field, count in (("partitions", topic.file.partitions), ("replication", topic.file.replication)):
        if count is not None and count < 1:
            raise Misconfigured(f"{field} is {count}, but a topic has at least 1", where=topic.path)
    return topic


def _require_unique(topics: Iterable[DeclaredTopic]) -> None:
    seen: dict[str, str] = {}
    for topic in topics:
        if topic.name in seen:
            raise Misconfigured(
                f'topic "{topic.name}" is declared twice', where=f"{seen[topic.name]} and {topic.path}"
            )
        seen[topic.name] = topic.path


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Kafka's names have dots, which TOML reads as tables unless quoted: both spellings mean the same here."""
    entries: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            entries.update(_flat(value, f"{prefix}{name}."))
        else:
            entries[f"{prefix}{name}"] = str(value).lower() if isinstance(value, bool) else str(value)
    return entries
