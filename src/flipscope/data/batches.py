"""Sources of batches: a fixed set in a new order each epoch, or fresh strings; and checks of the batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from flipscope.basics.bits import as_array
from flipscope.basics.checks import check_count, shown
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import generators, random_strings
from flipscope.models.seal import fingerprint

Inputs = Literal["bits", "tokens", "numbers"]  # 0 and 1; whole numbers from 0 on; anything, such as images
INPUTS: tuple[Inputs, ...] = ("bits", "tokens", "numbers")
_FINGERPRINTED = 256  # strings whose labels identify a language
# Strings [string, position], labels [string] or [string, position]: arrays or tensors.
Batch: TypeAlias = tuple[Any, Any]


@runtime_checkable
class Labelled(Protocol):
    """Strings with labels, such as `flipscope.data.languages.LabelledStrings`."""

    @property
    def bits(self) -> Any: ...
    @property
    def labels(self) -> Any: ...


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs of any kind, the first axis being the string, and a label or labels for each."""

    bits: Any
    labels: Any


@runtime_checkable
class Resumable(Protocol):
    """A source of batches that can go on in the middle of an epoch, in another process too."""

    def state(self) -> dict[str, Any]:
        """Its position after the last batch it gave, as JSON can hold it."""

    def resume(self, state: dict[str, Any]) -> None:
        """Go to the position of a source of the same kind and content: the next pass gives the rest of that epoch."""

    def fingerprint(self) -> str:
        """A digest of its content, or of a sample of it where batches are drawn."""


class Shuffled:
    """Batches of a fixed set, in a new order in every pass; the last may be smaller."""

    def __init__(
        self, data: Labelled, batch: int, seed: int | np.random.Generator = 0, inputs: Inputs = "bits"
    ) -> None:
        self._bits, self._labels = as_tensors(data.bits, data.labels, "train", inputs)
        self.batch = check_count("batch", batch)
        [self._stream] = generators(seed, 1)
        self._begun = self._stream.bit_generator.state  # when the epoch began
        self._given = self._skipped = 0

    def __iter__(self) -> Iterator[Batch]:
        self._begun = self._stream.bit_generator.state
        self._given, self._skipped = self._skipped, 0
        for rows in self._plan(self._stream)[self._given :]:
            self._given += 1
            yield self._batch(rows)
        self._begun, self._given = self._stream.bit_generator.state, 0

    def _plan(self, stream: np.random.Generator) -> Sequence[Tensor]:
        """The rows of each batch of a pass. All randomness of the pass is drawn here, so that it can be resumed."""
        return list(torch.from_numpy(stream.permutation(len(self._bits))).split(self.batch))

    def _batch(self, rows: Tensor) -> Batch:
        """The batch of these rows."""
        return self._bits[rows], self._labels[rows]

    def state(self) -> dict[str, Any]:
        return {"stream": self._begun, "given": self._given}

    def resume(self, state: dict[str, Any]) -> None:
        self._stream.bit_generator.state = self._begun = state["stream"]
        self._given = self._skipped = state["given"]

    def fingerprint(self) -> str:
        return fingerprint([self._bits, self._labels])


class ByLength(Shuffled):
    """Batches of texts of similar lengths, without the padding that all texts of a batch end with.

    Texts are shuffled, sorted by length in groups of `group` batches, and the batches of all groups are shuffled again:
    less is computed on padding, and batches still differ from pass to pass.
    """

    def __init__(
        self,
        data: Labelled,
        batch: int,
        seed: int | np.random.Generator = 0,
        *,
        padding: int,
        group: int = 50,
    ) -> None:
        super().__init__(data, batch, seed, "tokens")
        self._lengths = text_lengths(self._bits, padding)
        self._group = check_count("group", group)

    def _plan(self, stream: np.random.Generator) -> Sequence[Tensor]:
        batches: list[Tensor] = []
        for some in torch.from_numpy(stream.permutation(len(self._bits))).split(self.batch * self._group):
            batches += some[self._lengths[some].argsort(stable=True)].split(self.batch)
        return [batches[place] for place in stream.permutation(len(batches))]

    def _batch(self, rows: Tensor) -> Batch:
        return self._bits[rows, : int(self._lengths[rows].max())], self._labels[rows]


def text_lengths(ids: Tensor, padding: int) -> Tensor:
    """The number of tokens up to the last one of each text that is no padding; at least 1."""
    places = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    return (places * (ids != padding)).amax(dim=1).clamp(min=1)


