from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from torch import Tensor, nn

from flipscope.adapters.subject import Subject
from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.cube import functions, testers
from flipscope.cube import spectrum as cube_spectrum
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.spectrum import RealSpectrum
from flipscope.models import (
    Transformer,
    TransformerConfig,
    encoder,
    fourier,
    hardness,
    initialise,
    mingpt,
    recognizer,
    roberta,
)
from flipscope.probes.fourier import (
    DegreeWeights,
    _bernstein,
    _kernel_means,
    _krawtchouk,
    _Moments,
    _weight_bounds,
    coefficient,
    degree_test,
    first_degree,
    first_sparsity,
    logit_range,
    oracle,
    sparsity_test,
    spectrum,
    weight_by_degree,
)

Terms = dict[tuple[int, ...], float]


class Polynomial(nn.Module):
    """The logit sum_S c_S chi_S(x), with parameters as a network has them."""

    def __init__(self, terms: Terms, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.sets = list(terms)
        self.weight = nn.Parameter(torch.tensor(list(terms.values()), dtype=dtype))

    def forward(self, bits: Tensor) -> Tensor:
        signs = 1 - 2 * bits.to(self.weight.dtype)
        characters = [signs[:, list(positions)].prod(dim=1) for positions in self.sets]
        return torch.stack(characters, dim=1) @ self.weight


def as_model(f: BooleanFunction) -> Callable[[Tensor], Tensor]:
    """A callable whose logit is positive exactly where f is 1."""
    return lambda bits: torch.from_numpy(f(bits.numpy()) * 2.0 - 1.0)


MIXED: Terms = {(): 0.25, (1,): -1.5, (0, 2): 1.0, (1, 3, 4): 0.5}


def holds(estimate: Estimate, truth: float) -> bool:
    return estimate.low - 1e-12 <= truth <= estimate.high + 1e-12


# ---------------------------------------------------------------- exact


def test_coefficients_of_a_polynomial_are_its_own() -> None:
    found = spectrum(Polynomial(MIXED), 6)
    assert found.n == 6
    for size in range(7):
        for positions in itertools.combinations(range(6), size):
            assert found.real.coefficient(positions) == pytest.approx(MIXED.get(positions, 0.0), abs=1e-7)
    np.testing.assert_allclose(found.real.weight_by_degree(), [0.0625, 2.25, 1.0, 0.25, 0, 0, 0], atol=1e-6)
    assert found.real.degree(1e-6) == 3
    assert found.real.sparsity(1e-6) == 4
    assert found.smallest == pytest.approx(0.25)  # 0.25 + 1.5 - 1 - 0.5


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 9))
def test_parseval_for_random_transformers(seed: int, n: int) -> None:
    model = Transformer(encoder(8, 2, 2), scheme="gaussian", seed=seed)
    found = spectrum(model, n)
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(index_bits(0, 1 << n, n))).double().numpy()
    np.testing.assert_allclose(found.logits, logits, rtol=1e-4, atol=1e-4)
    weights = found.real.weight_by_degree()
    assert weights.sum() == pytest.approx((found.logits**2).mean(), rel=1e-9)
    assert sum(cube_spectrum.weight_by_degree(found.sign)) == 1


def test_spectrum_of_a_transformer_by_the_definition() -> None:
    n = 7
    model = Transformer(recognizer(8, 2, 2, eps=1e-3), scheme="xavier_normal", seed=3, dtype=torch.float64)
    found = spectrum(model, n)
    strings = index_bits(0, 1 << n, n)
    with torch.no_grad():
        logits = model(torch.from_numpy(strings)).numpy()
    for positions in [(), (0,), (6,), (0, 3), (1, 2, 6), tuple(range(7))]:
        characters = (-1.0) ** strings[:, list(positions)].sum(axis=1, dtype=int)
        assert found.real.coefficient(positions) == pytest.approx((logits * characters).mean(), abs=1e-12)
        signs = np.where(logits > 0, -1.0, 1.0)
        assert float(cube_spectrum.coefficient(found.sign, positions)) == (signs * characters).mean()


