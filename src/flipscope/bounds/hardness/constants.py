"""The norms of a transformer's weights from which the bounds of paper 001 take their constants.

What one position holds is written m + G z with ||z|| at most some radius. After a layer norm with gain gamma and bias
beta, m is beta, G is diag(gamma) P with P the projection onto mean-zero vectors, and the radius is sqrt(d); before the
first norm, G is the identity, and m and the radius are those of a ball around the vectors as they are. The bounds
follow changes of z, so that every matrix counts times G; before a layer norm it counts as P times it, since the norm
applies P anyway. Norms of matrices are spectral norms. See docs/hardness-bounds.md for the derivation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.bounds.numerics import Matrix, spectral_norm, weights

if TYPE_CHECKING:  # bounds that need no model need no torch
    from flipscope.models.config import TransformerConfig
    from flipscope.models.transformer import MLP, Attention, Block, LayerNorm, Transformer


# What the derivation requires of a configuration; all other fields are free.
_NEEDED = {
    "inputs": "bits",
    "attention": "softmax",
    "causal": False,
    "mask_self": False,
    "block": "standard",
    "embedding_norm": False,
    "head": "linear",
    "outputs": 1,
}
_STEEPEST = {"relu": 1.0, "gelu": 1.13, "gelu_tanh": 1.13}  # largest slope, rounded up: GELU's is 1.1290


@dataclass(frozen=True)
class Head:
    """Norms of one attention head, in the coordinates z of its inputs."""

    weight: float  # nu: of the output projection times V, after G, and before P if a norm follows
    score: float  # kappa: of G^T K^T Q G, with the scale of the logits
    pull: float  # chi: the largest rate at which a row's logits change with z


@dataclass(frozen=True)
class Step:
    """A sub-layer: v -> keep v + branch(v), with a layer norm before the branch, after the sum, or nowhere."""

    keep: float
    norm: Literal["before", "after"] | None
    heads: tuple[Head, ...] = ()  # of attention
    branch: float = 0.0  # Lipschitz constant of the MLP, position by position
    radius: float = 0.0  # of what the heads read

    def reach(self, head: Head) -> float:
        """r = 2 chi radius: how far apart two logits of one row can be."""
        return 2 * head.pull * self.radius


@dataclass(frozen=True)
class Constants:
    """The constants that the bounds need, of a model at one length.

    ``gap`` is ||e(0) - e(1)||, ``readout`` the norm of the linear read-out after G, and ``span`` the largest possible
    difference of two outputs T(x) and T(x'): a bound above it is vacuous.
    """

    length: int
    positions: int  # M: the length, and one more for a marker
    first_bit: int  # the row of the first bit: 1 after a marker, else 0
    read_row: int  # the row that is read
    width: int
    eps: float
    gap: float
    steps: tuple[Step, ...]
    readout: float
    span: float
    biased_norms: bool  # whether a bias of its own is added right before each norm

    @property
    def norms(self) -> int:
        """Number of layer norms on the way: the factors of the blowup."""
        return sum(step.norm is not None for step in self.steps)

    @property
    def reads_bit(self) -> bool:
        """Whether the row that is read holds a bit, which can be flipped, and not a marker."""
        return self.first_bit <= self.read_row < self.first_bit + self.length

    @classmethod
    @checked_arguments
    def of(cls, model: Transformer, length: int) -> Constants:
        """The constants of one model for strings of this length.

        >>> from flipscope.models import Transformer, hardness
        >>> Constants.of(Transformer(hardness(6, width=8)), 6).norms  # two in each of two layers
        4
        """
        config = checked(model)
        length = check_count("length", length)
        if config.max_length is not None and length > config.max_length:
            raise InputError(f"length={length} is longer than the max_length={config.max_length} of the model")
        positions = length + (config.marker != "none")
        ball, gap = _entry(model, length)
        steps: list[Step] = []
        for number, block in enumerate(model.blocks):
            ball = _block(cast("Block", block), f"blocks.{number}", ball, steps)
        if model.final_norm is not None:
            steps.append(Step(keep=spectral_norm(_centred(ball.gain)), norm="after"))
            ball = _after_norm(model.final_norm, "final_norm")
        readout = spectral_norm(weights(model.head.weight, "head") @ ball.gain)
        return cls(
            length=length,
            positions=positions,
            first_bit=int(config.marker == "cls"),
            read_row=0 if config.readout == "first" else positions - 1,
            width=config.width,
            eps=config.eps,
            gap=gap,
            steps=tuple(steps),
            readout=readout,
            span=2 * readout * ball.radius,
            biased_norms=_biased_norms(config),
        )


# ---------------------------------------------------------------- reading a model


@dataclass(frozen=True)
class _Ball:
    """A set that holds the vectors of all positions: centre + gain z with ||z|| <= radius."""

    centre: Matrix
    gain: Matrix
    radius: float


def checked(model: Transformer) -> TransformerConfig:
    """The model's configuration, or InputError if the bounds do not cover it."""
    from flipscope.models.unmodified import difference

    if (change := difference(model)) is not None:
        raise InputError(
            f"the bounds are for flipscope's Transformer as its configuration says, but {change}: "
            "build a new one with its weights"
        )
    config = model.config
    odd = [name for name, wanted in _NEEDED.items() if getattr(config, name) != wanted]
    if config.readout not in ("first", "last"):
        odd.append("readout")
    if odd:
        values = ", ".join(f"{name}={getattr(config, name)!r}" for name in odd)
        raise InputError(
            f"the bounds of paper 001 are for softmax attention over all positions, standard blocks and a linear "
            f"read-out of one position, but the model has {values}: use hardness(), or encoder()"
        )
    return config


def _biased_norms(config: TransformerConfig) -> bool:
    """Whether each norm follows a bias that nothing else depends on: of the output projection, or of the MLP."""
    if config.final_norm or config.norm not in ("post", "once"):
        return False
    return config.combine == "project" or (config.norm == "once" and config.mlp_count == config.layers)


def _centred(matrix: Matrix) -> Matrix:
    """P matrix: the part of the matrix that a layer norm does not ignore."""
    out: Matrix = matrix - matrix.mean(axis=0)
    return out


def _entry(model: Transformer, length: int) -> tuple[_Ball, float]:
    """A ball around all input vectors of the first layer at this length, and ||e(0) - e(1)||."""
    import torch

    config = model.config
    ends = torch.tensor([[0] * length, [1] * length], device=model.head.weight.device)
    with torch.no_grad():
        vectors = weights(model.embedding.place(model.embedding.symbols(ends)), "embedding")  # [bit, position, width]
    everything = np.unique(vectors.reshape(-1, config.width), axis=0)
    centre = everything.mean(axis=0)
    radius = float(np.linalg.norm(everything - centre, axis=1).max())
    row = int(config.marker == "cls")
    gap = float(np.linalg.norm(vectors[0, row] - vectors[1, row]))
    return _Ball(centre, np.eye(config.width), radius), gap


def norm_gain(norm: LayerNorm, name: str) -> tuple[Matrix, Matrix]:
    """beta, and G = diag(gamma) P: the norm's output is beta + G z with z of mean zero and norm at most sqrt(d)."""
    gain = np.eye(norm.width) - 1 / norm.width
    if norm.weight is None or norm.bias is None:
        return np.zeros(norm.width), gain
    return weights(norm.bias, name), weights(norm.weight, name)[:, None] * gain


def _after_norm(norm: LayerNorm, name: str) -> _Ball:
    centre, gain = norm_gain(norm, name)
    return _Ball(centre, gain, math.sqrt(norm.width))


def _block(block: Block, name: str, ball: _Ball, steps: list[Step]) -> _Ball:
    """Where the vectors are after a layer; its sub-layers are added to the steps."""
    kind, norm1, norm2 = block.config.norm, block.norm1, block.norm2
    closes = norm1 if kind == "post" else norm2 if kind == "once" and block.mlp is None else None
    seen = ball
    if kind == "pre" and norm1 is not None:
        seen = _after_norm(norm1, f"{name}.norm1")
    heads, centre = _heads(block.attention, f"{name}.attention", seen, closed=closes is not None)
    where: Literal["before", "after"] | None = "before" if kind == "pre" else "after" if closes is not None else None
    keep = spectral_norm(_centred(ball.gain) if closes is not None else ball.gain)
    steps.append(Step(keep, where, heads=heads, radius=seen.radius))
    reach = keep * ball.radius + sum(head.weight for head in heads) * seen.radius
    ball = _Ball(ball.centre + centre, np.eye(block.config.width), reach)
    if closes is not None:
        ball = _after_norm(closes, f"{name}.norm1")
    if block.mlp is None:
        return ball
    closes = norm2 if kind in ("post", "once") else None
    seen = ball
    if kind == "pre" and norm2 is not None:
        seen = _after_norm(norm2, f"{name}.norm2")
    branch, centre = _mlp(block.mlp, f"{name}.mlp", seen, closed=closes is not None)
    where = "before" if kind == "pre" else "after" if closes is not None else None
    keep = spectral_norm(_centred(ball.gain) if closes is not None else ball.gain)
    steps.append(Step(keep, where, branch=branch))
    if closes is not None:
        return _after_norm(closes, f"{name}.norm2")
    return _Ball(ball.centre + centre, np.eye(block.config.width), keep * ball.radius + branch * seen.radius)


def head_matrices(attention: Attention, name: str) -> list[tuple[Matrix, Matrix, Matrix, Matrix]]:
    """Of each head s K^T Q [width, width], s K^T b_q [width], O V [width, width] and O b_v [width]."""
    config = attention.config
    scale = config.scale * (1.0 if attention.log_gain is None else math.exp(float(attention.log_gain.detach())))
    query, key, value = (
        [weights(part, name) for part in projection.weight.split(config.key_width)]
        for projection in (attention.query, attention.key, attention.value)
    )
    zero = np.zeros(config.key_width)
    query_bias, value_bias = (
        [zero] * config.heads
        if projection.bias is None
        else [weights(part, name) for part in projection.bias.split(config.key_width)]
        for projection in (attention.query, attention.value)
    )
    if attention.output is None:
        out = [np.eye(config.width)] * config.heads
    else:
        out = [weights(part, name) for part in attention.output.weight.split(config.key_width, dim=1)]
    return [
        (scale * k.T @ q, scale * k.T @ bq, o @ v, o @ bv)
        for q, k, v, bq, bv, o in zip(query, key, value, query_bias, value_bias, out, strict=True)
    ]


def _heads(attention: Attention, name: str, seen: _Ball, closed: bool) -> tuple[tuple[Head, ...], Matrix]:
    """The heads, and their output where every position holds the ball's centre."""
    centre = np.zeros(attention.config.width)
    if attention.output is not None:
        centre = weights(attention.output.bias, name).copy()
    heads = []
    for score, offset, value, value_bias in head_matrices(attention, name):
        inner = seen.gain.T @ score @ seen.gain
        # The logits of row j are z_w . c_j, up to a constant for all w: c_j = G^T s K^T (Q u_j + b_q).
        middle = seen.gain.T @ (score @ seen.centre + offset)
        kappa = spectral_norm(inner)
        pull = kappa * seen.radius + float(np.linalg.norm(middle))
        out = value @ seen.gain
        heads.append(Head(spectral_norm(_centred(out) if closed else out), kappa, pull))
        centre += value @ seen.centre + value_bias
    return tuple(heads), centre


def _mlp(mlp: MLP, name: str, seen: _Ball, closed: bool) -> tuple[float, Matrix]:
    """The MLP's Lipschitz constant, and its output at the ball's centre."""
    import torch

    up, down = weights(mlp.up.weight, name), weights(mlp.down.weight, name)
    weights(mlp.up.bias, name)
    weights(mlp.down.bias, name)
    branch = (
        _STEEPEST[mlp.activation] * spectral_norm(_centred(down) if closed else down) * spectral_norm(up @ seen.gain)
    )
    with torch.no_grad():
        centre = mlp(torch.from_numpy(seen.centre).to(mlp.up.weight)).double().cpu().numpy()
    return branch, centre
