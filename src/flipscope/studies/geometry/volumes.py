"""The functions that random recognisers meet: their probability beside their measures: numbers, judges, pictures.

Recognisers favour functions with few ones, or few zeros, and such functions have many strings of sensitivity 0 whatever
the order of the strings. So functions are compared with those of as many ones: what is said here of K_0 does not hold
for labels that are drawn blind to the cube, one by one with a random bias.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flipscope.lab as lab
from flipscope.basics.seeds import generators, seed_of
from flipscope.cube.few_bits import MAX_BITS, Tables, all_tables, full_table, measures
from flipscope.cube.functions import first, majority, parity
from flipscope.probes.prior import table_number
from flipscope.studies.geometry import _shared

LISTED = 4  # so many bits or fewer: all functions can be listed
COMPARED = 500  # functions drawn at random for each number of ones
EXPECTED = 10  # draws of a function, were all of as many ones as probable, for one that is not met to be worth a word
SHORTEST = 3  # of two bits, functions of as many ones have the same K_0
FEWEST, SYMBOLS = 5, "drawings of the symbols"
SHOWN, FEWEST_SHOWN = 300, 3  # functions of a figure; drawings of the symbols for an interval in it
NAMED = {"parity": parity, "first": first, "majority": majority}
MEASURES = {
    "zero_strings": "K_0",
    "average_sensitivity": "- average sensitivity",
    "degree": "- degree",
    "description": "- description length",
}


def classes(tables: Tables, counts: NDArray[np.int64], n: int) -> tuple[Tables, NDArray[np.int64]]:
    """Functions joined with their complements, without the constants, and the draws of either.

    Changing the signs of w and omega turns a recogniser of one into that of the other, so that both are as probable.
    """
    smaller = np.minimum(tables, tables ^ full_table(n))
    found, place = np.unique(smaller[smaller > 0], return_inverse=True)
    return found, np.bincount(place, weights=counts[smaller > 0], minlength=len(found)).astype(np.int64)


def fewer_ones(tables: Tables, n: int) -> NDArray[np.int64]:
    """The ones of each function or of its complement, whichever has fewer."""
    ones = np.bitwise_count(tables).astype(np.int64)
    return np.minimum(ones, (1 << n) - ones)


def summary(tables: Tables, counts: NDArray[np.int64], n: int, seed: int) -> lab.Row:
    """The columns of one sample; the seed draws the functions that those met are compared with."""
    found, drawn = classes(tables, counts, n)
    named = {name: table_number(make(n)) for name, make in NAMED.items()}
    either = {name: min(table, table ^ int(full_table(n))) for name, table in named.items()}
    above = rises(found, drawn, n, seed)
    k, average = above["zero_strings"], above["average_sensitivity"]
    return {
        **{name: int(drawn[found == np.uint64(table)].sum()) for name, table in either.items()},
        "balanced": int(drawn[fewer_ones(found, n) == 1 << (n - 1)].sum()),
        **{f"rise_{name}": value for name, value in above.items()},
        "rise_gain": None if k is None or average is None else k - average,
        "largest_share": largest_share(found, drawn, n),
    }


def shown_together(samples: Sequence[tuple[Tables, NDArray[np.int64]]], n: int) -> list[lab.Row]:
    """The functions that a figure shows, the most probable of all samples together, with their draws in each sample."""
    joined = [classes(tables, counts, n) for tables, counts in samples]
    tables, counts = (np.concatenate(column) for column in zip(*joined, strict=True))
    found, drawn = classes(tables, counts, n)
    shown = found[np.lexsort((found, -drawn))[:SHOWN]]
    own = [dict(zip(tables.tolist(), counts.tolist(), strict=True)) for tables, counts in joined]
    return [{"shown": shown.tolist(), "shown_draws": [each.get(table, 0) for table in shown.tolist()]} for each in own]


def largest_share(found: Tables, drawn: NDArray[np.int64], n: int) -> float | None:
    """Of the draws, the share whose function has the largest K_0 of all functions with as many ones, beyond chance.

    0 if all functions of as many ones are as probable, and 1 if all draws have the largest. Up to LISTED bits; draws
    with one 1 or one 0, which all have the same K_0, are left out, and so is all of N = 2.
    """
    if n > LISTED:
        return None
    largest, chance = _largest(n)
    ones = fewer_ones(found, n)
    has = measures(found, n).zero_strings == largest[ones]
    free = (drawn * (1 - chance[ones])).sum()
    return float((drawn * (has - chance[ones])).sum() / free) if free else None


@functools.lru_cache(maxsize=4)
def _largest(n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each number of ones the largest K_0 of a function, and the share of the functions that have it."""
    every = all_tables(n)
    zeros, ones = measures(every, n).zero_strings, fewer_ones(every, n)
    most = np.array([zeros[ones == number].max() for number in range(ones.max() + 1)])
    return most, np.array([(zeros[ones == number] == most[number]).mean() for number in range(ones.max() + 1)])


