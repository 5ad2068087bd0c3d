"""The command line: one file per noun, `cli/output.py` prints it all. What the commands do is in `operate/`.

the command     main command load options
a cluster       connect
the commands    run dev check graph topics offsets watermarks guide
what is shown   output topics_view ending
"""
