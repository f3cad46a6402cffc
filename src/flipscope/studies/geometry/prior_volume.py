"""The volume of each function in parameter space (Fig 1): what random recognisers of few bits compute, and how often.

Every recogniser is tabulated on all strings. The vectors of the symbols are not part of theta; they are drawn a few
times, and claims on a probability are judged by its mean over these drawings.

Recognisers favour functions with few ones, or few zeros, and such functions have many strings of sensitivity 0 whatever
the order of the strings. So functions are compared with functions of equally many ones: labels drawn independently of
the strings, with a random bias, show no effect in these comparisons.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flipscope.lab as lab
from flipscope.basics.seeds import generators, seed_of
from flipscope.cube.few_bits import MAX_BITS, Tables, all_tables, full_table, measures
from flipscope.cube.functions import first, majority, parity
from flipscope.probes.prior import table_number
from flipscope.studies.geometry import shared
from flipscope.studies.geometry.recogniser_draws import FEWEST, SYMBOLS, Draws, how_drawn

LISTED = 4  # up to this many bits all functions can be listed
COMPARED = 500  # functions drawn at random for each number of ones
EXPECTED = 10  # draws of a function, if all with as many ones were equally probable, from which on a missing one counts
SHORTEST = 3  # with two bits, functions of equally many ones have the same K_0
SHOWN, FEWEST_SHOWN = 300, 3  # functions in a figure; drawings of the symbols that an interval needs
# Symbols from 0 on were used to choose the present criteria, so they may not be used to judge by them.
FIRST_SYMBOLS = 1000
AMONG = "of functions with as many ones"
LARGEST = {"largest_share": "share of draws with the largest K_0, beyond chance"}
RISE = {"rise_zero_strings": "P(larger) - P(smaller) in K_0"}
GAIN = {"rise_gain": "P(larger) - P(smaller) in K_0, less in average sensitivity"}
NAMED = {"parity": parity, "first": first, "majority": majority}
MEASURES = {
    "zero_strings": "K_0",
    "average_sensitivity": "- average sensitivity",
    "degree": "- degree",
    "description": "- description length",
}


@dataclass(frozen=True)
class Volume(Draws):
    """Recognisers of which those with equal functions are counted."""

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        functions = self.functions(progress)
        names = ("tables", "counts", "recognised", "near_ties", "asked_again")
        return {name: getattr(functions, name) for name in names}


def classes(tables: Tables, counts: NDArray[np.int64], n: int) -> tuple[Tables, NDArray[np.int64]]:
    """Functions merged with their complements, without the constants, and the draws of both together.

    Changing the signs of w and omega turns a recogniser of one into one of the other, so that both are equally
    probable.
    """
    smaller = np.minimum(tables, tables ^ full_table(n))
    merged, place = np.unique(smaller[smaller > 0], return_inverse=True)
    return merged, np.bincount(place, weights=counts[smaller > 0], minlength=len(merged)).astype(np.int64)


def fewer_ones(tables: Tables, n: int) -> NDArray[np.int64]:
    """The ones of each function or of its complement, whichever has fewer."""
    ones = np.bitwise_count(tables).astype(np.int64)
    return np.minimum(ones, (1 << n) - ones)


def summary(tables: Tables, counts: NDArray[np.int64], n: int, seed: int) -> lab.Row:
    """The columns of one sample; random functions for the comparisons are drawn from the seed."""
    merged, drawn = classes(tables, counts, n)
    named = {name: table_number(make(n)) for name, make in NAMED.items()}
    either = {name: min(table, table ^ int(full_table(n))) for name, table in named.items()}
    above = rises(merged, drawn, n, seed)
    k, average = above["zero_strings"], above["average_sensitivity"]
    return {
        **{name: int(drawn[merged == np.uint64(table)].sum()) for name, table in either.items()},
        "balanced": int(drawn[fewer_ones(merged, n) == 1 << (n - 1)].sum()),
        **{f"rise_{name}": value for name, value in above.items()},
        "rise_gain": None if k is None or average is None else k - average,
        "largest_share": largest_share(merged, drawn, n),
    }


def shown_together(samples: Sequence[tuple[Tables, NDArray[np.int64]]], n: int) -> list[lab.Row]:
    """The functions that a figure shows, the most probable of all samples together, with their draws in each sample."""
    joined = [classes(tables, counts, n) for tables, counts in samples]
    tables, counts = (np.concatenate(column) for column in zip(*joined, strict=True))
    merged, drawn = classes(tables, counts, n)
    shown = merged[np.lexsort((merged, -drawn))[:SHOWN]]
    draws_of = [dict(zip(tables.tolist(), counts.tolist(), strict=True)) for tables, counts in joined]
    return [
        {"shown": shown.tolist(), "shown_draws": [each.get(table, 0) for table in shown.tolist()]} for each in draws_of
    ]


def largest_share(merged: Tables, drawn: NDArray[np.int64], n: int) -> float | None:
    """The share of draws with the largest K_0 of all functions with equally many ones, corrected for chance.

    0 if all functions with equally many ones are equally probable, and 1 if all draws have the largest K_0. Up to
    LISTED bits; draws with one 1 or one 0, which all have the same K_0, are left out, and so is N = 2.
    """
    if n > LISTED:
        return None
    largest, chance = _largest(n)
    ones = fewer_ones(merged, n)
    has = measures(merged, n).zero_strings == largest[ones]
    free = (drawn * (1 - chance[ones])).sum()
    return float((drawn * (has - chance[ones])).sum() / free) if free else None


@functools.lru_cache(maxsize=4)
def _largest(n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each number of ones the largest K_0 of a function, and the share of the functions that have it."""
    every = all_tables(n)
    zeros, ones = measures(every, n).zero_strings, fewer_ones(every, n)
    most = np.array([zeros[ones == number].max() for number in range(ones.max() + 1)])
    return most, np.array([(zeros[ones == number] == most[number]).mean() for number in range(ones.max() + 1)])


