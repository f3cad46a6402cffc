"""Parity with a chain of thought and in one pass: the two training sets of paper 002, Thms 7 and 8.

    steps      bits, START, r_1, ..., r_(T-1)  ->  at START and what follows r_1, ..., r_T, r_i = x_1 + ... + x_i mod 2
    one pass   bits, START                     ->  r_T

Positions of the model have period T, so that START stands where x_1 does, and r_i where x_(i+1) does. At a token the
answer is the parity of the bits that stand at its place so far: of x_i and r_(i-1) it is r_i, and of x_i alone, while
the bits are read, it is x_i. In training the steps before are the correct ones; `write_steps` lets a model go on from
what it wrote itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from flipscope.basics.bits import Bits
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import random_strings
from flipscope.cube.functions import checked_bits
from flipscope.data.batches import Batch, Drawn, Examples, Inputs, Labelled
from flipscope.models.modes import eval_mode

Way = Literal["steps", "one-pass"]
START = 2  # the symbol after the bits; 0 and 1 are the bits and the steps
_VALIDATION, _FRESH = 0x76616C69, 0x66726573  # one random stream for each purpose
_BATCH = 512


@dataclass(frozen=True, kw_only=True)
class StepsData:
    """Fresh uniform strings with their parity, or all steps of it, for a causal model with readout="every".

    >>> data = StepsData(length=4, way="steps")
    >>> found = data.examples(np.array([[1, 0, 1, 1]], np.uint8))
    >>> found.bits.tolist(), found.labels.tolist()
    ([[1, 0, 1, 1, 2, 1, 1, 0]], [[1, 0, 1, 1, 1, 1, 0, 1]])
    """

    inputs: ClassVar[Inputs] = "tokens"
    train: ClassVar[int | None] = None
    length: int
    way: Way
    validation: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        checked_bits(self.length)
        if self.way not in get_args(Way):
            raise InputError(f"way={self.way!r} is not one of {', '.join(get_args(Way))}")
        check_count("validation", self.validation)
        check_count("seed", self.seed, 0)

    @property
    def answer(self) -> str:
        """Whether there is one answer for each "string" or for each of the "steps"."""
        return "string" if self.way == "one-pass" else "steps"

    @property
    def function(self) -> str:
        """What is learned, in words, for lists of models."""
        return f"parity({self.length}), {'step by step' if self.way == 'steps' else 'in one pass'}"

    def examples(self, bits: Bits) -> Examples:
        """Inputs and labels of these strings."""
        parities = (np.cumsum(bits, axis=1) & 1).astype(np.uint8)
        begun = np.concatenate([bits, np.full((len(bits), 1), START, np.uint8)], axis=1)
        if self.way == "one-pass":
            return Examples(begun, parities[:, -1])
        both = np.concatenate([bits, parities], axis=1)
        return Examples(np.concatenate([begun, parities[:, :-1]], axis=1), both)

    def validation_sets(self) -> list[Labelled]:
        """The sets on which the model is evaluated after each epoch."""
        stream = np.random.default_rng([self.seed, _VALIDATION])
        return [self.examples(random_strings(stream, self.validation, self.length))]

    def source(self, batch: int, steps: int, seed: int) -> Labelled | Iterable[Batch]:
        """Fresh batches."""

        def fresh(stream: np.random.Generator) -> Batch:
            examples = self.examples(random_strings(stream, batch, self.length))
            return examples.bits, examples.labels

        return Drawn(fresh, steps, np.random.default_rng([self.seed, seed, _FRESH]))

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Bits:
        """Random inputs like those of the training."""
        inputs: Bits = self.examples(random_strings(stream, count, self.length)).bits
        return inputs


@torch.no_grad()
def write_steps(model: nn.Module, bits: Tensor, threshold: float = 0.5) -> Int64[Tensor, "string step"]:
    """The steps r_1, ..., r_T that a model with an answer at every token writes by itself: 1 above the threshold."""
    if not isinstance(bits, Tensor) or bits.ndim != 2:
        raise InputError("bits must be a torch tensor [string, position]")
    if bits.is_floating_point() or bool(((bits != 0) & (bits != 1)).any()):
        raise InputError("bits must be integers 0 and 1: START is written behind them by itself")
    written = []
    with eval_mode(model):
        for part in bits.long().split(_BATCH):
            read = torch.cat([part, part.new_full((len(part), 1), START)], dim=1)
            for _ in range(bits.shape[1]):
                answers = model(read)
                if answers.shape != read.shape:
                    raise InputError("steps are written by a model that answers at every token: say readout='every'")
                read = torch.cat([read, (answers[:, -1:] > threshold).long()], dim=1)
            written.append(read[:, bits.shape[1] + 1 :])
    return torch.cat(written)
