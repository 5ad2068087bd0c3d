"""A topic as a file declares it: `topics/<name>.toml`. Reading files only; no broker is asked here."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import structlog
from msgspec import Meta

from streamkit.errors import Misconfigured
from streamkit.model.by_hand import Written, read_value, unknown
from streamkit.model.topic_name import ALLOWED, TOPIC_NAME_MAX, name_problem

log = structlog.get_logger()

ENDING = ".toml"
# People who come from other tools write these.
OTHER_ENDINGS = (".yaml", ".yml", ".json")

# Kafka counts partitions in 32 bits, and replicas in 16.
Partitions = Annotated[int, Meta(ge=1, le=2_147_483_647)]
Replicas = Annotated[int, Meta(ge=1, le=32_767)]


class TopicFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One declared topic. `key`, `value`, `owner` and `description` are words for people.

    `replication` is left to the broker unless given. Entries of `config` that are not named here are left alone.
    """

    partitions: Partitions
    name: str = ""
    replication: Replicas | None = None
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
    """All topics that `*.toml` in this folder declare, sorted by name. Hidden files are those of editors, and no topics.

    Raises:
        Misconfigured: there is no such folder, a file cannot be read, or two files declare the same topic; or one would
            be a topic file if its ending were written small.
    """
    if not folder.is_dir():
        raise Misconfigured(
            f'folder "{folder}" does not exist',
            hint="name the folder that holds your topic files with --dir; each topic is one <name>.toml",
        )
    shown = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    files = [path for path in shown if path.suffix.lower() == ENDING]
    for path in shown:
        if path.suffix.lower() in OTHER_ENDINGS:
            log.warning(
                "a file is passed over: topic files are TOML",
                file=str(path),
                hint=f"rename it to {path.stem}{ENDING}",
            )
    declared = [_declared(path) for path in files]
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
    for key in table:
        if key not in TopicFile.__struct_fields__:
            raise unknown("key of a topic file", key, TopicFile.__struct_fields__, where=path)
    if "partitions" not in table:
        raise Misconfigured(
            "topic file does not say partitions", where=path, hint="write for example `partitions = 4`"
        )
    given = {key: Written(key, value, path) for key, value in table.items()}
    return TopicFile(**{key: read_value(TopicFile, key, each, is_text=False) for key, each in given.items()})


def _declared(path: Path) -> DeclaredTopic:
    if path.suffix != ENDING:
        raise Misconfigured(
            f'"{path.name}" is not a topic file: its ending is "{path.suffix}"',
            where=str(path),
            hint=f'rename it to "{path.stem}{ENDING}", or move it out of the folder',
        )
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
