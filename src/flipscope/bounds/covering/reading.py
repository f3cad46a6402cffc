"""The norms of a model's own weights, and which assumptions of the covering theorems it breaks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.bounds.covering.norms import HeadNorms, MatrixNorms, NetworkNorms
from flipscope.models.attention_network import AttentionNetwork
from flipscope.models.transformer import Block, Transformer

if TYPE_CHECKING:
    from torch import Tensor

    from flipscope.models.config import TransformerConfig


@checked_arguments
def norms_of(model: AttentionNetwork | Transformer, length: int) -> NetworkNorms:
    """The norms of this model on strings of this length.

    Those of a `Transformer` are of its attention, its inputs and its read-out, as if it had nothing else: what
    `broken_assumptions` lists is left out.

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
    """What the model has that the class of Thm A.17 has not; nothing for an `AttentionNetwork`, which is that class.

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
        _array(part) for part in (model.inputs.symbols, model.inputs.marker, model.inputs.positions[:length])
    )
    rows = [positions] if config.mapping == "bag" else [positions + symbol for symbol in symbols]
    trained = (length, config.width, _longest(positions)) if config.mapping == "trainable" else None
    linears = [(_array(each.weight), _array(each.bias)) for each in model.mlp]  # type: ignore[arg-type]
    return NetworkNorms(
        tuple(
            tuple(
                HeadNorms.of(*(_array(part) for part in (head.query, head.key, head.value, head.mix)))
                for head in model.heads(layer)
            )
            for layer in range(config.layers)
        ),
        readout=float(np.linalg.norm(_array(model.readout.weight))),
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
        radius = _longest(_array(model.embed(both)).reshape(-1, config.width))
    weight = _array(model.head.weight)
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
        [_array(part).T for part in projection.weight.split(config.key_width)]
        for projection in (attention.query, attention.key, attention.value)
    )
    mix: list[NDArray[np.float64]] = [np.eye(config.width)] * config.heads
    if attention.output is not None:
        mix = [_array(part).T for part in attention.output.weight.split(config.key_width, dim=1)]
    return tuple(HeadNorms.of(scale * q, *rest) for q, *rest in zip(query, key, value, mix, strict=True))


def _array(tensor: Tensor) -> NDArray[np.float64]:
    out: NDArray[np.float64] = tensor.detach().cpu().double().numpy()
    return out


def _longest(rows: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(rows, axis=1).max())
