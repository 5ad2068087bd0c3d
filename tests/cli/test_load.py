"""From `module:name` to a pipeline: what is found, and what is said when it is not."""

import textwrap
from pathlib import Path

import pytest

from streamkit.cli.load import load_pipeline
from streamkit.errors import InvalidPipeline, Misconfigured, Misuse

HEAD = 'import streamkit as sk\nt = sk.topic("t", str)\n'


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write_module(path: str, content: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(content))

    return write_module


def test_a_module_with_one_pipeline_needs_no_name(write) -> None:
    write("load_one.py", HEAD + 'only = sk.pipeline("one")\nsame = only\n')
    assert load_pipeline("load_one").name == "one"
    assert load_pipeline("load_one:same").name == "one"


def test_a_service_is_named_by_its_folder_its_file_or_its_module(write) -> None:
    write("load_services/shop/pipeline.py", HEAD + 'shop = sk.pipeline("shop")\n')
    for target in (
        "load_services/shop",
        "./load_services/shop/",
        "load_services/shop/pipeline.py",
        "load_services.shop",
        "load_services.shop:shop",
        "load_services.shop.pipeline:shop",
    ):
        assert load_pipeline(target).name == "shop", target


def test_two_pipelines_must_be_told_apart(write) -> None:
    write("load_two.py", HEAD + 'a = sk.pipeline("a")\nb = sk.pipeline("b")\n')
    with pytest.raises(Misconfigured) as error:
        load_pipeline("load_two")
    assert "load_two:a, load_two:b" in error.value.hint


def test_a_missing_name_is_answered_with_the_names_that_are_there(write) -> None:
    write("load_names.py", HEAD + 'here = sk.pipeline("here")\n')
    with pytest.raises(Misconfigured, match='has no "there"') as error:
        load_pipeline("load_names:there")
    assert "load_names:here" in error.value.hint


def test_something_else_under_that_name_is_said_to_be_something_else(write) -> None:
    write("load_else.py", HEAD + 'p = sk.pipeline("p")\n')
    with pytest.raises(Misconfigured, match="is no pipeline but a Topic"):
        load_pipeline("load_else:t")


def test_a_module_without_pipelines_is_said_to_have_none(write) -> None:
    write("load_none.py", "x = 1\n")
    with pytest.raises(Misconfigured, match="has no pipeline"):
        load_pipeline("load_none")


def test_a_missing_module_is_answered_with_its_neighbours(write) -> None:
    write("load_near/orders.py", "")
    with pytest.raises(Misconfigured, match="does not exist") as error:
        load_pipeline("load_near.order")
    assert "load_near.orders" in error.value.hint


def test_a_module_that_fails_shows_the_frames_of_its_author_alone(write) -> None:
    write("load_fails.py", "import json\ndef read():\n    return json.loads('{')\nread()\n")
    with pytest.raises(Misconfigured, match="failed while it was imported") as error:
        load_pipeline("load_fails")
    assert "load_fails.py" in error.value.detail
    assert "JSONDecodeError" in error.value.detail
    assert "json/__init__.py" not in error.value.detail
    assert "importlib" not in error.value.detail
    assert "streamkit/cli" not in error.value.detail


def test_an_import_that_is_missing_inside_the_module_is_the_modules_own_error(write) -> None:
    write("load_inner.py", "import no_such_library_anywhere\n")
    with pytest.raises(Misconfigured, match="failed while it was imported") as error:
        load_pipeline("load_inner")
    assert "no_such_library_anywhere" in error.value.detail


def test_a_module_that_exits_is_an_error_like_any_other(write) -> None:
    write("load_exits.py", "raise SystemExit(3)\n")
    with pytest.raises(Misconfigured, match="failed while it was imported"):
        load_pipeline("load_exits")


def test_a_pipeline_that_cannot_be_built_keeps_its_error_and_gets_a_place(write) -> None:
    write("load_bad.py", HEAD + '\np = sk.pipeline("not a name")\n')
    with pytest.raises(InvalidPipeline) as error:
        load_pipeline("load_bad")
    assert error.value.where == "load_bad.py, line 4"


@pytest.mark.parametrize("target", ["", ":x", "a b:c", "a..b"])
def test_what_cannot_be_a_module_is_misuse(target: str) -> None:
    with pytest.raises(Misuse):
        load_pipeline(target)


@pytest.mark.parametrize("call", ["sk.run(p)", "import asyncio; asyncio.run(sk.serve(p))"])
@pytest.mark.filterwarnings("error")
async def test_a_module_that_starts_a_worker_by_itself_does_not_while_a_command_imports_it(
    write, call: str
) -> None:
    name = f"load_starting_{'run' if 'sk.run' in call else 'serve'}"
    write(f"{name}.py", HEAD + f'p = sk.pipeline("p")\np.read(t).write(sk.topic("u", str))\n{call}\n')
    with pytest.raises(Misuse, match="was called while the module was imported") as error:
        load_pipeline(name)
    assert 'under `if __name__ == "__main__":`' in error.value.hint
    assert error.value.where.endswith("line 5")


def test_what_a_module_raised_stays_behind_the_error_for_debug(write) -> None:
    write("load_raising.py", "def fail():\n    raise ValueError('inner')\n\n\nfail()\n")
    with pytest.raises(Misconfigured) as error:
        load_pipeline("load_raising")
    assert isinstance(error.value.__cause__, ValueError)
    assert error.value.hint.startswith("fix the line")
