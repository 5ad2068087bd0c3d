"""`offsets reset` with words that mean nothing: said at once, with the word and what is allowed; no broker is asked."""

import pytest


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--to", "yesterday"), ('"yesterday" is not a place in a topic', "earliest, latest, committed")),
        (("--to", "12²"), ('"12²" is not a place in a topic',)),
        (("--to", "latest", "--topic", "nope"), ('does not read topic "nope"', "it reads: {views}")),
        (("--accept-gap", "--to", "latest"), ("`--to latest` and `--accept-gap`", "leave one of them out")),
        (("--to", "latest", "--accept-gap", "--topic", "nope"), ("name two places",)),
        ((), ("no place is given", "--to PLACE or --accept-gap")),
    ],
)
def test_a_word_without_meaning_is_named(workspace, words, told) -> None:
    done = workspace.run("offsets", "reset", workspace.target, *words)
    assert done.returncode == 2, done.stderr
    for each in told:
        assert each.format(views=workspace.views) in " ".join(done.stderr.split())
