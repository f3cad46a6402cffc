"""How far a one-layer network's heads can be from their target, over all strings of any length, without sampling.

Where bits are added to positions the attention weights do not depend on them, so that the output is a sum of one number
per bit. In a bag of vectors it is a ratio of two such sums, which Dinkelbach's method maximises exactly. Both are
computed from the weights of the network, however it was built.

What is certified is the network of these weights in exact arithmetic. Logits can be as large as 1/gap, with
proportional rounding errors; hence everything is computed in numpy's longest floats, and a bound on all rounding is
added: a sum of n products, in any order, is wrong by at most n eps times the sum of their absolute values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Shaped

from flipscope.basics.bits import Bits
from flipscope.basics.errors import InputError
from flipscope.constructions.sparse_variables.functions import patterns
from flipscope.models.attention_network import AttentionNetwork

_ROUNDS = 100  # Dinkelbach's method takes a handful
_EPS = np.finfo(np.longdouble).eps  # twice the largest relative error of an operation


@dataclass(frozen=True, eq=False)
class Certificate:
    """The largest distance in any coordinate, and strings on which the heads come as far as they can, one per row."""

    error: float  # rounded up
    rounding: float  # the part of `error` that bounds rounding
    exact: bool  # attained up to rounding; otherwise an upper bound, where several ratios are summed
    strings: Bits


@dataclass(frozen=True, eq=False)
class _Read:
    """For each head, the logits and contributions of each position by its bit, and bounds on their rounding errors.

    The errors are bounds on the distance from what the network's weights give in exact arithmetic.
    """

    logits: Shaped[np.ndarray, "head position 2"]
    values: Shaped[np.ndarray, "head position 2 number"]
    marker_logits: Shaped[np.ndarray, " head"]
    marker_values: Shaped[np.ndarray, "head number"]
    logit_errors: Shaped[np.ndarray, " head"]
    value_errors: Shaped[np.ndarray, "head number"]

    @property
    def sizes(self) -> Shaped[np.ndarray, "head number"]:
        """The largest contribution in absolute value."""
        largest = np.maximum(abs(self.values).max(axis=(1, 2), initial=0), abs(self.marker_values))
        return np.asarray(largest + self.value_errors)

    def rounding(self, dependence: Shaped[np.ndarray, " head"]) -> Shaped[np.ndarray, " number"]:
        """A bound, for all strings, on the rounding error of the heads' output computed from these logits.

        A head's output is a mean of values. If logits are wrong by e, its weights, which sum to 1, are wrong by factors
        between exp(-2e) and exp(2e), and the mean by expm1(2e) times the largest value, or twice that value at most.
        `dependence` is how much the logits of two values of a bit differ, where one of them stands for both.
        """
        count, top = self.logits.shape[1] + 1, abs(self.logits).max(axis=(1, 2), initial=0)
        off = self.logit_errors + dependence + 2 * _EPS * np.maximum(top, abs(self.marker_logits))
        with np.errstate(over="ignore"):
            share = np.minimum(np.expm1(2 * off + (4 * count + 40) * _EPS), 2)
        # The last term is the rounding of the final sum, with a term for each token.
        each = (share + (4 * count + 40) * _EPS)[:, None] * self.sizes + self.value_errors
        return np.asarray(each.sum(axis=0))


def certify(
    model: AttentionNetwork, positions: tuple[int, ...], target: Float64[np.ndarray, "pattern number"]
) -> Certificate:
    """The largest |f_head(x) - target| over all strings x, in the first coordinates of [CLS]."""
    config = model.config
    if config.layers != 1 or config.activation != "identity" or config.normalise:
        raise InputError("a certificate is for one layer without activation or projection: give such a network")
    read = _read(model, target.shape[1])
    bits = patterns(len(positions)).astype(np.int64)
    if config.mapping == "bag":
        return _ratios(read, positions, bits, target)
    if float(np.ptp(read.logits, axis=2).max(initial=0)) > 1e-9:
        raise InputError("attention depends on the bits themselves: keys must be orthogonal to the vectors of 0 and 1")
    return _sums(read, positions, bits, target)


def _read(model: AttentionNetwork, numbers: int) -> _Read:
    symbols, places, marker = (
        getattr(model.inputs, name).detach().cpu().double().numpy() for name in ("symbols", "positions", "marker")
    )
    added = not model.inputs.is_bag  # bits are added to positions, or multiply them

    def products(matrix: np.ndarray, size: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Products of all rows [position, bit, ...] and of [CLS] with the matrix, or of their absolute values."""
        used = (matrix != 0).any(axis=1)  # most positions have few coordinates
        rows, bits, last = (
            np.abs(each[..., used]).astype(np.longdouble) if size else each[..., used].astype(np.longdouble)
            for each in (places, symbols, marker)
        )
        at, short = rows @ matrix[used], bits @ matrix[used]
        both = at[:, None] + short if added else np.stack([np.zeros_like(at), at], axis=1)
        return both, last @ matrix[used]

    per_head: list[tuple[np.ndarray, ...]] = []
    for head in model.heads(0):
        query, key, value, mix = (
            getattr(head, name).detach().cpu().double().numpy().astype(np.longdouble)
            for name in ("query", "key", "value", "mix")
        )
        ends = marker.astype(np.longdouble)
        logits, marker_logit = products((key @ (query.T @ ends))[:, None])
        values, marker_values = products(value @ mix[:, :numbers])
        sizes = (abs(key) @ (abs(query).T @ abs(ends)))[:, None], abs(value) @ abs(mix[:, :numbers])
        terms = [np.count_nonzero(each.any(axis=1)) + len(mix) + 10 for each in sizes]
        terms[0] += np.count_nonzero(marker)
        # A term of 0 adds no rounding error.
        errors = [
            _EPS * count * np.maximum(rows.max(axis=(0, 1), initial=0), last)
            for count, (rows, last) in zip(terms, (products(each, size=True) for each in sizes), strict=True)
        ]
        per_head.append((logits[..., 0], values, marker_logit[0], marker_values, errors[0][0], errors[1]))
    return _Read(*(np.array(each) for each in zip(*per_head, strict=True)))


