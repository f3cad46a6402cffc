"""The size of a transformer from its configuration alone, so that one that is too large is never created."""

from __future__ import annotations

from flipscope.basics.limits import check_memory
from flipscope.models.config import TransformerConfig


def weights(config: TransformerConfig) -> int:
    """The number of entries of its matrices, which are nearly all its parameters."""
    symbols = config.patch_width if config.inputs == "patches" else config.vocabulary
    total = symbols * config.symbol_width + config.width * config.outputs
    if config.positions == "learned" and config.longest is not None:
        total += config.longest * (config.position_width or config.width)
    attention = (4 if config.combine == "project" else 3) * config.width * config.heads * config.key_width
    return total + config.layers * attention + config.mlp_count * 2 * config.width * config.hidden_width


def multiplications(config: TransformerConfig, length: int) -> int:
    """Multiplications of one forward pass for a string of this length, at every position of every layer."""
    tokens = length + (config.marker != "none")
    inner = config.heads * config.key_width
    attention = 4 * tokens * config.width * inner + 2 * tokens**2 * inner
    return config.layers * attention + config.mlp_count * tokens * 2 * config.width * config.hidden_width


def largest_activation(config: TransformerConfig, length: int) -> int:
    """Entries of the largest intermediate result of one forward pass for a string of this length."""
    tokens = length + (config.marker != "none")
    inner = config.heads * config.key_width
    return tokens * max(config.hidden_width, config.width, inner, config.heads * tokens)


def check_model(config: TransformerConfig, number: int = 4) -> None:
    """Raise InputError if the model does not fit into memory with this many bytes per number."""
    what = f"a transformer of width {config.width:,} and {config.layers:,} layers"
    check_memory(number * weights(config), what, "make it smaller")


def check_attention(config: TransformerConfig, rows: int, tokens: int, *, strings: int = 1, number: int = 4) -> None:
    """Raise InputError if the attention logits of one layer, `rows` times all tokens, do not fit into memory."""
    need = number * strings * config.heads * rows * tokens
    check_memory(need, f"attention between {tokens:,} tokens", "give shorter strings")
