"""The interface of every kind of data, and the usual kind: uniformly random strings of one Boolean function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from flipscope.basics.arguments import check_fields
from flipscope.basics.bits import Bits
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import random_strings
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction, checked_bits
from flipscope.data.batches import Batch, Fresh, Inputs, Labelled
from flipscope.data.languages import LabelledStrings, draw, random_language

_FRESH = 0x66726573  # sets the stream of fresh strings apart from all that come from the same seeds


@runtime_checkable
class Data(Protocol):
    """The interface between training and a kind of data, which is a frozen dataclass with fields that JSON can hold."""

    @property
    def inputs(self) -> Inputs:
        """What the model reads."""

    @property
    def answer(self) -> str:
        """What has an answer: each "string", or each position."""

    @property
    def function(self) -> str | None:
        """What is learned, in words; None for a random language."""

    @property
    def length(self) -> int:
        """Bits of the longest string."""

    @property
    def train(self) -> int | None:
        """The number of strings of a fixed set; None where batches are drawn."""

    @property
    def seed(self) -> int:
        """The seed from which the strings are drawn."""

    def validation_sets(self) -> Sequence[Labelled]:
        """The sets on which the model is evaluated after each epoch."""

    def source(self, batch: int, steps: int, seed: int) -> Labelled | Iterable[Batch]:
        """A fixed set, or batches of `batch` strings, `steps` of them an epoch; the seed is that of the training."""

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Any:
        """Random inputs like those of the training."""


@dataclass(frozen=True, kw_only=True)
class StringData:
    """The strings of a training: uniformly random ones of a function, which is given as an expression.

    `train` strings are drawn once, or fresh ones for every batch where it is None; the `validation` strings decide when
    to stop. Without a function the language is random: `train` strings, each labelled by a fair coin, which are the
    validation set as well (App. F.2).
    """

    inputs: ClassVar[Inputs] = "bits"
    answer: ClassVar[str] = "string"
    function: str | None
    length: int
    train: int | None = 10_000
    validation: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        checked_bits(self.length)
        for name in ("train", "validation"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("seed", self.seed, 0)
        if self.function is None and self.train is None:
            raise InputError("train=None has no fresh strings for a random language: give their number")

    def language(self) -> BooleanFunction | None:
        """The function on strings of this length, or None for a random language."""
        return None if self.function is None else parse(self.function, self.length)

    def sets(self) -> dict[str, LabelledStrings]:
        """The sets "train", unless strings are fresh, and "validation"."""
        f = self.language()
        if f is None:
            assert self.train is not None
            both = random_language(self.length, self.train, self.seed)
            return {"train": both, "validation": both}
        sizes = {"train": self.train} if self.train is not None else {}
        return draw(f, self.length, {**sizes, "validation": self.validation}, self.seed)

    def validation_sets(self) -> list[Labelled]:
        """The set that decides when to stop."""
        return [self.sets()["validation"]]

    def source(self, batch: int, steps: int, seed: int) -> Labelled | Iterable[Batch]:
        """A fixed set, or fresh batches."""
        if self.train is not None:
            return self.sets()["train"]
        f = self.language()
        assert f is not None
        return Fresh(f, self.length, batch, steps, np.random.default_rng([self.seed, seed, _FRESH]))

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Bits:
        """Random inputs like those of the training."""
        return random_strings(stream, count, self.length)


@dataclass(frozen=True, kw_only=True)
class UnnamedData(StringData):
    """Strings of a function without an expression, which no recipe can hold; `function` only describes it."""

    f: BooleanFunction

    def language(self) -> BooleanFunction:
        """The function itself."""
        return self.f
