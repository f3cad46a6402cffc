"""Products with the Hessian of a loss, and with the Jacobian of the outputs, by differentiating twice.

With L the loss on the data as a function of the chosen parameters theta, f the outputs and J their Jacobian:

    H v = d/dtheta (dL/dtheta . v)      J' u = d/dtheta (f . u)      J v = d/du (J' u . v), which is linear in u

Plain double backward throughout: `torch.func` silently computes wrong second derivatives of an affine `F.layer_norm`.
Attention runs on the math kernel, since the fused ones have no second derivative on a CPU. The graph of a batch is made
once and used for every product, as long as the graphs of all batches fit into a quarter of the memory; beyond that they
are made again, for many vectors at a time. flipscope's transformers use the fast logits of training
(`models.fast_logits`): the first layer from tables and the last one only where it is read.
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

from flipscope.adapters.inputs import Given, check_string_axis, given_for
from flipscope.adapters.parameters import Choice, check_differentiable, chosen, differentiable, first_names
from flipscope.adapters.settled import Settled, as_settled
from flipscope.adapters.subject import Model
from flipscope.basics.errors import InputError, blamed_on
from flipscope.basics.limits import machine_memory
from flipscope.models.devices import in_float64, moved, twice_differentiable
from flipscope.models.fast_logits import logits_for
from flipscope.models.modes import dense_gradients
from flipscope.probes.asking import Loss, as_loss, check_paired

Rows: TypeAlias = Float64[np.ndarray, "row number"]
Vector: TypeAlias = Float64[np.ndarray, " number"]
# (inputs, targets), or an iterable of such pairs; inputs are an array, a tuple of them, or a mapping of keywords.
Data: TypeAlias = Any

_GRAPH = 1 << 26  # bytes of a batch's graph: with fewer the overhead of each call shows, more gains nothing
_KEPT = 1 / 4  # share of the memory that graphs may take
_BLOCK, _BLOCKS = 128, 32  # least number of strings per block of the Gauss-Newton trace, and most blocks
_TOGETHER = 16  # vectors per graph if it has to be made again
_TRIED = 4  # strings: the graphs of this many and of twice as many predict the size of a batch's graph


@dataclass(frozen=True)
class _Part:
    """A part of the data: the model's input and its targets."""

    given: Given
    targets: Any

    @property
    def strings(self) -> int:
        return self.given.strings

    def rows(self, start: int, stop: int) -> _Part:
        """The strings from start to stop."""
        return _Part(self.given.rows(start, stop), self.targets[start:stop])


