"""A certificate: an interval that provably contains the logit of every flipped string, for models of two layers.

A flip changes one token of the input. What can be computed cheaply is computed exactly: the first layer's attention at
every token, and the whole first layer at the flipped token and at the one that is read. Let s' be the states after the
first layer with these two tokens changed and all others as they were. The last layer on s' gives a logit f(s'). The
other tokens move by small vectors E_t, of which only this is known: what attention brought to token t moved by a known
vector dm_t. With g_t the gradient of the unflipped string's logit by what attention brings to t,

    |f(flipped) - f(s') - sum_t g_t . dm_t|  <=  remainder,

where the remainder adds up, each bounded with the activations and weights at hand:

- of every step between dm_t and E_t (norms, MLPs), how far it is from its linear part, see `steps`;
- by how much the gradient by E_t at s' differs from that at the unflipped string, times a bound of |E_t|;
- of the last attention row, what is of second order in the E_t: softmax weights a_t with logits moved by h_t become
  a'_t with |a'_t - a_t| <= a_t (exp(|h_t| + log sum_s a_s exp|h_s|) - 1), and their second derivative along the way is
  a (h - mean)^2 - a var, of which the variance is at most sum_s a_s exp(|h_s| + mean|h|) h_s^2;
- of the last layer's norms and MLP and of the read-out, again how far they are from linear.

It is computed in float64, the dm_t in float32 with a bound of its error. What rounding does to f(s') is measured, as
`precision` does it: the remainder is widened by far more than f(s') moves, at any flip of the string, when every weight
is moved by many roundings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import check_strings
from flipscope.basics.errors import InputError
from flipscope.bounds.robustness.steps import Feed, Move, Norm, Step, head_steps, spectral_norm, tail_steps
from flipscope.flips.engine import Bits, GeneralEngine
from flipscope.flips.fast import obstacle
from flipscope.flips.first_layer import FirstLayer, Tables, make_tables, seen_by_attention
from flipscope.flips.signs import PERTURBATION, PERTURBATION_FACTOR
from flipscope.models.transformer import Block, Transformer

SLACK = 1e-9  # of the logits and of the remainder, besides: far more than float64 loses in adding these up
CHUNK_NUMBERS = 1_000_000  # of the changes of all tokens under some flips computed together


@checked_arguments
def supports(model: object) -> bool:
    """Whether there is a certificate: two layers of softmax attention, on bits, read at one end, on the CPU."""
    return (
        isinstance(model, Transformer)
        and obstacle(model) is None
        and model.config.layers == 2
        and model.config.attention == "softmax"
    )


@checked_arguments
def flip_intervals(
    model: Transformer, strings: object
) -> tuple[
    Float64[np.ndarray, " string"], Float64[np.ndarray, "string position"], Float64[np.ndarray, "string position"]
]:
    """The logits of the strings, and for each flip the lower and upper end of an interval that contains its logit."""
    return Certificate(model).intervals(check_strings(strings))


def logit_bounds(model: Transformer, strings: object) -> Float64[np.ndarray, "string position"]:
    """For each flip a number that the change of the logit provably does not exceed; infinite where nothing is known."""
    base, low, high = flip_intervals(model, strings)
    bounds: Float64[np.ndarray, "string position"] = np.maximum(high - base[:, None], base[:, None] - low)
    return bounds


@checked_arguments
def certified(
    model: Transformer, strings: object, *, threshold: float = 0.0, margin: float = 0.0
) -> Bool[np.ndarray, "string position"]:
    """Which flips provably leave the sign of logit - threshold as it is, the logits more than margin away from it."""
    base, low, high = flip_intervals(model, strings)
    return same_side(base, low, high, threshold, margin)


@checked_arguments
def same_side(
    base: Float64[np.ndarray, " string"],
    low: Float64[np.ndarray, "string position"],
    high: Float64[np.ndarray, "string position"],
    threshold: float,
    margin: float,
) -> Bool[np.ndarray, "string position"]:
    """Where a string's logit and the whole interval of its flip are on one side of threshold -+ margin."""
    # The string's logit is rounded too: by less than the slack that every interval has on either side.
    room = margin + (high / 2 - low / 2).min(axis=1, keepdims=True)
    above = (base[:, None] > threshold + room) & (low > threshold + margin)
    below = (base[:, None] < threshold - room) & (high < threshold - margin)
    found: Bool[np.ndarray, "string position"] = above | below
    return found


