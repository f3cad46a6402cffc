"""The trainings of the sharper-picture paper as recipes, and their generalisation gap.

For sums of parities (App. A) the model has two attention layers of one head with an MLP between them, and no norm
(`models.presets.fourier`). The optimiser is AdamW with weight decay 1e-4 at a constant rate, batches have at most 256
strings, and a training ends after the first epoch whose mean loss, of each batch before its step, is below 0.02. The
learning rate is missing in the paper: 2e-3 is that of the released log.

    fourier_recipe    one random sum of parities, learned from m strings
    parity_recipe     PARITY with a chain of thought or in one pass (§ 3), which the paper does not train
    gap               loss on all strings, or many fresh ones, compared with that on the training strings
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn

from flipscope.adapters.outputs import binary_logit
from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.checks import check_count, check_not_negative
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.basics.resampling import student_mean
from flipscope.basics.seeds import random_strings, seed_of
from flipscope.data.fourier import FourierData
from flipscope.data.steps import StepsData, Way
from flipscope.models.devices import device_of
from flipscope.models.modes import eval_mode
from flipscope.models.presets import fourier, hardness
from flipscope.training.named import loss_term
from flipscope.training.recipe import Recipe, Trained
from flipscope.training.recipes.hardness import hardness_protocol

GOAL = 0.02  # mean loss of an epoch below which a function counts as learned
STRINGS = 100_000  # strings of an evaluation, or all strings if fewer; the paper uses 1,000
_EVALUATION, _START = 0x6576616C, 0x73746172  # separate strings and weights from others drawn with the same seeds
_BATCH = 1_024

Norm = Literal["none", "post", "pre"]


def fourier_recipe(
    sparsity: int,
    degree: int,
    seed: int,
    *,
    length: int = 20,
    samples: int | None = 8_192,
    validation: int = 256,
    batch: int = 256,
    lr: float = 2e-3,
    steps: int = 100_000,
    dropout: float = 0.1,
    weight_decay: float = 1e-4,
    norm: Norm = "none",
    heads: int = 1,
    penalty: float = 0.0,
) -> Recipe:
    """The training of one random function of a class; the seed numbers the functions.

    Each function has its own initial weights and order of strings, even for the same number in two classes, so that
    measurements of them are independent; they do not depend on other settings of the training.

    With samples=None strings are fresh, and an epoch is 100 batches. The validation set is evaluated after every epoch
    without consequences; `gap` uses more strings. After `steps` steps the function counts as not learned. `norm` adds
    layer norms; `heads` have full width each and are summed; `penalty` is beta of Def 1, the strength of the Hessian's
    trace in the loss.

    >>> recipe = fourier_recipe(7, 3, 0)
    >>> recipe.model.width, recipe.protocol.goal_loss, recipe.data.train
    (51, 0.02, 8192)
    """
    check_not_negative("penalty", penalty)
    model = dataclasses.replace(fourier(length, dropout=dropout), norm=norm)
    if heads != 1:
        model = dataclasses.replace(model, heads=heads, head_size=model.width)
    return Recipe(
        data=FourierData(
            length=length, sparsity=sparsity, degree=degree, train=samples, validation=validation, seed=seed
        ),
        model=model,
        protocol=hardness_protocol(  # AdamW at a constant rate on the squared error, and the last weights
            batch=batch,
            steps=steps,
            lr=lr,
            weight_decay=weight_decay,
            epoch_steps=100,
            goal_loss=GOAL,
            terms=(loss_term("trace", penalty),) if penalty else (),
        ),
        seed=seed_of(seed, length, sparsity, degree, _START),
    )


def parity_recipe(way: Way, length: int, seed: int, *, steps: int, batch: int, lr: float, width: int = 64) -> Recipe:
    """PARITY learned with a chain of thought or in one pass: both ways have the same parameters, start and strings.

    The model is that of the hardness paper, which can learn PARITY, with causal attention and positions of period T
    (App. G). It is read at every token, or at START only.

    >>> chain, single = (parity_recipe(way, 20, 0, steps=100, batch=64, lr=1e-3) for way in ("steps", "one-pass"))
    >>> chain.model.readout, single.model.readout, chain.protocol == single.protocol
    ('every', 'last', True)
    """
    model = dataclasses.replace(
        hardness(2 * length, width),
        inputs="tokens",
        vocabulary=3,
        causal=True,
        positions="cyclic",
        period=length,
        position_width=max(length, width // 2),
        readout="every" if way == "steps" else "last",
    )
    return Recipe(
        data=StepsData(length=length, way=way, seed=seed),
        model=model,
        protocol=hardness_protocol(batch=batch, steps=steps, lr=lr, weight_decay=1e-4, epoch_steps=100),
        seed=seed,
    )


def converged(trained: Trained) -> bool:
    """Whether a training reached the goal, instead of ending at its limit of steps or diverging."""
    return trained.fitted.stopped == "goal"


@dataclass(frozen=True, eq=False)
class Gap:
    """Squared errors of a trained model in evaluation mode; the gap is that of all minus that of training strings."""

    train: float  # mean over the training strings
    everywhere: Estimate  # mean over all strings (`exact`), or over fresh ones with Student's interval
    exact: bool
    errors: Float64[np.ndarray, " string"]  # the errors behind `everywhere`, by string

    @property
    def value(self) -> Estimate:
        """The gap, with the interval due to fresh strings."""
        return self.everywhere.scaled(1.0, -self.train)


def gap(recipe: Recipe, model: nn.Module, *, strings: int = STRINGS, confidence: float = 0.95) -> Gap:
    """The loss of a model on all strings and on its training strings."""
    data = recipe.data
    if not isinstance(data, FourierData) or data.train is None:
        raise InputError("a gap is that of a sum of parities learned from a fixed set: give a recipe with samples")
    known = data.strings()
    exact = data.length < 63 and 1 << data.length <= strings
    asked = index_bits(0, 1 << data.length, data.length) if exact else _fresh(data, strings)
    errors = squared_errors(model, asked, data.values(asked))
    mean = float(errors.mean())
    found = Estimate(mean, mean, mean, confidence, len(asked)) if exact else student_mean(errors.tolist(), confidence)
    return Gap(float(squared_errors(model, known.bits, known.labels).mean()), found, exact, errors)


def _fresh(data: FourierData, strings: int) -> Bits:
    stream = np.random.default_rng([data.seed, data.length, data.sparsity, data.degree, _EVALUATION])
    return random_strings(stream, check_count("strings", strings, 2), data.length)


@torch.no_grad()
def squared_errors(model: nn.Module, bits: Bits, values: np.ndarray) -> Float64[np.ndarray, " string"]:
    """The squared error of a model on each of the strings."""
    wanted, device = torch.from_numpy(np.asarray(values, np.float64)), device_of(model)

    def one(some: Tensor, right: Tensor) -> Tensor:
        return (binary_logit(model(some.to(device))).cpu().double() - right).square()

    with eval_mode(model):
        parts = zip(torch.from_numpy(bits).split(_BATCH), wanted.split(_BATCH), strict=True)
        found = torch.cat([one(some, right) for some, right in parts])
    out: Float64[np.ndarray, " string"] = found.numpy()
    return out