@pytest.mark.parametrize(
    "f",
    [
        functions.parity(8),
        functions.majority(9),
        functions.dictator(3, 7),
        functions.sparse_parity(3, 10, seed=1),
        functions.tribes(9),
        functions.random(10, seed=2),
    ],
    ids=["parity", "majority", "dictator", "sparse_parity", "tribes", "random"],
)
def test_the_sign_is_the_function_the_model_computes(f: BooleanFunction) -> None:
    found = spectrum(as_model(f), f.n)
    assert found.sign == f
    assert cube_spectrum.weight_by_degree(found.sign) == cube_spectrum.weight_by_degree(f)


def test_zero_counts_as_zero() -> None:
    # The logit is x1 - 1/2 + (x2 - 1/2): zero where the bits differ.
    found = spectrum(Polynomial({(0,): -0.5, (1,): -0.5}), 2)
    np.testing.assert_array_equal(found.logits, [-1, 0, 0, 1])
    np.testing.assert_array_equal(found.sign.table(), [0, 0, 0, 1])
    assert found.smallest == 0
    ask = oracle(Polynomial({(0,): -0.5, (1,): -0.5}))
    np.testing.assert_array_equal(ask(index_bits(0, 4, 2)), [0, 0, 0, 1])


def test_two_outputs_are_one_logit() -> None:
    model = Transformer(mingpt(5, width=16, heads=4), seed=0)
    with torch.no_grad():
        both = model.eval()(torch.from_numpy(index_bits(0, 32, 5)))
    np.testing.assert_allclose(spectrum(model, 5).logits, (both[:, 1] - both[:, 0]).numpy(), rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- the range of the logits


RANGED: dict[str, TransformerConfig] = {
    "once": recognizer(6, 2, 2, eps=1e-3),
    "post": encoder(8, 2, 2),
    "no_mlp_last": TransformerConfig(width=8, layers=2, heads=2, mlp_layers=1),
    "hardness": hardness(7, width=8),
    "pre_final": mingpt(7, width=16, heads=4),
    "tanh": roberta(2, 7, width=8, layers=1, heads=2),
    "mean": TransformerConfig(width=8, layers=2, heads=2, readout="mean"),
}


@pytest.mark.parametrize("name", RANGED)
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_no_logit_leaves_the_range(name: str, scale: float) -> None:
    bits = torch.from_numpy(index_bits(0, 128, 7))
    for seed in range(5):
        model = initialise(Transformer(RANGED[name]), "gaussian", seed, scale=scale).eval()
        low, high = logit_range(model)
        with torch.no_grad():
            logits = model(bits)
        logits = logits if logits.ndim == 1 else logits[:, 1] - logits[:, 0]
        assert low <= float(logits.min()) <= float(logits.max()) <= high


def test_the_range_is_attained_at_width_two() -> None:
    # With two coordinates and no eps the norm's output is (1, -1) or (-1, 1): both ends of the range.
    model = Transformer(recognizer(2, 1, 1), scheme="gaussian", seed=4, dtype=torch.float64)
    low, high = logit_range(model)
    weight, bias = model.head.weight[0].detach(), model.head.bias[0].detach()
    ends = sorted(float(bias + sign * (weight[0] - weight[1])) for sign in (1, -1))
    assert low == pytest.approx(ends[0], rel=1e-3)
    assert high == pytest.approx(ends[1], rel=1e-3)
    assert low < ends[0] < ends[1] < high


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (nn.Linear(2, 1), "range of the logits is known of .* a Linear, .* give value_range"),
        (Transformer(fourier(7, bit_width=4)), "no norm comes before the read-out"),
        (Transformer(TransformerConfig(width=4, layers=1, norm="pre")), "no norm comes before the read-out"),
        (Transformer(TransformerConfig(width=4, layers=1, outputs=3)), "outputs=3"),
        (Transformer(TransformerConfig(width=4, layers=1, readout="every")), "readout='every'"),
    ],
)
def test_a_range_that_is_not_known_is_said(model: nn.Module, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        logit_range(model)


def test_broken_weights_have_no_range() -> None:
    model = Transformer(encoder(4, 1, 1))
    with torch.no_grad():
        model.head.weight[0, 0] = math.nan
    with pytest.raises(InputError, match="NaN or infinite"):
        logit_range(model)


# ---------------------------------------------------------------- single coefficients


def test_coefficients_beyond_exact_reach() -> None:
    model = Polynomial({(3, 40): 1.0, (7,): 0.25})
    found = coefficient(model, 60, [40, 3], values="logit", value_range=(-1.25, 1.25), seed=1)
    assert holds(found, 1.0)
    assert found.half_width < 0.02
    assert found.samples == 10_000
    assert found.queries == 20_000
    budget = coefficient(
        model, 60, [40, 3], values="logit", value_range=(-1.25, 1.25), precision=1e-9, max_queries=1000
    )
    assert budget.queries == 1000
    mean = coefficient(model, 60, [], values="logit", value_range=(-1.25, 1.25))
    assert holds(mean, 0.0)
    assert mean.queries == 10_000
    # The sign is that of chi_S(3, 40): 1 where it is positive, and then its -1/1 form is -1.
    assert coefficient(model, 60, [3, 40], samples=500).value == -1.0
    assert holds(coefficient(model, 60, [7], samples=500, seed=3), 0.0)


@pytest.mark.parametrize("values", ["sign", "logit"])
def test_sampled_coefficients_cover_the_exact_ones(values: Any) -> None:
    model = Transformer(encoder(8, 2, 2), scheme="gaussian", seed=5)
    exact = spectrum(model, 8)
    positions = [0, 5]
    truth = exact.real.coefficient(positions)
    if values == "sign":
        truth = float(cube_spectrum.coefficient(exact.sign, positions))
    missed = sum(
        not holds(coefficient(model, 8, positions, values=values, samples=60, confidence=0.8, seed=seed), truth)
        for seed in range(100)
    )
    # More than 32 of 100 misses at a rate of 0.2 has probability 0.002; the intervals are not all of the range either.
    assert missed <= 32
    widest = 0.05 if values == "sign" else 0.15 * exact.logits.std()
    assert coefficient(model, 8, positions, values=values, samples=4000).half_width < widest


# ---------------------------------------------------------------- weight by degree


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_krawtchouk_polynomials_sum_characters(n: int) -> None:
    strings = index_bits(0, 1 << n, n)
    for k in range(n + 1):
        sets = [list(chosen) for chosen in itertools.combinations(range(n), k)]
        sums = sum((-1.0) ** strings[:, chosen].sum(axis=1, dtype=int) for chosen in sets)
        np.testing.assert_array_equal(_krawtchouk(n, k)[strings.sum(axis=1)], sums)


def test_kernel_means_are_means_over_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    sources, targets = (rng.integers(0, 2, (count, 70), dtype=np.uint8) for count in (23, 31))
    values, kernels = rng.standard_normal(23), rng.standard_normal((3, 71))
    distance = (targets[:, None] != sources[None]).sum(axis=2)
    expected = np.stack([kernel[distance] @ values / 23 for kernel in kernels], axis=1)
    np.testing.assert_allclose(_kernel_means(sources, values, targets, kernels), expected, atol=1e-12)
    monkeypatch.setattr("flipscope.probes.fourier._BLOCK_PAIRS", 100)
    np.testing.assert_allclose(_kernel_means(sources, values, targets, kernels), expected, atol=1e-12)


@pytest.mark.parametrize("p", [0.001, 0.05, 0.5])
@pytest.mark.parametrize("count", [10, 100, 3000])
@pytest.mark.parametrize("error", [0.3, 0.01, 1e-5])
def test_bernsteins_inequality_on_binomial_tails(p: float, count: int, error: float) -> None:
    deviation = _bernstein(p * (1 - p), 1 - p, count, error)
    most = count * (p + deviation)
    assert binom.sf(math.ceil(most - 1e-9) - 1, count, p) <= error
    # In the limit of many samples it is what a normal tail allows.
    wide = _bernstein(p * (1 - p), 1 - p, 10**12, error)
    assert wide * 1e6 == pytest.approx(math.sqrt(2 * p * (1 - p) * math.log(1 / error)), rel=1e-3)


@pytest.mark.parametrize("count", [50, 3000])
@pytest.mark.parametrize("group", [(1,), (3,), (6,), (0, 1, 6)])
@pytest.mark.parametrize("real", [False, True])
def test_bounds_hold_for_the_chance_in_the_first_half(group: tuple[int, ...], real: bool, count: int) -> None:
    # The mean over A of f f_k is known here exactly: what is left is how far it may be from the weight.
    n, error, runs = 6, 0.3, 300
    table = np.random.default_rng(3).standard_normal(64) ** 3
    table = table if real else np.where(table > 0, 1.0, -1.0)
    moments = _Moments(1.0, 1.0, 1.0, 1.0, 1.0)
    if real:
        square, fourth = float((table**2).mean()), float((table**4).mean())
        moments = _Moments(float(np.abs(table).max()), square, square, square, fourth)
    exact = RealSpectrum.of(table)
    inside = np.isin(np.bitwise_count(np.arange(64, dtype=np.uint64)), group)
    weight = float((exact.coefficients[inside] ** 2).sum())
    part = RealSpectrum(np.where(inside, exact.coefficients, 0.0)).table()
    sets = sum(math.comb(n, k) for k in group)
    strings = np.random.default_rng(4).integers(0, 64, (runs, count))
    means = (table * part)[strings].mean(axis=1)
    missed = 0
    for mean in means:
        known = Estimate(mean, mean, mean, 0.5, count)
        low, high = _weight_bounds(known, group, n, sets, count, moments, error)
        missed += not low <= weight <= high
        assert 0 <= low <= high <= moments.square
    # More than 120 of 300 misses at a rate of 0.3 has probability 1e-4.
    assert missed <= 120
    # Bernstein's bound is no more than a few standard deviations.
    known = Estimate(weight, weight, weight, 0.5, 10**6)
    low, high = _weight_bounds(known, group, n, sets, 10**6, moments, error)
    assert high - low < 30 * float((table * part).std()) / 1000 + 1e-3


# Name, function, the widest interval of degree 1 that 10,000 strings may leave.
KNOWN = [
    ("parity", functions.parity(30), 0.01),
    ("first", functions.first(100), 0.04),
    ("majority", functions.majority(101), 0.12),
    ("sparse_majority", functions.sparse_majority(5, 40), 0.12),
    ("constant", BooleanFunction.constant(1, 50), 0.01),
]


@pytest.mark.parametrize(("name", "f", "widest"), KNOWN, ids=[name for name, _, _ in KNOWN])
def test_weights_beyond_exact_reach(name: str, f: BooleanFunction, widest: float) -> None:
    found = weight_by_degree(as_model(f), f.n, seed=1)
    truth = cube_spectrum.weight_floats(f)
    assert {0, 1, f.n - 1, f.n} <= set(found.weights)
    for k, estimate in found.weights.items():
        assert holds(estimate, truth[k]), k
        assert 0 <= estimate.low <= estimate.high <= 1
        assert estimate.samples == estimate.queries == 10_000
    assert holds(found.rest, 1 - math.fsum(truth[k] for k in found.weights))
    assert found.weights[1].high - found.weights[1].low < widest
    assert found.weights[1].value == pytest.approx(truth[1], abs=0.04)
    assert found.rest.high - found.rest.low < 0.25
    assert found.rest.value == pytest.approx(1 - math.fsum(truth[k] for k in found.weights), abs=0.04)


def covered(found: DegreeWeights, truth: np.ndarray) -> bool:
    rest = math.fsum(truth) - math.fsum(truth[k] for k in found.weights)
    return holds(found.rest, rest) and all(holds(estimate, truth[k]) for k, estimate in found.weights.items())


@pytest.mark.parametrize(
    "f",
    [
        functions.majority(9),
        functions.dictator(2, 10),
        functions.random(8, seed=1),
        functions.conjunction(7),
        functions.parity(9),
    ],
    ids=["majority", "dictator", "random", "conjunction", "parity"],
)
def test_intervals_of_the_sign_hold_together(f: BooleanFunction) -> None:
    truth = np.array(cube_spectrum.weight_floats(f))
    model = as_model(f)
    runs = [
        weight_by_degree(model, f.n, samples=samples, confidence=0.8, seed=seed)
        for samples in (40, 400)
        for seed in range(60)
    ]
    # More than 38 of 120 misses at a rate of 0.2 has probability 0.001.
    assert sum(not covered(found, truth) for found in runs) <= 38


@pytest.mark.parametrize("kind", ["polynomial", "transformer", "skew"])
def test_intervals_of_the_logit_hold_together(kind: str) -> None:
    model: nn.Module | Callable[[Tensor], Tensor]
    ends = None
    if kind == "polynomial":
        model, ends = Polynomial(MIXED), (-2.75, 3.25)
    elif kind == "transformer":
        model = Transformer(recognizer(8, 1, 1, eps=1e-3), scheme="gaussian", seed=1)
    else:  # nearly always 0, rarely 1: the moments are hard to see
        model, ends = (lambda bits: (bits[:, :5].sum(dim=1) == 5).double()), (0.0, 1.0)
    truth = spectrum(model, 6).real.weight_by_degree()
    # Asked once, so that the many runs are fast.
    table = spectrum(model, 6).logits
    asked = torch.from_numpy(table)
    ends = logit_range(model) if ends is None and isinstance(model, nn.Module) else ends

    def looked_up(bits: Tensor) -> Tensor:
        return asked[(bits.long() << torch.arange(6)).sum(dim=1)]

    runs = [
        weight_by_degree(
            looked_up,
            6,
            values="logit",
            value_range=ends,
            degrees=(1, 2, 6),
            samples=samples,
            confidence=0.8,
            seed=seed,
        )
        for samples in (60, 600)
        for seed in range(60)
    ]
    assert sum(not covered(found, truth) for found in runs) <= 38
    # They say something: with more strings the total of the largest weights is found.
    many = weight_by_degree(looked_up, 6, values="logit", value_range=ends, degrees=(1, 2), samples=20_000, seed=0)
    assert covered(many, truth)
    assert many.weights[1].high - many.weights[1].low < 0.2 * max(truth.sum(), 1.0)
    for k, estimate in many.weights.items():
        assert estimate.value == pytest.approx(truth[k], abs=0.03 * max(truth.sum(), 1.0))


def test_weights_are_without_bias() -> None:
    # Weights far from 0 and 1, where no value is moved.
    f = functions.majority(5) ^ functions.dictator(0, 5)
    truth = cube_spectrum.weight_floats(f)
    inner = [k for k in range(1, 6) if 0.1 < truth[k] < 0.9]
    assert len(inner) >= 2
    values = np.array(
        [
            [found.weights[k].value for k in inner]
            for found in (weight_by_degree(as_model(f), 5, samples=400, seed=seed) for seed in range(150))
        ]
    )
    error = values.std(axis=0) / math.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - np.array(truth)[inner]) < 4 * error).all()
    # The error that the documentation states: that of a mean and that of pairs.
    assert (values.std(axis=0) < 3 / math.sqrt(400)).all()