@dataclass(frozen=True)
class _Row:
    """The last layer's attention at the token that is read, for each flip and, at the end, for the string itself."""

    absorbed: Float[Tensor, "flip head width"]  # W_K^T q: attention logits are its products with the states
    weights: Float[Tensor, "flip head token"]
    log_weights: Float[Tensor, "flip head token"]
    visible: Bool[Tensor, " token"]  # which tokens the row attends to
    mixed: Float[Tensor, "flip head size"]  # what each head brings, before W_O
    brought: Float[Tensor, "flip width"]
    spread: Float[Tensor, "flip head token"]  # distance of each value from `mixed`
    value: Float[Tensor, "token head size"]  # of the unflipped string
    moved: tuple[Tensor, Tensor]  # values of the flipped token and of the one that is read, [flip, head, size]


@dataclass(frozen=True)
class _Tokens:
    """How the tokens that are not computed move in the first layer; 0 at those that are."""

    radius: Float[Tensor, "flip token"]  # bounds |E_t|
    linear: Float[Tensor, "flip token"]  # g_t . dm_t
    remainder: Float[Tensor, "flip token"]  # of what E_t changes in the logit to first order
    scores: Float[Tensor, "flip head token"]  # the same two for the attention logits of the last layer's row
    score_remainder: Float[Tensor, "flip head token"]


@dataclass(frozen=True)
class _RowMove:
    """How what the last row's attention brings can move: a known vector, each head's W_O W_V times a ball, a ball."""

    known: Float[Tensor, "flip width"]
    heads: Float[Tensor, "flip head"]
    ball: Float[Tensor, " flip"]
    radius: Float[Tensor, " flip"]  # of all together


class _Weights:
    """A model's last layer as the certificate reads it, and the tables of its first."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.first, self.last = (_block(self.model, number) for number in (0, 1))
        self.inner = tail_steps(self.first)
        if self.last.config.norm == "pre" and self.last.norm1 is not None:
            self.inner = [*self.inner, *head_steps(norm=self.last.norm1)]
        self.outer = [
            *tail_steps(self.last),
            *head_steps(norm=self.model.final_norm, dense=self.model.dense),
        ]
        attention, shape = self.last.attention, (model.config.heads, model.config.key_width)
        self.key_weight = attention.key.weight.unflatten(0, shape)  # [head, size, width]
        self.value_weight = attention.value.weight.unflatten(0, shape)
        # [width, head * size] -> [head, width, size]; without W_O heads are summed as they are
        out = None if attention.output is None else attention.output.weight.unflatten(1, shape).transpose(0, 1)
        self.out_weight = torch.eye(model.config.width).double().expand(shape[0], -1, -1) if out is None else out
        self._tables: tuple[int, Tables] | None = None

    def tables(self, length: int) -> Tables:
        """Those of strings of this length."""
        if self._tables is None or self._tables[0] != length:
            self._tables = length, make_tables(self.model, length)
        return self._tables[1]

    @cached_property
    def out_norm(self) -> Float[Tensor, " head"]:
        """Of each head's part of W_O."""
        return torch.stack([spectral_norm(weight) for weight in self.out_weight])

    @cached_property
    def folded(self) -> Float[Tensor, "head width width"]:
        """W_O W_V."""
        folded: Tensor = self.out_weight @ self.value_weight
        return folded

    @cached_property
    def value_norm(self) -> Float[Tensor, " head"]:
        """Of each head's W_O W_V."""
        return torch.stack([spectral_norm(weight) for weight in self.folded])

    @cached_property
    def joint_norm(self) -> Float[Tensor, ""]:
        """Of W_O W_V of all heads side by side."""
        return spectral_norm(self.folded.transpose(0, 1).flatten(1))

    @cached_property
    def unit_rows(self) -> Float[Tensor, "hidden width"]:
        """W_1 of the last MLP as its input moves it."""
        return _unit_rows(self.last)

    @cached_property
    def unit_heads(self) -> Float[Tensor, "hidden head"]:
        """How far each head can move each hidden unit."""
        reached: Tensor = torch.einsum("jw,hwv->jhv", self.unit_rows, self.folded).norm(dim=2)
        return reached


