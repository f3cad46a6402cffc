"""The trainings of the sparse-variable paper as recipes (App. C), and measurements during training.

The model is minGPT with one layer, width 64, 16 heads and dropout 0.1, from Gaussian weights of standard deviation
0.02. The optimiser is Adam at a constant rate of 1e-3 with weight decay 1e-4. The rest follows minGPT: the decay is
decoupled and exempts biases, norms and embeddings, and gradients are clipped to norm 1.

    sparse_recipe    a gate of few hidden bits: all of m strings in every step, or fresh ones
    sparse_data      its strings
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.data.sparse import SparseData, balanced_share
from flipscope.models.presets import mingpt
from flipscope.training.named import Measurement, measurement
from flipscope.training.protocol import TrainingProtocol
from flipscope.training.recipe import Recipe

SUCCESS = 0.99  # validation accuracy above which a training succeeds
CHECKED = 10  # steps between two validations


def just_above(share: float, strings: int) -> float:
    """The smallest accuracy on this many strings that exceeds the share, for `goal`, which includes its value.

    >>> just_above(0.99, 10_000)
    0.9901
    """
    return min(1.0, (math.floor(share * strings + 1e-9) + 1) / strings)


def sparse_data(
    gate: str,
    length: int,
    seed: int,
    *,
    samples: int | None = None,
    relevant: int = 3,
    validation: int = 10_000,
    noise: float = 0.0,
    balanced: bool = False,
) -> SparseData:
    """Strings of a gate; the share of ones in `balanced` inputs makes the gate 1 on half of them.

    >>> round(sparse_data("and", 50, 0, balanced=True).ones, 6)
    0.793701
    """
    ones = balanced_share(gate, relevant) if balanced else 0.5
    return SparseData(
        gate=gate, length=length, relevant=relevant, samples=samples, validation=validation, noise=noise, ones=ones,
        seed=seed,
    )  # fmt: skip


def sparse_recipe(
    gate: str,
    length: int,
    seed: int,
    *,
    samples: int | None = None,
    relevant: int = 3,
    validation: int = 10_000,
    noise: float = 0.0,
    balanced: bool = False,
    steps: int = 1_000,
    batch: int | None = None,
    width: int = 64,
    heads: int = 16,
    layers: int = 1,
    dropout: float = 0.1,
    lr: float = 1e-3,
    weight_decay: float = 1e-4,
    clip: float | None = 1.0,
    stop: bool = True,
    log: Sequence[Measurement] = (),
) -> Recipe:
    """The training of C.1 with `samples` strings, all of them in every step, or of C.2 with fresh batches.

    `gate` is "and", "or", "majority", "parity" or an expression of `relevant` bits. Validation takes place
    every 10 steps; with `stop` the training ends at the first accuracy above 0.99, which decides the paper's question
    whether the largest accuracy within all steps is above it. The seed determines hidden positions, strings, weights
    and masks.

    >>> recipe = sparse_recipe("and", 100, 0, samples=70)
    >>> recipe.protocol.batch, recipe.protocol.goal, recipe.model.dropout
    (70, 0.9901, 0.1)
    """
    if samples is None and batch is None:
        raise InputError("batch must be given where strings are fresh, such as batch=2048")
    return Recipe(
        data=sparse_data(
            gate,
            length,
            seed,
            samples=samples,
            relevant=relevant,
            validation=validation,
            noise=noise,
            balanced=balanced,
        ),
        model=mingpt(length, width, layers, heads, dropout=dropout),
        protocol=TrainingProtocol(
            batch=batch or samples or 1,
            learning_rate=lr,
            optimiser="adamw",
            weight_decay=weight_decay,
            decay_on="matrices",
            clip=clip,
            decay_after=None,
            stop_after=None,
            max_epochs=None,
            max_steps=check_count("steps", steps),
            epoch_steps=min(CHECKED, steps),
            goal=just_above(SUCCESS, validation) if stop else None,
            restore="last",
        ),
        init="gaussian",
        init_scope="weights",
        init_scale=0.02,
        seed=seed,
        log=tuple(log),
    )


# ---------------------------------------------------------------- measurements during training


def on_training_set(recipe: Recipe, every: int = CHECKED) -> Measurement:
    """For `log`: "training_set.loss" and ".accuracy" on the training strings, without dropout."""
    return measurement("training_set", every, **_settings(recipe))


def on_hidden_bits(recipe: Recipe, every: int = CHECKED, strings: int = 256) -> Measurement:
    """For `log`: "hidden_attention.mean" and ".most", the marker's attention to the hidden positions."""
    return measurement("hidden_attention", every, strings=strings, **_settings(recipe))


def _settings(recipe: Recipe) -> dict[str, Any]:
    assert isinstance(recipe.data, SparseData)
    names = ("gate", "length", "relevant", "samples", "noise", "ones", "seed")
    return {name: getattr(recipe.data, name) for name in names}
