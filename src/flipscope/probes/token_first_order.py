"""A first-order estimate of token sensitivity: what the gradient of the margin says, exact for linear models.

Noise of standard deviation sigma on token tau moves a margin f by a normal number of standard deviation
sigma |grad_tau f|, to first order: the answer changes with probability Phi(-|f| / (sigma |grad_tau f|)). It costs
one gradient per input in place of a row per token and draw. How wrong it is, the sampled rows tell.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from flipscope.adapters.outputs import binary_logit, numbers
from flipscope.basics.errors import InputError
from flipscope.models.devices import in_float64
from flipscope.probes.token_site import TokenSite

_MORE_MEMORY = 4  # times that of a forward, for what a backward pass keeps


def first_order_changes(site: TokenSite, std: float, normalise: bool) -> Float64[np.ndarray, "input token"]:
    """The estimated probability that noise on each token changes the answer.

    The margin is the distance of the logit from the threshold, or of the largest logit from the second largest.
    """
    from scipy.special import ndtr

    site.settled.needed_module("first_order differentiates")
    step = max(1, site.batch // _MORE_MEMORY)
    found = np.zeros((site.count, site.layout.tokens))
    for index in np.array_split(np.arange(site.count), -(-site.count // step)):
        seen = _Leaf()
        with torch.enable_grad():
            margins = _margins(site, numbers(_read(site, site.raw(index, seen))))
            if not margins.requires_grad:
                raise InputError("first_order needs a model that PyTorch can differentiate")
            (slope,) = torch.autograd.grad(margins.sum(), seen.tensor)
        reach = std * _token_norms(site, slope)
        if normalise:
            sizes = site.layout.sizes.double()
            reach = reach * _token_norms(site, seen.tensor.detach()) / sizes.sqrt()
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = margins.detach().abs().cpu().double().numpy()[:, None] / reach.numpy()
        found[index] = ndtr(-np.where(np.isnan(ratio), np.inf, ratio))
    return found


class _Leaf:
    """A change that makes the tensor with the tokens one to differentiate by."""

    tensor: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        self.tensor = x.detach().requires_grad_(True)
        return self.tensor


def _read(site: TokenSite, raw: object) -> object:
    return site.settled.chosen_part(raw)


def _margins(site: TokenSite, found: Tensor) -> Tensor:
    """How far each input is from another answer, [input]."""
    if found.ndim == 2 and found.shape[1] > 2:
        best = found.topk(2, dim=1).values
        return best[:, 0] - best[:, 1]
    value = binary_logit(found) - site.settled.threshold
    return value * torch.where(value.detach() > 0, 1.0, -1.0)


def _token_norms(site: TokenSite, values: Tensor) -> Float64[Tensor, "input token"]:
    """The Euclidean norm of each token's numbers."""
    flat = in_float64(values.flatten(1)).cpu().square()
    where = site.layout.token_of.expand_as(flat)
    return flat.new_zeros(len(flat), site.layout.tokens).scatter_add(1, where, flat).sqrt()
