"""Steps that a transformer takes position by position, and how far from linear each is near a given point.

For a step F at a point w, any move e with |e| <= radius, and a slope g (the gradient of something by F's output):

    step.radius(w, radius)        bounds |F(w + e) - F(w)|
    step.remainder(w, g, move)    bounds |g . (F(w + e) - F(w) - F'(w) e)|
    step.pull(w, g)               is F'(w)^T g

Of the move more may be known than its radius, see `Move`. Points are rows [row, width], slopes [slope, row, width], a
radius is [case, row], several cases for the same points, and a remainder [slope, case, row].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from flipscope.models.init import Linear
from flipscope.models.transformer import MLP, Block, LayerNorm

# Of the activations: the slopes are within 1/2 -+ spread, and the second derivative is at most the bend. ReLU's is
# treated apart. gelu'' = phi(u) (2 - u^2) is largest at 0, 2 phi(0) = 0.798; gelu' is largest at sqrt 2, 1.129.
# The tanh form is within 0.001 of these; both constants are rounded up by more than that.
_SLOPE_SPREAD = {"relu": 0.5, "gelu": 0.635, "gelu_tanh": 0.635}
_BEND = {"gelu": 0.8, "gelu_tanh": 0.81}
_TANH_BEND = 4 / (3 * math.sqrt(3))  # the largest second derivative of tanh
_UNIT_BEND = 2 / math.sqrt(3)  # of w / |w|, at |w| = 1


def spectral_norm(matrix: Float[Tensor, "row column"]) -> Float[Tensor, ""]:
    """The largest singular value, rounded up."""
    largest: Tensor = torch.linalg.matrix_norm(matrix, ord=2) * (1 + 1e-12)
    return largest


@dataclass(frozen=True)
class Move:
    """What is known of a move e."""

    radius: Float[Tensor, "case row"]  # bounds |e|
    along: Float[Tensor, "slope case row"]  # bounds |F'(w)^T g . e|, the first-order change that it makes in the end
    units: Float[Tensor, "row hidden"] | None = None  # bounds how far each hidden unit of the next MLP moves


@runtime_checkable
class Step(Protocol):
    """A map of vectors; x is the layer's input, which a residual may add."""

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        """F(w)."""

    def radius(self, w: Tensor, radius: Tensor) -> Tensor:
        """How far F(w) can move."""

    def remainder(self, w: Tensor, slopes: Tensor, move: Move) -> Tensor:
        """How far from linearly, along the slopes."""

    def pull(self, w: Tensor, slopes: Tensor) -> Tensor:
        """Gradients by the input from those by the output, [slope, row, width]."""


@dataclass(frozen=True)
class Norm:
    """Layer norm: w / |w| for the centred vector with one more coordinate, sqrt(width * eps), that never moves.

    Let |w| = 1, n = w, t = |e| < 1, R = |w + e| >= 1 - t. The second derivative of w / |w| along e is at most
    2/sqrt(3) |e|^2 / |w|^2; integrated along the way from w to w + e it gives a remainder of a length of at most
    2/sqrt(3) (-log(1 - t) - t). Along a slope g the remainder is also (g . n) (1/R - 1 + n . e) + (g . e) (1/R - 1),
    where |1/R - 1 + n . e| <= t^2 / (1 - t) and |1/R - 1| <= t / (1 - t), and g . e is F'(w)^T g . e + (g . n) (n . e).
    """

    norm: LayerNorm

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        """The normalised vectors."""
        out: Tensor = self.norm(w)
        return out

    def radius(self, w: Tensor, radius: Tensor) -> Tensor:
        """The chord of the largest angle that w can turn by."""
        t = self._relative(w, radius)
        turn = torch.where(t < 1, 2 * (t.clamp(max=1.0).asin() / 2).sin(), 2.0)
        return turn * self._size

    def bend(self, w: Tensor, radius: Tensor) -> Tensor:
        """How far from linearly F(w) can move, in any direction."""
        return self._curved(self._relative(w, radius)) * self._size

    def remainder(self, w: Tensor, slopes: Tensor, move: Move) -> Tensor:
        """The smaller of the two bounds above."""
        t = self._relative(w, move.radius)
        length = self._gained(slopes).norm(dim=-1) * math.sqrt(self.norm.width)  # [slope, row]
        whole = length[:, None] * self._curved(t)
        out = self.norm(w) if self.norm.bias is None else self.norm(w) - self.norm.bias
        outward = (slopes * out).sum(dim=-1).abs()[:, None]
        split = (2 * outward * t + move.along) * t / (1 - t)
        split = split.nan_to_num(nan=torch.inf, posinf=torch.inf)  # of a change that is not known, times 0
        return torch.where(t < 1, torch.minimum(whole, split), whole)

    def pull(self, w: Tensor, slopes: Tensor) -> Tensor:
        """(g - n (n . g)) / sigma for the centred slope."""
        gained, inverse = self._gained(slopes), self.norm.normalizer(w)[:, None]
        unit = (w - w.mean(dim=-1, keepdim=True)) * inverse / math.sqrt(self.norm.width)
        return (gained - unit * (unit * gained).sum(dim=-1, keepdim=True)) * inverse

    def _gained(self, slopes: Tensor) -> Tensor:
        gained = slopes if self.norm.weight is None else slopes * self.norm.weight
        return gained - gained.mean(dim=-1, keepdim=True)  # the mean of what is normalised stays 0

    @staticmethod
    def _curved(t: Tensor) -> Tensor:
        curved = _UNIT_BEND * (-torch.log1p(-t.clamp(max=1.0)) - t)
        # -log(1 - t) - t cancels for small t: there it is below t^2 / 2 / (1 - t)
        curved = torch.where(t < 1e-3, _UNIT_BEND * t.square() / 2 / (1 - t), curved)
        return torch.where(t < 1, torch.minimum(curved, 2 + t), 2 + t)  # 2 + t: the lengths of both parts

    @property
    def _size(self) -> Tensor:
        gain = torch.tensor(1.0) if self.norm.weight is None else self.norm.weight.abs().max()
        return gain * math.sqrt(self.norm.width)

    def _relative(self, w: Tensor, radius: Tensor) -> Tensor:
        return radius * self.norm.normalizer(w) / math.sqrt(self.norm.width)


