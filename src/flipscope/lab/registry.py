"""Studies by name: those of flipscope and of every installed package that offers some (docs/add-a-study.md).

A study of flipscope is a file of flipscope/studies with a line `STUDY = …`; its name is that of the file, with dashes.
Other packages name theirs in entry points.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from flipscope.basics.errors import InputError
from flipscope.basics.importing import search_folder
from flipscope.lab.settings import split_name

if TYPE_CHECKING:
    from flipscope.lab.study import Study

GROUP = "flipscope.studies"

_FOLDER = Path(__file__).parents[1] / "studies"
_STUDY_LINE = re.compile(rb"^STUDY\b", re.MULTILINE)
_addresses: dict[str, str] = {}  # modules of studies given by file, each with the path as given


@functools.cache
def _places() -> dict[str, set[str]]:
    """The places "package.module:NAME" of all installed studies, by name; more than one is a conflict."""
    places: dict[str, set[str]] = {}
    for path in sorted(_FOLDER.glob("*/*.py")):
        if _holds_study(path):
            place = f"flipscope.studies.{path.parent.name}.{path.stem}:STUDY"
            places.setdefault(path.stem.replace("_", "-"), set()).add(place)
    for entry in entry_points(group=GROUP):
        places.setdefault(entry.name, set()).add(entry.value)
    return places


def _holds_study(path: Path) -> bool:
    return _STUDY_LINE.search(path.read_bytes()) is not None


def names() -> list[str]:
    """The names of all studies that are installed."""
    return sorted(_places())


def files(name: str) -> list[Path]:
    """The file of an installed study, then those beside it that hold no study; empty if they cannot be found."""
    if name not in _places():
        return []
    module = min(_places()[name]).partition(":")[0]
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return []
    if spec is None or spec.origin is None:
        return []
    if not rest:
        return [Path(spec.origin)]
    path = Path(spec.origin).parent.joinpath(*rest).with_suffix(".py")
    if not path.is_file():
        return []
    return [path, *(each for each in sorted(path.parent.glob("*.py")) if each != path and not _holds_study(each))]


def find(name: str) -> Study:
    """The study of this name, or the object that "package.module:NAME", "file.py" or "file.py:NAME" names."""
    path, _, variable = name.rpartition(":") if ".py:" in name else (name, "", "")
    if path.endswith(".py"):
        return _in_file(Path(path), variable, name)
    if ":" in name:
        if EntryPoint.pattern.match(name) is None:
            raise InputError(f"{name!r} does not name a study: write package.module:NAME")
        _look_in(os.getcwd(), name.partition(":")[0].partition(".")[0])
        return _loaded(EntryPoint(name, name, GROUP), name)
    places = sorted(_places().get(name, ()))
    if not places:
        raise InputError(f"no study is called {name!r}; did you mean {_nearest(name)}?")
    if len(places) > 1:
        raise InputError(
            f"two installed packages have a study called {name!r}: {' and '.join(places)}; uninstall one of them."
        )
    study = _loaded(EntryPoint(name, places[0], GROUP), name)
    if study.name != name:
        raise InputError(f"the study registered as {name!r} calls itself {study.name!r}; the two must agree")
    return study


def name_of(text: str) -> str:
    """The name of a study that is given by name, as "package.module:NAME" or by its file."""
    return find(text).name if ":" in text or text.endswith(".py") else text


def address(study: Study) -> str:
    """A text with which `find` finds the study: its name, or its location if it is not installed."""
    module = type(study).__module__
    if module in _addresses:  # perhaps a copy of an installed study
        return _addresses[module]
    if study.name in names():
        return study.name
    variables = vars(sys.modules[module]).items()
    return f"{module}:{next((name for name, value in variables if value is study), 'STUDY')}"


def repeat_command(study: Study, scale: str) -> str:
    """The command that runs a study at a scale, perhaps with changed settings."""
    base, changes = split_name(scale)
    changed = [part for change in changes for part in ("--set", change)]
    return shlex.join(["flipscope", "run", address(study), "--scale", base, *changed])


def folder_of(study: Study) -> str | None:
    """The folder added to the search path for the study's module, if there is one."""
    top = sys.modules[type(study).__module__.partition(".")[0]]
    file = Path(getattr(top, "__file__", None) or "")
    folder = str((file.parent.parent if file.name == "__init__.py" else file.parent).resolve())
    return folder if folder in _folders else None


def _nearest(name: str) -> str:
    """Up to three similar names, by their letters or by common words."""
    known = names()
    words = set(name.lower().replace("_", "-").split("-"))
    near = difflib.get_close_matches(name.lower().replace("_", "-"), known, 3, 0.4)
    shared = sorted((each for each in known if words & set(each.split("-"))), key=lambda each: each not in near)
    every = dict.fromkeys([*near, *shared, *sorted(known, key=lambda each: -_likeness(name, each))])
    return " or ".join(", ".join(list(every)[:3]).rsplit(", ", 1))


def _likeness(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first, second).ratio()


def _in_file(path: Path, variable: str, text: str) -> Study:
    """The study of this variable in a file, or the only study in it."""
    if not path.is_file():
        raise InputError(f"there is no file {path} with a study")
    module = path.stem
    if not module.isidentifier():
        raise InputError(f"{path} cannot be imported: rename it to a name of letters, digits and underscores")
    _look_in(str(path.resolve().parent), module)
    _addresses[module] = text
    if variable:
        return _loaded(EntryPoint(text, f"{module}:{variable}", GROUP), text)
    from flipscope.lab.study import Study

    loaded = _imported(module, text)
    studies = {name: value for name, value in vars(loaded).items() if isinstance(value, Study)}
    if "STUDY" in studies or len(studies) == 1:
        return studies.get("STUDY") or next(iter(studies.values()))
    if studies:
        raise InputError(f"{path} has several studies: say which with {path}:NAME, of {', '.join(studies)}")
    raise InputError(f"there is no study in {path}: it needs an object of a subclass of flipscope.lab.Study")


_folders: set[str] = set()  # folders searched for modules because a study was given by its location


def _look_in(folder: str, module: str) -> None:
    """Add a folder to the module search path of this process and, through its path, of the workers."""
    search_folder(folder, module)
    _folders.add(str(Path(folder).resolve()))


def _imported(module: str, name: str) -> ModuleType:
    with _blamed_on_study(name):
        return importlib.import_module(module)


def _loaded(entry: EntryPoint, name: str) -> Study:
    from flipscope.lab.study import Study

    with _blamed_on_study(name):
        study = entry.load()
    if not isinstance(study, Study):
        raise InputError(f"{entry.value} is not a study: make it an object of a subclass of flipscope.lab.study.Study")
    return study


@contextmanager
def _blamed_on_study(name: str) -> Iterator[None]:
    """Turn an exception raised while loading a study into an InputError of one sentence."""
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"the study {name} cannot be loaded: {type(error).__name__}: {error}") from error
