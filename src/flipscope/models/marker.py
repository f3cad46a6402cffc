"""The logits of a transformer of one layer that is read at its marker: the same numbers up to rounding, much sooner.

The marker is the same in every string, so its query is one constant, and the logit of attention at a position takes two
values, one per bit. Numerator and denominator of the softmax are sums over positions of a term that depends on that
position's bit: linear in the bits. All strings are one product of [string, 2 * position] and [2 * position, head *
(size + 1)].

Dropout while training draws a mask for every coordinate of every position of every string, and linearity is gone. What
is left to gain, with norm="pre": keys, values and the normalised input need not be computed, since a layer norm is a
factor per position once the mean is taken out. `_NoisyMix` does that with a gradient written down. Its masks have the
law of `nn.Dropout`, from PyTorch's generator, but are not those that `nn.Dropout` would draw.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from flipscope.models.modes import differentiated_once, eval_mode
from flipscope.models.transformer import Attention, Block, Transformer

_RANGE = 60.0  # of attention logits: exponentials of a larger one would underflow in float32
_NUMBERS = 1 << 20  # of a mask of dropout, made at once: four megabytes
_STRINGS = 2_048  # computed at once without dropout


def reads_marker(model: Transformer) -> bool:
    """Whether it has one layer of softmax attention, is read at its marker, and so has the short way here."""
    config = model.config
    at_marker = (config.marker, config.readout) in (("eos", "last"), ("cls", "first"))
    return at_marker and config.layers == 1 and config.inputs == "bits" and config.attention == "softmax"


class MarkerLogits:
    """What `model(bits)` gives, of a model that `reads_marker`; `strings(bits)` are best computed together.

    In training with dropout the short way is for norm="pre" and for one derivative only; else the model is called.

    >>> from flipscope.models import mingpt
    >>> model = Transformer(mingpt(5, width=8, heads=2), seed=0).eval()
    >>> bits = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 1, 1, 1]], dtype=torch.uint8)
    >>> torch.allclose(MarkerLogits(model)(bits), model(bits), atol=1e-6)
    True
    """

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def strings(self, bits: UInt8[Tensor, "string position"]) -> int:
        """How many strings a part of a batch should have, for what is computed to stay in the cache."""
        if not _noisy(self.model):
            return _STRINGS
        return max(16, _NUMBERS // ((bits.shape[1] + 1) * self.model.config.width))

    def __call__(self, bits: UInt8[Tensor, "string position"]) -> Float[Tensor, "string ..."]:
        model = self.model
        noisy = _noisy(model)
        if noisy and not _can_be_quick(model):
            out: Tensor = model(bits)
            return out
        model.check(bits)
        block = model.blocks[0]
        assert isinstance(block, Block)
        both = torch.arange(2, dtype=torch.uint8, device=bits.device)[:, None].expand(2, bits.shape[1])
        with eval_mode(model.embedding):
            table = model.embed(both)  # [2, position, width]: all bits 0, all bits 1; the marker is in both
        found = _noisy_read(block, table, bits) if noisy else _linear_read(block, table, bits)
        if found is None:  # attention so sharp that exponentials underflow
            return model(bits)  # type: ignore[no-any-return]
        return model.read(block.finish(*found)[:, None])


def _noisy(model: Transformer) -> bool:
    """Whether dropout is at work."""
    return bool(model.config.dropout) and model.training


def _can_be_quick(model: Transformer) -> bool:
    return model.config.norm == "pre" and model.config.eps > 0 and differentiated_once()


def _marker(attention: Attention) -> int:
    return 0 if attention.config.marker == "cls" else -1


def _seen_by_marker(attention: Attention, table: Float[Tensor, "2 position width"]) -> Bool[Tensor, " position"] | None:
    """Which positions the marker attends to; None is all."""
    visible = attention.visible(table, slice(0, 1) if _marker(attention) == 0 else slice(table.shape[1] - 1, None))
    return None if visible is None or bool(visible.all()) else visible[0]


# ---------------------------------------------------------------- without dropout: linear in the bits


def _linear_read(
    block: Block, table: Float[Tensor, "2 position width"], bits: UInt8[Tensor, "string symbol"]
) -> tuple[Float[Tensor, "string width"], Float[Tensor, "string width"]] | None:
    """The marker's vector, and what the heads bring to it; None where exponentials would underflow."""
    attention, row = block.attention, _marker(block.attention)
    heads = attention.config.heads
    seen = block.norm1(table) if block.config.norm == "pre" and block.norm1 is not None else table
    query = attention.query(seen[0, row]).unflatten(-1, (heads, -1)) * attention.config.scale  # [head, size]
    key, value = (part(seen).unflatten(-1, (heads, -1)) for part in (attention.key, attention.value))
    scores = torch.einsum("hs,bphs->bph", query, key)  # [2, position, head]
    visible = _seen_by_marker(attention, table)
    if visible is not None:
        scores = scores.masked_fill(~visible[:, None], -math.inf)
    top = scores.detach().amax(dim=(0, 1))
    if float((top - scores.detach().masked_fill(scores == -math.inf, math.inf).amin(dim=(0, 1))).max()) > _RANGE:
        return None
    weights = (scores - top).exp()[..., None]  # [2, position, head, 1]
    terms = torch.cat([weights, weights * value], dim=-1).flatten(2)  # [2, position, head * (1 + size)]
    constant = terms[0, row]
    terms = terms[:, 1:] if row == 0 else terms[:, :-1]
    ones = bits.to(terms.dtype)
    # Both values of a bit have a term of their own: a difference of the two would cancel.
    sums = torch.addmm(constant, torch.cat([1 - ones, ones], dim=1), terms.flatten(0, 1)).unflatten(-1, (heads, -1))
    mixed = sums[..., 1:] / sums[..., :1]  # [string, head, size]
    return table[:1, row].expand(len(bits), -1), _joined(attention, mixed)


