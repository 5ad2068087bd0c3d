"""A member of a group, as its coordinator shows it to whoever asks."""

from typing import Self


class ShownMember(str):
    """A member id, and beside it what the member said when it joined and what it was told, both as they travel."""

    __slots__ = ("claim", "decision", "protocol")

    # How the members of the group come to their decision; other consumers have other ways.
    protocol: str
    # Nothing, while a round is going on.
    claim: bytes
    decision: bytes

    def __new__(cls, member_id: str, protocol: str = "", claim: bytes = b"", decision: bytes = b"") -> Self:
        """A member id with what is known of the member."""
        made = super().__new__(cls, member_id)
        made.protocol = protocol
        made.claim = claim
        made.decision = decision
        return made
