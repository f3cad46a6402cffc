"""The covering theorems for one model: a bound on its generalization gap, or a score that is not a bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, check_probability
from flipscope.basics.errors import InputError
from flipscope.bounds.covering.attention import SOFTMAX, network_cover
from flipscope.bounds.covering.generalization import DUDLEY, FORM_NAMES, GapBound, gap_bound
from flipscope.bounds.covering.norms import HeadNorms, MatrixNorms, NetworkNorms
from flipscope.bounds.numerics import weights
from flipscope.models.attention_network import AttentionNetwork
from flipscope.models.transformer import Block, Transformer

if TYPE_CHECKING:
    from flipscope.models.config import TransformerConfig


@dataclass(frozen=True)
class Summary:
    """What paper 003 says of a model at one length and number of training strings."""

    length: int
    samples: int
    delta: float
    broken: tuple[str, ...]  # assumptions that fail; with any of these it is a score and not a bound
    norms: NetworkNorms
    bounds: tuple[GapBound, ...]

    @property
    def is_bound(self) -> bool:
        """Whether the model is of the theorem's class."""
        return not self.broken

    @property
    def kind(self) -> str:
        """What the numbers are, in words."""
        return "bound" if self.is_bound else "norm-based score, not a bound"

    def as_json(self) -> dict[str, Any]:
        """The JSON document of ``flipscope bound covering``."""
        return {
            "kind": self.kind,
            "is_bound": self.is_bound,
            "broken_assumptions": list(self.broken),
            "length": self.length,
            "samples": self.samples,
            "delta": self.delta,
            "loss": "logistic",
            "norms": {
                "readout": self.norms.readout,
                "inputs": self.norms.radius,
                "layers": [
                    [
                        {name: getattr(head, name).spectral for name in ("score", "value", "mix")}
                        | {f"{name}_row": getattr(head, name).largest for name in ("score", "value", "mix")}
                        | {f"{name}_rows": getattr(head, name).total for name in ("score", "value", "mix")}
                        for head in heads
                    ]
                    for heads in self.norms.layers
                ],
            },
            "bounds": [bound.as_json() for bound in self.bounds],
        }


@checked_arguments
def summary(
    model: AttentionNetwork | Transformer,
    length: int,
    samples: int,
    *,
    delta: float = 0.05,
    softmax: float = SOFTMAX,
    chaining: float = DUDLEY,
) -> Summary:
    """The bound on the gap of the logistic loss, for every form of Lem 4.5, from the model's own norms.

    These were not fixed before training: they are rounded up to a grid whose classes share delta.

    >>> from flipscope.models import Transformer, encoder
    >>> found = summary(Transformer(encoder(width=16, layers=1)), 10, 1_000)
    >>> found.kind, found.bounds[0].vacuous
    ('norm-based score, not a bound', True)
    """
    check_count("samples", samples)
    failures = -math.log(check_probability("delta", delta))
    norms = norms_of(model, length)
    rounded, price = norms.rounded_up()
    cover = network_cover(rounded, softmax=softmax)
    bounds = tuple(
        gap_bound(cover, length, samples, form, log_failures=failures + price, chaining=chaining) for form in FORM_NAMES
    )
    return Summary(length, samples, delta, broken_assumptions(model), norms, bounds)


# ---------------------------------------------------------------- reading a model


@checked_arguments
def norms_of(model: AttentionNetwork | Transformer, length: int) -> NetworkNorms:
    """The norms of this model on strings of this length.

    For a `Transformer` only its attention, inputs and read-out count; the parts that `broken_assumptions` lists are
    left out.

    >>> from flipscope.models import Transformer, encoder
    >>> len(norms_of(Transformer(encoder(width=16, layers=2)), 10).layers)
    2
    """
    check_count("length", length)
    if isinstance(model, AttentionNetwork):
        return _of_network(model, length)
    if isinstance(model, Transformer):
        return _of_transformer(model, length)
    raise InputError(f"{type(model).__name__} has no norms of attention that are known here: give an AttentionNetwork")


