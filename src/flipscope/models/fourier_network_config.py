"""The configuration of the sharper-picture paper's network, without PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from flipscope.basics.arguments import check_fields
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_memory

if TYPE_CHECKING:
    import numpy as np
    import torch

    from flipscope.models.fourier_network import FourierNetwork
    from flipscope.models.init import Scheme

KIND = "fourier-network"  # its name in files

Readout = Literal["attention", "linear"]


@dataclass(frozen=True, kw_only=True)
class FourierNetworkConfig:
    """The choices of `flipscope.models.fourier_network.FourierNetwork` (App. B of paper 002).

    >>> FourierNetworkConfig(length=20, neurons=12).width  # 21 positions one-hot, and the bit
    22
    """

    length: int  # T: bits of a string
    neurons: int  # of the MLP
    code_width: int | None = None  # coordinates of positions; None: one-hot, while shorter codes belong to the model
    values: int = 1  # coordinates after those of positions, the first being the bit: one per degree
    heads: int = 1  # of the first layer
    read_heads: int = 1  # of the second
    readout: Readout = "attention"  # or "linear": a weight for each coordinate of each position (App. F.1)
    cyclic: bool = False  # positions have period T, and generated bits may follow the string (App. G)

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("length", "neurons", "values", "heads", "read_heads"):
            check_count(name, getattr(self, name))
        if self.code_width is not None:
            check_count("code_width", self.code_width)
        if self.readout not in get_args(Readout):
            raise InputError(f"readout={self.readout!r} is not one of {', '.join(get_args(Readout))}")
        if not isinstance(self.cyclic, bool):
            raise InputError(f"cyclic={self.cyclic!r} must be True or False")
        if self.cyclic and self.readout == "linear":
            raise InputError("readout='linear' has a weight for each position, and cyclic=True repeats them: give one")

    @property
    def positions(self) -> int:
        """Different positions: the string's and the one that is read, or the period."""
        return self.length if self.cyclic else self.length + 1

    @property
    def codes(self) -> int:
        """Coordinates of positions."""
        return self.positions if self.code_width is None else self.code_width

    @property
    def width(self) -> int:
        """d: coordinates of a token."""
        return self.codes + self.values

    @property
    def layers(self) -> int:
        """Layers of attention."""
        return 2 if self.readout == "attention" else 1

    @property
    def max_length(self) -> int:
        """The longest string, under the same name as for transformers."""
        return self.length

    def numbers(self) -> int:
        """The number of entries of its tensors."""
        d = self.width
        read = self.read_heads * (d * d + d) if self.readout == "attention" else self.positions * d
        return self.positions * self.codes + 2 * self.heads * d * d + self.neurons * (2 * d + 1) + read

    def multiplications(self, length: int) -> int:
        """Multiplications of one forward pass for a string of this length."""
        tokens, d = length + 1, self.width
        first = self.heads * (2 * tokens * d * d + 2 * tokens**2 * d)
        return first + 2 * tokens * d * self.neurons + self.read_heads * (d * d + 2 * tokens * d)

    def check_size(self, number: int = 4) -> None:
        """Raise InputError if the model does not fit into memory with this many bytes per number."""
        what = f"a Fourier network of width {self.width:,} for {self.length:,} bits"
        check_memory(number * self.numbers(), what, "make it smaller")

    def as_dict(self) -> dict[str, Any]:
        """The fields as a JSON object, with the kind."""
        return {"kind": KIND, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> FourierNetworkConfig:
        """The configuration with these fields, which must be exactly those of `as_dict`."""
        names = {"kind", *(field.name for field in dataclasses.fields(cls))}
        if set(fields) != names or fields["kind"] != KIND:
            raise InputError(f"the configuration of a Fourier network has the fields {', '.join(sorted(names))}")
        return cls(**{name: value for name, value in fields.items() if name != "kind"})

    def network(
        self,
        *,
        scheme: Scheme = "pytorch",
        seed: int | np.random.Generator | None = 0,
        dtype: torch.dtype | None = None,
    ) -> FourierNetwork:
        """The model, in float32 by default."""
        import torch

        from flipscope.models.fourier_network import FourierNetwork

        return FourierNetwork(self, scheme=scheme, seed=seed, dtype=dtype or torch.float32)
