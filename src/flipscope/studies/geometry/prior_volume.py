"""The volume of each function in parameter space (Fig 1): what random recognisers of few bits compute, and how often.

Every recogniser is tabulated on all strings. The vectors of the symbols are no part of theta; they are drawn a few
times, and what is claimed of a probability is judged by its mean over these drawings.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial

import flipscope.lab as lab
from flipscope.models.presets import recognizer
from flipscope.probes.prior import realised
from flipscope.studies.geometry.volumes import FEWEST_DRAWS, LISTED, RAREFIED, figures, summary

WIDTH, LAYERS, MARGIN = 8, 2, 0.1
SHORTEST = 3  # of two bits, most functions have the largest K_0
FEWEST, SYMBOLS = 5, "drawings of the symbols"
EXPECTED = 10  # draws of a function, were all as probable, for one that is not met to be worth a word


def _draws(*each: int) -> tuple[tuple[int, int], ...]:
    return tuple(enumerate(each, 2))  # at N = 2, 3, 4 …


@dataclass(frozen=True)
class Volume(lab.Trial):
    """So many recognisers, tabulated; those of one number have the same vectors of symbols."""

    length: int
    eps: float
    symbols: int
    draws: int

    @property
    def cost(self) -> float:
        return float(self.draws * 2**self.length * (self.length + 3))


def _places(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    return [(f"N = {length}, eps = {eps:g}", rows) for (length, eps), rows in table.by("length", "eps")]


def _mean(column: str, lowest: float, quantity: str, table: lab.Rows) -> lab.Judgement:
    """Of the drawings of the symbols, for each length and eps that has the column."""
    one = lab.mean_of(column, lab.at_least, lowest, quantity, within=None, fewest=FEWEST, unit=SYMBOLS)
    rows = table.having(column).where(lambda row: row["length"] >= SHORTEST)
    missing = f"no sample of {SHORTEST} bits or more says which functions are the most probable"
    return lab.for_each(_places(rows), one, missing=missing, sort=True, what="lengths and eps")


def _missing(name: str, table: lab.Rows) -> lab.Judgement:
    """At the longest length where it says something that a function is never met."""
    expected = [(n, rows.total("draws") * 2.0 ** (1 - 2**n)) for (n, _), rows in table.by("length", "eps")]
    longest = max((n for n, draws in expected if draws >= EXPECTED), default=0)
    if longest < SHORTEST:
        said = "so few draws would not meet it, were all functions of so many bits as probable"
        return lab.Judgement.without(said, f"{EXPECTED * 2 ** (2**SHORTEST - 1):,} draws at N = {SHORTEST}")

    def one(place: str, rows: lab.Rows, _confidence: float) -> lab.Judgement:
        said = f"probability of {name.capitalize()} or its complement, {place}"
        return lab.never(rows.total(name), rows.total("draws"), said)

    return lab.asymptotic(lab.for_each(_places(table.where(length=longest)), one))


def _majority(other: str, table: lab.Rows) -> lab.Judgement:
    said = f"share of Majority in draws of it or {other.capitalize()}"
    longest = table.where(length=max(table.column("length")))
    return lab.for_each(_places(longest), lab.more_often("majority", other, said, unit="such draws"))


def _falling(column: str, quantity: str, table: lab.Rows) -> lab.Judgement:
    rows, said = table.having(column).where(lambda row: row["eps"] > 0), f"slope against N of {quantity}, eps > 0"
    judge = partial(lab.mean_slope, fewest=FEWEST, per="symbols", unit=SYMBOLS)
    return lab.asymptotic(judge(rows, "length", column, lab.at_most, 0.0, said))


class PriorVolume(lab.Study):
    """Whether functions with many strings of sensitivity 0 fill more of the parameter space."""

    name, paper, figures = "prior-volume", "000", ("Fig 1",)
    title = "How probable each function of few bits is for a random recogniser"
    scales = lab.scales(
        "width 8, 2 layers, eps in {eps}, {symbols} drawings of the symbols, each with (N, draws) in {draws}",
        smoke=(0.1, {"eps": (0.0, 1.0), "symbols": 2, "draws": _draws(2_000, 2_000, 2_000)}),
        demo=(1, {"eps": (0.0, 1.0), "symbols": 10, "draws": _draws(10_000, 20_000, 100_000, 20_000, 10_000)}),
        laptop=(8, {"eps": (0.0, 1.0), "symbols": 10, "draws": _draws(10**5, 2 * 10**5, 10**6, 2 * 10**5, 10**5)}),
        paper=(600, {"eps": (0.0, 1.0), "symbols": 100, "draws": _draws(10**6, 10**6, 10**7, 10**6, 10**6)}),
    )
    deviations = lab.deviations(
        ("Fig 1", "a drawing", "counted draws of theta", "the paper has no data behind it"),
        ("lengths", "sufficiently large", "2 to 6", "every function is met or not only where all can be tabulated"),
        ("Theta", "a compact set", "the cube [-1, 1]^M", "silent"),
        ("symbols, positions", "fixed", "symbols uniform in [-1, 1], drawn some times; sinusoidal", "silent"),
        ("recognition", "margin xi", f"signs; xi = {MARGIN:g} for Eq 25", "volumes need no margin; xi is not given"),
        ("eps > 0", "small", "1", "at six bits a small eps is as none"),
        ("function", "f", "f or its complement", "they are as probable: w and omega change signs"),
    )
    claims = (
        lab.Claim(
            "the most probable functions have the most strings of sensitivity 0",
            "Fig 1",
            "functions with many strings of sensitivity 0 fill the larger part of the parameter space",
            f"of the 2^N most probable functions, constants apart, at least half have the largest K_0, N >= {SHORTEST}",
            partial(_mean, "largest_first", 0.5, "share of the most probable functions with the largest K_0"),
        ),
        lab.Claim(
            "probability rises with K_0",
            "Fig 1",
            "the fewer strings of sensitivity 0 a function has, the smaller its region",
            f"Spearman's rho of the two, constants apart, is above 0 for N >= {SHORTEST}: over all functions for "
            f"N <= {LISTED}, else over those met {FEWEST_DRAWS} times",
            partial(_mean, "rho_zero_strings", 0.0, "rho of probability and K_0"),
        ),
        lab.Claim(
            "K_0 tells probability better than average sensitivity",
            "§7",
            "the bias is not merely one of average sensitivity",
            "rho with K_0 less rho with minus the average sensitivity is above 0, for the same functions",
            partial(_mean, "rho_gain", 0.0, "rho of K_0 less that of average sensitivity"),
            exploratory=True,
        ),
        *(
            lab.Claim(
                f"{name.capitalize()} is not met",
                source,
                f"almost no recogniser computes {name.capitalize()} for large N",
                f"no draw computes it or its complement, at the largest N at which {EXPECTED} would if all functions "
                "were as probable",
                partial(_missing, name),
            )
            for name, source in (("parity", "Cor 5.1"), ("first", "Cor 5.4"))
        ),
        *(
            lab.Claim(
                f"Majority is more probable than {other.capitalize()}",
                "Fig 1, Conj 5.5",
                f"Majority has a region of positive measure where {other.capitalize()} has none",
                "of the draws that compute either, or its complement, at the largest N, at least half compute Majority",
                partial(_majority, other),
                exploratory=True,
            )
            for other in ("parity", "first")
        ),
        lab.Claim(
            "eps > 0: ever fewer functions",
            "Eq 25",
            "|F_N| tends to 2 as N grows",
            f"mean slope against N of the number of functions that {RAREFIED:,} draws recognise, below 0",
            partial(_falling, "rarefied", f"functions among {RAREFIED:,} draws"),
            exploratory=True,
        ),
        lab.Claim(
            "eps > 0: ever fewer recognisers of functions that are not constant",
            "Cor 3.4",
            "a recogniser with eps > 0 is constant for all large N",
            "mean slope against N of the share of draws that recognise such a function, below 0",
            partial(_falling, "share_more", "share of draws that recognise more than constants"),
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Volume]:
        plan = self.scales[scale].settings
        chosen = itertools.product(plan["draws"], plan["eps"], range(plan["symbols"]))
        return [Volume(length, eps, symbols, draws) for (length, draws), eps, symbols in chosen]

    def measure(self, trial: Volume, progress: lab.Progress) -> lab.Outcome:
        found = realised(
            recognizer(WIDTH, LAYERS, eps=trial.eps), trial.length, trial.draws,
            seed=trial.symbols, symbols=trial.symbols, margin=MARGIN, progress=progress,
        )  # fmt: skip
        names = ("tables", "counts", "recognised", "near_ties", "asked_again")
        return {name: getattr(found, name) for name in names}

    def row(self, trial: Volume, outcome: lab.Outcome) -> lab.Row:
        found = summary(outcome["tables"], outcome["counts"], outcome["recognised"], trial.length)
        counts = {"near_ties": outcome["near_ties"], "asked_again": outcome["asked_again"]}
        return {**trial.content(), **found, **counts}

    def provenance(self, table: lab.Rows) -> list[str]:
        tied, again, draws = (table.total(name) for name in ("near_ties", "asked_again", "draws"))
        return [f"{draws:,} recognisers; {again:,} asked again outside the compiled loop, {tied:,} too close to call"]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return figures(table, self.title)


STUDY = PriorVolume()
