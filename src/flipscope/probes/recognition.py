"""Margin acceptance (Eq 15) and recognition of a language with a margin (Def 2.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int8, UInt8
from numpy.typing import NDArray
from torch import Tensor, nn

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_array, index_bits
from flipscope.basics.checks import check_count, check_positive, shown
from flipscope.basics.errors import InputError, reason
from flipscope.basics.limits import check_work
from flipscope.basics.seeds import generators, random_strings
from flipscope.cube.functions import BooleanFunction
from flipscope.figures import Figure
from flipscope.figures.panels import bars_panel
from flipscope.figures.results import Result
from flipscope.models.deterministic import Ask, check_deterministic
from flipscope.models.modes import eval_mode
from flipscope.models.outputs import binary_logit
from flipscope.models.unmodified import difference
from flipscope.probes.results import ACCEPT, REJECT, UNDEFINED

Floats = NDArray[np.floating]

MAX_EXHAUSTIVE = 24  # 16 million strings


@dataclass(frozen=True, repr=False)
class Recognition(Result):
    """How a model answered on strings of one length: counts that add up to `strings`."""

    length: int
    margin: float
    exhaustive: bool
    correct: int
    wrong: int
    undefined: int

    @property
    def strings(self) -> int:
        """Number of strings asked."""
        return self.correct + self.wrong + self.undefined

    @property
    def recognized(self) -> bool:
        """Whether every string was right; of the whole language only if `exhaustive`, else of the sample."""
        return self.correct == self.strings

    def summary(self) -> dict[str, object]:
        """What is read first."""
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
    if isinstance(logits, Tensor) and logits.dtype == torch.bfloat16:  # which numpy does not have
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
    model: nn.Module | Callable[[Tensor], Tensor],
    function: BooleanFunction,
    margin: float,
    *,
    samples: int | None = None,
    seed: int | np.random.Generator = 0,
    batch: int = 256,
) -> Recognition:
    """How often the model gives the function's value with this margin, on strings of the function's length.

    All 2^n strings are asked, or `samples` uniformly random ones. The model maps bits [string, position] in
    uint8 to logits [string] or [string, 2], each string's its own whatever strings it is asked with; a module is in
    evaluation mode meanwhile, and left as it was.
    """
    check_positive("margin", margin)
    n = function.n
    if samples is None and n > MAX_EXHAUSTIVE:
        raise InputError(f"all strings of length {n} are too many (most: {MAX_EXHAUSTIVE}): give samples")
    correct = undefined = total = 0
    with eval_mode(model, own=True):
        for bits in _strings(n, samples, seed, batch):
            if total == 0 and difference(model) is not None:
                check_deterministic(model, _asking, bits, batch)
            answers = accept(_logits(model, bits), margin)
            correct += int((answers == function(bits)).sum())
            undefined += int((answers == UNDEFINED).sum())
            total += len(bits)
    return Recognition(n, margin, samples is None, correct, total - correct - undefined, undefined)


@checked_arguments
def recognizes(
    model: nn.Module | Callable[[Tensor], Tensor], function: BooleanFunction, margin: float, *, batch: int = 256
) -> bool:
    """Whether the model is right on all strings with this margin; none is asked after the first batch with a wrong one.

    >>> from flipscope.cube.functions import first, majority
    >>> [recognizes(lambda bits: bits[:, 0] - 0.5, f, 0.1) for f in (first(5), majority(5))]
    [True, False]
    """
    check_positive("margin", margin)
    if function.n > MAX_EXHAUSTIVE:
        raise InputError(f"all strings of length {function.n} are too many (most: {MAX_EXHAUSTIVE})")
    with eval_mode(model, own=True):
        return all(
            bool((accept(_logits(model, bits), margin) == function(bits)).all())
            for bits in _strings(function.n, None, 0, batch)
        )


def _asking(model: nn.Module | Callable[[Tensor], Tensor]) -> Ask:
    def ask(bits: UInt8[np.ndarray, "string position"]) -> Floats:
        logits = _logits(model, bits.copy())  # for the model may write to it
        return _numbers(logits if logits.is_floating_point() else logits.double())[:, None]

    return ask


def _numbers(logits: Tensor) -> Floats:
    """The same as an array, for which numpy has no bfloat16."""
    found: Floats = (logits.float() if logits.dtype == torch.bfloat16 else logits).detach().cpu().numpy()
    return found


@torch.no_grad()
def _logits(
    model: nn.Module | Callable[[Tensor], Tensor], bits: UInt8[np.ndarray, "string position"]
) -> Float[Tensor, " string"]:
    """The model's logit of each string."""
    strings = torch.from_numpy(bits)
    if isinstance(model, nn.Module) and (parameter := next(model.parameters(), None)) is not None:
        strings = strings.to(parameter.device)
    try:
        answers = model(strings)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"the model failed on {len(bits)} strings of length {bits.shape[1]}, given as bits in uint8, with "
            f"{reason(error)}: give one that takes them"
        ) from error
    logits = binary_logit(answers)
    if len(logits) != len(bits):
        raise InputError(f"the model gave {len(logits)} logits for {len(bits)} strings")
    return logits


def _strings(
    n: int, samples: int | None, seed: int | np.random.Generator, batch: int
) -> Iterator[UInt8[np.ndarray, "string position"]]:
    """Batches of all strings in truth-table order, or of random ones, the same for every batch size."""
    check_count("batch", batch)
    total = 1 << n if samples is None else check_count("samples", samples)
    check_work(total * n, f"{shown(total)} strings", "give fewer samples")
    [stream] = generators(seed, 1)
    for start in range(0, total, batch):
        count = min(batch, total - start)
        yield index_bits(start, count, n) if samples is None else random_strings(stream, count, n)