class Certificate:
    """Intervals for the logits of all flips of a string, from the weights of a model."""

    def __init__(self, model: Transformer) -> None:
        if not supports(model):
            found = obstacle(model)
            raise InputError(
                "the model has no certificate, which needs flipscope's own transformer of two layers with softmax "
                f"attention, on bits, read at its first or last position{'' if found is None else f', but {found}'}: "
                "leave certified out"
            )
        self.model = Transformer(model.config, seed=None, dtype=torch.float64)
        weights = {name: tensor.detach().double() for name, tensor in model.state_dict().items()}
        self.model.load_state_dict(weights, assign=True)
        self.model.eval().requires_grad_(False)
        perturbed = GeneralEngine(self.model).perturbed(PERTURBATION).model
        assert isinstance(perturbed, Transformer)
        self.weights, self.perturbed = _Weights(self.model), _Weights(perturbed)

    def intervals(
        self, strings: Bits
    ) -> tuple[
        Float64[np.ndarray, " string"], Float64[np.ndarray, "string position"], Float64[np.ndarray, "string position"]
    ]:
        """Logits of the strings, and the lower and upper ends of the intervals of their flips."""
        bits = torch.from_numpy(np.ascontiguousarray(strings, np.uint8)).long()
        with torch.inference_mode(False), torch.no_grad():
            self.model.check(bits)
            found = [_OneString(self.weights, string).interval(_OneString(self.perturbed, string)) for string in bits]
        base, low, high = (np.stack([part[number].numpy() for part in found]) for number in range(3))
        return base, low, high


