"""Blowup: how much the layer norms of a model can amplify a change, recorded while the norms compute.

With d the vector that the norm of layer l normalises at position n of the string x (equations of the geometry paper):

    z_n^l(x)  = 1 / sqrt(variance(d) + eps)    biased variance, the norm's own eps    (Eq 12)
    tau^l(x)  = max over all positions n of 1 + z_n^l(x)                              (Eq 17)
    beta^l(x) = tau^1(x) tau^2(x) ... tau^l(x)                                        (Eq 18)

The paper has one norm per layer; if a model has more, each of them is a factor. Neighbours of x are not part of the
definition: Lem 2.9 multiplies beta(x) by beta(x with bit n flipped), and Lem 4.2 bounds tau on x and on its flips;
`neighbourhood` measures these. `hardness_proxy` is another quantity, that of the hardness paper's code, which also has
variants with the mean over positions in place of the largest: `Blowup.mean_tau` and `mean_beta`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn

from flipscope.adapters.hooks import watching
from flipscope.adapters.inputs import Given, Inputs, check_string_axis, given_for
from flipscope.adapters.settled import Settled, as_settled
from flipscope.adapters.subject import Model, as_subject
from flipscope.basics.arguments import checked_arguments, renamed_arguments
from flipscope.basics.bits import check_strings
from flipscope.basics.checks import check_positions
from flipscope.basics.errors import InputError, blamed_on
from flipscope.basics.wording import count_text
from flipscope.figures import Figure
from flipscope.figures.panels import ranges_panel
from flipscope.figures.results import Result
from flipscope.models.devices import in_float64
from flipscope.models.seq2seq import Seq2Seq
from flipscope.models.transformer import LayerNorm, Transformer
from flipscope.models.unmodified import own_difference

Forward = Callable[..., object]
Statistic = Callable[[nn.Module, Tensor], Tensor]  # a norm and its input -> one number per vector

Over = Literal["max", "mean"]  # of the positions
Counts = Literal["all", "last"]  # positions at which a norm counts

DEFAULT_BATCH = 64


@dataclass(frozen=True, eq=False, repr=False)
class Blowup(Result):
    """The blowup of every norm at every position of every string.

    Norms are listed in the order of their calls; one that is called again is listed again, as "name #2". Not every norm
    sees every position (a final norm may see only the one that is read), hence one array per norm.
    """

    strings: int
    names: tuple[str, ...]
    eps: tuple[float, ...]
    inverse_std: tuple[Float64[np.ndarray, "string position"], ...]  # z of Eq 12; infinite where it is 1 / 0

    @cached_property
    def tau(self) -> Float64[np.ndarray, "string norm"]:
        """The blowup of each norm (Eq 17)."""
        return _over_positions(self.inverse_std, self.strings, "max") + 1

    @cached_property
    def cumulative(self) -> Float64[np.ndarray, "string norm"]:
        """The product of the blowups up to each norm, that norm included (Eq 18)."""
        with np.errstate(over="ignore"):
            return np.cumprod(self.tau, axis=1)

    @cached_property
    def beta(self) -> Float64[np.ndarray, " string"]:
        """The blowup through all norms (Eq 18 for the last layer); 1 if there are none."""
        return _product(self.tau)

    @cached_property
    def mean_tau(self) -> Float64[np.ndarray, "string norm"]:
        """1 + the mean of z over the positions, in place of the largest of Eq 17."""
        return _over_positions(self.inverse_std, self.strings, "mean") + 1

    @cached_property
    def mean_beta(self) -> Float64[np.ndarray, " string"]:
        """The product of `mean_tau` over all norms; at most beta."""
        return _product(self.mean_tau)

    def part(self, name: str) -> Blowup:
        """The result restricted to the norms inside one module, such as "encoder" or "decoder.layers"."""
        kept = [index for index, own in enumerate(self.names) if _inside(own, name)]
        if not kept:
            raise InputError(f"part={name!r} holds none of the norms {', '.join(self.names)}")
        return Blowup(
            self.strings,
            tuple(self.names[index] for index in kept),
            tuple(self.eps[index] for index in kept),
            tuple(self.inverse_std[index] for index in kept),
        )

    @property
    def infinite(self) -> int:
        """The number of infinite z: vectors of zero variance at a norm with eps = 0."""
        return sum(int(np.isinf(values).sum()) for values in self.inverse_std)

    @property
    def bound(self) -> float:
        """The upper bound on beta (Lem 3.2): the product of 1 + 1 / sqrt(eps), infinite if an eps is 0."""
        return math.prod(1 + (1 / math.sqrt(eps) if eps else math.inf) for eps in self.eps)

    def summary(self) -> dict[str, object]:
        """The main numbers by label."""
        ends = f"{np.median(self.beta):.4g}, {self.beta.max(initial=1.0):.4g}" if self.strings else "none"
        found: dict[str, object] = {
            "norms": f"{len(self.names)}, on {count_text(self.strings, 'string')}",
            "median, largest beta": ends,
            "beta is at most": self.bound,
        }
        return found | ({"vectors of zero variance": self.infinite} if self.infinite else {})

    def plot(self) -> Figure:
        """The blowup of each norm: its median over the strings, from the smallest to the largest."""
        tau = np.column_stack([self.tau, self.beta]) if self.names else self.beta[:, None]
        places = [*self.names, "all (beta)"]
        parts = (np.median(tau, axis=0).tolist(), tau.min(axis=0).tolist(), tau.max(axis=0).tolist())
        caption = "Blowup of each norm and through all of them: median, smallest and largest over the strings."
        return Figure("blowup", "Blowup of layer norms", caption, [ranges_panel(places, *parts, "blowup")], columns=1)


@dataclass(frozen=True, eq=False, repr=False)
class Neighbourhood(Result):
    """The blowup on strings and on their flips: neighbour 0 is the string, neighbour i + 1 flips `positions[i]`."""

    positions: tuple[int, ...]
    names: tuple[str, ...]
    tau: Float64[np.ndarray, "string neighbour norm"]

    @cached_property
    def beta(self) -> Float64[np.ndarray, "string neighbour"]:
        """The blowup through all norms (Eq 18)."""
        return _product(self.tau)

    def summary(self) -> dict[str, object]:
        """The main numbers by label."""
        strings, neighbours, norms = self.tau.shape
        return {
            "strings": f"{strings:,}, each with {count_text(neighbours - 1, 'flip')}",
            "norms": norms,
            "median, largest beta": f"{np.median(self.beta):.4g}, {self.beta.max():.4g}",
        }

    def plot(self) -> Figure:
        """The blowup through all norms, of the strings and of the flips of each position."""
        places = ["string", *(str(position + 1) for position in self.positions)]
        middle, low, high = np.median(self.beta, axis=0), self.beta.min(axis=0), self.beta.max(axis=0)
        caption = "Blowup through all norms of the strings, and of their flips by position: median and range."
        panel = ranges_panel(places, middle.tolist(), low.tolist(), high.tolist(), "beta")
        return Figure("neighbourhood", "Blowup under flips", caption, [panel], columns=1)


@renamed_arguments(inputs="strings")
@checked_arguments
def blowup(
    model: Model,
    strings: Inputs,
    *,
    all_positions: bool = True,
    forward: Forward | None = None,
) -> Blowup:
    """The blowup of the model on the strings, along the first axis; several inputs are passed as a tuple of arrays.

    Of a `flipscope.Subject` with an encoding, the inputs are strings of bits. Else arrays are passed unchanged, or as
    floats to modules without an embedding.

    Known norms are our `LayerNorm`, PyTorch's `nn.LayerNorm` and `nn.RMSNorm` (mean square in place of the variance),
    and other classes whose name ends in RMSNorm. flipscope's transformer computes its last layer only where it is read;
    it is measured at all positions, as in Eq 17, unless all_positions=False. `forward` runs the model on a batch of
    inputs if model(batch) does not. Every position that a norm sees counts, including padding. Strings may be on any
    axis inside the model, which is determined by evaluating one string and two. The model runs in evaluation mode and
    is restored afterwards.

    >>> vectors = torch.tensor([[[0.0, 0.0, 0.0, 0.0]], [[3.0, -1.0, -1.0, -1.0]]])  # of variance 0 and 3
    >>> found = blowup(nn.Sequential(nn.LayerNorm(4, eps=1.0)), vectors)
    >>> found.tau.tolist(), found.bound  # 1 + 1 / sqrt(variance + eps) of each [string, norm]; what they cannot exceed
    ([[2.0], [1.5]], 2.0)
    """
    settled = _settled(model, forward)
    parts = list(_parts(settled, strings, _inverse_std, forward, all_positions))
    columns = zip(*(part.values for part in parts), strict=True)
    joined = tuple(np.concatenate(column) for column in columns)  # of each norm [string, position]
    return Blowup(sum(part.strings for part in parts), parts[0].names, parts[0].eps, joined)


@checked_arguments
def neighbourhood(
    model: Model,
    strings: Tensor | np.ndarray,
    positions: Sequence[int] | None = None,
    *,
    forward: Forward | None = None,
) -> Neighbourhood:
    """The blowup on B_S(x) (Eq 28): on each string of bits and on its flips at the positions (default: all).

    >>> from flipscope.models import Transformer, encoder
    >>> neighbourhood(Transformer(encoder(width=8, layers=1)), np.array([[0, 1, 1]])).beta.shape  # [string, neighbour]
    (1, 4)
    """
    bits = check_strings(strings)
    length = bits.shape[1]
    chosen = tuple(range(length)) if positions is None else check_positions(positions, length)
    flips = np.zeros((len(chosen) + 1, length), np.uint8)
    flips[np.arange(1, len(flips)), list(chosen)] = 1
    everything = (bits[:, None] ^ flips).reshape(-1, length)  # [string * neighbour, position]
    names: tuple[str, ...] = ()
    taus = []
    settled = _settled(model, forward)
    for part in _parts(settled, everything, _inverse_std, forward, True):
        names = part.names
        taus.append(_over_positions(part.values, part.strings, "max") + 1)
    return Neighbourhood(chosen, names, np.concatenate(taus).reshape(len(bits), len(flips), len(names)))


@renamed_arguments(inputs="strings")
@checked_arguments
def hardness_proxy(
    model: Model,
    strings: Inputs,
    *,
    over: Over = "max",
    part: str = "",
    forward: Forward | None = None,
) -> Float64[np.ndarray, " string"]:
    """For each string, the substitute for blowup that the hardness paper's code computes; not Eq 18.

    The product, over the norms of the layers, of the largest 1 / std at a position: with the unbiased std (divisor
    width - 1), without eps, without the 1 of Eq 17, and in the last layer of our transformer at the last position only.
    The paper averages it over strings. With two layers of two norms and width 4 the divisor alone makes it
    (3/4)^2 = 0.56 of the product of the true 1 / std. over="mean" takes the mean over positions, as the code also logs.

    For other modules every layer norm counts at every position, including the third of each decoder layer, which that
    code omits; `part` selects the norms inside one module, such as "encoder.layers". `scratchpad_proxy` is what that
    code computes for flipscope's encoder-decoder.

    >>> model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> strings = torch.rand(5, 3, 8), torch.rand(5, 2, 8)
    >>> [hardness_proxy(model, strings, part=part).shape for part in ("encoder", "decoder")]
    [(5,), (5,)]
    """
    if over not in ("max", "mean"):
        raise InputError(f"over={over!r} is not one of max, mean")
    last = ""
    settled = _settled(model, forward)
    whole = settled.needed_module("the hardness proxy is read inside")
    if isinstance(whole, Transformer):
        if whole.config.norm == "none":
            raise InputError("the hardness proxy needs layer norms, but the model has norm='none'")
        part, last = part or "blocks", f"blocks.{whole.config.layers - 1}"
    for name, module in whole.named_modules():
        if isinstance(module, LayerNorm | nn.LayerNorm):
            if _normalised_width(module) < 2:
                raise InputError(f"the hardness proxy needs layer norms of width 2 or more, but {name} has width 1")
        elif _is_norm(module):
            raise InputError(f"the hardness proxy is of layer norms, and {name} is a {type(module).__name__}")

    def counts(name: str) -> Counts | None:
        if not _inside(name, part):
            return None
        return "last" if last and _inside(name, last) else "all"

    return _proxy(settled, strings, counts, over, f"part={part!r}", forward)


def scratchpad_proxy(
    model: Seq2Seq, inputs: Tensor, side: Literal["encoder", "decoder"]
) -> Float64[np.ndarray, " string"]:
    """For each string, the substitute that the hardness paper's code computes for one side of an encoder-decoder.

    Like `hardness_proxy`, but in the last layer at the last position only, and with the first two of a decoder layer's
    three norms. In that code the decoder reads one more symbol, the last bit of the scratchpad, so the output at its
    last position is unused; here the last position writes the last bit.

    >>> from flipscope.models.seq2seq_config import Seq2SeqConfig
    >>> model = Seq2SeqConfig(length=3, width=8, ffn_width=8).network()
    >>> scratchpad_proxy(model, torch.tensor([[1, 0, 1, 2, 1, 1]]), "decoder").shape
    (1,)
    """
    if side not in ("encoder", "decoder"):
        raise InputError(f"side={side!r} is not one of encoder, decoder")
    last = f"{side}.{model.config.layers - 1}"

    def counts(name: str) -> Counts | None:
        if not _inside(name, side) or name.partition(" ")[0].endswith(".norm3"):
            return None
        return "last" if _inside(name, last) else "all"

    return _proxy(_settled(model), inputs, counts, "max", f"side={side!r}", None)


def _proxy(
    settled: Settled,
    strings: Inputs,
    counts: Callable[[str], Counts | None],
    over: Over,
    said: str,
    forward: Forward | None,
) -> Float64[np.ndarray, " string"]:
    """The product over the norms that count, each at all positions or at the last, of 1 / std."""
    products = []
    for each in _parts(settled, strings, _unbiased_inverse_std, forward, True):
        kept = [
            values[:, -1:] if counts(name) == "last" else values
            for name, values in zip(each.names, each.values, strict=True)
            if counts(name) is not None
        ]
        if not kept:
            raise InputError(f"{said} holds none of the norms {', '.join(each.names)}")
        products.append(_product(_over_positions(kept, each.strings, over)))
    return np.concatenate(products)


# ---------------------------------------------------------------- the divisor of a norm


def _is_norm(module: nn.Module) -> bool:
    """Whether the module is a supported norm; InputError for an unsupported one."""
    if isinstance(module, LayerNorm | nn.LayerNorm | nn.RMSNorm):
        return True
    name = type(module).__name__
    if name.endswith("RMSNorm") and isinstance(_own_eps(module), int | float):
        return True
    if name.endswith(("LayerNorm", "RMSNorm")):
        raise InputError(
            f"the model has a norm of class {name}, of which it is not known what it divides by: "
            "put nn.LayerNorm or nn.RMSNorm in its place"
        )
    return False


def _own_eps(module: nn.Module) -> Any:
    """The eps of a norm, under either of its usual names."""
    return getattr(module, "eps", getattr(module, "variance_epsilon", None))


def _eps(module: nn.Module, x: Tensor) -> float:
    """The eps that the norm uses on this input."""
    eps = _own_eps(module)
    if eps is None:
        # nn.RMSNorm without an eps uses that of its computing type, which is never half precision.
        eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    return float(eps)


def _spread(module: nn.Module, x: Tensor) -> Float64[Tensor, "*position"]:
    """The biased standard deviation of each vector that a layer norm sees; the root mean square for an RMS norm."""
    centres = isinstance(module, LayerNorm | nn.LayerNorm)
    axes = len(getattr(module, "normalized_shape", "1"))
    wide = in_float64(x).flatten(-axes)  # [*position, width]
    if centres:
        wide = wide - wide[..., :1]  # exactly 0 for equal numbers
    # Scaled to size one first, so that the squares of tiny numbers do not underflow to a variance of 0.
    size = wide.abs().amax(dim=-1, keepdim=True)
    unit = wide / torch.where(size == 0, 1.0, size)
    if centres:
        unit = unit - unit.mean(dim=-1, keepdim=True)
    return size[..., 0] * unit.square().mean(dim=-1).sqrt()


def _inverse_std(module: nn.Module, x: Tensor) -> Float64[Tensor, "*position"]:
    """1 / sqrt(biased variance + eps) of each vector (Eq 12), infinite where that is 1 / 0."""
    spread = _spread(module, x)
    return 1 / torch.hypot(spread, torch.full_like(spread, math.sqrt(_eps(module, x))))


def _normalised_width(module: nn.Module) -> int:
    """The number of entries that a layer norm normalises together."""
    return module.width if isinstance(module, LayerNorm) else math.prod(getattr(module, "normalized_shape", ()))


def _inside(norm: str, part: str) -> bool:
    """Whether the norm of this name is the module `part` or inside it; "" contains all."""
    return not part or f"{norm.partition(' ')[0]}.".startswith(f"{part}.")


def _unbiased_inverse_std(module: nn.Module, x: Tensor) -> Float64[Tensor, "*position"]:
    """1 / std of each vector, with the divisor width - 1 and no eps."""
    width = _normalised_width(module)
    return 1 / (_spread(module, x) * math.sqrt(width / (width - 1)))


# ---------------------------------------------------------------- watching a model


@dataclass(frozen=True)
class _Visit:
    """One call of one norm."""

    name: str
    eps: float
    values: Tensor  # of each vector


@dataclass(frozen=True)
class _Part:
    """The values of the norms on one batch of strings: an array [string, position] each."""

    strings: int
    names: tuple[str, ...]
    eps: tuple[float, ...]
    values: list[Float64[np.ndarray, "string position"]]


def _settled(model: Model, forward: Forward | None = None) -> Settled:
    """The model, settled; InputError unless its parts can be watched."""
    as_subject(model).needed_module("blowup is read inside")
    return as_settled(model, native=forward is not None)


def _parts(
    settled: Settled, strings: Inputs, statistic: Statistic, forward: Forward | None, all_positions: bool
) -> Iterator[_Part]:
    """The batches of the strings, one after the other; at least one."""
    batch = settled.subject.batch or DEFAULT_BATCH
    model = settled.needed_module("blowup is read inside")
    given = given_for(settled, strings, converts=forward is None)
    run = _forward(model, forward, all_positions)
    with settled.measuring(), watching({}):  # an empty watch still keeps PyTorch's layers from being fused
        check_string_axis(settled, given, run, tensors_only=True)
    axes = None
    if batch > 1 and given.strings > 1:
        few = [given.rows(0, count) for count in (1, 2)]
        axes = _string_axes(*(_visits(settled, some, statistic, run) for some in few))
    # If strings cannot be distinguished inside the model, they are run one by one.
    step = 1 if axes is None else batch
    names: tuple[str, ...] | None = None
    for start in range(0, given.strings, step):
        chunk = given.rows(start, start + step)
        visits = _visits(settled, chunk, statistic, run)
        seen = tuple(visit.name for visit in visits)
        if names is not None and seen != names:
            raise InputError(
                f"the model calls other norms on string {start} ({', '.join(seen)}) than before "
                f"({', '.join(names)}): measure such strings apart"
            )
        names = seen
        places = [None] * len(visits) if axes is None else axes
        rows = [_by_string(visit, axis, chunk.strings) for visit, axis in zip(visits, places, strict=True)]
        yield _Part(chunk.strings, seen, tuple(visit.eps for visit in visits), rows)


def _visits(settled: Settled, strings: Given, statistic: Statistic, forward: Forward) -> list[_Visit]:
    """The calls of the model's norms on these strings, in order."""
    model = settled.needed_module("blowup is read inside")
    visits: list[_Visit] = []
    calls: dict[str, int] = {}

    def visit(name: str, module: nn.Module, x: Tensor) -> None:
        values = statistic(module, x)
        calls[name] = calls.get(name, 0) + 1
        if bool(values.isnan().any()):
            raise InputError(f"the norm {name} was given NaN or infinity: check the weights and the inputs")
        again = f" #{calls[name]}" if calls[name] > 1 else ""
        visits.append(_Visit(name + again, _eps(module, x), values))

    norms = {name or type(module).__name__: module for name, module in model.named_modules() if _is_norm(module)}
    if not norms and not isinstance(model, Transformer):
        raise InputError(f"the {type(model).__name__} has no nn.LayerNorm or nn.RMSNorm to measure")
    with (
        settled.measuring(),
        watching(norms, inputs=visit),
        blamed_on("the model"),
    ):
        strings.to(forward)
    if norms and not visits:
        raise InputError(
            f"none of the {len(norms)} norms of the {type(model).__name__} was called as a module: "
            "give the model as it was before compiling"
        )
    return visits