def _certificate(
    far: Shaped[np.ndarray, "pattern number"],
    rounding: Shaped[np.ndarray, " number"],
    sizes: Shaped[np.ndarray, "head number"],
    target: Float64[np.ndarray, "pattern number"],
    exact: bool,
    strings: list[Bits],
) -> Certificate:
    """The certificate from the distances to the target in either direction, computed without regard to rounding."""
    # The rounding of the subtraction of the target: none where the heads give 0.
    last = np.minimum(20 * _EPS * (abs(far) + abs(target)).max(axis=0), sizes.sum(axis=0))
    error = (far + rounding + last).max()
    nearest = float(error)  # the conversion may round down
    upwards = nearest if nearest >= error else math.nextafter(nearest, math.inf)
    return Certificate(upwards, float((rounding + last).max()), exact, np.array(strings))


def _sums(
    read: _Read, positions: tuple[int, ...], bits: np.ndarray, target: Float64[np.ndarray, "pattern number"]
) -> Certificate:
    """The sum of the contributions of all bits, the irrelevant ones chosen to make it largest or smallest."""
    logits = np.concatenate([read.logits[:, :, 0], read.marker_logits[:, None]], axis=1)  # [head, token]
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    brought = np.einsum("ht,htbc->tbc", weights[:, :-1], read.values)  # [position, bit, number]
    start = np.einsum("h,hc->c", weights[:, -1], read.marker_values)
    relevant = brought[list(positions)]  # [relevant, bit, number]
    fixed = start + sum(relevant[j][bits[:, j]] for j in range(len(positions))) - target  # [pattern, number]
    rest = brought.copy()
    rest[list(positions)] = 0
    high, low = fixed + rest.max(axis=1).sum(axis=0), fixed + rest.min(axis=1).sum(axis=0)
    strings = []
    for extreme, chosen in ((high, rest.argmax(axis=1)), (-low, rest.argmin(axis=1))):
        pattern = extreme.argmax(axis=0)
        for number, place in enumerate(pattern):
            string = chosen[:, number].astype(np.uint8)
            string[list(positions)] = bits[place]
            strings.append(string)
    rounding = read.rounding(np.ptp(read.logits, axis=2).max(axis=1, initial=0))
    return _certificate(np.maximum(high, -low), rounding, read.sizes, target, True, strings)