@dataclass(frozen=True)
class Feed:
    """An MLP and its residual: w + M(w), w + M(N(w)) with an inner norm, or x + M(w).

    A ReLU at u that moves by v is from linear by |v| - |u| if it changes its side, else by 0; |v| is at most the length
    of its row of W_1 times the radius. Other activations are from linear by at most bend v^2 / 2.
    """

    mlp: MLP
    residual: bool  # adds w rather than x
    inner: Norm | None = None

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        """The MLP's output and the residual."""
        fed = w if self.inner is None else self.inner(w, x)
        out: Tensor = (w if self.residual else x) + self.mlp(fed)
        return out

    def radius(self, w: Tensor, radius: Tensor) -> Tensor:
        """By the mean value: W_2 diag(slopes) W_1, the slopes of the activations within their range."""
        if self.inner is not None:
            return radius + self._lipschitz[0] * self.inner.radius(w, radius)
        return radius * self._lipschitz[1 if self.residual else 0]

    def remainder(self, w: Tensor, slopes: Tensor, move: Move) -> Tensor:
        """That of the activations and, before it, that of the inner norm."""
        fed = w if self.inner is None else self.inner.norm(w)
        hidden = self.mlp.up(fed)
        pulled = (slopes @ self.mlp.down.weight).abs()  # [slope, row, hidden]
        if self.inner is None:
            return self._activations(hidden, pulled, move.radius, move.units)
        inner = self._pull_mlp(hidden, slopes)
        found = self._activations(hidden, pulled, self.inner.radius(w, move.radius), move.units)
        # What goes through the MLP is only a part of the first-order change, and not known apart.
        return found + self.inner.remainder(w, inner, Move(move.radius, torch.full_like(move.along, torch.inf)))

    def pull(self, w: Tensor, slopes: Tensor) -> Tensor:
        """Through the MLP, and beside it through the residual."""
        hidden = self.mlp.up(w if self.inner is None else self.inner.norm(w))
        through = self._pull_mlp(hidden, slopes)
        if self.inner is not None:
            through = self.inner.pull(w, through)
        return slopes + through if self.residual else through

    def _pull_mlp(self, hidden: Tensor, slopes: Tensor) -> Tensor:
        if self.mlp.activation == "relu":
            steep = (hidden > 0).to(hidden)
        else:
            with torch.enable_grad():
                leaf = hidden.detach().requires_grad_(True)
                form = "tanh" if self.mlp.activation == "gelu_tanh" else "none"
                (steep,) = torch.autograd.grad(F.gelu(leaf, approximate=form).sum(), leaf)
        return (slopes @ self.mlp.down.weight * steep) @ self.mlp.up.weight

    def _activations(self, hidden: Tensor, pulled: Tensor, radius: Tensor, units: Tensor | None) -> Tensor:
        reach = self.reach  # [hidden]
        if units is not None:  # one case
            units = torch.minimum(units, radius[0, :, None] * reach)
        if self.mlp.activation != "relu":
            bend, spread = _BEND[self.mlp.activation] / 2, 2 * _SLOPE_SPREAD[self.mlp.activation]
            if units is not None:
                return (pulled * torch.minimum(bend * units.square(), spread * units)).sum(dim=-1)[:, None]
            curved, straight = (pulled @ reach.square())[:, None], (pulled @ reach)[:, None]  # [slope, 1, row]
            return torch.minimum(bend * radius.square() * curved, spread * radius * straight)
        if units is not None:
            return (pulled * (units - hidden.abs()).clamp(min=0.0)).sum(dim=-1)[:, None]
        # sum_j pulled_j (reach_j radius - |u_j|)_+ is piecewise linear in the radius, with corners at |u_j| / reach_j.
        size = hidden.abs()
        corner, order = torch.where(reach > 0, size / reach, torch.inf).sort(dim=1)
        by_row = radius.T.contiguous()  # [row, case]
        place = torch.searchsorted(corner, by_row).expand(len(pulled), -1, -1)
        pulled = pulled.gather(2, order.expand_as(pulled))
        rise = _prefix(pulled * reach[order]).gather(2, place)  # [slope, row, case]
        drop = _prefix(pulled * size.gather(1, order)).gather(2, place)
        return (by_row * rise * (1 + 1e-12) - drop).clamp(min=0.0).transpose(1, 2)

    @cached_property
    def reach(self) -> Float[Tensor, " hidden"]:
        """How far a hidden unit moves if the MLP's input moves by 1."""
        found: Tensor = self.mlp.up.weight.norm(dim=1) * (1 + 1e-12)
        return found

    @cached_property
    def _lipschitz(self) -> tuple[Tensor, Tensor]:
        """Of M alone, and of w + M(w)."""
        up, down, spread = self.mlp.up.weight, self.mlp.down.weight, _SLOPE_SPREAD[self.mlp.activation]
        both = spectral_norm(up) * spectral_norm(down)
        half = down @ up / 2
        identity = torch.eye(len(half), dtype=half.dtype)
        alone = torch.minimum((0.5 + spread) * both, spectral_norm(half) + spread * both)
        return alone, torch.minimum(1 + alone, spectral_norm(identity + half) + spread * both)