def test_exact_and_sampled_weights_of_a_transformer_agree() -> None:
    model = Transformer(encoder(8, 2, 2), scheme="gaussian", seed=2)
    exact = spectrum(model, 12)
    sign = weight_by_degree(model, 12, samples=4000, seed=3)
    assert covered(sign, np.array(cube_spectrum.weight_floats(exact.sign)))
    assert sorted(sign.weights) == list(range(13))  # every degree has at most 2000 sets
    logit = weight_by_degree(model, 12, samples=4000, seed=3, values="logit", degrees=[1, 2])
    assert covered(logit, exact.real.weight_by_degree())


def test_the_same_seed_gives_the_same_weights() -> None:
    model = as_model(functions.majority(21))
    one, two, other = (weight_by_degree(model, 21, samples=500, seed=seed) for seed in (4, 4, 5))
    assert one == two
    assert one != other
    generator = weight_by_degree(model, 21, samples=500, seed=np.random.default_rng(4))
    assert generator == one


def test_default_degrees_are_those_with_few_sets() -> None:
    def degrees(n: int, samples: int) -> list[int]:
        model = as_model(BooleanFunction.constant(0, n))
        return sorted(weight_by_degree(model, n, samples=samples).weights)

    assert degrees(100, 20) == [0, 100]
    assert degrees(100, 200) == [0, 1, 99, 100]
    assert degrees(10, 100) == [0, 1, 2, 8, 9, 10]
    assert degrees(1, 20) == [0, 1]
    assert degrees(5, 20) == [0, 1, 2, 3, 4, 5]


