"""How many strings a transformer needs to find three hidden bits among T, whose AND is the label (C.1; Figs 2, 4).

Trainings form chains, which are staircases in the number of strings m: a success takes fewer strings next, a failure
more. A training succeeds with probability 1 / (1 + exp(-b (ln m - ln g(T)))). The critical number g is free at each
length, or follows a law of two parameters, so that log-likelihoods compare laws as AIC does:

    log      g = a (1 + r ln(T / T_0))
    linear   g = a (1 + r (T / T_0 - 1))
    power    g = a T^alpha

An exponent below 1 means that g / T falls, which an intercept alone can cause: g = 38 + 0.3 T has an exponent of 0.6.
Whether growth slows down shows in the strings that each further bit costs: the slope of g between the two longest
lengths minus that between the two shortest.

Uncertainty comes from resampling chains. The likelihood ignores that a staircase chooses m by earlier outcomes, which
is correct: given the outcomes, the choice does not depend on g.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

import flipscope.lab as lab
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.basics.seeds import random_strings, seed_of
from flipscope.training.logs import series
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.sparse_variables import SUCCESS, on_training_set, sparse_recipe

FITTED = 1e-4  # training loss below which, with every string right, a training set is fitted
RELEVANT = 3
MANY = 60  # other bits that are 1 on all positive strings: among this many, another triple is certainly consistent


@dataclass(frozen=True)
class Chain(lab.Trial):
    """A sequence of trainings: after a success the next has fewer strings, after a failure more, by the ratio.

    With ratio 1 all have the same number. Without `stop` a training goes on after its success, and its curves are kept.
    """

    tag = "chain"
    length: int
    start: int
    chain: int
    trainings: int
    steps: int
    ratio: float = 1.1
    gate: str = "and"
    noise: float = 0.0
    balanced: bool = False
    stop: bool = True
    validation: int = 10_000
    width: int = 64
    heads: int = 16

    def check(self) -> None:
        """Refuse a ratio below 1, which would go the wrong way."""
        if self.ratio < 1 or min(self.start, self.trainings) < 1:
            raise InputError(f"ratio={self.ratio} must be at least 1, and start={self.start} and trainings positive")

    @property
    def cost(self) -> float:
        """Positions of all training strings, and a share per step for validation."""
        return self.trainings * self.steps * (self.start * self.length + 2_000.0)

    def samples(self, rung: int) -> int:
        """The strings on a rung of the staircase."""
        return max(2, round(self.start * self.ratio**rung))

    def recipe(self, samples: int, number: int) -> Recipe:
        """One training of the chain, with its own hidden bits, strings, weights and masks."""
        settings = {name: getattr(self, name) for name in ("steps", "noise", "balanced", "stop", "validation", "width")}
        seed = seed_of(self.length, self.start, self.chain, number) >> 16
        plain = sparse_recipe(self.gate, self.length, seed, samples=samples, heads=self.heads, **settings)
        return dataclasses.replace(plain, log=(on_training_set(plain),))

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """The trainings of a chain; each is a stored model, so that a chain that was killed goes on where it was."""
        rung, trainings = 0, []
        for number in range(self.trainings):
            samples = self.samples(rung)

            def told(done: int, _most: int, before: int = number * self.steps) -> None:
                progress(before + min(done, self.steps), self.trainings * self.steps)

            fitted = lab.trained(self.recipe(samples, number), told).fitted
            accuracies = [line.validation_accuracy for line in fitted.history]
            _, losses = series(fitted.log, "training_set.loss")
            _, rights = series(fitted.log, "training_set.accuracy")
            won = max(accuracies, default=0.0) > SUCCESS
            fits = any(loss < FITTED and right == 1 for loss, right in zip(losses, rights, strict=True))
            trainings.append((samples, won, fitted.steps, max(accuracies, default=0.0), min(losses), max(rights), fits))
            rung += -1 if won else 1
        names = ("samples", "success", "taken", "accuracy", "train_loss", "train_accuracy", "fits")
        table: dict[str, np.ndarray] = {
            name: np.array(each) for name, each in zip(names, zip(*trainings, strict=True), strict=True)
        }
        if self.stop or self.trainings > 1:
            return table
        history = fitted.history
        curves = {
            "step": [line.steps for line in history],
            "batch_loss": [line.train_loss for line in history],
            "set_loss": losses[1:],  # without the loss before the first step
            "validation_loss": [line.validation_loss for line in history],
            "validation_accuracy": accuracies,
        }
        return table | {f"curve_{name}": np.array(values) for name, values in curves.items()}


@dataclass(frozen=True)
class Learner(lab.Trial):
    """Draws of m strings for several m, to count how often only one triple is consistent with them."""

    tag = "learner"
    length: int
    samples: tuple[int, ...]
    draws: int

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """How often, for each number of strings, only one triple is consistent."""
        hits = []
        for place, samples in enumerate(self.samples):
            stream = np.random.default_rng([self.length, samples])
            hits.append(sum(only_one_triple(self.length, samples, stream) for _ in range(self.draws)))
            progress(place + 1, len(self.samples))
        return {"hits": np.array(hits)}


def rows_of(trial: lab.Trial, outcome: lab.Outcome) -> list[lab.Row]:
    """A row per training, or per number of strings of a learner."""
    about = trial.content()
    if isinstance(trial, Learner):
        hits = np.array(outcome["hits"]).tolist()
        return [
            {"kind": "learner", "length": trial.length, "samples": m, "hits": hit, "of": trial.draws}
            for m, hit in zip(trial.samples, hits, strict=True)
        ]
    plain = {name: np.array(value).tolist() for name, value in outcome.items()}
    curves = {name: value for name, value in plain.items() if name.startswith("curve_")}
    per_training = {name: value for name, value in plain.items() if name not in curves}
    kind = "curve" if curves else "training"
    return [
        {"kind": kind, **about, **dict(zip(per_training, each, strict=True)), "number": number, **curves}
        for number, each in enumerate(zip(*per_training.values(), strict=True))
    ]


# ---------------------------------------------------------------- the learner of consistent triples


def only_one_triple(length: int, samples: int, stream: np.random.Generator) -> bool:
    """Whether, of all ANDs of three of `length` bits, only the right one agrees with `samples` random strings.

    Any other must be 1 on every positive string. By symmetry the right one has the first three bits, and only the
    number of other bits that are 1 on all positive strings matters, each with probability 2^-positives.
    """
    right = random_strings(stream, samples, RELEVANT)
    positive = right.all(axis=1)
    others = int(stream.binomial(length - RELEVANT, 0.5 ** int(positive.sum())))
    if others > MANY:
        return False
    negative = np.concatenate(
        [right[~positive], random_strings(stream, int((~positive).sum()), max(1, others))], axis=1
    )
    negative = negative[:, : RELEVANT + others].astype(np.float32)
    pairs = np.array(list(itertools.combinations(range(RELEVANT + others), 2)))
    both = negative[:, pairs[:, 0]] * negative[:, pairs[:, 1]]
    free = (both.T @ negative) == 0  # [pair, bit]: the triple is 1 on no negative string
    free &= np.arange(RELEVANT + others) > pairs[:, 1:]  # each triple once
    return int(free.sum()) == 1  # the right one agrees in any case


def floor(length: float) -> float:
    """A lower bound on the strings that a learner of AND needs: log2 C(T, 3) bits, and a label carries H(1/8) bits.

    >>> [round(floor(length), 1) for length in (50, 100, 200, 400)]
    [26.2, 31.8, 37.4, 42.9]
    """
    ones = 2.0**-RELEVANT
    entropy = -ones * math.log2(ones) - (1 - ones) * math.log2(1 - ones)
    return math.log2(math.comb(round(length), RELEVANT)) / entropy


def halfway(places: Sequence[float], shares: Sequence[float]) -> float | None:
    """Where a rising share crosses one half, between two of the places; None if it does not.

    >>> halfway([10, 20, 30], [0.0, 0.25, 0.75])
    25.0
    """
    for (x, low), (y, high) in itertools.pairwise(zip(places, shares, strict=True)):
        if low < 0.5 <= high:
            return x + (y - x) * (0.5 - low) / (high - low)
    return None


FEWEST_LENGTHS, FEWEST_CHAINS = 3, 2
FEWEST_EACH = 3  # fewest successes and fewest failures at every length, for a critical number to be determined
RESAMPLES = 200
_RATES = np.concatenate([[0.0], np.geomspace(0.05, 20, 60)])  # r of the laws
_RIDGE = 1e-3  # keeps a separated likelihood finite
_LARGEST = 30.0

Group = tuple[int, int, int]  # length, start, chain
Trainings = tuple[tuple[Group, int, bool], ...]  # group, strings, success


@dataclass(frozen=True)
class Growth:
    """Estimates of the critical number of strings; `laws` are its fitted values at the lengths, by law."""

    critical: Mapping[int, Estimate]
    exponent: Estimate  # alpha of the power law
    bend: Estimate  # strings per further bit between the two longest lengths, minus that between the two shortest
    log_over_linear: Estimate  # differences of log-likelihoods
    log_over_power: Estimate
    laws: Mapping[str, tuple[float, ...]]
    width: float  # 1 / b


def growth_of(table: lab.Rows) -> Growth | None:
    """The fits to a table's trainings.

    None with fewer than 3 lengths, with fewer than 2 chains or 3 successes and 3 failures at one of them, or where
    successes do not rise with m.
    """
    rows = table.where(kind="training")
    resampled = _resampled(
        tuple(((r["length"], r["start"], r["chain"]), r["samples"], bool(r["success"])) for r in rows)
    )
    if resampled is None:
        return None
    confidence = lab.confidence()
    quantile = float(stats.t.ppf((1 + confidence) / 2, resampled.freedom))
    exponent, log_linear, log_power, bend, *logs = (
        Estimate(value, value - quantile * error, value + quantile * error, confidence, resampled.chains)
        for value, error in zip(resampled.values.tolist(), resampled.errors.tolist(), strict=True)
    )
    critical = {
        length: Estimate(math.exp(log.value), math.exp(log.low), math.exp(log.high), log.confidence, log.samples)
        for length, log in zip(resampled.lengths, logs, strict=True)
    }
    width = 1 / float(resampled.fits["free"][0][0, -1])
    return Growth(
        critical,
        exponent,
        bend,
        log_linear,
        log_power,
        _laws(resampled.fits, resampled.lengths, resampled.centres),
        width,
    )


@dataclass(frozen=True, eq=False)
class _Resampled:
    """The results of `_numbers` with standard errors over chains, and the fits behind them."""

    values: np.ndarray
    errors: np.ndarray
    freedom: int
    chains: int
    lengths: Sequence[int]
    centres: Sequence[float]  # mean of ln m at each length, which is subtracted in the fits for accuracy
    fits: Fits


@functools.lru_cache(maxsize=16)
def _resampled(trainings: Trainings) -> _Resampled | None:
    chains: dict[tuple[int, int], dict[int, list[tuple[int, int, bool]]]] = {}
    for (length, start, chain), samples, success in trainings:
        chains.setdefault((length, start), {}).setdefault(chain, []).append((length, samples, success))
    lengths = sorted({length for length, _ in chains})
    fewest = min((len(group) for group in chains.values()), default=0)
    outcomes = {length: [won for (trained, _, _), _, won in trainings if trained == length] for length in lengths}
    each = min((min(sum(won), len(won) - sum(won)) for won in outcomes.values()), default=0)
    if len(lengths) < FEWEST_LENGTHS or fewest < FEWEST_CHAINS or each < FEWEST_EACH:
        return None
    all_rows = [row for group in chains.values() for chain in group.values() for row in chain]
    centres = [float(np.mean([math.log(m) for trained, m, _ in all_rows if trained == length])) for length in lengths]
    fits = _fits(all_rows, lengths, centres)
    whole = _numbers(fits, lengths, centres)
    if not np.isfinite(whole).all():
        return None
    stream = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES):
        rows: list[tuple[int, int, bool]] = []
        for group in chains.values():
            names = list(group)
            rows += [row for place in stream.integers(0, len(names), len(names)) for row in group[names[place]]]
        drawn.append(_numbers(_fits(rows, lengths, centres, fits), lengths, centres))
    numbers = np.array(drawn)
    numbers = numbers[np.isfinite(numbers).all(axis=1)]
    if len(numbers) < 0.9 * RESAMPLES:
        return None
    count = sum(len(group) for group in chains.values())
    # With k chains resampling gives (k - 1) / k of the true variance; few chains have Student's tails.
    errors = numbers.std(axis=0, ddof=1) * math.sqrt(fewest / (fewest - 1))
    return _Resampled(whole, errors, count - len(chains), count, lengths, centres, fits)


def _counts(rows: Sequence[tuple[int, int, bool]]) -> tuple[np.ndarray, ...]:
    """Lengths, strings, trainings and successes, of each length and number of strings."""
    groups: dict[tuple[int, int], list[bool]] = {}
    for length, samples, success in rows:
        groups.setdefault((length, samples), []).append(success)
    places = np.array(list(groups), np.float64)
    hits = np.array([sum(successes) for successes in groups.values()], np.float64)
    return places[:, 0], places[:, 1], np.array([len(successes) for successes in groups.values()], np.float64), hits


Fits = Mapping[str, tuple[np.ndarray, np.ndarray]]  # coefficients [fit, column] and log-likelihoods [fit], by law


def _fits(
    rows: Sequence[tuple[int, int, bool]], lengths: Sequence[int], centres: Sequence[float], near: Fits | None = None
) -> Fits:
    """The fits with a critical number that is free at each length, and by each law at each of its rates."""
    length, samples, trials, hits = _counts(rows)
    centred = np.log(samples) - np.array(centres)[np.searchsorted(lengths, length)]
    x, middle = np.log(samples) - np.mean(centres), np.log(length) - np.mean(np.log(lengths))
    columns = {
        "free": np.column_stack([length[:, None] == np.array(lengths), centred])[None].astype(np.float64),
        "power": np.stack([np.ones_like(x), middle, x], axis=1)[None],
    }
    for law in ("log", "linear"):
        shape = np.log1p(_RATES[:, None] * _rise(law, length, lengths[0]))
        columns[law] = np.stack([np.ones_like(shape), x - shape], axis=2)
    return {law: logistic(each, trials, hits, None if near is None else near[law][0]) for law, each in columns.items()}


def _rise(law: str, length: np.ndarray, first: float) -> np.ndarray:
    return np.log(length / first) if law == "log" else length / first - 1


def _numbers(fits: Fits, lengths: Sequence[int], centres: Sequence[float]) -> np.ndarray:
    """Exponent, both differences of log-likelihoods, the bend, and ln g at each length; NaN where undefined."""
    (free, _), (power, _) = fits["free"], fits["power"]
    if free[0, -1] <= 0 or power[0, -1] <= 0:
        return np.full(3 + free.shape[1], np.nan)
    log, linear, of_power = (float(fits[law][1].max()) for law in ("log", "linear", "power"))
    compared = [-power[0, 1] / power[0, 2], log - linear, log - of_power]
    logs = np.array(centres) - free[0, :-1] / free[0, -1]
    slopes = np.diff(np.exp(logs)) / np.diff(np.array(lengths, np.float64))
    return np.array([*compared, slopes[-1] - slopes[0], *logs])


def _laws(fits: Fits, lengths: Sequence[int], centres: Sequence[float]) -> dict[str, tuple[float, ...]]:
    """The critical numbers by each law."""
    wanted, centre = np.array(lengths, np.float64), float(np.mean(centres))
    by_law: dict[str, tuple[float, ...]] = {}
    for law in ("log", "linear"):
        best = int(np.argmax(fits[law][1]))
        start, slope = fits[law][0][best]
        rise = 1 + _RATES[best] * _rise(law, wanted, wanted[0])
        by_law[law] = tuple((math.exp(centre - start / slope) * rise).tolist())
    start, rise, slope = fits["power"][0][0]
    middle = np.log(wanted) - np.mean(np.log(lengths))
    by_law["power"] = tuple(np.exp(centre - (start + rise * middle) / slope).tolist())
    return by_law


def logistic(
    columns: np.ndarray, trials: np.ndarray, hits: np.ndarray, start: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Several logistic regressions at once, by Newton's method: coefficients [fit, column] and log-likelihoods [fit].

    A small ridge keeps the solution finite where successes and failures are separated. A start near the solution, such
    as that of the whole data for a part of it, saves steps.

    >>> x = np.array([[1.0, -1.0], [1.0, 1.0]])
    >>> found, _ = logistic(x[None], np.array([1000.0, 1000.0]), np.array([250.0, 750.0]))
    >>> bool(np.allclose(found, [[0, math.log(3)]], atol=0.001))
    True
    """
    beta = np.zeros((len(columns), columns.shape[2])) if start is None else start.copy()
    ridge = _RIDGE * np.eye(columns.shape[2])
    turned = columns.transpose(0, 2, 1)
    for _ in range(40):
        chance = 1 / (1 + np.exp(-np.clip((columns @ beta[..., None])[..., 0], -_LARGEST, _LARGEST)))
        slope = turned @ (hits - trials * chance)[..., None] - _RIDGE * beta[..., None]
        weights = trials * chance * (1 - chance) + 1e-9
        step = np.linalg.solve((turned * weights[:, None]) @ columns + ridge, slope)[..., 0]
        beta += np.clip(step, -3, 3)
        if np.abs(step).max() < 1e-5:
            break
    eta = np.clip((columns @ beta[..., None])[..., 0], -_LARGEST, _LARGEST)
    fits = (hits * eta - trials * np.logaddexp(0, eta)).sum(axis=1)
    return beta, fits


