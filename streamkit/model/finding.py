"""One thing that was looked at, and what was found: an error as data, for whoever shows several."""

import msgspec

from streamkit.errors import StreamkitError, render


class Finding(msgspec.Struct, frozen=True):
    """What was looked at, and whether it is as it must be.

    If not, it is the error with which a worker would end, word for word, and `code` is that of the error.
    """

    what: str
    good: bool
    detail: str = ""
    hint: str = ""
    code: str = ""
    where: str = ""
    # It is as it must be, and perhaps not as it was meant.
    warns: bool = False

    def render(self) -> str:
        """What is wrong, as the error would be shown at a terminal."""
        return render(self.code, self.what, where=self.where, detail=self.detail, hint=self.hint)


def finding_of(error: StreamkitError) -> Finding:
    """What a worker would die of, as a finding."""
    return Finding(error.problem, False, error.detail, error.hint, error.code, error.where)