# ---------------------------------------------------------------- testers


def test_degree_of_a_model() -> None:
    model = Polynomial({(0, 1, 2): 1.0, (5,): 0.5})
    for values, ends in (("sign", None), ("logit", (-1.5, 1.5))):
        options: dict[str, Any] = {"values": values, "value_range": ends, "seed": 1}
        assert not degree_test(model, 30, 2, **options).accepted
        assert degree_test(model, 30, 3, **options).accepted
        assert first_degree(model, 30, **options).value == 3
        assert first_degree(model, 30, max_degree=1, **options).value is None


def test_the_output_and_the_threshold_of_an_oracle() -> None:
    strings = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]], np.uint8)

    def scores(bits: torch.Tensor) -> torch.Tensor:
        return torch.stack([bits.sum(dim=1), -bits.sum(dim=1), bits[:, 0]], dim=1).float()

    def second(output: torch.Tensor) -> torch.Tensor:
        return output[:, 1]

    assert oracle(Subject(scores, output=second), "logit")(strings).tolist() == [0, -1, -2, -3]
    assert oracle(Subject(scores, output=second, threshold=0))(strings).tolist() == [0, 0, 0, 0]
    assert oracle(Subject(scores, output=second, threshold=-1.5))(strings).tolist() == [1, 1, 0, 0]
    assert spectrum(Subject(scores, output=second, threshold=0), 3).real.degree() == 1
    with pytest.raises(InputError, match="choose it with output="):
        spectrum(scores, 4)


