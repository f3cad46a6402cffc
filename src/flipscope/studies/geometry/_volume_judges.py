"""The judges of the study `prior-volume`."""

from __future__ import annotations

import flipscope.lab as lab

SHORTEST = 3  # of two bits, most functions have the largest K_0
FEWEST = 5  # drawings of the symbols
EXPECTED = 10  # draws of a function, were all as probable, for one that is not met to be worth a word
NAME = "{} at N = {}, eps = {:g}"


def mean(column: str, lowest: float, quantity: str, table: lab.Rows) -> lab.Judgement:
    """Whether the mean over drawings of the symbols is at least so large, for each length and eps that has it."""

    def judge(place: tuple[int, float], rows: lab.Rows, level: float) -> lab.Judgement:
        if len(rows) < FEWEST:
            return lab.Judgement.without(f"too few drawings of the symbols: {len(rows)}", f"at least {FEWEST}")
        found = lab.student_mean(rows.column(column), level)
        return lab.at_least(found, lowest, NAME.format(quantity, *place), unit="drawings of the symbols")

    rows = table.having(column).where(lambda row: row["length"] >= SHORTEST)
    nothing = f"no sample of {SHORTEST} bits or more says which functions are the most probable"
    return lab.for_each(rows.by("length", "eps"), judge, missing=nothing, sort=True, what="lengths and eps")


def _longest(table: lab.Rows) -> lab.Rows:
    return table.where(length=max(table.column("length")))


def missing(table: lab.Rows, name: str) -> lab.Judgement:
    """Whether the function, or its complement, was never met, at the longest length where that says something."""
    telling = [
        (length, rows)
        for length, own in table.by("length")
        for _, rows in own.by("eps")
        if rows.total("draws") * 2.0 ** (1 - 2**length) >= EXPECTED
    ]
    if not telling or telling[-1][0] < SHORTEST:
        said = "so few draws would not meet it, were all functions of so many bits as probable"
        return lab.Judgement.without(said, f"{EXPECTED * 2 ** (2**SHORTEST - 1):,} draws at N = {SHORTEST}")

    def judge(eps: float, rows: lab.Rows, _level: float) -> lab.Judgement:
        said = NAME.format(f"probability of {name.capitalize()} or its complement", rows[0]["length"], eps)
        return lab.never(rows.total(name), rows.total("draws"), said)

    return lab.asymptotic(lab.for_each(table.where(length=telling[-1][0]).by("eps"), judge))


def majority(table: lab.Rows, other: str) -> lab.Judgement:
    """Whether Majority is met more often than the other function at the longest length."""

    def judge(eps: float, rows: lab.Rows, level: float) -> lab.Judgement:
        ours, theirs = rows.total("majority"), rows.total(other)
        if not ours + theirs:
            return lab.Judgement.without(f"neither was met at eps = {eps:g}", "more draws")
        said = f"share of Majority in draws of it or {other.capitalize()}"
        found = lab.share(ours, ours + theirs, level)
        return lab.at_least(found, 0.5, NAME.format(said, rows[0]["length"], eps), unit="such draws")

    return lab.for_each(_longest(table).by("eps"), judge)


def falling(table: lab.Rows, column: str, quantity: str) -> lab.Judgement:
    """Whether something falls with N at eps > 0: the slope of each drawing of the symbols, averaged."""
    slopes = lab.slopes(table.where(lambda row: row["eps"] > 0).having(column), "length", column, per="symbols")
    if len(slopes) < FEWEST:
        return lab.Judgement.without("too few drawings of the symbols at three lengths", f"at least {FEWEST}")
    found = lab.at_most(lab.student_mean(slopes), 0.0, f"slope against N of {quantity}, eps > 0", unit="drawings")
    return lab.asymptotic(found)