def smallest_above_half(rows: lab.Rows, seed: int = 0) -> Estimate | None:
    """The paper's rule: the least m at which more than half succeed, and a standard error of 50 resamples around it."""
    groups = [(m, np.array(trainings.column("success"), bool)) for m, trainings in rows.by("samples")]
    value = next((m for m, won in groups if won.mean() > 0.5), None)
    if value is None:
        return None
    stream, again = np.random.default_rng(seed), []
    for _ in range(50):
        shares = [(m, stream.choice(won, len(won)).mean()) for m, won in groups]
        again.append(next((m for m, share in shares if share > 0.5), groups[-1][0]))
    error = float(np.std(again, ddof=1))
    return Estimate(value, value - error, value + error, 0.68, len(rows))


# ---------------------------------------------------------------- judges


def _growth_or_undecided(table: lab.Rows) -> Growth | lab.Judgement:
    growth = growth_of(table)
    if growth is not None:
        return growth
    need = (
        f"{FEWEST_LENGTHS} lengths with {FEWEST_CHAINS} chains, {FEWEST_EACH} successes and {FEWEST_EACH} failures each"
    )
    return lab.Judgement.without("the critical number of strings cannot be told", need)


def judge_per_bit(table: lab.Rows) -> lab.Judgement:
    """The exponent of a power law is below 1, so that g / T falls."""
    growth = _growth_or_undecided(table)
    if isinstance(growth, lab.Judgement):
        return growth
    return lab.at_most(growth.exponent, 1.0, "exponent of the critical m in T", unit="chains")


