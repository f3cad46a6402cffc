"""What is said to the caller: the exceptions that are one sentence, and text as a terminal may show it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

# Controls of the first and second kind except newline and tab, separators of lines, marks that turn text around, and
# what stands in a path for bytes that are not Unicode.
_RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class InputError(ValueError):
    """Bad input, said in one clear sentence; the command line turns it into its exit code.

    >>> import flipscope
    >>> try:
    ...     flipscope.parse("x1 & x2", n=1)
    ... except InputError as error:
    ...     print(str(error).splitlines()[0])
    n = 1 is too small; this needs 2 bits.
    """

    exit_code: ClassVar[int] = 2


class RunError(InputError):
    """What ended a run whose input was good, such as its results folder being deleted meanwhile."""

    exit_code = 1


def reason(error: Exception) -> str:
    """What went wrong, on one line; a traceback inside a long one has the cause at its end."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else f"{text[:145]} ... {text[-150:]}"


@contextmanager
def blamed_on(what: str) -> Iterator[None]:
    """Around calls of what the caller gave, such as "the model": an exception in there becomes an InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what} failed with {reason(error)}") from error


def printable(text: str) -> str:
    """The text without what a terminal would obey instead of show: control characters stand as \\x1b and the like."""
    return _RAW.sub(lambda found: ascii(found[0])[1:-1], text)
