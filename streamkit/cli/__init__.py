"""The command line: one file per noun, `cli/output.py` prints it all. What the commands do is in `operate/`."""
