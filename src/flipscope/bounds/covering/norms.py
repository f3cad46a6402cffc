"""The norms that covering bounds depend on: given as numbers, or computed from matrices by name."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_numbers
from flipscope.basics.checks import check_not_negative
from flipscope.basics.errors import InputError
from flipscope.bounds.numerics import spectral_norm

_NAME = re.compile(r"(?:(?P<layer>\d+)\.)?(?:(?P<head>\d+)\.)?(?P<matrix>W_[QKVC])")
_GRID = 8  # norms of a trained model are rounded up to powers of 2^(1/8)
_LEAST = -100 * _GRID  # norms below 2^-100 are treated alike


@dataclass(frozen=True)
class MatrixNorms:
    """Norms of the matrix A of a map x -> A x.

    >>> MatrixNorms.of([[3.0, 4.0], [0.0, 0.0]]).total
    5.0
    """

    outputs: int  # d_2: rows of A
    spectral: float
    largest: float  # l2 norm of a row: (2, inf) of the transpose
    total: float  # of all rows: (2, 1) of the transpose

    def __post_init__(self) -> None:
        if self.outputs < 1:
            raise InputError(f"outputs={self.outputs} must be at least 1")
        for name in ("spectral", "largest", "total"):
            check_not_negative(f"the norm {name}", getattr(self, name))

    @classmethod
    @checked_arguments
    def of(cls, matrix: ArrayLike) -> MatrixNorms:
        """The norms of this matrix."""
        array = _matrix("a matrix", matrix)
        rows = np.linalg.norm(array, axis=1)
        return cls(len(array), spectral_norm(array), float(rows.max()), float(rows.sum()))

    @classmethod
    @checked_arguments
    def of_product(cls, left: ArrayLike, right: ArrayLike) -> MatrixNorms:
        """The norms of left @ right', without the product: [d, k] matrices have few columns.

        >>> rng = np.random.default_rng(0)
        >>> a, b = rng.normal(size=(2, 6, 3))
        >>> np.allclose(dataclasses.astuple(MatrixNorms.of_product(a, b)), dataclasses.astuple(MatrixNorms.of(a @ b.T)))
        True
        """
        # right = Q R with orthonormal columns of Q, which change no norm of a row.
        first, second = _matrix("a matrix", left), np.asarray(np.linalg.qr(_matrix("a matrix", right), mode="r"))
        if first.shape[1] != second.shape[1]:
            raise InputError(
                f"W_Q has {first.shape[1]} columns and W_K {second.shape[1]}: they must have the same number"
            )
        return cls.of(first @ second.T)


@dataclass(frozen=True)
class HeadNorms:
    """The maps of one head: z -> W_Q W_K' z, z -> W_V' z and, where there is W_C, z -> W_C' z."""

    score: MatrixNorms
    value: MatrixNorms
    mix: MatrixNorms | None = None

    @classmethod
    @checked_arguments
    def of(cls, query: ArrayLike, key: ArrayLike, value: ArrayLike, mix: ArrayLike | None = None) -> HeadNorms:
        """From W_Q, W_K, W_V [d, k] and W_C [k, d]."""
        mixing = None if mix is None else MatrixNorms.of(_matrix("W_C", mix).T)
        return cls(MatrixNorms.of_product(query, key), MatrixNorms.of(_matrix("W_V", value).T), mixing)


