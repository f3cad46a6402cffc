"""Lemmas B.2 to B.8: known numbers, every string of ten bits, random functions and bases, and the printed slips."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
from constructions.bases import outscoring, tilted
from hypothesis import given, settings
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.constructions.sparse_variables import construct, is_injective, is_monotone, is_symmetric, sparse_function
from flipscope.constructions.sparse_variables.bases import coherence, dual_vectors
from flipscope.constructions.sparse_variables.certify import certify
from flipscope.constructions.sparse_variables.functions import SparseFunction, patterns
from flipscope.constructions.sparse_variables.heads import spacing_of
from flipscope.constructions.sparse_variables.mlp import truncation_bound, value_network
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction
from flipscope.models import AttentionNetwork, AttentionNetworkConfig

AND = "x3 & x7 & x11"


def some_function(length: int, s: int, symmetric: bool, seed: int) -> SparseFunction:
    """A random function of s random bits."""
    stream = np.random.default_rng(seed)
    positions = tuple(sorted(stream.choice(length, s, replace=False).tolist()))
    values = np.zeros(1 << s, np.uint8)
    while values.min() == values.max():
        drawn = stream.integers(0, 2, s + 1 if symmetric else 1 << s)
        values = (drawn[patterns(s).sum(axis=1)] if symmetric else drawn).astype(np.uint8)
    return SparseFunction(length, positions, values)


def test_known_numbers() -> None:
    one = construct(parse("x3 & x7 & x11", 16), gamma=1, mlp=False)
    assert round(one.heads.scale, 6) == 4.852030
    assert math.isclose(one.error, 27 / 398, rel_tol=1e-12)
    long = construct(parse("x1 & x20 & x300 & x301 & x999", 1000), gamma=0.4)
    assert round(long.heads.scale, 6) == 9.903488
    assert round(long.error, 7) == 0.0197137
    for length in (11, 200):
        f = parse(AND, length)
        assert math.isclose(construct(f, "bag", gamma=1 / 3).error, 3 / 73, rel_tol=1e-12)
        assert math.isclose(construct(f, "bag", gamma=1 / 3, general=True).error, 1 / 73, rel_tol=1e-12)


@pytest.mark.parametrize("length", [12, 100])
@pytest.mark.parametrize("gamma", [1.0, 0.3])
def test_closed_forms_of_the_error(length: int, gamma: float) -> None:
    f, s = parse(AND, length), 3
    grown = 8 * length / gamma  # e^R
    for mapping in ("deterministic", "trainable"):
        one = construct(f, mapping, gamma=gamma, mlp=False).error
        assert math.isclose(one, (2 * (length - s) + 1) / (s * grown + length + 1 - s), rel_tol=1e-12)
        each = construct(f, mapping, heads=3, gamma=gamma, mlp=False).error
        assert math.isclose(each, (2 * length - 1) / (grown + length), rel_tol=1e-12)
    bag = construct(f, "bag", gamma=gamma, mlp=False).error
    assert math.isclose(bag, s / (8 * s / gamma + 1), rel_tol=1e-12)


@pytest.mark.parametrize("mapping", ["deterministic", "trainable", "bag"])
@pytest.mark.parametrize("s", range(1, 7))
def test_every_construction_on_all_strings_of_ten_bits(mapping: str, s: int) -> None:
    for symmetric in (True, False):
        for heads in {1, s}:
            f = some_function(10, s, symmetric, seed=s)
            built = construct(f, mapping, heads=heads)  # type: ignore[arg-type]
            found = built.enumerate()
            assert found.error <= built.gamma / 4
            assert math.isclose(found.error, built.error, rel_tol=0, abs_tol=1e-12)
            assert found.answer_error is not None
            assert found.answer_error <= 1e-9
            assert all(norm.holds for norm in built.norms), built.norms
            assert all(norm.actual <= norm.printed * (1 + 1e-12) for norm in built.norms if norm.printed is not None)
            symmetric_target = built.route in ("mean", "bag") and s > 1
            assert is_injective(built.heads.target, spacing_of(built.route, s)) != symmetric_target
            assert abs(built.heads.target).max() <= built.heads.bound
            widths = (4 * (s + 1), 2 * (s + 1)) if built.route in ("mean", "bag") else (4 * s * 2**s, 2 * 2**s)
            assert built.hidden == ((4 * 2**s,) if built.route == "powers" else widths)


def test_targets_are_as_monotone_as_the_lemmas_say() -> None:
    for s in range(1, 7):
        f = some_function(8, s, True, seed=s)
        for mapping in ("deterministic", "bag"):
            built = construct(f, mapping)
            gamma = spacing_of(built.route, s)
            assert is_monotone(built.heads.target, gamma)
            assert not is_monotone(built.heads.target, 1.01 * gamma)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(0, 10_000),
    st.sampled_from(["deterministic", "bag"]),
    st.booleans(),
    st.booleans(),
    st.integers(6, 40),
)
def test_random_functions_on_random_bases(
    s: int, seed: int, mapping: str, symmetric: bool, single: bool, room: int
) -> None:
    f = some_function(8, s, symmetric, seed)
    width = room + (1 if mapping == "bag" else 3)
    refused = ""
    try:
        built = construct(f, mapping, heads=1 if single else s, basis="random", width=width, seed=seed)  # type: ignore[arg-type]
    except InputError as error:
        refused = str(error)
    if refused:
        assert "gap" in refused
        return
    found = built.enumerate()
    assert math.isclose(found.error, built.error, rel_tol=0, abs_tol=1e-12)
    assert built.error <= built.gamma / 4
    assert found.answer_error is not None
    assert found.answer_error <= 1e-9
    assert all(norm.holds for norm in built.norms)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["deterministic", "trainable", "bag"]), st.integers(1, 2))
def test_the_certificate_is_right_for_weights_of_any_kind(seed: int, mapping: str, heads: int) -> None:
    config = AttentionNetworkConfig(length=6, width=9, mapping=mapping, heads=heads, head_size=2)  # type: ignore[arg-type]
    model = config.network(scheme="gaussian", seed=seed, dtype=torch.float64)
    if mapping != "bag":  # keys must not see the bits themselves
        with torch.no_grad():
            for head in model.heads(0):
                head.key -= model.inputs.symbols.T @ (model.inputs.symbols @ head.key)
            if mapping == "trainable":
                model.inputs.positions[:, -3:] = 0
    target = np.random.default_rng(seed).normal(size=(4, 3))
    found = certify(model, (1, 4), target)
    bits = torch.from_numpy(patterns(6))
    with torch.no_grad():
        output = model.attend(bits)[:, :3].numpy()
    farthest = abs(output - target[patterns(6)[:, 1] + 2 * patterns(6)[:, 4]]).max()
    assert farthest <= found.error + 1e-12
    if found.exact:
        assert math.isclose(farthest, found.error, rel_tol=1e-12)
        at = torch.from_numpy(found.strings)
        with torch.no_grad():
            reached = abs(model.attend(at)[:, :3].numpy() - target[(at[:, 1] + 2 * at[:, 4]).numpy()]).max()
        assert math.isclose(reached, found.error, rel_tol=1e-12)


def exact_heads(model: AttentionNetwork, string: np.ndarray, numbers: int) -> list[Decimal]:
    """What [CLS] holds, in fractions but for exp, which has 60 digits."""

    def fractions(array: np.ndarray | torch.Tensor) -> list[list[Fraction]]:
        return [[Fraction(float(each)) for each in row] for row in np.atleast_2d(np.asarray(array))]

    def dot(first: list[Fraction], second: list[Fraction]) -> Fraction:
        return sum((a * b for a, b in zip(first, second, strict=True)), Fraction())

    def decimal(number: Fraction) -> Decimal:
        return Decimal(number.numerator) / Decimal(number.denominator)

    symbols, own = fractions(model.inputs.symbols), fractions(model.inputs.positions.detach())
    (marker,) = fractions(model.inputs.marker)
    rows = [
        [bit * each for each in row] if model.inputs.is_bag else [a + b for a, b in zip(row, symbols[bit], strict=True)]
        for row, bit in zip(own, string.tolist(), strict=True)
    ]
    rows.append(marker)
    found = [Decimal()] * numbers
    with localcontext(prec=60):
        for head in model.heads(0):
            query, key, value, mix = (
                fractions(getattr(head, name).detach()) for name in ("query", "key", "value", "mix")
            )
            asked = [dot(list(column), marker) for column in zip(*query, strict=True)]
            direction = [dot(row, asked) for row in key]
            logits = [dot(row, direction) for row in rows]
            weights = [decimal(each - max(logits)).exp() for each in logits]
            for number in range(numbers):
                out = [dot(row, [each[number] for each in mix]) for row in value]
                brought = [decimal(dot(row, out)) for row in rows]
                mean = sum(w * v for w, v in zip(weights, brought, strict=True)) / sum(weights)
                found[number] += mean
    return found


def leaning(s: int, gap: float, seed: int) -> np.ndarray:
    """s orthonormal vectors, turned, and one more whose logit is below theirs by the gap."""
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(s + 1, s + 1)))[0]
    share = (1 - gap) / s
    plain = np.vstack([np.eye(s, s + 1), [share] * s + [math.sqrt(1 - s * share**2)]])
    turned = plain @ turn
    return np.asarray(turned / np.linalg.norm(turned, axis=1, keepdims=True))


@pytest.mark.parametrize("mapping", ["deterministic", "bag"])
@pytest.mark.parametrize("gap", [2e-11, 1e-9, 1e-6, 0.1])
def test_the_certificate_is_rounded_outwards(mapping: str, gap: float) -> None:
    """Logits are of the order 1/gap, and their rounding with them: the truth, in fractions, is not above it."""
    s = 12
    for seed in range(4):
        basis = leaning(s, gap, seed)
        f = SparseFunction(s + 1, tuple(range(s)), (patterns(s).sum(axis=1) % 2).astype(np.uint8))
        built = construct(f, mapping, basis=basis, mlp=False)  # type: ignore[arg-type]
        assert built.heads.gap == pytest.approx(gap, rel=1e-3)
        number = built.heads.target.shape[1]
        truth = Decimal()
        for string in np.unique(built.certificate.strings, axis=0):
            pattern = int(string[:s] @ (1 << np.arange(s)))
            wanted = [Decimal(float(each)) for each in built.heads.target[pattern]]
            heads = exact_heads(built.model, string, number)
            truth = max(truth, *(abs(a - b) for a, b in zip(heads, wanted, strict=True)))
        assert truth <= Decimal(built.error)
        # And what is added is no more than rounding can do: without it the strings are the worst there are.
        assert Decimal(built.error) - truth <= 2 * Decimal(built.certificate.rounding)
        assert built.certificate.rounding <= 1e-13 / gap


def test_a_string_that_gives_no_number_is_not_exact() -> None:
    built = construct(parse(AND, 11))
    with torch.no_grad():
        built.model.heads(0)[0].mix[0, 0] = math.nan
    found = built.enumerate()
    assert math.isnan(found.error)
    assert found.answer_error is not None
    assert math.isnan(found.answer_error)
    assert built.as_json()["exact"] is False


def test_printed_heads_fail_on_bases_that_are_nearly_orthonormal_and_ours_do_not() -> None:
    f = parse("x1 & x2 & x3", 12)
    for delta, error in ((0.05, 0.2206), (0.1, 0.4286)):
        printed = construct(f, basis=tilted(12, delta), gamma=1, mlp=False, as_printed=True)
        assert round(printed.error, 4) == error
        assert math.isclose(printed.enumerate().error, printed.error, abs_tol=1e-12)
        ours = construct(f, basis=tilted(12, delta), gamma=1, mlp=False)
        assert math.isclose(ours.error, 19 / 298, rel_tol=1e-9)  # the gap is 1: as with orthonormal vectors
    # With the R that the bound on the gap would ask for, (1 - (2s-1) Delta)/(1 - (s-1) Delta) = 0.625:
    gamma = 96 * 96 ** (-1 / 0.625)
    assert round(construct(f, basis=tilted(12, 0.1), gamma=gamma, mlp=False).error, 4) == 0.0043
    assert construct(f, basis=outscoring(12), gamma=1, mlp=False, as_printed=True).error > 1
    with pytest.raises(InputError, match="position 4 is not below"):
        construct(f, basis=outscoring(12), gamma=1, mlp=False)
    assert construct(f, basis=outscoring(12), heads=3).enumerate().answer_error == pytest.approx(0, abs=1e-9)


def test_other_printed_forms_fail_where_they_should() -> None:
    f = parse("x1 & x2 & x3", 10)
    select = construct(f, heads=3, as_printed=True)
    assert select.error == 1.0  # W_V W_C = 0
    assert construct(f, "trainable", heads=3, as_printed=True).error < 0.25
    for mapping in ("deterministic", "trainable", "bag"):
        built = construct(f, mapping, as_printed=True)
        found = built.enumerate()
        assert found.error <= built.gamma / 4
        assert found.answer_error is not None
        assert found.answer_error >= 1  # the printed bump is 0 at its centre
        assert [norm.name for norm in built.norms if not norm.holds] == ["W_1"]  # the bias of the bumps
    with pytest.raises(InputError, match="prints no such heads"):
        construct(parse("x1 & (x2 | x3)", 10), as_printed=True)
    with pytest.raises(InputError, match="Delta below 1/s"):
        construct(f, basis="random", width=9, as_printed=True)
    with pytest.raises(InputError, match="gamma above s Delta"):
        construct(f, "bag", basis=tilted(10, 0.2), gamma=0.5, as_printed=True)


def test_the_width_of_the_bumps_is_a_quarter_of_gamma_not_an_eighth() -> None:
    centres, values = np.array([[-1.0], [0.0], [1.0]]), np.array([1.0, -1.0, 1.0])
    noise = np.linspace(-0.25, 0.25, 101)[:, None]  # gamma/4 of gamma = 1
    for layers in (2, 3):
        good, narrow = (value_network(centres, values, delta, layers=layers) for delta in (0.25, 0.125))
        for centre, value in zip(centres, values, strict=True):
            assert abs(good(centre + noise) - value).max() <= 1e-12
            assert abs(narrow(centre + noise) - value).max() == 1


@given(st.integers(1, 5), st.integers(1, 30), st.floats(0, 8), st.integers(0, 1000))
def test_softmax_truncation(selected: int, others: int, gap: float, seed: int) -> None:
    stream = np.random.default_rng(seed)
    logits = np.concatenate([gap + stream.exponential(size=selected), -stream.exponential(size=others)])
    weights = np.exp(logits)
    kept = np.concatenate([weights[:selected], np.zeros(others)])
    distance = abs(weights / weights.sum() - kept / kept.sum()).sum()
    bound = truncation_bound(selected + others, selected, gap)
    assert distance <= bound + 1e-12
    assert bound <= 2 * others / (selected * math.exp(gap)) + 1e-12
    even = np.exp(np.concatenate([np.full(selected, gap), np.zeros(others)]))
    assert math.isclose(2 * even[selected:].sum() / even.sum(), bound, rel_tol=1e-9)


def test_supports_are_found_by_influences_and_predicates_by_definition() -> None:
    found = sparse_function(parse("(x2 & x4) | (x2 & ~x4) | (x9 & x1 & ~x1)", 12))
    assert (found.positions, found.values.tolist()) == ((1,), [0, 1])
    assert sparse_function(BooleanFunction.from_callable(lambda bits: bits[:, 4] ^ bits[:, 0], 9)).positions == (0, 4)
    assert is_symmetric([[0, 1], [2, 3], [2, 3], [0, 0]])
    assert not is_symmetric([[0, 1], [2, 3], [2, 4], [0, 0]])
    assert not is_monotone([[0, 1], [2, 3]], 0.5)  # vectors
    assert is_injective([[0, 0], [0, 1], [1, 0], [3, 3]], 1)
    with pytest.raises(InputError, match="one number or vector"):
        is_symmetric([1, 2, 3])


@given(st.integers(1, 4), st.integers(0, 1000))
def test_dual_vectors(count: int, seed: int) -> None:
    drawn = np.random.default_rng(seed).normal(size=(count, 6))
    vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    np.testing.assert_allclose(dual_vectors(vectors) @ vectors.T, np.eye(count), atol=1e-7)
    assert coherence(vectors) == pytest.approx(max([0, *abs(np.triu(vectors @ vectors.T, 1)).ravel()]))


def test_a_random_basis_above_one_over_s_is_not_refused() -> None:
    built = construct(parse(AND, 300), basis="random", width=67)
    assert built.heads.coherence > 1 / 3
    assert built.error <= built.gamma / 4


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"heads": 2}, "heads=2 must be 1, or 3"),
        ({"gamma": 0}, "gamma=0 must be above 0"),
        ({"mapping": "bag", "gamma": 1.0}, "gamma=1 lets the heads be"),
        ({"mapping": "sum"}, "mapping='sum' is not one of"),
        ({"basis": "skew"}, "basis='skew' is not one of"),
        ({"basis": np.ones((12, 4))}, "basis vector 1 has length 2, not 1"),
        ({"basis": np.eye(5)}, "for 12 positions"),
        ({"basis": np.eye(12), "width": 13}, "width=13 is less than 15"),
        ({"basis": np.eye(12)[[0] * 12]}, "depend on each other"),
        ({"width": 2}, "width=2 is less than the 3 bits"),
        ({"width": 8}, "width=8 is too small"),
        ({"mapping": "trainable", "heads": 3, "width": 5}, "width=5 is too small for 3 positions"),
    ],
)
def test_what_cannot_be_built_is_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        construct(parse("x1 | x5 | x9", 12), **options)  # type: ignore[arg-type]


def test_functions_of_no_bit_or_too_many_are_refused() -> None:
    with pytest.raises(InputError, match="constant"):
        construct(parse("x1 & ~x1", 4))
    with pytest.raises(InputError, match="depends on 13 bits"):
        construct(parse("parity(13)"))
    with pytest.raises(InputError, match="may depend on 100 bits"):
        construct(parse("majority(100)"))
    with pytest.raises(InputError, match="depends on 10 bits, and select has up to 9"):
        construct(parse("parity(10)"), heads=10)
    with pytest.raises(InputError, match="too many"):
        construct(parse("x1", 30)).enumerate()