def test_rounding_is_no_degree() -> None:
    # In float32 the terms do not cancel exactly; with no tolerance the tester takes that for a degree.
    model = Polynomial({(i,): 1 / 3 + i / 7 for i in range(10)})
    top = sum(1 / 3 + i / 7 for i in range(10)) + 1e-3
    assert degree_test(model, 10, 1, values="logit", value_range=(-top, top)).accepted
    assert not degree_test(model, 10, 1, values="logit", value_range=(-top, top), tolerance=0.0).accepted


def test_sparsity_of_a_model() -> None:
    model = Polynomial({(0, 4): 1.0, (2,): 0.5, (1, 3, 7): -0.75})
    options: dict[str, Any] = {"values": "logit", "value_range": (-2.25, 2.25), "free": 8, "seed": 1}
    assert first_sparsity(model, 8, **options).value == 3
    assert not sparsity_test(model, 8, 2, **options).accepted
    assert sparsity_test(model, 8, 3, **options).accepted
    # The sign of a parity has one coefficient.
    assert first_sparsity(Polynomial({(0, 4, 6): 2.0}), 40, seed=2).value == 1


def test_testers_say_the_same_of_a_model_and_of_its_function() -> None:
    f = functions.sparse_majority(3, 12, seed=1)
    mine, theirs = first_degree(as_model(f), 12, seed=3), testers.first_accepted_degree(f, 12, seed=3)
    assert mine == theirs
    assert first_sparsity(as_model(f), 12, seed=3) == testers.first_accepted_sparsity(f, 12, seed=3)


