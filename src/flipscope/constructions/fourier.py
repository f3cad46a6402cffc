"""A constructed network for any sum of parities: App. B, D and F.1 of paper 002, extended to mixed degrees.

Position t stands for the t-th set. The first layer's attention brings it the mean of the bits in S_t, k/D but for a
small error; the MLP turns that into the indicator of even k by trapezoids that are flat around every k/D (Thm 9); the
second layer's attention adds these up with weights c_t / Z and the scale Z = sum c_t.

Softmax cannot ignore a position: those that stand for no set keep a share of the attention, which is the error of the
output. A logit of -mask takes that share away. mask=40 makes the output exact; mask=0 is the paper's network, whose
norm and gradient its theorems bound. One cannot have both: the gradient with respect to F grows with the mask.

Each degree has a head of the first layer, a coordinate and D + 1 trapezoids, and for each sign a head of the second
layer, so that sets may differ in size and coefficients in sign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, UInt8
from torch import Tensor

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.checks import check_count, check_not_negative, check_positive
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import Seed, generators, random_strings
from flipscope.cube.fourier_sums import FourierSum
from flipscope.models.devices import device_of, in_float64
from flipscope.models.fourier_network import FourierNetwork
from flipscope.models.fourier_network_config import FourierNetworkConfig, Readout
from flipscope.probes.gradients import squared_gradients

EXACT = 40.0  # a mask that leaves positions without a set a share below rounding
MOST_BITS = 16  # up to this length a check evaluates all strings
_CORNERS = (0.75, 0.25, -0.25, -0.75)  # of a trapezoid, in units of 1/D
_SLOPES = (1.0, -1.0, -1.0, 1.0)  # in units of 2D
_BLOCK = 1 << 10


@checked_arguments
def fourier_network(
    target: FourierSum,
    *,
    mask: float = 0.0,
    readout: Readout = "attention",
    code_width: int | None = None,
    grid: Mapping[int, Sequence[int]] | None = None,
    seed: Seed = 0,
    dtype: torch.dtype = torch.float64,
) -> FourierNetwork:
    """The network that computes the target, with constructed weights.

    mask        Lambda, subtracted from the second layer's logits of positions without a set; 40 is exact
    readout     "linear": a weight per position instead of the second layer (App. F.1), exact without a mask
    code_width  positions as Gaussian vectors of this width, drawn from the seed, instead of one-hot (App. B.2)
    grid        the counts of ones to keep trapezoids for, by degree (App. D, 2; `seen_counts`); default: all

    >>> from flipscope.cube.fourier_sums import parse_sum
    >>> network = fourier_network(parse_sum("0.6*x1x2x3 + 0.8*x3x4x5", 8), mask=40)
    >>> [round(value, 12) for value in network(torch.tensor([[0] * 8, [1] + [0] * 7])).tolist()]
    [1.4, 0.8]
    """
    plan = _plan(target, grid)
    check_not_negative("mask", mask)
    linear = readout == "linear"
    if linear and mask:
        raise InputError(f"mask={mask:g} is for the second layer's logits, which readout='linear' does not have")
    config = FourierNetworkConfig(
        length=target.length,
        neurons=sum(4 * len(counts) for counts in plan.counts.values()),
        code_width=code_width,
        values=len(plan.degrees),
        heads=len(plan.degrees),
        read_heads=1 if linear else len(plan.groups),
        readout=readout,
    )
    network = FourierNetwork(config, dtype=torch.float64)
    with torch.no_grad():
        for each in network.parameters():
            each.zero_()
        if code_width is not None:
            network.codes.copy_(torch.from_numpy(_codes(config.positions, code_width, seed)))
        _write_first_layer(network, target, plan)
        _write_mlp(network, plan)
        if linear:
            for t, (members, weight) in enumerate(zip(target.sets, target.coefficients, strict=True)):
                network.linear[t, config.codes + plan.degrees.index(len(members))] = weight
        else:
            _write_second_layer(network, target, plan, mask)
    return network.to(dtype).eval()


@dataclass(frozen=True)
class _Plan:
    """The layout of the network: degrees (heads and coordinates), their counts of ones, and sets by degree and sign."""

    degrees: tuple[int, ...]
    counts: dict[int, tuple[int, ...]]
    groups: list[tuple[int, float, list[int]]]  # degree, sign, numbers of the sets


def _plan(target: FourierSum, grid: Mapping[int, Sequence[int]] | None) -> _Plan:
    length = target.length
    if target.sparsity > length:
        raise InputError(
            f"{target.sparsity} sets need as many positions to stand for them, and length={length}: give longer strings"
        )
    degrees = tuple(sorted({len(each) for each in target.sets}))
    for degree in degrees:
        if not attention_error(length, degree) < 1 / (4 * degree):
            raise InputError(
                f"length={length} is too short for sets of {degree}: attention is not sharp enough for the MLP's "
                "plateaus, so give 4 positions or more"
            )
    counts = {}
    for degree in degrees:
        kept = range(degree + 1) if grid is None else grid.get(degree, ())
        counts[degree] = tuple(sorted({check_count("a count of the grid", k, 0) for k in kept}))
        if not counts[degree] or counts[degree][-1] > degree:
            raise InputError(f"the grid of degree {degree} must be counts from 0 to {degree}, and at least one of them")
    signed = sorted(
        {(len(each), math.copysign(1, c)) for each, c in zip(target.sets, target.coefficients, strict=True)}
    )
    groups = [
        (
            degree,
            sign,
            [
                t
                for t, (each, c) in enumerate(zip(target.sets, target.coefficients, strict=True))
                if len(each) == degree and c * sign > 0
            ],
        )
        for degree, sign in signed
    ]
    return _Plan(degrees, counts, groups)


def _codes(positions: int, width: int, seed: Seed) -> Float64[np.ndarray, "position width"]:
    """J: independent N(0, 1/width), so that J J' is near the identity (Johnson and Lindenstrauss)."""
    (stream,) = generators(seed, 1)
    drawn: Float64[np.ndarray, "position width"] = stream.normal(0, width**-0.5, (positions, width))
    return drawn