def _string_axes(one: list[_Visit], two: list[_Visit]) -> list[int | None] | None:
    """The axis of the strings at each norm, None if all share one input, from runs of one and two strings.

    None for all if this is ambiguous: other norms were called, or strings and positions share an axis.
    """
    if [visit.name for visit in one] != [visit.name for visit in two]:
        return None
    axes: list[int | None] = []
    for alone, pair in zip(one, two, strict=True):
        before, after = alone.values.shape, pair.values.shape
        if len(before) != len(after):
            return None
        changed = [axis for axis in range(len(before)) if before[axis] != after[axis]]
        if any((before[axis], after[axis]) != (1, 2) for axis in changed) or len(changed) > 1:
            return None
        axes.append(changed[0] if changed else None)
    return axes


def _by_string(visit: _Visit, axis: int | None, strings: int) -> Float64[np.ndarray, "string position"]:
    """The values as [string, position]; without an axis all of them belong to every string."""
    values = visit.values.cpu().numpy()
    if axis is None:
        return np.repeat(values.reshape(1, -1), strings, axis=0)
    if values.shape[axis] != strings:
        raise InputError(
            f"the norm {visit.name} met {values.shape[axis]} strings when {strings} were given: say batch=1"
        )
    return np.moveaxis(values, axis, 0).reshape(strings, -1)


