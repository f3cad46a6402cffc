"""What follows attention at the marker, without gradients: by compiled loops where the layer is a usual one.

That is one with its norms first, an MLP, a matrix that joins its heads, a norm before the head, and float32 on the CPU.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flipscope.models.marker.places import flat
from flipscope.models.threads import on_cores
from flipscope.models.transformer import Block, LayerNorm, Transformer
from flipscope.native.activations import KINDS
from flipscope.native.marker_finish import finish
from flipscope.native.span import preferred

_WIDEST = 512  # wider matrices leave the cache, and PyTorch's products are as fast


def logits_after(
    model: Transformer, block: Block, x: Float[Tensor, "string width"], mixed: Float[Tensor, "string head size"]
) -> Float[Tensor, "string ..."]:
    """The logits where the marker's vector was x and each head brings its part of `mixed`."""
    output = block.attention.output
    joined = mixed.sum(dim=1) if output is None else output(mixed.flatten(1))
    return model.read(block.finish(x, joined)[:, None])


def is_usual(model: Transformer, block: Block) -> bool:
    """Whether the compiled loops are for such a model, where nobody asks for gradients."""
    config, weight = model.config, model.head.weight
    usual = config.norm == "pre" and config.block == "standard" and config.affine and float(np.float32(config.eps)) > 0
    parts = block.mlp is not None and block.attention.output is not None and model.final_norm is not None
    parts = parts and model.dense is None and config.width <= _WIDEST
    compiled = weight.dtype == torch.float32 and weight.device.type == "cpu"
    return usual and parts and compiled and not torch.is_grad_enabled()


def compiled_logits(
    model: Transformer, block: Block, x: Float[Tensor, " width"], mixed: Float[Tensor, "string head size"]
) -> Float[Tensor, "string ..."]:
    """The same of a model that `is_usual`, where x is one for all strings."""
    output, mlp, head = block.attention.output, block.mlp, model.head
    assert output is not None
    assert mlp is not None
    (width, inner), hidden, outputs = output.weight.shape, len(mlp.up.bias), len(head.weight)
    vectors = [x if output.bias is None else x + output.bias, *_gain_and_bias(block.norm2)]
    vectors += [mlp.down.bias, *_gain_and_bias(model.final_norm)]
    bias = torch.zeros_like(head.weight[:, 0]) if head.bias is None else head.bias
    matrices = (mixed, output.weight, mlp.up.weight, mlp.up.bias, mlp.down.weight, head.weight, bias)
    sizes = (inner, width, hidden, outputs, KINDS.index(mlp.activation), np.float32(model.config.eps))
    logits = mixed.new_empty(len(mixed), outputs)
    given: list[Any] = [*(flat(each) for each in (*matrices, torch.stack(vectors))), *sizes, flat(logits)]
    on_cores(functools.partial(finish, preferred(), *given), len(mixed))
    return logits.squeeze(-1) if model.config.outputs == 1 else logits


def _gain_and_bias(norm: LayerNorm | None) -> list[Tensor]:
    assert norm is not None
    assert norm.weight is not None
    assert norm.bias is not None
    return [norm.weight, norm.bias]
