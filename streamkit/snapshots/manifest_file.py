"""The file of a manifest: written last and never replaced, read with suspicion.

What has no manifest is no snapshot, so a snapshot that was not finished is none. Whoever reads one first asks what
format it has, then whether it is as it was written, and then whether it makes sense.
"""

import hashlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from streamkit.errors import Misconfigured, SnapshotDamaged
from streamkit.model.ids import KEY_GROUPS
from streamkit.snapshots import layout
from streamkit.snapshots.manifest import (
    FORMAT_VERSION,
    UNDERSTOOD,
    Manifest,
    Part,
    Role,
    StagePart,
)
from streamkit.snapshots.store import AlreadyStored, NotStored, SnapshotStore
from streamkit.state.row_groups import EVERY_GROUP

_canonical = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(Manifest).decode

ANOTHER = "start from another savepoint; this one may be compared with a copy of it, if there is one"


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of its file, with its digest: the same for the same manifest."""
    content = msgspec.to_builtins(manifest, str_keys=True)
    content["digest"] = _digest(content)
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def decode_manifest(data: bytes, where: str) -> Manifest:
    """The manifest that the file `where` holds.

    Raises:
        SnapshotDamaged: it holds none, not the one that was written, or one that contradicts itself.
        Misconfigured: a newer release wrote it in a way that this one must not read.
    """
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(where, str(error)) from error
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise _damaged(where, "it does not say what format it has")
    _require_understood(content, where)
    if content.get("digest") != _digest(content):
        raise _damaged(where, "its content is not what its digest was made of")
    try:
        manifest = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(where, str(error)) from error
    for contradiction in contradictions(manifest):
        raise _damaged(where, contradiction)
    return manifest


def store_manifest(store: SnapshotStore, folder: str, manifest: Manifest) -> Manifest:
    """Complete the snapshot in this folder: all its files must be there. Doing it twice changes nothing.

    Raises:
        SnapshotDamaged: a file is missing or has another size, or the manifest contradicts itself.
        AlreadyStored: there is another manifest.
    """
    name = layout.manifest_file(folder)
    for contradiction in contradictions(manifest):
        raise _damaged(name, contradiction)
    sizes = {entry.name: entry.bytes for entry in store.list(folder)}
    for file in manifest.files():
        size = sizes.get(f"{folder}/{file.path}")
        if size != file.bytes:
            found = "is not there" if size is None else f"has {size} bytes"
            raise _damaged(name, f'"{file.path}" {found}; it should have {file.bytes} bytes')
    data = encode_manifest(manifest)
    try:
        store.create(name, data)
    except AlreadyStored:
        if store.get(name) != data:
            raise
    return decode_manifest(data, name)


def load_manifest(store: SnapshotStore, folder: str) -> Manifest:
    """The manifest of the snapshot in this folder.

    Raises:
        NotStored: there is none, so there is no such snapshot, or it was never finished.
        SnapshotDamaged: as `decode_manifest`.
    """
    name = layout.manifest_file(folder)
    try:
        data = store.get(name)
    except NotStored as error:
        raise NotStored(
            f'there is no snapshot "{folder}"',
            where=error.where,
            detail="a snapshot is there once its manifest is; one that was not finished has none",
            hint="look at which savepoints there are",
        ) from error
    return decode_manifest(data, name)


def contradictions(manifest: Manifest) -> Iterator[str]:
    """What cannot be as the manifest says it is."""
    if manifest.key_groups != KEY_GROUPS:
        yield f"it has {manifest.key_groups} key groups, and there are always {KEY_GROUPS}"
    paths: set[str] = set()
    for file in manifest.files():
        if not layout.is_rows_path(file.path):
            yield f'it names a file "{file.path}", which is not among its parts'
        if file.path in paths:
            yield f'it names the file "{file.path}" twice'
        paths.add(file.path)
    for name, stage in manifest.stages.items():
        yield from (f'stage "{name}": {each}' for each in _contradictions_of_stage(stage))


def _contradictions_of_stage(stage: StagePart) -> Iterator[str]:
    if sorted(part.task for part in stage.parts) != list(range(stage.tasks)):
        yield f"it had {stage.tasks} tasks, and its parts are of {[part.task for part in stage.parts]}"
    for name, store in stage.stores.items():
        if store.tasks > stage.tasks:
            yield f'store "{name}" was shared among {store.tasks} tasks of {stage.tasks}'
    for part in stage.parts:
        yield from _contradictions_of_part(part, stage)


def _contradictions_of_part(part: Part, stage: StagePart) -> Iterator[str]:
    owned = [store.groups(part.task) for store in stage.stores.values()]
    owned = [groups.common(EVERY_GROUP) for groups in owned if groups.common(EVERY_GROUP)]
    for file in part.files:
        first, last = file.groups
        if first > last or not owned or first < min(owned).first or last > max(each.last for each in owned):
            yield f'"{file.path}" has groups {file.groups} that task {part.task} did not own'
        if not file.rows:
            yield f'"{file.path}" has no rows'
    for role in Role:
        mine = [file.groups for file in part.files if file.role is role]
        if any(later.first < earlier.last for earlier, later in pairwise(mine)):
            yield f"the files of {role.value} of task {part.task} are not in the order of their groups"


def _require_understood(content: dict[str, Any], where: str) -> None:
    required = content.get("requires", [])
    missing = [each for each in required if each not in UNDERSTOOD] if isinstance(required, list) else []
    if content["format"] > FORMAT_VERSION or missing:
        words = ", ".join(f'"{each}"' for each in missing)
        raise Misconfigured(
            "a snapshot was written by a newer release of streamkit",
            where=where,
            detail=f"it needs a release that understands {words}"
            if missing
            else f"it has format {content['format']}, and this release reads up to {FORMAT_VERSION}",
            hint="start it with that release or a newer one",
        )


def _digest(content: dict[str, Any]) -> str:
    """Of all but itself, whatever the order of the fields and the space between them."""
    rest = {name: each for name, each in content.items() if name != "digest"}
    return hashlib.sha256(_canonical(rest)).hexdigest()


def _damaged(where: str, detail: str) -> SnapshotDamaged:
    return SnapshotDamaged("the manifest of a snapshot is damaged", where=where, detail=detail, hint=ANOTHER)
