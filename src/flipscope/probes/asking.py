"""Repeated evaluation of a model on the same strings while its parameters move: outputs, and their loss."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from flipscope.adapters.inputs import Inputs, check_string_axis, given_for
from flipscope.adapters.settled import Settled
from flipscope.basics.bits import as_array
from flipscope.basics.checks import shown
from flipscope.basics.errors import InputError, blamed_on
from flipscope.models.devices import in_float64, moved
from flipscope.models.fast_logits import logits_for
from flipscope.models.transformer import Transformer

Loss: TypeAlias = Literal["mse", "bce", "cross_entropy"] | Callable[[Tensor, Tensor], Tensor]
LOSSES = ("mse", "bce", "cross_entropy")

_NUMBERS = 800_000  # entries of one layer's activations in a batch: a few megabytes, which stay in the cache
_FEWEST, _USUAL = 16, 256  # least number of strings per batch, and the number for other models


class Asking:
    """The outputs of a model on fixed strings, in batches, for its current parameters.

    flipscope's transformers on bits use their fast logits and evaluate duplicate strings once. `forward` replaces the
    call of the model.
    """

    def __init__(self, settled: Settled, data: Inputs, *, forward: Callable[..., Any] | None = None) -> None:
        assert settled.module is not None
        self._settled, self.model = settled, settled.module
        single = forward is None and not isinstance(data, tuple | Mapping)
        quick = logits_for(self.model) if single else self.model
        given = given_for(settled, data, converts=forward is None and quick is self.model)
        self.strings = given.strings
        self._forward: Callable[..., Any] = forward or quick
        self._back: Tensor | None = None
        if quick is not self.model:
            distinct, back = torch.unique(given.positional[0], dim=0, return_inverse=True)
            if len(distinct) < self.strings:
                given, self._back = replace(given, positional=(distinct,)), back
        batch = settled.subject.batch or _usual_batch(self.model, given.tensors[0])
        starts = range(0, given.strings, batch)
        if quick is self.model:
            check_string_axis(settled, given, self._forward)
        parts = [given.rows(start, start + batch) for start in starts]
        self._batches = [(part.ready(), part.strings) for part in parts]
        self._is_known = quick is not self.model

    def check(self) -> None:
        """Raise InputError if the model is random, since its noise would be attributed to the move."""
        if self._is_known:
            return
        given, count = self._batches[0]
        with torch.no_grad():
            first, second = (self._settled.rows(given.to(self._forward), count) for _ in range(2))
        if not torch.equal(first.nan_to_num(), second.nan_to_num()):
            raise InputError(
                "the model gives different outputs for the same strings in two calls: make it deterministic"
            )

    def outputs(self) -> Float[Tensor, "string ..."]:
        """The outputs of all strings for the current parameters, with a graph if gradients are enabled."""
        found = [self._settled.rows(given.to(self._forward), count) for given, count in self._batches]
        out = found[0] if len(found) == 1 else torch.cat(found)
        if out.shape[1:] == (1,):
            out = out[:, 0]
        return out if self._back is None else out[self._back]


@contextlib.contextmanager
def asked(
    settled: Settled, data: Inputs, forward: Callable[..., Any] | None
) -> Iterator[tuple[Asking, Float[Tensor, "string ..."]]]:
    """Evaluate the unmoved model once, in evaluation mode without gradients; returns its outputs."""
    with settled.measuring():
        asking = Asking(settled, data, forward=forward)
        with blamed_on("the model"):
            asking.check()
            before = asking.outputs()
        if not bool(before.isfinite().all()):
            raise InputError(
                "the model gives NaN or infinite outputs on these strings: check the weights and the inputs"
            )
        yield asking, before


def as_loss(loss: Loss, targets: Tensor | np.ndarray | None, outputs: Float[Tensor, "string ..."]) -> Scorer:
    """The mean loss of such outputs for the targets; InputError if the shapes do not match."""
    if not callable(loss) and loss not in LOSSES:
        raise InputError(f"loss={loss!r} is not one of {', '.join(LOSSES)}, nor a function of outputs and targets")
    if targets is None:
        raise InputError("a loss needs targets: give one for each string")
    with blamed_on("reading the targets"):
        wanted = (
            targets
            if isinstance(targets, Tensor)
            else torch.from_numpy(np.array(as_array(targets, "targets"), order="C"))
        )
        wanted = moved(wanted, outputs.device)
    if wanted.layout is not torch.strided or wanted.is_quantized or wanted.is_meta:
        raise InputError(f"targets={shown(wanted)} must be a dense tensor that holds its numbers")
    if wanted.is_floating_point() and not bool(wanted.isfinite().all()):
        raise InputError("targets must be finite numbers: some are not")
    shape = tuple(outputs.shape)
    if callable(loss):
        expected = tuple(wanted.shape) if wanted.ndim and len(wanted) == shape[0] else (shape[0], "...")
    else:
        expected = shape if loss != "cross_entropy" else (shape[0], *shape[1:-1])
        if loss == "cross_entropy" and (len(shape) < 2 or wanted.is_floating_point()):
            raise InputError(
                f"loss='cross_entropy' needs outputs [string, class] and whole targets, not {shape} outputs"
            )
        if wanted.ndim == len(expected) + 1 and wanted.shape[-1:] == (1,):
            wanted = wanted[..., 0]
    if tuple(wanted.shape) != expected:
        said = ", ".join(map(str, expected))
        raise InputError(f"targets of shape {tuple(wanted.shape)} must be [{said}], one for each output")
    if loss == "cross_entropy" and not bool(((wanted >= 0) & (wanted < shape[-1])).all()):
        raise InputError(f"targets must be classes from 0 to {shape[-1] - 1}: some are not")
    if loss == "bce" and not bool(((wanted >= 0) & (wanted <= 1)).all()):
        raise InputError("targets must lie between 0 and 1 with loss='bce': some do not")
    if callable(loss):
        check_paired(loss, outputs, wanted)
    return Scorer(loss, wanted)


def check_paired(loss: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, targets: Tensor) -> None:
    """Raise InputError if a custom loss pairs every output with every target: [n, 1] and [n] broadcast to [n, n]."""
    shapes, count = (tuple(outputs.shape), tuple(targets.shape)), len(outputs)
    if count < 2 or (shapes[0] != (*shapes[1], 1) and shapes[1] != (*shapes[0], 1)):
        return
    watch = _PairWatch(count)
    with torch.no_grad(), warnings.catch_warnings(), contextlib.suppress(Exception), watch:
        warnings.simplefilter("ignore")  # PyTorch warns of the same mistake
        loss(outputs.detach(), targets)  # exceptions are reported where the loss is used
    if watch.found:
        raise InputError(
            f"the loss pairs every output with every target: give outputs of shape {shapes[0]} and targets of shape "
            f"{shapes[1]} one shape"
        )


class _PairWatch(TorchDispatchMode):
    """Notes whether an operation takes one number per string, [n], and returns [n, n]."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise PyTorch loads its compiler, which takes seconds

    def __init__(self, count: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count, self.found = count, False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        single = any(isinstance(each, Tensor) and each.shape == (self.count,) for each in args)
        self.found |= single and isinstance(out, Tensor) and out.shape[:2] == (self.count, self.count)
        return out


class Scorer:
    """A loss with its targets: a function of the outputs that returns one number."""

    def __init__(self, loss: Loss, targets: Tensor) -> None:
        self.loss, self.targets = loss, targets

    def __call__(self, outputs: Float[Tensor, "string ..."]) -> Float[Tensor, ""]:
        """The mean loss, in float64 for named losses."""
        if callable(self.loss):
            with blamed_on("the loss"):
                found = self.loss(outputs, self.targets)
            if not isinstance(found, Tensor) or not found.is_floating_point():
                raise InputError(f"loss must return a tensor of losses or their mean, not a {type(found).__name__}")
            return in_float64(found).mean()
        wide = in_float64(outputs)
        if self.loss == "cross_entropy":
            return F.cross_entropy(wide.flatten(0, -2), self.targets.long().flatten().to(wide.device))
        targets = in_float64(self.targets)
        return F.mse_loss(wide, targets) if self.loss == "mse" else F.binary_cross_entropy_with_logits(wide, targets)


def _usual_batch(model: nn.Module, inputs: Tensor) -> int:
    if not isinstance(model, Transformer) or inputs.ndim != 2:
        return _USUAL
    return max(_FEWEST, _NUMBERS // (model.config.width * (inputs.shape[1] + (model.config.marker != "none"))))
