import asyncio
import importlib
import pkgutil

import pytest

import streamkit
from streamkit import errors
from streamkit.errors import Misconfigured, StreamkitError


def test_an_error_reads_as_problem_where_detail_hint():
    error = Misconfigured("topic is missing", where="a.toml", detail="one\ntwo", hint="create it")
    assert error.render().splitlines() == [
        "error[SK500]: topic is missing",
        "  where   a.toml",
        "  detail  one",
        "          two",
        "  hint    create it",
    ]


def test_an_error_as_text_ends_with_what_to_do():
    error = Misconfigured(
        "topic is missing", where="a.toml", detail="one\ntwo", hint="create it,\nthen start"
    )
    assert str(error) == "topic is missing; at a.toml; one\ntwo; hint: create it, then start"
    assert str(Misconfigured("topic is missing")) == "topic is missing"


def all_below(error: type[StreamkitError]) -> list[type[StreamkitError]]:
    return [found for each in error.__subclasses__() for found in (each, *all_below(each))]


def error_classes() -> list[type[StreamkitError]]:
    """All of ours, whichever file they are in."""
    for module in pkgutil.walk_packages(streamkit.__path__, "streamkit."):
        importlib.import_module(module.name)
    return [each for each in all_below(StreamkitError) if each.__module__.startswith("streamkit.")]


def error_codes() -> list[str]:
    return [each.code for each in error_classes() if "code" in vars(each)]


def test_every_error_has_a_code_of_its_own_and_says_who_acts():
    codes = error_codes()
    assert {"SK320", "SK500", "SK501"} <= set(codes)
    assert sorted(set(codes)) == sorted(codes)
    assert all(each.__doc__ for each in error_classes())


@pytest.mark.parametrize(
    ("error", "is_its"),
    [
        (ValueError(), True),
        (errors.EncodeError("x"), True),
        (SystemExit(), True),
        (GeneratorExit(), True),
        (asyncio.CancelledError(), True),
        (KeyboardInterrupt(), False),
        (errors.Bug("x"), False),
        (errors.Retry("x"), False),
        (errors.Misconfigured("x"), False),
    ],
)
def test_all_but_our_own_errors_and_the_keyboards_are_the_fault_of_a_record(error, is_its):
    assert errors.is_of_the_record(error) is is_its
