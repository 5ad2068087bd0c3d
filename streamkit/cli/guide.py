"""`streamkit guide`: the guides that come with the package, read in the terminal."""

import difflib
import sys
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated

from cyclopts import App, Parameter
from rich.constrain import Constrain
from rich.markdown import Markdown

from streamkit.cli.output import facts, say, show_parts
from streamkit.errors import Misuse

# Lines beyond this are hard to read, however wide the terminal is.
WIDTH_MAX = 110

app = App(
    name="guide",
    sort_key=8,
    help_epilogue="""
Examples:

    streamkit guide
    streamkit guide windows
    streamkit guide settings > settings.md
""",
)


@app.default
def guide(
    name: Annotated[
        str | None, Parameter(name="NAME", help="Which guide; without it they are listed.")
    ] = None,
    /,
) -> None:
    """Read a guide: concepts, state, windows, errors, deploying, settings and more. Without a name, list them.

    On a terminal it is laid out; in a pipe or a file it is Markdown.
    """
    guides = {
        each.name.removesuffix(".md"): each for each in _folder().iterdir() if each.name.endswith(".md")
    }
    if name is None:
        show_parts(facts(*((each, _about(guides[each])) for each in sorted(guides))))
        say("`streamkit guide NAME` shows one", style="dim")
        return
    if name not in guides:
        near = difflib.get_close_matches(name, guides, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(guides))}"
        raise Misuse(f'there is no guide "{name}"', hint=hint)
    text = guides[name].read_text(encoding="utf-8")
    if sys.stdout.isatty():
        show_parts(Constrain(Markdown(text, code_theme="ansi_dark", hyperlinks=False), WIDTH_MAX))
    else:
        sys.stdout.write(text)


def _folder() -> Traversable:
    return files("streamkit") / "guides"


def _about(guide: Traversable) -> str:
    """The one line below the title that says what is in a guide."""
    return guide.read_text(encoding="utf-8").split("\n\n")[1]