def _forward(model: nn.Module | Forward, forward: Forward | None, all_positions: bool) -> Forward:
    """The function that runs the model on a batch."""
    if forward is None and isinstance(model, Transformer) and all_positions:
        # Not the model's forward, which computes fewer positions; it must be the original one.
        if (found := own_difference(model)) is not None:
            raise InputError(
                "the norms of every position are read by flipscope's own forward, but "
                f"{found}: give forward, or all_positions=False"
            )
        return lambda inputs: model.read(model.states(inputs)[-1], model.kept(inputs))
    return model if forward is None else forward


def _over_positions(
    values: Sequence[Float64[np.ndarray, "string position"]], strings: int, over: Over
) -> Float64[np.ndarray, "string norm"]:
    """The largest value over the positions or their mean, one column per norm."""
    if not values:
        return np.empty((strings, 0))
    return np.stack([one.max(axis=1) if over == "max" else one.mean(axis=1) for one in values], axis=1)


def _product(factors: Float64[np.ndarray, "*string norm"]) -> Float64[np.ndarray, "*string"]:
    """The product over the norms, one after the other as in `Blowup.bound`; infinite beyond the range of floats."""
    out = np.ones(factors.shape[:-1])
    with np.errstate(over="ignore"):
        for index in range(factors.shape[-1]):
            out *= factors[..., index]
    return out
