"""Further terms of the loss that a recipe may name (`flipscope.training.named`): functions of what is around, and of
settings of their own, that give the term."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from flipscope.training.fit import Term
from flipscope.training.measures import weights
from flipscope.training.named import Around


def norm(around: Around, positions: bool = False) -> Term:
    """The Euclidean norm of the parameters, without those of learned positions unless asked for."""

    def term(model: nn.Module, batch: tuple[Tensor, Tensor], outputs: Tensor) -> Tensor:
        return torch.stack([p.square().sum() for p in weights(model, positions)]).sum().sqrt()

    return term


BY_NAME: Mapping[str, Callable[..., Term]] = {"norm": norm}
