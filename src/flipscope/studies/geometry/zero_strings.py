"""How many strings of sensitivity 0, or of low sensitivity, random transformers have, against the length (Thm 4.5)."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np

import flipscope.lab as lab
from flipscope.studies.geometry._shared import how_measured
from flipscope.studies.geometry.zero_counts import (
    NAMES,
    OVER,
    SHAPES,
    Network,
    growths,
    low_panel,
    number_panel,
    numbers_of,
    profile_of,
    share_panel,
)
from flipscope.studies.geometry.zero_judges import (
    ALMOST,
    FEWEST,
    FLOOR,
    KEPT,
    judge_growth,
    judge_shares,
    judge_threshold,
    judge_varied,
)

LENGTHS = (4, 6, 8, 10, 12, 14, 16, 24, 40, 64, 100)


class ZeroStrings(lab.Study):
    """Whether random transformers have strings that no flip moves, and how many."""

    name, paper = "zero-strings", "000"
    title = "Strings of sensitivity 0 of random transformers against N"
    scales = lab.scales(
        "{models} transformers of each of 4 shapes, N in {lengths}, {strings} strings beyond N = 16",
        smoke=(0.1, {"models": 3, "lengths": (4, 8, 24), "strings": 20}),
        demo=(0.5, {"models": 30, "lengths": (8, 12, 24, 64), "strings": 30}),
        laptop=(5, {"models": 40, "lengths": LENGTHS, "strings": 100}),
        paper=(4_500, {"models": 500, "lengths": (*LENGTHS, 150, 250, 400), "strings": 1_000}),
    )
    deviations = lab.deviations(
        ("experiment", "silent: a theorem", "counted, all strings up to N = 16", "§ 7 appeals to counts"),
        ("beyond N = 16", "all strings", "a random sample", "there are 2^N"),
        ("lengths", "all large N", "up to 100; demo 64, paper 400", "how large is not said"),
        ("shapes", "(D-1)/2L > 5", "that, a narrower one, eps > 0, App. F's", "what the theorem leaves out"),
        ("K_0 against N", "exponential, from N = 100 alone", "fitted over all N", "§ 6 has one length"),
    )
    claims = (
        lab.Claim(
            "random transformers: the share of strings of sensitivity 0 does not vanish",
            "Thm 4.5, §6",
            "random transformers have strings of sensitivity 0 at every large N",
            f"mean share at the longest N: {FLOOR} or more, and {KEPT:g} of that at the first sampled N, in each shape",
            judge_shares,
        ),
        lab.Claim(
            "random transformers: more strings of sensitivity 0 than the threshold",
            "Thm 4.5",
            "almost every transformer has at least N^((D-1)/2L - 5) strings of sensitivity 0 once N is large",
            f"share of models that have so many at the longest N: at least {ALMOST}",
            partial(judge_threshold, columns=("over_threshold",)),
        ),
        lab.Claim(
            "random transformers: more strings of low sensitivity than the threshold",
            "Thm 4.5",
            "almost every transformer has at least N^((D-1)/2L - 4)/(k+1) strings of sensitivity at most N - k",
            f"share of models that have so many at the longest N: at least {ALMOST} for k = N/4, N/2, 3N/4 and N (a "
            "random function has as many unless k is near N)",
            partial(judge_threshold, columns=list(OVER)[1:]),
        ),
        lab.Claim(
            "models that are not constant: the share does not vanish",
            "§6",
            "left open: whether this is owed to models that give one answer only",
            f"mean share at the longest N over the models that are not constant there: at least {FLOOR} in every "
            f"shape, of {FEWEST} such models or more",
            judge_varied,
            exploratory=True,
        ),
        lab.Claim(
            "the number of strings of sensitivity 0 grows exponentially",
            "§7",
            "the experiments suggest exponential growth of K_0; a polynomial lower bound is proved",
            "straight lines for log K_0 against N and log N, by AIC; share of the models that vary for which N fits "
            "better: more than 0.5",
            judge_growth,
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Network]:
        plan = self.scales[scale].settings
        chosen = itertools.product(SHAPES, range(plan["models"]), plan["lengths"])
        return [Network(*shape, seed, length, plan["strings"]) for shape, seed, length in chosen]

    def measure(self, trial: Network, progress: lab.Progress) -> lab.Outcome:
        return profile_of(trial, progress)

    def row(self, trial: Network, outcome: lab.Outcome) -> lab.Row:
        shape = NAMES[trial.preset, trial.width, trial.layers, trial.eps]
        return {"shape": shape, **super().row(trial, outcome), **numbers_of(trial, outcome)}

    def provenance(self, table: lab.Rows) -> list[str]:
        rates = [rate for _, rate in growths(table)]
        low, middle, high = np.quantile(rates or [0.0], (0.25, 0.5, 0.75))
        fits = f"b of K_0 = 2^(bN) in {len(rates)} models that vary: {middle:.3g}, quartiles {low:.3g} and {high:.3g}"
        return [*how_measured(table), *([fits] if rates else [])]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        panels = share_panel(table), number_panel(table), low_panel(table)
        caption = (
            "Left: mean share over models with its interval (dashed: of models that are not constant at that length). "
            "Right: log2 of their number, median over models that have any, beside the theorem's threshold and all 2^N "
            "(both dashed). Below: mean share of the strings whose sensitivity is at most N - k, at the longest N."
        )
        name, title = "zero-strings-by-length", "Strings of sensitivity 0 and of low sensitivity in random transformers"
        return [lab.Figure(name, title, caption, panels, where="Thm 4.5")]


STUDY = ZeroStrings()
