"""How annotations are compared with the values of every call while the tests run; pyproject.toml switches it on.

jaxtyping's import hook puts every function of the rooms that pyproject.toml names into a wrapper, which calls the
checker below once for the arguments alone, before the call, and once for arguments and result together, after it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Generator, Iterator
from types import FunctionType
from typing import Any, get_origin

import jaxtyping
import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype

# An int may stand where a float is required, as mypy has it, and numpy's for Python's.
_NUMBERS = FrozenDict({int: int | np.integer, float: float | int | np.floating | np.integer})
_check = beartype(conf=BeartypeConf(hint_overrides=_NUMBERS))
# beartype resolves Self only where it is given a whole class, takes no StringIO for a TextIO nor BytesIO for a
# BinaryIO, and no tuple for what numpy calls ArrayLike. Entry points may be those of importlib_metadata.
_UNKNOWN = re.compile(r"\bSelf\b|\bTextIO\b|\bBinaryIO\b|\bEntryPoint\b|\b_SupportsArray\b")


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the arguments and the result of a call once it has returned.

    A function that refuses bad input does so in its own words, and tests look for these: so nothing is checked before
    the call. A value that does not fit its annotation and is not refused either is found here. Generators are left out,
    which have not begun when they are returned.
    """
    hints = function.__annotations__
    if get_origin(hints.get("return")) in (Generator, Iterator):
        return function
    function.__annotations__ = {name: Any if _UNKNOWN.search(str(hint)) else hint for name, hint in hints.items()}
    parameters = inspect.signature(function).parameters.values()
    with_result = any(one.kind is one.KEYWORD_ONLY and re.fullmatch(r"ret\d+", one.name) for one in parameters)
    return _check(function) if with_result else function


CALLS = 20  # of each function that are checked in each test
_jaxtyped = jaxtyping.jaxtyped


class _Test:
    """Which test is running."""

    number = 0


def pytest_runtest_setup() -> None:
    """Begin to count calls anew; `conftest.py` registers this module as a plugin of pytest."""
    _Test.number += 1


def _jaxtyped_when_called(thing: Any = None, *, typechecker: Callable[..., Any] = checked) -> Any:
    """What `jaxtyping.jaxtyped` does with a function or a dataclass, at the first call.

    jaxtyping needs milliseconds for each function. There are thousands, most of which are not called by the tests at
    hand, and functions inside functions would be wrapped again at every call of the outer one: they are left out. The
    first calls in every test are checked: a function that is called thousands of times is given more of the same.
    """
    if thing is None:
        return functools.partial(_jaxtyped_when_called, typechecker=typechecker)
    if dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
        thing.__init__ = _jaxtyped_when_called(thing.__init__, typechecker=typechecker)
    if not isinstance(thing, FunctionType) or "<locals>" in thing.__qualname__:
        return thing
    wrapper: Callable[..., Any] | None = None
    test, calls = -1, 0

    @functools.wraps(thing)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal wrapper, test, calls
        if test != _Test.number:
            test, calls = _Test.number, 0
        calls += 1
        if calls > CALLS:
            return thing(*args, **kwargs)
        if wrapper is None:
            wrapper = _jaxtyped(thing, typechecker=typechecker)
        return wrapper(*args, **kwargs)

    return call


jaxtyping.jaxtyped = _jaxtyped_when_called  # the name that the import hook uses
