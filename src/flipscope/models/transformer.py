"""One transformer with explicit choices; equation numbers are those of the geometry paper (section 2.2).

    bits [string, position] -> embedding -> block 1 .. block L -> read-out -> logits [string]

Attention is written as matrix products and a softmax, because curvature differentiates twice through it and
probes look inside. The steps are methods of their own for the same reason: `Transformer.embed`, `encode` and
`read`, `Block.finish`, `Attention.split`, `scores`, `weights` and `mix`.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn
from torch.nn import functional as F

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.models.config import TransformerConfig
from flipscope.models.devices import in_float64
from flipscope.models.init import Linear, Lookup, Projection, Scheme, initialise
from flipscope.models.modes import differentiated_once
from flipscope.models.size import check_attention, check_model

Rows = slice | Tensor | None  # positions to compute; None is all of them


@functools.lru_cache(maxsize=8)
def _sinusoidal(count: int, width: int) -> Float64[np.ndarray, "position width"]:
    """Sine and cosine of position / 10000^(2i / width) at coordinates 2i and 2i + 1."""
    # In numpy, so that the cached array belongs to no device, mode or transform of torch.
    coordinate = np.arange(width)
    frequency = 10000.0 ** (-2 * (coordinate // 2) / width)
    angle = np.arange(count)[:, None] * frequency  # [position, width]
    return np.where(coordinate % 2 == 0, np.sin(angle), np.cos(angle))


@functools.lru_cache(maxsize=8)
def _sincos_2d(side: int, width: int) -> Float64[np.ndarray, "position width"]:
    """Sine and cosine of column and row, a quarter of the width each, at frequencies from 1 to 1/10000."""
    quarter = width // 4
    frequency = 10000.0 ** (-np.arange(quarter) / (quarter - 1))
    row, column = (each.reshape(-1, 1) * frequency for each in np.indices((side, side)))  # [position, quarter]
    return np.concatenate([np.sin(column), np.cos(column), np.sin(row), np.cos(row)], axis=1)


class LayerNorm(nn.Module):
    """Subtract the mean, divide by sqrt(biased variance + eps) (Eqs 11-13), then gain and bias if affine.

    With eps = 0 a vector of equal numbers, whose variance is zero, becomes the zero vector, its limit for
    eps -> 0; `normalizer` is infinite there, and no gradient flows back. Any other vector is normalised,
    however small its variance: it is brought to size one first, so that its squares do not underflow.
    """

    def __init__(self, width: int, eps: float, affine: bool) -> None:
        super().__init__()
        self.width = width
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(width)) if affine else None
        self.bias = nn.Parameter(torch.empty(width)) if affine else None

    def reset_parameters(self) -> None:
        """Gain 1 and bias 0."""
        if self.weight is not None and self.bias is not None:
            nn.init.ones_(self.weight)
            nn.init.zeros_(self.bias)

    def normalizer(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch"]:
        """1 / sqrt(variance + eps) of each vector, the z of Eq 12; infinite at zero variance and eps = 0."""
        wide = in_float64(x)
        variance = (wide - wide[..., :1]).var(dim=-1, correction=0)  # exactly 0 for equal numbers
        return torch.rsqrt(variance + self.eps).to(x)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """The normalised vectors (Eq 13)."""
        if self.eps == 0:
            y = _normalise_exactly(x)
        elif torch.is_grad_enabled() and not differentiated_once():
            # Step by step: torch.func silently computes wrong second derivatives of F.layer_norm.
            centred = x - x.mean(dim=-1, keepdim=True)
            y = centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + self.eps)
        else:
            return F.layer_norm(x, (self.width,), self.weight, self.bias, self.eps)
        return y if self.weight is None or self.bias is None else torch.addcmul(self.bias, y, self.weight)


def _normalise_exactly(x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
    """Layer norm with eps = 0: zero for vectors of equal numbers, else of mean 0 and variance 1."""
    # The result does not depend on shift and scale, so they are constants for the gradient too.
    centred = x - x[..., :1].detach()
    size = centred.detach().abs().amax(dim=-1, keepdim=True)
    flat = size == 0
    centred = centred / torch.where(flat, 1.0, size)
    centred = centred - centred.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return (centred * torch.rsqrt(variance + flat)).masked_fill(flat, 0.0)


class Attention(nn.Module):
    """All heads of one layer (Eq 8)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        inner = config.heads * config.key_width
        matrices = config.heads if config.combine == "sum" else 1
        heads = functools.partial(Projection, config.width, inner, packed=True, matrices=matrices)
        self.query = heads(bias=config.qkv_bias)
        self.key = heads(bias=config.qkv_bias)
        self.value = heads(bias=config.qkv_bias)
        self.output = None
        if config.combine == "project":
            self.output = Projection(inner, config.width, bias=config.output_bias, packed=False)
        self.log_gain = nn.Parameter(torch.empty(())) if config.learned_scale else None
        self.dropout = _dropout(config)

    def reset_parameters(self) -> None:
        """Reset the trained factor of the logit scale to exp(0); the projections reset themselves."""
        if self.log_gain is not None:
            nn.init.zeros_(self.log_gain)

    def forward(
        self,
        x: Float[Tensor, "string position width"],
        rows: Rows = None,
        keep: Bool[Tensor, "string position"] | None = None,
    ) -> Float[Tensor, "string row width"]:
        """The heads' contribution to each of the rows, from all positions that `keep` includes."""
        query = self.split(self.query(x if rows is None else x[:, rows]))
        key, value = self.split(self.key(x)), self.split(self.value(x))
        weights = self.weights(self.scores(query, key), self.visible(x, rows, keep))
        return self.mix(self.dropout(weights), value)

    def split(self, x: Float[Tensor, "string position inner"]) -> Float[Tensor, "string head position size"]:
        """Queries, keys or values head by head."""
        # [string, position, head * size] -> [string, position, head, size] -> [string, head, position, size]
        return x.reshape(*x.shape[:2], self.config.heads, self.config.key_width).transpose(1, 2)

    def scores(
        self, query: Float[Tensor, "string head row size"], key: Float[Tensor, "string head position size"]
    ) -> Float[Tensor, "string head row position"]:
        """Attention logits, scaled (Eq 8a)."""
        if query.device.type == "cpu":  # other devices have their own memory
            strings, _, rows, _ = query.shape
            check_attention(self.config, rows, key.shape[2], strings=strings, number=query.element_size())
        query = query * self.config.scale
        if self.log_gain is not None:
            query = query * self.log_gain.exp()
        # [string, head, row, size] x [string, head, size, position]
        return query @ key.transpose(-2, -1)

    def visible(
        self,
        x: Float[Tensor, "string position width"],
        rows: Rows = None,
        keep: Bool[Tensor, "string position"] | None = None,
    ) -> Bool[Tensor, "... row position"] | None:
        """Which positions each row may attend to; None is all."""
        mask = None
        if self.config.causal or self.config.mask_self:
            position = torch.arange(x.shape[1], device=x.device)
            row = (position if rows is None else position[rows])[:, None]  # [row, 1]
            mask = position <= row if self.config.causal else position != row  # [row, position]
        if keep is None:
            return mask
        kept = keep[:, None, None, :]  # [string, 1, 1, position]
        return kept if mask is None else mask & kept

    def weights(
        self,
        scores: Float[Tensor, "string head *row position"],
        visible: Bool[Tensor, "*mask"] | None = None,
    ) -> Float[Tensor, "string head *row position"]:
        """Attention weights: softmax of the logits (Eq 8b), their positive part, or the logits themselves."""
        if self.config.attention == "softmax":
            if visible is not None:
                # Not -inf: a padded position may see no position at all, and must not become NaN.
                scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
            return scores.softmax(dim=-1)
        weights = scores.relu() if self.config.attention == "relu" else scores
        return weights if visible is None else weights.masked_fill(~visible, 0.0)

    def mix(
        self,
        weights: Float[Tensor, "string head row position"],
        value: Float[Tensor, "string head position size"],
    ) -> Float[Tensor, "string row width"]:
        """Weighted sums of the values (Eq 8c), joined over the heads."""
        mixed = weights @ value  # [string, head, row, size]
        if self.output is None:
            return mixed.sum(dim=1)  # [string, row, width]
        # [string, head, row, size] -> [string, row, head * size] -> [string, row, width]
        joined: Tensor = self.output(mixed.transpose(1, 2).flatten(-2))
        return joined


