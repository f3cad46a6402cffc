"""Strings of all lengths from one to another, answered at the end, at every position, or on a scratchpad."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from flipscope.basics.bits import Bits
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import random_strings
from flipscope.cube.functions import checked_bits
from flipscope.data.batches import Batch, Drawn, Examples, Inputs, Labelled

Answer = Literal["string", "prefixes", "scratchpad"]
START = 2  # the symbol that a scratchpad begins with; 0 and 1 are the bits
_FRESH, _VALIDATION = 0x66726573, 0x76616C69  # one random stream for each purpose


def prefix_values(function: str, bits: Bits) -> np.ndarray:
    """The function's value on each prefix of each string, [string, position]; the last is that of the string.

    >>> prefix_values("parity", np.array([[1, 0, 1, 1]], np.uint8)).tolist()
    [[1, 1, 0, 1]]
    """
    if function not in FAMILIES:
        raise InputError(f"function={function!r} is not one of {', '.join(FAMILIES)}, which have every length")
    return FAMILIES[function](bits)


def _majority(bits: Bits) -> Bits:
    return (2 * np.cumsum(bits, axis=1) > np.arange(1, bits.shape[1] + 1)).astype(np.uint8)


def _mean(bits: Bits) -> np.ndarray:
    return (np.cumsum(bits, axis=1) / np.arange(1, bits.shape[1] + 1)).astype(np.float32)


FAMILIES: dict[str, Callable[[Bits], np.ndarray]] = {
    "parity": lambda bits: (np.cumsum(bits, axis=1) & 1).astype(np.uint8),
    "majority": _majority,
    "first": lambda bits: np.repeat(bits[:, :1], bits.shape[1], axis=1),
    "mean": _mean,
}


def scratchpad_inputs(bits: Bits, written: Bits) -> Bits:
    """What a model with a scratchpad reads in training: the bits, START, and the correct scratchpad without its last
    symbol, [string, 2 * position].

    >>> scratchpad_inputs(np.array([[1, 0, 1]], np.uint8), np.array([[1, 1, 0]], np.uint8)).tolist()
    [[1, 0, 1, 2, 1, 1]]
    """
    start = np.full((len(bits), 1), START, bits.dtype)
    return np.concatenate([bits, start, written[:, :-1]], axis=1)


@dataclass(frozen=True, kw_only=True)
class LengthsData:
    """Fresh uniform strings of every length from `shortest` to `length`, with the values of parity, majority, first or
    mean; all strings of a batch have one length, which is drawn uniformly.

    One length per batch and not per string: nothing is padded, so that no attention is masked and the fast forward pass
    of training applies; over many steps each length counts as much as with a mixture. Validation has as many strings of
    each length, `validation` in all or one each.

    answer     "string": the value. "prefixes": at each position the value of the string up to there, for a model
               with readout="every". "scratchpad": the same, written bit by bit by an encoder-decoder
               (`flipscope.models.seq2seq`), which reads the bits, START and the correct symbols so far.
    """

    train: ClassVar[int | None] = None
    function: str
    length: int
    shortest: int | None = None  # the same as `length`
    answer: Answer = "string"
    validation: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        checked_bits(self.length)
        if self.function not in FAMILIES:
            prefix_values(self.function, np.zeros((1, 1), np.uint8))
        if self.shortest is not None and check_count("shortest", self.shortest) > self.length:
            raise InputError(f"shortest={self.shortest} must be at most length={self.length}")
        if self.answer not in ("string", "prefixes", "scratchpad"):
            raise InputError(f"answer={self.answer!r} is not one of string, prefixes, scratchpad")
        if self.answer == "scratchpad" and self.function == "mean":
            raise InputError("a scratchpad holds bits, and the mean is no bit: take answer='prefixes'")
        check_count("validation", self.validation)
        check_count("seed", self.seed, 0)

    @property
    def inputs(self) -> Inputs:
        """What the model reads."""
        return "tokens" if self.answer == "scratchpad" else "bits"

    @property
    def lengths(self) -> range:
        """All lengths."""
        return range(self.length if self.shortest is None else self.shortest, self.length + 1)

    def examples(self, bits: Bits) -> Examples:
        """Inputs and labels of these strings."""
        values = prefix_values(self.function, bits)
        if self.answer == "string":
            return Examples(bits, values[:, -1])
        return Examples(scratchpad_inputs(bits, values) if self.answer == "scratchpad" else bits, values)

    def validation_sets(self) -> list[Labelled]:
        """The sets on which the model is evaluated after each epoch, one for each length."""
        each = max(1, self.validation // len(self.lengths))
        streams = {n: np.random.default_rng([self.seed, n, _VALIDATION]) for n in self.lengths}
        return [self.examples(random_strings(stream, each, n)) for n, stream in streams.items()]

    def source(self, batch: int, steps: int, seed: int) -> Labelled | Iterable[Batch]:
        """Fresh batches of one length each."""

        def fresh(stream: np.random.Generator) -> Batch:
            n = int(stream.integers(self.lengths.start, self.lengths.stop))
            examples = self.examples(random_strings(stream, batch, n))
            return examples.bits, examples.labels

        return Drawn(fresh, steps, np.random.default_rng([self.seed, seed, _FRESH]))

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Any:
        """Random inputs of the greatest length."""
        return self.examples(random_strings(stream, count, self.length)).bits