def judge_slower(table: lab.Rows) -> lab.Judgement:
    """Each further bit costs fewer strings when strings are long than when they are short."""
    growth = _growth_or_undecided(table)
    if isinstance(growth, lab.Judgement):
        return growth
    ends = list(growth.critical)
    quantity = f"strings per further bit, from T = {ends[-2]} to {ends[-1]} less from {ends[0]} to {ends[1]}"
    return lab.at_most(growth.bend, 0.0, quantity, unit="chains")


def _better(difference: Estimate, quantity: str) -> lab.Judgement:
    judged = lab.at_least(difference, 0.0, quantity, unit="chains")
    return judged if difference.low > 0 or judged.verdict != "reproduced" else judged.left_open("both fit equally well")


def judge_log(table: lab.Rows) -> lab.Judgement:
    """Growth like log T has a larger likelihood than linear growth."""
    growth = _growth_or_undecided(table)
    if isinstance(growth, lab.Judgement):
        return growth
    return _better(growth.log_over_linear, "log-likelihood of log T less that of linear growth")


def judge_power(table: lab.Rows) -> lab.Judgement:
    """Growth like log T has a larger likelihood than a power of T."""
    growth = _growth_or_undecided(table)
    if isinstance(growth, lab.Judgement):
        return growth
    return _better(growth.log_over_power, "log-likelihood of log T less that of a power of T")


