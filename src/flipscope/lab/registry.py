"""Studies by name: those of flipscope and of every installed package that offers some (docs/add-a-study.md)."""

from __future__ import annotations

import difflib
import os
import sys
from importlib.metadata import EntryPoint, entry_points

from flipscope.errors import InputError
from flipscope.lab.study import Study

GROUP = "flipscope.studies"


def names() -> list[str]:
    """The names of all studies that are installed."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def find(name: str) -> Study:
    """The study of this name, or the object that "package.module:NAME" names."""
    if ":" in name:
        if os.getcwd() not in sys.path:  # a file being written is found where it is
            sys.path.insert(0, os.getcwd())
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


def _loaded(entry: EntryPoint, name: str) -> Study:
    try:
        found = entry.load()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"the study {name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(found, Study):
        raise InputError(f"{entry.value} is not a study: make it an object of a subclass of flipscope.lab.study.Study")
    return found
