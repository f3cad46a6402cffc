"""Kernels of transformers on the cube by sampling: softmax attention at infinite width, and networks of finite width.

`sampled_kernel` runs the recursion of `probes.kernels` and draws the Gaussian scores of attention, where an expectation
of softmax weights has no closed form. `finite_kernel` draws whole networks with slot embedding, and gets their CK from
inner products of features, their NTK from Jacobians.

    >>> one_differs = finite_kernel(2, width=32, heads=16, key_width=8, networks=8).values[1]
    >>> one_differs.low < 0.4844 < one_differs.high  # the value at infinite width
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_confidence, check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.basics.limits import check_memory
from flipscope.basics.resampling import student_mean
from flipscope.basics.seeds import Seed, generators, seed_number
from flipscope.probes.kernels import (
    AttentionLayer,
    Covariances,
    Kind,
    Readout,
    eigenvalues_by_degree,
    slot_covariances,
    transformed,
)

Activation: TypeAlias = Literal["linear", "relu", "softmax"]
Parameters: TypeAlias = dict[str, Tensor]

MAX_SAMPLED_BITS = 40


@dataclass(frozen=True)
class SampledKernel:
    """Estimates of a kernel and of its eigenvalues, each with Student's interval over independent runs."""

    kind: Kind
    values: tuple[Estimate, ...]  # at 0, 1, ..., d differing bits
    eigenvalues: tuple[Estimate, ...]  # of monomials of degree 0, 1, ..., d

    @property
    def bits(self) -> int:
        """Number of bits d."""
        return len(self.values) - 1


# ---------------------------------------------------------------- infinite width, sampled scores


@checked_arguments
def sampled_kernel(
    bits: int,
    depth: int = 1,
    *,
    kind: Kind = "ck",
    attention: Activation = "softmax",
    readout: Readout = "flat",
    draws: int = 2_000,
    repeats: int = 8,
    seed: Seed = 0,
    confidence: float = 0.95,
) -> SampledKernel:
    """The kernel at infinite width with slot embedding, the expectations of attention weights taken over ``draws``.

    Each of the ``repeats`` runs the whole recursion with its own draws. The steps after attention are not linear, so a
    run has a bias of order 1 / draws, which the intervals do not show.

    >>> found = sampled_kernel(2, draws=200, repeats=4)
    >>> [each.samples for each in found.eigenvalues], round(found.values[0].value, 9)
    ([4, 4, 4], 1.0)
    """
    bits, depth, repeats = _checked_sizes(bits, depth, "repeats", repeats)
    draws = check_count("draws", draws)
    check_memory(8 * draws * (bits + 1) ** 2, f"{draws:,} draws of scores of {bits} bits", "give fewer")
    check_confidence(confidence)
    runs = []
    for stream in generators(seed, repeats):
        attend = _sampled_attention(bits, readout, attention, draws, stream, tangents=kind == "ntk")
        runs.append(transformed(slot_covariances(bits, readout, exact=False), depth, attend).read(kind))
    return _estimated(kind, np.stack(runs), confidence)


