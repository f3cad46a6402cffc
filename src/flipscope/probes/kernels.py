"""Conjugate kernel (CK) and neural tangent kernel (NTK) of infinitely wide networks on the cube (paper 004, section 3).

    >>> kernel = transformer_kernel(3, kind="ntk")
    >>> [round(float(value), 6) for value in kernel.values]  # at 0, 1, 2, 3 differing bits
    [4.357143, 2.401845, 1.090389, 0.272837]
    >>> [round(float(value), 6) for value in kernel.eigenvalues()]  # of monomials of degree 0, 1, 2, 3
    [1.888335, 0.67447, 0.142218, 0.018742]

The recursion. kappa_ij is the covariance of token i of x and token j of y, Theta_ij the same for their gradients. A
block is x + attention(norm(x)), then x + dense(ReLU(dense(norm(x)))), and a norm comes before the read-out:

    attention  K_ab = sum of kappa_ij E[w_ai w_bj] / T^2, by Gaussian scores of covariance kappa_ab kappa_ij; linear
               weights give kappa_ab times the sum of kappa_ij^2 (Thm B.1 with its slips corrected); T tokens
    dense      K = kappa, Theta += kappa
    ReLU       with He's factor: K = v J1(kappa / v), Theta = Theta J0(kappa / v), v the variance of a token
    norm       both divided by the variance
    residual   both added

The embedding is trained: Theta = kappa at the start. Scores are divided by the square root of the key width, attention
weights by T, and ReLU weights carry He's factor, so that variances stay of order 1.

The embedding. With a vector of its own for every pair of position and bit ("slot"), kappa_ij = [i = j] (1 + x_i y_i)/2,
and by induction kappa_ij = A(c) for i != j and P(c) + x_i y_i Q(c) for i = j, where c = <x, y> / d and A, P, Q are
power series with nonnegative coefficients. So three numbers per number of differing bits replace T x T matrices, the
kernel is a function of c, the monomials are its eigenfunctions, and its eigenvalues satisfy mu_k >= mu_(k+2). With the
embedding that paper 004 prints, x cut into T tokens of d / T bits, none of this holds: `kernel_matrix` computes the
kernel for all pairs of strings, and `monomial_check` says what fails.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import mpmath
import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike, NDArray

from flipscope.basics.arguments import check_fields, checked_arguments
from flipscope.basics.bits import as_numbers, index_bits
from flipscope.basics.checks import check_count, check_not_negative
from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_memory

Kind: TypeAlias = Literal["ck", "ntk"]
Attention: TypeAlias = Literal["linear", "relu"]
Readout: TypeAlias = Literal["flat", "mean", "cls"]
Array: TypeAlias = NDArray[Any]  # of floats, or of mpmath's numbers

MAX_BITS = 400
MAX_MATRIX_BITS = 10  # 2^20 pairs of strings
_DIGITS = 50  # of an eigenvalue, besides those that the alternating sum may cancel
_NEAR_ONE = 1e-14  # a float correlation this close to 1 is 1: the square root in J1 would make 1e-7 of its rounding


# ---------------------------------------------------------------- kernels of the distance


@dataclass(frozen=True)
class CubeKernel:
    """A kernel that depends only on how many bits differ; ``values`` are numbers of mpmath, at 0, 1, ..., d of them."""

    kind: Kind
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "values", _checked_values(self.values))

    @property
    def bits(self) -> int:
        """Number of bits d."""
        return len(self.values) - 1

    def eigenvalues(self) -> tuple[Any, ...]:
        """mu_0, ..., mu_d as numbers of mpmath: of the monomials of each degree."""
        return eigenvalues_by_degree(self.values)

    def shares(self) -> tuple[float, ...]:
        """The contribution of each degree's monomials to the trace, C(d, k) mu_k over the kernel's value at x = y."""
        mu = self.eigenvalues()
        return tuple(float(math.comb(self.bits, k) * each / self.values[0]) for k, each in enumerate(mu))

    def matrix(self) -> Float64[np.ndarray, "string string"]:
        """The kernel of all pairs of strings, in the order of truth tables, for at most ten bits."""
        _check_matrix_bits(self.bits)
        strings = np.arange(1 << self.bits)
        values = np.array([float(value) for value in self.values])
        found: Float64[np.ndarray, "string string"] = values[np.bitwise_count(strings[:, None] ^ strings)]
        return found


@checked_arguments
def transformer_kernel(
    bits: int, depth: int = 1, *, kind: Kind = "ck", attention: Attention = "linear", readout: Readout = "flat"
) -> CubeKernel:
    """The kernel of a transformer with slot embedding, as a function of the number of differing bits.

    ``readout``: "flat" reads every position with weights of its own, "mean" the mean of all positions, "cls" an extra
    token that is the same for every input.

    >>> [round(float(value), 6) for value in transformer_kernel(3).values]
    [1.0, 0.658655, 0.371666, 0.136419]
    """
    bits, depth = _checked_size(bits, depth)
    with mpmath.workdps(_working_digits(bits)):
        tokens = transformed(slot_covariances(bits, readout), depth, elementwise_attention(attention))
        return CubeKernel(kind, tuple(tokens.read(kind)))


@checked_arguments
def mlp_kernel(bits: int, depth: int = 1, *, kind: Kind = "ck", inputs: Literal["bits", "slot"] = "bits") -> CubeKernel:
    """The kernel of an MLP with ``depth`` hidden ReLU layers, to compare with (Thm B.3, App. E).

    Its input is the d bits as -1 and 1, or the slots of a transformer, which act like a bias as large as the bits.

    >>> [round(float(value), 6) for value in mlp_kernel(3).eigenvalues()]  # nothing at odd degrees above 1
    [0.377122, 0.166667, 0.040959, 0.0]
    """
    bits, depth = _checked_size(bits, depth)
    with mpmath.workdps(_working_digits(bits)):
        cosines = np.array([1 - 2 * mpmath.mpf(count) / bits for count in range(bits + 1)], object)[:, None]
        start = cosines if inputs == "bits" else (1 + cosines) / 2
        one = np.ones_like(start)
        layer = Covariances(start, 0 * start, one, one, 1, lambda kernel: kernel[0, 0])
        for _ in range(depth):
            layer = layer.dense().relu()
        return CubeKernel(kind, tuple(layer.read(kind)))


@checked_arguments
def eigenvalues_by_degree(values: Sequence[Any]) -> tuple[Any, ...]:
    """mu_k = 2^-d sum_j Psi_j sum_i (-1)^i C(k, i) C(d - k, j - i), where Psi_j is the value at j differing bits.

    The sum cancels, so mpmath computes it. An eigenvalue that mpmath's rounding cannot distinguish from 0 is 0; if the
    values are floats, their own rounding remains.

    >>> [float(each) for each in eigenvalues_by_degree([1.0, 0.0, 0.0])]  # a kernel that tells all strings apart
    [0.25, 0.25, 0.25]
    """
    bits = len(values) - 1
    with mpmath.workdps(_working_digits(bits)):
        kernel = _checked_values(values)
        rounding = max(map(abs, kernel)) * mpmath.mpf(10) ** (8 - mpmath.mp.dps)
        sums = (mpmath.fsum(a * b for a, b in zip(kernel, row, strict=True)) for row in _krawtchouk_rows(bits))
        return tuple(mu if abs(mu) > rounding else mpmath.mpf(0) for mu in (total / 2**bits for total in sums))


@checked_arguments
def chain_holds(eigenvalues: Sequence[Any], tolerance: float = 0.0) -> bool:
    """Whether mu_0 >= mu_2 >= ... and mu_1 >= mu_3 >= ..., as Prop 3.1 states, up to a tolerance.

    >>> chain_holds([3, 1, 2, 1]), chain_holds([3, 1, 2, 1.5])
    (True, False)
    """
    mu, tolerance = _numbers("eigenvalues", eigenvalues), check_not_negative("tolerance", tolerance)
    return all(later <= earlier + tolerance for earlier, later in zip(mu, mu[2:], strict=False))


# ---------------------------------------------------------------- kernels of all pairs of strings


@checked_arguments
def kernel_matrix(
    bits: int,
    depth: int = 1,
    *,
    embedding: Literal["printed", "slot", "shared"] = "printed",
    tokens: int | None = None,
    kind: Kind = "ck",
    attention: Attention = "linear",
    readout: Literal["flat", "mean", "cls", "first"] = "flat",
) -> Float64[np.ndarray, "string string"]:
    """The kernel of all pairs of strings of at most ten bits, in the order of truth tables, by T x T matrices.

    ``embedding``: "printed" divides the bits into ``tokens`` and applies one matrix to all of them, as paper 004 does;
    "slot" has a vector for each position and bit; "shared" adds a vector of the bit and one of the position.
    ``readout`` "first" reads the first position alone.

    >>> kernel_matrix(4, tokens=2)[0, [12, 10]].round(4).tolist()  # two strings that differ from 0000 in two bits each
    [0.1667, 0.1061]
    """
    bits, depth = _checked_size(bits, depth)
    _check_matrix_bits(bits)
    if tokens is not None and embedding != "printed":
        raise InputError(f'tokens has no meaning for embedding="{embedding}", where each bit is a token: leave it out')
    most = (tokens or bits) + (readout == "cls")
    entries = most**2 if attention == "linear" else most**4
    need = 8 * 4**bits * entries * 3  # kernel, tangent, and their input
    check_memory(need, f"a kernel of {bits} bits and {most} tokens", "give fewer bits or tokens")
    start = _embedded(bits, embedding, tokens)
    count = start.shape[-1]
    if readout == "cls":  # one token more, the same for every input
        start = np.pad(start, ((0, 0), (0, 0), (0, 1), (0, 1)))
        start[..., count, count] = 1.0
        count += 1
    weights = {
        "flat": np.eye(count) / count,
        "mean": np.full((count, count), 1 / count**2),
        "cls": np.diag([0.0] * (count - 1) + [1.0]),
        "first": np.diag([1.0] + [0.0] * (count - 1)),
    }[readout]
    kernel = start.reshape(1 << bits, 1 << bits, count * count)
    every = np.arange(1 << bits)

    def scale(kernel: Array) -> Array:
        deviations = np.sqrt(kernel[every, every, 0])  # all tokens of an input have one variance
        return np.asarray(deviations[:, None] * deviations)[..., None]

    covariances = Covariances(kernel, kernel, np.ones(count * count), weights.ravel(), count, scale)
    found: Float64[np.ndarray, "string string"] = transformed(
        covariances, depth, elementwise_attention(attention)
    ).read(kind)
    return found


@dataclass(frozen=True)
class MonomialCheck:
    """Properties of a kernel of all pairs of strings in the basis of monomials."""

    off_diagonal: float  # Frobenius norm of what lies off the diagonal in that basis, over that of the kernel
    spread: float  # largest difference of two quotients of one degree, over the largest quotient
    quotients: tuple[float, ...]  # E[chi_U(x) K(x, y) chi_U(y)], averaged over the U of each degree
    tolerance: float

    @property
    def eigenfunctions(self) -> bool:
        """Whether the monomials are eigenfunctions."""
        return self.off_diagonal <= self.tolerance

    @property
    def one_eigenvalue_per_degree(self) -> bool:
        """Whether the monomials are eigenfunctions and the eigenvalue depends only on the degree."""
        return self.eigenfunctions and self.spread <= self.tolerance

    @property
    def chain(self) -> bool:
        """Whether the averaged quotients satisfy mu_k >= mu_(k+2)."""
        return chain_holds(self.quotients, self.tolerance * max(self.quotients))


@checked_arguments
def monomial_check(matrix: ArrayLike, tolerance: float = 1e-9) -> MonomialCheck:
    """Whether the monomials are eigenfunctions of a kernel of all pairs of strings, in the order of truth tables.

    >>> monomial_check(transformer_kernel(4).matrix()).one_eigenvalue_per_degree
    True
    >>> monomial_check(kernel_matrix(4, tokens=2)).eigenfunctions  # as paper 004 embeds strings
    False
    """
    kernel = as_numbers(matrix, "matrix")
    size = len(kernel) if kernel.ndim else 0
    if kernel.ndim != 2 or kernel.shape[1] != size or size < 2 or size & (size - 1) or not np.isfinite(kernel).all():
        raise InputError(f"matrix of shape {kernel.shape} must be finite numbers for all pairs of the 2^d strings")
    tolerance = check_not_negative("tolerance", tolerance)
    strings = np.arange(size)
    characters = 1.0 - 2.0 * (np.bitwise_count(strings[:, None] & strings) & 1)
    rotated = characters @ kernel @ characters / size**2
    diagonal = np.diag(rotated)
    degrees = np.bitwise_count(strings)
    by_degree = [diagonal[degrees == degree] for degree in range(size.bit_length())]
    whole = float(np.linalg.norm(rotated)) or 1.0
    largest = float(np.abs(diagonal).max()) or 1.0
    return MonomialCheck(
        off_diagonal=float(np.linalg.norm(rotated - np.diag(diagonal))) / whole,
        spread=max(float(np.ptp(each)) for each in by_degree) / largest,
        quotients=tuple(float(each.mean()) for each in by_degree),
        tolerance=tolerance,
    )


def _embedded(bits: int, embedding: str, tokens: int | None) -> Array:
    """kappa_ij of all pairs of strings before the first block, [x, y, i, j]."""
    signs = 1.0 - 2.0 * index_bits(0, 1 << bits, bits)
    if embedding == "printed":
        count = check_count("tokens", bits if tokens is None else tokens)
        if bits % count:
            raise InputError(f"tokens={count} does not divide bits={bits}: tokens are of equal width")
        cut = signs.reshape(1 << bits, count, bits // count)
        return np.asarray(np.einsum("xik,yjk->xyij", cut, cut, optimize=True) / cut.shape[2])
    same_bit = (1 + np.einsum("xi,yj->xyij", signs, signs, optimize=True)) / 2
    own = np.eye(bits)
    return np.asarray(same_bit * own if embedding == "slot" else (same_bit + own) / 2)


# ---------------------------------------------------------------- the recursion


@dataclass(frozen=True)
class Covariances:
    """Covariances of pairs of tokens, one from each of two inputs, and of their gradients.

    The last axis holds distinct entries: ``counts`` is the number of pairs of tokens that share one, ``readout`` its
    weight in the read-out. ``scale`` computes the geometric mean of both inputs' variances from the kernel.
    """

    kernel: Array
    tangent: Array
    counts: Array
    readout: Array
    tokens: int
    scale: Callable[[Array], Any]

    def like(self, kernel: Array, tangent: Array) -> Covariances:
        """The same pairs of tokens with other covariances."""
        return Covariances(kernel, tangent, self.counts, self.readout, self.tokens, self.scale)

    def norm(self) -> Covariances:
        """After a layer norm."""
        scale = self.scale(self.kernel)
        return self.like(self.kernel / scale, self.tangent / scale)

    def dense(self) -> Covariances:
        """After a dense layer."""
        return self.like(self.kernel, self.kernel + self.tangent)

    def relu(self) -> Covariances:
        """After a ReLU with He's factor."""
        scale = self.scale(self.kernel)
        value, slope = relu_moments(self.kernel / scale)
        return self.like(scale * value, self.tangent * slope)

    def plus(self, branch: Covariances) -> Covariances:
        """With a branch added, as a residual connection does."""
        return self.like(self.kernel + branch.kernel, self.tangent + branch.tangent)

    def read(self, kind: Kind) -> Array:
        """The kernel of the output: of its features (CK), or with all weights trained, the read-out's too (NTK)."""
        entries = self.kernel if kind == "ck" else self.dense().tangent
        return np.asarray((self.readout * entries).sum(axis=-1))