def rises(found: Tables, drawn: NDArray[np.int64], n: int, seed: int) -> dict[str, float | None]:
    """How much more often than not a draw has a larger K_0, or a smaller other measure, than a random function.

    The random function has as many ones. The number is P(larger) - P(smaller), from -1 to 1, over all draws of two
    ones and two zeros or more, and needs no function to be met twice. It is 0 for a prior under which functions of
    as many ones are as probable, and positive for one that rises with the measure among them.
    """
    ones = fewer_ones(found, n)
    varied = ones >= 2
    found, drawn, ones = found[varied], drawn[varied], ones[varied]
    if not len(found) or n < SHORTEST:
        return dict.fromkeys(MEASURES)
    numbers = np.unique(ones)
    (stream,) = generators(seed_of(seed, n), 1)
    others = np.concatenate([_random_tables(stream, int(number), n) for number in numbers])
    ours, theirs = (asdict(measures(each, n)) for each in (found, others))
    total = dict.fromkeys(MEASURES, 0.0)
    for place, number in enumerate(numbers):
        own, block = ones == number, slice(place * COMPARED, (place + 1) * COMPARED)
        for name in MEASURES:
            sorted_others = np.sort(theirs[name][block])
            ends = [np.searchsorted(sorted_others, ours[name][own], side) for side in ("left", "right")]
            larger = (ends[0] + ends[1]) / COMPARED - 1
            total[name] += (1 if name == "zero_strings" else -1) * float((drawn[own] * larger).sum())
    return {name: value / float(drawn.sum()) for name, value in total.items()}


