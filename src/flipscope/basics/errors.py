"""Exceptions whose message is one sentence for the user, and text that is safe to show on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

# C0 and C1 control characters except newline and tab, line separators, marks of writing direction, and the surrogates
# that stand for undecodable bytes in a path.
_RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class InputError(ValueError):
    """Bad input, described in one clear sentence; the command line turns it into exit code 2.

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


def reason(error: BaseException) -> str:
    """An error's message on one line; of a long message the end, where an embedded traceback has its cause."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else f"{text[:145]} ... {text[-150:]}"


@contextmanager
def blamed_on(what: str) -> Iterator[None]:
    """Context for calls into the caller's code, such as "the model": an exception from there becomes an InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what} failed with {reason(error)}") from error


def printable(text: str) -> str:
    """The text with control characters escaped, as \\x1b and the like, so that a terminal does not obey them."""
    return _RAW.sub(lambda match: ascii(match[0])[1:-1], text)
