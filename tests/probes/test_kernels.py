"""Kernels on the cube: printed numbers, a slow recursion by matrices of tokens, and laws of their eigenvalues."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from flipscope.basics.errors import InputError
from flipscope.probes.kernels import (
    CubeKernel,
    Kind,
    chain_holds,
    eigenvalues_by_degree,
    kernel_matrix,
    mlp_kernel,
    monomial_check,
    transformer_kernel,
)
from flipscope.probes.sampled_kernels import finite_kernel, sampled_kernel

Matrix = NDArray[np.float64]


def digits(values: Any, count: int) -> list[str]:
    return [mpmath.nstr(mpmath.mpf(value), count) for value in values]


# ---------------------------------------------------------------- numbers worked out elsewhere


def test_values_at_three_bits() -> None:
    assert [round(float(each), 6) for each in transformer_kernel(3).values] == [1, 0.658655, 0.371666, 0.136419]
    tangent = transformer_kernel(3, kind="ntk").values
    assert [round(float(each), 6) for each in tangent] == [4.357143, 2.401845, 1.090389, 0.272837]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (
            transformer_kernel(6),
            ["0.544783", "0.0710262", "0.00190794", "1.88303e-5", "3.5151e-6", "1.70452e-6", "1.13026e-6"],
        ),
        (
            transformer_kernel(6, kind="ntk"),
            ["1.71664", "0.285036", "0.0204727", "0.00144392", "0.000845448", "0.000684309", "0.000608554"],
        ),
        (transformer_kernel(10, 4), ["0.610795", "0.034834", "0.000814571", "2.96904e-5"]),
    ],
    ids=["ck 6", "ntk 6", "ck 10, depth 4"],
)
def test_eigenvalues(kernel: CubeKernel, expected: list[str]) -> None:
    assert digits(kernel.eigenvalues()[: len(expected)], 6) == expected


# ---------------------------------------------------------------- a slow recursion


def slow_embedding(x: Matrix, y: Matrix, embedding: str, tokens: int) -> Matrix:
    """kappa_ij of two strings of signs, from the vectors that tokens are embedded as."""

    def vectors(signs: Matrix) -> Matrix:
        if embedding == "printed":
            return signs.reshape(tokens, -1) / math.sqrt(len(signs) / tokens)
        bits, eye = (np.arange(2) == (signs[:, None] < 0)).astype(float), np.eye(len(signs))
        if embedding == "slot":
            return np.einsum("ib,ij->ijb", bits, eye).reshape(len(signs), -1)
        return np.concatenate([bits, eye], axis=1) / math.sqrt(2)

    found: Matrix = vectors(x) @ vectors(y).T
    return found


def arc_cosine(kernel: Matrix, variance: float) -> tuple[Matrix, Matrix]:
    angle = np.arccos(np.clip(np.round(kernel / variance, 13), -1, 1))
    return variance * (np.sin(angle) + (math.pi - angle) * np.cos(angle)) / math.pi, (math.pi - angle) / math.pi


def slow_attention(kappa: Matrix, theta: Matrix, attention: str) -> tuple[Matrix, Matrix]:
    """The sums over all tokens, pair by pair."""
    tokens = len(kappa)
    if attention == "linear":
        square, mixed = (kappa**2).sum() / tokens**2, (kappa * theta).sum() / tokens**2
        return kappa * square, 4 * kappa * square + theta * square + 2 * kappa * mixed
    output, tangent = np.zeros_like(kappa), np.zeros_like(kappa)
    for a, b, i, j in itertools.product(range(tokens), repeat=4):
        value, slope = arc_cosine(kappa[a, b] * kappa[i, j], 1.0)
        output[a, b] += kappa[i, j] * value / tokens**2
        through_scores = (kappa[a, b] + theta[a, b]) * kappa[i, j] + kappa[a, b] * (kappa[i, j] + theta[i, j])
        tangent[a, b] += (2 * kappa[i, j] + theta[i, j]) * value / tokens**2
        tangent[a, b] += kappa[i, j] * slope * through_scores / tokens**2
    return output, tangent


def slow_kernel(
    x: Matrix,
    y: Matrix,
    depth: int = 1,
    kind: str = "ck",
    attention: str = "linear",
    readout: str = "flat",
    embedding: str = "slot",
    tokens: int = 0,
) -> float:
    """The kernel of two strings, by matrices of all pairs of tokens of x and y, of x alone and of y alone."""
    pairs = {"xy": (x, y), "xx": (x, x), "yy": (y, y)}
    state = {}
    for name, (first, second) in pairs.items():
        kappa = slow_embedding(first, second, embedding, tokens)
        if readout == "cls":
            kappa = np.pad(kappa, (0, 1))
            kappa[-1, -1] = 1
        state[name] = (kappa, kappa)

    def normed(now: dict[str, tuple[Matrix, Matrix]]) -> dict[str, tuple[Matrix, Matrix]]:
        deviation = {each: np.sqrt(np.diag(now[each * 2][0])) for each in "xy"}
        return {
            name: tuple(part / np.outer(deviation[name[0]], deviation[name[1]]) for part in now[name])  # type: ignore[misc]
            for name in now
        }

    for _ in range(depth):
        ready = normed(state)
        for name, (kappa, theta) in ready.items():
            output, tangent = slow_attention(kappa, theta, attention)
            state[name] = (state[name][0] + output, state[name][1] + tangent)
        ready = normed(state)
        for name, (kappa, theta) in ready.items():
            value, slope = arc_cosine(kappa, 1.0)
            state[name] = (state[name][0] + value, state[name][1] + value + slope * (theta + kappa))
    kappa, theta = normed(state)["xy"]
    chosen = kappa if kind == "ck" else kappa + theta
    read = {"flat": np.trace(chosen) / len(chosen), "mean": chosen.mean(), "cls": chosen[-1, -1], "first": chosen[0, 0]}
    return float(read[readout])


@pytest.mark.parametrize("readout", ["flat", "mean", "cls"])
@pytest.mark.parametrize(("attention", "bits"), [("linear", 5), ("relu", 3)])
@pytest.mark.parametrize("kind", ["ck", "ntk"])
def test_three_numbers_do_the_work_of_matrices(kind: Any, attention: Any, bits: int, readout: Any) -> None:
    found = transformer_kernel(bits, 2, kind=kind, attention=attention, readout=readout)
    x = np.array([1.0, -1, -1, 1, 1])[:bits]
    for differing, value in enumerate(found.values):
        y = x * np.where(np.arange(bits) < differing, -1, 1)
        assert float(value) == pytest.approx(slow_kernel(x, y, 2, kind, attention, readout), rel=1e-6)


@pytest.mark.parametrize("readout", ["flat", "mean", "cls", "first"])
@pytest.mark.parametrize(("embedding", "tokens"), [("printed", 2), ("slot", None), ("shared", None)])
@pytest.mark.parametrize("kind", ["ck", "ntk"])
def test_matrices_of_all_pairs(kind: Any, embedding: Any, tokens: int | None, readout: Any) -> None:
    found = kernel_matrix(4, 2, embedding=embedding, tokens=tokens, kind=kind, readout=readout)
    assert found == pytest.approx(found.T, rel=1e-12)
    for first, second in ((0, 0), (3, 3), (0, 12), (0, 10), (5, 12), (15, 1)):
        x, y = (1.0 - 2.0 * ((string >> np.arange(4)) & 1) for string in (first, second))
        expected = slow_kernel(x, y, 2, kind, "linear", readout, embedding, tokens or 4)
        assert found[first, second] == pytest.approx(expected, rel=1e-6), (first, second)


def test_relu_attention_of_matrices_is_that_of_three_numbers() -> None:
    found = kernel_matrix(4, 1, embedding="slot", kind="ntk", attention="relu", readout="cls")
    assert found == pytest.approx(transformer_kernel(4, kind="ntk", attention="relu", readout="cls").matrix(), rel=1e-9)


# ---------------------------------------------------------------- eigenvalues and eigenfunctions


def test_eigenvalues_are_those_of_the_definition() -> None:
    kernel = transformer_kernel(5, 2, kind="ntk")
    strings = list(itertools.product((1, -1), repeat=5))
    for degree, found in enumerate(kernel.eigenvalues()):
        terms = (math.prod(x[:degree]) * kernel.values[x.count(-1)] for x in strings)
        assert float(found) == pytest.approx(float(mpmath.fsum(terms) / 32), rel=1e-12)


@settings(max_examples=25)
@given(
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from(["ck", "ntk"]),
    st.sampled_from(["linear", "relu"]),
    st.sampled_from(["flat", "mean", "cls"]),
)
def test_with_slots_the_chain_holds(bits: int, depth: int, kind: Any, attention: Any, readout: Any) -> None:
    kernel = transformer_kernel(bits, depth, kind=kind, attention=attention, readout=readout)
    mu = kernel.eigenvalues()
    assert min(mu) >= 0
    assert chain_holds(mu)
    assert sum(kernel.shares()) == pytest.approx(1)


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=9), st.data())
def test_the_gap_in_the_chain_is_an_eigenvalue_of_two_bits_fewer(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(values) - 3))
    mu, inner = eigenvalues_by_degree(values), eigenvalues_by_degree(values[1:-1])
    assert float(mu[k] - mu[k + 2]) == pytest.approx(float(inner[k]), abs=1e-12)


def test_a_function_of_the_distance_alone_gives_no_chain() -> None:
    # The sum of chi_U(x) chi_U(y) over all U of degree 4 is a kernel of the distance with one eigenvalue that is not 0.
    sums = [sum((-1) ** i * math.comb(j, i) * math.comb(6 - j, 4 - i) for i in range(5)) for j in range(7)]
    kernel = CubeKernel("ck", tuple(mpmath.mpf(each) for each in sums))
    assert digits(kernel.eigenvalues(), 6) == ["0.0", "0.0", "0.0", "0.0", "1.0", "0.0", "0.0"]
    check = monomial_check(kernel.matrix())
    assert check.one_eigenvalue_per_degree
    assert not check.chain


@pytest.mark.parametrize("kind", ["ck", "ntk"])
def test_the_printed_embedding_fails(kind: Kind) -> None:
    for readout in ("flat", "mean", "cls"):
        check = monomial_check(kernel_matrix(6, tokens=3, kind=kind, readout=readout))
        assert not check.eigenfunctions
        assert check.off_diagonal > 0.05
        assert not check.chain
        assert check.quotients[6] > check.quotients[4]


def test_the_printed_attention_sum_is_no_function_of_the_inner_product() -> None:
    x = np.ones(4)
    sums = []
    for y in (np.array([1.0, 1, -1, -1]), np.array([1.0, -1, 1, -1])):
        assert x @ y == 0
        sums.append(float((slow_embedding(x, y, "printed", 2) ** 2).sum()))
    assert sums == pytest.approx([4, 0])


def test_other_embeddings_and_read_outs() -> None:
    assert monomial_check(kernel_matrix(5, embedding="slot", kind="ntk")).one_eigenvalue_per_degree
    assert not monomial_check(kernel_matrix(5, embedding="shared")).eigenfunctions
    one_position = monomial_check(kernel_matrix(5, embedding="slot", readout="first"))
    assert one_position.eigenfunctions  # but x1 has another eigenvalue than x2
    assert not one_position.one_eigenvalue_per_degree


def test_mlp_kernels() -> None:
    for depth, kind, inputs in itertools.product((1, 3), ("ck", "ntk"), ("bits", "slot")):
        assert chain_holds(mlp_kernel(7, depth, kind=kind, inputs=inputs).eigenvalues())  # type: ignore[arg-type]
    cosines = 1 - 2 * np.arange(5) / 4
    value, slope = arc_cosine(cosines, 1.0)
    assert [float(each) for each in mlp_kernel(4).values] == pytest.approx(value.tolist(), abs=1e-7)
    tangent = mlp_kernel(4, kind="ntk").values
    assert [float(each) for each in tangent] == pytest.approx((value + cosines * slope).tolist(), abs=1e-7)
    assert [mlp_kernel(7).eigenvalues()[degree] for degree in (3, 5, 7)] == [0, 0, 0]
    slots = mlp_kernel(4, inputs="slot")
    assert [float(each) for each in slots.values] == pytest.approx(
        arc_cosine((1 + cosines) / 2, 1.0)[0].tolist(), abs=1e-7
    )


# ---------------------------------------------------------------- by sampling


@pytest.mark.parametrize("readout", ["flat", "cls"])
@pytest.mark.parametrize("attention", ["linear", "relu"])
def test_sampled_scores_agree_with_closed_forms(attention: Any, readout: Any) -> None:
    exact = transformer_kernel(3, kind="ntk", attention=attention, readout=readout)
    found = sampled_kernel(3, kind="ntk", attention=attention, readout=readout, draws=1000, confidence=0.9999)
    for truth, estimate in zip(exact.values, found.values, strict=True):
        assert estimate.low - 1e-3 <= truth <= estimate.high + 1e-3
        assert estimate.half_width < 0.1
    for truth, estimate in zip(exact.eigenvalues(), found.eigenvalues, strict=True):
        assert estimate.low - 1e-3 <= truth <= estimate.high + 1e-3


@pytest.mark.parametrize("kind", ["ck", "ntk"])
def test_softmax_networks_approach_the_sampled_limit(kind: Kind) -> None:
    limit = sampled_kernel(3, kind=kind, draws=1000)
    finite = finite_kernel(3, kind=kind, attention="softmax", width=48, heads=24, key_width=12, networks=16)
    linear = transformer_kernel(3, kind=kind)
    for each, found in zip(limit.values, finite.values, strict=True):
        assert found.value == pytest.approx(each.value, abs=0.06 * limit.values[0].value)
    assert (
        abs(float(linear.values[2]) - limit.values[2].value) > limit.values[2].half_width
    )  # which is not linear attention


@pytest.mark.parametrize("kind", ["ck", "ntk"])
def test_networks_converge_to_infinite_width(kind: Kind) -> None:
    limit = transformer_kernel(3, kind=kind).values
    reaches = []
    for width in (16, 64):
        sizes = {"width": width, "heads": width // 2, "key_width": width // 4}
        found = finite_kernel(3, kind=kind, networks=24, confidence=0.999, **sizes)
        for truth, estimate in zip(limit, found.values, strict=True):
            bias = limit[0] / width
            assert estimate.low - bias <= truth <= estimate.high + bias
        reaches.append(sum(estimate.half_width for estimate in found.values))
    assert 1.5 < reaches[0] / reaches[1] < 4  # as one over the root of the width: 2, more where tails are heavy


@pytest.mark.parametrize("readout", ["mean", "cls"])
def test_read_outs_of_networks(readout: Any) -> None:
    limit = transformer_kernel(3, 2, kind="ntk", readout=readout).values
    found = finite_kernel(3, 2, kind="ntk", readout=readout, width=64, heads=32, key_width=16, networks=12)
    for truth, estimate in zip(limit, found.values, strict=True):
        assert estimate.value == pytest.approx(float(truth), abs=0.08 * float(limit[0]))


def test_the_same_seed_gives_the_same_networks() -> None:
    sizes = {"width": 8, "heads": 2, "key_width": 2, "networks": 2}
    assert finite_kernel(2, seed=1, **sizes) == finite_kernel(2, seed=1, **sizes) != finite_kernel(2, seed=2, **sizes)
    assert sampled_kernel(2, draws=5, repeats=2, seed=1) == sampled_kernel(2, draws=5, repeats=2, seed=1)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: transformer_kernel(500), "bits=500 is too large"),
        (lambda: transformer_kernel(3, 0), "depth must be a whole number of at least 1"),
        (lambda: kernel_matrix(11), "bits=11 is too large for a matrix"),
        (lambda: kernel_matrix(6, tokens=4), "tokens=4 does not divide bits=6"),
        (lambda: kernel_matrix(6, embedding="slot", tokens=3), "tokens has no meaning"),
        (lambda: monomial_check(np.eye(3)), "matrix of shape (3, 3)"),
        (lambda: monomial_check(np.eye(4), -1.0), "tolerance=-1.0 must be a number of at least 0"),
        (lambda: eigenvalues_by_degree([1.0]), "values needs an entry for each of 0, 1, ..., d"),
        (lambda: eigenvalues_by_degree([1.0, "a"]), "values must be a sequence of numbers"),
        (lambda: CubeKernel("ck", (1.0, math.nan)), "values must be finite numbers"),
        (lambda: sampled_kernel(50), "bits=50 is too large"),
        (lambda: sampled_kernel(3, repeats=1), "repeats must be a whole number of at least 2"),
        (lambda: finite_kernel(3, width=10**9), "would take"),
    ],
)
def test_what_is_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert said in str(caught.value)