@dataclass(frozen=True)
class NetworkNorms:
    """All norms of a network of § 4.3: heads layer by layer, the read-out, and the vectors that go in.

    >>> from flipscope.bounds.covering import NetworkNorms
    >>> rng = np.random.default_rng(0)
    >>> matrices = {name: rng.normal(size=(4, 4)) for name in ("W_Q", "W_K", "W_V", "W_C")} | {"w": np.ones(4)}
    >>> NetworkNorms.from_matrices(matrices).readout
    2.0
    """

    layers: tuple[tuple[HeadNorms, ...], ...]
    readout: float = 1.0  # B_w
    radius: float = 1.0  # B_X: of the vectors of the first layer
    lipschitz: float = 1.0  # L_sigma; sigma(0) = 0
    normalised: bool = True  # projections on the unit ball, as in § 4.3
    mlp: tuple[MatrixNorms, ...] = ()  # of [W b], before w
    trained_positions: tuple[int, int, float] | None = None  # how many, their width and largest norm

    def __post_init__(self) -> None:
        if not self.layers or not all(self.layers):
            raise InputError("a network has at least one layer, and each layer at least one head: give their norms")
        for name in ("readout", "radius", "lipschitz"):
            check_not_negative(name, getattr(self, name))

    @classmethod
    @checked_arguments
    def uniform(
        cls, layers: int, width: int, *, spectral: float = 1.0, largest: float = 1.0, heads: int = 1, **other: float
    ) -> NetworkNorms:
        """The class of Thm 4.6: all spectral norms C_2, all rows of norm C_inf.

        >>> len(NetworkNorms.uniform(3, 64).layers)
        3
        """
        one = MatrixNorms(width, spectral, largest, width * largest)
        return cls(((HeadNorms(one, one, one),) * heads,) * layers, **other)  # type: ignore[arg-type]

    @classmethod
    @checked_arguments
    def from_matrices(cls, matrices: Mapping[str, ArrayLike], *, radius: float = 1.0, **other: float) -> NetworkNorms:
        """From matrices by name: W_Q, W_K, W_V, W_C of the first layer's first head, 2.W_Q of the second layer's,
        2.3.W_Q of its third head, and w; counted from 1.
        """
        heads: dict[tuple[int, int], dict[str, ArrayLike]] = {}
        readout = 1.0
        for name, matrix in matrices.items():
            if name == "w":
                readout = float(np.linalg.norm(_matrix(name, np.atleast_2d(as_numbers(matrix, name)))))
                continue
            match = _NAME.fullmatch(name)
            if match is None:
                raise InputError(
                    f"{name!r} is not the name of a matrix: use W_Q, 2.W_Q for layer 2, 2.3.W_Q for its head 3"
                )
            place = int(match["layer"] or 1), int(match["head"] or 1)
            heads.setdefault(place, {})[match["matrix"]] = _matrix(name, matrix)
        layers = []
        for layer in range(1, len({place for place, _ in heads}) + 1):
            of_layer = [heads.get((layer, head)) for head in range(1, sum(place == layer for place, _ in heads) + 1)]
            if not of_layer or any(each is None or len(each) != 4 for each in of_layer):
                raise InputError(f"layer {layer} lacks a matrix: every head has W_Q, W_K, W_V and W_C")
            layers.append(
                tuple(HeadNorms.of(*(each[f"W_{c}"] for c in "QKVC")) for each in of_layer if each is not None)
            )
        return cls(tuple(layers), readout=readout, radius=radius, **other)  # type: ignore[arg-type]

    def rounded_up(self) -> tuple[NetworkNorms, float]:
        """Norms from a grid that are no smaller, and ln of one over this class's share of the failure probability.

        A bound holds for norms that were fixed before the data were seen. Those of a trained model were not, so that
        the classes of the whole grid share delta, 1 / 3 (1 + |k|)^2 of it for the power k of each norm, which sums to
        less than 1.
        """
        price = 0.0

        def up(norm: float) -> float:
            nonlocal price
            power = max(_LEAST, math.ceil(_GRID * math.log2(norm) - 1e-9)) if norm else _LEAST
            price += math.log(3) + 2 * math.log1p(abs(power))
            return max(norm, float(2.0 ** (power / _GRID)))

        def matrix(norms: MatrixNorms) -> MatrixNorms:
            return MatrixNorms(norms.outputs, up(norms.spectral), up(norms.largest), up(norms.total))

        layers = tuple(
            tuple(
                HeadNorms(matrix(head.score), matrix(head.value), None if head.mix is None else matrix(head.mix))
                for head in heads
            )
            for heads in self.layers
        )
        positions, radius = self.trained_positions, self.radius
        if positions is not None:
            positions, radius = (*positions[:2], up(positions[2])), up(radius)
        out = dataclasses.replace(
            self,
            layers=layers,
            readout=up(self.readout),
            radius=radius,
            mlp=tuple(matrix(each) for each in self.mlp),
            trained_positions=positions,
        )
        return out, price


def _matrix(name: str, matrix: ArrayLike) -> NDArray[np.float64]:
    """The matrix as float64, after checking that it is a matrix."""
    array = as_numbers(matrix, name)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise InputError(f"{name} of shape {array.shape} must be a matrix of finite numbers")
    return array