AttentionLayer: TypeAlias = Callable[[Covariances], Covariances]


def slot_covariances(bits: int, readout: Readout, *, exact: bool = True) -> Covariances:
    """The slot embedding: rows are numbers of differing bits, in numbers of mpmath if exact, else in floats.

    Entries: A of different positions, P + Q of equal positions whose bits agree, P - Q of those whose bits differ;
    with a CLS token also that of CLS with any position, and that of CLS with itself.
    """
    differing = np.arange(bits + 1)
    every = np.ones_like(differing)
    counts = [bits * (bits - 1) * every, bits - differing, differing]
    start = [0, 1, 0]
    if readout == "cls":
        counts += [2 * bits * every, every]
        start += [0, 1]
    number = mpmath.mpf if exact else float
    table = np.array(
        [[number(int(each)) for each in row] for row in np.stack(counts, axis=1)], object if exact else float
    )
    kernel = np.array([[number(each) for each in start]] * (bits + 1), table.dtype)
    weights = {"flat": np.array([0, 1, 1]) * table[:, :3] / bits, "mean": table[:, :3] / bits**2}
    chosen = np.array([0, 0, 0, 0, 1]) * kernel[0, 1] * np.ones_like(kernel) if readout == "cls" else weights[readout]
    # Every token of every input has the variance of a token whose bits agree, seen where no bit differs.
    return Covariances(kernel, kernel, table, chosen, bits + (readout == "cls"), lambda kernel: kernel[0, 1])


