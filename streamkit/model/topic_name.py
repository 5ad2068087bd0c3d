"""What Kafka takes as the name of a topic."""

import re

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


def legal_name(name: str) -> str:
    """A name like this one that Kafka takes."""
    return re.sub(r"[^a-zA-Z0-9._-]+", "-", name).strip("-.")[:TOPIC_NAME_MAX] or "orders"
