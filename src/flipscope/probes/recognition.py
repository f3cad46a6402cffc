"""Margin acceptance (Eq 15) and recognition of a language with a margin (Def 2.8)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int8, UInt8
from torch import Tensor

from flipscope.adapters.settled import Bits, Settled, as_settled
from flipscope.adapters.subject import Model
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_array, index_bits
from flipscope.basics.checks import check_count, check_positive, shown
from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_work
from flipscope.basics.seeds import generators, random_strings
from flipscope.cube.functions import BooleanFunction
from flipscope.figures import Figure
from flipscope.figures.panels import bars_panel
from flipscope.figures.results import Result
from flipscope.probes.results import ACCEPT, REJECT, UNDEFINED

MAX_EXHAUSTIVE = 24  # 16 million strings
_BLOCK = 4096  # strings evaluated together


@dataclass(frozen=True, repr=False)
class Recognition(Result):
    """The answers of a model on strings of one length: counts that add up to `strings`."""

    length: int
    margin: float
    exhaustive: bool
    correct: int
    wrong: int
    undefined: int
    precision: str  # number type in which the model was evaluated

    @property
    def strings(self) -> int:
        """Number of strings evaluated."""
        return self.correct + self.wrong + self.undefined

    @property
    def recognized(self) -> bool:
        """Whether every string was correct: all strings if `exhaustive`, else those of the sample."""
        return self.correct == self.strings

    def summary(self) -> dict[str, object]:
        """The main numbers by label."""
        return {
            "strings": f"{'all ' if self.exhaustive else ''}{self.strings:,} of length {self.length:,}",
            "margin": self.margin,
            "answers": f"{self.correct:,} correct, {self.wrong:,} wrong, {self.undefined:,} undefined",
            "recognized": self.recognized,
        }

    def plot(self) -> Figure:
        """The share of strings by answer."""
        total = max(1, self.strings)
        shares = {name: getattr(self, name) / total for name in ("correct", "wrong", "undefined")}
        caption = f"Answers with margin {self.margin:g} on strings of length {self.length:,}."
        return Figure("recognition", "Recognition", caption, [bars_panel(shares, "share of strings")], columns=1)


@checked_arguments
def accept(logits: Tensor | np.ndarray, margin: float) -> Int8[np.ndarray, "*string"]:
    """Eq 15 for each logit: 1 from the margin up, 0 from its negative down, and -1 (undefined) between."""
    check_positive("margin", margin)
    if isinstance(logits, Tensor) and logits.dtype == torch.bfloat16:  # numpy does not have this type
        logits = logits.float()
    values = as_array(logits, "logits")
    if values.dtype.kind not in "biuf":
        raise InputError(f"logits of type {values.dtype} must be numbers")
    if np.isnan(values).any():
        raise InputError(f"{int(np.isnan(values).sum())} of {values.size} logits are NaN: the model is broken")
    answers = np.full(values.shape, UNDEFINED, dtype=np.int8)
    answers[values >= margin] = ACCEPT
    answers[values <= -margin] = REJECT
    return answers


@checked_arguments
def recognition(
    model: Model,
    function: BooleanFunction,
    margin: float,
    *,
    samples: int | None = None,
    seed: int | np.random.Generator = 0,
) -> Recognition:
    """How often the model gives the function's value with this margin, on strings of the function's length.

    All 2^n strings are evaluated, or `samples` uniformly random ones. The margin is measured from the threshold, which
    is 0.5 for a model that returns probabilities.

    >>> from flipscope.cube.functions import majority
    >>> recognition(lambda bits: bits.sum(dim=1) - 1.5, majority(3), 0.5).recognized
    True
    """
    check_positive("margin", margin)
    n = function.n
    if samples is None and n > MAX_EXHAUSTIVE:
        raise InputError(f"all strings of length {n} are too many (most: {MAX_EXHAUSTIVE}): give samples")
    settled = as_settled(model)
    correct = undefined = total = 0
    with settled.measuring():
        for bits in _strings(n, samples, seed):
            answers = _accepted(settled, bits, margin)
            correct += int((answers == function(bits)).sum())
            undefined += int((answers == UNDEFINED).sum())
            total += len(bits)
    wrong = total - correct - undefined
    return Recognition(n, margin, samples is None, correct, wrong, undefined, settled.precision)


@checked_arguments
def recognizes(
    model: Model,
    function: BooleanFunction,
    margin: float,
) -> bool:
    """Whether the model is correct on all strings with this margin; stops at the first batch with an error.

    >>> from flipscope.cube.functions import first, majority
    >>> [recognizes(lambda bits: bits[:, 0] - 0.5, f, 0.1) for f in (first(5), majority(5))]
    [True, False]
    """
    check_positive("margin", margin)
    if function.n > MAX_EXHAUSTIVE:
        raise InputError(f"all strings of length {function.n} are too many (most: {MAX_EXHAUSTIVE})")
    settled = as_settled(model)
    with settled.measuring():
        return all(
            bool((_accepted(settled, bits, margin) == function(bits)).all()) for bits in _strings(function.n, None, 0)
        )


def _accepted(settled: Settled, bits: Bits, margin: float) -> Int8[np.ndarray, " string"]:
    """The model's answer to each string with this margin."""
    logits = settled.logits(bits)
    settled.check_clear(logits)
    if settled.meaning == "labels":
        raise InputError("recognition is by a logit with a margin, and the model gives labels")
    if logits.ndim > 1:
        raise InputError(
            f"the model decides between {logits.shape[1]} classes, and recognition is by one logit: choose it by "
            "output=, such as a function that returns out[:, 1]"
        )
    return accept(logits - settled.threshold, margin)


def _strings(
    n: int, samples: int | None, seed: int | np.random.Generator
) -> Iterator[UInt8[np.ndarray, "string position"]]:
    """Blocks of all strings in truth-table order, or of random ones."""
    total = 1 << n if samples is None else check_count("samples", samples)
    check_work(total * n, f"{shown(total)} strings", "give fewer samples")
    [stream] = generators(seed, 1)
    for start in range(0, total, _BLOCK):
        count = min(_BLOCK, total - start)
        yield index_bits(start, count, n) if samples is None else random_strings(stream, count, n)
