"""The trainings of paper 004 on images and texts as recipes (App. D).

    image_recipe    a model of `flipscope.models.baselines.presets.IMAGE_MODELS` on an image set
    text_recipe     a model of TEXT_MODELS on pairs of sentences

The paper trains on images with SGD at the rates of `PAPER_RATES`, without momentum, weight decay or augmentation, in
batches of 100 (50 on MNIST), and on texts with AdamW at 1e-4 with weight decay 1e-4 in batches of 32. Adam at 1e-3 is
the default here, since it fits the training sets in far fewer steps on two cores. Recipes keep the last weights, so
that the test set, which is evaluated after each epoch, chooses nothing unless there is a `goal`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.data.image_data import ImageData, image_data
from flipscope.data.text_data import TextData, text_data
from flipscope.models.baselines.presets import ImageShape, TextShape, image_model, text_model
from flipscope.models.config import TransformerConfig
from flipscope.training.named import LossTerm, Measurement
from flipscope.training.protocol import Optimiser, TrainingProtocol
from flipscope.training.recipe import Recipe

# Learning rates of SGD by data set and model (App. D).
PAPER_RATES: Mapping[tuple[str, str], float] = {
    ("mnist", "mlp"): 0.01,
    ("mnist", "vit-small"): 0.01,
    ("fashion-mnist", "mlp"): 0.1,
    ("fashion-mnist", "mlp-sigmoid"): 0.5,
    ("fashion-mnist", "cnn"): 0.005,
    ("fashion-mnist", "vit-small"): 0.1,
    ("cifar-10", "vit-small"): 0.1,
    ("cifar-10", "vit-simple"): 0.2,
    ("cifar-10", "convmixer"): 0.06,
    ("cifar-10", "resnet-18"): 0.001,
    ("cifar-10", "densenet-121"): 0.005,
    ("svhn", "vit-small"): 0.1,
    ("svhn", "resnet-18"): 0.0015,
}
RATE = 1e-3  # of Adam and AdamW
PAPER_TEXT_RATE = 1e-4
_WIDE = 256  # the paper's width of text models


@checked_arguments
def image_recipe(
    data: ImageData | str,
    model: str,
    seed: int = 0,
    *,
    optimiser: Optimiser = "adam",
    learning_rate: float | None = None,
    batch: int | None = None,
    epochs: int = 20,
    goal: float | None = None,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    decay_every: int | None = None,
    decay_factor: float = 0.5,
    terms: Sequence[LossTerm] = (),
    log: Sequence[Measurement] = (),
) -> Recipe:
    """The training of a named model on images; `data` is a record made by `image_data`, or the name of a set.

    The default rate is 1e-3, or with SGD that of the paper. App. A.3 of the paper uses optimiser="adam",
    learning_rate=0.002, decay_every=8.

    >>> image_recipe("digits", "cnn-small").protocol.loss
    'ce'
    """
    data = image_data(data) if isinstance(data, str) else data
    shape = ImageShape(data.name, data.image_size, data.channels, data.classes)
    return Recipe(
        data=data,
        model=image_model(model, shape),
        protocol=TrainingProtocol(
            learning_rate=_rate(data.name, model, optimiser) if learning_rate is None else learning_rate,
            batch=batch or (50 if data.name == "mnist" else 100),
            optimiser=optimiser,
            momentum=momentum,
            weight_decay=weight_decay,
            terms=tuple(terms),
            **_stopping(epochs, goal, decay_every, decay_factor),
        ),
        seed=seed,
        log=tuple(log),
    )


@checked_arguments
def text_recipe(
    data: TextData | str,
    model: str,
    seed: int = 0,
    *,
    optimiser: Optimiser = "adamw",
    learning_rate: float | None = None,
    batch: int = 32,
    epochs: int = 20,
    goal: float | None = None,
    momentum: float = 0.0,
    weight_decay: float = 1e-4,
    decay_every: int | None = None,
    decay_factor: float = 0.5,
    terms: Sequence[LossTerm] = (),
    log: Sequence[Measurement] = (),
) -> Recipe:
    """The training of a named model on pairs of sentences; `data` is a record made by `text_data`, or a set's name.

    Transformers of the paper's width start from Gaussian weights of standard deviation 0.02; narrower ones, for which
    that is too small to learn from, and LSTMs start as PyTorch's modules do. The default rate is 1e-3; the paper's is
    1e-4 (`PAPER_TEXT_RATE`), multiplied by 0.9 after each epoch in the released code.
    """
    data = text_data(data) if isinstance(data, str) else data
    config = text_model(model, TextShape(data.vocabulary, data.length, data.padding, data.classes))
    start: dict[str, Any] = {}
    if isinstance(config, TransformerConfig) and config.width >= _WIDE:
        start = {"init": "gaussian", "init_scope": "weights", "init_scale": 0.02}
    return Recipe(
        data=data,
        model=config,
        protocol=TrainingProtocol(
            learning_rate=_rate(data.name, model, optimiser) if learning_rate is None else learning_rate,
            batch=batch,
            optimiser=optimiser,
            momentum=momentum,
            weight_decay=weight_decay,
            terms=tuple(terms),
            **_stopping(epochs, goal, decay_every, decay_factor),
        ),
        seed=seed,
        log=tuple(log),
        **start,
    )


def _rate(name: str, model: str, optimiser: Optimiser) -> float:
    if optimiser != "sgd":
        return RATE
    if (name, model) not in PAPER_RATES:
        raise InputError(f"the paper has no rate of SGD for {model} on {name}: give a learning rate")
    return PAPER_RATES[name, model]


def _stopping(epochs: int, goal: float | None, decay_every: int | None, decay_factor: float) -> dict[str, Any]:
    """The fields of the protocol that do not depend on the data."""
    return {
        "loss": "ce",
        "decay_after": None,
        "decay_every": decay_every,
        "decay_factor": decay_factor,
        "stop_after": None,
        "max_epochs": epochs,
        "goal": goal,
        "restore": "last",
    }