# ---------------------------------------------------------------- conventions


def test_a_subject_says_how_its_model_is_asked() -> None:
    model = Transformer(encoder(8, 2, 2), scheme="gaussian", seed=2)
    double = Subject(model, precision="float64", batch=7)
    exact = spectrum(double, 8)
    with torch.no_grad():
        logits = copy.deepcopy(model).double()(torch.from_numpy(index_bits(0, 256, 8)))
    np.testing.assert_allclose(exact.logits, logits.numpy(), rtol=1e-9)
    assert logit_range(double) == pytest.approx(logit_range(model), rel=1e-6)
    assert weight_by_degree(double, 8, samples=100) == weight_by_degree(model, 8, samples=100)
    flipped = Subject(Polynomial({(0, 1): 1.0}), output="logit", encoding=lambda bits: 1 - bits[:, [1, 2]])
    assert coefficient(flipped, 5, [1, 2], samples=100).value == -1.0


# ---------------------------------------------------------------- the model is left as it was


def test_dropout_is_off_and_the_mode_comes_back() -> None:
    model = Transformer(mingpt(8, width=16, heads=4, dropout=0.5), seed=0)
    model.train()
    one, two = spectrum(model, 6), spectrum(model, 6)
    np.testing.assert_array_equal(one.logits, two.logits)
    assert all(module.training for module in model.modules())
    assert coefficient(model, 6, [1], samples=300) == coefficient(model.eval(), 6, [1], samples=300)


