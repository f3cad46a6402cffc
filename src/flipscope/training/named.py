"""Measurements and additional loss terms in a recipe: a name and settings.

A name is one of `flipscope.training.measures.MEASUREMENTS` or `flipscope.training.terms.TERMS`, or
"package.module:definition" for the user's own, so that it means the same in every process. It names a function of an
`Around` and the settings, which is called when a training begins.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.registry import Registry
from flipscope.data.batches import Inputs, Labelled
from flipscope.training.targets import Aim

Setting = bool | int | float | str | None  # allowed types of a setting, as in JSON


@dataclass(frozen=True)
class Measurement:
    """A measurement of the model at regular intervals of steps; made by `measurement`."""

    name: str
    every: int
    settings: tuple[tuple[str, Setting], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _measurements().canonical(self.name))

    def made(self, around: Around) -> Any:
        """The function that measures the model of a training."""
        return _called(_measurements(), self, around)

    def as_json(self) -> dict[str, Any]:
        """The measurement as a JSON object."""
        return {"name": self.name, "every": self.every, "settings": dict(self.settings)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Measurement:
        """The measurement from the result of `as_json`."""
        return measurement(document["name"], document["every"], **document["settings"])


@dataclass(frozen=True)
class LossTerm:
    """An additional loss term with its strength; made by `loss_term`."""

    name: str
    strength: float
    settings: tuple[tuple[str, Setting], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _terms().canonical(self.name))

    def made(self, around: Around) -> Any:
        """The term of a training's loss, before multiplication with its strength."""
        return _called(_terms(), self, around)

    def as_json(self) -> dict[str, Any]:
        """The term as a JSON object."""
        return {"name": self.name, "strength": self.strength, "settings": dict(self.settings)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LossTerm:
        """The term from the result of `as_json`."""
        return loss_term(document["name"], document["strength"], **document["settings"])


@dataclass(frozen=True, eq=False)
class Around:
    """The training around a measurement or a term, as far as these may use it."""

    aim: Aim
    inputs: Inputs
    length: int  # length of the longest strings
    validation: Sequence[tuple[Tensor, Tensor]]  # inputs and targets
    draw: Callable[[int, np.random.Generator], Any]  # draws random inputs of that length, like those of the training
    training: Callable[[], Labelled] | None = None  # the training set, where it is fixed: images and texts


@checked_arguments
def measurement(name: str, every: int = 100, **settings: Setting) -> Measurement:
    """A measurement for `Recipe.log`, by its name, such as "blowup" or "my_package.probes:mine".

    >>> measurement("blowup", every=500, strings=64)
    Measurement(name='blowup', every=500, settings=(('strings', 64),))
    """
    check_count("every", every)
    return Measurement(name, int(every), _settings(settings))


@checked_arguments
def loss_term(name: str, strength: float, **settings: Setting) -> LossTerm:
    """A term for `TrainingProtocol.terms`, by its name.

    >>> loss_term("norm", 0.01)
    LossTerm(name='norm', strength=0.01, settings=())
    """
    if not np.isfinite(strength):
        raise InputError(f"strength={strength} of the term {name} must be a finite number")
    return LossTerm(name, float(strength), _settings(settings))


def _settings(settings: Mapping[str, Setting]) -> tuple[tuple[str, Setting], ...]:
    for name, value in settings.items():
        if not isinstance(value, bool | int | float | str | None):
            raise InputError(f"{name}={value!r} must be a number, a word, True, False or None, for a recipe is JSON")
    return tuple(sorted(settings.items()))


# Measurements and terms import the training loop, which imports the records above, so these imports come late.


def _measurements() -> Registry[Callable[..., Any]]:
    from flipscope.training.measures import MEASUREMENTS

    return MEASUREMENTS


def _terms() -> Registry[Callable[..., Any]]:
    from flipscope.training.terms import TERMS

    return TERMS


def _called(registry: Registry[Callable[..., Any]], named: Measurement | LossTerm, around: Around) -> Any:
    """The result of the named function for its settings; InputError if it does not accept them."""
    factory = registry.get(named.name)
    try:
        inspect.signature(factory).bind(around, **dict(named.settings))
    except TypeError as error:
        raise InputError(f"the {registry.what} {named.name} does not take its settings: {error}") from error
    return factory(around, **dict(named.settings))
