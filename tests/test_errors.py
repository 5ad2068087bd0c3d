import asyncio
import inspect

import pytest

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


def test_every_error_has_a_code_of_its_own_and_says_who_acts():
    classes = [
        each
        for _, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, StreamkitError) and each is not StreamkitError
    ]
    codes = [each.code for each in classes]
    assert len(set(codes)) == len(codes)
    assert all(each.__doc__ for each in classes)


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