@checked_arguments
def broken_assumptions(model: AttentionNetwork | Transformer) -> tuple[str, ...]:
    """Parts of the model that the class of Thm A.17 does not have; none for an `AttentionNetwork`, which is in it.

    >>> from flipscope.models import Transformer, encoder
    >>> broken_assumptions(Transformer(encoder(width=16, layers=2)))[0]
    'a residual connection around every sub-layer'
    """
    if isinstance(model, AttentionNetwork):
        return ()
    return tuple(text for text, broken in _ASSUMPTIONS.items() if broken(model.config))


_ASSUMPTIONS: dict[str, Callable[[TransformerConfig], bool]] = {
    "a residual connection around every sub-layer": lambda config: True,
    "layer norm instead of the projection on the unit ball": lambda config: config.norm != "none",
    "no projection on the unit ball": lambda config: config.norm == "none",
    "an MLP in its layers": lambda config: config.mlp_count > 0,
    "biases in its attention": lambda config: config.qkv_bias or config.combine == "project",
    "attention without softmax": lambda config: config.attention != "softmax",
    "vectors of symbols that are trained": lambda config: True,
    "vectors of positions that are trained": lambda config: config.positions == "learned",
    "a read-out that is no linear map of one row": lambda config: config.readout == "mean" or config.head == "tanh",
    "a bias at its read-out": lambda config: config.head_bias,
}


def _of_network(model: AttentionNetwork, length: int) -> NetworkNorms:
    config = model.config
    if length > config.length:
        raise InputError(f"length={length} is longer than the network's {config.length} positions: give no more")
    symbols, marker, positions = (
        weights(part, "inputs") for part in (model.inputs.symbols, model.inputs.marker, model.inputs.positions[:length])
    )
    rows = [positions] if config.mapping == "bag" else [positions + symbol for symbol in symbols]
    trained = (length, config.width, _longest(positions)) if config.mapping == "trainable" else None
    linears = [(weights(each.weight, "mlp"), weights(each.bias, "mlp")) for each in model.mlp]  # type: ignore[arg-type]
    return NetworkNorms(
        tuple(
            tuple(
                HeadNorms.of(
                    *(weights(part, f"layers.{layer}") for part in (head.query, head.key, head.value, head.mix))
                )
                for head in model.heads(layer)
            )
            for layer in range(config.layers)
        ),
        readout=float(np.linalg.norm(weights(model.readout.weight, "readout"))),
        radius=max(_longest(np.concatenate(rows)), _longest(marker[None])),
        normalised=config.normalise,
        mlp=tuple(MatrixNorms.of(np.column_stack(pair)) for pair in linears),
        trained_positions=trained,
    )


def _of_transformer(model: Transformer, length: int) -> NetworkNorms:
    config = model.config
    if config.inputs != "bits":
        raise InputError(f"the model reads {config.inputs}, and norms are read from models of bits: give one of these")
    with torch.no_grad():
        both = torch.arange(2, device=model.head.weight.device)[:, None].expand(2, length)
        radius = _longest(weights(model.embed(both), "embedding").reshape(-1, config.width))
    weight = weights(model.head.weight, "head")
    readout = weight[1] - weight[0] if config.outputs == 2 else weight
    return NetworkNorms(
        tuple(_heads(block) for block in model.blocks if isinstance(block, Block)),
        readout=float(np.linalg.norm(readout)),
        radius=radius,
    )


def _heads(block: Block) -> tuple[HeadNorms, ...]:
    """The heads of a standard layer, the scale of its logits with W_Q."""
    attention, config = block.attention, block.config
    scale = config.scale * (1.0 if attention.log_gain is None else math.exp(float(attention.log_gain.detach())))
    query, key, value = (
        [weights(part, "attention").T for part in projection.weight.split(config.key_width)]
        for projection in (attention.query, attention.key, attention.value)
    )
    mix: list[NDArray[np.float64]] = [np.eye(config.width)] * config.heads
    if attention.output is not None:
        mix = [weights(part, "attention").T for part in attention.output.weight.split(config.key_width, dim=1)]
    return tuple(HeadNorms.of(scale * q, *rest) for q, *rest in zip(query, key, value, mix, strict=True))


def _longest(rows: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(rows, axis=1).max())
