"""The configuration of an attention network of the sparse-variables paper, without PyTorch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from jaxtyping import Float64

from flipscope.basics.arguments import check_fields
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_memory

if TYPE_CHECKING:
    import torch

    from flipscope.models.attention_network import AttentionNetwork
    from flipscope.models.init import Scheme

KIND = "attention-network"  # its name in files

InputMapping = Literal["deterministic", "trainable", "bag"]
Activation = Literal["identity", "relu", "tanh"]  # Lipschitz with constant 1, and 0 at 0, as Def 3.2 requires
Basis = Literal["orthonormal", "random", "given"]
_CHOICES = {"mapping": get_args(InputMapping), "activation": get_args(Activation), "basis": get_args(Basis)}


@dataclass(frozen=True, kw_only=True)
class AttentionNetworkConfig:
    """The choices of `flipscope.models.attention_network.AttentionNetwork` (Def 3.2, § 4.3 and App. B.1).

    Bits become T + 1 vectors, [CLS] last. deterministic: x_t = v_t + E_b; trainable: the same with positions v_t that
    are parameters; bag: x_t = b v_t. The vectors that are no parameters are fixed by `basis`: "orthonormal" takes
    coordinates, "random" unit vectors from the `basis_seed` (orthogonal to E_0, E_1 and [CLS], but not to each other),
    "given" zeros for the caller to fill.

    >>> AttentionNetworkConfig(length=8, width=16).key_width
    16
    """

    length: int  # T: bits of the longest string
    width: int  # d
    head_size: int | None = None  # k; None: the width
    layers: int = 1
    heads: int = 1
    mapping: InputMapping = "deterministic"
    activation: Activation = "identity"
    normalise: bool = False  # project on the unit ball before the activation and after W_C, as § 4.3 does
    hidden: tuple[int, ...] = ()  # hidden widths of the MLP that reads [CLS] instead of a vector w (App. B)
    features: int | None = None  # coordinates of [CLS] that the MLP reads; None: all
    basis: Basis = "orthonormal"
    basis_seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("length", "width", "layers", "heads"):
            check_count(name, getattr(self, name))
        check_count("basis_seed", self.basis_seed, 0)
        for name in ("head_size", "features"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if not isinstance(self.hidden, tuple):
            raise InputError(f"hidden={self.hidden!r} must be a tuple of widths, such as (32, 16)")
        for width in self.hidden:
            check_count("hidden", width)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(f"{name}={getattr(self, name)!r} is not one of {', '.join(choices)}")
        if not isinstance(self.normalise, bool):
            raise InputError(f"normalise={self.normalise!r} must be True or False")
        if self.features is not None and (not self.hidden or self.features > self.width):
            raise InputError(f"features={self.features} are what an MLP reads of width={self.width}: give hidden too")
        least = self.special + (self.length if self._needs_room else 1)
        if self.width < least:
            what = f"{self.length} orthonormal positions" if self._needs_room else "positions"
            raise InputError(
                f"width={self.width} is too small for {what} and {self.special} vectors orthogonal to them: "
                f"give {least} or more" + (", or basis='random'" if self._needs_room else "")
            )

    @property
    def _needs_room(self) -> bool:
        return self.basis == "orthonormal" and self.mapping != "trainable"

    @property
    def special(self) -> int:
        """Vectors besides positions: [CLS], and of 0 and 1 unless bits scale their positions."""
        return 1 if self.mapping == "bag" else 3

    @property
    def key_width(self) -> int:
        """k: size of one head's query, key and value."""
        return self.width if self.head_size is None else self.head_size

    @property
    def read_width(self) -> int:
        """Coordinates of [CLS] that are read."""
        return self.width if self.features is None else self.features

    @property
    def max_length(self) -> int:
        """The longest string, under the same name as for transformers."""
        return self.length

    def numbers(self) -> int:
        """The number of entries of its tensors."""
        heads = self.layers * self.heads * 4 * self.width * self.key_width
        widths = (self.read_width, *self.hidden, 1)
        read = sum(before * after for before, after in itertools.pairwise(widths)) + sum(self.hidden)
        return (self.length + 3) * self.width + heads + read

    def multiplications(self, length: int) -> int:
        """Multiplications of one forward pass for a string of this length."""
        tokens = length + 1
        head = self.width * self.key_width
        inner = self.heads * (tokens * 4 * head + 2 * tokens**2 * self.width)
        return (self.layers - 1) * inner + self.heads * (4 * head + 2 * tokens * self.width) + self.numbers()

    def check_size(self, number: int = 4) -> None:
        """Raise InputError if the model does not fit into memory with this many bytes per number."""
        what = f"an attention network of width {self.width:,} for {self.length:,} bits"
        check_memory(number * self.numbers(), what, "make it smaller")

    def vectors(self) -> FixedVectors:
        """The fixed vectors: those of 0 and 1, of the positions and of [CLS]."""
        own = self.width - self.special
        last = np.eye(self.width)[own:]
        symbols = last[:2] if self.special == 3 else np.zeros((2, self.width))
        positions = np.zeros((self.length, self.width))
        if self._needs_room:
            positions[:, :own] = np.eye(self.length, own)
        elif self.basis == "random" and self.mapping != "trainable":
            drawn = np.random.default_rng(self.basis_seed).normal(size=(self.length, own))
            positions[:, :own] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        return FixedVectors(symbols, positions, last[-1])

    def as_dict(self) -> dict[str, Any]:
        """The fields as a JSON object, with the kind."""
        return {"kind": KIND, **dataclasses.asdict(self), "hidden": list(self.hidden)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> AttentionNetworkConfig:
        """The configuration with these fields, which must be exactly those of `as_dict`."""
        names = {"kind", *(field.name for field in dataclasses.fields(cls))}
        if set(fields) != names or fields["kind"] != KIND or not isinstance(fields["hidden"], list | tuple):
            raise InputError(f"the configuration of an attention network has the fields {', '.join(sorted(names))}")
        given = {name: value for name, value in fields.items() if name != "kind"}
        return cls(**{**given, "hidden": tuple(given["hidden"])})

    def network(
        self,
        *,
        scheme: Scheme = "pytorch",
        seed: int | np.random.Generator | None = 0,
        dtype: torch.dtype | None = None,
    ) -> AttentionNetwork:
        """The model, in float32 by default."""
        import torch

        from flipscope.models.attention_network import AttentionNetwork

        return AttentionNetwork(self, scheme=scheme, seed=seed, dtype=dtype or torch.float32)


@dataclass(frozen=True)
class FixedVectors:
    """The vectors of an input mapping: E_0 and E_1 (zeros for a bag), v_t (zeros if they are trained), [CLS]."""

    symbols: Float64[np.ndarray, "2 width"]
    positions: Float64[np.ndarray, "position width"]
    marker: Float64[np.ndarray, " width"]