def rises(merged: Tables, drawn: NDArray[np.int64], n: int, seed: int) -> dict[str, float | None]:
    """P(larger) - P(smaller) of a draw's K_0, or of minus its other measures, against a random function.

    The random function has as many ones as the draw. The number lies between -1 and 1, is taken over all draws with at
    least two ones and two zeros, and needs no function to be met twice. It is 0 if functions with equally many ones are
    equally probable, and positive if their probability rises with the measure.
    """
    ones = fewer_ones(merged, n)
    varied = ones >= 2
    merged, drawn, ones = merged[varied], drawn[varied], ones[varied]
    if not len(merged) or n < SHORTEST:
        return dict.fromkeys(MEASURES)
    numbers = np.unique(ones)
    (stream,) = generators(seed_of(seed, n), 1)
    others = np.concatenate([_random_tables(stream, int(number), n) for number in numbers])
    ours, theirs = (asdict(measures(each, n)) for each in (merged, others))
    total = dict.fromkeys(MEASURES, 0.0)
    for place, number in enumerate(numbers):
        alike, block = ones == number, slice(place * COMPARED, (place + 1) * COMPARED)
        for name in MEASURES:
            sorted_others = np.sort(theirs[name][block])
            ends = [np.searchsorted(sorted_others, ours[name][alike], side) for side in ("left", "right")]
            larger = (ends[0] + ends[1]) / COMPARED - 1
            total[name] += (1 if name == "zero_strings" else -1) * float((drawn[alike] * larger).sum())
    return {name: value / float(drawn.sum()) for name, value in total.items()}


