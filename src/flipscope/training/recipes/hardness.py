"""The trainings of the hardness paper as recipes, and the rule by which it keeps a model.

Everywhere labels are 0 and 1 with the squared error (`targets`), the optimiser is AdamW at a constant learning rate of
3e-4 with weight decay 0.1 on all parameters, batches are drawn anew at every step, the number of steps is fixed, and
the last weights are kept.

    hardness_recipe      one function at one length
    table_recipe         a truth table, from all of its rows or from a random subset
    scratchpad_recipe    parity by an encoder-decoder that writes the parity of every prefix
    lengths_recipe       strings of many lengths, to be tested on longer ones

The rule: a model is kept if its squared error on fresh strings is below 0.001. The mean of n bits has variance 1 / 4n,
and a balanced function 1/4: for the mean the limit is 0.001 / n, the same share of the variance. A model with a
scratchpad is kept if more than 0.999 of the bits that it generates are correct.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from flipscope.adapters.outputs import binary_logit
from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate, mean_from_samples, proportions
from flipscope.basics.resampling import student_mean
from flipscope.basics.seeds import random_strings
from flipscope.cube.expression import parse
from flipscope.data.lengths import FAMILIES, LengthsData, prefix_values
from flipscope.data.real import RealData
from flipscope.data.real_functions import is_real
from flipscope.data.strings import Data, StringData
from flipscope.data.tables import TableData
from flipscope.models.config import TransformerConfig
from flipscope.models.devices import device_of
from flipscope.models.modes import eval_mode
from flipscope.models.presets import hardness
from flipscope.models.seq2seq import Seq2Seq
from flipscope.models.seq2seq_config import Seq2SeqConfig
from flipscope.training.named import Measurement
from flipscope.training.protocol import TrainingProtocol
from flipscope.training.recipe import Recipe

KEPT_BELOW = 0.001  # squared error of 0 and 1
KEPT_ABOVE = 0.999  # share of correct bits in a scratchpad
STRINGS = 100_000  # strings of a final evaluation, or all strings if fewer; the paper uses 1,024,000
_EVALUATION = 0x6576616C  # separates its strings from others drawn with the same seeds
_BATCH = 1_024

Positions = Literal["sinusoidal", "learned"]


def hardness_protocol(
    *,
    batch: int = 1_024,
    steps: int = 10_000,
    lr: float = 3e-4,
    weight_decay: float = 0.1,
    epoch_steps: int = 500,
    **others: Any,
) -> TrainingProtocol:
    """The paper's protocol; `others` are further fields of it. Validation takes place every `epoch_steps`.

    >>> hardness_protocol(steps=100).restore
    'last'
    """
    return TrainingProtocol(
        batch=batch,
        learning_rate=lr,
        optimiser="adamw",
        weight_decay=weight_decay,
        loss="mse",
        labels="bits",
        decay_after=None,
        stop_after=None,
        max_epochs=None,
        max_steps=check_count("steps", steps),
        epoch_steps=min(epoch_steps, steps),
        restore="last",
        **others,
    )


def hardness_recipe(
    function: str,
    n: int,
    seed: int,
    *,
    width: int = 128,
    batch: int = 1_024,
    steps: int = 10_000,
    lr: float = 3e-4,
    weight_decay: float = 0.1,
    log: Sequence[Measurement] = (),
    model: TransformerConfig | None = None,
    equal_layers: bool = False,
    **others: Any,
) -> Recipe:
    """The training of E1, E2 and E3 of one function at one length.

    `function` is "parity", "majority", "first", "mean", any expression, or a weighted sum
    (`flipscope.data.real_functions`). The model is `hardness(n, width)` unless another is given, such as one with
    norm="pre". With `equal_layers` its layers start as copies of one, as the authors' `nn.TransformerEncoder`
    creates them; otherwise each is drawn separately.

    >>> hardness_recipe("parity", 10, 0).data.function
    'parity(10)'
    """
    return Recipe(
        data=_data(function, n, seed),
        model=hardness(n, width) if model is None else model,
        protocol=hardness_protocol(batch=batch, steps=steps, lr=lr, weight_decay=weight_decay, **others),
        seed=seed,
        log=tuple(log),
        equal_layers=equal_layers,
    )


def _data(function: str, n: int, seed: int) -> Data:
    validation = min(1_000, 1 << min(n, 30))
    if is_real(function):
        return RealData(function=function, length=n, validation=validation, seed=seed)
    expression = f"{function}({n})" if function in FAMILIES else function
    parse(expression, n)
    return StringData(function=expression, length=n, train=None, validation=validation, seed=seed)


def table_recipe(
    data: TableData,
    seed: int,
    *,
    width: int = 128,
    batch: int = 1_024,
    steps: int = 10_000,
    lr: float = 3e-4,
    weight_decay: float = 0.1,
    log: Sequence[Measurement] = (),
    equal_layers: bool = False,
    **others: Any,
) -> Recipe:
    """The training of E4: step 1 with a `subset` of the rows, step 2 with all rows of a function that was learned.

    `equal_layers` is as in `hardness_recipe`.

    >>> from flipscope.data.tables import random_table
    >>> table_recipe(TableData(table=random_table(10, 0), length=10, subset=128, seed=0), 0).data.subset
    128
    """
    protocol = hardness_protocol(batch=batch, steps=steps, lr=lr, weight_decay=weight_decay, **others)
    return Recipe(
        data=data,
        model=hardness(data.length, width),
        protocol=protocol,
        seed=seed,
        log=tuple(log),
        equal_layers=equal_layers,
    )


def scratchpad_recipe(
    n: int,
    seed: int,
    *,
    shortest: int | None = None,
    longest: int | None = None,
    width: int = 32,
    batch: int = 128,
    steps: int = 10_000,
    lr: float = 3e-4,
    weight_decay: float = 0.1,
    log: Sequence[Measurement] = (),
    **others: Any,
) -> Recipe:
    """The training of E5: parity at length n with a scratchpad, with teacher forcing.

    With `shortest` lengths are mixed; the model has positions for strings of `longest` bits, or n.

    >>> scratchpad_recipe(16, 0).model.layers
    2
    """
    return Recipe(
        data=LengthsData(function="parity", length=n, shortest=shortest, answer="scratchpad", seed=seed),
        model=Seq2SeqConfig(length=n if longest is None else longest, width=width, ffn_width=width),
        protocol=hardness_protocol(batch=batch, steps=steps, lr=lr, weight_decay=weight_decay, **others),
        seed=seed,
        log=tuple(log),
    )


def lengths_recipe(
    function: str,
    n: int,
    seed: int,
    *,
    shortest: int = 4,
    factors: Sequence[float] = (4 / 3, 2, 8 / 3),
    positions: Positions = "sinusoidal",
    width: int = 128,
    batch: int = 1_024,
    steps: int = 10_000,
    lr: float = 3e-4,
    weight_decay: float = 0.1,
    log: Sequence[Measurement] = (),
    **others: Any,
) -> Recipe:
    """Length generalisation: trained on lengths from `shortest` to n, tested at `longer_lengths(n, factors)`.

    One length per batch, as the authors' code draws them. The model is that of `hardness_recipe`, read at the last
    symbol; learned positions exist up to the longest tested length, and those beyond n are never trained.

    >>> lengths_recipe("majority", 12, 0, factors=(2,), positions="learned").model.max_length
    24
    """
    if positions not in ("sinusoidal", "learned"):
        raise InputError(f"positions={positions!r} is not one of sinusoidal, learned")
    model = hardness(max([n, *longer_lengths(n, factors)]), width)
    if positions == "sinusoidal":
        model = dataclasses.replace(model, positions="sinusoidal", max_length=None)
    return Recipe(
        data=LengthsData(function=function, length=n, shortest=shortest, seed=seed),
        model=model,
        protocol=hardness_protocol(batch=batch, steps=steps, lr=lr, weight_decay=weight_decay, **others),
        seed=seed,
        log=tuple(log),
    )


def longer_lengths(n: int, factors: Sequence[float]) -> list[int]:
    """The lengths at these factors of n, rounded; each factor must be at least 1.

    >>> longer_lengths(12, (4 / 3, 2, 8 / 3))
    [16, 24, 32]
    """
    if any(not factor >= 1 for factor in factors):
        raise InputError(f"factors={list(factors)} must be at least 1: they say how much longer the tested strings are")
    return [round(n * factor) for factor in factors]


# ---------------------------------------------------------------- after a training


@dataclass(frozen=True)
class Final:
    """The performance of a trained model on fresh strings, or on all strings (`exact`)."""

    length: int
    error: Estimate  # mean squared error to labels 0 and 1, or to the real values
    accuracy: Estimate | None  # share of strings on the correct side of 1/2; None for the mean, where it is meaningless
    exact: bool
    limit: float  # of the error
    kept: bool  # whether the error is below it


def kept_below(function: str | None, n: int) -> float:
    """The squared error below which a model is kept: 0.001, and 0.001 / n for the mean, whose variance is 1 / 4n.

    >>> kept_below("parity(10)", 10), kept_below("mean", 10)
    (0.001, 0.0001)
    """
    return KEPT_BELOW / n if function == "mean" else KEPT_BELOW


def final(
    recipe: Recipe,
    model: nn.Module,
    *,
    length: int | None = None,
    strings: int = STRINGS,
    seed: int = 0,
    confidence: float = 0.95,
) -> Final:
    """The final evaluation of a model on strings of its recipe's function, of its own length or another.

    Strings are fresh, from a stream that no training uses; if there are at most `strings` in total, each is evaluated
    once and the result is exact. The interval of the error is Student's.
    """
    data = recipe.data
    n = data.length if length is None else check_count("length", length)
    exact = n < 63 and 1 << n <= strings
    bits = index_bits(0, 1 << n, n) if exact else _fresh(strings, n, seed)
    wanted = _values(data, bits, n)
    answers = _answers(model, torch.from_numpy(bits))
    errors = (answers - wanted) ** 2
    real = wanted.dtype == np.float32
    accuracy = None if real else _share(int(((answers > 0.5) == (wanted > 0.5)).sum()), len(bits), exact, confidence)
    mean = float(errors.mean())
    mean = mean if np.isfinite(mean) else np.inf  # if the model's outputs are not finite
    whole = exact or mean == np.inf
    error = Estimate(mean, mean, mean, confidence, len(bits)) if whole else student_mean(errors.tolist(), confidence)
    limit = kept_below(data.function, n)
    return Final(n, error, accuracy, exact, limit, bool(mean < limit))


def _values(data: Data, bits: Bits, n: int) -> np.ndarray:
    """The function's values on these strings, of any length for which it is defined."""
    if isinstance(data, LengthsData):
        return prefix_values(data.function, bits)[:, -1]
    if isinstance(data, RealData) and data.function == "mean":
        return prefix_values("mean", bits)[:, -1]
    if n != data.length:
        raise InputError(f"length={n} is not that of the recipe's function, which has {data.length} bits")
    if isinstance(data, RealData):
        return data.values(bits)
    if isinstance(data, TableData):
        return data.values()[bits.astype(np.int64) @ (1 << np.arange(n))]
    language = data.language() if isinstance(data, StringData) else None
    if language is None:
        raise InputError("a random language has no label for a fresh string: evaluate it on its own strings")
    return language(bits)