def _sampled_attention(
    bits: int, readout: Readout, activation: Activation, draws: int, stream: np.random.Generator, *, tangents: bool
) -> AttentionLayer:
    """Attention of infinitely many heads, by draws of the rows of scores that two tokens a of x and b of y see.

    A row has covariances kappa_ij within its input, and kappa_ab kappa_ij between the two inputs: pairs ab differ by
    one number only, so the entries of `Covariances` stay the same.
    """
    places = [_entries(bits, differing, readout) for differing in range(bits + 1)]
    tokens = len(places[0])
    scale = {"linear": 1 / tokens, "relu": math.sqrt(2) / tokens, "softmax": 1.0}[activation]

    def weights(scores: Float64[np.ndarray, "draw token"]) -> Float64[np.ndarray, "draw token"]:
        if activation == "softmax":
            powers = np.exp(scores - scores.max(axis=1, keepdims=True))
            return np.asarray(powers / powers.sum(axis=1, keepdims=True))
        return np.asarray(scale * (scores if activation == "linear" else np.maximum(scores, 0)))

    def slopes(weight: Float64[np.ndarray, "draw token"]) -> Float64[np.ndarray, "draw token token"]:
        if activation == "softmax":
            return np.asarray(weight[:, :, None] * (np.eye(tokens) - weight[:, None, :]))
        own = np.ones_like(weight) if activation == "linear" else weight > 0
        return np.asarray(scale * own[:, :, None] * np.eye(tokens))

    def attend(state: Covariances) -> Covariances:
        normal = stream.standard_normal((draws, 2 * tokens))  # the same for all entries, which then vary together
        kernel, tangent = np.zeros_like(state.kernel), np.zeros_like(state.tangent)
        within = state.kernel[0][places[0]]
        for row, place in enumerate(places):
            between, gradients = state.kernel[row][place], state.tangent[row][place]
            for entry, (own, own_gradient) in enumerate(zip(state.kernel[row], state.tangent[row], strict=True)):
                joint = np.block([[within, own * between], [own * between.T, within]])
                first, second = np.split(normal @ _root(joint), 2, axis=1)
                left, right = weights(first), weights(second)
                output = float(np.einsum("ni,ij,nj->", left, between, right, optimize=True)) / draws
                kernel[row, entry] = output
                if tangents:
                    through_values = float(np.einsum("ni,ij,nj->", left, gradients, right, optimize=True)) / draws
                    scores = (own + own_gradient) * between + own * (between + gradients)
                    paths = slopes(left).transpose(0, 2, 1) @ between @ slopes(right)
                    through_scores = float((paths.mean(axis=0) * scores).sum())
                    tangent[row, entry] = 2 * output + through_values + through_scores
        return state.like(kernel, tangent)

    return attend


def _entries(bits: int, differing: int, readout: Readout) -> Int64[np.ndarray, "token token"]:
    """Which entry of `slot_covariances` is the covariance of token i of x and token j of y, whose last bits differ."""
    tokens = bits + (readout == "cls")
    place = np.zeros((tokens, tokens), np.int64)
    place[np.arange(bits), np.arange(bits)] = np.where(np.arange(bits) < bits - differing, 1, 2)
    place[bits:, :] = place[:, bits:] = 3
    place[bits:, bits:] = 4
    return place


def _root(matrix: Float64[np.ndarray, "entry entry"]) -> Float64[np.ndarray, "entry entry"]:
    """The symmetric square root: unlike Cholesky's factor it exists for singular matrices, and is continuous."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T)


# ---------------------------------------------------------------- finite width


@checked_arguments
def finite_kernel(
    bits: int,
    depth: int = 1,
    *,
    kind: Kind = "ck",
    attention: Activation = "linear",
    readout: Readout = "flat",
    width: int = 128,
    heads: int = 64,
    key_width: int = 32,
    networks: int = 8,
    seed: Seed = 0,
    confidence: float = 0.95,
) -> SampledKernel:
    """The mean kernel of random networks of finite width, with standard normal weights over the root of their fan-in.

    It compares the string without ones with those that have 1, 2, ..., d ones at the end. The mean over networks
    differs from the kernel at infinite width by order 1 / width, which the intervals do not show.

    >>> len(finite_kernel(3, kind="ntk", width=8, heads=4, key_width=2, networks=2).values)
    4
    """
    bits, depth, networks = _checked_sizes(bits, depth, "networks", networks)
    width, heads, key_width = (
        check_count(name, value) for name, value in (("width", width), ("heads", heads), ("key_width", key_width))
    )
    check_confidence(confidence)
    shapes = _shapes(bits, depth, readout, width, heads, key_width)
    size = sum(math.prod(shape) for shape in shapes.values())
    copies = bits + 2 if kind == "ntk" else 1  # the Jacobian has a row for every string
    check_memory(4 * size * copies, f"a network of {size:,} weights", "give a smaller width or fewer heads")
    slots = _slots(bits, readout)

    def features(parameters: Parameters) -> Float[Tensor, "string feature"]:
        return _features(parameters, slots, depth, attention, readout)

    def outputs(parameters: Parameters) -> Float[Tensor, " string"]:
        return features(parameters) @ parameters["readout"]

    runs = []
    for stream in generators(seed, networks):
        source = torch.Generator().manual_seed(seed_number(stream))
        parameters = {name: torch.randn(shape, generator=source) for name, shape in shapes.items()}
        if kind == "ck":
            found = features(parameters)
            runs.append((found @ found[0]).double().numpy())
        else:
            runs.append(_tangent_products(outputs, parameters))
    return _estimated(kind, np.stack(runs), confidence)


def _tangent_products(
    outputs: Callable[[Parameters], Tensor], parameters: Parameters
) -> Float64[np.ndarray, " string"]:
    """Inner products of the first string's gradient with those of all strings."""
    jacobians = torch.func.jacrev(outputs)(parameters).values()
    rows = (jacobian.reshape(len(jacobian), -1).double() for jacobian in jacobians)
    total = sum((row @ row[0] for row in rows), start=torch.zeros(1, dtype=torch.float64))
    found: Float64[np.ndarray, " string"] = total.numpy()
    return found


