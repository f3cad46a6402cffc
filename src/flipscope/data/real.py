"""Strings with the values of a real-valued function of their bits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float32

from flipscope.basics.bits import Bits
from flipscope.basics.checks import check_count
from flipscope.basics.seeds import random_strings
from flipscope.data.batches import Batch, Drawn, Examples, Inputs, Labelled
from flipscope.data.languages import draw
from flipscope.data.real_functions import RealFunction

_FRESH = 0x66726573  # sets the stream of fresh strings apart from others of the same seed


@dataclass(frozen=True, kw_only=True)
class RealData:
    """Uniformly random strings with the values of a real-valued function (`flipscope.data.real_functions`).

    `train` strings are drawn once, or fresh ones for every batch where it is None.
    """

    inputs: ClassVar[Inputs] = "bits"
    answer: ClassVar[str] = "string"
    function: str
    length: int
    train: int | None = None
    validation: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        RealFunction(self.function, self.length)
        for name in ("train", "validation"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("seed", self.seed, 0)

    def _sets(self) -> dict[str, Labelled]:
        sizes = {"train": self.train} if self.train is not None else {}
        blank = draw(
            lambda bits: np.zeros(len(bits), np.uint8), self.length, {**sizes, "validation": self.validation}, self.seed
        )
        return {name: Examples(strings.bits, self.values(strings.bits)) for name, strings in blank.items()}

    def values(self, bits: Bits) -> Float32[np.ndarray, " string"]:
        """The function's values on these strings."""
        return RealFunction(self.function, self.length)(bits)

    def validation_sets(self) -> list[Labelled]:
        """The sets on which the model is evaluated after each epoch."""
        return [self._sets()["validation"]]

    def source(self, batch: int, steps: int, seed: int) -> Labelled | Iterable[Batch]:
        """A fixed set, or fresh batches."""
        if self.train is not None:
            return self._sets()["train"]
        f = RealFunction(self.function, self.length)

        def fresh(stream: np.random.Generator) -> Batch:
            bits = random_strings(stream, batch, self.length)
            return bits, f(bits)

        return Drawn(fresh, steps, np.random.default_rng([self.seed, seed, _FRESH]))

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Bits:
        """Random inputs like those of the training."""
        return random_strings(stream, count, self.length)
