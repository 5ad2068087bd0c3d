"""Whether a stream may end in a topic: types that can be compared before the first record are compared here."""

import dataclasses
from typing import Any, get_args

import msgspec

from streamkit.codec.naming import is_union, plain_type, type_name, without_none
from streamkit.errors import InvalidPipeline
from streamkit.model.topic import Topic

_SCALARS = (str, bytes, int, float, bool)


def require_writable(value_type: Any, key_type: Any, topic: Topic[Any]) -> None:
    """Refuse what would put values or keys into a topic that its readers cannot read.

    Raises:
        InvalidPipeline: the types are known and do not fit.
    """
    if not _fits_value(value_type, topic.value_type):
        raise InvalidPipeline(
            f'topic "{topic.name}" holds values of type {type_name(topic.value_type)}, the stream has {type_name(value_type)}',
            hint="convert them with map() before write(), or declare the topic with the type you write",
        )
    if not _fits_key(key_type, topic.key_type):
        raise InvalidPipeline(
            f'topic "{topic.name}" has keys of type {type_name(topic.key_type)}, the stream has {type_name(key_type)}',
            hint=f"pass key=... to write(), or declare the topic with key={type_name(key_type)}",
        )


def _fits_value(written: Any, wanted: Any) -> bool:
    if written is None or plain_type(wanted) is Any:
        return True
    written, may_be_none = without_none(written)
    wanted, takes_none = without_none(wanted)
    if may_be_none and not takes_none:
        return False
    if not (_is_concrete(written) and _is_concrete(wanted)):
        return True  # only the records will tell
    return issubclass(written, wanted) or (written is int and wanted is float)


def may_be(given: Any, wanted: Any) -> bool:
    """Whether a value of one type may be one of another: False only where no value is both."""
    for had in _members(given):
        for taken in _members(wanted):
            if not (_is_concrete(had) and _is_concrete(taken)):
                return True
            if issubclass(had, taken) or issubclass(taken, had) or {had, taken} <= {int, float, bool}:
                return True
    return False


def _members(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, without None; of any other type itself."""
    inner, _ = without_none(annotation)
    return get_args(inner) if is_union(inner) else (inner,)


def _fits_key(written: Any, wanted: Any) -> bool:
    """A key keeps its bytes on the way out, so what matters is whether the topic's readers can read those."""
    if written is None:
        return True
    written, wanted = plain_type(written), plain_type(wanted)
    # Text, numbers and JSON are all UTF-8, and anything is bytes.
    return written == wanted or wanted in (bytes, Any) or (wanted is str and written is not bytes)


def _is_concrete(annotation: Any) -> bool:
    if not isinstance(annotation, type):
        return False
    return (
        annotation in _SCALARS
        or issubclass(annotation, msgspec.Struct)
        or dataclasses.is_dataclass(annotation)
    )
