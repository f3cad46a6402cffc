"""Looks: how many times a claim has been judged on a whole plan, and what error that leaves each judgement.

A judgement of every planned trial is a *look*. Judging the same claim again with more seeds, another limit or another
choice of rows is the next one, and each look may be wrong only so often that all of them together stay within bounds:

    first look        ALPHA, all of it
    look j >= 2       ALPHA / (j (j + 1)), so that all later looks together add at most ALPHA / 2
    looks=K declared  ALPHA / K for each of the first K

A judge learns its error here and nowhere else: `confidence()` is that of one interval, `confidence(k)` that of each of
k intervals that must hold together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from flipscope.basics.errors import InputError

ALPHA = 0.05  # how often all intervals of a claim together may be wrong, at its first look


@dataclass(frozen=True)
class Level:
    """The error of the judgement under way, and of the look after it, at which more data would be judged."""

    error: float = ALPHA
    following: float = ALPHA


_FIRST = Level()
_level: ContextVar[Level] = ContextVar("level", default=_FIRST)


def error_of(look: int, declared: int = 1) -> float:
    """The error of a look, counted from 1, where so many looks were declared in advance.

    >>> [round(error_of(look), 5) for look in (1, 2, 3)], error_of(2, declared=2)
    ([0.05, 0.00833, 0.00417], 0.025)
    """
    if look < 1 or declared < 1:
        raise InputError(f"looks are counted from 1, got look={look} of declared={declared}")
    return ALPHA / declared if look <= declared else ALPHA / (look * (look + 1))


@contextmanager
def judging(error: float, following: float | None = None) -> Iterator[None]:
    """Judges that are called meanwhile may be wrong this often; `following` is the error of the next look."""
    if not 0 < error < 1:
        raise InputError(f"error={error} of a judgement must lie between 0 and 1")
    token = _level.set(Level(error, error if following is None else following))
    try:
        yield
    finally:
        _level.reset(token)


def confidence(intervals: int = 1) -> float:
    """The confidence of each of so many intervals that must hold together, at the look under way.

    >>> confidence(), confidence(2)
    (0.95, 0.975)
    """
    return 1 - _level.get().error / max(1, intervals)


def following_error(error: float) -> float:
    """What an interval's error would be at the next look, where it has this error now."""
    level = _level.get()
    return error * level.following / level.error
