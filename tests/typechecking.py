"""How annotations are held against what really happens while the tests run; pyproject.toml switches it on.

jaxtyping's import hook puts every function of the rooms that pyproject.toml names into a wrapper: it asks the checker
below once for the arguments alone, before the call, and once for arguments and result together, after it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Iterator
from typing import Any, get_origin

import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype

# An int may stand where a float is asked for, as mypy has it, and numpy's for Python's.
_NUMBERS = FrozenDict({int: int | np.integer, float: float | int | np.floating | np.integer})
_check = beartype(conf=BeartypeConf(hint_overrides=_NUMBERS))
# beartype knows what Self is only where it is given a whole class, takes no StringIO for a TextIO nor BytesIO for a
# BinaryIO, and no tuple for what numpy calls ArrayLike. Entry points may be those of importlib_metadata.
_UNKNOWN = re.compile(r"\bSelf\b|\bTextIO\b|\bBinaryIO\b|\bEntryPoint\b|\b_SupportsArray\b")


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check what a call was given and what it returned, once it has returned.

    A function that refuses bad input says so in its own words, and tests look for these: so nothing is checked before
    the call. What does not fit its annotation and is not refused either comes out here. Functions inside functions are
    left out: they would be wrapped again at every call of the outer one. So are generators, which have not begun when
    they are returned.
    """
    hints = function.__annotations__
    if "<locals>" in function.__qualname__ or get_origin(hints.get("return")) in (Generator, Iterator):
        return function
    function.__annotations__ = {name: Any if _UNKNOWN.search(str(hint)) else hint for name, hint in hints.items()}
    asked = inspect.signature(function).parameters.values()
    with_result = any(one.kind is one.KEYWORD_ONLY and re.fullmatch(r"ret\d+", one.name) for one in asked)
    return _check(function) if with_result else function
