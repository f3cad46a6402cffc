"""The first layer at every token under every flip, with the MLP's first matrix in the tables too.

Under a flip, the attention output of a row is a mixture of few vectors (first_layer), and the norm before the MLP only
centres and scales it. So the product of the MLP's first matrix with that row is the same mixture of its products with
those vectors: the matrix is never multiplied by a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flipscope.flips.finish import PART_ROWS, Finish
from flipscope.flips.first_layer import FirstLayer, Tables
from flipscope.flips.rectified import Rectified, blocks_of
from flipscope.models.transformer import Block
from flipscope.native.compiled import Loop
from flipscope.native.simd import BLOCK
from flipscope.native.wide import TILE, mixtures, normalise, scale_and_rectify

MOST_HEADS = 16  # at 100 bits 16 heads gain 5 % or more (widths 64, 128), 32 heads lose 3-12 % (widths 128, 256)
WIDTH_OF_HEADS = 4  # narrower heads mix nearly as many vectors, 3 per head, as the product has terms
RECTIFIED_WIDTH = 128  # for narrower rows, transposing the units takes as long as skipping inactive ones saves


@dataclass(frozen=True)
class MixedTables:
    """The tables' vectors as inputs of the MLP, and their products with the MLP's first matrix."""

    finish: Finish
    rectified: Rectified | None
    vector: Float[Tensor, "row width"]
    value: Float[Tensor, "tile part size"]  # part: row, head
    matrix: Float[Tensor, "width hidden"]
    vector_up: Float[Tensor, "row hidden"]
    value_up: Float[Tensor, "tile_up part size"]
    bias: Float[Tensor, " hidden"]
    gain: Float[Tensor, " width"]
    shift: Float[Tensor, " width"]


def mixable(block: Block) -> bool:
    """Whether the layer is supported and mixing is faster than multiplying."""
    config = block.config
    fits = config.width % TILE == 0 and config.hidden_width % TILE == 0
    pays = config.heads <= min(MOST_HEADS, config.width // WIDTH_OF_HEADS)
    return Finish.supports(block) and fits and pays


def mixing_loops(block: Block, finish: Finish) -> list[Loop]:
    """The compiled loops that `mixed_states` may call for such a layer."""
    found = cast(list[Loop], [mixtures, scale_and_rectify]) + finish.loops()
    if finish.norm1 is not None:
        found.append(cast(Loop, normalise))
    return found + (Rectified.loops(mixed=True) if _leaves_units_out(block) else [])


def _leaves_units_out(block: Block) -> bool:
    return block.config.width >= RECTIFIED_WIDTH and Rectified.supports(block)


def make_mixed_tables(block: Block, tables: Tables, finish: Finish) -> MixedTables:
    """The tables of the first layer's mixtures, once per model and length."""
    norm, mlp, output = finish.norm1, block.mlp, block.attention.output
    assert mlp is not None
    vector = tables.vector if output is None or output.bias is None else tables.vector + output.bias
    vector, value = _seen(finish, vector), _seen(finish, tables.value.flatten(0, 1))
    gain, shift = torch.ones_like(vector[0]), torch.zeros_like(vector[0])
    if norm is not None and norm.weight is not None and norm.bias is not None:
        gain, shift = norm.weight.detach(), norm.bias.detach()
    matrix = (mlp.up.weight * gain).T.contiguous()
    bias = mlp.up.bias + mlp.up.weight @ shift
    tiles = (_tiles(value), _tiles(value @ matrix))
    rectified = Rectified(block, finish) if _leaves_units_out(block) else None
    return MixedTables(finish, rectified, vector, tiles[0], matrix, vector @ matrix, tiles[1], bias, gain, shift)


def _tiles(x: Float[Tensor, "part number"]) -> Float[Tensor, "tile part size"]:
    tiles: Tensor = x.unflatten(1, (-1, TILE)).transpose(0, 1).contiguous()
    return tiles


def _seen(finish: Finish, x: Tensor) -> Tensor:
    """The vectors, centred if a norm comes before the MLP, which would subtract the mean of every mixture."""
    return x if finish.norm1 is None else (x.double() - x.double().mean(dim=-1, keepdim=True)).float()


def _chosen(x: Tensor, flips: Tensor) -> Tensor:
    """Select flips, in increasing order, of x [..., flip]; consecutive flips are a slice, which copies nothing."""
    first, last = int(flips[0]), int(flips[-1]) + 1
    return x[..., first:last] if last - first == len(flips) else x[..., flips]


def mixed_states(tables: MixedTables, first: FirstLayer, flips: Tensor) -> Float[Tensor, "flip token width"]:
    """The first layer's output at every token, for each flip."""
    finish, tokens, count = tables.finish, first.tokens, len(flips)
    width, hidden_width = tables.matrix.shape
    # [3 head, token, flip] -> [token, flip, 3 head]
    parts = [_chosen(part, flips) for part in (first.keep, first.out, first.put)]
    shares = torch.cat(parts).permute(1, 2, 0).contiguous().numpy()
    heads = shares.shape[2] // 3
    if first.dominating is None:
        dominated = torch.zeros((tokens, count, heads), dtype=torch.bool, device="cpu").numpy()
    else:
        dominated = _chosen(first.dominating, flips).permute(1, 2, 0).contiguous().numpy()
    sums = first.sums if first.dominating is None else torch.cat([first.sums, first.rest_sums])
    sums = _seen(finish, sums.flatten(0, 1))  # [part, width]
    base, base_up = tables.vector[first.rows], tables.vector_up[first.rows]
    sums, sums_up = _tiles(sums), _tiles(sums @ tables.matrix)
    moved = _seen(finish, first.with_bias(first.flipped_vector[flips] + first.own[flips]))  # [flip, width]
    moved_up = moved @ tables.matrix
    old, new = (rows[flips].numpy() for rows in (first.rows[first.places], first.flipped_rows))
    places = first.places[flips]
    rectified = tables.rectified if count >= BLOCK else None
    if rectified is not None:  # rows with small changes are grouped together, and so are those with large ones
        order = first.felt(flips).argsort(dim=1).numpy()
    y = finish.space.take("y", tokens, count, width)
    z = torch.ones(tokens * count, dtype=torch.float32, device="cpu")
    block = max(1, PART_ROWS // count)
    for begin in range(0, tokens, block):
        end = min(begin + block, tokens)
        rows, scale = y[begin:end].flatten(0, 1), z[begin * count : end * count].numpy()
        units = finish.space.take("hidden", len(rows), hidden_width)
        some = (shares, dominated, old, new, begin, end)
        mixtures(base.numpy(), sums.numpy(), tables.value.numpy(), *some, rows.numpy())
        mixtures(base_up.numpy(), sums_up.numpy(), tables.value_up.numpy(), *some, units.numpy())
        own = ((places >= begin) & (places < end)).nonzero()[:, 0]
        at = (places[own] - begin) * count + own
        rows[at], units[at] = moved[own], moved_up[own]
        if finish.norm1 is not None:
            normalise(rows.numpy(), tables.gain.numpy(), tables.shift.numpy(), finish.norm1.eps, scale)
        scale_and_rectify(units.numpy(), scale, tables.bias.numpy(), finish.relu)
        if rectified is None:
            step = finish.space.take("step", len(rows), width)
            finish.add(rows, torch.mm(finish.activated(units), finish.down, out=step))
        else:
            numbers = np.arange(len(rows)).reshape(-1, count)  # [token, flip]
            rectified.add(rows, units, blocks_of(numbers, order[begin:end]))
    return finish.space.take("states", count, tokens, width).copy_(y.transpose(0, 1))
