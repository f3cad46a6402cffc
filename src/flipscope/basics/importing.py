"""Importing modules and objects of the user: from the environment and, after all installed packages, from a folder."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import operator
import os
import re
import sys
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError, reason

_PLACE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_FILE = re.compile(r"(.+)\.py:([A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")


def search_folder(folder: str, module: str) -> None:
    """Let modules be imported from a folder too, for this one's sake; InputError if another module hides it there.

    The folder is the last place that is searched: a file there called numpy.py must not run in place of the package.
    """
    if folder not in sys.path:
        sys.path.append(folder)
    own = [path for path in (Path(folder, f"{module}.py"), Path(folder, module, "__init__.py")) if path.is_file()]
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # for a name that no module can have: importing it says what is wrong
        found = None
    if own and found is not None:
        origin = str(found.origin)
        if not (os.path.exists(origin) and any(os.path.samefile(origin, path) for path in own)):
            raise InputError(f"{own[0]} is hidden by the module {module} of Python or a package ({origin}): rename it")


def is_place(text: str) -> bool:
    """Whether the text has the form "package.module:name" or "path/file.py:name"."""
    return _PLACE.fullmatch(text) is not None or _FILE.fullmatch(text) is not None


def imported(place: str, what: str) -> Any:
    """The object at "package.module:name" or "path/file.py:name"; the folder of a file is searched last."""
    folder, (module, _, name) = os.getcwd(), place.partition(":")
    if (in_file := _FILE.fullmatch(place)) is not None:
        path = Path(f"{in_file[1]}.py")
        if not path.is_file():
            raise InputError(f"the {what} {place} cannot be imported: {path} is not a file")
        folder, module, name = str(path.resolve().parent), path.stem, in_file[2]
    elif _PLACE.fullmatch(place) is None:
        raise InputError(f"{place!r} does not name a {what}: write package.module:name")
    search_folder(folder, module.partition(".")[0])
    try:
        return operator.attrgetter(name)(importlib.import_module(module))
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"the {what} {place} cannot be imported: {reason(error)}") from error


def made(place: str, what: str) -> Any:
    """The object at a place, or what it returns where it is a class or a function that needs no arguments."""
    found = imported(place, what)
    if not _is_factory(found):
        return found
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise InputError(f"the factory {place} failed with {reason(error)}") from error


def _is_factory(found: Any) -> bool:
    """Whether calling the object gives the model: a class, or a function that needs no arguments."""
    if isinstance(found, type):
        return True
    torch = sys.modules.get("torch")
    if not callable(found) or (torch is not None and isinstance(found, torch.nn.Module)):
        return False
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return False
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return not any(each.default is inspect.Parameter.empty and each.kind not in variable for each in parameters)
