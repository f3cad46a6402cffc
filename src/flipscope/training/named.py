"""What a recipe refers to by name: measurements while it trains, further terms of its loss, kinds of data and models.

A name is one of the table BY_NAME of the module that `HOMES` has for it, or "package.module:definition" for one's own,
so that it means the same in every process. What it stands for is fetched when it is needed; hence a change to one
measurement leaves alone every stored model that does not use it (`Recipe.definitions` tells the store which ones it
does).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.data.batches import Inputs
from flipscope.training.targets import Aim

Setting = bool | int | float | str | None  # what a setting may be: what JSON holds as it is

What = Literal["measurement", "term", "kind of data", "kind of model"]
# The modules whose table BY_NAME has the short names. Named here as text, so that a new entry renames no stored model.
HOMES: Mapping[What, str] = {
    "measurement": "flipscope.training.measures",
    "term": "flipscope.training.terms",
    "kind of data": "flipscope.data.kinds",
    "kind of model": "flipscope.models.seq2seq_config",
}


@dataclass(frozen=True)
class Measurement:
    """A measurement of the model every so many steps; made by `measurement`."""

    name: str
    every: int
    settings: tuple[tuple[str, Setting], ...] = ()


@dataclass(frozen=True)
class LossTerm:
    """A further term of the loss, times its strength; made by `loss_term`."""

    name: str
    strength: float
    settings: tuple[tuple[str, Setting], ...] = ()


@dataclass(frozen=True, eq=False)
class Around:
    """What a measurement or a term may know of the training that it is part of."""

    aim: Aim
    inputs: Inputs
    length: int  # of the longest strings
    validation: Sequence[tuple[Tensor, Tensor]]  # inputs and targets
    draw: Callable[[int, np.random.Generator], Any]  # so many random inputs of that length, like those of the training


@checked_arguments
def measurement(name: str, every: int = 100, **settings: Setting) -> Measurement:
    """A measurement for `Recipe.log`, by its name, such as "blowup" or "my_package.probes:mine".

    >>> measurement("blowup", every=500, strings=64)
    Measurement(name='blowup', every=500, settings=(('strings', 64),))
    """
    check_count("every", every)
    return Measurement(known("measurement", name), int(every), _settings(settings))


@checked_arguments
def loss_term(name: str, strength: float, **settings: Setting) -> LossTerm:
    """A term for `TrainingProtocol.terms`, by its name.

    >>> loss_term("norm", 0.01)
    LossTerm(name='norm', strength=0.01, settings=())
    """
    if not np.isfinite(strength):
        raise InputError(f"strength={strength} of the term {name} must be a finite number")
    return LossTerm(known("term", name), float(strength), _settings(settings))


def _settings(settings: Mapping[str, Setting]) -> tuple[tuple[str, Setting], ...]:
    for name, value in settings.items():
        if not isinstance(value, bool | int | float | str | None):
            raise InputError(f"{name}={value!r} must be a number, a word, True, False or None, for a recipe is JSON")
    return tuple(sorted(settings.items()))


def known(what: What, name: str) -> str:
    """The name, after making sure that it stands for something."""
    place(what, name)
    return name


def place(what: What, name: str) -> tuple[str, str]:
    """The module and the definition that a name stands for."""
    if ":" in name:
        module, _, definition = name.partition(":")
        return module, definition
    table = importlib.import_module(HOMES[what]).BY_NAME
    if name not in table:
        raise InputError(f"{name!r} is no {what}: known are {', '.join(table)}, or give module:definition")
    return HOMES[what], table[name].__name__


def name_of(what: What, kind: type) -> str:
    """What a class is called in a recipe."""
    table = importlib.import_module(HOMES[what]).BY_NAME
    return next((name for name, each in table.items() if each is kind), f"{kind.__module__}:{kind.__qualname__}")


def fetch(what: What, name: str) -> Any:
    """What a name stands for."""
    module, definition = place(what, name)
    try:
        return getattr(importlib.import_module(module), definition)
    except (ImportError, AttributeError) as error:
        raise InputError(f"the {what} {name!r} cannot be had: {error}") from error


def called(what: What, name: str, around: Around, settings: Sequence[tuple[str, Setting]]) -> Any:
    """What the named function makes of its settings; InputError if it does not take them."""
    factory = fetch(what, name)
    try:
        inspect.signature(factory).bind(around, **dict(settings))
    except TypeError as error:
        raise InputError(f"the {what} {name} does not take its settings: {error}") from error
    return factory(around, **dict(settings))
