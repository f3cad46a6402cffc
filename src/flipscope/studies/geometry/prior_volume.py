"""The volume of each function in parameter space (Fig 1): what random recognisers of few bits compute, and how often.

Every recogniser is tabulated on all strings. The vectors of the symbols are no part of theta; they are drawn a few
times, and what is claimed of a probability is judged by its mean over these drawings.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import flipscope.lab as lab
from flipscope.models.presets import recognizer
from flipscope.probes.prior import realised
from flipscope.studies.geometry.volumes import (
    EXPECTED,
    LISTED,
    SHORTEST,
    figures,
    how_drawn,
    majority_more_often,
    mean_at_least,
    never_met,
    shown_together,
    summary,
)

WIDTH, LAYERS, MARGIN = 8, 2, 0.1
# The claims were judged otherwise on the symbols from 0 on, so that those say nothing of the judges of today.
FIRST_SYMBOLS = 1000
AMONG = "of functions with as many ones"
LARGEST = {"largest_share": "share of draws with the largest K_0, beyond chance"}
RISE = {"rise_zero_strings": "P(larger) - P(smaller) in K_0"}
GAIN = {"rise_gain": "P(larger) - P(smaller) in K_0, less in average sensitivity"}


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
        ("draws, symbols (up to laptop)", "silent: no data", "fewer than at scale paper", "minutes"),
        ("Theta", "a compact set", "the cube [-1, 1]^M", "silent"),
        ("symbols, positions", "fixed", "symbols uniform in [-1, 1], drawn some times; sinusoidal", "silent"),
        ("recognition", "margin xi", "signs", "volumes need no margin; xi is not given"),
        ("eps > 0", "small", "1", "at six bits a small eps is as none"),
        ("function", "f", "f or its complement", "they are as probable: w and omega change signs"),
        (
            "compared with",
            "all functions",
            "those with as many ones",
            "few ones make K_0 large in any order of strings",
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
            "the bias is not merely one of average sensitivity",
            "the same number, and what it is less that of minus the average sensitivity: both at least 0",
            partial(mean_at_least, {**GAIN, **RISE}, 0.0),
            exploratory=True,
        ),
        *(
            lab.Claim(
                f"{name.capitalize()} is not met",
                source,
                f"almost no recogniser computes {name.capitalize()} for large N",
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
        return [Volume(length, eps, FIRST_SYMBOLS + number, draws) for (length, draws), eps, number in chosen]

    def measure(self, trial: Volume, progress: lab.Progress) -> lab.Outcome:
        found = realised(
            recognizer(WIDTH, LAYERS, eps=trial.eps), trial.length, trial.draws,
            seed=trial.symbols, symbols=trial.symbols, margin=MARGIN, progress=progress,
        )  # fmt: skip
        names = ("tables", "counts", "recognised", "near_ties", "asked_again")
        return {name: getattr(found, name) for name in names}

    def row(self, trial: Volume, outcome: lab.Outcome) -> lab.Row:
        found = summary(outcome["tables"], outcome["counts"], trial.length, trial.symbols)
        counts = {"near_ties": outcome["near_ties"], "asked_again": outcome["asked_again"]}
        return {**trial.content(), **found, **counts}

    def summarise(self, results: Sequence[lab.Result]) -> lab.Rows:
        """The rows, and what the figures show: chosen from the drawings of the symbols together, not from each."""
        samples: dict[tuple[int, float], list[int]] = {}
        rows = super().summarise(results)
        for place, row in enumerate(rows):
            samples.setdefault((row["length"], row["eps"]), []).append(place)
        for (length, _), places in samples.items():
            found = [(results[place].outcome["tables"], results[place].outcome["counts"]) for place in places]
            for place, shown in zip(places, shown_together(found, length), strict=True):
                rows[place] |= shown
        return rows

    def provenance(self, table: lab.Rows) -> list[str]:
        return how_drawn(table)

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return figures(table, self.title)


STUDY = PriorVolume()
