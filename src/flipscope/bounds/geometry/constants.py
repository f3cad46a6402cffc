"""The norms of a recogniser's weights (Eqs 7-14 of paper 000), from which its bounds take their constants.

Norms of matrices are spectral norms. Two facts make them smaller at no cost. A layer norm ignores a constant added to
all coordinates, so that W2 and phi2 count after the projection P onto mean-zero vectors (Remark E.1); and its outputs
have mean zero, so that K, Q and V of the later layers, and w, count as K P, Q P, V P and P w.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.numerics import Matrix, spectral_norm, weights

if TYPE_CHECKING:  # a verdict needs no torch
    from flipscope.models.config import TransformerConfig
    from flipscope.models.transformer import Block, Embedding, Transformer


# Fields that may differ from the preset of Eqs 7-14 without changing the bounds.
_FREE = ("width", "layers", "heads", "head_size", "ffn_width", "eps", "logit_scale", "dropout")
_PLACES = ("positions", "period", "max_length")  # the vectors of positions are fixed, and of any kind


@dataclass(frozen=True)
class LayerConstants:
    """Norms of one layer's weights; those of attention are one number per head."""

    key: tuple[float, ...]
    query: tuple[float, ...]
    value: tuple[float, ...]
    score: tuple[float, ...]  # of K^T Q, at most key times query, with the scale of the attention logits
    up: float  # W1
    down: float  # W2
    up_bias: float  # phi1
    down_bias: float  # phi2

    @property
    def mlp(self) -> float:
        """Lipschitz constant of Eq 10: the positive part has 1."""
        return self.down * self.up


@dataclass(frozen=True)
class Constants:
    """The constants that the bounds need, of one recogniser or of all recognisers in a set of parameters.

    `gap` is ||e(0) - e(1)||, `entry` a bound on ||e(x_n) + p(n)|| for every N, `readout` is ||w|| (Eq 14), `parameters`
    the M of section 2.4, which leaves out the vectors of symbols and positions.
    """

    width: int
    hidden: int
    eps: float
    scale: float
    gap: float
    entry: float
    layers: tuple[LayerConstants, ...]
    readout: float
    parameters: int

    @classmethod
    @checked_arguments
    def of(cls, model: Transformer) -> Constants:
        """The constants of one recogniser."""
        config = _checked(model)
        scale = config.scale
        embedding = model.embedding
        assert embedding.symbol is not None
        symbols = weights(embedding.symbol.weight, "embedding.symbol")
        layers = tuple(
            _layer(cast("Block", block), f"blocks.{i}", scale, i > 0) for i, block in enumerate(model.blocks)
        )
        head = weights(model.head.weight, "head")
        return cls(
            width=config.width,
            hidden=config.hidden_width,
            eps=config.eps,
            scale=scale,
            gap=float(np.linalg.norm(symbols[0] - symbols[1])),
            entry=_entry(embedding, symbols),
            layers=layers,
            readout=spectral_norm(_centred_rows(head)),
            parameters=sum(p.numel() for name, p in model.named_parameters() if not name.startswith("embedding.")),
        )

    @classmethod
    def over(cls, *models: Transformer) -> Constants:
        """Constants that hold for every recogniser whose parameters are in the convex hull of these models'.

        A norm is convex, so it is largest at one of the models; ||K^T Q|| is not, and becomes ||K|| ||Q||.
        """
        if not models:
            raise InputError("no model was given: give at least one")
        parts = [cls.of(model) for model in models]
        first = parts[0]
        tables = [dict(model.embedding.named_parameters()) for model in models]
        for model, table in zip(models, tables, strict=True):
            if dataclasses.replace(model.config, dropout=0.0) != dataclasses.replace(models[0].config, dropout=0.0):
                raise InputError("the models differ in configuration: constants over them need the same one")
            if any(not bool((table[name] == tables[0][name]).all()) for name in table):
                raise InputError("the models differ in their embeddings, which are no parameters here: copy one to all")
        layers = []
        for i in range(len(first.layers)):
            mine = [part.layers[i] for part in parts]
            key, query, value = (
                tuple(max(norms) for norms in zip(*(getattr(layer, name) for layer in mine), strict=True))
                for name in ("key", "query", "value")
            )
            score = tuple(first.scale * k * q for k, q in zip(key, query, strict=True))
            rest = {n: max(getattr(layer, n) for layer in mine) for n in ("up", "down", "up_bias", "down_bias")}
            layers.append(LayerConstants(key, query, value, score, **rest))
        return dataclasses.replace(first, layers=tuple(layers), readout=max(part.readout for part in parts))

    @classmethod
    @checked_arguments
    def cube(cls, model: Transformer, radius: float) -> Constants:
        """Constants for all parameters in [-radius, radius]^M, with the model's shape, symbols and positions."""
        constants = cls.of(model)
        none = (0.0,) * len(constants.layers[0].key)
        nothing = LayerConstants(none, none, none, none, 0.0, 0.0, 0.0, 0.0)
        return dataclasses.replace(constants, layers=(nothing,) * len(constants.layers), readout=0.0).perturbed(radius)

    def perturbed(self, radius: float) -> Constants:
        """Constants that hold wherever each parameter is moved by at most `radius` (Lem 4.2's cube)."""
        check_positive("radius", radius)
        square = radius * self.width  # the Frobenius norm of a D x D matrix of such numbers
        oblong = radius * math.sqrt(self.width * self.hidden)
        layers = []
        for layer in self.layers:
            key, query, value = (
                tuple(norm + square for norm in norms) for norms in (layer.key, layer.query, layer.value)
            )
            score = tuple(self.scale * k * q for k, q in zip(key, query, strict=True))
            up, down = layer.up + oblong, layer.down + oblong
            up_bias = layer.up_bias + radius * math.sqrt(self.hidden)
            down_bias = layer.down_bias + radius * math.sqrt(self.width)
            layers.append(LayerConstants(key, query, value, score, up, down, up_bias, down_bias))
        readout = self.readout + radius * math.sqrt(self.width)
        return dataclasses.replace(self, layers=tuple(layers), readout=readout)

    @cached_property
    def radii(self) -> tuple[float, ...]:
        """Bounds Gamma_0, ..., Gamma_L on the norms of the activations y^0, ..., y^L (proof of Lem 3.1).

        ||y|| = sqrt(D) s / sqrt(s^2 + eps) with s^2 the variance of d, so no more than sqrt(D).
        """
        radii = [self.entry]
        for layer in self.layers:
            mixed = sum(layer.value) * radii[-1]
            inside = radii[-1] + layer.down * (layer.up * mixed + layer.up_bias) + layer.down_bias  # ||P d||
            length = math.hypot(inside, math.sqrt(self.width * self.eps))
            radii.append(math.sqrt(self.width) * (inside / length if length and math.isfinite(length) else 1.0))
        return tuple(radii)

    @property
    def diameter(self) -> float:
        """The largest distance of two activations y^L; a bound on influence above it is vacuous."""
        return 2 * self.radii[-1]

    @property
    def norm_lipschitz(self) -> float:
        """Lipschitz constant of the layer norm, 1/sqrt(eps); infinite if eps is 0."""
        return 1 / math.sqrt(self.eps) if self.eps else math.inf


