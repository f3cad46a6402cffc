"""Judges that several studies share; the intervals of one claim are valid simultaneously.

Wherever a `confidence` can be given, None stands for that of the current look (`lab.looks.confidence`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from flipscope.basics import estimates, resampling
from flipscope.basics.estimates import Estimate, proportions
from flipscope.basics.resampling import straight_line, welch_difference
from flipscope.basics.wording import number_text
from flipscope.lab import looks
from flipscope.lab.rows import Row, Rows
from flipscope.lab.verdict import Judgement, all_of, at_least, never

ROUNDING = 1e-9  # relative excess over a bound that is attributed to rounding
FEWEST_SLOPES, FEWEST_POINTS = 5, 3
_SOME = 0.05  # a share of models below this counts as none
Judge = Callable[[Rows], Judgement]
GroupJudge = Callable[[Any, Rows, float], Judgement]  # of the rows of a group, at a confidence


def for_each(
    groups: Iterable[tuple[Any, Rows]],
    judge: GroupJudge,
    *,
    missing: str = "nothing was measured",
    intervals: int = 1,
    besides: int = 0,
    sort: bool = False,
    fewest: int = 1,
    what: str = "groups",
) -> Judgement:
    """The claim must hold in every group of rows: `judge(group, rows, confidence)`, the error divided among them.

    `intervals` is the number of intervals that the judge makes, `besides` that of the claim's other intervals. A group
    without rows leaves the claim undecided, and so do fewer groups than `fewest`, though one of them can contradict.
    With `sort` the weakest of equal verdicts is shown.

    >>> from flipscope.lab.verdict import at_least
    >>> rows = Rows({"n": n, "right": 95} for n in (4, 8))
    >>> judged = for_each(
    ...     rows.by("n"), lambda n, own, level: at_least(share(own.total("right"), 100, level), 0.8, f"accuracy at {n}")
    ... )
    >>> judged.verdict, judged.note, len(judged.parts)
    ('reproduced', 'holds for 2 of 2 groups', 2)
    """
    found = list(groups)
    if not any(rows for _, rows in found):
        return Judgement.without(missing)
    confidence = looks.confidence(intervals * len(found) + besides)
    parts = [
        judge(group, rows, confidence) if rows else Judgement.without(f"{group}: {missing}") for group, rows in found
    ]
    judged = all_of(weakest_first(parts) if sort else parts)
    if len(found) > 1 and not judged.note:
        holds = sum(part.verdict == "reproduced" for part in parts)
        judged = replace(judged, note=f"holds for {holds} of {len(found)} {what}")
    return unless_few(judged, len(found), fewest, what)


def for_every(
    rows: Rows, judge: Callable[[Row, float], Judgement], *, missing: str = "nothing was measured", **options: Any
) -> Judgement:
    """The claim must hold in every single row, such as a model: `judge(row, confidence)`; `options` as for `for_each`.

    >>> from flipscope.lab.verdict import at_least
    >>> rows = Rows({"right": right} for right in (99, 95))
    >>> judged = for_every(rows, lambda row, level: at_least(share(row["right"], 100, level), 0.8, "accuracy"))
    >>> judged.verdict, judged.note
    ('reproduced', 'holds for 2 of 2 rows')
    """
    each = [(place, Rows([row])) for place, row in enumerate(rows)]
    options = {"what": "rows", **options}
    return for_each(each, lambda _, own, level: judge(own[0], level), missing=missing, **options)


def weakest_first(parts: Iterable[Judgement]) -> list[Judgement]:
    """Judgements against one limit, the closest to violating it first; those without a number come before all.

    >>> from flipscope.lab.verdict import at_least
    >>> found = [at_least(share(hits, 100), 0.5, f"{hits} %") for hits in (90, 70, 80)]
    >>> [part.quantity for part in weakest_first(found)]
    ['70 %', '80 %', '90 %']
    """

    def room(part: Judgement) -> float:
        end = -math.inf if part.high is None else -part.high
        return end if part.limit.startswith("≤") else -math.inf if part.low is None else part.low

    return sorted(parts, key=room)


def at(confidence: float | None) -> float:
    """The given confidence; for None, that of the current look.

    >>> at(None), at(0.9)
    (0.95, 0.9)
    """
    return looks.confidence() if confidence is None else confidence


def exactly(value: float) -> Estimate:
    """An estimate for a computed, not sampled number: its interval is a point.

    >>> exactly(0.5).low == exactly(0.5).high
    True
    """
    return Estimate(value, value, value, 1.0, 1)


def student_mean(samples: Sequence[float], confidence: float | None = None) -> Estimate:
    """The mean with Student's interval: exact for normal samples, approximate for a dozen samples of other kinds.

    >>> found = student_mean([1.0, 2.0, 3.0])
    >>> found.value, round(found.low, 2)
    (2.0, -0.48)
    """
    return resampling.student_mean(samples, at(confidence))


def bounded_mean(samples: Sequence[float], low: float, high: float, confidence: float | None = None) -> Estimate:
    """The mean of samples that lie in [low, high], with an interval that holds for any distribution of them.

    >>> bounded_mean([0.0, 1.0, 1.0], 0, 1).samples
    3
    """
    return estimates.mean_from_samples(samples, low, high, at(confidence))


def tail_exponent(samples: Sequence[float], largest: int, confidence: float | None = None) -> Estimate:
    """Hill's estimate of a in P(X > t) ~ t^-a from the `largest` samples.

    >>> tail_exponent([1.0, 2.0, 4.0, 8.0], 2).samples
    4
    """
    return resampling.tail_exponent(samples, largest, at(confidence))


def share(hits: int, of: int, confidence: float | None = None, validity: estimates.Validity = "fixed") -> Estimate:
    """The share of `hits` in `of` with Clopper and Pearson's interval, or one that is valid "anytime".

    >>> found = share(19, 20)
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (0.95, 0.751, 0.999)
    """
    return proportions([hits], of, at(confidence), validity)[0]


def share_of(rows: Rows, test: Callable[[Row], bool], confidence: float | None = None) -> Estimate:
    """The share of the rows that pass the test, with its interval.

    >>> share_of(Rows({"y": y} for y in range(10)), lambda row: row["y"] < 8).value
    0.8
    """
    return share(sum(map(test, rows)), len(rows), confidence)


def mean_of(
    column: str,
    says: Callable[..., Judgement],
    limit: float,
    quantity: str,
    *,
    within: tuple[float, float] | None = (0.0, 1.0),
    fewest: int = 2,
    unit: str = "models",
) -> GroupJudge:
    """A judge for `for_each`: the mean of a column over a group's rows, with `says` at least or at most a limit.

    The values lie `within` these ends; an undecided judgement states the least number of rows needed. Values without
    ends (None) have Student's interval and need at least `fewest` rows. NaN leaves the group undecided.

    >>> from flipscope.lab.verdict import at_least
    >>> rows = Rows({"init": init, "share": 1.0} for init in ("uniform", "gaussian") for _ in range(60))
    >>> judged = for_each(rows.by("init"), mean_of("share", at_least, 0.9, "share of strings at 0"))
    >>> judged.verdict, judged.quantity
    ('reproduced', 'share of strings at 0, gaussian')
    """

    def one(group: Any, rows: Rows, confidence: float) -> Judgement:
        if odd := _not_numbers(rows.column(column)):
            return Judgement.without(f"{quantity}, {group}: {odd} of {len(rows)} {unit} have no number")
        if within is None:
            if len(rows) < fewest:
                return Judgement.without(f"too few {unit}, {group}: {len(rows)}", f"at least {fewest} {unit}")
            return says(student_mean(rows.column(column), confidence), limit, f"{quantity}, {group}", unit=unit)
        low, high = within
        found = bounded_mean(rows.column(column), low, high, confidence)
        reach = (high - limit if says is at_least else limit - low) / (high - low)
        return with_fewest(says(found, limit, f"{quantity}, {group}", unit=unit), found, reach, f"{unit} in each group")

    return one


def share_where(
    test: Callable[[Row], bool], says: Callable[..., Judgement], limit: float, quantity: str, *, unit: str = "models"
) -> GroupJudge:
    """A judge for `for_each`: the share of a group's rows that pass the test, with `says` at least or at most a limit.

    >>> from flipscope.lab.verdict import at_least
    >>> rows = Rows({"init": "uniform", "y": 0.0} for _ in range(60))
    >>> judge = share_where(lambda row: row["y"] < 1, at_least, 0.9, "share of models below 1")
    >>> for_each(rows.by("init"), judge).verdict
    'reproduced'
    """

    def one(group: Any, rows: Rows, confidence: float) -> Judgement:
        found = share_of(rows, test, confidence)
        reach = 1 - limit if says is at_least else limit
        return with_fewest(says(found, limit, f"{quantity}, {group}", unit=unit), found, reach, f"{unit} in each group")

    return one


def of_models(
    rows: Rows,
    test: Callable[[Row], bool],
    how_many: Literal["all", "most", "some"],
    quantity: str,
    *,
    confidence: float | None = None,
    unit: str = "models",
) -> Judgement:
    """Whether all, most or some of the models in the rows pass the test: three different claims.

    all     a single model that fails contradicts; the interval is that of the share that fails
    most    the share that passes is at least one half, by its interval: one stuck training does not contradict
    some    a single model that passes reproduces; contradicted if the interval of the share ends below 0.05

    >>> rows = Rows({"accuracy": accuracy} for accuracy in (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5))
    >>> [of_models(rows, lambda row: row["accuracy"] > 0.9, how, "share that learn").verdict for how in ("all", "most")]
    ['contradicted', 'reproduced']
    """
    passed = sum(map(test, rows))
    said = f"{passed} of {len(rows)} {unit}"
    if not rows:
        return Judgement.without(f"{quantity}: no {unit}")
    if how_many == "all":
        return never(len(rows) - passed, len(rows), f"{quantity}: those that do not", confidence=confidence)
    found = share(passed, len(rows), confidence)
    if how_many == "most":
        return with_fewest(at_least(found, 0.5, quantity, said, unit), found, 0.5, unit)
    judged = at_least(found, _SOME, quantity, said, unit)
    return replace(judged, verdict="reproduced", remedy="", limit="at least one") if passed else judged


def more_often(first: str, second: str, quantity: str, *, unit: str = "cases") -> GroupJudge:
    """A judge for `for_each`: of the cases that two columns count in a group's rows, at least half are of the first.

    >>> rows = Rows({"n": 4, "heads": 9, "tails": 1} for _ in range(5))
    >>> judged = for_each(rows.by("n"), more_often("heads", "tails", "share of heads"))
    >>> judged.verdict, judged.measured
    ('reproduced', 0.9)
    """

    def one(group: Any, rows: Rows, confidence: float) -> Judgement:
        ours, theirs = rows.total(first), rows.total(second)
        if not ours + theirs:
            return Judgement.without(f"{quantity}, {group}: none was met", f"more {unit}")
        return at_least(share(ours, ours + theirs, confidence), 0.5, f"{quantity}, {group}", unit=unit)

    return one


def mostly(
    answers: Sequence[bool | None],
    limit: float,
    quantity: str,
    *,
    missing: str,
    unit: str = "models",
    confidence: float | None = None,
) -> Judgement:
    """Whether the share of True answers is at least the limit; None, an answer in doubt, may be either.

    The interval's lower end counts those in doubt as False, its upper end as True. `missing` is the reason if there
    are no answers.

    >>> judged = mostly([True] * 60 + [None] * 5, 0.5, "share that grow", missing="no model is done")
    >>> judged.verdict, judged.note
    ('reproduced', '5 of 65 models in doubt')
    """
    if not answers:
        return Judgement.without(missing)
    yes, doubt = (sum(answer is said for answer in answers) for said in (True, None))
    least, most = (share(count, len(answers), confidence) for count in (yes, yes + doubt))
    note = f"{doubt} of {len(answers)} {unit} in doubt"
    return at_least(replace(least, high=most.high), limit, quantity, note, unit)


@dataclass(frozen=True)
class Quotient:
    """A measured quantity divided by its bound, and its place; judged by `bound_holds`.

    >>> Quotient("N = 10", share(3, 100).scaled(1 / 0.5)).found.value
    0.06
    """

    place: str
    found: Estimate


def bound_holds(
    quotients: Sequence[Quotient], quantity: str, *, fewest: int, missing: str, sharp: float = 0.0
) -> Judgement:
    """Whether the quotient of measurement and bound is at most 1 everywhere; "reproduced" if every interval is.

    One interval above 1 contradicts. A *sharp* bound is one that is attained: the quotient is then 1, and its interval
    extends beyond 1 for any number of samples. Such a bound is reproduced if no interval lies above 1 and none extends
    beyond 1 + `sharp`; its criterion says so. Fewer places than `fewest` reproduce nothing, though one of them can
    contradict. `missing` is the reason if there is none.

    >>> places = [Quotient(f"N = {n}", share(30, 100).scaled(n)) for n in (2, 10)]
    >>> judged = bound_holds(places, "probability over bound", fewest=2, missing="nothing was counted")
    >>> judged.verdict, judged.note
    ('contradicted', 'largest at N = 10; 2 places, broken at N = 10')
    >>> bound_holds(places[:1], "probability over bound", fewest=1, missing="").verdict
    'reproduced'
    """
    if not quotients:
        return Judgement.without(missing)
    broken = dict.fromkeys(quotient.place for quotient in quotients if quotient.found.low > 1)
    open_at = [quotient for quotient in quotients if quotient.found.high > 1 + sharp]
    worst = max(quotients, key=lambda quotient: quotient.found.low if broken else quotient.found.high)
    note = f"largest at {worst.place}; {len(quotients)} places, " + (
        f"broken at {', '.join(broken)}" if broken else "broken nowhere"
    )
    numbers = (worst.found.value, worst.found.low, worst.found.high)
    limit = f"≤ {number_text(1)}" + (f", to within {number_text(sharp)} as it is sharp" if sharp else "")
    judged = Judgement("contradicted" if broken else "reproduced", quantity, *numbers, note, limit)
    if open_at and not broken:
        said = f"the intervals of {len(open_at)} of {len(quotients)} places reach beyond the bound"
        return judged.left_open(f"{said}, the largest at {worst.place}", "more samples there")
    return unless_few(judged, len(quotients), fewest, "places")


def rates(table: Rows, hits: str, of: str, bound: str) -> Rows:
    """The rows with a bound, and as `quotient` the rate of `hits` in `of` over it; intervals hold simultaneously.

    >>> table = Rows([{"hits": 3, "of": 100, "bound": 0.5}, {"hits": 3, "of": 100, "bound": None}])
    >>> [row["quotient"].value for row in rates(table, "hits", "of", "bound")]
    [0.06]
    """
    rows = table.having(bound)
    confidence = looks.confidence(len(rows))
    return Rows({**row, "quotient": share(row[hits], row[of], confidence).scaled(1 / row[bound])} for row in rows)


def rates_below(hits: str, of: str, bound: str, place: str, *, fewest: int, sharp: float = 0.0) -> Judge:
    """A judge: a probability is at most its bound in every row that has one; `place` names a row by its columns.

    `sharp` is as in `bound_holds`.

    >>> judge = rates_below("hits", "of", "bound", "N = {n}", fewest=1)
    >>> judge(Rows([{"n": 10, "hits": 3, "of": 100, "bound": 0.5}])).note
    'largest at N = 10; 1 places, broken nowhere'
    """

    def judge(table: Rows) -> Judgement:
        found = rates(table, hits, of, bound)
        quotients = [Quotient(place.format(**row), row["quotient"]) for row in found]
        missing = "nothing was counted"
        return bound_holds(quotients, "probability over bound", fewest=fewest, missing=missing, sharp=sharp)

    return judge


def unless_few(found: Judgement, count: int, fewest: int, what: str) -> Judgement:
    """The same judgement, undecided if it is reproduced by fewer than `fewest` cases; one case can contradict.

    >>> judged = unless_few(never(0, 3, "violations"), 3, 10, "models")
    >>> judged.verdict, judged.note, judged.remedy
    ('undecided', 'too few models: 3', 'at least 10 models')
    """
    if found.verdict != "reproduced" or count >= fewest:
        return found
    return found.left_open(f"too few {what}: {count}", f"at least {fewest} {what}")


def with_fewest(judged: Judgement, found: Estimate, reach: float, unit: str) -> Judgement:
    """Add to an undecided judgement of samples in [0, 1] the least number of samples that could decide it.

    If all n samples lie at one end, the interval has length 1 - (error/2)^(1/n); the limit is at distance `reach`.

    >>> from flipscope.lab.verdict import at_least
    >>> found = share(5, 5)
    >>> with_fewest(at_least(found, 0.9, "share"), found, 0.1, "models").remedy
    'at least 36 models'
    """
    fewest = math.ceil(math.log((1 - found.confidence) / 2) / math.log(1 - reach))
    if judged.verdict != "undecided" or found.samples >= fewest:
        return judged
    return replace(judged, remedy=f"at least {fewest} {unit}")


def never_exceeds(
    column: str,
    bound: str,
    what: str = "share of cases that break it",
    *,
    possible: str | None = None,
    fewest: int = 1,
) -> Judge:
    """A judge: a column is never above the column of its bound; rows without a bound do not count.

    If the column of the largest `possible` value is given, rows whose bound is at least that large do not count either.
    NaN in any column leaves the claim undecided unless another case contradicts it. Fewer cases than `fewest` reproduce
    nothing, though one of them can contradict.

    >>> judge = never_exceeds("y", "bound")
    >>> judge(Rows([{"y": 1.0, "bound": 2.0}, {"y": 3.0, "bound": 4.0}])).note
    '0 of 2 cases; largest quotient 0.75'
    """

    def judge(table: Rows) -> Judgement:
        bounded, said = table.having(bound), ""
        names = (column, bound) if possible is None else (column, bound, possible)
        known = bounded.where(lambda row: not any(math.isnan(row[name]) for name in names))
        telling = known if possible is None else known.where(lambda row: row[bound] < row[possible])
        cases, unknown = [(row[column], row[bound]) for row in telling], len(bounded) - len(known)
        if possible is not None:
            said = f"in {len(known) - len(cases)} of {len(bounded)} cases the bound says nothing"
            if not cases and not unknown:
                return Judgement.without(said, "cases in which the bound is below what is possible")
        tightest = max((value / limit for value, limit in cases), default=0.0)
        broken = sum(not value <= limit * (1 + ROUNDING) for value, limit in cases)
        note = f"largest quotient {tightest:.3g}" + (f"; {said}" if said else "")
        judged = never(broken, len(cases), what, note, unknown=unknown)
        return unless_few(judged, len(cases), fewest, "cases that can fail")

    return judge


def slopes(rows: Rows, x: str, y: str, *, per: str = "seed", log: bool = False) -> list[float]:
    """The slope of y against x of each `per` with 3 points; with `log`, of log y against log x at positive points.

    A `per` with a NaN point has the slope NaN, so that it is not silently dropped.

    >>> rows = Rows({"seed": seed, "n": n, "y": seed * n} for seed in (1, 2) for n in (1, 2, 3))
    >>> [round(slope, 6) for slope in slopes(rows, "n", "y")]
    [1.0, 2.0]
    """
    found = []
    for _, own in rows.by(per):
        points = sorted(zip(own.column(x), own.column(y), strict=True))
        if len(points) >= FEWEST_POINTS and not (log and any(value <= 0 for _, value in points)):
            xs, ys = np.array(points, np.float64).T
            found.append(straight_line(*(np.log(xs), np.log(ys)) if log else (xs, ys))[0])
    return found


def log_slope(rows: Rows, x: str, y: str, *, per: str = "seed", confidence: float | None = None) -> Estimate | None:
    """The slope of log y against log x of each `per` that has 3 positive points, averaged.

    None for fewer than 5, or if a point is NaN.

    >>> rows = Rows({"seed": seed, "n": n, "y": 1 / n} for seed in range(5) for n in (10, 20, 40))
    >>> round(log_slope(rows, "n", "y").value, 6)
    -1.0
    """
    found = slopes(rows, x, y, per=per, log=True)
    return student_mean(found, confidence) if len(found) >= FEWEST_SLOPES and not _not_numbers(found) else None


def mean_slope(
    rows: Rows,
    x: str,
    y: str,
    says: Callable[..., Judgement],
    limit: float,
    quantity: str,
    *,
    fewest: int,
    per: str = "seed",
    unit: str = "seeds",
) -> Judgement:
    """Whether the slope of y against x, averaged over those of each `per`, is by `says` at least or at most a limit.

    Fewer slopes than `fewest` decide nothing, nor do slopes of points that are NaN.

    >>> from flipscope.lab.verdict import at_most
    >>> rows = Rows({"seed": seed, "n": n, "y": -n + seed * n / 10} for seed in range(5) for n in (1, 2, 3))
    >>> mean_slope(rows, "n", "y", at_most, 0.0, "slope of y", fewest=3).verdict
    'reproduced'
    """
    found = slopes(rows, x, y, per=per)
    if len(found) < fewest:
        return Judgement.without(f"too few {unit} at {FEWEST_POINTS} places: {len(found)}", f"at least {fewest} {unit}")
    if odd := _not_numbers(found):
        return Judgement.without(f"{quantity}: {odd} of {len(found)} {unit} have no number")
    return says(student_mean(found), limit, quantity, unit=unit)


def _not_numbers(values: Sequence[float]) -> int:
    """The number of NaN values, which must not be ignored in favour of the others."""
    return sum(math.isnan(value) for value in values)


def compare_groups(
    first: Sequence[float], second: Sequence[float], *, paired: bool = False, confidence: float | None = None
) -> Estimate:
    """How much larger the mean of the first group is than that of the second, with Student's or Welch's interval.

    Student's interval is for `paired` groups, whose numbers correspond by position.

    >>> compare_groups([2.0, 3.0, 4.0], [1.0, 2.0, 3.1], paired=True).value > 0
    True
    """
    if paired:
        return student_mean([a - b for a, b in zip(first, second, strict=True)], confidence)
    return welch_difference(first, second, at(confidence))


def larger_mean(
    first: Rows, second: Rows, column: str, quantity: str, *, confidence: float | None = None, unit: str = "rows"
) -> Judgement:
    """Whether the mean of a column is larger in the first rows than in the second, by Welch's interval.

    A single row has no spread: fewer than two in a group leave it undecided. Where the rows of each group are all
    equal, there must be enough of them for the exact rank test to decide.

    >>> high, low = (Rows({"y": y + up} for y in (1.0, 2.0, 1.5)) for up in (9, 0))
    >>> larger_mean(high, low, "y", "how much larger").verdict, larger_mean(low, high, "y", "the same").verdict
    ('reproduced', 'contradicted')
    """
    if min(len(first), len(second)) < 2:
        reason = f"{quantity}: {len(first)} and {len(second)} {unit} to compare"
        return Judgement.without(reason, f"at least 2 {unit} of each")
    found = compare_groups(first.column(column), second.column(column), confidence=confidence)
    judged = at_least(found, 0.0, quantity, unit=unit)
    if found.low == found.high and 2 / math.comb(len(first) + len(second), len(first)) > 1 - found.confidence:
        # Without spread Welch's interval has no width, whatever the sample size; ranks alone cannot decide this either.
        return judged.left_open(f"all {unit} of a group are equal, and too few to tell", f"more {unit} of each")
    return judged if found.low > 0 or judged.verdict != "reproduced" else judged.left_open("no difference at all")
