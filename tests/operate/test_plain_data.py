"""What `operate/` returns is plain and frozen: it becomes JSON as it is, for whoever shows it."""

import importlib
import inspect
import pkgutil

import msgspec
import pytest

import streamkit.operate


def structs() -> list[type[msgspec.Struct]]:
    modules = [
        importlib.import_module(f"streamkit.operate.{each.name}")
        for each in pkgutil.iter_modules(streamkit.operate.__path__)
    ]
    return [
        each
        for module in modules
        for _, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, msgspec.Struct) and each.__module__ == module.__name__
    ]


def test_there_is_something_to_look_at() -> None:
    assert {"CheckReport", "OffsetsReport", "ResetPlan", "TimeReport", "TopicsPlan", "Applied"} <= {
        each.__name__ for each in structs()
    }


@pytest.mark.parametrize("struct", structs(), ids=lambda each: each.__name__)
def test_it_is_frozen_and_has_a_schema(struct: type[msgspec.Struct]) -> None:
    assert struct.__struct_config__.frozen
    assert msgspec.json.schema(struct)