def transformed(tokens: Covariances, depth: int, attend: AttentionLayer) -> Covariances:
    """The covariances after a number of blocks and the last norm."""
    for _ in range(depth):
        tokens = tokens.plus(attend(tokens.norm()))
        tokens = tokens.plus(tokens.norm().dense().relu().dense())
    return tokens.norm()


def elementwise_attention(activation: Attention) -> AttentionLayer:
    """Attention of infinitely many heads whose weights are the scores themselves, or a ReLU of them, over T.

    The tokens come from a norm, so that all variances are 1 and covariances of scores are correlations.
    """

    def linear(tokens: Covariances) -> Covariances:
        kernel, tangent, every = tokens.kernel, tokens.tangent, tokens.counts / tokens.tokens**2
        squares = (every * kernel**2).sum(axis=-1, keepdims=True)
        products = (every * kernel * tangent).sum(axis=-1, keepdims=True)
        output = kernel * squares
        return tokens.like(output, 4 * output + tangent * squares + 2 * kernel * products)

    def rectified(tokens: Covariances) -> Covariances:
        # One axis has the pairs of tokens ab whose outputs are compared, another the pairs ij that they attend to.
        own, own_tangent = tokens.kernel[..., :, None], tokens.tangent[..., :, None]
        other, other_tangent = tokens.kernel[..., None, :], tokens.tangent[..., None, :]
        values, slopes = relu_moments(own * other)

        def total(terms: Array) -> Array:
            return np.asarray((tokens.counts[..., None, :] * terms).sum(axis=-1) / tokens.tokens**2)

        output = total(values * other)  # also what training the output matrix adds to the tangent kernel
        through_values = total(values * (other + other_tangent))
        through_queries = total(slopes * other * (own + own_tangent) * other)
        through_keys = total(slopes * other * own * (other + other_tangent))
        return tokens.like(output, output + through_values + through_queries + through_keys)

    return linear if activation == "linear" else rectified


