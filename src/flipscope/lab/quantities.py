"""Claims as data: a quantity of chosen rows, compared with a limit, is the judge and the text of its criterion.

    mean("sharpness").where("kept models", kept=True).each("function", ("first", "majority")) <= 0.1

reads as a sentence, judges a table, and says how it does so: ``mean sharpness of kept models, for each function of
first, majority: at most 0.1``. `claim` makes a `Claim` of it, so that the criterion a reader sees is the one that was
applied. Comparisons can be joined with ``&``: all of them must hold, and they share the error of the look.

    mean, share         of a column; of the rows that pass a test
    computed            a number of one row that has no error, such as a bound
    slope               of one column against another: one line through all rows, or the mean over lines of each seed
    difference          of the means of two groups of rows, paired or not
    order               rank correlation of two columns, averaged over seeds
    more_often          how often one of two events occurs, among the cases in which either does
    all_models, most_models, some_model     how many models pass a test: three different claims
    never_exceeds       a column against the column of its bound

A judge that fits none of these is a function of the table, as before (`flipscope.lab.judges`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from flipscope.basics import resampling
from flipscope.basics.estimates import Estimate
from flipscope.basics.wording import number_text
from flipscope.lab import judges
from flipscope.lab.judges import student_mean
from flipscope.lab.rows import Row, Rows
from flipscope.lab.study import Claim
from flipscope.lab.verdict import Judgement, all_of, at_least, at_most, between

Test = Callable[[Row], bool]
Answer = Callable[[Row], bool | None]  # None if it may be either, such as for an interval that contains the limit
Groups = Sequence[tuple[Any, Rows]]
Says = Callable[[Estimate, str, str, str], Judgement]  # arguments: estimate, its name, a note, the unit of its samples


@dataclass(frozen=True)
class Column:
    """A number computed from each row, with its description; accepted wherever the name of a column is.

    >>> Column("log10 of the blowup", lambda row: math.log10(row["blowup"])).of(Rows([{"blowup": 100.0}]))
    [2.0]
    """

    words: str
    value: Callable[[Row], float]

    def of(self, rows: Rows) -> list[float]:
        """The number of each row."""
        return [self.value(row) for row in rows]


def _column(column: str | Column) -> Column:
    return Column(column, lambda row: row[column]) if isinstance(column, str) else column


@dataclass(frozen=True)
class Quantity:
    """A number estimated from the rows of each group; comparing it with a limit makes a `Criterion`.

    `estimate` is a function of the rows of a group and a confidence that returns an estimate, or a sentence that says
    why the rows allow none. Without `where` and `each` there is one group, the whole table.
    """

    words: str
    estimate: Callable[[Rows, float], Estimate | str]
    unit: str = "models"  # what one sample is
    rows: str = ""  # description of the selected rows
    chosen: Callable[[Rows], Rows] = lambda table: table
    groups: Callable[[Rows], Groups] | None = None
    group_words: str = ""
    what: str = "groups"  # what the groups are called
    fewest_groups: int = 1
    weakest_first: bool = True  # of groups with equal verdicts, show the one nearest to its limit, not the first
    counted: Callable[[Rows], Rows] = lambda rows: rows  # selects the rows of a group from which its number is computed
    within: tuple[float, float] | None = None  # the smallest and largest possible sample, if bounded
    remedy: str = ""  # what would allow an estimate where there is none
    note: Callable[[Rows], str] = lambda rows: ""
    # Corrects the judgement at the end, for example if the rows leave the interval without width.
    after: Callable[[Judgement, Estimate, Rows], Judgement] = lambda judged, found, rows: judged

    def where(self, words: str, test: Test | None = None, **equal: Any) -> Quantity:
        """The same quantity of the rows that pass the test and have these values; `words` describes these rows."""

        def chosen(table: Rows, before: Callable[[Rows], Rows] = self.chosen) -> Rows:
            return before(table).where(test, **equal)

        return replace(self, rows=f"{self.rows}, {words}" if self.rows else words, chosen=chosen)

    def counting(self, words: str, counted: Callable[[Rows], Rows]) -> Quantity:
        """The same quantity of the rows of each group that `counted` selects or computes; `words` describes them.

        Unlike rows excluded by `where`, the other rows still form groups: a group without counted rows is part of the
        judgement and leaves it undecided.
        """
        return replace(self, rows=f"{self.rows}, {words}" if self.rows else words, counted=counted)

    def each(
        self,
        column: str,
        values: Iterable[Any] | None = None,
        *,
        words: str = "",
        what: str = "",
        fewest: int = 1,
        weakest_first: bool = True,
    ) -> Quantity:
        """The same for each value of a column: for the given ones, all of which must occur, or for those that occur.

        Fewer groups than `fewest` reproduce nothing. Of groups with the decisive verdict the judgement shows the one
        nearest to its limit, or with `weakest_first=False` the first.
        """
        wanted = None if values is None else list(values)

        def groups(rows: Rows) -> Groups:
            return list(rows.by(column)) if wanted is None else rows.each(column, wanted)

        said = f"for each {words or column}" + ("" if wanted is None else f" of {', '.join(map(str, wanted))}")
        return self.grouped(said, groups, what=what or "groups", fewest=fewest, weakest_first=weakest_first)

    def grouped(
        self,
        words: str,
        groups: Callable[[Rows], Groups],
        *,
        what: str = "groups",
        fewest: int = 1,
        weakest_first: bool = True,
    ) -> Quantity:
        """The same for each named group that a function makes of the selected rows; other arguments as in `each`."""
        return replace(
            self, group_words=words, groups=groups, what=what, fewest_groups=fewest, weakest_first=weakest_first
        )

    def noting(self, note: Callable[[Rows], str]) -> Quantity:
        """The same, with a note on the rows of each group beside its number."""
        return replace(self, note=note)

    def __ge__(self, limit: float) -> Criterion:
        return self._compared(
            f"at least {number_text(limit)}", lambda found, *said: at_least(found, limit, *said), limit, upwards=True
        )

    def __le__(self, limit: float) -> Criterion:
        return self._compared(
            f"at most {number_text(limit)}", lambda found, *said: at_most(found, limit, *said), limit, upwards=False
        )

    def __gt__(self, limit: float) -> Criterion:
        """At least the limit; undecided if the interval merely touches it, which can happen with equal samples."""

        def says(found: Estimate, *said: str) -> Judgement:
            judged = at_least(found, limit, *said)
            return judged if found.low > limit or judged.verdict != "reproduced" else judged.left_open("no difference")

        return self._compared(f"above {number_text(limit)}", says, limit, upwards=True)

    def between(self, low: float, high: float) -> Criterion:
        """The quantity lies in a range."""
        text = f"from {number_text(low)} to {number_text(high)}"
        return self._compared(text, lambda found, *said: between(found, low, high, *said), None, upwards=True)

    def _compared(self, text: str, says: Says, limit: float | None, *, upwards: bool) -> Criterion:
        """The criterion of a comparison; for bounded samples an undecided one states the least number needed."""

        def fewest(judged: Judgement, found: Estimate) -> Judgement:
            if self.within is None or limit is None:
                return judged
            low, high = self.within
            reach = (high - limit if upwards else limit - low) / (high - low)
            unit = self.unit if self.groups is None else f"{self.unit} in each group"
            return judges.with_fewest(judged, found, reach, unit) if 0 < reach < 1 else judged

        def one(group: Any, group_rows: Rows, confidence: float) -> Judgement:
            name, rows = self.words if group is None else f"{self.words}, {group}", self.counted(group_rows)
            found = self.estimate(rows, confidence) if rows else f"no {self.unit} that count"
            if isinstance(found, str):
                return Judgement.without(f"{name}: {found}", self.remedy or f"more {self.unit}")
            return self.after(fewest(says(found, name, self.note(rows), self.unit), found), found, rows)

        def parts(table: Rows) -> Groups:
            rows = self.chosen(table)
            return [(None, rows)] if self.groups is None else self.groups(rows)

        about = " ".join(part for part in (self.words, f"of {self.rows}" if self.rows else "") if part)
        words = ", ".join(part for part in (about, self.group_words) if part)
        missing = f"no {self.unit}" + (f": {self.rows}" if self.rows else "")
        return Criterion(f"{words}: {text}", parts, one, missing, self.what, self.fewest_groups, self.weakest_first)


@dataclass(frozen=True)
class Criterion:
    """The comparison of a claim: its text, and, called with the table, its judge."""

    text: str
    groups: Callable[[Rows], Groups]
    judge: judges.GroupJudge
    missing: str
    what: str = "groups"
    fewest: int = 1
    weakest_first: bool = True
    others: tuple[Criterion, ...] = ()  # further criteria that must hold

    def __call__(self, table: Rows) -> Judgement:
        everything = (self, *self.others)
        counts = [max(1, len(each.groups(table))) for each in everything]
        return all_of(
            [each._alone(table, besides=sum(counts) - count) for each, count in zip(everything, counts, strict=True)]
        )

    def _alone(self, table: Rows, besides: int) -> Judgement:
        """The judgement of this comparison alone, at its share of the error."""
        return judges.for_each(
            self.groups(table), self.judge, missing=self.missing, besides=besides, sort=self.weakest_first,
            fewest=self.fewest, what=self.what,
        )  # fmt: skip

    def __and__(self, other: Criterion) -> Criterion:
        return replace(self, text=f"{self.text}; {other.text}", others=(*self.others, other, *other.others))

    def saying(self, text: str) -> Criterion:
        """The same comparison with another text, if the generated one reads badly."""
        return replace(self, text=text)


def claim(name: str, source: str, statement: str, criterion: Criterion | Judged, **options: Any) -> Claim:
    """A claim whose judge and criterion text come from one object; `options` are further fields of `Claim`.

    >>> made = claim("it is small", "Fig 1", "the mean is small", mean("y", within=(0, 1)) <= 0.5)
    >>> made.criterion
    'mean y: at most 0.5'
    >>> made.judged(Rows({"y": 0.1} for _ in range(20))).verdict
    'reproduced'
    """
    return Claim(name, source, statement, criterion.text, criterion, **options)


# ---------------------------------------------------------------- quantities


def mean(
    column: str | Column, *, within: tuple[float, float] | None = None, fewest: int = 2, unit: str = "models"
) -> Quantity:
    """The mean of a column: by Student's interval, or by one that holds for any samples `within` two ends.

    NaN leaves it without an estimate, and so do fewer rows than `fewest` without ends.
    """
    values = _column(column)

    def estimate(rows: Rows, confidence: float) -> Estimate | str:
        samples = values.of(rows)
        if odd := sum(map(math.isnan, samples)):
            return f"{odd} of {len(rows)} {unit} have no number"
        if within is not None:
            return judges.bounded_mean(samples, *within, confidence)
        return student_mean(samples, confidence) if len(rows) >= fewest else f"too few {unit}: {len(rows)}"

    return Quantity(f"mean {values.words}", estimate, unit, within=within, remedy=f"at least {fewest} {unit}")


def share(words: str, test: Answer, *, fewest: int = 1, unit: str = "models") -> Quantity:
    """The share of the rows that pass a test; fewer rows than `fewest` leave it without an estimate.

    A row for which the test returns None may be either: the interval's lower end counts it as failing, its upper end
    as passing.

    >>> criterion = share("share of models that learn", lambda row: row["accuracy"] > 0.9) >= 0.5
    >>> criterion(Rows({"accuracy": 1.0} for _ in range(20))).verdict
    'reproduced'
    """

    def estimate(rows: Rows, confidence: float) -> Estimate | str:
        if len(rows) < fewest:
            return f"too few {unit}: {len(rows)}"
        answers = [test(row) for row in rows]
        passed, doubtful = sum(map(bool, answers)), answers.count(None)
        least, most = (judges.share(count, len(rows), confidence) for count in (passed, passed + doubtful))
        return replace(least, high=most.high)

    def note(rows: Rows) -> str:
        doubtful = [test(row) for row in rows].count(None)
        return f"{doubtful} of {len(rows)} {unit} in doubt" if doubtful else ""

    return Quantity(words, estimate, unit, within=(0.0, 1.0), remedy=f"at least {fewest} {unit}", note=note)


def computed(column: str | Column) -> Quantity:
    """A computed, not sampled number, such as a bound, from the first of the selected rows.

    Its interval is the number itself. NaN leaves it without an estimate.

    >>> criterion = computed("bound").where("N = 10", n=10) <= 1
    >>> criterion(Rows([{"n": 10, "bound": 0.3}])).verdict, criterion(Rows([{"n": 20, "bound": 0.3}])).verdict
    ('reproduced', 'undecided')
    """
    values = _column(column)

    def estimate(rows: Rows, confidence: float) -> Estimate | str:
        value = values.value(rows[0])
        return "not a number" if math.isnan(value) else judges.exactly(value)

    return Quantity(values.words, estimate, "computed row", remedy="the trial that computes it")


def slope(
    y: str | Column,
    x: str | Column,
    *,
    others: Sequence[str | Column] = (),
    log: bool = False,
    per: str | None = None,
    fewest: int = judges.FEWEST_SLOPES,
    places: int = 2,
    unit: str = "models",
) -> Quantity:
    """How fast y rises with x; with `log`, of the logarithms of both.

    By default one least-squares line through all rows, with `others` as further regressors, at `places` or more values
    of x; with `per`, such as a seed, the mean over the lines of each, of which there must be `fewest`. NaN leaves it
    without an estimate.

    >>> found = slope("y", "n").estimate(Rows({"n": n, "y": 2.0 * n + n % 2} for n in range(8)), 0.95)
    >>> 1.7 < found.low < 2 < found.high < 2.3
    True
    """
    ys, xs, rest = _column(y), _column(x), [_column(other) for other in others]
    kind = "log-log slope" if log else "slope"

    def together(rows: Rows, confidence: float) -> Estimate | str:
        x_values, y_values, *further = (np.array(each.of(rows), np.float64) for each in (xs, ys, *rest))
        if log:
            with np.errstate(divide="ignore", invalid="ignore"):  # values without a logarithm are rejected below
                x_values, y_values = np.log(x_values), np.log(y_values)
        if odd := int((~np.isfinite([x_values, y_values, *further])).any(axis=0).sum()):
            return f"{odd} of {len(rows)} {unit} have no number"
        if (different := len(set(x_values.tolist()))) < places:
            return f"{len(rows)} {unit} at {different} places, too few for a line"
        found = resampling.regression_slope(y_values, x_values, further, confidence)
        return f"too few {unit}: {len(rows)}" if found is None else found

    def averaged(rows: Rows, confidence: float) -> Estimate | str:
        assert per is not None
        table = Rows({per: row[per], "x": place, "y": value} for row, place, value in zip(
            rows, xs.of(rows), ys.of(rows), strict=True))  # fmt: skip
        found = judges.slopes(table, "x", "y", per=per, log=log)
        if odd := sum(map(math.isnan, found)):
            return f"{odd} of {len(found)} {unit} have no number"
        if len(found) < max(2, fewest):
            return f"{len(found)} {unit} with {judges.FEWEST_POINTS} points"
        return student_mean(found, confidence)

    words = f"{kind} of {ys.words} over {xs.words}"
    words += f" at equal {' and '.join(each.words for each in rest)}" if rest else ""
    words += "" if per is None else f", averaged over each {per}"
    return Quantity(words, together if per is None else averaged, unit, remedy=f"more {unit} or places")


def difference(
    column: str | Column,
    first: tuple[str, Test],
    second: tuple[str, Test],
    *,
    paired: str | None = None,
    fewest: int = 2,
    unit: str = "models",
) -> Quantity:
    """How much larger the mean of a column is in the first rows than in the second, each given as (name, test).

    Rows that agree in the column `paired`, such as a seed, are compared with each other by Student's interval;
    otherwise Welch's is used. Where the rows of each group are all equal, which leaves that interval no width, the
    exact rank test must be able to decide.
    """
    values = _column(column)
    (one, in_first), (other, in_second) = first, second

    def sides(rows: Rows) -> tuple[Rows, Rows]:
        return rows.where(in_first), rows.where(in_second)

    def estimate(rows: Rows, confidence: float) -> Estimate | str:
        ours, theirs = sides(rows)
        if paired is not None:
            theirs_by = {row[paired]: row for row in theirs}
            gains = [
                values.value(row) - values.value(theirs_by[row[paired]]) for row in ours if row[paired] in theirs_by
            ]
            return student_mean(gains, confidence) if len(gains) >= fewest else f"{len(gains)} pairs of {unit}"
        if min(len(ours), len(theirs)) < fewest:
            return f"{len(ours)} and {len(theirs)} {unit} to compare"
        return judges.compare_groups(values.of(ours), values.of(theirs), confidence=confidence)

    def without_spread(judged: Judgement, found: Estimate, rows: Rows) -> Judgement:
        ours, theirs = map(len, sides(rows))
        if paired is None and found.low == found.high and 2 / math.comb(ours + theirs, ours) > 1 - found.confidence:
            return judged.left_open(f"all {unit} of a group are equal, and too few to tell", f"more {unit} of each")
        return judged

    words = f"{values.words} of {one} less that of {other}"
    return Quantity(words, estimate, unit, remedy=f"at least {fewest} {unit} of each", after=without_spread)


def order(
    x: str | Column, y: str | Column, *, per: str = "seed", fewest: int = 3, points: int = 3, unit: str = "seeds"
) -> Quantity:
    """Spearman's rank correlation of two columns within each `per` with at least `points` points, averaged.

    If all have the same correlation, which is common with few points, the interval has no width: a sign test must then
    be able to decide.

    >>> rows = Rows({"seed": seed, "a": a, "b": a**2 + seed} for seed in range(3) for a in range(4))
    >>> round(order("a", "b").estimate(rows, 0.95).value, 6)
    1.0
    """
    xs, ys = _column(x), _column(y)

    def estimate(rows: Rows, confidence: float) -> Estimate | str:
        pairs = [(xs.of(own), ys.of(own)) for _, own in rows.by(per) if len(own) >= points]
        varied = [(a, b) for a, b in pairs if np.ptp(a) and np.ptp(b)]  # a constant has no ranks
        if len(varied) < fewest:
            return f"{len(varied)} {unit} with {points} points"
        from scipy import stats  # a second to import, so only when needed

        return student_mean([float(stats.spearmanr(a, b).statistic) for a, b in varied], confidence)

    def without_spread(judged: Judgement, found: Estimate, rows: Rows) -> Judgement:
        if found.low == found.high and 2 * 0.5**found.samples > 1 - found.confidence:
            return judged.left_open(f"all {found.samples} {unit} have the same correlation", f"more {unit}")
        return judged

    words = f"rank correlation of {xs.words} and {ys.words}, averaged over each {per}"
    remedy = f"at least {fewest} {unit}"
    return Quantity(words, estimate, unit, within=(-1.0, 1.0), remedy=remedy, after=without_spread)


def more_often(
    words: str, first: str, second: str, *, rows: tuple[str, Test] | None = None, unit: str = "cases"
) -> Criterion:
    """At least half of the cases counted by two columns (in `rows`, if given) belong to the first column."""

    def estimate(rows: Rows, confidence: float) -> Estimate | str:
        ours, theirs = rows.total(first), rows.total(second)
        return judges.share(ours, ours + theirs, confidence) if ours + theirs else "none was met"

    quantity = Quantity(words, estimate, unit)
    return (quantity if rows is None else quantity.where(*rows)) >= 0.5


@dataclass(frozen=True)
class Judged:
    """A judge of `flipscope.lab.judges` with the text of its criterion."""

    text: str
    judge: judges.Judge

    def __call__(self, table: Rows) -> Judgement:
        return self.judge(table)

    def saying(self, text: str) -> Judged:
        """The same judge with another text of its criterion."""
        return replace(self, text=text)


def _models(how_many: Literal["all", "most", "some"], words: str, test: Test, rows: Test | None, unit: str) -> Judged:
    says = {"all": "none fails", "most": "at least half pass", "some": "at least one passes"}[how_many]

    def judge(table: Rows) -> Judgement:
        return judges.of_models(table.where(rows), test, how_many, words, unit=unit)

    return Judged(f"{words}: {says}", judge)


def all_models(words: str, test: Test, *, rows: Test | None = None, unit: str = "models") -> Judged:
    """Every model passes the test; a single one that fails contradicts."""
    return _models("all", words, test, rows, unit)


def most_models(words: str, test: Test, *, rows: Test | None = None, unit: str = "models") -> Judged:
    """At least half of the models pass the test; one stuck training does not contradict."""
    return _models("most", words, test, rows, unit)


def some_model(words: str, test: Test, *, rows: Test | None = None, unit: str = "models") -> Judged:
    """A model passes the test: one is enough.

    >>> learns = some_model("share that learn", lambda row: row["accuracy"] > 0.9)
    >>> learns(Rows([{"accuracy": 0.5}, {"accuracy": 0.99}])).verdict
    'reproduced'
    """
    return _models("some", words, test, rows, unit)


def never_exceeds(
    column: str,
    bound: str,
    *,
    words: str = "share of cases that break it",
    rows: Test | None = None,
    possible: str | None = None,
    fewest: int = 1,
) -> Judged:
    """A column is never above the column of its bound (`flipscope.lab.judges.never_exceeds`)."""
    judge = judges.never_exceeds(column, bound, words, possible=possible, fewest=fewest)
    telling = f", where that is below {possible}" if possible else ""
    return Judged(f"{column} against {bound}{telling}: never above", lambda table: judge(table.where(rows)))
