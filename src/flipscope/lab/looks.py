"""Looks: the judgements of a claim on a whole plan, and the error that is allowed for each.

A judgement of every planned trial is a *look*. Judging the same claim again with more seeds, another limit or another
choice of rows is the next one, and the errors of the looks are chosen so that their sum stays bounded:

    first look        ALPHA, all of it
    look j >= 2       ALPHA / (j (j + 1)), so that all later looks together add at most ALPHA / 2
    looks=K declared  ALPHA / K for each of the first K

A judge obtains its error only from here: `confidence()` is that of one interval, `confidence(k)` that of each of k
intervals that must hold simultaneously.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from flipscope.basics.errors import InputError

ALPHA = 0.05  # probability that any interval of a claim is wrong at its first look


@dataclass(frozen=True)
class Level:
    """The error of the current judgement, and of the next look, at which more data would be judged."""

    error: float = ALPHA
    following: float = ALPHA


_FIRST = Level()
_level: ContextVar[Level] = ContextVar("level", default=_FIRST)


def error_of(look: int, declared: int = 1) -> float:
    """The error of a look, counted from 1, if `declared` looks were announced in advance.

    >>> [round(error_of(look), 5) for look in (1, 2, 3)], error_of(2, declared=2)
    ([0.05, 0.00833, 0.00417], 0.025)
    """
    if look < 1 or declared < 1:
        raise InputError(f"looks are counted from 1, got look={look} of declared={declared}")
    return ALPHA / declared if look <= declared else ALPHA / (look * (look + 1))


@contextmanager
def judging(error: float, following: float | None = None) -> Iterator[None]:
    """Within this context, judges use this error; `following` is the error of the next look."""
    if not 0 < error < 1:
        raise InputError(f"error={error} of a judgement must lie between 0 and 1")
    token = _level.set(Level(error, error if following is None else following))
    try:
        yield
    finally:
        _level.reset(token)


def confidence(intervals: int = 1) -> float:
    """The confidence of each of several intervals that must hold simultaneously at the current look.

    >>> confidence(), confidence(2)
    (0.95, 0.975)
    """
    return 1 - _level.get().error / max(1, intervals)


def following_error(error: float) -> float:
    """The error at the next look of an interval that has this error now."""
    level = _level.get()
    return error * level.following / level.error
