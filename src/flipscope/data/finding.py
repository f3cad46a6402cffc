"""Where data sets are: the folder that the user names, their files by standard names, and references to their content.

A reference, such as fashion-mnist@c85e7078a78cd512, names a set and the beginning of its digest. Trials and recipes
hold references and never folders, so that a result belongs to the data it was measured on, wherever these lie.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from flipscope.basics.errors import InputError

Set = TypeVar("Set")

VARIABLE = "FLIPSCOPE_DATA"
_HOW = f"name one with --data DIR, with folder= in Python, or in the environment variable {VARIABLE}"


DIGITS = 16  # of a digest in a reference: 64 bits tell apart all sets that anyone will ever have
_REFERENCE = re.compile(rf"([a-z0-9]+(?:-[a-z0-9]+)*)@([0-9a-f]{{{DIGITS}}})")
_folder: ContextVar[str | None] = ContextVar("folder of data sets", default=None)


@contextmanager
def data_in(folder: str | Path | None) -> Iterator[None]:
    """Within this context, data sets are read from this folder; None changes nothing."""
    if folder is None:
        yield
        return
    token = _folder.set(str(Path(folder).absolute()))
    try:
        yield
    finally:
        _folder.reset(token)


def in_named_folder() -> bool:
    """Whether this is within a context of `data_in`."""
    return _folder.get() is not None


def named_folder() -> str | None:
    """The folder of data sets that is named for this context or in the environment, whether it exists or not."""
    variable = os.environ.get(VARIABLE)
    return _folder.get() or (str(Path(variable).absolute()) if variable else None)


def data_folder(folder: str | Path | None = None) -> Path | None:
    """The folder of data sets: the one given, that of `data_in`, that of the variable FLIPSCOPE_DATA, or none.

    A folder of `data_in` that this machine does not have gives way to that of the variable: a worker of a cluster may
    have its data elsewhere.
    """
    variable = os.environ.get(VARIABLE) or None
    given = next((each for each in (folder, _folder.get(), variable) if each is not None), None)
    if given is None:
        return None
    path = Path(given)
    if folder is None and variable is not None and not path.is_dir():
        path = Path(variable)
    if not path.is_dir():
        reason = "is not a folder" if path.exists() else "does not exist"
        raise InputError(f"the folder of data sets {path} {reason} on this machine: {_HOW}")
    return path


def reference(name: str, digest: str) -> str:
    """The text by which trials and recipes name a set of this content."""
    return f"{name}@{digest[:DIGITS]}"


def split_reference(text: str) -> tuple[str, str | None]:
    """The name of a set and the beginning of its digest; None where the text is only a name.

    >>> split_reference("digits@0123456789abcdef"), split_reference("digits")
    (('digits', '0123456789abcdef'), ('digits', None))
    """
    found = _REFERENCE.fullmatch(text)
    return (found[1], found[2]) if found is not None else (text, None)


def check_reference(wanted: str, found: str) -> None:
    """Raise InputError if a set, given by its reference, is not the wanted one, which may be a name alone."""
    name, digest = split_reference(wanted)
    if digest is not None and found != wanted:
        raise InputError(
            f"the set {name} that is found here has the digest {split_reference(found)[1]}, and {digest} is wanted: "
            "name the folder of that one with --data"
        )


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


_last: dict[str, tuple[list[tuple[str, int, int]], Any]] = {}  # by name: the state of its files, and the set in them


def kept(name: str, files: Iterable[Path], read: Callable[[], Set]) -> Set:
    """The set of this name that was read last while its files are unchanged: the trials of one process share it."""
    state = [_state(file) for file in files]
    if name not in _last or _last[name][0] != state:
        _last[name] = (state, read())
    found: Set = _last[name][1]
    return found


def _state(file: Path) -> tuple[str, int, int]:
    try:
        found = file.stat()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    return str(file.absolute()), found.st_size, found.st_mtime_ns
