"""What happens to a record that cannot be decoded, processed or written: the pipeline's error policy."""

from typing import Literal

import msgspec

from streamkit.errors import InvalidPipeline


class ErrorPolicy(msgspec.Struct, frozen=True):
    """What to do when a record fails: try it again `retries` times, `delay_s` apart, then take the action."""

    action: Literal["fail", "skip", "dead_letter"]
    retries: int = 0
    delay_s: float = 0.1


def fail(*, retries: int = 0, delay_s: float = 0.1) -> ErrorPolicy:
    """Stop the task at the first record that fails; nothing after it is processed until a person acts."""
    return _policy("fail", retries, delay_s)


def skip(*, retries: int = 0, delay_s: float = 0.1) -> ErrorPolicy:
    """Count and log a record that fails, and go on without it."""
    return _policy("skip", retries, delay_s)


def dead_letter(*, retries: int = 0, delay_s: float = 0.1) -> ErrorPolicy:
    """Write a record that fails to the dead-letter topic, with its reason, in the same commit; the default."""
    return _policy("dead_letter", retries, delay_s)


def _policy(action: Literal["fail", "skip", "dead_letter"], retries: int, delay_s: float) -> ErrorPolicy:
    numbers = type(retries) is int and isinstance(delay_s, int | float)
    if not numbers or retries < 0 or delay_s < 0:
        raise InvalidPipeline(
            f"an error policy needs retries and delay_s of 0 or more, got {retries!r} and {delay_s!r}",
            hint=f"write on_error={action}(retries=3, delay_s=0.1), or leave both out; delay_s is a number of seconds",
        )
    return ErrorPolicy(action, retries, delay_s)
