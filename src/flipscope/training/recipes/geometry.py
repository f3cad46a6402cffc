"""The trainings of the geometry paper as recipes.

language_recipe      an encoder that learns a language from a fixed set of strings (App. F.2)
random_setting       batch size and learning rate from the distribution of App. F.2
recognizer_recipe    a small recogniser, trained on fresh strings until every validation string is right
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flipscope.basics.seeds import generators
from flipscope.data.strings import StringData
from flipscope.models.init import Scheme
from flipscope.models.presets import encoder, recognizer
from flipscope.training.protocol import TrainingProtocol
from flipscope.training.recipe import Recipe

VALIDATION = 1_000  # validation strings for early stopping (App. F.2)


@dataclass(frozen=True)
class TrainingSetting:
    """Batch size and initial learning rate."""

    batch: int
    learning_rate: float


def random_setting(seed: int | np.random.Generator) -> TrainingSetting:
    """A setting from the distribution of App. F.2: batch U[128, 4096], learning rate log-U[1e-4, 1e-2]."""
    [stream] = generators(seed, 1)
    return TrainingSetting(int(stream.integers(128, 4097)), float(10 ** stream.uniform(-4, -2)))


def language_recipe(
    function: str | None,
    length: int,
    seed: int,
    *,
    layers: int,
    heads: int,
    head_size: int,
    ffn_multiple: int,
    batch: int,
    learning_rate: float,
    train: int = 10_000,
    max_epochs: int = 1_000,
    init: Scheme = "uniform",
    strings_seed: int = 0,
) -> Recipe:
    """The training of App. F.2: a language from `train` strings, until the validation loss stops falling.

    Without a function the language is random. `strings_seed` determines the strings, `seed` the weights and the order.

    >>> setting = {"layers": 2, "heads": 1, "head_size": 16, "ffn_multiple": 2, "batch": 64, "learning_rate": 3e-3}
    >>> language_recipe("majority(40)", 40, 0, **setting).model.hidden_width
    32
    """
    width = heads * head_size
    return Recipe(
        data=StringData(function=function, length=length, train=train, validation=VALIDATION, seed=strings_seed),
        model=encoder(width=width, layers=layers, heads=heads, ffn_width=ffn_multiple * width),
        protocol=TrainingProtocol(batch=batch, learning_rate=learning_rate, max_epochs=max_epochs),
        init=init,
        seed=seed,
    )


def recognizer_recipe(function: str, length: int, seed: int, *, eps: float, epochs: int) -> Recipe:
    """A recogniser of width 16 and 2 layers, trained for limited epochs of 50 batches of 64 fresh strings.

    >>> recognizer_recipe("first(10)", 10, 0, eps=0.0, epochs=20).protocol.most_steps(None)
    1000
    """
    return Recipe(
        data=StringData(function=function, length=length, train=None, validation=500, seed=seed),
        model=recognizer(width=16, layers=2, eps=eps),
        protocol=TrainingProtocol(
            batch=64, learning_rate=3e-3, stop_after=None, max_epochs=epochs, epoch_steps=50, goal=1.0
        ),
        seed=seed,
    )