def check_length(length: int) -> int:
    """The length, after checking that there is a bit to flip."""
    return check_count("length", length)


# ---------------------------------------------------------------- reading a model


def _checked(model: Transformer) -> TransformerConfig:
    """The model's configuration, or InputError if it is not a recogniser of Eqs 7-14."""
    from flipscope.models.presets import recognizer
    from flipscope.models.unmodified import difference

    if (change := difference(model)) is not None:
        raise InputError(
            "the bounds are for flipscope's Transformer as its configuration says, but "
            f"{change}: build a new one with its weights"
        )
    config = model.config
    wanted = recognizer()
    names = [field.name for field in dataclasses.fields(config) if field.name not in (*_FREE, *_PLACES)]
    odd = [name for name in names if getattr(config, name) != getattr(wanted, name)]
    if odd:
        values = ", ".join(f"{name}={getattr(config, name)!r}" for name in odd)
        raise InputError(f"the bounds are for the recogniser of Eqs 7-14, but the model has {values}: use recognizer()")
    return config


def _centred_rows(matrix: Matrix) -> Matrix:
    """matrix P: the restriction of the matrix to mean-zero vectors."""
    centred: Matrix = matrix - matrix.mean(axis=-1, keepdims=True)
    return centred


def _layer(block: Block, name: str, scale: float, centred: bool) -> LayerConstants:
    """The norms of one layer, whose inputs have mean zero if `centred`."""
    attention, mlp = block.attention, block.mlp
    assert mlp is not None
    heads = attention.config.heads
    keys, queries, values = (
        np.split(weights(projection.weight, f"{name}.attention"), heads)  # of each head [width, width]
        for projection in (attention.key, attention.query, attention.value)
    )
    if centred:
        keys, queries, values = ([_centred_rows(m) for m in each] for each in (keys, queries, values))
    down = weights(mlp.down.weight, f"{name}.mlp")  # [width, hidden]
    down_bias = weights(mlp.down.bias, f"{name}.mlp")
    return LayerConstants(
        key=tuple(map(spectral_norm, keys)),
        query=tuple(map(spectral_norm, queries)),
        value=tuple(map(spectral_norm, values)),
        score=tuple(scale * spectral_norm(k.T @ q) for k, q in zip(keys, queries, strict=True)),
        up=spectral_norm(weights(mlp.up.weight, f"{name}.mlp")),
        down=spectral_norm(down - down.mean(axis=0)),
        up_bias=float(np.linalg.norm(weights(mlp.up.bias, f"{name}.mlp"))),
        down_bias=float(np.linalg.norm(down_bias - down_bias.mean())),
    )


def _entry(embedding: Embedding, symbols: Matrix) -> float:
    """The largest ||e(x_n) + p(n)|| of any length."""
    config = embedding.config
    sizes = np.abs(symbols)
    if config.positions == "sinusoidal":
        # Coordinates 2i and 2i + 1 hold a point of the unit circle, which in the worst case has the direction of e.
        pairs = np.pad(sizes, ((0, 0), (0, config.width % 2))).reshape(len(symbols), -1, 2)
        return float(np.linalg.norm(np.linalg.norm(pairs, axis=2) + 1, axis=1).max())
    if config.positions == "none":
        return float(np.linalg.norm(symbols, axis=1).max())
    places = config.period or (config.max_length or 0) + 1
    positions = weights(embedding.positions(places), "embedding.position")  # [position, width]
    return float(np.linalg.norm(symbols[:, None] + positions, axis=2).max())
