"""`python -m streamkit` is the command line."""

import sys

from streamkit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