class Drawn:
    """Batches that a function draws from a random stream, one by one; an epoch is `steps` of them.

    The function is given a random generator, and must take all its randomness from it.
    """

    def __init__(
        self, draw: Callable[[np.random.Generator], Batch], steps: int, seed: int | np.random.Generator = 0
    ) -> None:
        self.draw, self.steps = draw, check_count("steps", steps)
        [self._stream] = generators(seed, 1)
        self._given = self._skipped = 0

    def __iter__(self) -> Iterator[Batch]:
        self._given, self._skipped = self._skipped, 0
        while self._given < self.steps:
            batch = self.draw(self._stream)
            self._given += 1
            yield batch
        self._given = 0

    def state(self) -> dict[str, Any]:
        return {"stream": self._stream.bit_generator.state, "given": self._given}

    def resume(self, state: dict[str, Any]) -> None:
        self._stream.bit_generator.state = state["stream"]
        self._given = self._skipped = state["given"]

    def fingerprint(self) -> str:
        some = self.draw(np.random.default_rng(0))
        parts = [*map(np.asarray, some), [self.steps]]
        return fingerprint(torch.tensor(part, device="cpu") for part in parts)


class Fresh(Drawn):
    """Batches of uniformly random strings with the labels of a language; an epoch is `steps` of them."""

    def __init__(
        self, language: Callable[[Any], Any], n: int, batch: int, steps: int, seed: int | np.random.Generator = 0
    ) -> None:
        self.language, self.n, self.batch = language, check_count("n", n), check_count("batch", batch)
        super().__init__(self._labelled, steps, seed)

    def fingerprint(self) -> str:
        some = random_strings(np.random.default_rng(0), _FINGERPRINTED, self.n)
        sizes = torch.tensor([self.n, self.batch, self.steps], device="cpu")
        return fingerprint([torch.tensor(np.asarray(self.language(some)), device="cpu"), sizes])

    def _labelled(self, stream: np.random.Generator) -> Batch:
        bits = random_strings(stream, self.batch, self.n)
        return bits, self.language(bits)


def as_tensors(bits: Any, labels: Any, name: str, inputs: Inputs = "bits") -> tuple[Tensor, Tensor]:
    """Inputs (bits as uint8, others unchanged) and finite labels, one per string or per position, as tensors."""
    strings, wanted = _as_tensor(bits, f"bits in {name}"), _as_tensor(labels, f"labels in {name}")
    if len(strings.shape) < 2 or (strings.ndim != 2 and inputs != "numbers") or len(strings) == 0:
        raise InputError(f"bits of shape {tuple(strings.shape)} in {name} must be [string, position], one or more")
    if wanted.ndim not in (1, 2) or len(wanted) != len(strings) or 0 in wanted.shape:
        raise InputError(
            f"labels of shape {tuple(wanted.shape)} in {name} must be one for each of {len(strings)} strings, "
            "or one for each of their positions"
        )
    _check_inputs(strings, name, inputs)
    if not bool(wanted.isfinite().all()):
        raise InputError(f"labels in {name} must be finite numbers: some are not")
    return strings.to(torch.uint8) if inputs == "bits" else strings, wanted


def _as_tensor(values: Any, name: str) -> Tensor:
    """The values as a tensor; InputError where they are not numbers."""
    if isinstance(values, Tensor):
        if values.layout is not torch.strided or values.is_quantized or values.is_meta:
            raise InputError(f"{name}: {shown(values)} must be a dense tensor that holds its numbers")
        return values
    array = as_array(values, name)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} of type {array.dtype} must be numbers")
    return torch.tensor(array, device="cpu")  # whatever PyTorch's default: a training moves what it needs


def _check_inputs(strings: Tensor, name: str, inputs: Inputs) -> None:
    """Raise InputError unless the inputs are of the declared kind."""
    if inputs == "bits" and not bool(((strings == 0) | (strings == 1)).all()):
        raise InputError(f"bits in {name} must be 0 or 1: for other symbols say inputs='tokens'")
    if inputs == "tokens" and (strings.is_floating_point() or bool((strings < 0).any())):
        raise InputError(f"tokens in {name} must be whole numbers from 0 on")
    if inputs == "numbers" and not bool(strings.isfinite().all()):
        raise InputError(f"inputs in {name} must be finite numbers: some are not")
