"""Temporarily moved parameters: the model computes with other numbers, and its own tensors are never written."""

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
    """Concatenated parameters of one device and number type."""

    part: slice  # position in the vector of all parameters
    base: Float[Tensor, " number"]  # their values, at least in float32
    moved: Float[Tensor, " number"]  # the moved values, in their own type


class MovableParameters:
    """A context in which parameters have the values ``base + delta``, where delta is one vector for all of them.

    Each parameter becomes a piece of one flat tensor, so a move takes two passes over the numbers. At the end it always
    gets its own tensor back, of which no bit has changed. The vector's order is that of `names`: parameters of one type
    and device are adjacent.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        kinds = list(dict.fromkeys((each.device, each.dtype) for each in parameters.values()))
        grouped = [
            [(name, each) for name, each in parameters.items() if (each.device, each.dtype) == kind] for kind in kinds
        ]
        self.names = tuple(name for group in grouped for name, _ in group)
        self.parameters = [each for group in grouped for _, each in group]
        self.count = 0  # total number of entries
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
        """Move the parameters to ``base + scale * delta``; None restores their values."""
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
        """Raise InputError if the size of a move is not representable in the parameters' types."""
        for group in self._groups:
            if value > torch.finfo(group.base.dtype).max:
                kind = str(group.base.dtype).removeprefix("torch.")
                raise InputError(f"{name}={value:g} is beyond {kind}, the parameters' type: take a smaller one")

    def check_moved(self, name: str, value: float) -> None:
        """Raise InputError if no parameter has changed because the move is lost in rounding."""
        if all(torch.equal(group.moved, group.base.to(group.moved)) for group in self._groups):
            raise InputError(f"{name}={value:g} is lost in rounding and moves no parameter: take a larger one")

    def sizes_of_numbers(self) -> Float32[Tensor, " number"]:
        """The absolute value of each number, for noise in proportion to it."""
        return torch.cat([group.base.abs().float().cpu() for group in self._groups])