class _OneString:
    """The certificate of one string and all its flips."""

    def __init__(self, weights: _Weights, string: Tensor) -> None:
        self.c, self.model = weights, weights.model
        self.tables = weights.tables(len(string))
        self.layer = FirstLayer(weights.first, self.tables, string)
        self.tokens = self.layer.tokens
        self.read = 0 if self.model.config.readout == "first" else self.tokens - 1
        self.flips = torch.arange(len(string))
        x = self.layer.vector
        self.brought = weights.first.attention(seen_by_attention(weights.first, x)[None])[0]
        self.start = self.brought if self.model.config.block == "sum" else x + self.brought
        self.points = _walk(weights.inner, self.start, x)
        self.seen = self.points[-1]  # what the last layer's attention reads
        # The first layer's output, which in a pre-norm model is not what attention reads.
        self.state = self.points[-2] if weights.last.config.norm == "pre" else self.seen

    def interval(self, perturbed: _OneString) -> tuple[Tensor, Tensor, Tensor]:
        """The logit, and the ends of the intervals of all flips; ``perturbed`` is the string with other weights."""
        row, here = self._row()
        value, gradients, points = self._read_out(row, here)
        rounding = PERTURBATION_FACTOR * (value - perturbed._read_out(*perturbed._row())[0]).abs().max()
        base, centre = value[-1], value[:-1]
        by_head = torch.einsum("fw,hws->fhs", gradients[0], self.c.out_weight)
        kappa = self._kappa(row, by_head)  # [flip, head, token]
        pull = torch.einsum("fhs,hsw->fhw", by_head, self.c.value_weight)  # [flip, head, width]
        tokens = self._other_tokens(row, self._slope(row, kappa, pull))
        change = self._gradient_change(row, kappa, pull, tokens)
        second, move = self._second_order(row, kappa, pull, tokens)
        linear = tokens.linear.sum(dim=1)
        so_far = tokens.remainder.sum(dim=1) + change + second
        points, slopes = [point[:-1] for point in points], [gradient[None, :-1] for gradient in gradients]
        along = (linear.abs() + so_far)[None, None]
        units = self._units(points[0], move)
        _, outer = _bounded(self.c.outer, points, slopes, Move(move.radius[None], along, units))
        scale = centre.abs() + base.abs() + linear.abs() + slopes[0][0].norm(dim=1) * row.brought[:-1].norm(dim=1)
        remainder = ((so_far + outer[0, 0]) * (1 + SLACK) + SLACK * scale + rounding).nan_to_num(nan=torch.inf)
        centre = (centre + linear).nan_to_num(nan=0.0)
        return base, centre - remainder, centre + remainder

    # ------------------------------------------------------------ the first layer

    def _known(self) -> Bool[Tensor, "flip token"]:
        """The two tokens of each flip whose states are computed."""
        known = torch.zeros((len(self.flips), self.tokens), dtype=torch.bool)
        known[self.flips, self.layer.places] = True
        known[:, self.read] = True
        return known

    def _other_tokens(self, row: _Row, slope: Float[Tensor, "token width"]) -> _Tokens:
        """What becomes of all tokens that are not computed; ``slope`` is the gradient by their final states."""
        ends = torch.cat([slope[None], row.absorbed[-1][:, None].expand(-1, self.tokens, -1)])
        slopes = _pulled(self.c.inner, self.points, ends)  # each [slope, token, width]
        linear, sizes, error = self._first_attention(slopes[0])
        known = self._known()
        error = slopes[0].norm(dim=2)[:, None] * error  # [slope, flip, token]
        scores, along = linear[:, :, 1:].transpose(1, 2), linear.permute(2, 0, 1).abs() + error
        radius, remainder = _bounded(self.c.inner, self.points, slopes, Move(sizes, along))
        remainder = (remainder + error).masked_fill(known, 0.0)  # [slope, flip, token]
        radius = radius.masked_fill(known, 0.0)
        return _Tokens(radius, linear[:, :, 0], remainder[0], scores, remainder[1:].transpose(0, 1))

    def _first_attention(
        self, slopes: Float[Tensor, "slope token width"]
    ) -> tuple[Float[Tensor, "flip token slope"], Float[Tensor, "flip token"], Float[Tensor, "flip token"]]:
        """dm_t, how what the first layer's attention brings moves, along the slopes; |dm_t|; and the error of dm_t.

        With the weights a, a' of the key before and after it is flipped, a head's output m moves by
        a' (v' - v) + (a' - a) (v - m_rest), m_rest being the average of the other keys' values: (v - m) / (1 - a) is
        v - m_rest, but cancels where a is nearly 1.
        """
        layer, known = self.layer, self._known()
        weights, rest_weights, put, swing, dominated = self._first_weights()
        mixed = torch.einsum("htk,khw->thw", weights, layer.value)  # [token, head, width]
        usual = torch.where(dominated, 0.0, swing / (1 - weights[:, :, layer.places]))  # [head, token, flip]
        shares, swings, centres = torch.cat([put, usual]), usual, mixed
        if rest_weights is not None:
            rare = torch.where(dominated, swing, 0.0)
            shares, swings = torch.cat([put, usual + rare]), torch.cat([usual, rare])
            centres = torch.cat([mixed, torch.einsum("htk,khw->thw", rest_weights, layer.value)], dim=1)
        old_value = layer.value[layer.places]  # [flip, head, width]
        vectors = torch.cat([layer.flipped_value - old_value, old_value], dim=1)
        linear, sizes, error = self._mixed_moves(
            shares.permute(2, 1, 0), vectors, swings.permute(1, 2, 0), centres, slopes
        )
        return linear.masked_fill(known[:, :, None], 0.0), sizes.masked_fill(known, 0.0), error

    def _mixed_moves(
        self,
        shares: Float[Tensor, "flip token part"],
        vectors: Float[Tensor, "flip part width"],
        swings: Float[Tensor, "token flip other"],
        centres: Float[Tensor, "token other width"],
        slopes: Float[Tensor, "slope token width"],
    ) -> tuple[Float[Tensor, "flip token slope"], Float[Tensor, "flip token"], Float[Tensor, "flip token"]]:
        """shares . vectors - swings . centres along the slopes, its length, and its error.

        In float32, which errs by at most so many roundings of the sum of all parts' lengths, and of that times the
        slope's.
        """
        parts = shares.abs() @ vectors.norm(dim=2)[..., None]  # [flip, token, 1]
        parts = parts[..., 0] + (swings.abs() @ centres.norm(dim=2)[..., None])[..., 0].T
        error = (shares.shape[2] + swings.shape[2] + slopes.shape[2] + 16) * 2.0**-24 * parts
        shares, vectors, centres = (part.float().contiguous() for part in (shares, vectors, centres))
        swings, by_token = swings.float(), slopes.permute(1, 2, 0).float().contiguous()  # [token, width, slope]
        linear, sizes = [], []
        for some in self.flips.split(max(1, CHUNK_NUMBERS // (self.tokens * slopes.shape[2]))):
            moved = torch.bmm(shares[some], vectors[some]).transpose(0, 1).contiguous()  # [token, flip, width]
            moved.baddbmm_(swings[:, some].contiguous(), centres, alpha=-1.0)
            linear.append(torch.bmm(moved, by_token).transpose(0, 1))
            sizes.append(moved.norm(dim=2).T)
        return torch.cat(linear).double(), torch.cat(sizes).double() + error, error

    def _first_weights(self) -> tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor]:
        """The first layer's weights, the same without each row's largest; a' and a' - a of the flipped keys, and
        whether they had more than half of all weight, [head, token, flip]. The second is None where none had."""
        layer = self.layer
        scores = self.tables.scores[:, layer.rows]
        old, new = scores[:, :, layer.rows], scores[:, :, layer.flipped_rows]
        if layer.hidden is not None:
            old = old.masked_fill(layer.hidden, -torch.inf)
            new = new.masked_fill(layer.hidden[:, layer.places], -torch.inf)
        weights = old.softmax(dim=-1)
        before = weights[:, :, layer.places]
        dominated, others = before > 0.5, None
        rest = old.logsumexp(dim=-1, keepdim=True) + (-before).log1p()  # logarithm of the sum without the key
        if bool(dominated.any()):  # where 1 - a would cancel
            others = old.scatter(-1, old.argmax(dim=-1, keepdim=True), -torch.inf)
            rest = torch.where(dominated, others.logsumexp(dim=-1, keepdim=True), rest)
            others = others.softmax(dim=-1).nan_to_num(nan=0.0)
        put = (new - torch.logaddexp(new, rest)).exp()
        blind = new == -torch.inf
        put = put.masked_fill(blind, 0.0)
        swing = (put - before).masked_fill(blind, 0.0)
        return weights, others, put, swing, dominated

    # ------------------------------------------------------------ the last layer at the read-out

    def _row(self) -> tuple[_Row, Tensor]:
        """Attention at the read-out from s', and the residual there; the last row is the string itself."""
        config, attention = self.model.config, self.c.last.attention
        everywhere = torch.full_like(self.flips, self.read)
        own, here = (self.layer.finish(self.flips, token) for token in (self.layer.places, everywhere))
        places = torch.cat([self.layer.places, self.layer.places[:1]])
        own = torch.cat([own, self.state[places[:1]]])  # [flip, width]
        here = torch.cat([here, self.state[self.read][None]])
        seen_own, seen_here = (seen_by_attention(self.c.last, part) for part in (own, here))
        shape = (config.heads, config.key_width)
        query = attention.query(seen_here).unflatten(1, shape) * config.scale
        if attention.log_gain is not None:
            query = query * attention.log_gain.exp()
        absorbed = torch.einsum("fhs,hsw->fhw", query, self.c.key_weight)
        each = torch.arange(len(places))
        scores = absorbed @ self.seen.T  # [flip, head, token]
        scores[each, :, places] = torch.einsum("fhw,fw->fh", absorbed, seen_own)
        scores[:, :, self.read] = torch.einsum("fhw,fw->fh", absorbed, seen_here)
        mask = attention.visible(self.seen[None], slice(self.read, self.read + 1))
        visible = torch.ones(self.tokens, dtype=torch.bool) if mask is None else mask[0]
        log_weights = scores.masked_fill(~visible, -torch.inf).log_softmax(dim=-1)
        weights = log_weights.exp()
        value, new, other = (attention.value(part).unflatten(1, shape) for part in (self.seen, seen_own, seen_here))
        mixed = torch.einsum("fht,ths->fhs", weights, value)
        mixed = mixed + weights[each, :, places, None] * (new - value[places])
        # Where the flipped token is the one that is read, it has been put in its place already.
        mixed = mixed + (weights[:, :, self.read] * (places != self.read)[:, None])[..., None] * (
            other - value[self.read]
        )
        lengths = mixed.square().sum(dim=2)[..., None] + value.square().sum(dim=2).T  # [flip, head, token]
        spread = lengths - 2 * torch.einsum("fhs,ths->fht", mixed, value)
        spread = (spread.clamp(min=0.0) + 1e-13 * lengths).sqrt()  # with what rounding can take away
        spread[each, :, places] = (new - mixed).norm(dim=2)
        spread[:, :, self.read] = (other - mixed).norm(dim=2)
        brought = mixed.sum(dim=1) if attention.output is None else attention.output(mixed.flatten(1))
        return _Row(absorbed, weights, log_weights, visible, mixed, brought, spread, value, (new, other)), here

    def _read_out(self, row: _Row, here: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Logits, their gradients by the input of every step of the last tail, and these inputs."""
        with torch.enable_grad():
            start = (row.brought if self.model.config.block == "sum" else here + row.brought).requires_grad_(True)
            points = _walk(self.c.outer, start, here)
            logits = self.model.head(points[-1])[:, 0]
            gradients = torch.autograd.grad(logits.sum(), points)
        return logits.detach(), list(gradients), [point.detach() for point in points]

    def _kappa(self, row: _Row, by_head: Float[Tensor, "flip head size"]) -> Float[Tensor, "flip head token"]:
        """The gradient times (value - what the head brings): the slope of the logit by each attention logit over a."""
        each, places = torch.arange(len(by_head)), torch.cat([self.layer.places, self.layer.places[:1]])
        own, here = row.moved
        along = torch.einsum("fhs,ths->fht", by_head, row.value)
        along[each, :, places] = (by_head * own).sum(dim=2)
        along[:, :, self.read] = (by_head * here).sum(dim=2)
        return along - (by_head * row.mixed).sum(dim=2, keepdim=True)

    def _slope(self, row: _Row, kappa: Tensor, pull: Tensor) -> Float[Tensor, "token width"]:
        """The gradient of the string's logit by the state of each token as a key and value of the last layer."""
        weights = row.weights[-1].T  # [token, head]
        return weights @ pull[-1] + (weights * kappa[-1].T) @ row.absorbed[-1]

    def _gradient_change(self, row: _Row, kappa: Tensor, pull: Tensor, tokens: _Tokens) -> Float[Tensor, " flip"]:
        """sum_t |gradient by E_t at s' - gradient by E_t at the string| |E_t|."""
        here, base = slice(None, -1), slice(-1, None)
        weights, old = row.weights[here], row.weights[base]
        through_value = (weights - old).abs() * pull[here].norm(dim=2)[..., None]
        through_value += old * (pull[here] - pull[base]).norm(dim=2)[..., None]
        through_key = (weights * kappa[here] - old * kappa[base]).abs() * row.absorbed[here].norm(dim=2)[..., None]
        through_key += (old * kappa[base]).abs() * (row.absorbed[here] - row.absorbed[base]).norm(dim=2)[..., None]
        total: Tensor = ((through_value + through_key).sum(dim=1) * tokens.radius).sum(dim=1)
        return total

    def _second_order(self, row: _Row, kappa: Tensor, pull: Tensor, tokens: _Tokens) -> tuple[Tensor, _RowMove]:
        """What the row adds beyond first order to the logit, and how what it brings can move, for each flip."""
        weights, kappa, radius, seen = row.weights[:-1], kappa[:-1], tokens.radius[:, None], row.visible
        turned = (row.absorbed[:-1] - row.absorbed[-1:]).norm(dim=2, keepdim=True)
        unsure = torch.where(seen, tokens.score_remainder + turned * radius, 0.0)
        whole = torch.where(seen, row.absorbed[:-1].norm(dim=2, keepdim=True) * radius, 0.0)
        known = torch.where(seen, tokens.scores, 0.0)  # h_t is this -+ unsure, [flip, head, token]
        size = torch.minimum(known.abs() + unsure, whole)  # |h_t| at most
        # a exp|h|, by logarithms: a weight that float64 rounds to 0 may become large
        lifted = (row.log_weights[:-1] + size).exp()
        upper = lifted * lifted.sum(dim=2, keepdim=True)  # a' at most, and a' - a at most this less a
        variance = (weights * size).sum(dim=2).exp() * (lifted * size.square()).sum(dim=2)  # at most, all the way
        largest = torch.where(seen, kappa.abs(), 0.0).amax(dim=2)
        by_values = pull[:-1].norm(dim=2) * ((upper - weights) * radius).sum(dim=2)
        second = (largest * variance + by_values).sum(dim=1)
        spread = torch.where(seen, row.spread[:-1], 0.0)
        ball = self.c.out_norm * ((weights * unsure * spread).sum(dim=2) + spread.amax(dim=2) * variance)
        heads = (upper * radius).sum(dim=2)
        share = weights * known
        vector = torch.einsum("fht,ths->fhs", share, row.value) - share.sum(dim=2, keepdim=True) * row.mixed[:-1]
        vector = torch.einsum("fhs,hws->fw", vector, self.c.out_weight)
        together = torch.minimum((self.c.value_norm * heads).sum(dim=1), self.c.joint_norm * heads.norm(dim=1))
        ball = ball.sum(dim=1)
        return second, _RowMove(vector, heads, ball, vector.norm(dim=1) + together + ball)

    def _units(self, start: Float[Tensor, "flip width"], move: _RowMove) -> Float[Tensor, "flip hidden"] | None:
        """How far each hidden unit of the last MLP can move, from its own row of W_1 rather than a radius."""
        mlp = self.c.last.mlp
        if mlp is None:
            return None
        steps = self.c.outer
        norm = steps[0] if isinstance(steps[0], Norm) else steps[0].inner if isinstance(steps[0], Feed) else None
        rows, by_head = self.c.unit_rows, self.c.unit_heads  # [hidden, width], [hidden, head]
        known, other = move.known @ rows.T, move.heads @ by_head.T + move.ball[:, None] * rows.norm(dim=1)
        if norm is None:
            found: Tensor = known.abs() + other
            return found
        # The norm's derivative: (e centred - n (n . e)) / sigma, n being the unit vector that it makes of its input.
        inverse = norm.norm.normalizer(start)[:, None]  # [flip, 1]
        centred = start - start.mean(dim=1, keepdim=True)
        unit = centred * inverse / math.sqrt(start.shape[1])
        inward = unit @ rows.T  # [flip, hidden]
        along = (move.known * unit).sum(dim=1, keepdim=True)
        pulled = torch.einsum("fw,hwv->fhv", unit, self.c.folded).norm(dim=2)  # [flip, head]
        other = other + inward.abs() * (move.heads * pulled).sum(dim=1, keepdim=True)
        found = ((known - inward * along).abs() + other) * inverse
        found = found + norm.bend(start, move.radius)[:, None] * mlp.up.weight.norm(dim=1)
        return found


def _walk(steps: Sequence[Step], start: Tensor, x: Tensor) -> list[Tensor]:
    """The input of each step and the output of the last; x is the layer's input, for residuals."""
    points = [start]
    for step in steps:
        points.append(step(points[-1], x))
    return points


def _pulled(steps: Sequence[Step], points: Sequence[Tensor], slopes: Tensor) -> list[Tensor]:
    """Gradients by the input of each step and by the output of the last, which are given."""
    found = [slopes]
    for step, point in zip(reversed(steps), reversed(points[:-1]), strict=True):
        found.insert(0, step.pull(point, found[0]))
    return found


def _bounded(
    steps: Sequence[Step], points: Sequence[Tensor], slopes: Sequence[Tensor], move: Move
) -> tuple[Tensor, Tensor]:
    """How far the output can move, and how far from linearly, seen along the slopes."""
    total = torch.zeros_like(move.along)
    for step, point, slope in zip(steps, points, slopes[1:], strict=False):
        remainder = step.remainder(point, slope, move)
        total = total + remainder
        units = None if isinstance(step, Feed) else move.units
        move = Move(step.radius(point, move.radius), move.along + remainder, units)
    return move.radius, total


def _unit_rows(block: Block) -> Float[Tensor, "hidden width"]:
    """W_1, after a norm with its gains and centred, as the norm centres what it is given."""
    assert block.mlp is not None
    config, rows = block.config, block.mlp.up.weight
    norm = block.norm1 if config.norm == "post" else block.norm2 if config.norm == "pre" else None
    if config.block == "sum" or norm is None:
        return rows
    if norm.weight is not None:
        rows = rows * norm.weight
    return rows - rows.mean(dim=1, keepdim=True)


def _block(model: Transformer, number: int) -> Block:
    block = model.blocks[number]
    assert isinstance(block, Block)
    return block