LAWS = {"log": "a + b log T", "power": "power of T", "linear": "a + b T"}


def success_panel(table: lab.Rows) -> lab.Panel:
    """The share of trainings that succeed by the number of strings, with the fitted curve of each length."""
    growth, series = growth_of(table), []
    for colour, (length, rows) in enumerate(table.where(kind="training").by("length")):
        groups = list(rows.by("samples"))
        shares = [lab.share_of(trainings, lambda row: bool(row["success"]), 0.68) for _, trainings in groups]
        hover = [
            f"T = {length}, m = {m}: {sum(trainings.column('success'))} of {len(trainings)}" for m, trainings in groups
        ]
        places = [m for m, _ in groups]
        series.append(lab.estimates(f"T = {length}", places, shares, "points", colour=colour, hover=hover))
        if growth is not None:
            x = np.geomspace(min(places), max(places), 100)
            middle = growth.critical[length].value
            y = 1 / (1 + np.exp(-(np.log(x) - math.log(middle)) / growth.width))
            series.append(lab.Series(f"T = {length}", x.tolist(), y.tolist(), colour=colour))
    rule = lab.Rule(0.5, "one half")
    return lab.Panel("", "strings m", "share that succeed", series, x_log=True, y_range=(0, 1), rules=[rule])


def critical_panel(table: lab.Rows) -> lab.Panel:
    """The critical number of strings by length: measured, by three laws, a floor, and the learner of triples."""
    growth, rows = growth_of(table), table.where(kind="training")
    lengths = rows.values("length")
    series = []
    if growth is not None:
        places = list(growth.critical)
        values = list(growth.critical.values())
        series.append(lab.estimates("half succeed (logistic fit)", places, values, "points", colour=0))
        for number, law in enumerate(LAWS):
            x, y = _drawn(law, places, growth.laws[law])
            series.append(lab.Series(f"{LAWS[law]}, fitted", x, y, dashed=law != "log", colour=2 + number))
    rule = {length: each for length in lengths if (each := smallest_above_half(rows.where(length=length))) is not None}
    if rule:
        series.append(lab.estimates("least m above one half", list(rule), list(rule.values()), "points", colour=1))
    learner = {
        length: place
        for length, draws in table.where(kind="learner").by("length")
        if (place := halfway(draws.column("samples"), [row["hits"] / row["of"] for row in draws])) is not None
    }
    if learner:
        series.append(lab.Series("one triple is left", list(learner), list(learner.values()), colour=5))
    series.append(lab.Series("floor log2 C(T, 3) / H(1/8)", lengths, [floor(length) for length in lengths], colour=6))
    return lab.Panel("", "length T", "strings m", series, x_log=True)


