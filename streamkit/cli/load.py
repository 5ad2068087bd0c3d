"""From `module:name` to a pipeline, with words that help when it is not there."""

import importlib
import importlib.util
import os
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType, TracebackType

import streamkit
from streamkit.errors import Misconfigured, Misuse, StreamkitError
from streamkit.graph.pipeline import Pipeline
from streamkit.graph.place import place
from streamkit.serving import importing

# Frames that say nothing to the author of a module: how it came to be imported, and the inside of libraries.
_MACHINERY = (
    "<frozen",
    str(Path(streamkit.__file__).parent) + os.sep,
    str(Path(importlib.__file__).parent) + os.sep,
)
_LIBRARIES = tuple(sysconfig.get_paths()[kind] + os.sep for kind in ("purelib", "platlib", "stdlib"))
# Looser than a Python name: `examples/01_hello.py` can be imported, only not by an import statement.
_NAME = re.compile(r"\w+")
EXAMPLE = "services.page_views.pipeline:page_views"


def load_pipeline(target: str) -> Pipeline:
    """The pipeline that `module:name` names; `module` alone is enough if it has just one.

    Raises:
        Misuse: the target is not of this form.
        Misconfigured: no such module, no such name in it, or the module's own code failed.
    """
    module_name, _, name = target.partition(":")
    module_name = _dotted(module_name)
    if not module_name or not all(map(_NAME.fullmatch, module_name.split("."))):
        raise Misuse(
            f'"{target}" does not name a pipeline', hint=f"write module:name, for example `{EXAMPLE}`"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _with_pipelines(_import(module_name))
    return _named(module, name) if name else _only(module)


def pipelines_in(module: ModuleType) -> dict[str, Pipeline]:
    """The pipelines of a module by name; one that has several names is listed under the first."""
    found: dict[str, Pipeline] = {}
    for name, value in vars(module).items():
        if isinstance(value, Pipeline) and not any(value is each for each in found.values()):
            found[name] = value
    return found


def _with_pipelines(module: ModuleType) -> ModuleType:
    """A service is a folder, `services/page_views`; its pipeline is in the module `pipeline` of that folder."""
    inner = f"{module.__name__}.pipeline"
    is_folder = hasattr(module, "__path__") and not pipelines_in(module)
    return _import(inner) if is_folder and importlib.util.find_spec(inner) else module


def _dotted(module: str) -> str:
    """People press Tab: `services/page_views/pipeline.py` means the same module."""
    path = module.removesuffix(".py").strip("/") if "/" in module or module.endswith(".py") else module
    return path.removeprefix("./").replace("/", ".")


def _import(name: str) -> ModuleType:
    try:
        with importing():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise _no_module(name, missing) from None
        raise _failed(name, error) from error
    except StreamkitError as error:
        # Building the pipeline failed: the error says what, the user's line says where.
        error.where = error.where or _last_place(error.__traceback__)
        raise
    except Exception as error:
        raise _failed(name, error) from error
    except SystemExit as error:
        raise _failed(name, error) from error


def _no_module(name: str, missing: str) -> Misconfigured:
    path = Path(*name.split("."))
    near = path if path.is_dir() else path.parent
    files = sorted(
        each.stem for each in near.glob("*.py") if each.stem.isidentifier() and each.stem != "__init__"
    )
    package = ".".join(near.parts)
    found = ", ".join(f"{package}.{each}" if package else each for each in files[:8])
    return Misconfigured(
        f'module "{name}" does not exist',
        detail=f'"{missing}" was looked for in "{Path.cwd()}" and in the installed packages',
        hint=f"modules that are there: {found}"
        if found
        else "go to the folder that holds it, or check the spelling",
    )


def _failed(name: str, error: BaseException) -> Misconfigured:
    frames = _frames_of_user(error.__traceback__)
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
    return Misconfigured(
        f'module "{name}" failed while it was imported',
        detail="".join(lines).strip("\n"),
        hint="fix the line that is named last; `streamkit graph` on the same module tries again, without a broker",
    )


def _frames_of_user(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """The frames between our import and the error that are the user's own; of libraries, if there are no others."""
    frames = [frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith(_MACHINERY)]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    return own or frames


def _last_place(trace: TracebackType | None) -> str:
    """The user's own line that is nearest to the error."""
    frames = _frames_of_user(trace)
    return place(frames[-1].filename, frames[-1].lineno) if frames else ""


def _named(module: ModuleType, name: str) -> Pipeline:
    value: object = module
    for part in name.split("."):
        value = getattr(value, part, None)
    if isinstance(value, Pipeline):
        return value
    if value is None and not hasattr(module, name):
        raise Misconfigured(f'module "{module.__name__}" has no "{name}"', hint=_choices(module))
    raise Misconfigured(
        f'"{name}" in module "{module.__name__}" is no pipeline but a {type(value).__name__}',
        hint=_choices(module),
    )


def _only(module: ModuleType) -> Pipeline:
    found = pipelines_in(module)
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise Misconfigured(
            f'module "{module.__name__}" has no pipeline',
            hint='a pipeline is made by `sk.pipeline("name")` and kept in a variable of the module',
        )
    raise Misconfigured(f'module "{module.__name__}" has {len(found)} pipelines', hint=_choices(module))


def _choices(module: ModuleType) -> str:
    found = pipelines_in(module)
    if not found:
        return "no pipeline is in this module; name the module that has it"
    return "name one that is there: " + ", ".join(f"{module.__name__}:{name}" for name in found)
