"""Reliable signs: float32 far from the threshold, float64 near it, and a count of undetermined ones.

A bit of a model is 1 where logit > threshold, else 0, at the threshold itself too. Random transformers can be chaotic:
float32 and float64 then give different logits, and sometimes different signs. So a random sample of the logits is
computed in float64 as well, and a sign is trusted where |logit - threshold| is at least

    margin = 8 times the largest difference seen (and at least 16 roundings of the largest logit).

Every other sign is computed again in float64; each of these is one more comparison, as are a few random ones later,
and the margin grows for later strings if they show a larger difference. The rounding of float64 itself is measured, not
assumed: a few logits are computed again with every weight moved by 2^-44 of itself, at least a hundred times the effect
of rounding. The ``tolerance`` is 16 times the largest change, or 2^-29 times the margin of float32 if that is larger. A
logit closer to the threshold than this is undetermined and counted in ``near_ties``.

Equal logits, such as those of an inactive unit, say nothing about others: samples prefer different values, and continue
with every block of strings until enough of these have been seen. A sample is smaller if few logits are requested. Which
logits are in it depends only on the model, the strings and the seed.

The margin is a statistical safeguard: the sample may miss rare, large differences. precision="float64" needs none.

With several thresholds the answer is the number of thresholds that the logit exceeds, and the nearest one determines
the distance. If a logit is a row of numbers, one per class, the answer is the largest of them, and the distance is half
the difference of the two largest: no smaller error of the numbers can change the answer.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from flipscope.adapters.deterministic import largest_difference
from flipscope.adapters.rounding import name_of
from flipscope.adapters.settled import Settled, as_settled
from flipscope.adapters.subject import Model
from flipscope.basics.errors import InputError
from flipscope.flips.choice import Work
from flipscope.flips.engine import Bits, Engine, GeneralEngine, Logits, Path, neighbours, open_engine, refuse_nan
from flipscope.flips.inside import exact_logits, rounding_inside

Signs: TypeAlias = NDArray[np.integer]
Rows: TypeAlias = Callable[[NDArray[np.int64]], Bits]  # strings by their numbers

FACTOR = 8.0  # the margin over the largest difference seen, since the differences have long tails
ROUNDINGS = 16.0  # least margin, in roundings of the largest logit
SAMPLE, SHARE, FEWEST = 32, 16, 16  # logits compared at the start: the most, one in this many, the fewest
AUDIT = 256  # later, one logit in this many is compared
CANDIDATES = 4096  # logits among which a sample looks for new values
PERTURBATION = 2.0**-44  # relative change of every weight that represents the rounding of float64
PERTURBED = 4  # one in this many compared logits, and at least this many, are computed with perturbed weights
PERTURBATION_FACTOR = 16.0  # reasons: "Honest precision" in docs/instrument-internals.md
FINER = 2.0**-29  # the rounding of float64 over that of float32
SWITCH = 0.25  # if a larger share of signs would be computed twice, float64 alone is cheaper
FINGERPRINT = 64  # entries of each parameter in a model's fingerprint


def trusted_signs(
    model: Model | Settled,
    *,
    offsets: tuple[float, ...] = (0.0,),
    path: Path = "auto",
    seed: int = 0,
    work: Work | None = None,
) -> TrustedSigns:
    """The `TrustedSigns` of this model; nothing is computed yet. ``work`` is the planned work, if known.

    The thresholds are that of the settled model plus each of the ``offsets``.
    """
    settled = as_settled(model)
    working, key = open_engine(settled, path=path, work=work), (seed, fingerprint(settled.subject.model))
    if settled.subject.precision == "native" or settled.dtype is None:
        return TrustedSigns(working, settled, offsets, key=key)
    if settled.dtype == torch.float64:
        return TrustedSigns(working, settled, offsets, exact=lambda: settled, key=key)

    @cache
    def exact() -> Settled:
        return settled.converted(torch.float64)

    return TrustedSigns(
        working,
        settled,
        offsets,
        exact=exact,
        switch=lambda: open_engine(exact(), path=path if working.path == "fast" else "general", work=work),
        key=key,
    )


def fingerprint(model: object) -> int:
    """A fingerprint of a module from some entries of each parameter; 0 for a function."""
    found = hashlib.blake2b(digest_size=8)
    for tensor in model.parameters() if isinstance(model, nn.Module) else ():
        if tensor.layout is not torch.strided:
            continue
        numbers = tensor.detach().reshape(-1)
        some = numbers[:: max(1, len(numbers) // FINGERPRINT)].cpu()
        found.update((torch.view_as_real(some) if some.is_complex() else some.double()).numpy().tobytes())
    return int.from_bytes(found.digest(), "little") if isinstance(model, nn.Module) else 0


class TrustedSigns:
    """Signs of strings and of all their flips, with an account of their reliability.

    ``working`` computes every logit. ``exact`` makes the model that checks it in float64; without it, logits are not
    checked. ``switch`` creates a working engine in float64, for models for which float32 decides too few signs or
    overflows. The ``key`` and the first strings determine the random samples.
    """

    def __init__(
        self,
        working: Engine,
        settled: Settled,
        offsets: tuple[float, ...] = (0.0,),
        *,
        exact: Callable[[], Settled] | None = None,
        switch: Callable[[], Engine] | None = None,
        key: tuple[int, ...] = (0,),
    ) -> None:
        self.working = working
        self.settled = settled
        self._offsets = offsets
        self.margin = 0.0
        self.tolerance = 0.0
        self.rechecked = 0
        self.near_ties = 0
        self.lowest, self.highest = math.inf, -math.inf  # of all logits
        self.inside: torch.dtype | None = None  # the type to which a module rounds in a float64 evaluation
        self._exact = exact
        self._switch = switch
        self._key = key
        self._stream: np.random.Generator | None = None
        self._ahead = self._asked = 0  # numbers of announced and of computed logits
        self._compared: Counter[str] = Counter()  # logits of different value compared with float64, by kind of call
        self._values: NDArray[np.floating] = np.empty(0)  # those values
        self._looked = False
        self._perturbed = 0  # number of them computed with perturbed weights
        self._finer = 1.0  # the rounding of float64 over that of the working type

    @property
    def precision(self) -> str:
        """The precision in which the signs are computed."""
        if self._exact is None:
            return "native"
        asked = "float64" if self._switch is None else "float32+float64"
        return asked if self.inside is None else f"{asked}, {name_of(self.inside)} inside"

    def announce(self, logits: int) -> None:
        """Announce how many more logits will be requested, which determines the size of samples."""
        self._ahead += logits

    def signs(self, strings: Bits) -> Signs:
        """The answer to each string: 0 or 1, or the number of the class."""

        def ask() -> Logits:
            return self.working.logits(strings)

        return self._settled("plain", strings, ask, lambda index: strings[index])

    def flip_signs(self, strings: Bits) -> tuple[Signs, Signs]:
        """The answers to the strings [string] and of all their flips [string, position]."""

        def ask() -> Logits:
            base, flipped = self.working.flip_logits(strings)
            both = np.concatenate([base[:, None], flipped], axis=1)
            return both.reshape(-1, *both.shape[2:])

        found = self._settled("flips", strings, ask, lambda index: neighbours(strings, index))
        found = found.reshape(len(strings), -1)
        return found[:, 0], found[:, 1:]

    def _settled(self, way: str, strings: Bits, ask: Callable[[], Logits], rows: Rows) -> Signs:
        """The answers of all logits that ``ask`` computes of the strings; ``rows`` gives the strings they belong to."""
        logits = ask()
        if self._switch is not None and not np.isfinite(logits).all():  # float32 may overflow where float64 does not
            logits = self._switched(ask)
        refuse_nan(logits)
        self.settled.check_clear(logits)
        if self._stream is None:
            self._stream = _stream(self._key, strings)
            if self._exact is None:
                self.tolerance = FACTOR * self.settled.noise
        self.lowest, self.highest = min(self.lowest, float(logits.min())), max(self.highest, float(logits.max()))
        self._asked += len(logits)
        self._compare(way, logits, rows)
        if self._switch is not None and np.mean(self._distance(logits) < self.margin) > SWITCH:
            logits = self._switched(ask)
            refuse_nan(logits)
            self._compare(way, logits, rows)
        values = logits.astype(np.float64)
        self._recheck(values, rows)
        self.near_ties += int(np.count_nonzero(self._distance(values) < self.tolerance))
        return self._answers(values)

    def _switched(self, ask: Callable[[], Logits]) -> Logits:
        """Compute these and all later logits in float64."""
        assert self._switch is not None
        self.working, self._switch, self.margin = self._switch(), None, 0.0
        self._compared.clear()
        return ask()

    def _distance(self, logits: Logits) -> Logits:
        """The distance of each logit from the nearest threshold; for classes, half the lead of the largest."""
        if logits.ndim == 2:
            second, first = np.partition(logits, -2, axis=1)[:, -2:].T
            with np.errstate(invalid="ignore"):
                ahead: Logits = (first - second) / 2
            return np.where(first == second, 0.0, ahead)
        if self.settled.meaning == "labels":
            return np.full(len(logits), np.inf)  # whole numbers are not near each other
        found: Logits = np.min([np.abs(logits - threshold) for threshold in self.thresholds], axis=0)
        return found

    @property
    def thresholds(self) -> tuple[float, ...]:
        """All thresholds."""
        return tuple(self.settled.threshold + offset for offset in self._offsets)

    def _answers(self, values: NDArray[np.float64]) -> Signs:
        if self.settled.meaning == "labels" and values.ndim == 1:
            if self._offsets != (0.0,):
                raise InputError("acceptance with a margin is of a logit, and the model gives labels")
            return values.astype(np.int64)
        if values.ndim == 1:
            answers: Signs = np.sum([values > threshold for threshold in self.thresholds], axis=0, dtype=np.uint8)
            return answers
        if self._offsets != (0.0,):
            raise InputError(
                f"the model decides between {values.shape[1]} classes, and acceptance with a margin is of one logit: "
                "choose one by output=, such as a function that returns out[:, 1]"
            )
        if values.shape[1] > 256:
            raise InputError(f"the model decides between {values.shape[1]} classes: at most 256 can be told apart")
        classes: Signs = values.argmax(axis=1).astype(np.uint8)
        return classes

    @property
    def asked(self) -> Settled:
        """The model that computes the answers; on the fast path, whose outputs are logits, that of which it is."""
        return self.working.settled if isinstance(self.working, GeneralEngine) else self.settled

    def _compare(self, way: str, logits: Logits, rows: Rows) -> None:
        """Compare a sample with float64, a larger one at first and a few logits later; measure float64's error."""
        if self._exact is None:
            return
        sample, new = self._sample(way, logits)
        own = self._works_exactly
        if not self._looked:
            exact = self._look(self._exact(), rows(sample))
        else:
            exact = logits[sample] if own else self._exact().logits(rows(sample))
        refuse_nan(exact)
        floor = ROUNDINGS * float(np.finfo(logits.dtype).eps) * _largest(logits)
        self._finer = FINER if logits.dtype == np.float32 else 1.0
        if own:
            self.tolerance = max(self.tolerance, floor)
        else:
            self._widen(max(FACTOR * largest_difference(logits[sample], exact), floor))
        some = min(new, max(PERTURBED, self._size() // PERTURBED) - self._perturbed)
        if some > 0:
            self._compare_perturbed(self._exact(), rows(sample[:some]), exact[:some])
            self._perturbed += some

    def _look(self, model: Settled, strings: Bits) -> Logits:
        """The first logits in float64, and how far a module that rounds to a coarser type inside is from them."""
        self._looked = True
        logits, self.inside = exact_logits(model, strings)
        if self.inside is not None:
            self.tolerance = max(self.tolerance, rounding_inside(model, strings, self.inside))
        return logits

    @property
    def _works_exactly(self) -> bool:
        """Whether the working engine is itself the plain evaluation in float64."""
        return self._exact is not None and isinstance(self.working, GeneralEngine) and self.asked is self._exact()

    def _widen(self, margin: float) -> None:
        """Trust no sign within this margin; the error of float64 is assumed to be proportionally smaller."""
        self.margin = max(self.margin, margin)
        if math.isfinite(margin):  # float32 may overflow where float64 does not
            self.tolerance = max(self.tolerance, self._finer * margin)

    def _compare_perturbed(self, model: Settled, strings: Bits, exact: Logits) -> None:
        """Measure the possible error of float64 logits."""
        with model.perturbed(PERTURBATION) as other:
            moved = largest_difference(exact, other.logits(strings))
        self.tolerance = max(self.tolerance, PERTURBATION_FACTOR * moved)
        if self._finer == 1.0:
            # Perturbations of a weight that is used twice may cancel; rounding in float32 does not.
            coarse = FACTOR * largest_difference(exact, model.converted(torch.float32).logits(strings))
            self.tolerance = max(self.tolerance, FINER * coarse) if math.isfinite(coarse) else self.tolerance

    def _recheck(self, values: NDArray[np.float64], rows: Rows) -> None:
        """Replace logits within the margin by float64, until no new ones fall within it."""
        if self._exact is None or self._works_exactly:
            return
        settled = np.zeros(len(values), np.bool_)
        while len(doubtful := np.flatnonzero((self._distance(values) < self.margin) & ~settled)):
            exact = self._exact().logits(rows(doubtful))
            refuse_nan(exact)
            self._widen(FACTOR * largest_difference(values[doubtful], exact))
            values[doubtful] = exact
            settled[doubtful] = True
            self.rechecked += len(doubtful)

    def _sample(self, way: str, logits: Logits) -> tuple[NDArray[np.int64], int]:
        """Indices of the logits to compare, those with new values first, and the number of these."""
        assert self._stream is not None
        missing = self._size() - self._compared[way]
        if way in self._compared and missing <= 0:
            return self._stream.choice(len(logits), math.ceil(len(logits) / AUDIT), replace=False), 0
        # Many logits are not all looked at: sorting them would take longer than computing them.
        some = self._stream.choice(len(logits), CANDIDATES, replace=False) if len(logits) > CANDIDATES else None
        order = self._stream.permutation(len(logits)) if some is None else some
        single = logits if logits.ndim == 1 else logits.max(axis=1)  # for classes, the largest represents all
        new = order[np.sort(np.unique(single[order], return_index=True)[1])]  # one of each value
        new = new[~np.isin(single[new], self._values)][:missing]
        size = math.ceil(len(logits) / AUDIT) if way in self._compared else self._size()
        self._compared[way] += len(new)
        self._values = np.concatenate([self._values, single[new]])
        others = order[~np.isin(order, new)][: max(0, size - len(new))]
        return np.concatenate([new, others]), len(new)

    def _size(self) -> int:
        """The number of logits to compare at the start; more logits need a larger sample."""
        return min(SAMPLE, max(FEWEST, math.ceil(max(self._ahead, self._asked) / SHARE)))


def _stream(key: tuple[int, ...], strings: Bits) -> np.random.Generator:
    """Random numbers that depend on the key and the strings."""
    digest = hashlib.blake2b(strings.tobytes(), digest_size=8).digest()
    return np.random.default_rng([*key, strings.shape[1], int.from_bytes(digest, "little")])


def _largest(logits: Logits) -> float:
    """The largest finite absolute value."""
    return float(np.abs(logits[np.isfinite(logits)]).max(initial=0.0))
