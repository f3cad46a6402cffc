"""Importing modules of the user: from the environment and, after all installed packages, from a folder."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from flipscope.basics.errors import InputError


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
