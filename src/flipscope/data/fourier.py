"""Random sums of few parities, the targets of the sharper-picture paper (Eq 1), and the strings to learn them from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float32

from flipscope.basics.bits import Bits
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import random_strings
from flipscope.cube.fourier_sums import FourierSum, random_sum
from flipscope.data.batches import Batch, Drawn, Examples, Inputs, Labelled

_TARGET, _TRAIN, _VALIDATION, _FRESH = (
    0x74617267,
    0x74726169,
    0x76616C69,
    0x66726573,
)  # one random stream for each purpose


@dataclass(frozen=True, kw_only=True)
class FourierData:
    """Uniformly random strings with the values of a random sum of `sparsity` parities of `degree` bits each.

    The seed numbers the functions of a class: it gives the sets, the coefficients and the strings, which are drawn
    independently, so that some may come twice, as the bounds of the paper want them. `train` strings are drawn once, or
    fresh ones for every batch where it is None.

    >>> data = FourierData(length=10, sparsity=4, degree=2, train=512)
    >>> data.target().sparsity, data.strings().bits.shape
    (4, (512, 10))
    """

    inputs: ClassVar[Inputs] = "bits"
    answer: ClassVar[str] = "string"
    length: int
    sparsity: int
    degree: int
    train: int | None = None
    validation: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("seed", self.seed, 0)
        for name in ("train", "validation"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        self.target()

    @property
    def function(self) -> str:
        """What is learned, in words, for lists of models."""
        return f"sum {self.seed} of {self.sparsity} parities of {self.degree} of {self.length} bits"

    def target(self) -> FourierSum:
        """The function itself."""
        return random_sum(self.length, self.sparsity, self.degree, self._stream(_TARGET))

    def values(self, bits: Bits) -> Float32[np.ndarray, " string"]:
        """The function's values on these strings."""
        return self.target()(bits).astype(np.float32)

    def strings(self) -> Examples:
        """The strings that are trained on, with their values."""
        if self.train is None:
            raise InputError("train=None draws fresh strings: there is no fixed set of them")
        return self._drawn(self.train, self._stream(_TRAIN))

    def validation_sets(self) -> list[Labelled]:
        """The sets on which the model is evaluated after each epoch."""
        return [self._drawn(self.validation, self._stream(_VALIDATION))]

    def source(self, batch: int, steps: int, seed: int) -> Labelled | Iterable[Batch]:
        """A fixed set, or fresh batches."""
        if self.train is not None:
            return self.strings()

        def fresh(stream: np.random.Generator) -> Batch:
            examples = self._drawn(batch, stream)
            return examples.bits, examples.labels

        return Drawn(fresh, steps, self._stream(_FRESH, seed))

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Bits:
        """Random inputs like those of the training."""
        return random_strings(stream, count, self.length)

    def _drawn(self, count: int, stream: np.random.Generator) -> Examples:
        bits = self.draw_inputs(count, stream)
        return Examples(bits, self.values(bits))

    def _stream(self, *kind: int) -> np.random.Generator:
        """A random stream for this purpose, another for each class, so that results of two classes are independent."""
        numbers = (self.seed, self.length, self.sparsity, self.degree)
        return np.random.default_rng([*(check_count("a size", number, 0) for number in numbers), *kind])
