"""What Kafka takes as the name of a topic."""

import difflib
import re
from collections.abc import Iterable

TOPIC_NAME_MAX = 249
ALLOWED = 'letters, digits, ".", "-" and "_"'

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: object) -> str:
    """Why this cannot be the name of a topic; empty if it can."""
    if not isinstance(name, str):
        return f"a name is text, not a {type(name).__name__}"
    if not name or name in (".", ".."):
        return "Kafka has no topic of this name"
    if not _NAME.fullmatch(name):
        others = "".join(dict.fromkeys(each for each in name if not _NAME.fullmatch(each)))
        return f"Kafka does not take {others!r} in it"
    if len(name) > TOPIC_NAME_MAX:
        return f"it has {len(name)} characters, and Kafka takes {TOPIC_NAME_MAX}"
    return ""


def did_you_mean(name: str, there: Iterable[str]) -> str:
    """The beginning of a hint, if a name that there is comes near to one that there is not."""
    near = difflib.get_close_matches(name, list(there), n=1)
    return f'did you mean "{near[0]}"? or ' if near else ""


def legal_name(name: str) -> str:
    """A name like this one that Kafka takes."""
    return re.sub(r"[^a-zA-Z0-9._-]+", "-", name).strip("-.")[:TOPIC_NAME_MAX] or "orders"
