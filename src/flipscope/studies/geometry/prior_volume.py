"""The volume of each function in parameter space (Fig 1): what random recognisers of few bits compute, and how often.

Every recogniser is tabulated on all strings. The vectors of the symbols are no part of theta; they are drawn a few times,
and what is claimed of a probability is judged by its mean over these drawings.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import flipscope.lab as lab
from flipscope.models.presets import recognizer
from flipscope.probes.prior import realised
from flipscope.studies.geometry._volume_figures import figures
from flipscope.studies.geometry._volumes import FEWEST_DRAWS, LISTED, RAREFIED, summary

WIDTH, LAYERS, MARGIN = 8, 2, 0.1
SHORTEST = 3  # of two bits, most functions have the largest K_0
FEWEST = 5  # drawings of the symbols
NAME = "{} at N = {}, eps = {:g}"


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


def _mean(
    column: str, lowest: float, quantity: str, what: Callable[[lab.Row], float], table: lab.Rows
) -> lab.Judgement:
    """Whether the mean over drawings of the symbols is at least so large, for each length and eps that has it."""

    def judge(place: tuple[int, float], rows: lab.Rows, level: float) -> lab.Judgement:
        if len(rows) < FEWEST:
            return lab.Judgement.without(f"too few drawings of the symbols: {len(rows)}", f"at least {FEWEST}")
        found = lab.student_mean([what(row) for row in rows], level)
        return lab.at_least(found, lowest, NAME.format(quantity, *place), unit="drawings of the symbols")

    rows = table.having(column).where(lambda row: row["length"] >= SHORTEST)
    missing = f"no sample of {SHORTEST} bits or more says which functions are the most probable"
    return lab.for_each(rows.by("length", "eps"), judge, missing=missing, sort=True, what="lengths and eps")


def _longest(table: lab.Rows) -> lab.Rows:
    return table.where(length=max(table.column("length")))


def _judge_missing(table: lab.Rows, name: str) -> lab.Judgement:
    """Whether the function, or its complement, was never met at the longest length."""

    def judge(eps: float, rows: lab.Rows, _level: float) -> lab.Judgement:
        said = NAME.format(f"probability of {name.capitalize()} or its complement", rows[0]["length"], eps)
        return lab.never(rows.total(name), rows.total("draws"), said)

    return lab.asymptotic(lab.for_each(_longest(table).by("eps"), judge))


def _judge_majority(table: lab.Rows, other: str) -> lab.Judgement:
    """Whether Majority is met more often than the other function at the longest length."""

    def judge(eps: float, rows: lab.Rows, level: float) -> lab.Judgement:
        ours, theirs = rows.total("majority"), rows.total(other)
        if not ours + theirs:
            return lab.Judgement.without(f"neither was met at eps = {eps:g}", "more draws")
        said = f"share of Majority in draws of it or {other.capitalize()}"
        found = lab.share(ours, ours + theirs, level)
        return lab.at_least(found, 0.5, NAME.format(said, rows[0]["length"], eps), unit="such draws")

    return lab.for_each(_longest(table).by("eps"), judge)


def _judge_falling(table: lab.Rows, column: str, quantity: str) -> lab.Judgement:
    """Whether something falls with N at eps > 0: the slope of each drawing of the symbols, averaged."""
    slopes = lab.slopes(table.where(lambda row: row["eps"] > 0).having(column), "length", column, per="symbols")
    if len(slopes) < FEWEST:
        return lab.Judgement.without("too few drawings of the symbols at three lengths", f"at least {FEWEST}")
    found = lab.at_most(lab.student_mean(slopes), 0.0, f"slope against N of {quantity}, eps > 0", unit="drawings")
    return lab.asymptotic(found)


class PriorVolume(lab.Study):
    """Whether functions with many strings of sensitivity 0 fill more of the parameter space."""

    name, paper, figures = "prior-volume", "000", ("Fig 1",)
    title = "How probable each function of few bits is for a random recogniser"
    scales = lab.scales(
        "width 8, 2 layers, eps in {eps}, {symbols} drawings of the symbols, each with (N, draws) in {draws}",
        smoke=(0.1, {"eps": (0.0, 1.0), "symbols": 2, "draws": ((2, 2_000), (3, 2_000), (4, 2_000))}),
        laptop=(
            8,
            {
                "eps": (0.0, 1.0),
                "symbols": 10,
                "draws": ((2, 10**5), (3, 2 * 10**5), (4, 10**6), (5, 2 * 10**5), (6, 10**5)),
            },
        ),
        paper=(
            600,
            {"eps": (0.0, 1.0), "symbols": 100, "draws": ((2, 10**6), (3, 10**6), (4, 10**7), (5, 10**6), (6, 10**6))},
        ),
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
            "of the 2^N most probable functions that are not constant, at least half have the largest K_0 there is, "
            f"for each N >= {SHORTEST} and eps",
            partial(
                _mean,
                "largest_first",
                0.5,
                "share of the most probable functions with the largest K_0",
                lambda row: row["largest_first"],
            ),
        ),
        lab.Claim(
            "probability rises with K_0",
            "Fig 1",
            "the fewer strings of sensitivity 0 a function has, the smaller its region",
            f"Spearman's rho of probability and K_0, constants apart, is above 0 for each N >= {SHORTEST} and eps: over "
            f"all functions for N <= {LISTED}, else over those met {FEWEST_DRAWS} times",
            partial(_mean, "rho_zero_strings", 0.0, "rho of probability and K_0", lambda row: row["rho_zero_strings"]),
        ),
        lab.Claim(
            "K_0 tells probability better than average sensitivity",
            "§7",
            "the bias is not merely one of average sensitivity",
            "rho with K_0 less rho with minus the average sensitivity is above 0, for the same functions",
            partial(
                _mean,
                "rho_zero_strings",
                0.0,
                "rho of K_0 less that of average sensitivity",
                lambda row: row["rho_zero_strings"] - row["rho_average_sensitivity"],
            ),
            exploratory=True,
        ),
        *(
            lab.Claim(
                f"{name.capitalize()} is not met",
                source,
                f"almost no recogniser computes {name.capitalize()} for large N",
                f"no draw computes {name.capitalize()} or its complement at the largest N",
                partial(_judge_missing, name=name),
            )
            for name, source in (("parity", "Cor 5.1"), ("first", "Cor 5.4"))
        ),
        *(
            lab.Claim(
                f"Majority is more probable than {other.capitalize()}",
                "Fig 1, Conj 5.5",
                f"Majority has a region of positive measure where {other.capitalize()} has none",
                "of the draws that compute either, or its complement, at the largest N, at least half compute Majority",
                partial(_judge_majority, other=other),
                exploratory=True,
            )
            for other in ("parity", "first")
        ),
        lab.Claim(
            "eps > 0: ever fewer functions",
            "Eq 25",
            "|F_N| tends to 2 as N grows",
            f"the mean slope against N of the number of functions that {RAREFIED:,} draws recognise is below 0",
            partial(_judge_falling, column="rarefied", quantity=f"functions among {RAREFIED:,} draws"),
            exploratory=True,
        ),
        lab.Claim(
            "eps > 0: ever fewer recognisers of functions that are not constant",
            "Cor 3.4",
            "a recogniser with eps > 0 is constant for all large N",
            "the mean slope against N of the share of draws that recognise such a function is below 0",
            partial(
                _judge_falling, column="share_more", quantity="the share of draws that recognise more than constants"
            ),
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
        return {**trial.content(), **found, **counts, "share_more": found["recognising_more"] / trial.draws}

    def provenance(self, table: lab.Rows) -> list[str]:
        tied, again, draws = (table.total(name) for name in ("near_ties", "asked_again", "draws"))
        return [f"{draws:,} recognisers; {again:,} asked again outside the compiled loop, {tied:,} too close to call"]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return figures(table, self.title)


STUDY = PriorVolume()