def relu_moments(correlation: Array) -> tuple[Array, Array]:
    """J1(r) and J0(r): E[f(g) f(h)] and E[f'(g) f'(h)], f = sqrt(2) ReLU, g and h standard normal of correlation r."""
    if correlation.dtype == object:
        r = np.frompyfunc(lambda each: min(mpmath.mpf(1), max(mpmath.mpf(-1), each)), 1, 1)(correlation)
        root, angle = np.frompyfunc(mpmath.sqrt, 1, 1), np.frompyfunc(mpmath.acos, 1, 1)
        pi = +mpmath.pi
    else:
        r = np.clip(np.where(np.abs(correlation) > 1 - _NEAR_ONE, np.sign(correlation), correlation), -1, 1)
        root, angle, pi = np.sqrt, np.arccos, math.pi
    slope = (pi - angle(r)) / pi
    return root(1 - r * r) / pi + r * slope, slope


# ---------------------------------------------------------------- checks and numbers


def _krawtchouk_rows(bits: int) -> list[list[int]]:
    """Coefficients of (1 - t)^k (1 + t)^(d - k) for k = 0..d: sums of a monomial of degree k over strings of j ones."""
    row = [math.comb(bits, ones) for ones in range(bits + 1)]
    rows = [row]
    for _ in range(bits):
        # Divide by 1 + t, which leaves no rest, and multiply by 1 - t.
        quotient = list(itertools.accumulate(row[:-1], lambda before, entry: entry - before))
        row = [a - b for a, b in zip([*quotient, 0], [0, *quotient], strict=True)]
        rows.append(row)
    return rows