def _prefix(parts: Float[Tensor, "slope row hidden"]) -> Float[Tensor, "slope row more"]:
    """Sums of the first none, one, two and so on."""
    return F.pad(parts.cumsum(dim=2), (1, 0))


@dataclass(frozen=True)
class Dense:
    """tanh(W w + b), before a read-out."""

    linear: Linear

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        """The hidden units."""
        return torch.tanh(self.linear(w))

    def radius(self, w: Tensor, radius: Tensor) -> Tensor:
        """tanh has no slope above 1."""
        return radius * spectral_norm(self.linear.weight)

    def remainder(self, w: Tensor, slopes: Tensor, move: Move) -> Tensor:
        """By the largest second derivative."""
        reach = self.linear.weight.square().sum(dim=1)
        return move.radius.square() * (slopes.abs() @ reach)[:, None] * _TANH_BEND / 2

    def pull(self, w: Tensor, slopes: Tensor) -> Tensor:
        """tanh' = 1 - tanh^2."""
        return (slopes * (1 - self(w, w).square())) @ self.linear.weight


def tail_steps(block: Block) -> list[Step]:
    """What a block does after attention, as `Block.finish`; the first step's input is the residual's sum or, in a sum
    block, what attention brought."""
    config = block.config
    steps: list[Step] = []
    if config.block == "standard" and config.norm == "post" and block.norm1 is not None:
        steps.append(Norm(block.norm1))
    if block.mlp is not None:
        before = config.block == "standard" and config.norm == "pre" and block.norm2 is not None
        inner = Norm(block.norm2) if before and block.norm2 is not None else None
        steps.append(Feed(block.mlp, config.block == "standard", inner))
    if config.norm in ("post", "once") and block.norm2 is not None:
        steps.append(Norm(block.norm2))
    return steps


def head_steps(*, norm: LayerNorm | None = None, dense: Linear | None = None) -> list[Step]:
    """A norm and a dense layer with tanh, those that there are."""
    return [*([Norm(norm)] if norm is not None else []), *([Dense(dense)] if dense is not None else [])]
