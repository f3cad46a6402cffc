"""Parity with a chain of thought and in one pass: the two training sets of paper 002, Thms 7 and 8.

    steps      bits, START, r_1, ..., r_(i-1)  ->  r_i = x_1 + ... + x_i mod 2, for a step i from 1 to T
    one pass   bits, START                     ->  r_T

Both have one answer per string, read at the last token, so that one model can be trained either way, with as many
strings and as many labels. What was written before a step is right while a model is taught; `write_steps` lets it go
on from what it wrote itself.
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
from flipscope.models.modes import eval_mode
from flipscope.training.batches import Batch, Drawn, Examples, Inputs, Labelled

Way = Literal["steps", "one-pass"]
START = 2  # the symbol after the bits; 0 and 1 are bits and what is written
_VALIDATION, _FRESH = 0x76616C69, 0x66726573  # streams of their own
_BATCH = 512


@dataclass(frozen=True, kw_only=True)
class StepsData:
    """Fresh uniform strings with the next step of their parity, or with the parity itself.

    All strings of a batch are at one step, which is drawn uniformly: nothing is padded. Validation has as many strings
    at each step, `validation` in all or one each.

    >>> data = StepsData(length=4, way="steps")
    >>> data.examples(np.array([[1, 0, 1, 1]], np.uint8), 3).bits.tolist()  # the bits, START, r_1, r_2
    [[1, 0, 1, 1, 2, 1, 1]]
    """

    inputs: ClassVar[Inputs] = "tokens"
    answer: ClassVar[str] = "string"
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
    def function(self) -> str:
        """What a list of models says of it."""
        return f"parity({self.length}), {'a step of it' if self.way == 'steps' else 'in one pass'}"

    @property
    def steps(self) -> range:
        """The steps that are asked for, from 1 on; of one pass none is written, and the last is asked for."""
        return range(1, self.length + 1) if self.way == "steps" else range(self.length, self.length + 1)

    def examples(self, bits: Bits, step: int) -> Examples:
        """Inputs and labels of these strings at a step."""
        parities = (np.cumsum(bits, axis=1) & 1).astype(np.uint8)
        start = np.full((len(bits), 1), START, np.uint8)
        written = parities[:, : step - 1 if self.way == "steps" else 0]
        return Examples(np.concatenate([bits, start, written], axis=1), parities[:, step - 1])

    def validation_sets(self) -> list[Labelled]:
        """What is asked after each epoch: a set for each step."""
        each = max(1, self.validation // len(self.steps))
        streams = {step: np.random.default_rng([self.seed, step, _VALIDATION]) for step in self.steps}
        return [self.examples(random_strings(stream, each, self.length), step) for step, stream in streams.items()]

    def source(self, batch: int, steps: int, seed: int) -> Labelled | Iterable[Batch]:
        """Fresh batches of one step each."""

        def fresh(stream: np.random.Generator) -> Batch:
            step = int(stream.integers(self.steps.start, self.steps.stop))
            found = self.examples(random_strings(stream, batch, self.length), step)
            return found.bits, found.labels

        return Drawn(fresh, steps, np.random.default_rng([self.seed, seed, _FRESH]))

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Bits:
        """Random inputs of the last step."""
        inputs: Bits = self.examples(random_strings(stream, count, self.length), self.length).bits
        return inputs


@torch.no_grad()
def write_steps(model: nn.Module, bits: Tensor, threshold: float = 0.5) -> Int64[Tensor, "string step"]:
    """r_1, ..., r_T as a model trained on steps writes them by itself: 1 where its answer is above the threshold."""
    if not isinstance(bits, Tensor) or bits.ndim != 2:
        raise InputError("bits must be a torch tensor [string, position]")
    found = []
    with eval_mode(model):
        for part in bits.long().split(_BATCH):
            read = torch.cat([part, part.new_full((len(part), 1), START)], dim=1)
            for _ in range(bits.shape[1]):
                read = torch.cat([read, (model(read) > threshold).long()[:, None]], dim=1)
            found.append(read[:, bits.shape[1] + 1 :])
    return torch.cat(found)
