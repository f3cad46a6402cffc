"""The functions that random recognisers meet: their probability beside their measures: numbers, judges, pictures."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import flipscope.lab as lab
from flipscope.cube.few_bits import Measures, Tables, all_tables, full_table, measures
from flipscope.cube.functions import first, majority, parity
from flipscope.probes.prior import table_number

LISTED = 4  # so many bits or fewer: all functions are ranked, also those that were not met
FEWEST_DRAWS = 10  # of a function that is ranked among those met, and of the least probable of the most probable
EXPECTED = 10  # draws of a function, were all as probable, for one that is not met to be worth a word
SHORTEST = 3  # of two bits, most functions have the largest K_0
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


def summary(tables: Tables, counts: NDArray[np.int64], n: int) -> lab.Row:
    """The columns of one sample."""
    found, drawn = classes(tables, counts, n)
    order = np.lexsort((found, -drawn))
    found, drawn = found[order], drawn[order]
    named = {name: table_number(make(n)) for name, make in NAMED.items()}
    rho = correlations(found, drawn, n)
    k, average = rho["zero_strings"], rho["average_sensitivity"]
    either = {name: min(table, table ^ int(full_table(n))) for name, table in named.items()}
    return {
        **{name: int(drawn[found == np.uint64(table)].sum()) for name, table in either.items()},
        **{f"rho_{name}": value for name, value in rho.items()},
        "rho_gain": None if k is None or average is None else k - average,
        "largest_first": largest_first(found, drawn, n),
        "shown": found[:SHOWN].tolist(),
        "shown_draws": drawn[:SHOWN].tolist(),
    }


def largest_first(found: Tables, drawn: NDArray[np.int64], n: int) -> float | None:
    """Of the most probable functions, as many as have the largest K_0 of all, the share that have it.

    These are the 2^n functions that single out one string, and their complements. None if the draws do not tell
    which functions are the most probable.
    """
    most = 1 << n
    if len(found) < most or drawn[most - 1] < FEWEST_DRAWS:
        return None
    return float((measures(found[:most], n).zero_strings == most - n - 1).mean())


def correlations(found: Tables, drawn: NDArray[np.int64], n: int) -> dict[str, float | None]:
    """Spearman's rho of a function's draws with its K_0, and with the other measures, their signs turned.

    Up to LISTED bits over all functions, those not met at 0 draws; else over those met often enough.
    """
    if n <= LISTED:
        every, known = _listed(n)
        draws = np.zeros(len(every), np.int64)
        draws[np.searchsorted(every, found)] = drawn
    else:
        often = drawn >= FEWEST_DRAWS
        draws, known = drawn[often], measures(found[often], n)
    columns = {name: (1 if name == "zero_strings" else -1) * column for name, column in asdict(known).items()}
    if len(draws) < 3 or not np.ptp(draws):
        return dict.fromkeys(columns)
    return {
        name: float(stats.spearmanr(draws, column).statistic) if np.ptp(column) else None
        for name, column in columns.items()
    }


@functools.lru_cache(maxsize=4)
def _listed(n: int) -> tuple[Tables, Measures]:
    every = all_tables(n)
    chosen = every[(every > 0) & (every <= every[::-1])]  # the smaller of a table and its complement
    return chosen, measures(chosen, n)


def _places(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    return [(f"N = {length}, eps = {eps:g}", rows) for (length, eps), rows in table.by("length", "eps")]


def mean_at_least(column: str, lowest: float, quantity: str, table: lab.Rows) -> lab.Judgement:
    """The mean of a column over the drawings of the symbols, for each length and eps that has it."""
    one = lab.mean_of(column, lab.at_least, lowest, quantity, within=None, fewest=FEWEST, unit=SYMBOLS)
    rows = table.having(column).where(lambda row: row["length"] >= SHORTEST)
    missing = f"no sample of {SHORTEST} bits or more says which functions are the most probable"
    return lab.for_each(_places(rows), one, missing=missing, sort=True, what="lengths and eps")


def never_met(name: str, table: lab.Rows) -> lab.Judgement:
    """Whether a function is never met, at the longest length where that says something."""
    expected = [(n, rows.total("draws") * 2.0 ** (1 - 2**n)) for (n, _), rows in table.by("length", "eps")]
    longest = max((n for n, draws in expected if draws >= EXPECTED), default=0)
    if longest < SHORTEST:
        said = "so few draws would not meet it, were all functions of so many bits as probable"
        return lab.Judgement.without(said, f"{EXPECTED * 2 ** (2**SHORTEST - 1):,} draws at N = {SHORTEST}")

    def one(place: str, rows: lab.Rows, _confidence: float) -> lab.Judgement:
        said = f"probability of {name.capitalize()} or its complement, {place}"
        return lab.never(rows.total(name), rows.total("draws"), said)

    return lab.asymptotic(lab.for_each(_places(table.where(length=longest)), one))


def majority_more_often(other: str, table: lab.Rows) -> lab.Judgement:
    """Whether Majority is more probable than the other function, at the longest length."""
    said = f"share of Majority in draws of it or {other.capitalize()}"
    longest = table.where(length=max(table.column("length")))
    return lab.for_each(_places(longest), lab.more_often("majority", other, said, unit="such draws"))


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
    told = by_eps("N", "rho with probability", _correlated, y_range=(-1, 1), rules=zero, categories=names)
    named = by_eps("N", "probability", _named, y_log=True, y_range=(1e-9, 1.0), categories=names)
    said = (
        "Functions that are not constant, the most probable first.",
        "Spearman's rho, constants apart; mean over drawings of the symbols with Student's interval.",
        "With 95 % intervals; a function that was not met is at the upper end of its interval, which begins at 0.",
    )
    return [
        _by_zero_strings(table, title),
        lab.Figure("prior-ranks", "Probability of functions by rank", said[0], ranks, same_axes=True),
        lab.Figure("prior-measures", "What tells how probable a function is", said[1], told, same_axes=True),
        lab.Figure("prior-named", "Volume of Parity, First and Majority", said[2], named, where="Fig 1"),
    ]


def _pooled(rows: lab.Rows) -> tuple[list[int], list[float]]:
    """The most probable functions of all drawings of the symbols together, and the probability of each."""
    counts: Counter[int] = Counter()
    for row in rows:
        counts.update(dict(zip(row["shown"], row["shown_draws"], strict=True)))
    most = counts.most_common(SHOWN)
    return [table for table, _ in most], [drawn / (2 * rows.total("draws")) for _, drawn in most]


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


def _correlated(table: lab.Rows) -> list[lab.Series]:
    series = []
    for colour, (name, label) in enumerate(MEASURES.items()):
        groups = [(place, own) for place, own in table.having(f"rho_{name}").by("place") if len(own) >= FEWEST_SHOWN]
        found = [lab.student_mean(own.column(f"rho_{name}")) for _, own in groups]
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