class MLP(nn.Module):
    """W2 act(W1 y + phi1) + phi2 (Eq 10)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.up = Linear(config.width, config.hidden_width)
        self.down = Linear(config.hidden_width, config.width)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """The MLP at each position."""
        hidden: Tensor = self.up(x)  # [*batch, hidden]
        if self.activation == "relu":
            hidden = hidden.relu()
        else:
            hidden = F.gelu(hidden, approximate="tanh" if self.activation == "gelu_tanh" else "none")
        out: Tensor = self.down(hidden)
        return out


class Block(nn.Module):
    """One layer: attention, then everything that happens position by position.

    norm      standard block                                  sum block (Eq 9)
    none      y = x + A(x);        y + M(y)                   x + M(A(x))
    once      y = x + A(x);        N2(y + M(y))               N2(x + M(A(x)))      (Eqs 9-13)
    post      y = N1(x + A(x));    N2(y + M(y))
    pre       y = x + A(N1(x));    y + M(N2(y))               x + M(A(N1(x)))

    A standard block without MLP has no M and no norm for it; `once` keeps its norm at the end.
    """

    def __init__(self, config: TransformerConfig, has_mlp: bool) -> None:
        super().__init__()
        self.config = config
        norm = functools.partial(LayerNorm, config.width, config.eps, config.affine)
        self.attention = Attention(config)
        self.mlp = MLP(config) if has_mlp else None
        self.norm1 = norm() if config.norm in ("post", "pre") else None
        second = config.norm == "once" or (has_mlp and config.block == "standard")
        self.norm2 = norm() if config.norm != "none" and second else None
        self.dropout = _dropout(config)

    def forward(
        self,
        x: Float[Tensor, "string position width"],
        rows: Rows = None,
        keep: Bool[Tensor, "string position"] | None = None,
    ) -> Float[Tensor, "string row width"]:
        """The layer's output at the rows."""
        seen = self.norm1(x) if self.config.norm == "pre" and self.norm1 is not None else x
        mixed = self.attention(seen, rows, keep)
        return self.finish(x if rows is None else x[:, rows], mixed)

    def finish(
        self, x: Float[Tensor, "*batch width"], mixed: Float[Tensor, "*batch width"]
    ) -> Float[Tensor, "*batch width"]:
        """The layer's output for the input x and the result `mixed` of attention, position by position."""
        before, after = self.config.norm == "pre", self.config.norm in ("post", "once")
        if self.config.block == "sum":
            y = x
            step = mixed
        else:
            y = x + self.dropout(mixed)
            if self.config.norm == "post" and self.norm1 is not None:
                y = self.norm1(y)
            step = self.norm2(y) if before and self.norm2 is not None else y
        if self.mlp is not None:
            y = y + self.dropout(self.mlp(step))
        return self.norm2(y) if after and self.norm2 is not None else y