def _joined(attention: Attention, mixed: Float[Tensor, "string head size"]) -> Float[Tensor, "string width"]:
    """The heads side by side times a matrix, or their sum."""
    if attention.output is None:
        return mixed.sum(dim=1)
    out: Tensor = attention.output(mixed.flatten(1))
    return out


# ---------------------------------------------------------------- with dropout, norm first


def _noisy_read(
    block: Block, table: Float[Tensor, "2 position width"], bits: UInt8[Tensor, "string symbol"]
) -> tuple[Float[Tensor, "string width"], Float[Tensor, "string width"]]:
    """The marker's vector, and what the heads bring to it, with dropout of embeddings and of attention weights."""
    attention, norm, row = block.attention, block.norm1, _marker(block.attention)
    assert norm is not None
    heads, rate, count = attention.config.heads, attention.config.dropout, table.shape[1]
    before = int(row == 0)
    ones = F.pad(bits, (before, 1 - before))  # the marker's place counts as 0: its vector is in both rows
    noise = dropout_mask((len(bits), count, table.shape[2]), rate, table)
    x = table[0, row] * noise[:, row]  # [string, width]
    query = attention.query(norm(x)).unflatten(-1, (heads, -1)) * attention.config.scale
    key, value = (part.weight.unflatten(0, (heads, -1)) for part in (attention.key, attention.value))
    asked = torch.einsum("bhs,hsw->bhw", query, key)  # what a normalised vector is multiplied by
    if norm.weight is not None:
        asked = asked * norm.weight
    # What is the same at every position, such as the key's bias, does not change a softmax.
    visible = _seen_by_marker(attention, table)
    kept = dropout_mask((len(bits), heads, count), rate, table)
    mixed, total = _NoisyMix.apply(table, asked, ones, noise, kept, visible, norm.eps)  # type: ignore[no-untyped-call]
    if norm.weight is not None and norm.bias is not None:
        mixed = mixed * norm.weight + total[..., None] * norm.bias
    mixed = torch.einsum("bhw,hsw->bhs", mixed, value)
    if attention.value.bias is not None:
        mixed = mixed + attention.value.bias.unflatten(0, (heads, -1)) * total[..., None]
    return x, _joined(attention, mixed)


