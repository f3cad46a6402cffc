"""The attention network of a function of few bits, with its certified error, and its norms beside the promised ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.constructions.sparse_variables.bases import Matrix, fixed_vectors
from flipscope.constructions.sparse_variables.certify import Certificate, certify
from flipscope.constructions.sparse_variables.functions import (
    SparseFunction,
    is_symmetric,
    patterns,
    sparse_function,
)
from flipscope.constructions.sparse_variables.heads import (
    Heads,
    bag_heads,
    positional_heads,
    usual_gamma,
)
from flipscope.constructions.sparse_variables.mlp import MLP, value_network
from flipscope.constructions.sparse_variables.promises import Promise, Route
from flipscope.cube.functions import BooleanFunction
from flipscope.models.attention_network import AttentionNetwork
from flipscope.models.attention_network_config import AttentionNetworkConfig, InputMapping
from flipscope.models.devices import device_of

MOST_SELECTED = 9  # bits with a coordinate each: the second matrix of the MLP has 8 s 4^s numbers
MOST_CHECKED = 16  # bits up to which all strings are evaluated
EXACT = 1e-9  # what counts as exact in float64
_ROUNDING = 1e-12
_CHUNK = 1 << 12
_LEMMAS = {"deterministic": "B.2", "trainable": "B.3", "bag": "B.4"}


@dataclass(frozen=True)
class Norm:
    """A norm of the network, its proven bound, and the bound that the paper prints; None where there is none."""

    name: str
    actual: float
    promised: float
    printed: float | None

    @property
    def holds(self) -> bool:
        """Whether the bound holds."""
        return self.actual <= self.promised * (1 + EXACT)


@dataclass(frozen=True)
class Enumeration:
    """Over all strings: the largest distance of the heads from their target, and of the answer from f."""

    strings: int
    error: float
    answer_error: float | None


@dataclass(frozen=True, eq=False)
class Construction:
    """A network constructed for a function; it answers -1 and +1, so that a positive logit means 1."""

    model: AttentionNetwork
    function: SparseFunction
    heads: Heads
    route: Route
    lemma: str
    gamma: float
    as_printed: bool
    certificate: Certificate
    norms: tuple[Norm, ...]

    @property
    def error(self) -> float:
        """The certified largest distance between the heads' output and their target, over all strings.

        It is that of the weights in exact arithmetic, rounded up.
        """
        return self.certificate.error

    @property
    def hidden(self) -> tuple[int, ...]:
        """Hidden widths of the MLP."""
        return self.model.config.hidden

    @property
    def answers(self) -> Float64[np.ndarray, " pattern"]:
        """-1 or +1 for each pattern of the relevant bits."""
        return 2.0 * self.function.values - 1

    def answer_error(self, strings: Bits | None = None) -> float | None:
        """The largest |model(x) - f(x)| on strings, by default `extreme_strings`; None without an MLP."""
        if not self.hidden:
            return None
        inputs = self.extreme_strings() if strings is None else strings
        wrong = [
            abs(_ask(self.model, some) - self.answers[self._patterns(some)]).max()
            for some in np.array_split(inputs, math.ceil(len(inputs) / _CHUNK))
        ]
        return float(np.max(wrong))  # NaN where any of them is

    def extreme_strings(self) -> Bits:
        """Strings farthest from the target, and each pattern of relevant bits with all others 0 and all others 1."""
        relevant = patterns(self.function.sparsity)
        others = np.repeat(np.arange(2, dtype=np.uint8), len(relevant))[:, None]
        strings = np.broadcast_to(others, (len(others), self.function.length)).copy()
        strings[:, list(self.function.positions)] = np.concatenate([relevant, relevant])
        return np.concatenate([self.certificate.strings, strings])

    def enumerate(self) -> Enumeration:
        """The errors on all 2^T strings, evaluated one by one, to compare with the certified `error`."""
        length = self.function.length
        if length > MOST_CHECKED:
            raise InputError(f"all strings of {length} bits are too many: {MOST_CHECKED} bits are the most")
        worst = np.zeros(2)  # of the heads and of the answer
        for start in range(0, 1 << length, _CHUNK):
            strings = index_bits(start, min(_CHUNK, (1 << length) - start), length)
            with torch.no_grad():
                outputs = self.model.attend(torch.from_numpy(strings).to(device_of(self.model))).cpu()
            heads = outputs[:, : self.heads.target.shape[1]].numpy()
            error = abs(heads - self.heads.target[self._patterns(strings)]).max()
            worst = np.maximum(worst, [error, self.answer_error(strings) or 0.0])  # maximum keeps NaN
        return Enumeration(1 << length, float(worst[0]), float(worst[1]) if self.hidden else None)

    def _patterns(self, strings: Bits) -> np.ndarray:
        relevant = strings[:, list(self.function.positions)].astype(np.int64)
        return np.asarray(relevant @ (1 << np.arange(relevant.shape[1])))

    def as_json(self) -> dict[str, Any]:
        """The construction, its errors and its norms as a JSON document."""
        config, answer = self.model.config, self.answer_error()
        return {
            "length": self.function.length,
            "positions": [place + 1 for place in self.function.positions],
            "sparsity": self.function.sparsity,
            "mapping": config.mapping,
            "heads": config.heads,
            "route": self.route,
            "lemma": self.lemma,
            "as_printed": self.as_printed,
            "width": config.width,
            "head_size": config.key_width,
            "gamma": self.gamma,
            "R": self.heads.scale,
            "gap": self.heads.gap,
            "coherence": self.heads.coherence,
            "certified_error": self.error,
            "rounding": self.certificate.rounding,
            "error_limit": self.gamma / 4,
            "error_holds": self.error <= self.gamma / 4 + _ROUNDING,
            "hidden": list(self.hidden),
            "answer_error": answer,
            "exact": None if answer is None else answer <= EXACT,
            "norms": [
                {
                    "name": norm.name,
                    "actual": norm.actual,
                    "promised": norm.promised,
                    "printed": norm.printed,
                    "holds": norm.holds,
                }
                for norm in self.norms
            ],
        }


@checked_arguments
def construct(
    function: BooleanFunction | SparseFunction,
    mapping: InputMapping = "deterministic",
    *,
    heads: int = 1,
    gamma: float | None = None,
    basis: str | Matrix = "orthonormal",
    width: int | None = None,
    seed: int = 0,
    general: bool | None = None,
    mlp: bool = True,
    as_printed: bool = False,
) -> Construction:
    """The network of Lemmas B.2 to B.6 for a function that depends on few bits, in float64.

    heads is 1 or the number s of relevant bits. One head is enough for a symmetric function (B.5), in a bag for any
    (B.6 after the s-dimensional B.4), and otherwise with attention weights 1, 2, 4, ..., which is not in the paper;
    general=True treats a symmetric function like any other. gamma: the heads' error is at most gamma/4; by default
    what the MLP needs. basis: "orthonormal", "random" (with `seed`) or a matrix of unit vectors. as_printed
    takes every formula as the paper has it. mlp=False leaves the heads alone, read by w = e_1.

    >>> from flipscope.cube.expression import parse
    >>> built = construct(parse("x1 & (x2 | x3)", 10), heads=3)
    >>> built.route, built.enumerate().answer_error < EXACT
    ('select', True)
    """
    sparse = sparse_function(function) if isinstance(function, BooleanFunction) else function
    s = sparse.sparsity
    if mapping not in _LEMMAS:
        raise InputError(f"mapping={mapping!r} is not one of {', '.join(_LEMMAS)}")
    if check_count("heads", heads) not in (1, s):
        raise InputError(f"heads={heads} must be 1, or {s} for the bits that the function depends on")
    symmetric = is_symmetric(sparse.values)
    route = _route(mapping, heads == 1, symmetric if general is None else symmetric and not general, s)
    if route in ("select", "bag-select", "bag-vector") and s > MOST_SELECTED:
        raise InputError(f"the function depends on {s} bits, and {route} has up to {MOST_SELECTED}: give fewer")
    if as_printed and route in ("powers", "bag-select"):
        raise InputError("the paper prints no such heads: leave out as_printed, or give heads that a lemma has")
    gamma = usual_gamma(route, s) if gamma is None else gamma
    if not (isinstance(gamma, int | float) and 0 < gamma <= 1):
        raise InputError(f"gamma={gamma} must be above 0 and at most 1")
    rooms = s if route == "select" else 1
    vectors = fixed_vectors(mapping, sparse.length, s, width, basis, check_count("seed", seed, 0), rooms)
    if mapping == "bag":
        built = bag_heads(route, sparse.positions, vectors, gamma, as_printed)
    else:
        built = positional_heads(route, mapping, sparse.positions, vectors, gamma, as_printed)
    net = _mlp(built, sparse, route, gamma, as_printed) if mlp else None
    model = _model(built, mapping, sparse.length, net)
    certificate = certify(model, sparse.positions, built.target)
    delta = built.spacing / 4
    if net is not None and not as_printed and not certificate.error <= delta:
        raise InputError(
            f"gamma={gamma:g} lets the heads be {certificate.error:.4g} from their target, and the MLP takes "
            f"{delta:.4g}: give {built.spacing:.4g} or less, or no MLP"
        )
    lemma = "ours" if route in ("powers", "bag-select") else _LEMMAS[mapping]
    lemma += {True: " + B.5", False: " + B.6"}[built.target.shape[1] == 1 and route != "powers"] if net else ""
    norms = _norms(model, built, net, gamma if as_printed else built.spacing, as_printed)
    return Construction(model, sparse, built, route, lemma, float(gamma), as_printed, certificate, norms)


def _route(mapping: InputMapping, single: bool, symmetric: bool, s: int) -> Route:
    if mapping == "bag":
        return "bag-select" if not single else "bag" if symmetric else "bag-vector"
    return "select" if not single else "mean" if symmetric else "powers"


def _mlp(heads: Heads, sparse: SparseFunction, route: Route, gamma: float, as_printed: bool) -> MLP:
    """Lemma B.5 where the target is a number for each count of ones, Lemma B.6 where it is a point for each pattern."""
    symmetric = route in ("mean", "bag")
    chosen = (1 << np.arange(sparse.sparsity + 1)) - 1 if symmetric else np.arange(len(heads.target))
    values = (2.0 * sparse.values - 1)[chosen]
    delta = gamma / 8 if as_printed else heads.spacing / 4
    layers = 2 if route == "powers" else 3
    return value_network(heads.target[chosen], values, delta, layers=layers, as_printed=as_printed)


def _model(heads: Heads, mapping: InputMapping, length: int, net: MLP | None) -> AttentionNetwork:
    """The network with these weights."""
    config = AttentionNetworkConfig(
        length=length,
        width=len(heads.vectors.marker),
        head_size=heads.query[0].shape[1],
        heads=len(heads.query),
        mapping=mapping,
        basis="given",
    )
    if net is not None:
        config = replace(config, hidden=net.hidden, features=heads.target.shape[1])
    # Not initialised at random, since every number is set below.
    config.check_size(number=8)
    model = AttentionNetwork(config, seed=None, dtype=torch.float64).to_empty(device="cpu")
    fill(model.inputs, symbols=heads.vectors.symbols, positions=heads.vectors.positions, marker=heads.vectors.marker)
    for place, head in enumerate(model.heads(0)):
        fill(head, **{name: getattr(heads, name)[place] for name in ("query", "key", "value", "mix")})
    if net is None:
        fill(model.readout, weight=np.eye(1, config.width))
        return model.eval()
    for linear, layer in zip(model.mlp, net.layers, strict=True):
        fill(linear, weight=layer[:-1].T, bias=layer[-1])
    fill(model.readout, weight=net.output[None])
    return model.eval()


def fill(module: nn.Module, **arrays: np.ndarray) -> None:
    """Copy arrays into a module's tensors of these names."""
    with torch.no_grad():
        for name, array in arrays.items():
            tensor = getattr(module, name)
            assert isinstance(tensor, Tensor)
            assert tuple(tensor.shape) == array.shape, name
            tensor.copy_(torch.from_numpy(np.array(array)))