class LossSurface:
    """The loss of a model on data around its parameters: its gradient, Hessian products and those of the Jacobian.

    Made by `loss_surface`, and valid inside its context. `weights` are the weights of the batches.
    """

    def __init__(
        self,
        settled: Settled,
        loss: Loss,
        data: Data,
        parameters: dict[str, nn.Parameter],
        forward: Callable[..., Any] | None,
        reduction: str,
    ) -> None:
        model = settled.needed_module("curvature is of the parameters of")
        batch = settled.subject.batch
        self.names = tuple(parameters)
        self.first_names = first_names(model)
        self._loss, self._parameters = loss, list(parameters.values())
        self._sizes = [each.numel() for each in self._parameters]
        self.size = sum(self._sizes)
        # Rounding error of products relative to the norm of the Hessian, with room for sums over strings and layers.
        self.rounding = 1e-6 if torch.float32 in {each.dtype for each in model.parameters()} else 1e-10
        if self.size == 0:
            raise InputError("the parameters chosen hold no numbers: choose others")
        quick = logits_for(model) if forward is None else model
        self._settled, self.precision = settled, settled.precision
        self._forward: Callable[..., Any] = forward or quick
        self._converts = forward is None and quick is model
        self._room = machine_memory() * _KEPT
        self._given = [self._part(each) for each in _pairs(data)]
        self.strings = sum(part.strings for part in self._given)
        self._reduction = reduction
        # A custom loss is evaluated on all strings of a pair at once, unless a batch is given.
        self._cuts = batch is not None or not callable(loss)
        self._most = batch or self._usual_batch()
        self._parts = self._cut(self._given, self._most)
        self._graphs: dict[int, tuple[Tensor | None, ...]] = {}
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
        """The gradient of the loss."""
        total = np.zeros(self.size)
        for number, part in enumerate(self._parts):
            first = self._graphs.get(number)
            if first is None:
                first = torch.autograd.grad(self._loss_of(part), self._parameters, allow_unused=True)
            total += self._weight(part) * _flat(first, self._parameters)
        return total

    # ------------------------------------------------------------ products

    def products(self, rows: Rows) -> Rows:
        """The Hessian times each row."""
        out = np.zeros_like(rows)
        step = len(rows) if self._keeps_all else _TOGETHER
        for start in range(0, len(rows), max(1, step)):
            some = [self._split(row) for row in rows[start : start + step]]
            for number, part in enumerate(self._parts):
                first = self._first(number)
                for place, pieces in enumerate(some):
                    out[start + place] += self._weight(part) * self._second(first, pieces)
        self.products_made += len(rows)
        if not np.isfinite(out).all():
            raise InputError(
                "the second derivatives of the loss are NaN or infinite here: it is not smooth at this point"
            )
        return out

    @property
    def batches(self) -> int:
        """The number of strings."""
        return len(self._parts)

    @cached_property
    def output_numbers(self) -> int:
        """The number of outputs for all strings."""
        return sum(map(self._numbers, self._parts))

    def gauss_newton_diagonal(self) -> Float64[np.ndarray, " name"]:
        """The Gauss-Newton trace tr J' H_out J within each parameter, by a unit vector for every output."""
        total = np.zeros(len(self.names))
        for part in self._parts:
            pull = self._pulling(part)
            for unit in np.eye(self._numbers(part)):
                first, second = pull(unit)
                total += np.add.reduceat(first * second, self.starts)
        return total

    def gauss_newton_draws(
        self, probes: int, drawn: Callable[[int, int, int], Vector]
    ) -> Float64[np.ndarray, "probe name"]:
        """(J' u) (J' H_out u) summed within each parameter, whose mean over u with random signs is that trace.

        `drawn(k, size, start)` are the signs of probe k for `size` outputs from `start` on. Products of the signs of
        two strings are 0 in the mean and noise in each draw, so the strings are processed in blocks: few enough to cost
        no time, and independent of the batch size.
        """
        found, start = np.zeros((probes, len(self.names))), 0
        for block in self._blocks:
            sizes = [self._numbers(part) for part in block]
            fits = self._bytes_per_string * sum(part.strings for part in block) <= self._room
            kept = [self._pulling(part) for part in block] if fits else []
            for k in range(probes):
                signs = np.split(drawn(k, sum(sizes), start), np.cumsum(sizes)[:-1])
                pulls = kept or map(self._pulling, block)
                both = [pull(each) for pull, each in zip(pulls, signs, strict=True)]
                first, second = (np.sum(each, axis=0) for each in zip(*both, strict=True))
                found[k] += np.add.reduceat(first * second, self.starts)
            start += sum(sizes)
        return found

    def along(self, vector: Vector) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each batch: J v, the gradient of its loss in the outputs, and H_out J v; weighted like the loss."""
        pieces = self._split(vector)
        for part in self._parts:
            outputs = self._outputs(part)
            u = torch.zeros_like(outputs, requires_grad=True)
            pulled = torch.autograd.grad(outputs, self._parameters, u, create_graph=True, allow_unused=True)
            used = [(each, piece) for each, piece in zip(pulled, pieces, strict=True) if each is not None]
            moved = torch.autograd.grad([each for each, _ in used], u, [piece for _, piece in used])[0]
            point, slope = self._slope(part, outputs)
            bent = torch.zeros_like(moved)
            if slope.requires_grad:
                bent = torch.autograd.grad(slope, point, moved.to(slope))[0]
            # A mean over n strings contains 1/n of each string's own slope.
            each = part.strings if self._reduction == "mean" else 1
            yield in_float64(moved), each * in_float64(slope.detach()), self._weight(part) * in_float64(bent)

    # ------------------------------------------------------------ inside

    def _part(self, pair: tuple[Any, Any]) -> _Part:
        inputs, targets = pair
        given = given_for(self._settled, inputs, self._converts)
        if not isinstance(targets, Tensor):
            try:
                targets = torch.from_numpy(np.array(targets, order="C"))
            except TypeError:
                raise InputError(
                    f"targets must be numbers, one for each string, not a {type(targets).__name__}"
                ) from None
        if targets.ndim == 0 or len(targets) != given.strings:
            shape = tuple(targets.shape)
            raise InputError(f"targets of shape {shape} must be one for each of the {given.strings} strings")
        targets = moved(targets.detach(), self._settled.device)
        return _Part(given, targets.clone() if targets.is_inference() else targets)

    def _usual_batch(self) -> int:
        """The number of strings whose graph is neither too small to be worth a call nor too large."""
        if not self._cuts:
            return self.strings
        return max(1, int(min(_GRAPH, self._room) // self._bytes_per_string))

    def _cut(self, parts: list[_Part], most: int) -> list[_Part]:
        """Split batches into pieces of at most this many strings, if they may be split."""
        if not self._cuts:
            return parts
        cut = []
        for part in parts:
            step = math.ceil(part.strings / math.ceil(part.strings / most))  # of equal size as far as possible
            cut += [part.rows(start, start + step) for start in range(0, part.strings, step)]
        return cut

    def _outputs(self, part: _Part) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH), blamed_on("the model"):
            found = part.given.to(self._forward)
        own = callable(self._loss) and isinstance(found, Tensor) and not callable(self._settled.subject.output)
        outputs = found if own else self._settled.rows(found, part.strings)
        return outputs[:, 0] if not callable(self._loss) and outputs.shape[1:] == (1,) else outputs

    def _weight(self, part: _Part) -> float:
        """The sum over batches, or the mean over all strings from the means of batches."""
        return 1.0 if self._reduction == "sum" else part.strings / self.strings

    def _scored(self, part: _Part, outputs: Tensor) -> Tensor:
        """The loss of these outputs of a batch: one number."""
        if not callable(self._loss):
            scorer = as_loss(self._loss, part.targets, outputs.detach())
            return scorer(outputs) * (len(outputs) if self._reduction == "sum" else 1)
        with blamed_on("the loss"):
            found = self._loss(outputs, part.targets)
        if not isinstance(found, Tensor) or not found.is_floating_point():
            raise InputError(f"loss must return a tensor with one real number, not a {type(found).__name__}")
        if found.numel() != 1:
            shape = tuple(found.shape)
            raise InputError(f"loss returns numbers of shape {shape}: curvature is of one number, such as their mean()")
        if outputs.requires_grad and not found.requires_grad:
            raise InputError(
                "the loss has no gradient: it must be computed from the outputs by torch, without detach() or item()"
            )
        return found.reshape(())

    def _loss_of(self, part: _Part) -> Tensor:
        return self._scored(part, self._outputs(part))

    def _slope(self, part: _Part, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The detached outputs, and the gradient of the loss with respect to them with its graph."""
        point = outputs.detach().requires_grad_()
        return point, torch.autograd.grad(self._scored(part, point), point, create_graph=True)[0]

    def _pulling(self, part: _Part) -> Callable[[Vector], tuple[Vector, Vector]]:
        """J' u and J' H_out u as functions of u, H_out being that of the loss of outputs, weighted like the loss."""
        outputs = self._outputs(part)
        point, slope = self._slope(part, outputs)

        def pull(direction: Vector) -> tuple[Vector, Vector]:
            u = torch.from_numpy(direction).to(outputs).reshape(outputs.shape)
            bent = torch.zeros_like(u)
            if slope.requires_grad:
                bent = torch.autograd.grad(slope, point, u.to(slope), retain_graph=True)[0]
            first = self._pulled(outputs, u)
            # For the squared error H_out is a multiple of the identity, so one pass through the model suffices.
            factor = float((bent * u).sum() / (u * u).sum())
            single = torch.allclose(bent, factor * u, rtol=1e-6, atol=0.0)
            return first, self._weight(part) * (factor * first if single else self._pulled(outputs, bent))

        return pull

    def _numbers(self, part: _Part) -> int:
        """The number of outputs for all strings of a batch."""
        with torch.no_grad():
            return self._outputs(part).numel()

    @cached_property
    def _blocks(self) -> list[list[_Part]]:
        """The strings in blocks that depend only on their number, each in batches."""
        most = max(_BLOCK, math.ceil(self.strings / _BLOCKS))
        return [self._cut([block], self._most) for block in self._cut(self._given, most)]

    def _checked_loss(self, twice: bool) -> float:
        """The loss, after checking that it is finite, differentiable and not random."""
        total = 0.0
        check_string_axis(self._settled, self._given[0].given, self._forward)
        for number, part in enumerate(self._parts):
            with torch.no_grad():
                outputs = self._outputs(part)
                self.outputs = tuple(outputs.shape[1:])  # of one string
                if not bool(outputs.isfinite().all()):
                    raise InputError(
                        "the model gives NaN or infinite outputs on these strings: check the weights and the inputs"
                    )
                if number == 0 and callable(self._loss):
                    check_paired(self._loss, outputs, part.targets)
                value = float(self._scored(part, outputs))
                if twice and number == 0 and not torch.equal(outputs, self._outputs(part)):
                    raise InputError(
                        "the model gives different outputs for the same strings in two calls: make it deterministic"
                    )
            total += self._weight(part) * value
        if not math.isfinite(total):
            raise InputError("the loss of the model is NaN or infinite: check the targets and the loss")
        few = self._parts[0].rows(0, _TRIED)
        if not self._outputs(few).requires_grad:
            raise InputError("the outputs do not depend on the parameters chosen: choose others")
        return total

    @cached_property
    def _keeps_all(self) -> bool:
        """Whether the graphs of all batches fit into the memory."""
        return self._bytes_per_string * self.strings <= self._room

    @cached_property
    def _bytes_per_string(self) -> float:
        """The bytes that one more string adds to a batch's graph, from the graphs of a few."""
        few = min(max(1, self._given[0].strings // 2), _TRIED)
        less, more = (self._graph_bytes(self._given[0].rows(0, count)) for count in (few, 2 * few))
        # A single string is its own measure; 1 is for a model without a graph.
        return max((more - less) / few if more > less else more / few, 1.0)

    def _graph_bytes(self, part: _Part) -> int:
        """The bytes that the gradient's graph of these strings stores, apart from the parameters."""
        storages: dict[int, int] = {}

        def counted(saved: Tensor) -> Tensor:
            storage = saved.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return saved.detach()  # the tensor itself would create a reference cycle

        with torch.autograd.graph.saved_tensors_hooks(counted, lambda saved: saved):
            outputs = self._outputs(part)
            if outputs.requires_grad:  # otherwise an error follows later
                torch.autograd.grad(outputs.sum(), self._parameters, create_graph=True, allow_unused=True)
        for parameter in self._parameters:
            storages.pop(parameter.untyped_storage().data_ptr(), None)
        return sum(storages.values())

    def _first(self, number: int) -> tuple[Tensor | None, ...]:
        """The gradient of a batch's loss with its graph."""
        if number in self._graphs:
            return self._graphs[number]
        loss = self._loss_of(self._parts[number])
        found = torch.autograd.grad(loss, self._parameters, create_graph=True, allow_unused=True)
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
        """J' u of a batch; its graph is kept."""
        found = torch.autograd.grad(outputs, self._parameters, u.to(outputs), retain_graph=True, allow_unused=True)
        return _flat(found, self._parameters)

    def _split(self, row: Vector) -> list[Tensor]:
        pieces = torch.from_numpy(np.ascontiguousarray(row)).split(self._sizes)
        return [piece.to(each).view(each.shape) for piece, each in zip(pieces, self._parameters, strict=True)]


@contextlib.contextmanager
def loss_surface(
    model: Model,
    loss: Loss,
    data: Data,
    *,
    parameters: Choice = None,
    forward: Callable[..., Any] | None = None,
    reduction: str = "mean",
) -> Iterator[LossSurface]:
    """The loss of the model on the data around its parameters, as a context in which the model is in evaluation mode.

    Arguments are those of `flipscope.curvature`.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> with loss_surface(model, "mse", (np.array([[1.0, 0.0], [0.0, 2.0]]), np.zeros(2))) as surface:
    ...     surface.products(np.eye(2))
    array([[1., 0.],
           [0., 4.]])
    """
    if reduction not in ("mean", "sum"):
        raise InputError(f"reduction={reduction!r} is not one of mean, sum")
    settled = as_settled(model, native=forward is not None)
    module = settled.needed_module("curvature is of the parameters of")
    meant = chosen(module, parameters)
    for name, each in module.named_parameters():
        if each.is_floating_point() and each.dtype not in (torch.float32, torch.float64):
            kind = str(each.dtype).removeprefix("torch.")
            raise InputError(f"the parameter {name} is of type {kind}, too coarse for curvature: use model.float()")
    check_differentiable(module)
    with (
        settled.measuring(),
        dense_gradients(module),
        twice_differentiable(module),
        torch.inference_mode(False),
        torch.enable_grad(),
        differentiable(list(meant.values())),
    ):
        yield LossSurface(settled, loss, data, meant, forward, reduction)


def _pairs(data: Data) -> list[tuple[Any, Any]]:
    """The batches of the data: one of a pair, those of an iterable of pairs."""
    single = isinstance(data, Tensor | np.ndarray | str | Mapping) or not isinstance(data, Iterable)
    pairs = [data] if isinstance(data, tuple) else [] if single else list(data)
    if not pairs:
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
        torch.zeros(each.numel(), device="cpu") if tensor is None else tensor.detach().reshape(-1).cpu()
        for tensor, each in zip(tensors, like, strict=True)
    ]
    out: Vector = torch.cat(filled).double().numpy()
    return out
