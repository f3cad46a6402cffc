"""Products with the Hessian of a loss, and with the Jacobian of the outputs, by differentiating twice.

With L the loss on the data as a function of the chosen parameters theta, f the outputs and J their Jacobian:

    H v = d/dtheta (dL/dtheta . v)      J' u = d/dtheta (f . u)      J v = d/du (J' u . v), which is linear in u

Plain double backward throughout: `torch.func` gets second derivatives of an affine `F.layer_norm` wrong without a word.
Attention runs on the math kernel, since the fused ones have no second derivative on a CPU. The graph of a batch is made
once and used for every product, as long as the graphs of all batches fit into a quarter of the memory; beyond that they
are made again, for many vectors at a time. Our transformers go by the quick logits of training (`models.readout`):
the first layer from tables and the last one only where it is read.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.limits import machine_memory
from flipscope.flips.engine import number_type, output_rows, usual_inputs
from flipscope.models.modes import eval_mode
from flipscope.models.parameters import Choice, chosen, differentiable
from flipscope.models.readout import logits_for
from flipscope.probes.asking import Loss, as_inputs, as_loss

Rows: TypeAlias = Float64[np.ndarray, "row number"]
Vector: TypeAlias = Float64[np.ndarray, " number"]
# (inputs, targets), or an iterable of such pairs; inputs are an array, a tuple of them, or a mapping of keywords.
Data: TypeAlias = Any

_NUMBERS = 800_000  # of one layer's activations in a batch of ours: fewer, and the overhead of each call shows
_FEWEST, _USUAL = 16, 128  # strings of a batch
_KEPT = 1 / 4  # share of the memory that graphs may take
_TOGETHER = 16  # vectors per graph, where it has to be made again
_TRIED = 4  # strings whose graph tells how large that of a batch will be


@dataclass(frozen=True)
class _Part:
    """Some of the data: what the model is called with, and its targets."""

    positional: tuple[Tensor, ...]
    keywords: Mapping[str, Tensor]
    targets: Any

    @property
    def strings(self) -> int:
        return len(next(iter((*self.positional, *self.keywords.values()))))

    def rows(self, start: int, stop: int) -> _Part:
        """The strings from start to stop."""
        cut = slice(start, stop)
        keywords = {name: each[cut] for name, each in self.keywords.items()}
        return _Part(tuple(each[cut] for each in self.positional), keywords, self.targets[cut])


class LossSurface:
    """The loss of a model on data around its parameters: its gradient, Hessian products and those of the Jacobian.

    Made by `loss_surface`, inside whose context it may be used. `weights` says how much each batch counts.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        data: Data,
        parameters: dict[str, nn.Parameter],
        forward: Callable[..., Any] | None,
        batch: int | None,
        reduction: str,
    ) -> None:
        self.names = tuple(parameters)
        self._loss, self._parameters = loss, list(parameters.values())
        self._sizes = [each.numel() for each in self._parameters]
        self.size = sum(self._sizes)
        # Of products, relative to the norm of the Hessian, with room for sums over strings and layers.
        self.rounding = 1e-6 if torch.float32 in {each.dtype for each in model.parameters()} else 1e-10
        if self.size == 0:
            raise InputError("the parameters chosen hold no numbers: choose others")
        quick = logits_for(model) if forward is None else model
        self._forward: Callable[..., Any] = forward or quick
        self._converts = forward is None and quick is model and usual_inputs(model) == "floats"
        self._parts = self._cut([self._part(model, each) for each in _pairs(data)], batch, model)
        self.strings = sum(part.strings for part in self._parts)
        # A sum over batches, or the mean over all strings of what is a mean over those of each batch.
        self._weights = [1.0 if reduction == "sum" else part.strings / self.strings for part in self._parts]
        self._reduction = reduction
        self._scorers: dict[int, Callable[[Tensor], Tensor]] = {}
        self._graphs: dict[int, tuple[Tensor | None, ...]] = {}
        self._room = machine_memory() * _KEPT
        self.products_made = 0
        self.loss = self._checked_loss(twice=quick is model)

    # ------------------------------------------------------------ the vector of all parameters

    @property
    def starts(self) -> list[int]:
        """Where each named parameter begins in the vector of all."""
        return [0, *np.cumsum(self._sizes)[:-1].tolist()]

    @cached_property
    def point(self) -> Vector:
        """The parameters themselves."""
        return _flat([each.detach() for each in self._parameters], self._parameters)

    @cached_property
    def gradient(self) -> Vector:
        """Of the loss."""
        total = np.zeros(self.size)
        for number, weight in enumerate(self._weights):
            first = self._graphs.get(number)
            if first is None:
                first = torch.autograd.grad(self._loss_of(number), self._parameters, allow_unused=True)
            total += weight * _flat(first, self._parameters)
        return total

    # ------------------------------------------------------------ products

    def products(self, rows: Rows) -> Rows:
        """The Hessian times each row."""
        out = np.zeros_like(rows)
        step = len(rows) if self._keeps_all else _TOGETHER
        for start in range(0, len(rows), max(1, step)):
            some = [self._split(row) for row in rows[start : start + step]]
            for number, weight in enumerate(self._weights):
                first = self._first(number)
                for place, pieces in enumerate(some):
                    out[start + place] += weight * self._second(first, pieces)
        self.products_made += len(rows)
        if not np.isfinite(out).all():
            raise InputError(
                "the second derivatives of the loss are NaN or infinite here: it is not smooth at this point"
            )
        return out

    def output_numbers(self, number: int) -> int:
        """How many numbers the model puts out for all strings of a batch."""
        with torch.no_grad():
            return self._outputs(self._parts[number]).numel()

    @property
    def batches(self) -> int:
        """How many there are."""
        return len(self._parts)

    def gauss_newton_parts(
        self, number: int, directions: Iterable[Float64[np.ndarray, " output"]]
    ) -> Iterator[Float64[np.ndarray, " name"]]:
        """(J' u) (J' H_out u) of a batch, summed within each parameter, for each u; H_out is that of loss of outputs.

        In the mean over u with independent signs, or summed over unit vectors, this is the Gauss-Newton trace.
        """
        outputs = self._outputs(self._parts[number])
        point = outputs.detach().requires_grad_()
        slope = torch.autograd.grad(self._scored(number, point), point, create_graph=True)[0]
        for direction in directions:
            u = torch.from_numpy(direction).to(outputs).reshape(outputs.shape)
            bent = torch.zeros_like(u)
            if slope.requires_grad:
                bent = torch.autograd.grad(slope, point, u.to(slope), retain_graph=True)[0]
            first = self._pulled(outputs, u)
            # Of the squared error H_out is a multiple of 1, and one pass through the model will do.
            factor = float((bent * u).sum() / (u * u).sum())
            single = torch.allclose(bent, factor * u, rtol=1e-6, atol=0.0)
            second = factor * first if single else self._pulled(outputs, bent)
            yield self._weights[number] * np.add.reduceat(first * second, self.starts)

    def along(self, vector: Vector) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each batch: J v, the gradient of its loss in the outputs, and H_out J v; weighted like the loss."""
        pieces = self._split(vector)
        for number, weight in enumerate(self._weights):
            outputs = self._outputs(self._parts[number])
            u = torch.zeros_like(outputs, requires_grad=True)
            pulled = torch.autograd.grad(outputs, self._parameters, u, create_graph=True, allow_unused=True)
            used = [(each, piece) for each, piece in zip(pulled, pieces, strict=True) if each is not None]
            moved = torch.autograd.grad([each for each, _ in used], u, [piece for _, piece in used])[0]
            point = outputs.detach().requires_grad_()
            slope = torch.autograd.grad(self._scored(number, point), point, create_graph=True)[0]
            bent = torch.zeros_like(moved)
            if slope.requires_grad:
                bent = torch.autograd.grad(slope, point, moved.to(slope))[0]
            # A mean over n strings holds 1/n of each string's own slope.
            each = self._parts[number].strings if self._reduction == "mean" else 1
            yield moved.double(), each * slope.detach().double(), weight * bent.double()

    # ------------------------------------------------------------ inside

    def _part(self, model: nn.Module, pair: tuple[Any, Any]) -> _Part:
        inputs, targets = pair
        named = dict(inputs) if isinstance(inputs, Mapping) else {}
        tensors = as_inputs(model, tuple(named.values()) if named else inputs)
        if self._converts and len({each.dtype for each in model.parameters()}) == 1:
            tensors = tuple(each.to(number_type(model)) for each in tensors)
        if not isinstance(targets, Tensor):
            try:
                targets = torch.from_numpy(np.array(targets, order="C"))
            except TypeError:
                raise InputError(
                    f"targets must be numbers, one for each string, not a {type(targets).__name__}"
                ) from None
        if targets.ndim == 0 or len(targets) != len(tensors[0]):
            shape = tuple(targets.shape)
            raise InputError(f"targets of shape {shape} must be one for each of the {len(tensors[0])} strings")
        targets = targets.detach().to(tensors[0].device)
        return _Part(() if named else tensors, dict(zip(named, tensors, strict=True)) if named else {}, targets)

    def _cut(self, parts: list[_Part], batch: int | None, model: nn.Module) -> list[_Part]:
        """Batches of so many strings; a loss that is the caller's own is asked of all strings of a pair at once."""
        if batch is None and callable(self._loss):
            return parts
        most = _usual_batch(model, parts[0]) if batch is None else check_count("batch", batch)
        cut = []
        for part in parts:
            step = math.ceil(part.strings / math.ceil(part.strings / most))  # of one size, as far as it goes
            cut += [part.rows(start, start + step) for start in range(0, part.strings, step)]
        return cut

    def _outputs(self, part: _Part) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            found = self._forward(*part.positional, **part.keywords)
        own = callable(self._loss) and isinstance(found, Tensor)
        outputs = found if own else output_rows(found, part.strings, "the model")
        return outputs[:, 0] if not callable(self._loss) and outputs.shape[1:] == (1,) else outputs

    def _scored(self, number: int, outputs: Tensor) -> Tensor:
        """The loss of these outputs of a batch: one number."""
        targets = self._parts[number].targets
        if not callable(self._loss):
            if number not in self._scorers:
                self._scorers[number] = as_loss(self._loss, targets, outputs.detach())
            return self._scorers[number](outputs) * (len(outputs) if self._reduction == "sum" else 1)
        found = self._loss(outputs, targets)
        if not isinstance(found, Tensor) or not found.is_floating_point():
            raise InputError(f"loss must return a tensor with one real number, not a {type(found).__name__}")
        if found.numel() != 1:
            shape = tuple(found.shape)
            raise InputError(f"loss returns numbers of shape {shape}: curvature is of one number, such as their mean()")
        return found.reshape(())

    def _loss_of(self, number: int) -> Tensor:
        return self._scored(number, self._outputs(self._parts[number]))

    def _checked_loss(self, twice: bool) -> float:
        """The loss as it is, after making sure that it is finite, smooth in the parameters and not random."""
        total = 0.0
        for number, weight in enumerate(self._weights):
            with torch.no_grad():
                outputs = self._outputs(self._parts[number])
                self.outputs = tuple(outputs.shape[1:])  # of one string
                if not bool(outputs.isfinite().all()):
                    raise InputError(
                        "the model gives NaN or infinite outputs on these strings: check the weights and the inputs"
                    )
                value = float(self._scored(number, outputs))
                if twice and number == 0 and not torch.equal(outputs, self._outputs(self._parts[0])):
                    raise InputError(
                        "the model gives other outputs for the same strings when asked twice: make it deterministic"
                    )
            total += weight * value
        if not math.isfinite(total):
            raise InputError("the loss of the model is NaN or infinite: check the targets and the loss")
        few = self._parts[0].rows(0, _TRIED)
        if not self._outputs(few).requires_grad:
            raise InputError("the outputs do not depend on the parameters chosen: choose others")
        return total

    @cached_property
    def _keeps_all(self) -> bool:
        """Whether the graphs of all batches fit into the memory, by the graph of a few strings."""
        part = self._parts[0]
        few = min(part.strings, _TRIED)
        storages: dict[int, int] = {}

        def counted(saved: Tensor) -> Tensor:
            storage = saved.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return saved.detach()  # itself would be a circle

        with torch.autograd.graph.saved_tensors_hooks(counted, lambda saved: saved):
            outputs = self._outputs(part.rows(0, few))
            torch.autograd.grad(outputs.sum(), self._parameters, create_graph=True, allow_unused=True)
        for parameter in self._parameters:
            storages.pop(parameter.untyped_storage().data_ptr(), None)
        return sum(storages.values()) / few * self.strings <= self._room

    def _first(self, number: int) -> tuple[Tensor | None, ...]:
        """The gradient of a batch's loss with its graph."""
        if number in self._graphs:
            return self._graphs[number]
        found = torch.autograd.grad(
            self._loss_of(number), self._parameters, create_graph=True, allow_unused=True, materialize_grads=False
        )
        if self._keeps_all:
            self._graphs[number] = found
        return found

    def _second(self, first: Sequence[Tensor | None], pieces: Sequence[Tensor]) -> Vector:
        pairs = [(g, v) for g, v in zip(first, pieces, strict=True) if g is not None and g.requires_grad]
        if not pairs:  # the loss is linear in these parameters
            return np.zeros(self.size)
        slopes, vectors = zip(*pairs, strict=True)
        try:
            found = torch.autograd.grad(slopes, self._parameters, vectors, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            if "not implemented" not in str(error) and "does not require grad" not in str(error):
                raise
            reason = str(error).splitlines()[0]
            raise InputError(f"the model cannot be differentiated twice: {reason}") from error
        return _flat(found, self._parameters)

    def _pulled(self, outputs: Tensor, u: Tensor) -> Vector:
        """J' u of a batch, whose graph stays."""
        found = torch.autograd.grad(outputs, self._parameters, u.to(outputs), retain_graph=True, allow_unused=True)
        return _flat(found, self._parameters)

    def _split(self, row: Vector) -> list[Tensor]:
        pieces = torch.from_numpy(np.ascontiguousarray(row)).split(self._sizes)
        return [piece.to(each).view(each.shape) for piece, each in zip(pieces, self._parameters, strict=True)]


@contextlib.contextmanager
def loss_surface(
    model: nn.Module,
    loss: Loss,
    data: Data,
    *,
    parameters: Choice = None,
    forward: Callable[..., Any] | None = None,
    batch: int | None = None,
    reduction: str = "mean",
) -> Iterator[LossSurface]:
    """The loss of the model on the data around its parameters; meanwhile the model is in evaluation mode.

    Arguments are those of `flipscope.curvature`.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> with loss_surface(model, "mse", (np.array([[1.0, 0.0], [0.0, 2.0]]), np.zeros(2))) as surface:
    ...     surface.products(np.eye(2))
    array([[1., 0.],
           [0., 4.]])
    """
    if reduction not in ("mean", "sum"):
        raise InputError(f"reduction={reduction!r} is not one of mean, sum")
    meant = chosen(model, parameters)
    for name, each in model.named_parameters():
        if each.is_floating_point() and each.dtype not in (torch.float32, torch.float64):
            kind = str(each.dtype).removeprefix("torch.")
            raise InputError(f"the parameter {name} is of type {kind}, too coarse for curvature: use model.float()")
    with eval_mode(model), differentiable(list(meant.values())), torch.enable_grad():
        yield LossSurface(model, loss, data, meant, forward, batch, reduction)


def _pairs(data: Data) -> list[tuple[Any, Any]]:
    """The batches of the data: one of a pair, those of an iterable of pairs."""
    pairs = [data] if isinstance(data, tuple) else list(data) if isinstance(data, Iterable) else []
    if isinstance(data, Tensor | np.ndarray | str | Mapping) or not pairs:
        raise InputError("data must be (inputs, targets) or an iterable of such pairs, with one pair at least")
    found = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError("data must be (inputs, targets) or an iterable of such pairs: a batch is something else")
        inputs, targets = pair
        found.append((tuple(inputs) if isinstance(inputs, list) else inputs, targets))
    return found


def _flat(tensors: Sequence[Tensor | None], like: Sequence[Tensor]) -> Vector:
    """All numbers in one vector; None is zeros."""
    filled = [
        torch.zeros(each.numel()) if tensor is None else tensor.detach().reshape(-1).cpu()
        for tensor, each in zip(tensors, like, strict=True)
    ]
    out: Vector = torch.cat(filled).double().numpy()
    return out


def _usual_batch(model: nn.Module, part: _Part) -> int:
    config = getattr(model, "config", None)
    width = getattr(config, "width", None)
    if not isinstance(width, int) or not part.positional or part.positional[0].ndim != 2:
        return _USUAL
    return max(_FEWEST, _NUMBERS // (width * (part.positional[0].shape[1] + 1)))
