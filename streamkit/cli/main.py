"""Where the command begins: nothing is imported before Ctrl-C is looked after, for the rest takes half a second."""

import importlib
import sys
from collections.abc import Sequence

# What a shell says of a program ended by Ctrl-C.
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no error leaves this function."""
    try:
        code = importlib.import_module("streamkit.cli.command").main(arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