def test_outputs_beyond_their_range_by_rounding_are_at_its_end() -> None:
    """A network written down for a sum in [0, 2] says -6.6e-16 for 0."""

    def off(size: float) -> Callable[[Tensor], Tensor]:
        return lambda bits: bits[:, 0].double() * (2 + 2 * size) - size

    exact, rounded = (
        coefficient(off(size), 6, [0], values="logit", value_range=(0.0, 2.0), samples=300) for size in (0.0, 6.6e-16)
    )
    assert rounded == exact
    with pytest.raises(InputError, match=r"outside value_range=\(0.0, 2.0\)"):
        coefficient(off(1e-6), 6, [0], values="logit", value_range=(0.0, 2.0), samples=300)


# ---------------------------------------------------------------- bad input


def broken(bits: Tensor) -> Tensor:
    return torch.where(bits[:, 0] == 1, math.nan, 1.0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: spectrum(Polynomial(MIXED), 21), "n=21 is beyond 20"),
        (lambda: spectrum(Polynomial(MIXED), 0), "n must be a whole number of at least 1"),
        (lambda: spectrum(broken, 3), "NaN"),
        (lambda: spectrum(lambda bits: 1 / bits[:, 0], 3), "4 of 8 logits are infinite"),
        (lambda: spectrum(Transformer(hardness(5, width=8)), 6), "longer than max_length=5"),
        (lambda: coefficient(broken, 3, [0]), "NaN"),
        (lambda: coefficient(Polynomial(MIXED), 6, [6]), "position 6 does not exist"),
        (lambda: coefficient(Polynomial(MIXED), 6, [0], values="logit"), "the model is a Polynomial"),
        (lambda: coefficient(broken, 3, [0], values="logit"), "give value_range"),
        (lambda: coefficient(Polynomial(MIXED), 6, [0], value_range=(0, 1)), "is for values='logit'"),
        (
            lambda: coefficient(Polynomial(MIXED), 6, [0], values="logit", value_range=(0, 1)),
            r"outside value_range=\(0, 1\): widen it",
        ),
        (lambda: oracle(Polynomial(MIXED), "probability"), "values='probability' is not one of sign, logit"),  # type: ignore[arg-type]
        (lambda: weight_by_degree(Polynomial(MIXED), 6, samples=19), "samples must be a whole number of at least 20"),
        (lambda: weight_by_degree(Polynomial(MIXED), 6, degrees=[7]), "degree 7 does not exist"),
        (lambda: weight_by_degree(Polynomial(MIXED), 6, degrees=[-1]), "degree must be a whole number"),
        (lambda: weight_by_degree(Polynomial(MIXED), 100, degrees=[50]), "degree 50 of 100 bits has too many sets"),
        (lambda: weight_by_degree(Polynomial(MIXED), 6, confidence=1.0), "confidence"),
        (lambda: degree_test(broken, 3, 1), "NaN"),
        (lambda: sparsity_test(Polynomial(MIXED), 6, -1), "sparsity"),
    ],
)
def test_bad_input_is_one_sentence(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        call()
