"""Fast logits of flipscope's transformer for training: the same numbers up to rounding, with less work.

First layer: its input at a position is one of two vectors, one per bit, so queries, keys and values are computed for
these two and then looked up; for short strings, without gradients, the logits of all pairs of them too. Last layer: one
position is read, so keys and values need not be computed at all, since q . (W_K x_j) = (W_K' q) . x_j and
sum_j a_j W_V x_j = W_V sum_j a_j x_j. Between them attention uses PyTorch's fused kernel, which has no second
derivatives on the CPU: code that differentiates twice calls the model itself.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from flipscope.models.marker import MarkerLogits, reads_marker
from flipscope.models.transformer import Attention, Block, Transformer
from flipscope.models.unmodified import difference


def logits_for(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function from bits to the model's logits, once differentiable: the fast one if it applies, else the model.

    It applies to an unmodified `Transformer` on bits that is read at its first or last position, without padding or
    trained logit scales. With dropout the model itself is called, except for one layer read at the marker
    (`flipscope.models.marker`), which has its own implementation.
    """
    if not isinstance(model, Transformer) or difference(model) is not None:
        return model
    config = model.config
    ends = config.readout in ("first", "last") and config.inputs == "bits"
    if not ends or config.learned_scale:
        return model
    if reads_marker(model):
        return MarkerLogits(model)
    if config.dropout:
        return lambda bits: model(bits) if model.training else _quick_logits(model, bits)
    return lambda bits: _quick_logits(model, bits)


def _quick_logits(model: Transformer, bits: UInt8[Tensor, "string position"]) -> Float[Tensor, "string ..."]:
    """The same as `model(bits)`."""
    model.check(bits)
    both = torch.arange(2, dtype=torch.uint8, device=bits.device)[:, None].expand(2, bits.shape[1])
    table = model.embed(both)  # [2, position, width]: all bits 0, all bits 1; the marker is in both
    places = _places(model, bits, table.shape[1])
    if len(model.blocks) == 1:
        x = F.embedding(places, table.flatten(0, 1))
    else:
        x = _first_block(_block(model, 0), table.flatten(0, 1), places)
        for number in range(1, len(model.blocks) - 1):
            block = _block(model, number)
            seen = _seen(block, x)
            x = block.finish(x, _attend(block.attention, *_project(block.attention, seen)))
    block = _block(model, -1)
    row = 0 if model.config.readout == "first" else x.shape[1] - 1
    read = block.finish(x[:, row], _attend_once(block.attention, _seen(block, x), row))
    return model.read(read[:, None])


def _block(model: Transformer, number: int) -> Block:
    block = model.blocks[number]
    assert isinstance(block, Block)
    return block


