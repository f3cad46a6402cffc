"""Studies by name: those of flipscope and of every installed package that offers some (docs/add-a-study.md)."""

from __future__ import annotations

import difflib
import importlib.util
import os
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from flipscope.basics.errors import InputError
from flipscope.lab.study import Study

GROUP = "flipscope.studies"


def names() -> list[str]:
    """The names of all studies that are installed."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def find(name: str) -> Study:
    """The study of this name, or the object that "package.module:NAME" names."""
    if ":" in name:
        if EntryPoint.pattern.match(name) is None:
            raise InputError(f"{name!r} does not name a study: say package.module:NAME")
        _look_here(name.partition(":")[0].partition(".")[0])
        return _loaded(EntryPoint(name, name, GROUP), name)
    entries = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not entries:
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names())}."
        raise InputError(f"no study is called {name!r}; {hint}")
    if len({entry.value for entry in entries}) > 1:
        places = " and ".join(sorted(entry.value for entry in entries))
        raise InputError(f"two installed packages have a study called {name!r}: {places}; uninstall one of them.")
    found = _loaded(entries[0], name)
    if found.name != name:
        raise InputError(f"the study registered as {name!r} calls itself {found.name!r}; the two must agree")
    return found


def address(study: Study) -> str:
    """What `find` finds the study by: its name, or where it stands if it is not installed."""
    if study.name in names():
        return study.name
    module = type(study).__module__
    variables = vars(sys.modules[module]).items()
    return f"{module}:{next((name for name, value in variables if value is study), 'STUDY')}"


def _look_here(module: str) -> None:
    """Find modules in the current folder, too: a file being written is found where it is.

    It is the last place, for this process and, with its path, for the workers: a file there called numpy.py must not
    run in the place of the package. So it may not be a study's name either.
    """
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    own = [path for path in (Path(here, f"{module}.py"), Path(here, module, "__init__.py")) if path.is_file()]
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # of a name that no module can have: loading it says what is wrong
        found = None
    if own and found is not None:
        origin = str(found.origin)
        if not (os.path.exists(origin) and any(os.path.samefile(origin, path) for path in own)):
            raise InputError(f"{own[0]} is hidden by the module {module} of Python or a package ({origin}): rename it")


def _loaded(entry: EntryPoint, name: str) -> Study:
    try:
        found = entry.load()
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"the study {name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(found, Study):
        raise InputError(f"{entry.value} is not a study: make it an object of a subclass of flipscope.lab.study.Study")
    return found
