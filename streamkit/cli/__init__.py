"""The command line: one file per noun, `cli/output.py` prints it all."""
