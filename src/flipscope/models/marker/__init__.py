"""Fast logits of a one-layer transformer that is read at its marker: the same numbers up to rounding.

The marker is the same in every string, so its query is one constant, and the logit of attention at a position takes two
values, one per bit: numerator and denominator of the softmax are linear in the bits (`linear`).

Dropout in training draws a mask for every coordinate of every position of every string, which destroys linearity. With
norm="pre" in float32, keys, values and normalised inputs still need not be computed (`noisy`). Masks have the
distribution of `nn.Dropout`, with a seed from PyTorch's generator, but are not those that `nn.Dropout` would draw.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from flipscope.models.marker.linear import Means
from flipscope.models.modes import differentiated_once, eval_mode, only_numbers
from flipscope.models.transformer import Block, Transformer

_STRINGS = 1 << 16  # strings per call without dropout and gradients
_ROWS = 2_048  # strings for which memory is allocated at once
_BYTES = 1 << 22  # largest dropout mask in bytes
_NUMBERS = 1 << 20  # largest layer input if the model itself is trained with dropout


def reads_marker(model: Transformer) -> bool:
    """Whether the model has one layer of softmax attention and is read at its marker, as required here."""
    config = model.config
    at_marker = (config.marker, config.readout) in (("eos", "last"), ("cls", "first"))
    return at_marker and config.layers == 1 and config.inputs == "bits" and config.attention == "softmax"


class MarkerLogits:
    """The logits `model(bits)` of a model that `reads_marker`; `strings(bits)` is the best batch size.

    In training with dropout, the fast path requires norm="pre", float32 on the CPU and one derivative only; otherwise
    the model is called.

    >>> from flipscope.models import mingpt
    >>> model = Transformer(mingpt(5, width=8, heads=2), seed=0).eval()
    >>> bits = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 1, 1, 1]], dtype=torch.uint8)
    >>> torch.allclose(MarkerLogits(model)(bits), model(bits), atol=1e-6)
    True
    """

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def strings(self, bits: UInt8[Tensor, "string position"]) -> int:
        """The number of strings per part of a batch such that intermediate results fit into memory."""
        if _dropouts(self.model) == {False}:
            return _ROWS if torch.is_grad_enabled() else _STRINGS
        most = _BYTES if _can_be_quick(self.model) else _NUMBERS
        return max(16, most // ((bits.shape[1] + 1) * self.model.config.width))

    def __call__(self, bits: Int[Tensor, "string position"]) -> Float[Tensor, "string ..."]:
        model = self.model
        dropouts = _dropouts(model)
        if not only_numbers() or len(dropouts) > 1 or (True in dropouts and not _can_be_quick(model)):
            out: Tensor = model(bits)
            return out
        model.check(bits)
        bits = bits.to(torch.uint8)
        block = model.blocks[0]
        assert isinstance(block, Block)
        both = torch.arange(2, dtype=torch.uint8, device=bits.device)[:, None].expand(2, bits.shape[1])
        with eval_mode(model.embedding):
            table = model.embed(both)  # [2, position, width]: all bits 0, all bits 1; the marker is in both
        if True in dropouts:
            from flipscope.models.marker import noisy  # loads numba, needed only for training with dropout

            return _logits_after(model, block, *noisy.noisy_read(block, table, bits))
        means = Means.of(block, table)
        parts = [bits] if torch.is_grad_enabled() else bits.split(_ROWS)
        return torch.cat([self._asked(block, means, some) for some in parts])

    def _asked(self, block: Block, means: Means | None, bits: UInt8[Tensor, "string position"]) -> Tensor:
        """The logits without dropout."""
        if means is None:  # attention so sharp that exponentials underflow
            return self.model(bits)  # type: ignore[no-any-return]
        return _logits_after(self.model, block, means.x.expand(len(bits), -1), means.mixed(bits))


def _logits_after(
    model: Transformer, block: Block, x: Float[Tensor, "string width"], mixed: Float[Tensor, "string head size"]
) -> Float[Tensor, "string ..."]:
    """The logits from the marker's vector x and the heads' contributions `mixed`."""
    output = block.attention.output
    joined = mixed.sum(dim=1) if output is None else output(mixed.flatten(1))
    return model.read(block.finish(x, joined)[:, None])


def _dropouts(model: Transformer) -> set[bool]:
    """Whether some dropout modules are active; a user may set their modes separately."""
    return {module.training for module in model.modules() if isinstance(module, nn.Dropout)} or {False}


def _can_be_quick(model: Transformer) -> bool:
    """Whether the compiled loops support training this model with dropout."""
    config, weight = model.config, next(model.parameters())
    compiled = weight.dtype == torch.float32 and weight.device.type == "cpu"
    return config.norm == "pre" and float(np.float32(config.eps)) > 0 and compiled and differentiated_once()
