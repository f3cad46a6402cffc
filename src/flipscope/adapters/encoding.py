"""How bits become a model's input.

"bits"      int64 zeros and ones, which are also the numbers of two tokens
"floats"    0.0 and 1.0 in the model's number type
"signs"     (-1)**bit, 1.0 for 0 and -1.0 for 1, in the model's number type
(t0, t1)    the token t0 for 0 and t1 for 1, int64
a function  of the int64 bits [string, position], which returns a tensor, a tuple of arguments or a dict of keywords
"auto"      bits if the model has an embedding, else floats
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from flipscope.basics.errors import InputError

Encoding: TypeAlias = Literal["auto", "bits", "floats", "signs"] | tuple[int, int] | Callable[[Tensor], Any]
NAMES = ("auto", "bits", "floats", "signs")


def check_encoding(encoding: Any) -> Encoding:
    """A valid encoding, with a pair of tokens as Python integers; InputError if it is invalid."""
    if callable(encoding) or (isinstance(encoding, str) and encoding in NAMES):
        found: Encoding = encoding
        return found
    if isinstance(encoding, tuple | list) and len(encoding) == 2:
        try:
            zero, one = (token.__index__() for token in encoding)
        except AttributeError:
            pass
        else:
            if zero == one or min(zero, one) < 0:
                raise InputError(f"encoding={encoding!r} must be two different tokens, numbers from 0 on")
            return zero, one
    raise InputError(
        f"encoding={encoding!r} is not one of {', '.join(NAMES)}, nor two token ids, nor a function of the bits"
    )


def looks_up(model: nn.Module) -> bool:
    """Whether the module has an embedding for integers."""
    return any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in model.modules())


def encoded(bits: Tensor, encoding: Encoding, dtype: torch.dtype | None) -> Any:
    """The model's input for int64 bits; "auto" must have been resolved before."""
    if callable(encoding):
        return encoding(bits)
    if isinstance(encoding, tuple):
        zero, one = encoding
        return zero + (one - zero) * bits
    if encoding == "bits":
        return bits
    numbers = bits.to(dtype or torch.float32)
    return numbers if encoding == "floats" else 1 - 2 * numbers


def encoding_name(encoding: Encoding) -> str:
    """The encoding in a word or two, for results and messages."""
    if callable(encoding):
        return "a function of bits"
    return f"tokens {encoding[0]} and {encoding[1]}" if isinstance(encoding, tuple) else encoding