def _numbers(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """The values as mpmath numbers; existing mpmath numbers keep all their digits."""
    try:
        numbers = tuple(each if isinstance(each, mpmath.mpf) else mpmath.mpf(each) for each in values)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a sequence of numbers") from None
    if not all(map(mpmath.isfinite, numbers)):
        raise InputError(f"{name} must be finite numbers")
    return numbers


def _checked_values(values: Sequence[Any]) -> tuple[Any, ...]:
    if len(values) < 2:
        raise InputError(f"values needs an entry for each of 0, 1, ..., d differing bits, d >= 1, got {len(values)}")
    return _numbers("values", values)


def _working_digits(bits: int) -> int:
    return _DIGITS + 2 * bits


def _checked_size(bits: int, depth: int) -> tuple[int, int]:
    if check_count("bits", bits) > MAX_BITS:
        raise InputError(f"bits={bits} is too large: kernels are computed for at most {MAX_BITS} bits")
    if check_count("depth", depth) > MAX_BITS:
        raise InputError(f"depth={depth} is too large: kernels are computed for at most {MAX_BITS} layers")
    return bits, depth


def _check_matrix_bits(bits: int) -> None:
    if bits > MAX_MATRIX_BITS:
        raise InputError(f"bits={bits} is too large for a matrix of all pairs of strings: at most {MAX_MATRIX_BITS}")
