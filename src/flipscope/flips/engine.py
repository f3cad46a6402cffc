"""Engines that compute logits: the interface of all paths, and the general path for any model that reads bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from flipscope.adapters.encoding import encoding_name
from flipscope.adapters.settled import Bits as Bits
from flipscope.adapters.settled import Logits as Logits
from flipscope.adapters.settled import Settled, as_settled
from flipscope.adapters.subject import Model
from flipscope.basics.errors import InputError
from flipscope.flips.choice import NEEDS, PATIENCE, Work, native_obstacle, obstacle
from flipscope.models.transformer import Transformer

if TYPE_CHECKING:
    from flipscope.flips.fast import FastEngine

Path: TypeAlias = Literal["auto", "general", "fast"]

_BATCHES = 4  # batches per block of strings


@runtime_checkable
class Engine(Protocol):
    """Computes the logits of strings and of all their one-bit flips.

    For a model with three or more classes, a logit is a row of numbers, one per class.
    """

    path: str  # "general" or "fast"
    why: str  # the reason for that path
    tolerance: float  # contributions below this are omitted, beyond rounding; 0 omits nothing

    def flip_logits(self, strings: Bits) -> tuple[Logits, Logits]:
        """Logits of the strings [string] and of all their flips [string, position]."""

    def logits(self, strings: Bits) -> Logits:
        """The logit of each string by a plain forward pass."""

    @property
    def first_order(self) -> Callable[[Bits], Logits] | None:
        """First-order estimates of the changes by all flips, [string, position]; None if unavailable."""

    def strings_at_once(self, length: int) -> int:
        """The best number of strings of this length per block, each with all its flips."""


def open_engine(model: Model | Settled, *, path: Path = "auto", work: Work | None = None) -> Engine:
    """The engine of this path; "auto" is the fast one if it supports the model, unless compiling it would take longer
    than the ``work``, if that is known (`flips.choice`).

    The engine computes in the number type of the settled model, which the fast path must have too.
    """
    why = "path='general' was given"
    if path not in ("auto", "general", "fast"):
        raise InputError(f"path={path!r} is not one of auto, general, fast")
    settled = as_settled(model)
    if path != "general":
        found = native_obstacle(settled.model) if settled.subject.precision == "native" else obstacle(settled.model)
        if found is None and settled.encoding != "bits":
            found = f"the model is given {encoding_name(settled.encoding)} instead of bits"
        if found is None and settled.subject.output not in ("auto", "logit"):
            found = "the model's output is not read as one logit"
        if isinstance(settled.model, Transformer) and found is None:
            working = torch.float64 if settled.dtype == torch.float64 else torch.float32
            if path == "auto" and work is not None:
                config = settled.model.config
                found = PATIENCE.objection(work.seconds(config), config, working)
            if found is None:
                # What the fast path omits must be as small as the rounding of its number type.
                return _fast_engine(settled.model, working, torch.finfo(working).eps / 2)
        why = str(found)
        if path == "fast":
            raise InputError(f"path='fast' needs {NEEDS}, but {found}: say path='general'")
    return GeneralEngine(settled, why)


def logits(model: Model, strings: Bits) -> Logits:
    """The logit of each string by the engine that suits the model, in the model's number type."""
    settled = as_settled(model)
    with settled.measuring():
        return open_engine(settled).logits(strings)


def _fast_engine(model: Transformer, dtype: torch.dtype, tolerance: float) -> FastEngine:
    """The engine of the fast path, which few models take."""
    from flipscope.flips.fast import FastEngine

    return FastEngine(model, dtype=dtype, tolerance=tolerance)


class GeneralEngine:
    """Evaluates any model on strings and on their flips, in batches that fit into memory and are fast."""

    path = "general"
    tolerance = 0.0
    first_order = None

    def __init__(self, settled: Settled, why: str = "") -> None:
        self.settled, self.why = settled, why

    def logits(self, strings: Bits) -> Logits:
        """The logit of each string, in the model's number type."""
        return self.settled.logits(strings)

    def flip_logits(self, strings: Bits) -> tuple[Logits, Logits]:
        """Logits of the strings [string] and of all their flips [string, position]."""
        count, length = strings.shape
        self.settled.prepare(strings)
        batch = self.settled.batch
        if batch > length:
            step = batch // (length + 1) or 1
            # Blocks of equal size: a small remainder would waste the overhead of a call.
            parts = np.array_split(strings, -(-count // step))
            found = [self.settled.logits(with_flips(part)) for part in parts]
        else:
            rows = np.array_split(np.arange(count * (length + 1)), -(-count * (length + 1) // batch))
            found = [self.settled.logits(neighbours(strings, part)) for part in rows]
        table = np.concatenate(found) if len(found) > 1 else found[0]
        table = table.reshape(count, length + 1, *table.shape[1:])
        return table[:, 0], table[:, 1:]

    def strings_at_once(self, length: int) -> int:
        """A few batches; their size is known after the first."""
        return max(1, _BATCHES * self.settled.batch // (length + 1))


# ---------------------------------------------------------------- strings and logits


def neighbours(strings: Bits, index: NDArray[np.int64]) -> Bits:
    """Strings and flips by index: index string * (N + 1) is the string itself, followed by its N flips."""
    string, position = np.divmod(index, strings.shape[1] + 1)
    rows = strings[string]
    flipped = np.flatnonzero(position)
    rows[flipped, position[flipped] - 1] ^= 1
    return rows


def with_flips(strings: Bits) -> Bits:
    """Each string followed by its flips, one row each."""
    count, length = strings.shape
    rows = np.repeat(strings[:, None], length + 1, axis=1)
    positions = np.arange(length)
    rows[:, positions + 1, positions] ^= 1
    return rows.reshape(count * (length + 1), length)


def refuse_nan(*found: Logits) -> None:
    """Raise InputError if the model gave NaN."""
    broken, total = sum(int(np.isnan(part).sum()) for part in found), sum(part.size for part in found)
    if broken:
        raise InputError(f"the model gave NaN for {broken} of {total} strings (flips included): it is broken on them")
