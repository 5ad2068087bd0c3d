"""Layout: under which names a snapshot store keeps what. Nowhere else is one of these names made.

    <pipeline>/format.json
    <pipeline>/savepoints/<id>/manifest.json
    <pipeline>/savepoints/<id>/parts/<stage>/<task>/<first>-<last>.values.<digest>.sst      and the same with timers

Paths in a manifest begin where the manifest lies, so a savepoint may be copied as a folder. The name of a file has the
beginning of its digest: two owners of one task may both write its part, and neither touches what the other has told of.
"""

from streamkit.errors import Misuse
from streamkit.model.ids import TaskId
from streamkit.snapshots.store import is_name
from streamkit.state.row_groups import GroupRange

MANIFEST = "manifest.json"
_SAVEPOINTS = "savepoints"
_PARTS = "parts"
# Enough of a digest to tell files apart that were made of the same rows.
_DIGEST_CHARS = 16
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


def format_file(pipeline: str) -> str:
    """Says how the snapshots of a pipeline are laid out."""
    return f"{_word(pipeline)}/format.json"


def savepoints_folder(pipeline: str) -> str:
    """Below this are all savepoints of a pipeline."""
    return f"{_word(pipeline)}/{_SAVEPOINTS}"


def savepoint_folder(pipeline: str, savepoint: str) -> str:
    """Below this is one savepoint.

    Raises:
        Misuse: no savepoint has such an id.
    """
    if not is_name(savepoint) or "/" in savepoint:
        raise Misuse(
            f"{savepoint!r} is no id of a savepoint",
            detail="an id is one word of letters, digits and any of _ = - .",
            hint="copy the id as it was told when the savepoint was taken",
        )
    return f"{savepoints_folder(pipeline)}/{savepoint}"


def manifest_file(folder: str) -> str:
    """The manifest of the snapshot in this folder."""
    return f"{folder}/{MANIFEST}"


def savepoint_in(pipeline: str, name: str) -> str | None:
    """The id of the savepoint to which the content of this name belongs; None if it belongs to none."""
    words = name.removeprefix(f"{savepoints_folder(pipeline)}/").split("/")
    return words[0] if len(words) > 1 else None


def rows_path(task: TaskId, groups: GroupRange, role: str, sha256: str) -> str:
    """A file of rows, from where the manifest lies."""
    digest = sha256[:_DIGEST_CHARS]
    folder = f"{_PARTS}/{_word(task.stage)}/{task.partition}"
    return f"{folder}/{groups.first:04}-{groups.last:04}.{role}.{digest}.sst"


def is_rows_path(path: str) -> bool:
    """Whether a manifest may name a file so: it lies beside the manifest, in the folder of parts."""
    return is_name(path) and path.startswith(f"{_PARTS}/")


def _word(text: str) -> str:
    """Any name of a pipeline or a stage as a word of a name, and never two of them as the same."""
    quoted = "".join(chr(byte) if byte in _PLAIN else f"={byte:02X}" for byte in text.encode())
    return f"=2E{quoted[1:]}" if quoted.startswith(".") else quoted