def _write_first_layer(network: FourierNetwork, target: FourierSum, plan: _Plan) -> None:
    config, codes = network.config, network.codes
    for head, degree in enumerate(plan.degrees):
        wanted = codes.new_zeros(config.positions, config.positions)
        for t, members in enumerate(target.sets):
            if len(members) == degree:
                wanted[t, list(members)] = 2 * math.log(target.length)
        network.query_key[head, : config.codes, : config.codes] = codes.T @ wanted @ codes
        network.value[head, config.codes + head, config.codes] = 1.0


def _write_mlp(network: FourierNetwork, plan: _Plan) -> None:
    """phi_k(z) = 2D [(z-k/D+3/4D)+ - (z-k/D+1/4D)+ - (z-k/D-1/4D)+ + (z-k/D-3/4D)+], summed over even k (Thm 9)."""
    row = 0
    for number, degree in enumerate(plan.degrees):
        at = network.config.codes + number
        for k in plan.counts[degree]:
            for corner, slope in zip(_CORNERS, _SLOPES, strict=True):
                network.up[row, at] = 1.0
                network.bias[row] = (corner - k) / degree
                network.down[at, row] = 2 * degree * slope if k % 2 == 0 else 0.0
                row += 1


def _write_second_layer(network: FourierNetwork, target: FourierSum, plan: _Plan, mask: float) -> None:
    config, codes = network.config, network.codes
    for head, (degree, sign, members) in enumerate(plan.groups):
        logits = codes.new_full((config.positions,), -mask)
        for t in members:
            logits[t] = math.log(abs(target.coefficients[t])) + 2 * math.log(target.length)
        wanted = codes.new_zeros(config.positions, config.positions)
        wanted[-1] = logits
        network.read_query_key[head, : config.codes, : config.codes] = codes.T @ wanted @ codes
        total = math.fsum(abs(target.coefficients[t]) for t in members)
        network.read_value[head, config.codes + plan.degrees.index(degree)] = sign * total


# ---------------------------------------------------------------- errors: bounds and checks


@checked_arguments
def attention_error(length: int, degree: int) -> float:
    """How far the first layer's means can be from k/D: (T+1-D) / (D T^2 + T+1-D), with one-hot positions.

    >>> round(attention_error(20, 2), 4)
    0.0232
    """
    others = length + 1 - degree
    return others / (degree * length**2 + others)


@checked_arguments
def output_error(target: FourierSum, mask: float = 0.0) -> float:
    """How far the output can be from the target, with one-hot positions: sum over heads of Z times the lost share.

    A head's output is a mean of Z times the indicators and Z times the values at the other positions, all in [0, Z].

    >>> from flipscope.cube.fourier_sums import random_sum
    >>> output_error(random_sum(20, 10, 2), mask=40) < 1e-16 < output_error(random_sum(20, 10, 2))
    True
    """
    total = 0.0
    for _, _, members in _plan(target, None).groups:
        weight = math.fsum(abs(target.coefficients[t]) for t in members)
        lost = (target.length + 1 - len(members)) * math.exp(-mask)
        total += weight * lost / (target.length**2 * weight + lost)
    return total


@checked_arguments
def projection_width(length: int, epsilon: float = 0.1) -> int:
    """d' = min(T, 8 log T / epsilon^2): the coordinates that positions need (App. B.2); at T there is no projection.

    >>> projection_width(20), projection_width(20_000)
    (20, 7923)
    """
    length = check_count("length", length, 2)
    if not 0 < epsilon < 1:
        raise InputError(f"epsilon={epsilon} must lie between 0 and 1, such as 0.1")
    return min(length, math.ceil(8 * math.log(length) / epsilon**2))