def _drawn(law: str, lengths: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """A law of two parameters, determined by its first and last value, drawn between these."""
    (first, last), (low, high) = (lengths[0], lengths[-1]), (values[0], values[-1])
    x = np.geomspace(first, last, 50)
    part = (x - first) / (last - first) if law == "linear" else np.log(x / first) / math.log(last / first)
    y = low * (high / low) ** part if law == "power" else low + (high - low) * part
    return x.tolist(), y.tolist()


def curve_figure(table: lab.Rows) -> lab.Figure | None:
    """Losses and accuracy of the trainings whose curves were kept."""
    panels = []
    for row in table.where(kind="curve"):
        place = f"T = {row['length']}, m = {row['samples']}"
        names = (
            ("set_loss", "training set"),
            ("batch_loss", "batches, with dropout"),
            ("validation_loss", "validation"),
        )
        losses = [
            lab.Series(label, row["curve_step"], [max(value, 1e-7) for value in row[f"curve_{name}"]], colour=colour)
            for colour, (name, label) in enumerate(names)
        ]
        limit = lab.Rule(FITTED, f"{FITTED:g}")
        panels.append(lab.Panel(place, "steps", "loss", losses, y_log=True, rules=[limit]))
        accuracy = lab.Series("validation", row["curve_step"], row["curve_validation_accuracy"], colour=2)
        rules = [lab.Rule(SUCCESS, f"{SUCCESS:g}"), lab.Rule(0.875, "always 0")]
        panels.append(lab.Panel(place, "steps", "accuracy", [accuracy], rules=rules))
    caption = "One training of each. One that learns its strings by heart stays near the accuracy of always 0."
    return lab.Figure("sparse-and-curves", "Two trainings", caption, panels, where="Fig 2 right") if panels else None


STEPS = 1_000  # of the paper
FEWEST = 10  # trainings that ran to the end
LEARNER = tuple(range(24, 61, 4))


def judge_fits(table: lab.Rows) -> lab.Judgement:
    """Every training of the paper's length fits its strings."""
    ended = table.where(lambda row: row["kind"] != "learner" and row["taken"] >= STEPS)
    if not ended:
        return lab.Judgement.without(f"no training took {STEPS:,} steps", "more trainings that fail to generalise")
    worst = max(ended.column("train_loss"))
    missed = sum(not fits for fits in ended.column("fits"))
    name = "share of trainings that do not fit their strings"
    judged = lab.never(missed, len(ended), name, f"largest of the smallest losses {worst:.2g}")
    return lab.unless_few(judged, len(ended), FEWEST, f"trainings of {STEPS:,} steps")


class SparseAnd(lab.Study):
    """Whether the number of strings that it takes grows like log T."""

    name, paper, figures = "sparse-and", "003", ("Fig 2", "Fig 4")
    title = "How many strings a transformer needs to find three hidden bits, by length"
    sample_sizes, base_seed = ("chains",), "first_chain"
    scales = lab.scales(
        "{chains} chains of {trainings} trainings each at (T, m) = {starts}, a factor {ratio} in m after each; at most "
        "{steps} steps; curves of (T, m) = {curves}",
        smoke=(0.2, {"starts": ((8, 24), (10, 24), (12, 24)), "chains": 2, "trainings": 2, "steps": 10, "ratio": 1.5}
               | {"curves": ((12, 30),), "draws": 10, "shape": (100, 8, 2)}),
        # Chains that no earlier run used: chains 0 to 7 were used to choose the criterion of the first claim. The
        # laws differ most at long strings, so most of the time goes there.
        laptop=(45, {"starts": ((50, 47), (200, 105), (800, 190)), "chains": 6, "first_chain": 1_000, "trainings": 12}
                | {"steps": STEPS, "ratio": 1.1, "curves": ((400, 100), (400, 200)), "draws": 2_000}
                | {"shape": (10_000, 64, 16)}),
        paper=(4_000, {"starts": tuple((t, m) for t in (*range(100, 401, 50), 500, 600, 700, 800)
                                       for m in range(50, 201, 10)), "chains": 5, "trainings": 10}
               | {"steps": STEPS, "ratio": 1.0, "curves": ((400, 100), (400, 200)), "draws": 2_000}
               | {"shape": (10_000, 64, 16)}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("T (laptop)", "100 to 400, 500 to 800", "50, 200, 800", "45 minutes, most of them for the longest strings"),
        ("m (laptop)", "50, 60 … 200, 50 trainings each",
         "staircases: times 1.1 after a failure, divided by 1.1 after a success",
         "trainings are spent where about half succeed"),
        ("stop", "after 1,000 steps", "at the first validation accuracy above 0.99", "success is decided then"),
        ("critical m", "least m with more than half successes", "logistic fit in ln m, the paper's rule beside it",
         "the rule needs many trainings at each m"),
        ("first m of a staircase (laptop)", "none: a grid", "47, 105 and 190 strings",
         "from pilot trainings at T = 50 to 400 and a guess between the laws at 800; a bad start costs trainings only"),
        ("uncertainty", "50 bootstrap samples", "chains resampled, Student's quantile", "trainings of a chain depend"),
        ("weight decay, clipping", "1e-4; not stated", "decoupled, on matrices; norm at most 1", "minGPT's defaults"),
        ("training loss", "dropout not stated", "without dropout, every 10 steps", "with it the loss has a floor"),
        ("trainings that succeed early", "all fit their strings", "not judged: they are stopped", "computing time"),
    )  # fmt: skip
    revision = 2  # revision 1 had other dropout masks
    claims = (
        lab.Claim(
            "the critical number of strings per bit falls",
            "Figs 2, 4",
            "the number of strings at which half of the trainings succeed grows less than proportionally to the length",
            "exponent of a power law in T for the critical m, interval over chains: at most 1 (an intercept suffices)",
            judge_per_bit,
        ),
        lab.Claim(
            "its growth slows down",
            "Figs 2, 4",
            "growth is sublinear: the longer the strings, the fewer each further bit costs",
            "slope of the critical m in T between the two longest lengths, less that between the two shortest, "
            "interval over chains: below 0 (0 for any a + b T)",
            judge_slower,
        ),
        lab.Claim(
            "log T fits better than linear growth",
            "section 5",
            "the critical number follows the log T of the theory",
            "log-likelihood of successes with critical m = a + b log T, less that with a + b T: above 0",
            judge_log,
        ),
        lab.Claim(
            "log T fits better than a power of T",
            "section 5",
            "left open: a small power resembles a logarithm",
            "the same, less that with a T^alpha: above 0",
            judge_power,
            exploratory=True,
        ),
        lab.Claim(
            "every training fits its strings",
            "C.1",
            "within 1,000 steps each training reaches a small loss and gets all of its strings right",
            f"trainings of {STEPS:,} steps without a training loss below {FITTED:g} at all strings right: none",
            judge_fits,
        ),
    )

    def trials(self, scale: str) -> list[lab.Trial]:
        plan = self.scales[scale].settings
        validation, width, heads = plan["shape"]
        shape = {"validation": validation, "width": width, "heads": heads}
        chains = [
            Chain(length, start, chain, plan["trainings"], plan["steps"], plan["ratio"], **shape)
            for length, start in plan["starts"]
            for chain in range(plan.get("first_chain", 0), plan.get("first_chain", 0) + plan["chains"])
        ]
        curves = [Chain(length, m, 0, 1, plan["steps"], 1.0, stop=False, **shape) for length, m in plan["curves"]]
        lengths = sorted({length for length, _ in plan["starts"]})
        return [*chains, *curves, *(Learner(length, LEARNER, plan["draws"]) for length in lengths)]

    def rows(self, trial: Chain | Learner, outcome: lab.Outcome) -> list[lab.Row]:
        return rows_of(trial, outcome)

    def provenance(self, table: lab.Rows) -> list[str]:
        rows, growth = table.where(kind="training"), growth_of(table)
        sentences = [f"{sum(rows.column('success'))} of {len(rows)} trainings succeeded"]
        if growth is not None:
            each = ", ".join(
                f"{e.value:.0f} [{e.low:.0f}, {e.high:.0f}] at T = {t}" for t, e in growth.critical.items()
            )
            sentences.append(f"half of them succeed at m = {each}")
        return sentences

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        caption = (
            "Bars: 68 % intervals, as the paper's standard errors. Lines: one logistic curve in ln m for all lengths."
        )
        both = "Bars: 95 % intervals over chains, one standard error of the rule. One triple: left by half of all sets."
        figures = []
        if table.where(kind="training"):
            figures = [
                lab.Figure(
                    "sparse-and-success", "Success by strings", caption, [success_panel(table)], 1, "Figs 2, 4 left"
                ),
                lab.Figure("sparse-and-critical", self.title, both, [critical_panel(table)], 1, "Figs 2, 4 right"),
            ]
        curves = curve_figure(table)
        return figures if curves is None else [*figures, curves]


STUDY = SparseAnd()