def _ratios(
    read: _Read, positions: tuple[int, ...], bits: np.ndarray, target: Float64[np.ndarray, "pattern number"]
) -> Certificate:
    """The largest and smallest ratio of each head; heads that share a coordinate are bounded by the sum."""
    total = {1: -target.astype(np.longdouble), -1: target.astype(np.longdouble)}
    rounding = read.rounding(np.zeros(len(read.logits)))
    used = np.zeros(target.shape[1], np.int64)
    strings: list[Bits] = []
    for logits, values, marker_logit, marker_values, sizes in zip(
        read.logits, read.values, read.marker_logits, read.marker_values, read.sizes, strict=True
    ):
        used += (abs(values).max(axis=(0, 1)) > 0) | (abs(marker_values) > 0)
        for sign in (1, -1):
            best, chosen = _largest_ratio(logits, sign * values, marker_logit, sign * marker_values, positions, bits)
            total[sign] = total[sign] + best
            farthest = (best - sign * target).argmax(axis=0)  # pattern of each coordinate
            strings += [chosen[pattern, number] for number, pattern in enumerate(farthest)]
        rounding = rounding + _missed(logits, marker_logit) * sizes
    far, exact = np.maximum(total[1], total[-1]), bool((used <= 1).all())
    return _certificate(far, rounding, read.sizes, target, exact, strings)


def _missed(logits: Shaped[np.ndarray, "position 2"], marker_logit: np.longdouble) -> float:
    """A bound, in units of the largest value, on how far Dinkelbach's method ends below the largest ratio.

    When it ends, no string has a numerator above the ratio times its denominator, up to the rounding of one term per
    token. That error is divided by the smallest denominator, which has the smaller weight of each bit.
    """
    top = np.maximum(logits.max(initial=-np.inf), marker_logit)
    weights, marker = np.exp(logits - top), np.exp(marker_logit - top)
    whole, least = marker + weights.sum(), marker + weights.min(axis=1).sum()
    with np.errstate(divide="ignore"):
        return min(float(16 * (len(logits) + 10) * _EPS * whole / least), 2.0)


def _largest_ratio(
    logits: Shaped[np.ndarray, "position 2"],
    values: Shaped[np.ndarray, "position 2 number"],
    marker_logit: np.longdouble,
    marker_values: Shaped[np.ndarray, " number"],
    positions: tuple[int, ...],
    bits: np.ndarray,
) -> tuple[Shaped[np.ndarray, "pattern number"], np.ndarray]:
    """The largest weighted mean for each pattern of the relevant bits and each coordinate, and the strings."""
    top = np.maximum(logits.max(initial=-np.inf), marker_logit)
    weights, marker = np.exp(logits - top), np.exp(marker_logit - top)
    products = weights[:, :, None] * values  # [position, bit, number]
    string = np.zeros((len(bits), products.shape[2], len(logits)), np.uint8)  # [pattern, number, position]
    string[:, :, list(positions)] = bits[:, None]
    free = np.ones(len(logits), bool)
    free[list(positions)] = False
    gain, cost = products[:, 1] - products[:, 0], weights[:, 1] - weights[:, 0]  # of a one, over a zero
    ratio = np.full(string.shape[:2], -np.inf, np.longdouble)
    for _ in range(_ROUNDS):
        numerator = marker * marker_values + products[:, 0].sum(axis=0) + np.einsum("pnt,tn->pn", string, gain)
        better = numerator / (marker + weights[:, 0].sum() + string @ cost)
        if (better <= ratio).all():
            return ratio, string
        ratio = np.maximum(ratio, better)
        string[:, :, free] = (gain.T - ratio[:, :, None] * cost > 0)[:, :, free]
    raise AssertionError("Dinkelbach's method did not end")
