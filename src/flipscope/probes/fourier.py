"""Fourier spectra of models: of the logit as a real function of the bits, and of its sign as a Boolean function.

The sign is 1 where the logit is positive, or a probability above 0.5. Up to 20 bits, `spectrum` evaluates all 2^n
strings once, and everything about either function follows exactly. Beyond, `coefficient` and `weight_by_degree` sample,
and the property testers use queries. Statements about real values need a range that contains all logits, which
`logit_range` proves for flipscope's transformer if a norm or a tanh precedes its read-out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias, TypedDict, Unpack, cast

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from flipscope.adapters.settled import Settled, as_settled
from flipscope.adapters.subject import Model
from flipscope.basics.arguments import Keyword, checked_arguments
from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.checks import check_confidence, check_count, check_positions
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate, Floats, mean_from_samples, proportions
from flipscope.basics.seeds import Seed, generators, random_strings
from flipscope.cube import spectrum as cube_spectrum
from flipscope.cube.estimate import DEFAULT_MAX_QUERIES, DEFAULT_SAMPLES, Queries, Range, Sampling, fourier_coefficient
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.sensitivity import average_sensitivity
from flipscope.cube.spectrum import RealSpectrum
from flipscope.cube.structure import Oracle
from flipscope.cube.testers import (
    Sweep,
    TestResult,
    first_accepted_degree,
    first_accepted_sparsity,
    fourier_sparsity_test,
    low_degree_test,
)
from flipscope.figures import Figure
from flipscope.figures.panels import weights_panel
from flipscope.figures.results import Result
from flipscope.flips.engine import refuse_nan
from flipscope.models.transformer import Block, Transformer
from flipscope.models.unmodified import difference

Values: TypeAlias = Literal["sign", "logit"]  # of what the spectrum is computed: the model's decision, or its logit
Asked: TypeAlias = Model | Settled

MAX_EXACT_BITS = 20
_ULPS = 100  # roundings of its range by which an output may leave it
_ROUNDING = 1e-4  # relative widening of a proven range, and the tolerance of testers for rounding
_BLOCK_PAIRS = 1 << 22  # pairs of strings compared at once
_BLOCK_STRINGS = 1 << 16
_ITERATIONS = 30  # iterations of narrowing an interval; each result is valid


# ---------------------------------------------------------------- exact


@dataclass(frozen=True, eq=False, repr=False)
class ModelSpectrum(Result):
    """The logits of all strings, in the order of truth tables, and exact quantities derived from them."""

    logits: Float64[np.ndarray, " string"]
    threshold: float = 0.0  # the sign is 1 where the logit is greater: 0.5 for probabilities
    precision: str = ""  # number type in which the model was evaluated

    @property
    def n(self) -> int:
        """Number of bits."""
        return len(self.logits).bit_length() - 1

    @cached_property
    def real(self) -> RealSpectrum:
        """The spectrum of the logit: coefficients, weight by degree, degree, sparsity, average sensitivity."""
        return RealSpectrum.of(self.logits)

    @cached_property
    def sign(self) -> BooleanFunction:
        """The model as a Boolean function: 1 where the logit is above the threshold."""
        return BooleanFunction.from_table((self.logits > self.threshold).astype(np.uint8))

    @property
    def smallest(self) -> float:
        """The smallest distance of a logit from the threshold: how far the nearest string is from changing its sign."""
        return float(np.abs(self.logits - self.threshold).min())

    def summary(self) -> dict[str, object]:
        """The main numbers by label."""
        return {
            "bits": self.n,
            "degree, sparsity of the sign": f"{cube_spectrum.degree(self.sign)}, {cube_spectrum.sparsity(self.sign):,}",
            "average sensitivity of the sign": float(average_sensitivity(self.sign)),
            "smallest absolute logit": self.smallest,
        }

    def as_json(self) -> dict[str, Any]:
        """Degree, sparsity and weight by degree, of the sign and of the logit; not the logits of all strings."""
        return {
            "n": self.n,
            "smallest_logit": self.smallest,
            "sign": {
                "degree": cube_spectrum.degree(self.sign),
                "sparsity": cube_spectrum.sparsity(self.sign),
                "weight_by_degree": list(cube_spectrum.weight_floats(self.sign)),
            },
            "logit": {
                "degree": self.real.degree(),
                "sparsity": self.real.sparsity(),
                "weight_by_degree": self.real.weight_by_degree().tolist(),
            },
        }

    def plot(self) -> Figure:
        """The Fourier weight by degree of the sign, and of the logit as a share of its total weight."""
        sign = dict(enumerate(cube_spectrum.weight_floats(self.sign)))
        weights = self.real.weight_by_degree()
        total = float(np.sum(weights)) or 1.0
        logit = {degree: float(weight) / total for degree, weight in enumerate(weights)}
        caption = "Fourier weight by degree: of the sign, and of the logit as a share of its mean square."
        panels = [weights_panel(self.n, sign, "sign"), weights_panel(self.n, logit, "logit")]
        return Figure("spectrum", "Fourier weight by degree", caption, panels)


@checked_arguments
def spectrum(
    model: Asked,
    n: int,
) -> ModelSpectrum:
    """The exact spectra of a model on strings of n <= 20 bits, from one logit for each of the 2^n strings.

    For a model with several classes, the ``output`` of a `flipscope.Subject` must select one logit.

    >>> found = spectrum(lambda bits: bits.sum(dim=1) - 1.5, 3)
    >>> found.real.coefficients.tolist()  # of the sets {}, {0}, {1}, {0, 1}, {2}, ... of positions
    [0.0, -0.5, -0.5, 0.0, -0.5, 0.0, 0.0, 0.0]
    >>> found.smallest, found.sign.n
    (0.5, 3)
    """
    if check_count("n", n) > MAX_EXACT_BITS:
        raise InputError(
            f"n={n} is beyond {MAX_EXACT_BITS}, up to which all strings are evaluated: sample with coefficient or "
            "weight_by_degree"
        )
    settled = as_settled(model)
    ask = _asking(settled, "logit", clear=True)
    logits = np.empty(1 << n)
    for start in range(0, len(logits), _BLOCK_STRINGS):
        count = min(_BLOCK_STRINGS, len(logits) - start)
        logits[start : start + count] = ask(index_bits(start, count, n))
    if wrong := int(np.isinf(logits).sum()):
        raise InputError(f"{wrong} of {len(logits)} logits are infinite, and have no spectrum: the model is broken")
    return ModelSpectrum(logits, settled.threshold, settled.precision)


# ---------------------------------------------------------------- the model as an oracle


@checked_arguments
def oracle(model: Asked, values: Values = "sign") -> Oracle:
    """The model as a function of 0/1 arrays [string, position], for code that uses queries.

    Its value is 1 where the logit is above the threshold and 0 elsewhere, or the logit itself.

    >>> oracle(lambda bits: bits.sum(dim=1) - 1.5)(np.array([[0, 1, 1], [0, 0, 1]], np.uint8))
    array([1, 0], dtype=uint8)
    """
    if values not in ("sign", "logit"):
        raise InputError(f"values={values!r} is not one of sign, logit")
    return _asking(as_settled(model), values, clear=values == "sign")


def _asking(settled: Settled, values: Values, clear: bool) -> Oracle:
    """A function that evaluates strings; ``clear`` demands that the outputs have one meaning as a decision."""

    def ask(strings: Bits) -> Floats | Bits:
        nonlocal settled
        with settled.measuring():
            logits = settled.logits(strings)
            if settled.may_overflow and not np.isfinite(logits).all():
                settled = settled.converted(torch.float64)
                logits = settled.logits(strings)
        if logits.ndim > 1 or settled.meaning == "labels":
            kind = f"{logits.shape[1]} classes" if logits.ndim > 1 else "labels"
            raise InputError(
                f"the model decides between {kind}, and a spectrum is of one number: choose it with output=, such as a "
                "function that returns out[:, 1]"
            )
        refuse_nan(logits)
        if clear:
            settled.check_clear(logits)
        return logits.astype(np.float64) if values == "logit" else (logits > settled.threshold).astype(np.uint8)

    return ask


@checked_arguments
def logit_range(model: Asked) -> Range:
    """Two numbers between which every logit of flipscope's transformer lies, for all strings.

    The output of a layer norm has mean 0 and length at most sqrt(width) before gain and bias (Eq 13), and that of a
    tanh lies between -1 and 1; the read-out (Eq 14) is linear. The ends are widened by 1e-4 of themselves, more than
    the effect of rounding.

    >>> from flipscope.models import encoder
    >>> low, high = logit_range(Transformer(encoder(width=8, layers=1)))
    >>> low < high
    True
    """
    asked = as_settled(model).model
    found = difference(asked)
    if found is not None or not isinstance(asked, Transformer):
        raise InputError(
            "the range of the logits is known of flipscope's own transformer only, as its configuration says, "
            f"but {found}: give value_range"
        )
    model, config = asked, asked.config
    if config.outputs > 2 or config.readout == "every":
        raise InputError(
            f"a model with outputs={config.outputs} and readout={config.readout!r} has more than one logit per string"
        )
    rows = _numbers(model.head.weight)  # [output, width]
    bias = np.zeros(len(rows)) if model.head.bias is None else _numbers(model.head.bias)
    row, middle = (rows[0], bias[0]) if len(rows) == 1 else (rows[1] - rows[0], bias[1] - bias[0])
    if model.dense is not None:
        reach = float(np.abs(row).sum())
    else:
        norm = model.final_norm
        if norm is None and config.norm in ("post", "once"):
            block = cast(Block, model.blocks[-1])
            norm = block.norm2 or block.norm1
        if norm is None:
            raise InputError("no norm comes before the read-out, so the logits have no known range: give value_range")
        if norm.weight is not None and norm.bias is not None:
            middle = middle + row @ _numbers(norm.bias)
            row = row * _numbers(norm.weight)
        reach = math.sqrt(config.width) * float(np.linalg.norm(row - row.mean()))
    if not math.isfinite(middle + reach):
        raise InputError("the read-out has weights that are NaN or infinite: the model is broken")
    slack = _ROUNDING * (reach + abs(middle)) + 1e-9
    return float(middle - reach - slack), float(middle + reach + slack)


def _numbers(parameter: Tensor) -> Floats:
    """The parameter in float64."""
    return parameter.detach().cpu().double().numpy()


def _oracle_within(model: Asked, values: Values, value_range: Range | None) -> tuple[Oracle, Range | None]:
    """The oracle of the model, and the range of its values if they are real, up to rounding."""
    settled = as_settled(model)
    ask = oracle(settled, values)
    if values == "sign":
        if value_range is not None:
            raise InputError(f"value_range={value_range} is for values='logit': a sign is 0 or 1")
        return ask, None
    low, high = ends = logit_range(settled) if value_range is None else value_range
    slack = _ULPS * torch.finfo(settled.dtype or torch.float64).eps * max(abs(low), abs(high))

    def ask_within(strings: Bits) -> Floats:
        found: Floats = ask(strings)
        wrong = found[~((found >= low - slack) & (found <= high + slack))]
        if len(wrong):
            raise InputError(f"the model returned {wrong[0]}, outside value_range={ends}: widen it")
        return np.clip(found, low, high)

    return ask_within, ends


# ---------------------------------------------------------------- from samples


@checked_arguments
def coefficient(
    model: Asked,
    n: int,
    positions: Sequence[int],
    *,
    values: Values = "sign",
    value_range: Range | None = None,
    **sampling: Unpack[Sampling],
) -> Estimate:
    """Estimate of f^(S) = E[f(x) chi_S(x)], S the 0-based positions; f is (-1)**sign, or the logit.

    Sampling takes the keywords of `cube.estimate`: samples or precision, confidence, seed and others. For a logit and
    non-empty S, half its change under a flip at the first position of S is sampled. It has the same coefficient and
    less noise, since only sets with that position remain; a sample then takes two queries.

    >>> found = coefficient(lambda bits: bits.sum(dim=1) - 1.5, 3, [0], samples=1_000)
    >>> found.low < 1 / 2 < found.high
    True
    """
    ask, ends = _oracle_within(model, values, value_range)
    chosen = check_positions(positions, check_count("n", n))
    if ends is None or not chosen:
        return fourier_coefficient(ask, n, chosen, value_range=ends, **sampling)

    def half_change(strings: Bits) -> Floats:
        flipped = strings.copy()
        flipped[:, chosen[0]] ^= 1
        changes: Floats = (ask(strings) - ask(flipped)) / 2
        return changes

    reach = (ends[1] - ends[0]) / 2
    sampling["max_queries"] = check_count("max_queries", sampling.get("max_queries", DEFAULT_MAX_QUERIES), 2) // 2
    found = fourier_coefficient(half_change, n, chosen, value_range=(-reach, reach), **sampling)
    return replace(found, queries=2 * found.queries)


@dataclass(frozen=True, repr=False)
class DegreeWeights(Result):
    """W_k, the sum of f^(S)^2 over the sets S of size k, for some degrees k; all intervals hold simultaneously.

    `rest` is the weight of all degrees that are not among them.
    """

    n: int
    weights: dict[int, Estimate]
    rest: Estimate

    def summary(self) -> dict[str, object]:
        """The main numbers: the heaviest degrees."""
        heavy = sorted(self.weights, key=lambda degree: -self.weights[degree].value)[:4]
        found: dict[str, object] = {f"degree {degree}": self.weights[degree] for degree in sorted(heavy)}
        known = f"{len(self.weights)} of {self.n + 1}"
        return {"degrees estimated": known, **found, "all other degrees": self.rest}

    def plot(self) -> Figure:
        """The estimated weights with their intervals."""
        caption = "Fourier weight of the degrees that could be estimated; all intervals hold together."
        return Figure("weights", "Fourier weight by degree", caption, [weights_panel(self.n, self.weights)], columns=1)


@checked_arguments
def weight_by_degree(
    model: Asked,
    n: int,
    *,
    degrees: Sequence[int] | None = None,
    values: Values = "sign",
    value_range: Range | None = None,
    samples: int = DEFAULT_SAMPLES,
    confidence: float = 0.95,
    seed: Seed = 0,
) -> DegreeWeights:
    """Estimates of W_0 and of the weights of these degrees, from one logit for each of the sampled strings.

    For independent x and y, E[f(x) f(y) K(x, y)] = W_k, where K(x, y) sums chi_S(x) chi_S(y) over the sets S of size k:
    a Krawtchouk polynomial of their distance. One half A of the strings gives q(y), the mean of f(x) K(x, y) over x in
    A, the other half the mean of f(y) q(y): unbiased, from all pairs (x, y). The interval has two parts, each with a
    share of the allowed error. Given A, the f(y) q(y) are independent and |q| <= sqrt(C(n, k)) ||q||, so the
    betting interval is valid for their mean E[f q]. That is itself the mean over A of f(x) f_k(x), where f_k is the
    part of f of degree k with |f_k| <= sqrt(C(n, k) W_k), and lies near W_k by Bernstein's inequality.

    The error is about sqrt(C(n, k)) / samples, in addition to that of every mean: low degrees and those near n can be
    estimated, middle ones at large n cannot with any feasible number of strings. Hence the default is the degrees with
    C(n, k) <= samples / 2. A value outside its interval, such as one below 0, is moved to the nearer end.

    >>> found = weight_by_degree(lambda bits: bits.sum(dim=1) - 1.5, 3, samples=1_000)
    >>> found.weights[1].low < 3 / 4 < found.weights[1].high
    True
    """
    ask, ends = _oracle_within(model, values, value_range)
    queries = Queries(ask, n, ends)
    size = check_count("samples", samples, 20)
    error = 1 - check_confidence(confidence)
    chosen = _checked_degrees(degrees, queries.n, size)
    groups = [(k,) for k in chosen] + [(0, *chosen)]
    # Two events for each group of degrees, one for the mean, and for real values one each for their 2nd and 4th moment.
    error /= 2 * len(groups) + 1 + 2 * (ends is not None)
    (for_strings,) = generators(seed, 1)
    strings = random_strings(for_strings, size, queries.n)
    answers = queries.signs(strings)
    if ends is None:
        moments = _SIGN_MOMENTS
        found = _group_weights(strings, answers, groups, moments, error)
    else:
        # A constant changes only degree 0. Estimated from separate strings, it leaves smaller values to the others.
        pilot = size // 10
        centre = float(answers[:pilot].mean())
        centred = answers[pilot:] - centre
        moments = _moments(centred, max(ends[1] - centre, centre - ends[0]), error)
        found = _group_weights(strings[pilot:], centred, groups, moments, error)

    def estimate(value: float, bounds: Range) -> Estimate:
        inside = min(max(value, bounds[0]), bounds[1])
        return Estimate(inside, bounds[0], bounds[1], confidence, size, queries=queries.asked)

    zero, zero_bounds = _mean_squared(answers, ends, error)
    # The last group uses the centred values, whose degree 0 differs; the remainder is the same.
    value, bounds = found.pop()
    rest = max(moments.square_low - bounds[1], 0.0), max(moments.square_high - bounds[0], 0.0)
    total = (1 - zero_bounds[1], 1 - zero_bounds[0]) if ends is None else (0.0, moments.square_high)
    *each, rest = _consistent([*(one for _, one in found), rest], total)
    weights = {k: estimate(v, b) for k, v, b in zip(chosen, (v for v, _ in found), each, strict=True)}
    return DegreeWeights(queries.n, {0: estimate(zero, zero_bounds), **weights}, estimate(moments.square - value, rest))


@dataclass(frozen=True)
class _Moments:
    """A bound of |f|, and E[f^2] and E[f^4] with their bounds."""

    reach: float
    square: float
    square_low: float
    square_high: float
    fourth_high: float


_SIGN_MOMENTS = _Moments(1.0, 1.0, 1.0, 1.0, 1.0)


def _moments(values: Floats, reach: float, error: float) -> _Moments:
    square = mean_from_samples(values**2, 0.0, reach**2, 1 - error)
    fourth = mean_from_samples(values**4, 0.0, reach**4, 1 - error)
    return _Moments(reach, square.value, square.low, square.high, fourth.high)


def _mean_squared(values: Floats, ends: Range | None, error: float) -> tuple[float, Range]:
    """An unbiased estimate of E[f]^2, and its bounds."""
    if ends is None:
        [negative] = proportions([int(np.count_nonzero(values < 0))], len(values), 1 - error)
        mean = negative.scaled(-2.0, 1.0)
    else:
        mean = mean_from_samples(values, *ends, 1 - error)
    half = len(values) // 2
    squares = (mean.low**2, mean.high**2)
    lowest = 0.0 if mean.low <= 0 <= mean.high else min(squares)
    return float(values[:half].mean() * values[half:].mean()), (lowest, max(squares))


def _group_weights(
    strings: Bits, values: Floats, groups: Sequence[tuple[int, ...]], moments: _Moments, error: float
) -> list[tuple[float, Range]]:
    """An unbiased estimate of the weight of each group of degrees, and its bounds."""
    n, half = strings.shape[1], len(strings) // 2
    kernels = np.array([sum(_krawtchouk(n, k) for k in group) for group in groups])  # [group, distance]
    first = strings[:half], values[:half]
    inside = _kernel_means(*first, strings[:half], kernels)  # q on A itself, [string, group]
    across = _kernel_means(*first, strings[half:], kernels)
    found = []
    for index, group in enumerate(groups):
        sets = sum(math.comb(n, k) for k in group)
        length = math.sqrt(max(0.0, float(values[:half] @ inside[:, index]) / half))  # ||q||
        # The last term allows for rounding if almost nothing of q is left.
        most = moments.reach * (math.sqrt(sets) * length + 1e-9 * sets * moments.reach)
        products = values[half:] * across[:, index]
        mean = mean_from_samples(products, -most, most, 1 - error)
        found.append((mean.value, _weight_bounds(mean, group, n, sets, half, moments, error)))
    return found


def _weight_bounds(
    mean: Estimate, group: tuple[int, ...], n: int, sets: int, count: int, moments: _Moments, error: float
) -> Range:
    """Bounds of W, the weight of the group, given those of the mean of Z = f f_k over a number of strings.

    E[Z] = W, |Z| <= reach sqrt(sets W), and Var(Z) <= a W - W^2 with a = reach^2 or, by Hölder's inequality and
    hypercontractivity (E[g^4] <= 9^k E[g^2]^2 for degree k), a = 3^k sqrt(E[f^4]). A parity of all bits turns degree
    n - k into degree k; twice as much suffices for low and high degrees together.
    """
    exponent = max(min(k, n - k) for k in group)
    ends = len({2 * k <= n for k in group})
    factor = min(moments.reach**2, ends * 3.0**exponent * math.sqrt(moments.fourth_high))
    low, high = 0.0, moments.square_high
    # W is in [low, high], so its deviation is at most the largest there, so it is in a smaller [low, high].
    for _ in range(_ITERATIONS):
        jump = moments.reach * math.sqrt(sets * high) + high
        peak = min(max(factor / 2, low), high)
        variance = max(0.0, peak * (factor - peak))
        deviation = _bernstein(variance, jump, count, error / 2)
        narrow = max(low, mean.low - deviation), min(high, mean.high + deviation)
        if narrow[0] > narrow[1]:  # one of the errors that the confidence allows has occurred
            break
        low, high = narrow
    return low, high


def _bernstein(variance: float, jump: float, count: int, error: float) -> float:
    """The excess of a mean over its expectation that has at most this probability (Bernstein).

    The samples have at most this variance and exceed their expectation by at most `jump`.
    """
    log = math.log(1 / error)
    third = log * jump / 3
    return (third + math.sqrt(third**2 + 2 * count * variance * log)) / count


def _consistent(bounds: Sequence[Range], total: Range) -> list[Range]:
    """Bounds of weights whose sum lies in the range `total`, each narrowed by those of the others."""
    lows, highs = math.fsum(low for low, _ in bounds), math.fsum(high for _, high in bounds)
    narrow = [(max(low, total[0] - (highs - high)), min(high, total[1] - (lows - low))) for low, high in bounds]
    return [new if new[0] <= new[1] else old for old, new in zip(bounds, narrow, strict=True)]


def _kernel_means(sources: Bits, values: Floats, targets: Bits, kernels: Floats) -> Floats:
    """For each target y and kernel the mean over the sources x of value(x) kernel[distance of x and y]."""
    n = sources.shape[1]
    signs = 1 - 2 * sources.astype(np.float32)
    out = np.empty((len(targets), len(kernels)))
    step = max(1, _BLOCK_PAIRS // len(sources))
    for start in range(0, len(targets), step):
        part = 1 - 2 * targets[start : start + step].astype(np.float32)
        distance = ((n - part @ signs.T) / 2).astype(np.int64)  # [target, source], exact: whole numbers below 2^24
        cells = distance + (n + 1) * np.arange(len(part))[:, None]
        weights = np.broadcast_to(values, cells.shape).ravel()
        sums = np.bincount(cells.ravel(), weights, minlength=len(part) * (n + 1)).reshape(-1, n + 1)
        out[start : start + step] = sums @ kernels.T / len(sources)
    return out


def _krawtchouk(n: int, k: int) -> Floats:
    """K_k(d), d = 0..n: the sum of chi_S(x) chi_S(y) over the sets of size k, x and y at distance d."""
    size = min(k, n - k)
    values = [
        sum((-1) ** j * math.comb(d, j) * math.comb(n - d, size - j) for j in range(size + 1)) for d in range(n + 1)
    ]
    table = np.array([float(value) for value in values])
    return table if size == k else table * (-1.0) ** np.arange(n + 1)


def _checked_degrees(degrees: Sequence[int] | None, n: int, samples: int) -> list[int]:
    """The degrees from 1 on, sorted, after checking that the samples suffice for them."""
    if degrees is None:
        few = itertools.takewhile(lambda k: math.comb(n, k) <= samples // 2, range(1, n // 2 + 1))
        low = list(few)
        return sorted({*low, *(n - k for k in low), n})
    chosen = sorted({check_count("degree", k, 0) for k in degrees} - {0})
    for k in chosen:
        if k > n:
            raise InputError(f"degree {k} does not exist: the model has {n} bits")
        if math.comb(n, k) > (samples / 2) ** 1.5:
            raise InputError(
                f"degree {k} of {n} bits has too many sets for samples={samples} to say anything: "
                "leave it out, or take more"
            )
    return chosen


# ---------------------------------------------------------------- property testers


class DegreeOptions(TypedDict, total=False):
    """The keywords of the low-degree tester (`cube.testers.low_degree_test`)."""

    epsilon: Annotated[float, Keyword(0.1, "weight above the degree that is to be noticed")]
    confidence: Annotated[float, Keyword(0.95, "with which it is noticed")]
    trials: Annotated[int | None, Keyword(None, "in place of as many as that takes")]
    tolerance: Annotated[float, Keyword(1e-9, "for rounding; of a logit 1e-4 of half its range")]
    seed: Annotated[Seed, Keyword(0, "of the queries")]
    max_queries: Annotated[int, Keyword(DEFAULT_MAX_QUERIES, "most strings on which the model is evaluated")]


class SparsityOptions(TypedDict, total=False):
    """The keywords of the sparsity tester (`cube.testers.fourier_sparsity_test`)."""

    free: Annotated[int, Keyword(10, "positions that a random restriction leaves free")]
    epsilon: Annotated[float, Keyword(1e-3, "energy outside the largest coefficients that is to be noticed")]
    confidence: Annotated[float, Keyword(0.95, "with which it is noticed")]
    share: Annotated[float, Keyword(0.25, "of restrictions that are assumed to show it")]
    restrictions: Annotated[int | None, Keyword(None, "in place of as many as that takes")]
    seed: Annotated[Seed, Keyword(0, "of the restrictions")]
    max_queries: Annotated[int, Keyword(DEFAULT_MAX_QUERIES, "most strings on which the model is evaluated")]


@checked_arguments
def degree_test(
    model: Asked,
    n: int,
    degree: int,
    *,
    values: Values = "sign",
    value_range: Range | None = None,
    **options: Unpack[DegreeOptions],
) -> TestResult:
    """Whether the degree of the model's sign or logit is at most `degree`; a rejection is proof.

    A logit is rounded, so the tolerance of a trial is 1e-4 of half its range unless given.

    >>> degree_test(lambda bits: bits[:, 0] - 0.5, 8, 1).accepted
    True
    """
    ask, ends = _oracle_within(model, values, value_range)
    return low_degree_test(ask, n, degree, value_range=ends, **_tolerant(options, ends))


@checked_arguments
def first_degree(
    model: Asked,
    n: int,
    *,
    max_degree: int | None = None,
    values: Values = "sign",
    value_range: Range | None = None,
    **options: Unpack[DegreeOptions],
) -> Sweep:
    """The first degree 0, 1, 2, ... that `degree_test` accepts; never more than the true one.

    >>> first_degree(lambda bits: bits[:, 0] - 0.5, 8).value
    1
    """
    ask, ends = _oracle_within(model, values, value_range)
    return first_accepted_degree(ask, n, max_degree=max_degree, value_range=ends, **_tolerant(options, ends))


@checked_arguments
def sparsity_test(
    model: Asked,
    n: int,
    sparsity: int,
    *,
    values: Values = "sign",
    value_range: Range | None = None,
    **options: Unpack[SparsityOptions],
) -> TestResult:
    """Whether the model's sign or logit has at most `sparsity` coefficients that are not zero.

    >>> sparsity_test(lambda bits: bits[:, 0] - 0.5, 8, 1).accepted
    True
    """
    ask, ends = _oracle_within(model, values, value_range)
    return fourier_sparsity_test(ask, n, sparsity, value_range=ends, **options)


@checked_arguments
def first_sparsity(
    model: Asked,
    n: int,
    *,
    max_sparsity: int = 1000,
    values: Values = "sign",
    value_range: Range | None = None,
    **options: Unpack[SparsityOptions],
) -> Sweep:
    """The first sparsity 0, 1, 2, ... that `sparsity_test` accepts; never more than the true one.

    >>> first_sparsity(lambda bits: bits[:, 0] - 0.5, 8).value
    1
    """
    ask, ends = _oracle_within(model, values, value_range)
    return first_accepted_sparsity(ask, n, max_sparsity=max_sparsity, value_range=ends, **options)


def _tolerant(options: DegreeOptions, ends: Range | None) -> DegreeOptions:
    """The options with a tolerance for rounded logits, unless they have one."""
    if ends is not None and "tolerance" not in options:
        options["tolerance"] = _ROUNDING * (ends[1] - ends[0]) / 2
    return options
