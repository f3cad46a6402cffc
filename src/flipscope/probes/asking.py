"""Repeated evaluation of a model on the same strings while its parameters move: outputs, and their loss."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from flipscope.basics.bits import as_array, check_strings
from flipscope.basics.checks import check_count, shown
from flipscope.basics.errors import InputError, blamed_on
from flipscope.models.devices import in_float64, moved
from flipscope.models.encoding import looks_up
from flipscope.models.fast_logits import logits_for
from flipscope.models.modes import eval_mode
from flipscope.models.subject import Model, Subject, as_subject, number_type
from flipscope.models.transformer import Transformer

# The input of a model: one array, several, or keywords such as input_ids and attention_mask; the first axis of each is
# the string.
Inputs: TypeAlias = Tensor | np.ndarray | tuple[Tensor | np.ndarray, ...] | Mapping[str, Any]
Loss: TypeAlias = Literal["mse", "bce", "cross_entropy"] | Callable[[Tensor, Tensor], Tensor]
LOSSES = ("mse", "bce", "cross_entropy")

_NUMBERS = 800_000  # entries of one layer's activations in a batch: a few megabytes, which stay in the cache
_FEWEST, _USUAL = 16, 256  # least number of strings per batch, and the number for other models
_ASKED_TWICE = 16
_PAIRS = 8  # strings used to check that a loss pairs each output with its own target


@dataclass(frozen=True)
class Given:
    """The input of a model for some strings: arguments, or keywords."""

    positional: tuple[Tensor, ...]
    keywords: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors."""
        return *self.positional, *self.keywords.values()

    @property
    def strings(self) -> int:
        """Number of strings."""
        return len(self.tensors[0])

    def rows(self, start: int, stop: int) -> Given:
        """The part for the strings from start to stop."""
        return self.mapped(lambda tensor: tensor[start:stop])

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Given:
        """The input with a function applied to every tensor."""
        changed = {name: function(each) for name, each in self.keywords.items()}
        return Given(tuple(map(function, self.positional)), changed)

    def to(self, forward: Callable[..., Any]) -> Any:
        """Call a function with this input."""
        return forward(*self.positional, **self.keywords)


def given_for(subject: Subject, data: Inputs, converts: bool = True) -> Given:
    """The model's input for the data, on its device.

    With an encoding, the data are strings of bits. Without one they are passed unchanged, with a mapping for keywords;
    integers are converted to floats of the module's type if it has no embedding and a trial call accepts these, unless
    ``converts`` is False.
    """
    module = subject.module
    if not subject.takes_data_as_they_are:
        if isinstance(data, tuple | Mapping):
            raise InputError("an encoding is of one array of strings of bits: leave it out for other data")
        with subject.asked(bits := check_strings(data)):
            found = subject.encode(bits)
        named = dict(found) if isinstance(found, Mapping) else {}
        parts = () if named else found if isinstance(found, tuple) else (found,)
        if any(not isinstance(each, Tensor) for each in (*parts, *named.values())):
            raise InputError("encoding must return a tensor, a tuple of tensors or a dict of tensors")
        return Given(parts, named).mapped(subject.cast)
    if isinstance(data, Mapping):
        given = Given((), dict(zip(data, _tensors(tuple(data.values()), subject.device), strict=True)))
    else:
        given = Given(_tensors(data if isinstance(data, tuple) else (data,), subject.device))
    if not converts or module is None or looks_up(module):
        return given
    floats = given.mapped(lambda tensor: _as_floats(tensor, module))
    few = floats.rows(0, 1)
    whole = not all(each.is_floating_point() for each in given.tensors)
    return given if whole and not subject.runs(*few.positional, **few.keywords) else floats


def _as_floats(tensor: Tensor, module: nn.Module) -> Tensor:
    """Numbers in the type in which the module computes."""
    types = {each.dtype for each in module.parameters()}
    # If the model has one type, it reads that type: numpy's float64 is rarely intended.
    wanted = number_type(module) or torch.float32
    return tensor.to(wanted) if len(types) == 1 or not tensor.is_floating_point() else tensor


def _tensors(parts: tuple[Any, ...], device: torch.device) -> tuple[Tensor, ...]:
    """The arrays as tensors on the device."""
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
            # A copy, since torch warns about read-only arrays.
            part = torch.from_numpy(np.array(as_array(part, "inputs"), order="C"))
        part = moved(part.detach(), device)
        found.append(part.clone() if part.is_inference() else part)  # inference tensors have no derivatives
    if len({len(part) for part in found}) != 1:
        raise InputError(f"inputs hold {' and '.join(str(len(part)) for part in found)} strings: give as many of each")
    return tuple(found)


