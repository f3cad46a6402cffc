"""Measurements of a training on a planted sparse function: the training set, and attention to the hidden bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from flipscope.basics.errors import InputError
from flipscope.data.sparse import SparseData
from flipscope.models.devices import device_of
from flipscope.models.modes import eval_mode
from flipscope.models.transformer import Block, Transformer
from flipscope.training.fit import evaluate
from flipscope.training.named import Around

_STREAM = 0x61747465  # separates these strings from others drawn with the same seeds


def training_set(around: Around, **data: Any) -> Callable[[nn.Module], dict[str, float]]:
    """Loss and accuracy on the training strings in evaluation mode; `data` are the fields of SparseData."""
    known = SparseData(**data).strings()

    def measure(model: nn.Module) -> dict[str, float]:
        found = evaluate(model, known, loss=around.aim.loss, labels=around.aim.labels)
        return {"loss": found.loss, "accuracy": found.correct / found.strings}

    return measure


def hidden_attention(around: Around, strings: int = 256, **data: Any) -> Callable[[nn.Module], dict[str, float]]:
    """The attention from the marker to the hidden positions, averaged over strings.

    "mean" is averaged over the heads too, "most" is that of the head with the most attention. A uniform distribution
    would give s / (T + 1).
    """
    known = SparseData(**data)
    bits = torch.from_numpy(known.draw_inputs(strings, np.random.default_rng([known.seed, _STREAM])))
    hidden = torch.from_numpy(known.positions())

    def measure(model: nn.Module) -> dict[str, float]:
        if not isinstance(model, Transformer) or model.config.marker == "none":
            raise InputError(f"attention of the marker needs a transformer with a marker, not a {type(model).__name__}")
        first = int(model.config.marker == "cls")
        mass = marker_attention(model, bits)[..., hidden + first].sum(dim=-1).mean(dim=0)  # [head]
        return {"mean": float(mass.mean()), "most": float(mass.max())}

    return measure


@torch.no_grad()
def marker_attention(model: Transformer, bits: Tensor) -> Float[Tensor, "string head position"]:
    """Attention weights of the marker in the first layer, including its own position, on the CPU.

    >>> from flipscope.models import mingpt
    >>> weights = marker_attention(Transformer(mingpt(4, width=8, heads=2)), torch.zeros(1, 4, dtype=torch.uint8))
    >>> weights.shape, [round(float(total), 5) for total in weights.sum(dim=-1)[0]]
    (torch.Size([1, 2, 5]), [1.0, 1.0])
    """
    block = model.blocks[0]
    assert isinstance(block, Block)
    heads = block.attention
    with eval_mode(model):
        x = model.embed(bits.to(device_of(model)))
        seen = block.norm1(x) if model.config.norm == "pre" and block.norm1 is not None else x
        row = slice(0, 1) if model.config.marker == "cls" else slice(x.shape[1] - 1, None)
        query, key = heads.split(heads.query(seen[:, row])), heads.split(heads.key(seen))
        return heads.weights(heads.scores(query, key), heads.visible(x, row))[:, :, 0].cpu()
