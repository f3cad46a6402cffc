"""How a model's outputs become one number per string."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError


@checked_arguments
def binary_logit(logits: Tensor) -> Float[Tensor, " string"]:
    """One number per string, positive for 1: the logit itself, or of two outputs that of 1 less that of 0."""
    if logits.ndim == 2 and logits.shape[1] == 2:
        return logits[:, 1] - logits[:, 0]
    if logits.ndim == 2 and logits.shape[1] == 1:
        return logits[:, 0]
    if logits.ndim != 1:
        shape = tuple(logits.shape)
        raise InputError(f"logits of shape {shape} are not one per string, [string], nor two, [string, 2]")
    return logits