class _NoisyMix(torch.autograd.Function):
    """Sums of normalised vectors by attention: sum_j w_j N(x_j) without the norm's gain and bias, and sum_j w_j.

    x_j is the table's vector for the bit at j times its noise; N(x) = r (x - mean) with r = (variance + eps)^(-1/2), so
    that logits are r_j asked . (x_j - mean_j), and no normalised vector is ever made.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, asked: Tensor, ones: Tensor, noise: Tensor, kept: Tensor,
                visible: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:  # fmt: skip
        count, width = table.shape[1:]
        places = ones.int() * count + torch.arange(count, dtype=torch.int32, device=ones.device)
        x = F.embedding(places, table.flatten(0, 1)).mul_(noise)  # [string, position, width]
        x.sub_(x.mean(dim=-1, keepdim=True))
        factor = torch.linalg.vector_norm(x, dim=-1).square_().div_(width).add_(eps).rsqrt_()[:, None]  # [.., 1, pos]
        raw = asked @ x.transpose(1, 2)  # [string, head, position]
        scores = raw * factor
        if visible is not None:
            scores.masked_fill_(~visible, -math.inf)
        weights = scores.softmax(dim=-1)
        dropped = weights * kept
        mixed = (dropped * factor) @ x
        ctx.save_for_backward(asked, places, noise, kept, x, factor, raw, weights, dropped)
        return mixed, dropped.sum(dim=-1)

    @staticmethod
    def backward(ctx: Any, grad_mixed: Tensor, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        asked, places, noise, kept, x, factor, raw, weights, dropped = ctx.saved_tensors
        width = x.shape[-1]
        by_scaled = grad_mixed @ x.transpose(1, 2)  # of dropped * factor
        by_weights = (by_scaled * factor).add_(grad_total[..., None]).mul_(kept)
        by_scores = weights * by_weights
        by_scores.sub_(weights * by_scores.sum(dim=-1, keepdim=True))
        by_factor = by_scaled.mul_(dropped).add_(by_scores * raw).sum(dim=1)  # [string, position]
        by_raw = by_scores.mul_(factor)
        by_asked = by_raw @ x
        left = torch.cat([by_raw, dropped * factor], dim=1)  # [string, 2 * head, position]
        by_x = left.transpose(1, 2) @ torch.cat([asked, grad_mixed], dim=1)
        by_x.addcmul_(x, (by_factor * factor[:, 0] ** 3).mul_(-1 / width)[..., None])
        by_x.sub_(by_x.mean(dim=-1, keepdim=True)).mul_(noise)
        by_table = by_x.new_zeros(2 * x.shape[1], width).index_add_(0, places.flatten(), by_x.flatten(0, 1))
        return by_table.unflatten(0, (2, -1)), by_asked, None, None, None, None, None


def dropout_mask(shape: tuple[int, ...], rate: float, like: Tensor) -> Tensor:
    """0 with probability `rate`, else 1 / (1 - rate), each number by itself: what `nn.Dropout` multiplies by.

    A random byte decides, but for one of its 256 values, where another random number does: that is `rate` to the last
    digit, from an eighth of the random words that one number per entry takes.

    >>> _ = torch.manual_seed(0)
    >>> mask = dropout_mask((1000, 100), 0.1, torch.zeros(1))
    >>> sorted(set(mask.flatten().tolist())), round(float((mask == 0).float().mean()), 2)
    ([0.0, 1.1111111640930176], 0.1)
    """
    size = math.prod(shape)
    edge, rest = divmod(256 * rate, 1)
    words = torch.empty(-(-size // 8), dtype=torch.int64).random_(-(1 << 63), None)
    bytes_ = words.numpy().view(np.uint8)[:size]
    keep = np.multiply(bytes_ > edge, 1 / (1 - rate), dtype=np.float32 if like.dtype == torch.float32 else np.float64)
    doubtful = np.flatnonzero(bytes_ == edge)
    keep[doubtful] = (torch.rand(len(doubtful), dtype=torch.float64) >= rest).numpy() / (1 - rate)
    return torch.from_numpy(keep).view(shape).to(like)
