"""Parameters moved for a while: the model computes with other numbers, and its own are never written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from flipscope.basics.errors import InputError


@dataclass(frozen=True)
class _Group:
    """Parameters of one device and number type, one after the other."""

    part: slice  # of the vector of all
    base: Float[Tensor, " number"]  # where they are, at least in float32
    moved: Float[Tensor, " number"]  # where they are taken, in their own type


class MovableParameters:
    """A context in which parameters stand at ``base + delta``, delta being one vector for all of them.

    Each parameter is given a piece of one flat tensor, which costs two passes over the numbers for a move, and gets its
    own tensor back at the end whatever happens, so that not a bit of it has changed. The vector's order is that of
    `names`: parameters of one type and device stand together.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        kinds = list(dict.fromkeys((each.device, each.dtype) for each in parameters.values()))
        grouped = [
            [(name, each) for name, each in parameters.items() if (each.device, each.dtype) == kind] for kind in kinds
        ]
        self.names = tuple(name for group in grouped for name, _ in group)
        self.parameters = [each for group in grouped for _, each in group]
        self.count = 0  # of numbers
        self._own = [each.data for each in self.parameters]
        self._pieces: list[Tensor] = []
        self._groups: list[_Group] = []
        for group in grouped:
            flat = torch.cat([each.detach().reshape(-1) for _, each in group])
            wide = flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
            moved = flat.clone()
            self._groups.append(_Group(slice(self.count, self.count + len(flat)), wide, moved))
            pieces = moved.split([each.numel() for _, each in group])
            self._pieces += [piece.view(each.shape) for piece, (_, each) in zip(pieces, group, strict=True)]
            self.count += len(flat)

    def __enter__(self) -> MovableParameters:
        for parameter, piece in zip(self.parameters, self._pieces, strict=True):
            parameter.data = piece
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for parameter, own in zip(self.parameters, self._own, strict=True):
            parameter.data = own

    def to(self, delta: Float[Tensor, " number"] | None, scale: float = 1.0) -> None:
        """Move the parameters to ``base + scale * delta``; None is back to where they were."""
        for group in self._groups:
            if delta is None:
                group.moved.copy_(group.base)
                continue
            step = delta[group.part].to(group.base)
            if group.base.dtype == group.moved.dtype:
                torch.add(group.base, step, alpha=scale, out=group.moved)
            else:
                group.moved.copy_(torch.add(group.base, step, alpha=scale))

    def check_size(self, name: str, value: float) -> None:
        """Raise InputError if the size of a move is no number of the parameters' types."""
        for group in self._groups:
            if value > torch.finfo(group.base.dtype).max:
                kind = str(group.base.dtype).removeprefix("torch.")
                raise InputError(f"{name}={value:g} is beyond {kind}, the parameters' type: take a smaller one")

    def check_moved(self, name: str, value: float) -> None:
        """Raise InputError if all parameters are where they were, for a move of a size that rounding swallows."""
        if all(torch.equal(group.moved, group.base.to(group.moved)) for group in self._groups):
            raise InputError(f"{name}={value:g} is lost in rounding and moves no parameter: take a larger one")

    def sizes_of_numbers(self) -> Float32[Tensor, " number"]:
        """The absolute value of each number, for noise in proportion to it."""
        return torch.cat([group.base.abs().float().cpu() for group in self._groups])