class Embedding(nn.Module):
    """Symbols (or patches), the marker and positions as vectors (Eq 7)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.patch: Linear | None = None
        self.patch_norm: LayerNorm | None = None
        self.patch_output_norm: LayerNorm | None = None
        symbols = config.vocabulary
        if config.inputs == "patches":
            symbols = 0
            self.patch = Linear(config.patch_width, config.symbol_width)
            if config.patch_norm:
                self.patch_norm = LayerNorm(config.patch_width, config.eps, affine=True)
            if config.patch_output_norm:
                self.patch_output_norm = LayerNorm(config.symbol_width, config.eps, affine=True)
        symbols += config.marker != "none"  # the marker is the last row of the table
        self.symbol = Lookup(symbols, config.symbol_width) if symbols else None
        self.position: Lookup | None = None
        if config.positions == "learned" and config.longest is not None:
            places = config.longest + (config.marker != "none")
            self.position = Lookup(places, config.position_width or config.width)
        self.norm = LayerNorm(config.width, config.eps, config.affine) if config.embedding_norm else None
        self.dropout = _dropout(config)

    def forward(self, inputs: Tensor) -> Float[Tensor, "string position width"]:
        """Vectors of all positions, the marker's included."""
        return self.place(self.patches(inputs) if self.patch is not None else self.symbols(inputs))

    def symbols(self, inputs: Tensor) -> Float[Tensor, "string position symbol_width"]:
        """The vectors of bits or tokens and of the marker, before positions."""
        assert self.symbol is not None
        numbers = inputs.long()
        if self.config.marker != "none":
            ends = (0, 1) if self.config.marker == "eos" else (1, 0)
            numbers = F.pad(numbers, ends, value=self.config.vocabulary)  # [string, position + 1]
        out: Tensor = self.symbol(numbers)
        return out

    def patches(
        self, images: Float[Tensor, "string channel height across"]
    ) -> Float[Tensor, "string position symbol_width"]:
        """The vectors of an image's patches, row by row, and of the marker, before positions."""
        assert self.patch is not None
        if self.config.shifted_patches:
            moves = ((1, -1, 0, 0), (-1, 1, 0, 0), (0, 0, 1, -1), (0, 0, -1, 1))
            images = torch.cat([images, *(F.pad(images, move) for move in moves)], dim=1)
        size = self.config.patch_size
        # [string, channel, height, across] -> [string, channel, down, p, right, p]
        cut = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
        # -> [string, down, right, p, p, channel] -> [string, down * right, p * p * channel]
        pixels = cut.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
        vectors: Tensor = self.patch(pixels if self.patch_norm is None else self.patch_norm(pixels))
        if self.patch_output_norm is not None:
            vectors = self.patch_output_norm(vectors)
        if self.symbol is None:
            return vectors
        marker = self.symbol.weight.expand(len(images), 1, -1)  # [string, 1, symbol_width]
        return torch.cat([vectors, marker] if self.config.marker == "eos" else [marker, vectors], dim=1)

    def place(self, symbols: Float[Tensor, "string position symbol_width"]) -> Float[Tensor, "string position width"]:
        """Symbols with their positions added or appended."""
        x = symbols
        if self.config.positions != "none":
            positions = self.positions(x.shape[1]).to(x)  # [position, position_width]
            appended = self.config.join == "concatenate"
            x = torch.cat([x, positions.expand(len(x), -1, -1)], dim=-1) if appended else x + positions
        if self.norm is not None:
            x = self.norm(x)
        out: Tensor = self.dropout(x)
        return out

    def positions(self, count: int) -> Float[Tensor, "position position_width"]:
        """The vectors of the first positions; those that are not learned are in float64."""
        width = self.config.position_width or self.config.width
        if self.position is not None:
            return self.position.weight[:count]
        if self.config.positions == "sinusoidal":
            return torch.from_numpy(_sinusoidal(count, width))
        if self.config.positions == "sincos_2d":
            return torch.from_numpy(_sincos_2d(math.isqrt(count), width))
        codes = torch.arange(count, device="cpu")  # one_hot and cyclic
        if self.config.period is not None:
            codes = codes % self.config.period
        return F.one_hot(codes, width).double()


