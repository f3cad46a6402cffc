"""Sources of batches: a fixed set in a new order each epoch, or fresh strings; and the checks on what they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import generators, random_strings

Loss = Literal["bce", "mse"]
Batch: TypeAlias = tuple[Any, Any]  # strings [string, position], labels [string]: arrays or tensors


@runtime_checkable
class Labelled(Protocol):
    """Strings with labels, such as `flipscope.data.languages.LabelledStrings`."""

    @property
    def bits(self) -> Any: ...
    @property
    def labels(self) -> Any: ...


class Shuffled:
    """Batches of a fixed set, in a new order each time it is gone through; the last may be smaller."""

    def __init__(self, data: Labelled, batch: int, seed: int | np.random.Generator = 0) -> None:
        self._bits, self._labels = as_tensors(data.bits, data.labels, "train")
        self.batch = check_count("batch", batch)
        [self._stream] = generators(seed, 1)

    def __iter__(self) -> Iterator[Batch]:
        for rows in torch.from_numpy(self._stream.permutation(len(self._bits))).split(self.batch):
            yield self._bits[rows], self._labels[rows]


class Fresh:
    """Batches of uniformly random strings that are drawn when asked for; an epoch is `steps` of them."""

    def __init__(
        self, language: Callable[[Any], Any], n: int, batch: int, steps: int, seed: int | np.random.Generator = 0
    ) -> None:
        self.language, self.n = language, check_count("n", n)
        self.batch, self.steps = check_count("batch", batch), check_count("steps", steps)
        [self._stream] = generators(seed, 1)

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(self.steps):
            bits = random_strings(self._stream, self.batch, self.n)
            yield bits, self.language(bits)


def as_tensors(bits: Any, labels: Any, name: str) -> tuple[Tensor, Tensor]:
    """Strings in uint8, and one finite label each."""
    strings, wanted = (
        value if isinstance(value, Tensor) else torch.tensor(np.asarray(value)) for value in (bits, labels)
    )
    if strings.ndim != 2 or len(strings) == 0:
        raise InputError(f"bits of shape {tuple(strings.shape)} in {name} must be [string, position], one or more")
    if tuple(wanted.shape) != (len(strings),):
        raise InputError(
            f"labels of shape {tuple(wanted.shape)} in {name} must be one for each of {len(strings)} strings"
        )
    if not bool(((strings == 0) | (strings == 1)).all()):
        raise InputError(f"bits in {name} must be 0 or 1")
    if not bool(wanted.isfinite().all()):
        raise InputError(f"labels in {name} must be finite numbers: some are not")
    return strings.to(torch.uint8), wanted


def as_targets(labels: Tensor, name: str, loss: Loss) -> Tensor:
    """What logits are compared with: 0 and 1; for mse -1 and +1, or the labels where they are real numbers."""
    if loss == "mse" and labels.is_floating_point():
        return labels
    if not bool(((labels == 0) | (labels == 1)).all()):
        raise InputError(f"labels in {name} must be 0 or 1, or floating-point numbers with loss='mse'")
    targets = labels.to(torch.float32)
    return 2 * targets - 1 if loss == "mse" else targets


def checked(bits: Any, labels: Any, name: str, loss: Loss) -> tuple[Tensor, Tensor]:
    """Strings in uint8 and their targets."""
    strings, wanted = as_tensors(bits, labels, name)
    return strings, as_targets(wanted, name, loss)