def _norms(model: AttentionNetwork, heads: Heads, net: MLP | None, gamma: float, as_printed: bool) -> tuple[Norm, ...]:
    """Every norm for which the lemmas have a bound; the largest over the heads."""
    places = {"W_Q": "query", "W_K": "key", "W_V": "value", "W_C": "mix"}
    actual = {
        name: max(float(getattr(head, place).detach().norm()) for head in model.heads(0))
        for name, place in places.items()
    }
    if "P" in heads.promises:
        actual["P"] = float(model.inputs.positions.detach().norm(dim=1).sum())
    promises = dict(heads.promises)
    if net is not None:
        s = round(math.log2(len(heads.target)))
        first = 8 * max(1.0, heads.bound) / gamma
        for name, matrix, bound in (
            ("W_1", net.layers[0], first),
            ("W_2", net.layers[-1] if len(net.layers) == 2 else None, 8 * s / gamma),
            ("w", net.output, 1.0),  # the largest |f|
        ):
            if matrix is not None:
                actual[name] = float(abs(matrix).max())
                promises[name] = Promise(bound, bound if len(net.layers) == 2 else None)
    if as_printed:
        promises = {name: Promise(each.printed or each.bound, each.printed) for name, each in promises.items()}
    return tuple(Norm(name, actual[name], each.bound, each.printed) for name, each in promises.items())


@torch.no_grad()
def _ask(model: AttentionNetwork, strings: Bits) -> Float64[np.ndarray, " string"]:
    return np.asarray(model(torch.from_numpy(strings).to(device_of(model))).cpu().numpy())
