"""`flipscope.train`: train a transformer on a function, with defaults that work for small ones; used by the command."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction
from flipscope.data.real import RealData
from flipscope.data.real_functions import is_real
from flipscope.data.strings import StringData, UnnamedData
from flipscope.models.config import TransformerConfig
from flipscope.models.devices import Device
from flipscope.models.init import Scheme
from flipscope.training.checkpoints import Keeper
from flipscope.training.fit import Epoch
from flipscope.training.named import Measurement
from flipscope.training.presets import BATCH, LEARNING_RATE, STEPS, configured
from flipscope.training.protocol import DecayOn, Optimiser, TrainingProtocol
from flipscope.training.recipe import Recipe, Trained, train_on
from flipscope.training.targets import Labels, Loss

VALIDATION = 1_000
_EPOCH = 100  # steps between two validations if strings are fresh


@checked_arguments
def train(
    function: str | BooleanFunction,
    model: str | TransformerConfig = "encoder",
    *,
    steps: int = STEPS,
    batch: int = BATCH,
    learning_rate: float = LEARNING_RATE,
    seed: int = 0,
    init: Scheme = "pytorch",
    optimiser: Optimiser = "adam",
    weight_decay: float = 0.0,
    loss: Loss | None = None,
    train_strings: int | None = None,
    goal: float | None = None,
    length: int | None = None,
    labels: Labels = "signs",
    clip: float | None = None,
    decay_on: DecayOn = "all",
    constant_rate: bool = False,
    keep: Literal["best", "last"] = "best",
    log: Sequence[Measurement] = (),
    device: Device | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[Epoch], object] | None = None,
    **sizes: int | float,
) -> Trained:
    """Train a transformer on a function; returns the model and its training history.

    `function` is an expression, a BooleanFunction, or a real-valued one such as "mean"
    (`flipscope.data.real_functions`), on `length` bits if that is more than it uses; `model` is a configuration or the
    name of a preset, whose `sizes` (width, layers, heads, ffn_width, dropout) may be given. Strings are fresh in every
    batch, or `train_strings` of them are drawn once. Training takes `steps` steps, or fewer if the validation accuracy
    reaches the `goal`, and keeps the weights of the smallest validation loss, or the last ones (keep="last"). The
    default loss is the binary cross entropy, for real values the squared error. The learning rate is halved when the
    loss stops falling, unless constant_rate. `log` lists measurements during training
    (`flipscope.training.named.measurement`), whose results are in `trained.fitted.log`.

    The model is trained on the `device` ("cpu", "cuda", "mps"; default the CPU) and returned on the CPU. With a
    `checkpoint`, the name of a file, calling the function again in the same way resumes an interrupted training.

    >>> import flipscope
    >>> trained = flipscope.train("majority(9)", steps=100, width=16, layers=1)
    >>> trained.fitted.steps, trained.history[-1].number
    (100, 10)
    >>> flipscope.sensitivity(trained.model, [[0] * 9]).shape
    (1,)
    """
    expression = function if isinstance(function, str) else f"a function of {function.n} bits"
    recipe = recipe_for(
        expression,
        model,
        protocol_for(
            expression,
            steps=steps,
            batch=batch,
            learning_rate=learning_rate,
            optimiser=optimiser,
            weight_decay=weight_decay,
            loss=loss,
            goal=goal,
            labels=labels,
            clip=clip,
            decay_on=decay_on,
            constant_rate=constant_rate,
            keep=keep,
        ),
        length=length if isinstance(function, str) else function.n,
        train_strings=train_strings,
        seed=seed,
        init=init,
        log=log,
        sizes=sizes,
    )
    keeper = None if checkpoint is None else Keeper(checkpoint, recipe.as_json())
    if isinstance(function, str):
        return recipe.train(device=device, keeper=keeper, epoch=progress)
    assert isinstance(recipe.data, StringData)
    data = UnnamedData(**dataclasses.asdict(recipe.data), f=function)
    return dataclasses.replace(train_on(recipe, data, device=device, keeper=keeper, epoch=progress), recipe=None)


@checked_arguments
def protocol_for(
    expression: str,
    *,
    steps: int = STEPS,
    batch: int = BATCH,
    learning_rate: float = LEARNING_RATE,
    loss: Loss | None = None,
    constant_rate: bool = False,
    keep: Literal["best", "last"] = "best",
    **others: Any,
) -> TrainingProtocol:
    """The protocol of `train` for a function: so many steps; `others` are further fields of it."""
    return TrainingProtocol(
        batch=batch,
        learning_rate=learning_rate,
        loss=loss or ("mse" if is_real(expression) else "bce"),
        decay_after=None if constant_rate else 5,
        restore=keep,
        stop_after=None,  # the number of steps is the user's choice
        max_epochs=None,
        max_steps=check_count("steps", steps),
        epoch_steps=min(_EPOCH, max(1, steps // 10)),
        **others,
    )


@checked_arguments
def recipe_for(
    expression: str,
    model: str | TransformerConfig = "encoder",
    protocol: TrainingProtocol | None = None,
    *,
    length: int | None = None,
    train_strings: int | None = None,
    seed: int = 0,
    init: Scheme = "pytorch",
    log: Sequence[Measurement] = (),
    sizes: Mapping[str, int | float] | None = None,
) -> Recipe:
    """The recipe of `train`; the length is that of the expression unless given."""
    protocol = protocol_for(expression) if protocol is None else protocol
    real = is_real(expression)
    if real and (length is None or protocol.loss != "mse"):
        missing = "give its length" if length is None else f"it takes loss='mse', not {protocol.loss!r}"
        raise InputError(f"{expression!r} is a real-valued function: {missing}")
    length = parse(expression).n if length is None else check_count("length", length)
    kind = RealData if real else StringData
    return Recipe(
        data=kind(
            function=expression,
            length=length,
            train=train_strings,
            validation=_validation(length, train_strings),
            seed=seed,
        ),
        model=configured(model, length, sizes or {}),
        protocol=protocol,
        init=init,
        seed=seed,
        log=tuple(log),
    )


def _validation(length: int, train_strings: int | None) -> int:
    """So many validation strings, or all that a short length leaves."""
    room = (1 << min(length, 62)) - (train_strings or 0)
    if room < 1:
        raise InputError(
            f"train_strings={train_strings} of {length} bits leave none to validate with: give fewer, or fresh strings"
        )
    return min(VALIDATION, room)
