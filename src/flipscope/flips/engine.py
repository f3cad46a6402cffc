"""Engines that compute logits: the interface of all paths, and the general path for any model that reads bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.flips.choice import NEEDS, PATIENCE, Work, native_obstacle, obstacle
from flipscope.models.batches import MEMORY_LIMIT, fast_batch
from flipscope.models.deterministic import Ask, check_deterministic, largest_difference
from flipscope.models.devices import Device
from flipscope.models.encoding import Encoding, encoding_name
from flipscope.models.hooks import watching
from flipscope.models.outputs import Output, output_rows
from flipscope.models.subject import Bits as Bits
from flipscope.models.subject import Model as Model
from flipscope.models.subject import Subject, as_subject
from flipscope.models.transformer import Transformer
from flipscope.models.unmodified import difference

if TYPE_CHECKING:
    from flipscope.flips.fast import FastEngine

Logits: TypeAlias = NDArray[np.floating]
Path: TypeAlias = Literal["auto", "general", "fast"]

_BATCHES = 4  # batches per block of strings


@runtime_checkable
class Engine(Protocol):
    """Computes the logits of strings and of all their one-bit flips.

    For a model with three or more classes, a logit is a row of numbers, one per class.
    """

    path: str  # "general" or "fast"
    why: str  # the reason for that path
    length: int | None  # the length it has prepared for, if it prepares
    tolerance: float  # contributions below this are omitted, beyond rounding; 0 omits nothing

    def flip_logits(self, strings: Bits) -> tuple[Logits, Logits]:
        """Logits of the strings [string] and of all their flips [string, position]."""

    def logits(self, strings: Bits) -> Logits:
        """The logit of each string by a plain forward pass."""

    @property
    def first_order(self) -> Callable[[Bits], Logits] | None:
        """First-order estimates of the changes by all flips, [string, position]; None if unavailable."""

    def check_deterministic(self, strings: Bits) -> None:
        """Raise InputError unless the answer for a string is reproducible and independent of other strings."""

    def strings_at_once(self, length: int) -> int:
        """The best number of strings of this length per block, each with all its flips."""


def open_engine(
    model: Model,
    *,
    path: Path = "auto",
    dtype: torch.dtype | None = None,
    encoding: Encoding = "auto",
    output: Output = "auto",
    device: Device | None = None,
    batch: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
    work: Work | None = None,
) -> Engine:
    """The engine of this path; "auto" is the fast one if it supports the model, unless compiling it would take longer
    than the ``work``, if that is known (`flips.choice`).

    Without a ``dtype`` the engine computes in the model's own number type, which the fast path must have too.
    """
    why = "path='general' was given"
    if path not in ("auto", "general", "fast"):
        raise InputError(f"path={path!r} is not one of auto, general, fast")
    subject = as_subject(model, encoding, output, device)
    if path != "general":
        found = native_obstacle(subject.model) if dtype is None else obstacle(subject.model)
        if found is None and subject.encoding != "bits":
            found = f"the model is given {encoding_name(subject.encoding)} instead of bits"
        if found is None and subject.output not in ("auto", "logit"):
            found = "the model's output is not read as one logit"
        if isinstance(subject.model, Transformer) and found is None:
            working = torch.float64 if (dtype or subject.dtype) == torch.float64 else torch.float32
            if path == "auto" and work is not None:
                config = subject.model.config
                found = PATIENCE.objection(work.seconds(config), config, working)
            if found is None:
                # What the fast path omits must be as small as the rounding of its number type.
                return _fast_engine(subject.model, working, torch.finfo(working).eps / 2)
        why = str(found)
        if path == "fast":
            raise InputError(f"path='fast' needs {NEEDS}, but {found}: say path='general'")
    return GeneralEngine(subject, dtype=dtype, batch=batch, memory_limit=memory_limit, why=why)


def _fast_engine(model: Transformer, dtype: torch.dtype, tolerance: float) -> FastEngine:
    """The engine of the fast path, which few models take."""
    from flipscope.flips.fast import FastEngine

    return FastEngine(model, dtype=dtype, tolerance=tolerance)


class GeneralEngine:
    """Evaluates any model through its `Subject`, in batches that fit into memory and are fast.

    With a ``dtype`` other than its own, a module is copied. ``batch`` is the number of strings per call; by default the
    largest intermediate result fits into the processor's cache, within ``memory_limit`` bytes.
    """

    path = "general"
    tolerance = 0.0
    first_order = None

    def __init__(
        self,
        model: Model,
        *,
        dtype: torch.dtype | None = None,
        encoding: Encoding = "auto",
        output: Output = "auto",
        device: Device | None = None,
        batch: int | None = None,
        memory_limit: int = MEMORY_LIMIT,
        why: str = "",
    ) -> None:
        subject = as_subject(model, encoding, output, device)
        self.why = why
        self.length: int | None = None
        mixed = dtype == torch.float64 and subject.is_mixed
        converts = dtype is not None and (dtype != subject.dtype or mixed)
        self.subject = subject.converted(dtype) if dtype is not None and converts else subject
        self.batch = 0 if batch is None else check_count("batch", batch)
        self._fixed_batch = batch is not None
        self._memory_limit = check_count("memory_limit", memory_limit)

    @property
    def model(self) -> Callable[..., Any]:
        """The model that is called."""
        return self.subject.model

    @property
    def dtype(self) -> torch.dtype | None:
        """The number type of a module's evaluation; None for other models."""
        return self.subject.dtype

    def logits(self, strings: Bits) -> Logits:
        """The logit of each string, in the model's number type."""
        return self._in_batches(len(strings), strings.shape[1], lambda index: strings[index])

    def flip_logits(self, strings: Bits) -> tuple[Logits, Logits]:
        """Logits of the strings [string] and of all their flips [string, position]."""
        rows = len(strings) * (strings.shape[1] + 1)
        found = self._in_batches(rows, strings.shape[1], lambda index: neighbours(strings, index))
        table = found.reshape(len(strings), strings.shape[1] + 1, *found.shape[1:])
        return table[:, 0], table[:, 1:]

    def outputs(self, strings: Bits, of: str | None = None) -> Float[Tensor, "string number"]:
        """The output of the model, or of the submodule of this name, flattened to one row per string."""
        return torch.cat([part.flatten(1) for part in self.activations(strings, of)], dim=1)

    def activations(
        self, strings: Bits, of: str | None = None, *, everywhere: bool = False
    ) -> list[Float[Tensor, "string ..."]]:
        """The same in its own shape, one tensor per call of the submodule; a single number becomes [string, 1].

        flipscope's transformer computes its last layer only where it is read; ``everywhere`` computes all positions.
        """
        if of is None:
            return [self.subject.rows(self._run(strings), len(strings)).detach()]
        assert isinstance(self.model, nn.Module)
        seen: list[Any] = []
        part = {of: self.model.get_submodule(of)}
        run = self._run_everywhere if everywhere and self._is_ours() else self._run  # before hooks are registered
        with watching(part, outputs=lambda _name, _part, output: seen.append(output)):
            run(strings)
        if not seen:
            raise InputError(f"the module {of!r} is not called when the model runs: name another")
        return [output_rows(out, len(strings), f"the module {of!r}").detach() for out in seen]

    def check_deterministic(self, strings: Bits, of: str | None = None) -> None:
        """Raise InputError unless the outputs for a string are reproducible and independent of other strings."""
        self.prepare(strings)
        if not callable(self.subject.encoding) and difference(self.model) is None:
            return
        eps = None if self.dtype is None else torch.finfo(self.dtype).eps

        def asking(model: Callable[..., Any]) -> Ask:
            engine = self if model is self.model else self._like(self.subject.like(model))
            return lambda some: engine.outputs(some, of).cpu().numpy()

        check_deterministic(self.model, asking, strings, self.batch, eps)

    def strings_at_once(self, length: int) -> int:
        """A few batches; their size is known after the first."""
        return max(1, _BATCHES * self.batch // (length + 1))

    def noise(self, strings: Bits) -> float:
        """The largest change of a logit when its string is evaluated alone instead of among others."""
        alone = [self._forward(strings[row : row + 1]) for row in range(len(strings))]
        return largest_difference(self.logits(strings), np.concatenate(alone))

    def perturbed(self, amount: float) -> GeneralEngine:
        """The same with every parameter of a copy of the module moved up or down by this share of itself."""
        return self._like(self.subject.perturbed(amount))

    def converted(self, dtype: torch.dtype) -> GeneralEngine:
        """The same with a copy of the module in another number type."""
        return self._like(self.subject, dtype)

    def _like(self, subject: Subject, dtype: torch.dtype | None = None) -> GeneralEngine:
        return GeneralEngine(subject, dtype=dtype, batch=self.batch or None, memory_limit=self._memory_limit)

    def prepare(self, strings: Bits) -> None:
        """Choose the number of strings per batch for strings of this length."""
        if self.length == strings.shape[1]:
            return
        if not self._fixed_batch:
            one = strings[:1]

            def sizes(count: int) -> list[int]:
                return self.subject.try_out(np.repeat(one, count, axis=0))

            self.batch = fast_batch(self.subject, sizes, one.size, self._memory_limit)
        self.length = strings.shape[1]

    def _in_batches(self, rows: int, length: int, strings: Callable[[NDArray[np.int64]], Bits]) -> Logits:
        self.prepare(strings(np.arange(1)))
        # Batches of equal size: a small remainder would waste the overhead of a call.
        parts = np.array_split(np.arange(rows), -(-rows // self.batch))
        return np.concatenate([self._forward(strings(part)) for part in parts])

    def _forward(self, strings: Bits) -> Logits:
        return self.subject.asked_values(strings)

    def ready(self, strings: Bits) -> Callable[[], Any]:
        """A call of the model on these strings, with its input already prepared."""
        with self.subject.asked(strings):
            given = self.subject.encode(strings)

        def call() -> Any:
            with self.subject.asked(strings):
                return self.subject.call(given)

        return call

    def _run(self, strings: Bits) -> Any:
        """The model's raw output."""
        return self.subject.run(strings)

    def _is_ours(self) -> bool:
        """Whether the model is an unmodified transformer."""
        return isinstance(self.model, Transformer) and difference(self.model) is None

    def _run_everywhere(self, strings: Bits) -> Any:
        """The output of flipscope's transformer, with all its layers computed at all positions."""
        assert isinstance(self.model, Transformer)
        with self.subject.asked(strings):
            return self.model.read(self.model.states(self.subject.encode(strings))[-1])


# ---------------------------------------------------------------- strings and logits


def neighbours(strings: Bits, index: NDArray[np.int64]) -> Bits:
    """Strings and flips by index: index string * (N + 1) is the string itself, followed by its N flips."""
    string, position = np.divmod(index, strings.shape[1] + 1)
    rows = strings[string]
    flipped = np.flatnonzero(position)
    rows[flipped, position[flipped] - 1] ^= 1
    return rows


def refuse_nan(*found: Logits) -> None:
    """Raise InputError if the model gave NaN."""
    broken, total = sum(int(np.isnan(part).sum()) for part in found), sum(part.size for part in found)
    if broken:
        raise InputError(f"the model gave NaN for {broken} of {total} strings (flips included): it is broken on them")
