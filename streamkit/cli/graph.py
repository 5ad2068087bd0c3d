"""`streamkit graph`: what a pipeline becomes, drawn. No broker is asked."""

from typing import Annotated, Literal

from cyclopts import App, Parameter
from rich.text import Text

from streamkit.cli.load import load_pipeline
from streamkit.cli.options import Target
from streamkit.cli.output import show, show_parts
from streamkit.graph.describe import as_dict, as_mermaid, as_text

app = App(
    name="graph",
    sort_key=4,
    help_epilogue="""
Examples:

    streamkit graph services.page_views.pipeline:page_views
    streamkit graph my_module --output mermaid > graph.mmd
""",
)


@app.default
def graph(
    target: Target,
    /,
    *,
    output: Annotated[
        Literal["text", "json", "mermaid"],
        Parameter(name=["--output", "-o"], help="A tree for the terminal, data, or a chart for a page."),
    ] = "text",
) -> None:
    """Draw a pipeline: its stages, the steps inside them, the topics between them, the state they keep.

    A stage is what runs without a shuffle inside; it becomes one task per partition.
    """
    plan = load_pipeline(target).plan()
    match output:
        case "json":
            show(as_dict(plan), "json")
        case "mermaid":
            show_parts(Text(as_mermaid(plan)))
        case "text":
            show_parts(_coloured(as_text(plan)))


def _coloured(tree: str) -> Text:
    text = Text(tree)
    text.highlight_regex(r"(?m)^(pipeline|stage) \S+", "bold")
    text.highlight_regex(r"(?m)^! .*$", "yellow")
    text.highlight_regex(r"[├└]─|│|->", "dim")
    text.highlight_regex(r"(?m)^  (source|shuffle|state) ", "cyan")
    return text