def _seen(block: Block, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
    """The input of attention: the layer's input, normalised if the norm comes first."""
    return block.norm1(x) if block.config.norm == "pre" and block.norm1 is not None else x


def _places(model: Transformer, bits: Tensor, count: int) -> Int64[Tensor, "string position"]:
    """For each string and position, including the marker's, the table's row with its vector."""
    before = int(model.config.marker == "cls")
    rows = F.pad(bits.long(), (before, count - bits.shape[1] - before))
    return rows * count + torch.arange(count, device=bits.device)


def _first_block(
    block: Block, table: Float[Tensor, "row width"], places: Int64[Tensor, "string position"]
) -> Float[Tensor, "string position width"]:
    """The first layer's output, from the possible vectors of its input."""
    if _is_table_small(block, places.shape[1]):
        return block.finish(F.embedding(places, table), _attend_by_table(block.attention, _seen(block, table), places))
    parts = (table, *_project(block.attention, _seen(block, table)))
    x, query, key, value = F.embedding(places, torch.cat(parts, dim=1)).split([p.shape[1] for p in parts], dim=-1)
    return block.finish(x, _attend(block.attention, query, key, value))


def _is_table_small(block: Block, count: int) -> bool:
    """Whether strings are short enough to use a table of all attention logits; only without gradients."""
    config = block.config
    plain = config.attention == "softmax" and not config.causal and not config.mask_self
    return plain and not torch.is_grad_enabled() and config.heads * count <= config.width


def _attend_by_table(
    attention: Attention, seen: Float[Tensor, "row width"], places: Int64[Tensor, "string position"]
) -> Float[Tensor, "string position width"]:
    """The heads' contribution to every position of the first layer, from the logits of all pairs of vectors.

    These and the projected values are computed once; each string only needs the softmax, and all together one product.
    """
    heads, count = attention.config.heads, places.shape[1]
    query, key, value = (part.unflatten(-1, (heads, -1)).transpose(0, 1) for part in _project(attention, seen))
    scores = (query * attention.config.scale) @ key.transpose(-2, -1)  # [head, row, bit * position]
    by_row = scores.transpose(0, 1).flatten(1)  # [row, head * bit * position]
    both = F.embedding(places, by_row).unflatten(-1, (heads, 2, count))  # [string, position, head, bit, other]
    ones = (places >= count)[:, None, None, :]
    weights = torch.where(ones, both[..., 1, :], both[..., 0, :]).softmax(dim=-1)  # [string, position, head, other]
    if attention.output is not None:
        # [head, row, size] x [head, size, width]
        value = value @ attention.output.weight.unflatten(1, (heads, -1)).permute(1, 2, 0)
    zero, one = value.unflatten(1, (2, count)).unbind(dim=1)  # [head, other, width] each
    mixed: Tensor = weights.flatten(0, 1).flatten(1) @ zero.flatten(0, 1)  # [string * position, width]
    mixed.addmm_((weights * ones).flatten(0, 1).flatten(1), (one - zero).flatten(0, 1))
    if attention.output is not None and attention.output.bias is not None:
        mixed += attention.output.bias
    return mixed.view(*places.shape, -1)


def _project(
    attention: Attention, seen: Float[Tensor, "*batch width"]
) -> tuple[Float[Tensor, "*batch inner"], Float[Tensor, "*batch inner"], Float[Tensor, "*batch inner"]]:
    """Queries, keys and values."""
    return attention.query(seen), attention.key(seen), attention.value(seen)


def _attend(
    attention: Attention,
    query: Float[Tensor, "string position inner"],
    key: Float[Tensor, "string position inner"],
    value: Float[Tensor, "string position inner"],
) -> Float[Tensor, "string position width"]:
    """The heads' contribution to every position."""
    visible, config = attention.visible(query), attention.config
    query, key, value = attention.split(query), attention.split(key), attention.split(value)
    if config.attention != "softmax":
        return attention.mix(attention.weights(attention.scores(query, key), visible), value)
    by_head = F.scaled_dot_product_attention(query, key, value, visible, scale=config.scale)
    if attention.output is None:
        return by_head.sum(dim=1)
    joined: Tensor = attention.output(by_head.transpose(1, 2).flatten(-2))
    return joined


def _attend_once(
    attention: Attention, x: Float[Tensor, "string position width"], row: int
) -> Float[Tensor, "string width"]:
    """The heads' contribution to one position, without keys and values of the others."""
    heads, size = attention.config.heads, attention.config.key_width
    query = attention.query(x[:, row]).unflatten(-1, (heads, size)) * attention.config.scale
    key, value = (part.weight.unflatten(0, (heads, size)) for part in (attention.key, attention.value))
    scores = torch.einsum("bhs,hsw->bhw", query, key) @ x.transpose(1, 2)  # [string, head, position]
    if attention.key.bias is not None:
        scores = scores + (query * attention.key.bias.unflatten(0, (heads, size))).sum(dim=-1, keepdim=True)
    visible = attention.visible(x, slice(row, row + 1))  # [1, position] or None
    weights = attention.weights(scores, visible)
    mixed = torch.einsum("bhw,hsw->bhs", weights @ x, value)
    if attention.value.bias is not None:
        mixed = mixed + attention.value.bias.unflatten(0, (heads, size)) * weights.sum(dim=-1, keepdim=True)
    joined: Tensor = mixed.sum(dim=1) if attention.output is None else attention.output(mixed.flatten(1))
    return joined
