"""Whether to wait for machine code: what a caller knows, and a single measurement does not.

A measurement with path="auto" takes the general path where compiling the fast one would take longer than the work
itself (`flips.choice`). A study measures many trials with the same machine code, and its numbers should not depend on
what happens to be in the cache: there the fast path is compiled in any case.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from flipscope.basics.errors import InputError

VARIABLE = "FLIPSCOPE_COMPILE"
CHOICES = ("auto", "always", "never")

_always: ContextVar[bool] = ContextVar("always", default=False)


@contextmanager
def compile_always() -> Iterator[None]:
    """What is measured meanwhile, in this thread, compiles whatever makes it faster in the long run."""
    token = _always.set(True)
    try:
        yield
    finally:
        _always.reset(token)


def compiling() -> str:
    """Whether to compile for path="auto": "auto", by the amount of work, unless FLIPSCOPE_COMPILE says otherwise."""
    chosen = os.environ.get(VARIABLE) or "auto"
    if chosen not in CHOICES:
        raise InputError(f"{VARIABLE} is {chosen!r}: set it to always or never, or leave it unset.")
    return "always" if chosen == "auto" and _always.get() else chosen
