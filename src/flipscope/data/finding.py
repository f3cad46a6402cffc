"""Finding the files of a data set in the folder that the user names, by their standard names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from flipscope.basics.errors import InputError

VARIABLE = "FLIPSCOPE_DATA"
_HOW = f"name one with --data DIR, with folder= in Python, or in the environment variable {VARIABLE}"


def data_folder(folder: str | Path | None = None) -> Path | None:
    """The folder of data sets: the one given, or that of the environment variable FLIPSCOPE_DATA, or none."""
    given = folder if folder is not None else os.environ.get(VARIABLE) or None
    if given is None:
        return None
    path = Path(given)
    if not path.is_dir():
        reason = "is not a folder" if path.exists() else "does not exist"
        raise InputError(f"the folder of data sets {path} {reason}: {_HOW}")
    return path


def places(folder: Path, subfolders: Iterable[str]) -> list[Path]:
    """The folder itself and those of these subfolders that exist, in this order."""
    return [folder, *(folder / each for each in subfolders if (folder / each).is_dir())]


def first_of(folder: Path, names: Sequence[str]) -> Path | None:
    """The first of these names that is a file in the folder."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


def not_found(name: str, folder: Path | None, wanted: str) -> InputError:
    """The error for a data set of which no file was found."""
    if folder is None:
        return InputError(f"the files of {name} are needed, and no folder of data sets is named: {_HOW}")
    return InputError(f"{folder} has no files of {name}: put {wanted} there, or in a subfolder {name}")