def _random_tables(stream: np.random.Generator, ones: int, n: int) -> Tables:
    """Random functions with these numbers of ones."""
    size = 1 << n
    rows = stream.permuted(np.tile(np.arange(size) < ones, (COMPARED, 1)), axis=1)
    tables: Tables = (rows.astype(np.uint64) << np.arange(size, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
    return tables


def _places(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    return [(f"N = {length}, eps = {eps:g}", rows) for (length, eps), rows in table.by("length", "eps")]


def mean_at_least(columns: Mapping[str, str], lowest: float, table: lab.Rows, longest: int = MAX_BITS) -> lab.Judgement:
    """The mean of columns over the drawings of the symbols, for each eps and each length from SHORTEST on.

    `columns` maps each column to its description. All of the means must be at least `lowest`.
    """

    def one(place: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        judge = functools.partial(shared.mean_at_least, fewest=FEWEST, unit=SYMBOLS, confidence=confidence)
        parts = []
        for column, quantity in columns.items():
            if silent := len(rows) - len(rows.having(column)):
                reason = f"{quantity}, {place}: {silent} of {len(rows)} {SYMBOLS} met no function to compare"
                parts.append(lab.Judgement.without(reason, "more draws"))
            else:
                parts.append(judge(rows.column(column), lowest, f"{quantity}, {place}"))
        return lab.all_of(parts)

    rows = table.where(lambda row: SHORTEST <= row["length"] <= longest)
    missing = f"no functions of {SHORTEST} to {longest} bits were drawn"
    return lab.for_each(_places(rows), one, missing=missing, intervals=len(columns), sort=True, what="lengths and eps")


def never_met(name: str, table: lab.Rows) -> lab.Judgement:
    """Whether a function is never met, at the longest length where enough draws would meet it by chance."""
    expected = {n: min(_expected(draws_of_eps) for _, draws_of_eps in rows.by("eps")) for n, rows in table.by("length")}
    longest = max((n for n, draws in expected.items() if draws >= EXPECTED), default=0)
    if longest < SHORTEST:
        reason = f"so few draws would not meet {name.capitalize()}, were all functions with as many ones as probable"
        return lab.Judgement.without(reason, f"more draws at N = {SHORTEST}")

    def one(place: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        quantity = f"probability of {name.capitalize()} or its complement, {place}"
        note = f"{_expected(rows):.0f} draws expected of a function with as many ones"
        return lab.never(rows.total(name), rows.total("draws"), quantity, note, confidence)

    return lab.for_each(_places(table.where(length=longest)), one)


def _expected(rows: lab.Rows) -> float:
    """The draws that a function and its complement would have if all functions with half ones were equally probable."""
    half = 1 << (rows[0]["length"] - 1)
    return 2 * int(rows.total("balanced")) / math.comb(2 * half, half)


def majority_more_often(other: str, table: lab.Rows) -> lab.Judgement:
    """Whether Majority is more probable than the other function, at the longest odd length, where both are balanced."""
    odd = [n for n in table.values("length") if n % 2 and n >= SHORTEST]
    quantity = f"probability of Majority less that of {other.capitalize()}"

    def one(place: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        if not rows.total("majority") + rows.total(other):
            return lab.Judgement.without(f"{quantity}, {place}: neither was met", "more draws")
        # Draws with the same symbols are not independent: each drawing of the symbols is one sample.
        less = [(row["majority"] - row[other]) / row["draws"] for row in rows]
        judge = functools.partial(shared.mean_at_least, fewest=FEWEST, unit=SYMBOLS, confidence=confidence)
        return judge(less, 0.0, f"{quantity}, {place}")

    missing = f"no functions of an odd number of bits, {SHORTEST} or more, were drawn"
    return lab.for_each(_places(table.where(length=max(odd, default=0))), one, missing=missing)


def figures(table: lab.Rows, title: str) -> list[lab.Figure]:
    """Figures of probability against K_0 and by rank, of the measures that predict it, and of named functions."""
    lengths = table.values("length")
    table = lab.Rows({**row, "place": lengths.index(row["length"])} for row in table)
    names = [str(length) for length in lengths]  # as categories, since there is no length between two of them

    def by_eps(x: str, y: str, series: Callable[[lab.Rows], list[lab.Series]], **look: Any) -> list[lab.Panel]:
        return [lab.Panel(f"eps = {eps:g}", x, y, series(rows), **look) for eps, rows in table.by("eps")]

    ranks = by_eps("rank", "probability", _ranks, x_log=True, y_log=True)
    zero = [lab.Rule(0.0, "")]
    predictors = by_eps("N", "P(larger) - P(smaller)", _rising, y_range=(-1, 1), rules=zero, categories=names)
    named = by_eps("N", "probability", _named, y_log=True, y_range=(1e-9, 1.0), categories=names)
    captions = (
        "Functions that are not constant, the most probable first.",
        "How much more often a draw has the larger measure than a random function with as many ones; mean over the "
        "drawings of the symbols with Student's interval.",
        "With 95 % intervals; a function that was not met is at the upper end of its interval, which begins at 0.",
    )
    return [
        _by_zero_strings(table, title),
        lab.Figure("prior-ranks", "Probability of functions by rank", captions[0], ranks, same_axes=True),
        lab.Figure(
            "prior-measures",
            "What tells how probable a function is, among those with as many ones",
            captions[1],
            predictors,
            same_axes=True,
        ),
        lab.Figure("prior-named", "Volume of Parity, First and Majority", captions[2], named, where="Fig 1"),
    ]


def _pooled(rows: lab.Rows) -> tuple[list[int], list[float]]:
    """The most probable functions of all drawings of the symbols together, and the probability of each."""
    drawn = np.sum(rows.column("shown_draws"), axis=0) / (2 * rows.total("draws"))
    return rows[0]["shown"], drawn.tolist()


def _by_zero_strings(table: lab.Rows, title: str) -> lab.Figure:
    panels = []
    for (length, eps), rows in table.by("length", "eps"):
        tables, shares = _pooled(rows)
        places = (measures(tables, length).zero_strings / 2**length).tolist() if tables else []
        texts = [f"{number:0{1 << length}b}: {share:.2g}" for number, share in zip(tables, shares, strict=True)]
        series = [lab.Series("functions", places, shares, "points", colour=0, hover=texts)]
        for colour, (name, make) in enumerate(NAMED.items(), 1):
            if hits := rows.total(name):
                share_of_zeros = int(measures([table_number(make(length))], length).zero_strings[0]) / 2**length
                share = hits / (2 * rows.total("draws"))
                series.append(lab.Series(name.capitalize(), [share_of_zeros], [share], "points", colour=colour))
        rules = [lab.Rule(2.0 ** -(1 << length), "uniform over functions")] if length <= LISTED else []
        look: dict[str, Any] = {"y_log": True, "x_range": (-0.05, 1.0), "rules": rules}
        panels.append(lab.Panel(f"N = {length}, eps = {eps:g}", "K_0 / 2^N", "probability", series, **look))
    caption = (
        f"The {SHOWN} most probable functions that are not constant, each joined with its complement, which is as "
        "probable; of all drawings of the symbols together. Named functions are shown where they were met."
    )
    return lab.Figure("prior-volume", title, caption, panels, where="Fig 1")


def _ranks(table: lab.Rows) -> list[lab.Series]:
    by_length = [(length, _pooled(rows)[1]) for length, rows in table.by("length")]
    return [lab.Series(f"N = {length}", list(range(1, len(shares) + 1)), shares) for length, shares in by_length]


def _rising(table: lab.Rows) -> list[lab.Series]:
    series = []
    for colour, (name, label) in enumerate(MEASURES.items()):
        groups = [
            (place, rows) for place, rows in table.having(f"rise_{name}").by("place") if len(rows) >= FEWEST_SHOWN
        ]
        rises_by_place = [lab.student_mean(rows.column(f"rise_{name}")) for _, rows in groups]
        series.append(lab.estimates(label, [place for place, _ in groups], rises_by_place, colour=colour))
    return series


def _named(table: lab.Rows) -> list[lab.Series]:
    """The probability of each named function, the upper end where it was not met, and that of a random function."""
    series = []
    for colour, name in enumerate(NAMED):
        shares = {n: lab.share(rows.total(name), rows.total("draws")).scaled(0.5) for n, rows in table.by("place")}
        places, ends = list(shares), ([each.low for each in shares.values()], [each.high for each in shares.values()])
        shown = [each.value or each.high for each in shares.values()]
        series.append(lab.Series(name.capitalize(), places, shown, "points", *ends, colour=colour))
    uniform = {place: 2.0 ** -(1 << rows[0]["length"]) for place, rows in table.by("place")}
    series.append(lab.Series("random function", list(uniform), list(uniform.values()), dashed=True, colour=len(NAMED)))
    return series


def _draws(*each: int) -> tuple[tuple[int, int], ...]:
    return tuple(enumerate(each, 2))  # at N = 2, 3, 4 …


class PriorVolume(lab.Study):
    """Whether functions with many strings of sensitivity 0 fill more of the parameter space."""

    name, paper, figures = "prior-volume", "000", ("Fig 1",)
    title = "The probability of each function of few bits under random parameters"
    sample_sizes = ("symbols",)
    scales = lab.scales(
        "width 8, 2 layers, eps in {eps}, {symbols} drawings of the symbols, each with (N, draws) in {draws}",
        common={"first_seed": FIRST_SYMBOLS},
        smoke=(0.1, {"eps": (0.0, 1.0), "symbols": 2, "draws": _draws(2_000, 2_000, 2_000)}),
        demo=(1, {"eps": (0.0, 1.0), "symbols": 10, "draws": _draws(10_000, 20_000, 100_000, 20_000, 10_000)}),
        laptop=(8, {"eps": (0.0, 1.0), "symbols": 10, "draws": _draws(10**5, 2 * 10**5, 10**6, 2 * 10**5, 10**5)}),
        paper=(600, {"eps": (0.0, 1.0), "symbols": 100, "draws": _draws(10**6, 10**6, 10**7, 10**6, 10**6)}),
    )
    deviations = lab.deviations(
        ("Fig 1", "a drawing", "counted draws of theta", "the paper has no data behind it"),
        ("lengths", "sufficiently large", "2 to 6", "every function is met or not only where all can be tabulated"),
        ("draws, symbols (up to laptop)", "no data", "fewer than at scale paper", "to take minutes"),
        ("Theta", "a compact set", "the cube [-1, 1]^M", "not stated"),
        (
            "symbols, positions",
            "fixed",
            "symbols uniform in [-1, 1], drawn several times; sinusoidal positions",
            "not stated",
        ),
        ("recognition", "margin xi", "signs", "volumes need no margin; xi is not given"),
        ("eps > 0", "small", "1", "at six bits a small eps has no visible effect"),
        ("function", "f", "f or its complement", "they are equally probable: change the signs of w and omega"),
        (
            "compared with",
            "all functions",
            "those with as many ones",
            "functions with few ones have a large K_0 anyway",
        ),
    )
    claims = (
        lab.Claim(
            "functions with the most strings of sensitivity 0 fill the larger part",
            "Fig 1",
            "functions with many strings of sensitivity 0 fill the larger part of the parameter space",
            f"share of the draws whose function has the largest K_0 {AMONG} (two to 2^N - 2), scaled so that 0 is "
            f"chance and 1 is all: at least 0.5 at each N from {SHORTEST} to {LISTED} and each eps",
            partial(mean_at_least, LARGEST, 0.5, longest=LISTED),
        ),
        lab.Claim(
            "probability rises with K_0",
            "Fig 1",
            "the fewer strings of sensitivity 0 a function has, the smaller its region",
            f"P(larger) - P(smaller) of the K_0 of a draw and of a random function with as many ones, mean over the "
            f"drawings of the symbols: at least 0 at each N from {SHORTEST} on and each eps",
            partial(mean_at_least, RISE, 0.0),
        ),
        lab.Claim(
            "K_0 tells probability better than average sensitivity",
            "§7",
            "the bias is not merely towards low average sensitivity",
            "the same number, and its excess over the same number for minus the average sensitivity: both at least 0",
            partial(mean_at_least, {**GAIN, **RISE}, 0.0),
            exploratory=True,
        ),
        *(
            lab.Claim(
                f"{name.capitalize()} is not met",
                source,
                f"almost no recogniser computes {name.capitalize()} at large N",
                f"no draw computes it or its complement, at the largest N at which {EXPECTED} would if all functions "
                "with as many ones were as probable",
                partial(never_met, name),
                asymptotic=True,
            )
            for name, source in (("parity", "Cor 5.1"), ("first", "Cor 5.4"))
        ),
        *(
            lab.Claim(
                f"Majority is more probable than {other.capitalize()}",
                "Fig 1, Conj 5.5",
                f"Majority has a region of positive measure where {other.capitalize()} has none",
                "share of the draws that compute it or its complement, less that of the other function, mean over the "
                "drawings of the symbols: at least 0 at the largest odd N, where both have as many ones as zeros",
                partial(majority_more_often, other),
                exploratory=True,
            )
            for other in ("parity", "first")
        ),
    )

    def trials(self, scale: str) -> list[Volume]:
        plan = self.scales[scale].settings
        chosen = itertools.product(plan["draws"], plan["eps"], range(plan["symbols"]))
        return [Volume(length, eps, plan["first_seed"] + number, draws) for (length, draws), eps, number in chosen]

    def row(self, trial: Volume, outcome: lab.Outcome) -> lab.Row:
        columns = summary(outcome["tables"], outcome["counts"], trial.length, trial.symbols)
        counts = {"near_ties": outcome["near_ties"], "asked_again": outcome["asked_again"]}
        return {**trial.content(), **columns, **counts}

    def summarise(self, results: Sequence[lab.Result]) -> lab.Rows:
        """The rows, and the functions for the figures, which are chosen from all drawings of the symbols together."""
        samples: dict[tuple[int, float], list[int]] = {}
        rows = super().summarise(results)
        for place, row in enumerate(rows):
            samples.setdefault((row["length"], row["eps"]), []).append(place)
        for (length, _), places in samples.items():
            drawn = [(results[place].outcome["tables"], results[place].outcome["counts"]) for place in places]
            for place, shown in zip(places, shown_together(drawn, length), strict=True):
                rows[place] |= shown
        return rows

    def provenance(self, table: lab.Rows) -> list[str]:
        return how_drawn(table)

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return figures(table, self.title)


STUDY = PriorVolume()