class Asking:
    """The outputs of a model on fixed strings, in batches, for its current parameters.

    flipscope's transformers on bits use their fast logits and evaluate duplicate strings once. `forward` replaces the
    call of the model.
    """

    def __init__(
        self,
        subject: Subject,
        data: Inputs,
        *,
        forward: Callable[..., Any] | None = None,
        batch: int | None = None,
    ) -> None:
        self._subject, self.model = subject, subject.needed_module("the measurement needs")
        single = forward is None and not isinstance(data, tuple | Mapping)
        quick = logits_for(self.model) if single else self.model
        given = given_for(subject, data, converts=forward is None and quick is self.model)
        self.strings = given.strings
        self._forward: Callable[..., Any] = forward or quick
        self._back: Tensor | None = None
        if quick is not self.model:
            distinct, back = torch.unique(given.positional[0], dim=0, return_inverse=True)
            if len(distinct) < self.strings:
                given, self._back = Given((distinct,)), back
        self._given = given
        self._batch = _usual_batch(self.model, given.tensors[0]) if batch is None else check_count("batch", batch)
        self._is_known = quick is not self.model

    def check(self) -> None:
        """Raise InputError if the model is random, since its noise would be attributed to the move."""
        if self._is_known:
            return
        few = self._given.rows(0, _ASKED_TWICE)
        with torch.no_grad():
            first, second = (self._subject.rows(few.to(self._forward), few.strings) for _ in range(2))
        if not torch.equal(first.nan_to_num(), second.nan_to_num()):
            raise InputError(
                "the model gives different outputs for the same strings in two calls: make it deterministic"
            )

    def outputs(self) -> Float[Tensor, "string ..."]:
        """The outputs of all strings for the current parameters, with a graph if gradients are enabled."""
        found = []
        for start in range(0, self._given.strings, self._batch):
            some = self._given.rows(start, start + self._batch)
            found.append(self._subject.rows(some.to(self._forward), some.strings))
        out = found[0] if len(found) == 1 else torch.cat(found)
        if out.shape[1:] == (1,):
            out = out[:, 0]
        return out if self._back is None else out[self._back]


@contextlib.contextmanager
def asked(
    model: Model, data: Inputs, forward: Callable[..., Any] | None, batch: int | None
) -> Iterator[tuple[Asking, Float[Tensor, "string ..."]]]:
    """Evaluate the unmoved model once, in evaluation mode without gradients; returns its outputs."""
    subject = as_subject(model)
    with subject.kept(), eval_mode(subject.model), torch.no_grad():
        asking = Asking(subject, data, forward=forward, batch=batch)
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
    """Raise InputError if a custom loss pairs every output with every target: [n, 1] and [n] broadcast to [n, n].

    This may be intended, or the loss may reconcile the shapes itself. It is a mistake if the loss of several strings is
    neither the mean nor the sum of their separate losses, but would be with outputs of the targets' shape.
    """
    shapes = tuple(outputs.shape), tuple(targets.shape)
    said = " and targets of shape ".join(map(str, shapes))
    refusal = f"the loss pairs every output with every target: give outputs of shape {said} one shape"
    if shapes[0] != shapes[1] and _warns_of_sizes(loss, outputs, targets):
        raise InputError(refusal)
    if len(outputs) < 2 or ((*shapes[0], 1) != shapes[1] and shapes[0] != (*shapes[1], 1)):
        return
    order = in_float64(targets.detach()).reshape(len(targets), -1).sum(dim=1).argsort()
    few = order[torch.linspace(0, len(order) - 1, min(len(order), _PAIRS), device=order.device).long()]
    found, wanted = outputs.detach()[few], targets[few]
    if bool((found == found[0]).all()):  # ensures that the pairing of outputs and targets matters
        steps = torch.linspace(0, 0.1, len(few), device=found.device, dtype=found.dtype)
        found = found + steps.reshape(-1, *[1] * (found.ndim - 1))

    def of(some: Tensor, theirs: Tensor) -> float:
        return float(in_float64(loss(some, theirs)).mean())

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns about the same mistake
        try:
            own = [of(found[k : k + 1], wanted[k : k + 1]) for k in range(len(few))]
            whole, alike = of(found, wanted), of(found.reshape(wanted.shape), wanted)
        except Exception:  # the loss does not accept these strings or shapes, so the check says nothing
            return
    total = sum(own)
    near = [
        any(math.isclose(value, sums, rel_tol=1e-4, abs_tol=1e-6) for sums in (total, total / len(own)))
        for value in (whole, alike)
    ]
    if near == [False, True]:
        raise InputError(refusal)


def _warns_of_sizes(loss: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, targets: Tensor) -> bool:
    """Whether PyTorch itself warns that these shapes will be broadcast, as its losses of pairs do."""
    with torch.no_grad(), warnings.catch_warnings(record=True) as seen, contextlib.suppress(Exception):
        warnings.simplefilter("always")
        loss(outputs.detach(), targets)  # exceptions are reported where the loss is used
    return any("Using a target size" in str(each.message) for each in seen)


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
