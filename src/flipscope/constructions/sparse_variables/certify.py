"""How far a one-layer network's heads can be from their target, over all strings of any length, without sampling.

Where bits are added to positions the attention weights do not depend on them, so that the output is a sum of one number
per bit. In a bag of vectors it is a ratio of two such sums, which Dinkelbach's method maximises exactly. Both are read
from the weights of the network, not from how it was built.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from flipscope.basics.bits import Bits
from flipscope.basics.errors import InputError
from flipscope.constructions.sparse_variables.functions import patterns
from flipscope.models.attention_network import AttentionNetwork

_ROUNDS = 100  # Dinkelbach's method takes a handful


@dataclass(frozen=True, eq=False)
class Certificate:
    """The largest distance in any coordinate, and strings on which the heads come as far as they can, one per row."""

    error: float
    exact: bool  # whether it is attained; else an upper bound, where several ratios are summed
    strings: Bits


@dataclass(frozen=True, eq=False)
class _Read:
    """A network as numbers: logits and contributions of each position by its bit, per head."""

    logits: Float64[np.ndarray, "head position 2"]
    values: Float64[np.ndarray, "head position 2 number"]
    marker_logits: Float64[np.ndarray, " head"]
    marker_values: Float64[np.ndarray, "head number"]


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
    if float(np.ptp(read.logits, axis=2).max(initial=0.0)) > 1e-9:
        raise InputError("attention depends on the bits themselves: keys must be orthogonal to the vectors of 0 and 1")
    return _sums(read, positions, bits, target)


def _read(model: AttentionNetwork, numbers: int) -> _Read:
    symbols, own, marker = (
        getattr(model.inputs, name).detach().double().numpy() for name in ("symbols", "positions", "marker")
    )
    # [position, bit, width]
    rows = np.stack([np.zeros_like(own), own], axis=1) if model.inputs.is_bag else own[:, None] + symbols
    logits, values, marker_logits, marker_values = [], [], [], []
    for head in model.heads(0):
        query, key, value, mix = (
            getattr(head, name).detach().double().numpy() for name in ("query", "key", "value", "mix")
        )
        direction, out = key @ (query.T @ marker), value @ mix[:, :numbers]
        logits.append(rows @ direction)
        values.append(rows @ out)
        marker_logits.append(marker @ direction)
        marker_values.append(marker @ out)
    return _Read(np.array(logits), np.array(values), np.array(marker_logits), np.array(marker_values))


def _sums(
    read: _Read, positions: tuple[int, ...], bits: np.ndarray, target: Float64[np.ndarray, "pattern number"]
) -> Certificate:
    """The sum of what each bit brings, the others chosen to drive it up or down."""
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
    for found, chosen in ((high, rest.argmax(axis=1)), (-low, rest.argmin(axis=1))):
        pattern = found.argmax(axis=0)
        for number, place in enumerate(pattern):
            string = chosen[:, number].astype(np.uint8)
            string[list(positions)] = bits[place]
            strings.append(string)
    return Certificate(float(max(high.max(), -low.min())), True, np.array(strings))


def _ratios(
    read: _Read, positions: tuple[int, ...], bits: np.ndarray, target: Float64[np.ndarray, "pattern number"]
) -> Certificate:
    """Of each head the largest and smallest ratio; heads that share a coordinate are bounded by the sum of theirs."""
    total = {1: -target, -1: target}
    used = np.zeros(target.shape[1], np.int64)
    strings: list[Bits] = []
    for logits, values, marker_logit, marker_values in zip(
        read.logits, read.values, read.marker_logits, read.marker_values, strict=True
    ):
        used += (abs(values).max(axis=(0, 1)) > 0) | (abs(marker_values) > 0)
        for sign in (1, -1):
            best, chosen = _largest_ratio(logits, sign * values, marker_logit, sign * marker_values, positions, bits)
            total[sign] = total[sign] + best
            farthest = (best - sign * target).argmax(axis=0)  # pattern of each coordinate
            strings += [chosen[pattern, number] for number, pattern in enumerate(farthest)]
    error = float(max(total[1].max(), total[-1].max()))
    return Certificate(error, bool((used <= 1).all()), np.array(strings))


def _largest_ratio(
    logits: Float64[np.ndarray, "position 2"],
    values: Float64[np.ndarray, "position 2 number"],
    marker_logit: float,
    marker_values: Float64[np.ndarray, " number"],
    positions: tuple[int, ...],
    bits: np.ndarray,
) -> tuple[Float64[np.ndarray, "pattern number"], np.ndarray]:
    """The largest weighted mean for each pattern of the relevant bits and each coordinate, and the strings."""
    top = max(float(logits.max(initial=marker_logit)), float(marker_logit))
    weights, marker = np.exp(logits - top), float(np.exp(marker_logit - top))
    products = weights[:, :, None] * values  # [position, bit, number]
    string = np.zeros((len(bits), products.shape[2], len(logits)), np.uint8)  # [pattern, number, position]
    string[:, :, list(positions)] = bits[:, None]
    free = np.ones(len(logits), bool)
    free[list(positions)] = False
    gain, cost = products[:, 1] - products[:, 0], weights[:, 1] - weights[:, 0]  # of a one, over a zero
    ratio = np.full(string.shape[:2], -np.inf)
    for _ in range(_ROUNDS):
        numerator = marker * marker_values + products[:, 0].sum(axis=0) + np.einsum("pnt,tn->pn", string, gain)
        better = numerator / (marker + weights[:, 0].sum() + string @ cost)
        if (better <= ratio).all():
            return ratio, string
        ratio = np.maximum(ratio, better)
        string[:, :, free] = (gain.T - ratio[:, :, None] * cost > 0)[:, :, free]
    raise AssertionError("Dinkelbach's method did not end")