def _random_tables(stream: np.random.Generator, ones: int, n: int) -> Tables:
    """Functions with so many ones, drawn at random."""
    size = 1 << n
    rows = stream.permuted(np.tile(np.arange(size) < ones, (COMPARED, 1)), axis=1)
    tables: Tables = (rows.astype(np.uint64) << np.arange(size, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
    return tables


def _places(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    return [(f"N = {length}, eps = {eps:g}", rows) for (length, eps), rows in table.by("length", "eps")]


def mean_at_least(columns: Mapping[str, str], lowest: float, table: lab.Rows, longest: int = MAX_BITS) -> lab.Judgement:
    """The mean of columns over the drawings of the symbols, for each eps and each length from SHORTEST on.

    `columns` are given with what they are in words. All of them must be at least so large.
    """

    def one(place: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        judge = functools.partial(_shared.mean_at_least, fewest=FEWEST, unit=SYMBOLS, confidence=confidence)
        parts = []
        for column, quantity in columns.items():
            if silent := len(rows) - len(rows.having(column)):
                said = f"{quantity}, {place}: {silent} of {len(rows)} {SYMBOLS} met no function to compare"
                parts.append(lab.Judgement.without(said, "more draws"))
            else:
                parts.append(judge(rows.column(column), lowest, f"{quantity}, {place}"))
        return lab.all_of(parts)

    rows = table.where(lambda row: SHORTEST <= row["length"] <= longest)
    missing = f"no functions of {SHORTEST} to {longest} bits were drawn"
    return lab.for_each(_places(rows), one, missing=missing, intervals=len(columns), sort=True, what="lengths and eps")


def never_met(name: str, table: lab.Rows) -> lab.Judgement:
    """Whether a function is never met, at the longest length where that says something."""
    expected = {n: min(_expected(own) for _, own in rows.by("eps")) for n, rows in table.by("length")}
    longest = max((n for n, draws in expected.items() if draws >= EXPECTED), default=0)
    if longest < SHORTEST:
        said = f"so few draws would not meet {name.capitalize()}, were all functions with as many ones as probable"
        return lab.Judgement.without(said, f"more draws at N = {SHORTEST}")

    def one(place: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        said = f"probability of {name.capitalize()} or its complement, {place}"
        note = f"{_expected(rows):.0f} draws expected of a function with as many ones"
        return lab.never(rows.total(name), rows.total("draws"), said, note, confidence)

    return lab.for_each(_places(table.where(length=longest)), one)


def _expected(rows: lab.Rows) -> float:
    """How many draws a function and its complement would have, were all functions with half ones as probable."""
    half = 1 << (rows[0]["length"] - 1)
    return 2 * int(rows.total("balanced")) / math.comb(2 * half, half)


def majority_more_often(other: str, table: lab.Rows) -> lab.Judgement:
    """Whether Majority is more probable than the other function, at the longest odd length, where both are balanced."""
    odd = [n for n in table.values("length") if n % 2 and n >= SHORTEST]
    said = f"probability of Majority less that of {other.capitalize()}"

    def one(place: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        if not rows.total("majority") + rows.total(other):
            return lab.Judgement.without(f"{said}, {place}: neither was met", "more draws")
        # Draws of one drawing of the symbols belong together: each of these is one sample.
        less = [(row["majority"] - row[other]) / row["draws"] for row in rows]
        judge = functools.partial(_shared.mean_at_least, fewest=FEWEST, unit=SYMBOLS, confidence=confidence)
        return judge(less, 0.0, f"{said}, {place}")

    missing = f"no functions of an odd number of bits, {SHORTEST} or more, were drawn"
    return lab.for_each(_places(table.where(length=max(odd, default=0))), one, missing=missing)


def how_drawn(table: lab.Rows) -> list[str]:
    """How many recognisers were tabulated, and how many of them by other means than most."""
    tied, again, draws = (table.total(name) for name in ("near_ties", "asked_again", "draws"))
    return [f"{draws:,} recognisers; {again:,} asked again outside the compiled loop, {tied:,} too close to call"]


def figures(table: lab.Rows, title: str) -> list[lab.Figure]:
    """Probability against K_0 and by rank; what tells it; named functions."""
    lengths = table.values("length")
    table = lab.Rows({**row, "place": lengths.index(row["length"])} for row in table)
    names = [str(length) for length in lengths]  # there is no length between two of them

    def by_eps(x: str, y: str, series: Callable[[lab.Rows], list[lab.Series]], **look: Any) -> list[lab.Panel]:
        return [lab.Panel(f"eps = {eps:g}", x, y, series(own), **look) for eps, own in table.by("eps")]

    ranks = by_eps("rank", "probability", _ranks, x_log=True, y_log=True)
    zero = [lab.Rule(0.0, "")]
    told = by_eps("N", "P(larger) - P(smaller)", _rising, y_range=(-1, 1), rules=zero, categories=names)
    named = by_eps("N", "probability", _named, y_log=True, y_range=(1e-9, 1.0), categories=names)
    said = (
        "Functions that are not constant, the most probable first.",
        "How much more often a draw has the larger measure than a random function with as many ones; mean over the "
        "drawings of the symbols with Student's interval.",
        "With 95 % intervals; a function that was not met is at the upper end of its interval, which begins at 0.",
    )
    return [
        _by_zero_strings(table, title),
        lab.Figure("prior-ranks", "Probability of functions by rank", said[0], ranks, same_axes=True),
        lab.Figure(
            "prior-measures",
            "What tells how probable a function is, among those with as many ones",
            said[1],
            told,
            same_axes=True,
        ),
        lab.Figure("prior-named", "Volume of Parity, First and Majority", said[2], named, where="Fig 1"),
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
        said = [f"{number:0{1 << length}b}: {share:.2g}" for number, share in zip(tables, shares, strict=True)]
        series = [lab.Series("functions", places, shares, "points", colour=0, hover=said)]
        for colour, (name, make) in enumerate(NAMED.items(), 1):
            if hits := rows.total(name):
                own = int(measures([table_number(make(length))], length).zero_strings[0]) / 2**length
                share = hits / (2 * rows.total("draws"))
                series.append(lab.Series(name.capitalize(), [own], [share], "points", colour=colour))
        rules = [lab.Rule(2.0 ** -(1 << length), "uniform over functions")] if length <= LISTED else []
        look: dict[str, Any] = {"y_log": True, "x_range": (-0.05, 1.0), "rules": rules}
        panels.append(lab.Panel(f"N = {length}, eps = {eps:g}", "K_0 / 2^N", "probability", series, **look))
    caption = (
        f"The {SHOWN} most probable functions that are not constant, each joined with its complement, which is as "
        "probable; of all drawings of the symbols together. Named functions are shown where they were met."
    )
    return lab.Figure("prior-volume", title, caption, panels, where="Fig 1")


def _ranks(table: lab.Rows) -> list[lab.Series]:
    found = [(length, _pooled(rows)[1]) for length, rows in table.by("length")]
    return [lab.Series(f"N = {length}", list(range(1, len(shares) + 1)), shares) for length, shares in found]


def _rising(table: lab.Rows) -> list[lab.Series]:
    series = []
    for colour, (name, label) in enumerate(MEASURES.items()):
        groups = [(place, own) for place, own in table.having(f"rise_{name}").by("place") if len(own) >= FEWEST_SHOWN]
        found = [lab.student_mean(own.column(f"rise_{name}")) for _, own in groups]
        series.append(lab.estimates(label, [place for place, _ in groups], found, colour=colour))
    return series


def _named(table: lab.Rows) -> list[lab.Series]:
    """The probability of each, the upper end where it was not met; and that of a function drawn at random."""
    series = []
    for colour, name in enumerate(NAMED):
        found = {n: lab.share(rows.total(name), rows.total("draws")).scaled(0.5) for n, rows in table.by("place")}
        places, ends = list(found), ([each.low for each in found.values()], [each.high for each in found.values()])
        shown = [each.value or each.high for each in found.values()]
        series.append(lab.Series(name.capitalize(), places, shown, "points", *ends, colour=colour))
    uniform = {place: 2.0 ** -(1 << rows[0]["length"]) for place, rows in table.by("place")}
    series.append(lab.Series("random function", list(uniform), list(uniform.values()), dashed=True, colour=len(NAMED)))
    return series
