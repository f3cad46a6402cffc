"""How many strings of sensitivity 0, or of low sensitivity, random transformers have, against the length (Thm 4.5)."""

from __future__ import annotations

import itertools

import flipscope.lab as lab
from flipscope.studies.geometry._shared import how_measured
from flipscope.studies.geometry.zero_counts import (
    KEPT,
    PARTS,
    SHAPES,
    Network,
    as_many_as_promised,
    figure_by_length,
    growth_text,
    growths,
    numbers_of,
    profile_of,
    shapes_at_longest,
)

LENGTHS = (4, 6, 8, 10, 12, 14, 16, 24, 40, 64, 100)
FIRST_SEED = 1000  # growth was judged otherwise on the models from 0 on
FLOOR, ALMOST, FEWEST = 0.1, 0.8, 10  # a share that has not vanished; "almost every" model; models that vary, per shape
SHARE = lab.mean_of("share", lab.at_least, FLOOR, "mean share")
CHANGE = lab.mean_of("kept", lab.at_least, 0.0, f"mean share less {KEPT:g} of the first", within=(-KEPT, 1))


def _judge_shares(table: lab.Rows) -> lab.Judgement:
    def one(shape: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        return lab.all_of(lab.weakest_first([judge(shape, rows, confidence) for judge in (SHARE, CHANGE)]))

    missing = "no model at two lengths beyond N = 16"
    return lab.for_each(shapes_at_longest(table), one, missing=missing, intervals=2, sort=True, what="shapes")


def _judge_varied(table: lab.Rows) -> lab.Judgement:
    def one(shape: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        judged, what = SHARE(shape, rows, confidence), f"models that vary, {shape}"
        if judged.verdict == "contradicted" or len(rows) >= FEWEST:
            return judged
        return judged.left_open(f"too few {what}: {len(rows)}", f"at least {FEWEST} {what}")

    varied = [(shape, rows.where(constant=False)) for shape, rows in shapes_at_longest(table)]
    return lab.for_each(varied, one, missing="no model that varies", sort=True, what="shapes")


def _judge_growth(table: lab.Rows) -> lab.Judgement:
    name = "share of models whose K_0 an exponential of N fits better than a power"
    missing = "no model varies at four lengths at which all strings were counted"
    return lab.mostly([fits for fits, _ in growths(table)], 0.5, name, missing=missing)


class ZeroStrings(lab.Study):
    """Whether random transformers have strings that no flip moves, and how many."""

    name, paper = "zero-strings", "000"
    title = "Strings of sensitivity 0 of random transformers against N"
    scales = lab.scales(
        "{models} transformers of each of 4 shapes, N in {lengths}, {strings} strings beyond N = 16",
        smoke=(0.1, {"models": 3, "lengths": (4, 8, 24), "strings": 20}),
        demo=(0.7, {"models": 30, "lengths": (6, 8, 10, 12, 24, 64), "strings": 30}),
        # So many models that a share of 0 in all of them contradicts.
        laptop=(8, {"models": 64, "lengths": LENGTHS, "strings": 100}),
        paper=(4_500, {"models": 500, "lengths": (*LENGTHS, 150, 250, 400), "strings": 1_000}),
    )
    deviations = lab.deviations(
        ("experiment", "silent: a theorem", "counted, all strings up to N = 16", "§ 7 appeals to counts"),
        ("beyond N = 16", "all strings", "a random sample", "there are 2^N"),
        ("lengths", "all large N", "up to 100; demo 64, paper 400", "how large is not said"),
        ("models, strings (up to laptop)", "silent", "fewer than at scale paper", "minutes"),
        ("shapes", "(D-1)/2L > 5", "that, a narrower one, eps > 0, App. F's", "what the theorem leaves out"),
        ("K_0 against N", "exponential, from N = 100 alone", "fitted over all N up to 16", "§ 6 has one length"),
    )
    claims = (
        lab.Claim(
            "random transformers: the share of strings of sensitivity 0 does not vanish",
            "Thm 4.5, §6",
            "random transformers have strings of sensitivity 0 at every large N",
            f"mean share at the longest N: {FLOOR} or more, and {KEPT:g} of that at the first sampled N, in each shape",
            _judge_shares,
        ),
        lab.Claim(
            "random transformers: more strings of sensitivity 0 than the threshold",
            "Thm 4.5",
            "almost every transformer has at least N^((D-1)/2L - 5) strings of sensitivity 0 once N is large",
            f"share of models that have so many at the longest N: at least {ALMOST}",
            as_many_as_promised(None, almost=ALMOST),
            asymptotic=True,
        ),
        lab.Claim(
            "random transformers: more strings of low sensitivity than the threshold",
            "Thm 4.5",
            "almost every transformer has at least N^((D-1)/2L - 4)/(k+1) strings of sensitivity at most N - k",
            f"share of models that have so many at the longest N: at least {ALMOST} for k = N/4, N/2, 3N/4 and N (a "
            "random function has as many unless k is near N)",
            as_many_as_promised(*PARTS, almost=ALMOST),
            asymptotic=True,
        ),
        lab.Claim(
            "models that are not constant: the share does not vanish",
            "§6",
            "left open: whether this is owed to models that give one answer only",
            f"mean share at the longest N over the models that are not constant there: at least {FLOOR} in every "
            f"shape, of {FEWEST} such models or more",
            _judge_varied,
            exploratory=True,
        ),
        lab.Claim(
            "the number of strings of sensitivity 0 grows exponentially",
            "§7",
            "the experiments suggest exponential growth of K_0; a polynomial lower bound is proved",
            "straight lines for log K_0 against N and log N, by AIC, over the N at which all strings are counted and "
            "the model varies, four or more; share of such models for which N fits better: more than 0.5",
            _judge_growth,
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Network]:
        plan = self.scales[scale].settings
        seeds = range(FIRST_SEED, FIRST_SEED + plan["models"])
        chosen = itertools.product(SHAPES, seeds, plan["lengths"])
        return [Network(*shape, seed, length, plan["strings"]) for shape, seed, length in chosen]

    def measure(self, trial: Network, progress: lab.Progress) -> lab.Outcome:
        return profile_of(trial, progress)

    def row(self, trial: Network, outcome: lab.Outcome) -> lab.Row:
        return {**super().row(trial, outcome), **numbers_of(trial, outcome)}

    def provenance(self, table: lab.Rows) -> list[str]:
        return [*how_measured(table), *growth_text(table)]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return [figure_by_length(table)]


STUDY = ZeroStrings()
