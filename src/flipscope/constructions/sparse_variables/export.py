"""A construction as a standard transformer with the same outputs, to which every fast path and bound applies."""

from __future__ import annotations

import numpy as np
import torch

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.constructions.sparse_variables.build import fill
from flipscope.models.attention_network import AttentionNetwork
from flipscope.models.config import TransformerConfig
from flipscope.models.transformer import Block, Transformer


@checked_arguments
def as_transformer(model: AttentionNetwork) -> Transformer:
    """A `Transformer` with residuals, no layer norm and logits without scale that gives the same logits.

    Attention writes into coordinates that the input leaves at 0, so that the residual connection adds nothing. The MLP
    of one hidden layer is that of the block; of two hidden layers the second is that of a second block, whose heads are
    0. A bag of vectors does not fit: there a bit multiplies its position, and here it is added.

    >>> from flipscope.cube.expression import parse
    >>> from flipscope.constructions.sparse_variables import construct
    >>> built = construct(parse("x1 ^ x3", 5))
    >>> other, bits = as_transformer(built.model), torch.tensor([[1, 0, 0, 1, 1], [1, 1, 1, 0, 0]])
    >>> other.config.layers, [round(logit) for logit in other(bits).tolist()]
    (2, [1, -1])
    """
    config = model.config
    if config.mapping == "bag":
        raise InputError("a bag of vectors has bits that multiply positions, which no standard transformer has")
    if config.layers != 1 or config.activation != "identity" or config.normalise or len(config.hidden) > 2:
        raise InputError(
            "what fits is one layer without activation or projection, and an MLP of two hidden layers at most"
        )
    features = config.read_width
    inner = config.hidden[1] if len(config.hidden) == 2 else 0
    start, middle = config.width, config.width + features
    width = middle + inner + 1
    out = Transformer(
        TransformerConfig(
            max_length=config.length,
            positions="learned",
            width=width,
            layers=max(1, len(config.hidden)),
            heads=config.heads,
            head_size=config.key_width,
            qkv_bias=False,
            logit_scale=1.0,
            ffn_width=max(config.hidden, default=1),
            mlp_layers=len(config.hidden),
            norm="none",
            readout="last",
        ),
        dtype=_dtype(model),
    )
    with torch.no_grad():
        for parameter in out.parameters():
            parameter.zero_()
    _fill_inputs(model, out)
    _fill_attention(model, out, slice(start, middle))
    read = np.zeros((1, width))
    if not config.hidden:
        read[0, start:middle] = _numbers(model.readout.weight)[0]
    else:
        read[0, -1] = 1.0
        _fill_mlps(model, out, start, middle)
    fill(out.head, weight=read)
    return out.eval()


def _fill_inputs(model: AttentionNetwork, out: Transformer) -> None:
    symbol, position = out.embedding.symbol, out.embedding.position
    assert symbol is not None
    assert position is not None
    width, inner = out.config.width, model.config.width
    symbols, positions = np.zeros((3, width)), np.zeros((model.config.length + 1, width))  # the marker's is left at 0
    symbols[:2, :inner], symbols[2, :inner] = _numbers(model.inputs.symbols), _numbers(model.inputs.marker)
    positions[:-1, :inner] = _numbers(model.inputs.positions)
    fill(symbol, weight=symbols)
    fill(position, weight=positions)


def _fill_attention(model: AttentionNetwork, out: Transformer, written: slice) -> None:
    attention = _block(out, 0).attention
    assert attention.output is not None
    inner, size, heads = model.config.width, model.config.key_width, model.heads(0)
    for name in ("query", "key", "value"):
        matrix = np.zeros((len(heads) * size, out.config.width))
        matrix[:, :inner] = np.concatenate([_numbers(getattr(head, name)).T for head in heads])
        fill(getattr(attention, name), weight=matrix)
    mix = np.zeros((out.config.width, len(heads) * size))
    mixes = np.concatenate([_numbers(head.mix) for head in heads])  # [heads * size, inner width]
    mix[written] = mixes[:, : written.stop - written.start].T
    fill(attention.output, weight=mix)


def _fill_mlps(model: AttentionNetwork, out: Transformer, start: int, middle: int) -> None:
    """The first block's MLP writes what enters the second hidden layer, or the answer where there is none."""
    (weight, bias), *more = [(_numbers(each.weight), _numbers(each.bias)) for each in model.mlp]  # type: ignore[arg-type]
    hidden, width = out.config.hidden_width, out.config.width
    answer, none = _numbers(model.readout.weight), np.zeros(1)
    if more:
        inner = len(more[0][1])
        steps = [
            (weight, bias, slice(start, middle), *more[0], slice(middle, width - 1)),
            (np.eye(inner), np.zeros(inner), slice(middle, width - 1), answer, none, slice(width - 1, width)),
        ]
    else:
        steps = [(weight, bias, slice(start, middle), answer, none, slice(width - 1, width))]
    for place, (first, before, read, second, after, written) in enumerate(steps):
        up, down, biases, shifts = (
            np.zeros((hidden, width)),
            np.zeros((width, hidden)),
            np.zeros(hidden),
            np.zeros(width),
        )
        up[: len(first), read], biases[: len(first)] = first, before
        down[written, : len(first)], shifts[written] = second, after
        mlp = _block(out, place).mlp
        assert mlp is not None
        fill(mlp.up, weight=up, bias=biases)
        fill(mlp.down, weight=down, bias=shifts)


def _block(out: Transformer, place: int) -> Block:
    block = out.blocks[place]
    assert isinstance(block, Block)
    return block


def _dtype(model: AttentionNetwork) -> torch.dtype:
    return model.inputs.marker.dtype


def _numbers(tensor: torch.Tensor) -> np.ndarray:
    return np.asarray(tensor.detach().cpu().double().numpy())
