"""A model and the strings it is asked again and again while its parameters move: outputs, and their loss."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from flipscope.basics.bits import as_array
from flipscope.basics.checks import check_count, shown
from flipscope.basics.errors import InputError, blamed_on
from flipscope.flips.engine import number_type, output_rows, usual_inputs
from flipscope.models.fast_logits import logits_for
from flipscope.models.modes import eval_mode
from flipscope.models.transformer import Transformer

Inputs: TypeAlias = Tensor | np.ndarray | tuple[Tensor | np.ndarray, ...]  # the first axis of each is the string
Loss: TypeAlias = Literal["mse", "bce", "cross_entropy"] | Callable[[Tensor, Tensor], Tensor]
LOSSES = ("mse", "bce", "cross_entropy")

_NUMBERS = 800_000  # of one layer's activations in a batch: a few megabytes, which stay in the cache
_FEWEST, _USUAL = 16, 256  # strings of a batch, at least, and of a model that is not ours
_ASKED_TWICE = 16
_PAIRS = 8  # strings that tell whether a loss takes each output with its own target


def as_inputs(model: nn.Module, inputs: Inputs) -> tuple[Tensor, ...]:
    """The inputs as tensors where the model's parameters are; what it is called with, in order."""
    parts = inputs if isinstance(inputs, tuple) else (inputs,)
    device = next((each.device for each in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    found = []
    for part in parts:
        if not isinstance(part, Tensor | np.ndarray):
            raise InputError(f"inputs must be a torch tensor or a numpy array, not {type(part).__name__}")
        if part.ndim < 1 or len(part) == 0:
            raise InputError(f"inputs of shape {tuple(part.shape)} hold no string: give one or more")
        if isinstance(part, Tensor) and (part.layout is not torch.strided or part.is_quantized or part.is_meta):
            raise InputError(f"inputs={shown(part)} must be a dense tensor that holds its numbers")
        if isinstance(part, np.ndarray):
            if part.dtype.kind not in "biuf":
                raise InputError(f"inputs of type {part.dtype} must be numbers")
            # A copy: torch warns of arrays that are read-only.
            part = torch.from_numpy(np.array(as_array(part, "inputs"), order="C"))
        part = part.detach().to(device)
        found.append(part.clone() if part.is_inference() else part)  # what inference mode made has no derivatives
    if len({len(part) for part in found}) != 1:
        raise InputError(f"inputs hold {' and '.join(str(len(part)) for part in found)} strings: give as many of each")
    return tuple(found)


class Asking:
    """The outputs of a model on fixed strings, in batches, for the parameters that it has at the time.

    Our transformers on bits go by their quick logits and are asked every string once, however often it is there. A
    module without a table to look numbers up in is given floats of its own type. `forward` stands in for the model.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Inputs,
        *,
        forward: Callable[..., Any] | None = None,
        batch: int | None = None,
    ) -> None:
        parts = as_inputs(model, inputs)
        self.model = model
        self.strings = len(parts[0])
        quick = logits_for(model) if forward is None and len(parts) == 1 else model
        self._forward: Callable[..., Any] = forward or quick
        self._back: Tensor | None = None
        if quick is not model:
            distinct, back = torch.unique(parts[0], dim=0, return_inverse=True)
            if len(distinct) < self.strings:
                parts, self._back = (distinct,), back
        elif forward is None and usual_inputs(model) == "floats":
            types = {each.dtype for each in model.parameters()}
            # Where the model has one type, that is what it reads: numpy's float64 is rarely meant.
            parts = tuple(
                part.to(number_type(model)) if len(types) == 1 or not part.is_floating_point() else part
                for part in parts
            )
        self._parts = parts
        self._batch = _usual_batch(model, parts[0]) if batch is None else check_count("batch", batch)
        self._is_known = quick is not model

    def check(self) -> None:
        """Raise InputError if the model is random: what it does by itself would be taken for the work of the move."""
        if self._is_known:
            return
        few = tuple(part[:_ASKED_TWICE] for part in self._parts)
        with torch.no_grad():
            first, second = (output_rows(self._forward(*few), len(few[0]), "the model") for _ in range(2))
        if not torch.equal(first.nan_to_num(), second.nan_to_num()):
            raise InputError(
                "the model gives other outputs for the same strings when asked twice: make it deterministic"
            )

    def outputs(self) -> Float[Tensor, "string ..."]:
        """The outputs of all strings, as the parameters are now; with a graph where gradients are on."""
        count = len(self._parts[0])
        found = []
        for start in range(0, count, self._batch):
            rows = tuple(part[start : start + self._batch] for part in self._parts)
            found.append(output_rows(self._forward(*rows), len(rows[0]), "the model"))
        out = found[0] if len(found) == 1 else torch.cat(found)
        if out.shape[1:] == (1,):
            out = out[:, 0]
        return out if self._back is None else out[self._back]


@contextmanager
def asked(
    model: nn.Module, inputs: Inputs, forward: Callable[..., Any] | None, batch: int | None
) -> Iterator[tuple[Asking, Float[Tensor, "string ..."]]]:
    """The model in evaluation mode without gradients, asked once: its outputs as it is."""
    asking = Asking(model, inputs, forward=forward, batch=batch)
    with eval_mode(model), torch.no_grad():
        with blamed_on("the model"):
            asking.check()
            before = asking.outputs()
        if not bool(before.isfinite().all()):
            raise InputError(
                "the model gives NaN or infinite outputs on these strings: check the weights and the inputs"
            )
        yield asking, before


def as_loss(loss: Loss, targets: Tensor | np.ndarray | None, outputs: Float[Tensor, "string ..."]) -> Scorer:
    """The mean loss of outputs like these against the targets; InputError where they do not go together."""
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
        wanted = wanted.to(outputs.device)
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
    """Raise InputError if a loss of one's own takes every output with every target: [n, 1] and [n] broadcast to [n, n].

    It may mean to, or bring the shapes together itself. What gives it away is that the loss of several strings is
    neither the mean nor the sum of their own losses, and would be with outputs of the targets' shape.
    """
    shapes = tuple(outputs.shape), tuple(targets.shape)
    if len(outputs) < 2 or ((*shapes[0], 1) != shapes[1] and shapes[0] != (*shapes[1], 1)):
        return
    order = targets.detach().double().reshape(len(targets), -1).sum(dim=1).argsort()
    few = order[torch.linspace(0, len(order) - 1, min(len(order), _PAIRS), device=order.device).long()]
    found, wanted = outputs.detach()[few], targets[few]
    if bool((found == found[0]).all()):  # so that it matters which output goes with which target
        steps = torch.linspace(0, 0.1, len(few), device=found.device, dtype=found.dtype)
        found = found + steps.reshape(-1, *[1] * (found.ndim - 1))

    def of(some: Tensor, theirs: Tensor) -> float:
        return float(loss(some, theirs).double().mean())

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the very thing
        try:
            own = [of(found[k : k + 1], wanted[k : k + 1]) for k in range(len(few))]
            whole, alike = of(found, wanted), of(found.reshape(wanted.shape), wanted)
        except Exception:  # not a loss of any strings, or of any shape: then it says nothing about this
            return
    total = sum(own)
    near = [
        any(math.isclose(value, sums, rel_tol=1e-4, abs_tol=1e-6) for sums in (total, total / len(own)))
        for value in (whole, alike)
    ]
    if near == [False, True]:
        said = " and targets of shape ".join(map(str, shapes))
        raise InputError(f"the loss pairs every output with every target: give outputs of shape {said} one shape")


class Scorer:
    """A loss with its targets: outputs in, one number out."""

    def __init__(self, loss: Loss, targets: Tensor) -> None:
        self.loss, self.targets = loss, targets

    def __call__(self, outputs: Float[Tensor, "string ..."]) -> Float[Tensor, ""]:
        """The mean loss, in float64 for the losses that have a name."""
        if callable(self.loss):
            with blamed_on("the loss"):
                found = self.loss(outputs, self.targets)
            if not isinstance(found, Tensor) or not found.is_floating_point():
                raise InputError(f"loss must return a tensor of losses or their mean, not a {type(found).__name__}")
            return found.double().mean()
        wide = outputs.double()
        if self.loss == "cross_entropy":
            return F.cross_entropy(wide.flatten(0, -2), self.targets.long().flatten())
        targets = self.targets.double()
        return F.mse_loss(wide, targets) if self.loss == "mse" else F.binary_cross_entropy_with_logits(wide, targets)


def _usual_batch(model: nn.Module, inputs: Tensor) -> int:
    if not isinstance(model, Transformer) or inputs.ndim != 2:
        return _USUAL
    return max(_FEWEST, _NUMBERS // (model.config.width * (inputs.shape[1] + (model.config.marker != "none"))))
