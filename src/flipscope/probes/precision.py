"""Signs that can be trusted: float32 where it is far from the threshold, float64 near it, and a count of what is left.

A bit of a model is 1 where logit > threshold, else 0, at the threshold itself too. Random transformers can be chaotic:
float32 and float64 then give different logits, and sometimes different signs. So a random sample of the logits is
computed in float64 as well, and a sign is trusted where |logit - threshold| is at least

    margin = 8 times the largest difference seen (and at least 16 roundings of the largest logit).

Every other sign is computed again in float64; each of these is one more comparison, as are a few random ones later,
and the margin grows for what follows if they show a larger difference. The rounding of float64 itself is measured, not
assumed: a few logits are computed again with every weight moved by 2^-44 of itself, at least a hundred times what
rounding does, and once more in float32. What is nearer to the threshold than the largest change, or than 8 * 2^-29
times the largest error of float32, is nearer than the ``tolerance``: it is undetermined and counted in ``near_ties``.

The margin is a statistical safeguard, for the sample may miss rare, large differences; precision="float64" has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from flipscope.errors import InputError
from flipscope.models.alike import largest_difference
from flipscope.probes.engine import (
    MEMORY_LIMIT,
    Bits,
    Engine,
    GeneralEngine,
    Inputs,
    Logits,
    Model,
    Path,
    check_model,
    neighbours,
    number_type,
    open_engine,
    refuse_nan,
)
from flipscope.probes.inside import name_of, rounding_inside, type_inside

Precision: TypeAlias = Literal["auto", "float64", "native"]
Rows: TypeAlias = Callable[[NDArray[np.int64]], Bits]  # strings by their numbers

FACTOR = 8.0  # the differences have long tails: so many times the largest one seen
ROUNDINGS = 16.0  # of the largest logit, that the margin is at least
SAMPLE = 32  # logits compared at the start
AUDIT = 256  # and later one of so many
NUDGE = 2.0**-44  # relative change of every weight that stands for the rounding of float64
NUDGED = 8  # logits computed again with nudged weights and in float32
SWITCH = 0.25  # where more signs than this would be computed twice, float64 alone is cheaper


def trusted_signs(
    model: Model,
    *,
    threshold: float = 0.0,
    path: Path = "auto",
    precision: Precision = "auto",
    inputs: Inputs = "auto",
    batch: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
    seed: int = 0,
) -> TrustedSigns:
    """What gives the signs of this model; nothing is computed yet.

    precision "auto" is float32 with checks (float64 if that is the model's own type), "float64" is float64 throughout,
    and "native" is the model's own arithmetic, without checks: the only way for a function that is not a module.
    """
    dtype = working_type(model, precision)
    if not np.isfinite(threshold):
        raise InputError(f"threshold={threshold} must be a finite number")

    def engine(path: Path, dtype: torch.dtype | None) -> Engine:
        return open_engine(model, path=path, dtype=dtype, inputs=inputs, batch=batch, memory_limit=memory_limit)

    working = engine(path, dtype)
    if dtype is None:
        return TrustedSigns(working, threshold, seed=seed)
    if dtype == torch.float64 and isinstance(working, GeneralEngine):
        return TrustedSigns(working, threshold, exact=working, seed=seed)
    exact = GeneralEngine(model, dtype=torch.float64, inputs=inputs, batch=batch, memory_limit=memory_limit)
    if dtype == torch.float64:
        return TrustedSigns(working, threshold, exact=exact, seed=seed)
    return TrustedSigns(
        working,
        threshold,
        exact=exact,
        switch=lambda: exact if working.path == "general" else engine(path, torch.float64),
        seed=seed,
    )


def working_type(model: Model, precision: Precision) -> torch.dtype | None:
    """The number type that most of the work is done in; None is the model's own, whatever that is."""
    check_model(model)
    if precision not in ("auto", "float64", "native"):
        raise InputError(f"precision={precision!r} is not one of auto, float64, native")
    own = number_type(model)
    if precision == "float64" or (precision == "auto" and own == torch.float64):
        return torch.float64
    if precision == "native" or own is None:
        return None
    return torch.float32  # half precision is slower than this on a CPU, and too coarse for signs


class TrustedSigns:
    """Signs of strings and of all their flips, with an account of how sure they are.

    ``working`` computes every logit. ``exact`` checks it in float64; without it, the model's word is taken. ``switch``
    makes a working engine in float64, for models of which float32 decides too few signs.
    """

    def __init__(
        self,
        working: Engine,
        threshold: float,
        *,
        exact: GeneralEngine | None = None,
        switch: Callable[[], Engine] | None = None,
        seed: int = 0,
    ) -> None:
        self.working = working
        self.threshold = threshold
        self.margin = 0.0
        self.tolerance = 0.0
        self.rechecked = 0
        self.near_ties = 0
        self.inside: torch.dtype | None = None  # what a module rounds to although it is asked in float64
        self._exact = exact
        self._switch = switch
        self._looked = False
        self._compared: set[str] = set()  # the ways of asking that have been compared with float64
        self._stream = np.random.default_rng(seed)

    @property
    def precision(self) -> str:
        """In what the signs are computed."""
        if self._exact is None:
            return "native"
        asked = "float64" if self._switch is None else "float32+float64"
        return asked if self.inside is None else f"{asked}, {name_of(self.inside)} inside"

    def signs(self, strings: Bits) -> Bits:
        """The bit of each string."""

        def ask() -> Logits:
            return self.working.logits(strings)

        return self._settled("plain", ask, lambda index: strings[index])

    def flip_signs(self, strings: Bits) -> tuple[Bits, Bits]:
        """The bits of the strings [string] and of all their flips [string, position]."""

        def ask() -> Logits:
            base, flipped = self.working.flip_logits(strings)
            return np.concatenate([base[:, None], flipped], axis=1).reshape(-1)

        found = self._settled("flips", ask, lambda index: neighbours(strings, index)).reshape(len(strings), -1)
        return found[:, 0], found[:, 1:]

    def _settled(self, way: str, ask: Callable[[], Logits], rows: Rows) -> Bits:
        """The bits of all logits that ``ask`` computes; ``rows`` gives the strings they belong to."""
        logits = ask()
        refuse_nan(logits)
        if not self._looked:
            self._look(rows(self._sample(len(logits), NUDGED)))
            self._looked = True
        self._compare(way, logits, rows)
        if self._switch is not None and np.mean(np.abs(logits - self.threshold) < self.margin) > SWITCH:
            self.working, self._switch, self.margin = self._switch(), None, 0.0
            self._compared.clear()
            logits = ask()
            refuse_nan(logits)
            self._compare(way, logits, rows)
        surplus = logits.astype(np.float64) - self.threshold
        self._recheck(surplus, rows)
        self.near_ties += int(np.count_nonzero(np.abs(surplus) < self.tolerance))
        return (surplus > 0).astype(np.uint8)

    def _look(self, strings: Bits) -> None:
        """Make sure that the model answers alike twice, and measure the rounding of what decides in the end."""
        if isinstance(self.working, GeneralEngine):
            self.working.check_alike(strings)
            if self._exact is None:
                self.tolerance = FACTOR * self.working.noise(strings)
        if self._exact is not None:
            self.tolerance = _rounding(self._exact, strings)
            self.inside = type_inside(self._exact, strings)
            if self.inside is not None:
                self.tolerance = max(self.tolerance, rounding_inside(self._exact, strings, self.inside))

    def _compare(self, way: str, logits: Logits, rows: Rows) -> None:
        """Compare a sample with float64: a larger one the first time, a few logits later."""
        if self._exact is None or self.working is self._exact:
            return
        size = math.ceil(len(logits) / AUDIT) if way in self._compared else SAMPLE
        self._compared.add(way)
        sample = self._sample(len(logits), size)
        exact = self._exact.logits(rows(sample))
        refuse_nan(exact)
        floor = ROUNDINGS * float(np.finfo(logits.dtype).eps) * _largest(exact)
        self.margin = max(self.margin, FACTOR * largest_difference(logits[sample], exact), floor)

    def _recheck(self, surplus: NDArray[np.float64], rows: Rows) -> None:
        """Replace what is within the margin by float64, until nothing new is."""
        if self._exact is None or self.working is self._exact:
            return
        settled = np.zeros(len(surplus), np.bool_)
        while len(doubtful := np.flatnonzero((np.abs(surplus) < self.margin) & ~settled)):
            exact = self._exact.logits(rows(doubtful)) - self.threshold
            refuse_nan(exact)
            self.margin = max(self.margin, FACTOR * largest_difference(surplus[doubtful], exact))
            surplus[doubtful] = exact
            settled[doubtful] = True
            self.rechecked += len(doubtful)

    def _sample(self, count: int, size: int) -> NDArray[np.int64]:
        """Numbers of so many logits, drawn at random."""
        drawn: NDArray[np.int64] = self._stream.choice(count, size=min(size, count), replace=False)
        return drawn


def _rounding(exact: GeneralEngine, strings: Bits) -> float:
    """How far from the truth a logit in float64 may be: measured twice, in different ways, and the larger taken."""
    logits = exact.logits(strings)
    refuse_nan(logits)
    moved = largest_difference(logits, exact.nudged(NUDGE).logits(strings))
    # Nudges of a weight that is used twice may cancel. Rounding in float32 does not, and is 2^29 times as large.
    coarse = largest_difference(logits, exact.converted(torch.float32).logits(strings))
    return max(moved, FACTOR * 2.0**-29 * coarse) if np.isfinite(coarse) else moved


def _largest(logits: Logits) -> float:
    """The largest finite absolute value."""
    return float(np.abs(logits[np.isfinite(logits)]).max(initial=0.0))