@dataclass(frozen=True)
class Check:
    """The largest differences between a network and its target over a number of strings."""

    attention: float  # of the first layer's means from k/D
    parity: float  # of the MLP's indicators from 0 and 1
    output: float  # of the output from the target
    strings: int
    exhaustive: bool


@checked_arguments
def check_network(
    network: FourierNetwork, target: FourierSum, *, strings: int = 2000, seed: Seed = 0, exhaustive: bool | None = None
) -> Check:
    """Compare a network with its target on all strings (up to 16 bits), or on that many random ones.

    >>> from flipscope.cube.fourier_sums import parse_sum
    >>> f = parse_sum("x1x2 - 0.5*x2x3x4", 5)
    >>> check_network(fourier_network(f, mask=40), f).output < 1e-12
    True
    """
    n = target.length
    everything = n <= MOST_BITS if exhaustive is None else exhaustive
    if everything and n > MOST_BITS:
        raise InputError(f"all strings of {n} bits are too many: leave exhaustive out, or give at most {MOST_BITS}")
    (stream,) = generators(seed, 1)
    checked = index_bits(0, 1 << n, n) if everything else random_strings(stream, check_count("strings", strings), n)
    degrees = sorted({len(each) for each in target.sets})
    places = [network.config.codes + degrees.index(len(each)) for each in target.sets]
    rows, device, worst = torch.arange(target.sparsity, device="cpu"), device_of(network), np.zeros(3)
    with torch.no_grad():
        for start in range(0, len(checked), _BLOCK):
            bits = checked[start : start + _BLOCK]
            given = torch.from_numpy(bits).to(device)
            means = network.attention_outputs(given).cpu()[:, rows, places].double().numpy()
            indicators = network.mlp_outputs(given).cpu()[:, rows, places].double().numpy()
            shares = np.stack([bits[:, list(each)].mean(axis=1) for each in target.sets], axis=1)
            out = network(given).cpu().double().numpy()
            errors = (means - shares, indicators - target.indicators(bits), out - target(bits))
            worst = np.maximum(worst, [np.abs(each).max() for each in errors])
    return Check(float(worst[0]), float(worst[1]), float(worst[2]), len(checked), everything)


# ---------------------------------------------------------------- App. D: networks of smaller norm or gradient


@checked_arguments
def rescaled(network: FourierNetwork, scale: float) -> FourierNetwork:
    """The same function with (U, b, F) -> (scale U, scale b, F / scale) (App. D, 1)."""
    check_positive("scale", scale)
    other = FourierNetwork(network.config, dtype=network.codes.dtype)
    other.load_state_dict(network.state_dict())
    with torch.no_grad():
        other.up.mul_(scale)
        other.bias.mul_(scale)
        other.down.div_(scale)
    return other.eval()


@checked_arguments
def norm_scale(network: FourierNetwork) -> float:
    """The scale that minimises ||Theta||: (||F||^2 / (||U||^2 + ||b||^2))^(1/4)."""
    inner = _square(network.up) + _square(network.bias)
    return float((_square(network.down) / inner) ** 0.25)


@checked_arguments
def gradient_scale(network: FourierNetwork, strings: UInt8[np.ndarray, "string position"]) -> float:
    """The scale that minimises the mean squared gradient of the output on these strings."""
    gradients = squared_gradients(network, strings)
    inner = float((gradients.by_name["up"] + gradients.by_name["bias"]).mean())
    return float((inner / float(gradients.by_name["down"].mean())) ** 0.25)


def _square(parameter: Tensor) -> float:
    return float(in_float64(parameter.detach()).square().sum())


@checked_arguments
def seen_counts(target: FourierSum, strings: Bits) -> dict[int, tuple[int, ...]]:
    """Which counts of ones occur in the sets of each degree on these strings: a `grid` for `fourier_network`.

    Without the other trapezoids the network has a smaller norm and the same output on these strings (App. D, 2), but
    perhaps not on others.

    >>> from flipscope.cube.fourier_sums import parse_sum
    >>> seen_counts(parse_sum("x1x2x3", 4), np.array([[1, 0, 0, 1], [1, 1, 0, 0]], np.uint8))
    {3: (1, 2)}
    """
    if strings.ndim != 2 or strings.shape[1] != target.length or not len(strings):
        raise InputError(f"strings of shape {strings.shape} must be [string, {target.length}], and at least one")
    by_degree: dict[int, set[int]] = {}
    for members in target.sets:
        by_degree.setdefault(len(members), set()).update(strings[:, list(members)].sum(axis=1, dtype=np.int64).tolist())
    return {degree: tuple(sorted(counts)) for degree, counts in sorted(by_degree.items())}