class Transformer(nn.Module):
    """The transformer of a configuration, its parameters drawn by `initialise(self, scheme, seed)`.

    With seed=None its tensors have shapes but no data (PyTorch's meta device).

    >>> from flipscope.models import encoder
    >>> model = Transformer(encoder(width=16, layers=1), scheme="uniform", seed=1)
    >>> model(torch.tensor([[0, 1, 1], [1, 0, 0]])).shape  # one logit per string
    torch.Size([2])
    """

    @checked_arguments
    def __init__(
        self,
        config: TransformerConfig,
        *,
        scheme: Scheme = "pytorch",
        seed: int | np.random.Generator | None = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        if seed is not None:
            check_model(config, dtype.itemsize)
        with torch.device("meta" if seed is None else "cpu"):
            self.embedding = Embedding(config)
            self.blocks = nn.ModuleList(Block(config, i < config.mlp_count) for i in range(config.layers))
            self.final_norm = LayerNorm(config.width, config.eps, config.affine) if config.final_norm else None
            self.dense = Linear(config.width, config.width) if config.head == "tanh" else None
            self.dropout = _dropout(config)
            self.head = Linear(config.width, config.outputs, bias=config.head_bias)
        self.to(dtype)
        if seed is not None:
            initialise(self, scheme, seed)

    def forward(
        self, inputs: Tensor, keep: Bool[Tensor, "string position"] | None = None
    ) -> Float[Tensor, "string ..."]:
        """Logits [string], with a further axis for readout="every" and one for outputs > 1 (Eq 14).

        inputs: integers [string, position], or images [string, channel, height, width] for patches. keep:
        False at padding, by default where the input is the `padding` of the configuration. The last layer is
        computed only where it is read; `states` gives every position.
        """
        self.check(inputs, keep)
        x = self.embed(inputs)
        keep = self.kept(inputs, keep)
        if self.config.readout == "first" and (keep is None or bool(keep[:, 0].all())):
            return self.read(self.encode(x, keep, slice(0, 1)))
        if self.config.readout == "last" and keep is None:
            return self.read(self.encode(x, keep, slice(x.shape[1] - 1, x.shape[1])))
        return self.read(self.encode(x, keep), keep)

    def embed(self, inputs: Tensor) -> Float[Tensor, "string position width"]:
        """The first layer's input (Eq 7), the marker's position included."""
        out: Tensor = self.embedding(inputs)
        return out

    def encode(
        self,
        x: Float[Tensor, "string position width"],
        keep: Bool[Tensor, "string position"] | None = None,
        rows: Rows = None,
    ) -> Float[Tensor, "string row width"]:
        """The last layer's output at the rows, from the first layer's input."""
        for block in self.blocks[:-1]:
            x = block(x, None, keep)
        out: Tensor = self.blocks[-1](x, rows, keep)
        return out

    def states(
        self, inputs: Tensor, keep: Bool[Tensor, "string position"] | None = None
    ) -> list[Float[Tensor, "string position width"]]:
        """The first layer's input and each layer's output, at every position: layers + 1 tensors."""
        self.check(inputs, keep)
        states = [self.embed(inputs)]
        keep = self.kept(inputs, keep)
        for block in self.blocks:
            states.append(block(states[-1], None, keep))
        return states

    def read(
        self,
        x: Float[Tensor, "string row width"],
        keep: Bool[Tensor, "string position"] | None = None,
    ) -> Float[Tensor, "string ..."]:
        """Logits from the last layer's output, at every position or only at the one that is read (Eq 14)."""
        kind = self.config.readout
        if kind == "mean":
            if self.config.norm_before_mean and self.final_norm is not None:
                x = self.final_norm(x)
            if keep is not None:
                share = keep.to(x) / keep.sum(dim=1, keepdim=True) * keep.shape[1]  # [string, position]
                x = x * share[..., None]
            x = x.mean(dim=1)  # [string, width]
        elif kind != "every":
            if keep is None:
                x = x[:, 0] if kind == "first" else x[:, -1]  # [string, width]
            else:
                order = keep if kind == "first" else keep.flip(1)
                place = order.int().argmax(dim=1)  # of the first position kept, from that end
                place = place if kind == "first" else x.shape[1] - 1 - place
                x = x[torch.arange(len(x), device=x.device), place]  # [string, width]
        if self.final_norm is not None and not self.config.norm_before_mean:
            x = self.final_norm(x)
        if self.dense is not None:
            x = self.dropout(self.dense(x).tanh())
        logits: Tensor = self.head(x)  # [string, (position,) output]
        return logits.squeeze(-1) if self.config.outputs == 1 else logits

    def kept(
        self, inputs: Tensor, keep: Bool[Tensor, "string position"] | None = None
    ) -> Bool[Tensor, "string marked"] | None:
        """Which positions are no padding, the marker's included; None if all of them are kept."""
        if keep is None:
            keep = self._no_padding(inputs)
        return F.pad(keep, (1, 0), value=True) if keep is not None and self.config.marker == "cls" else keep

    def _no_padding(self, inputs: Tensor) -> Bool[Tensor, "string position"] | None:
        return None if self.config.padding is None else inputs != self.config.padding

    def count_parameters(self, *, positions: bool = True) -> int:
        """Number of parameters, with or without those of learned positions."""
        total = sum(parameter.numel() for parameter in self.parameters())
        if not positions and self.embedding.position is not None:
            total -= self.embedding.position.weight.numel()
        return total

    def check(self, inputs: Tensor, keep: Tensor | None = None) -> None:
        """Raise InputError unless the model can read these inputs."""
        config = self.config
        if not isinstance(inputs, Tensor):
            raise InputError(f"inputs must be a torch tensor, not {type(inputs).__name__}")
        if config.inputs == "patches":
            shape = (config.channels, config.image_size, config.image_size)
            if tuple(inputs.shape[1:]) != shape or not inputs.is_floating_point():
                raise InputError(
                    f"inputs of shape {tuple(inputs.shape)} and type {inputs.dtype} must be numbers "
                    f"[string, {', '.join(map(str, shape))}]"
                )
        else:
            self._check_symbols(inputs)
        places = (config.longest if config.inputs == "patches" else inputs.shape[1]) or 0
        if config.mask_self and places + (config.marker != "none") < 2:
            raise InputError("mask_self=True needs two positions or more: give longer strings")
        keep = self._no_padding(inputs) if keep is None else keep
        if keep is None:
            return
        if config.marker == "eos":
            raise InputError("keep does not go with marker='eos': put the end symbol into the tokens instead")
        if keep.dtype != torch.bool or tuple(keep.shape) != (len(inputs), places):
            raise InputError(
                f"keep of shape {tuple(keep.shape)} and type {keep.dtype} must be bool [{len(inputs)}, {places}]"
            )
        if not bool(keep.any(dim=1).all()):
            raise InputError("a string has no position but padding: drop that string")

    def _check_symbols(self, inputs: Tensor) -> None:
        """Raise InputError unless the inputs are symbols [string, position] of the vocabulary."""
        config = self.config
        if inputs.ndim != 2 or inputs.is_floating_point() or inputs.is_complex():
            raise InputError(
                f"inputs of shape {tuple(inputs.shape)} and type {inputs.dtype} must be integers [string, position]"
            )
        length = inputs.shape[1]
        if config.max_length is not None and length > config.max_length:
            raise InputError(f"strings of length {length} are longer than max_length={config.max_length}")
        if length == 0 and config.marker == "none":
            raise InputError("strings of length 0 leave the model nothing to read: give longer ones")
        if inputs.numel():
            low, high = int(inputs.min()), int(inputs.max())
            if low < 0 or high >= config.vocabulary:
                wrong = low if low < 0 else high
                raise InputError(f"inputs contain {wrong}, but symbols are 0 to {config.vocabulary - 1}")


def _dropout(config: TransformerConfig) -> nn.Module:
    """Dropout at the configured rate, or the identity."""
    return nn.Dropout(config.dropout) if config.dropout else nn.Identity()
