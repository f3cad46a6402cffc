"""A5 layer by layer: the bound on |T(x) - T(x^i)| from measurements on x alone, sub-layer by sub-layer.

For each flip i a bound on the change at each position is carried through the sub-layers, with each token's own
1 / sqrt(variance + eps) at each norm (Eq 3), no change larger than what the ball of a norm's outputs lets it be, and
for attention the largest mean of the changes that weights of at most g can give (Eq 4). With the attention weights of
x, too, Eq 9 takes the place of Eq 4 where it is smaller. Nothing is measured on the flips: their norms and weights
cannot be further from those of x than the changes found so far allow. Equations are those of docs/hardness-bounds.md.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from jaxtyping import Float64
from scipy.special import expit, logsumexp

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import check_strings
from flipscope.basics.errors import InputError
from flipscope.bounds.hardness.constants import Constants, Head, Step, checked, head_matrices, norm_gain
from flipscope.bounds.hardness.flips import Bound, bend, log_trivial, share

if TYPE_CHECKING:
    import torch

    from flipscope.models.transformer import Block, LayerNorm, Transformer

Changes = Float64[np.ndarray, "flip position"]

_AT_ONCE = 64  # strings


@dataclass(frozen=True, eq=False)
class Focus:
    """One attention layer on one string: its weights, and the rates ||c_j|| at which logits of row j change (Eq 2)."""

    log_weights: Float64[np.ndarray, "head row position"]  # a weight may be too small for floats
    pulls: Float64[np.ndarray, "head row"]


@dataclass(frozen=True, eq=False)
class Measured:
    """Measurements on one string, in the order of the sub-layers."""

    inverse_std: tuple[Float64[np.ndarray, " position"], ...]  # 1 / sqrt(variance + eps) of each norm
    focus: tuple[Focus, ...]  # of each attention layer; empty where it was not measured

    @property
    def log_blowup(self) -> float:
        """ln Blowup(x): the sum over the norms of ln(1 + the largest 1 / sqrt(variance + eps)) (Eq 5)."""
        return float(sum(np.log1p(values.max()) for values in self.inverse_std))


@checked_arguments
def measure(model: Transformer, strings: np.ndarray, *, attention: bool = True) -> Iterator[Measured]:
    """The blowups of each string [string, position], and its attention if wanted, in float64 throughout."""
    import torch

    from flipscope.probes.blowup import blowup

    checked(model)
    bits = check_strings(strings)
    wide = copy.deepcopy(model).double().eval()
    for start in range(0, len(bits), _AT_ONCE):
        some = torch.from_numpy(bits[start : start + _AT_ONCE].astype(np.int64)).to(wide.head.weight.device)
        norms = blowup(wide, some).inverse_std
        layers = list(_layers(wide, some)) if attention else []
        for i in range(len(some)):
            focus = tuple(Focus(logs[i], pulls[i]) for logs, pulls in layers)
            yield Measured(tuple(values[i] for values in norms), focus)


@checked_arguments
def flip_changes(constants: Constants, measured: Measured) -> Float64[np.ndarray, " flip"]:
    """Upper bounds on |T(x) - T(x^i)| for each bit i, from the measurements on x; never above the span."""
    bits, positions = constants.length, constants.positions
    if len(measured.inverse_std) != constants.norms:
        raise InputError(
            f"{len(measured.inverse_std)} norms were measured, but the constants are of {constants.norms}: "
            "measure the model that they are of"
        )
    change = np.zeros((bits, positions))
    change[np.arange(bits), constants.first_bit + np.arange(bits)] = constants.gap
    norms, focus = iter(measured.inverse_std), iter(measured.focus)
    read = constants.read_row
    with np.errstate(over="ignore"):
        for step in constants.steps:
            scale = next(norms) if step.norm is not None else None
            if scale is not None and len(scale) == 1 < change.shape[1]:  # a last norm, of what is read alone
                change, read = change[:, constants.read_row, None], 0
            seen = _normed(change, scale, constants) if step.norm == "before" and scale is not None else change
            moved = _mixed(step, seen, next(focus, None)) if step.heads else step.branch * seen
            change = step.keep * change + moved
            if step.norm == "after" and scale is not None:
                change = _normed(change, scale, constants)
        return np.minimum(constants.readout * change[:, read], constants.span)


@checked_arguments
def layerwise_bound(constants: Constants, measured: Measured) -> Bound:
    """An upper bound on s(x, T) from the measurements on x: sharper than Eq 6, and never above the trivial bound.

    >>> from flipscope.models import Transformer, hardness
    >>> model = Transformer(hardness(6, width=8))
    >>> own = Constants.of(model, 6)
    >>> (measured,) = measure(model, np.array([[0, 1, 1, 0, 1, 0]]))
    >>> layerwise_bound(own, measured).orders <= 0
    True
    """
    changes = flip_changes(constants, measured)
    total = float((changes**2).sum()) / 4
    log, most = math.log(total) if total else -math.inf, log_trivial(constants)
    return Bound(min(log, most), most)


# ---------------------------------------------------------------- one sub-layer


def _normed(change: Changes, inverse_std: Float64[np.ndarray, " position"], constants: Constants) -> Changes:
    """The change of z after a norm (Eq 3): ||z - z'|| <= 2 ||P(v - v')|| / (1/N + 1/N'), with N of x alone."""
    root = math.sqrt(constants.width)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = 1 / inverse_std
        # 1/N' is at least sqrt(eps), and as close to 1/N as the change requires.
        flipped = np.maximum(math.sqrt(constants.eps), spread - change / root)
        normed = np.where(change > 0, 2 * change / (spread + flipped), 0.0)
    return np.minimum(normed, 2 * root)


def _mixed(step: Step, change: Changes, focus: Focus | None) -> Changes:
    """A bound on the change of the sum of all heads."""
    total = np.zeros_like(change)
    ordered = -np.sort(-change, axis=1)
    for number, head in enumerate(step.heads):
        top = share(step.reach(head), change.shape[1])
        mean = _largest_mean(ordered, top)[:, None]  # [flip, 1]
        bent = np.minimum(mean, bend(top) * change.sum(axis=1, keepdims=True))
        turned = step.radius**2 * head.score * change  # by the query of the row itself
        moved = mean + step.reach(head) * bent + turned
        if focus is not None:
            moved = np.minimum(moved, _focused(step, head, change, bent, focus, number) + turned)
        total += head.weight * np.minimum(moved, 2 * step.radius)
    return total


def _largest_mean(ordered: Changes, most: float) -> Float64[np.ndarray, " flip"]:
    """The largest sum of a_w change_w over weights 0 <= a_w <= ``most`` that sum to 1; changes are in falling order."""
    left = np.clip(1 - most * np.arange(ordered.shape[1]), 0.0, most)
    out: Float64[np.ndarray, " flip"] = ordered @ left
    return out


def _focused(step: Step, head: Head, change: Changes, most: np.ndarray, focus: Focus, number: int) -> Changes:
    """Eq 9 without its last term: the change of a head's output from the attention weights of x."""
    logs, pulls = focus.log_weights[number], focus.pulls[number]  # [row, position], [row]
    straight = change @ np.exp(logs).T  # [flip, row]
    # A bound on the change of each logit of row j, [flip, row, position].
    moves = pulls[:, None] * change[:, None, :] + step.radius * head.score * change[:, :, None]
    low = logs - moves
    total = logsumexp(low, axis=2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = total + np.log1p(-np.exp(low - total))  # of all other positions; NaN by rounding where there are none
    top = expit(logs + moves - np.where(np.isnan(rest), -np.inf, rest))  # at x^i, and on the way to it
    bends = np.where(top < 0.5, top * (1 - top), 0.25)
    bent = np.minimum((bends * change[:, None, :]).sum(axis=2), most)
    out: Changes = straight + 2 * step.radius * pulls * bent
    return out


# ---------------------------------------------------------------- measured attention


def _layers(
    model: Transformer, strings: torch.Tensor
) -> Iterator[tuple[Float64[np.ndarray, "string head row position"], Float64[np.ndarray, "string head row"]]]:
    """The logarithms of the attention weights of each layer, and ||c_j|| of its rows."""
    import torch

    with torch.no_grad():
        states = model.states(strings)
        for number, (block, state) in enumerate(zip(model.blocks, states, strict=False)):
            block = cast("Block", block)
            attention, name = block.attention, f"blocks.{number}.attention"
            seen, gain = state, np.eye(model.config.width)
            if block.config.norm == "pre" and block.norm1 is not None:
                seen = block.norm1(state)
                _, gain = norm_gain(block.norm1, name)
            elif number and (before := _last_norm(cast("Block", model.blocks[number - 1]))) is not None:
                _, gain = norm_gain(before, name)
            query, key = (attention.split(part(seen)) for part in (attention.query, attention.key))
            logs = attention.scores(query, key).log_softmax(dim=-1).cpu().numpy()
            rows = seen.cpu().numpy()  # [string, row, width]
            pulls = [
                np.linalg.norm((rows @ score.T + offset) @ gain, axis=-1)
                for score, offset, _, _ in head_matrices(attention, name)
            ]
            yield logs, np.stack(pulls, axis=1)


def _last_norm(block: Block) -> LayerNorm | None:
    """The norm at the end of a layer, whose output the next layer reads."""
    if block.config.norm not in ("post", "once"):
        return None
    return block.norm1 if block.norm2 is None else block.norm2