@torch.no_grad()
def _answers(model: nn.Module, bits: Tensor) -> np.ndarray:
    device = device_of(model)
    with eval_mode(model):
        parts = [binary_logit(model(part.to(device))).cpu().double() for part in bits.split(_BATCH)]
    return torch.cat(parts).numpy()


def _fresh(strings: int, n: int, seed: int) -> Bits:
    stream = np.random.default_rng([check_count("seed", seed, 0), n, _EVALUATION])
    return random_strings(stream, check_count("strings", strings, 2), n)


def _share(right: int, total: int, exact: bool, confidence: float) -> Estimate:
    if exact:
        return Estimate(right / total, right / total, right / total, confidence, total)
    return proportions([right], total, confidence)[0]


@dataclass(frozen=True)
class Written:
    """The accuracy of a model that generates its scratchpad."""

    length: int
    tokens: Estimate  # share of correct bits; its interval treats each string as one sample
    answers: Estimate  # share of strings whose last bit is correct
    kept: bool  # whether more than 0.999 of the bits are correct


def written(
    recipe: Recipe,
    model: nn.Module,
    *,
    length: int | None = None,
    strings: int = 1_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Written:
    """Evaluate a scratchpad model on fresh strings, each bit generated from its earlier ones (the rule of E5)."""
    if not isinstance(model, Seq2Seq) or not isinstance(recipe.data, LengthsData):
        raise InputError(f"a {type(model).__name__} writes no scratchpad: give the model of scratchpad_recipe")
    n = recipe.data.length if length is None else check_count("length", length)
    bits = _fresh(strings, n, seed)
    wanted = prefix_values(recipe.data.function, bits)
    parts = torch.from_numpy(bits).to(device_of(model)).split(_BATCH)
    found = torch.cat([model.write(part) for part in parts]).cpu().numpy()
    right = found == wanted
    shares = right.mean(axis=1)
    return Written(
        n,
        mean_from_samples(shares, 0, 1, confidence),
        proportions([int(right[:, -1].sum())], len(bits), confidence)[0],
        bool(shares.mean() > KEPT_ABOVE),
    )
