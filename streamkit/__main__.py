"""`python -m streamkit` is the command line."""

import sys

from streamkit.cli.main import main

sys.exit(main())