def _shapes(
    bits: int, depth: int, readout: Readout, width: int, heads: int, key_width: int
) -> dict[str, tuple[int, ...]]:
    """Shapes of all weights by name."""
    read = bits * width if readout == "flat" else width
    shapes: dict[str, tuple[int, ...]] = {"embedding": (2 * bits + 1, width), "readout": (read,)}
    for layer in range(depth):
        shapes |= {f"{layer}.{name}": (heads, width, key_width) for name in ("queries", "keys", "values")}
        shapes |= {f"{layer}.output": (heads, key_width, width)}
        shapes |= {f"{layer}.up": (width, width), f"{layer}.down": (width, width)}
    return shapes


def _slots(bits: int, readout: Readout) -> Tensor:
    """Rows of the embedding that strings with 0, 1, ..., d ones at the end are made of, [string, token]."""
    strings = torch.arange(bits + 1)[:, None] + torch.arange(bits) >= bits
    slots = torch.arange(bits) + bits * strings
    cls = torch.full((bits + 1, int(readout == "cls")), 2 * bits)
    return torch.cat([slots, cls], dim=1)


def _features(
    parameters: Parameters, slots: Tensor, depth: int, attention: Activation, readout: Readout
) -> Float[Tensor, "string feature"]:
    """The input of the read-out, scaled so that inner products are the conjugate kernel."""
    tokens = parameters["embedding"][slots]
    for layer in range(depth):
        own = {name: parameters[f"{layer}.{name}"] for name in ("queries", "keys", "values", "output", "up", "down")}
        tokens = tokens + _attention(_normed(tokens), own, attention)
        hidden = _normed(tokens) @ own["up"] / math.sqrt(tokens.shape[-1])
        tokens = tokens + math.sqrt(2 / hidden.shape[-1]) * torch.relu(hidden) @ own["down"]
    tokens = _normed(tokens)
    if readout == "flat":
        return tokens.flatten(1) / math.sqrt(tokens[0].numel())
    return (tokens.mean(dim=1) if readout == "mean" else tokens[:, -1]) / math.sqrt(tokens.shape[-1])


def _attention(tokens: Tensor, own: Parameters, activation: Activation) -> Tensor:
    width, (heads, key_width, _) = tokens.shape[-1], own["output"].shape
    queries, keys, values = (
        torch.einsum("xtn,hnk->xhtk", tokens, own[name]) / math.sqrt(width) for name in ("queries", "keys", "values")
    )
    scores = queries @ keys.mT / math.sqrt(key_width)
    if activation == "softmax":
        weights = scores.softmax(dim=-1)
    else:
        weights = (scores if activation == "linear" else math.sqrt(2) * torch.relu(scores)) / tokens.shape[1]
    return torch.einsum("xhtk,hkn->xtn", weights @ values, own["output"]) / math.sqrt(heads * key_width)


def _normed(tokens: Tensor) -> Tensor:
    return tokens * tokens.square().mean(dim=-1, keepdim=True).rsqrt()


# ---------------------------------------------------------------- shared


def _estimated(kind: Kind, runs: Float64[np.ndarray, "run distance"], confidence: float) -> SampledKernel:
    eigenvalues = [[float(each) for each in eigenvalues_by_degree(run)] for run in runs.tolist()]
    values, spectrum = (
        tuple(student_mean(column, confidence) for column in zip(*table, strict=True))
        for table in (runs.tolist(), eigenvalues)
    )
    return SampledKernel(kind, values, spectrum)


def _checked_sizes(bits: int, depth: int, name: str, runs: int) -> tuple[int, int, int]:
    if check_count("bits", bits) > MAX_SAMPLED_BITS:
        raise InputError(f"bits={bits} is too large: kernels are sampled for at most {MAX_SAMPLED_BITS} bits")
    return bits, check_count("depth", depth), check_count(name, runs, 2)
