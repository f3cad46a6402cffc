"""Sharpness of trained transformers against the length, for four functions (E1, E1b; Figs 1, 5 and 6 to 8)."""

from __future__ import annotations

import itertools

import flipscope.lab as lab
from flipscope.studies.hardness import _lengths as lengths
from flipscope.studies.hardness._lengths import FLAT, FROM, LONG_FLAT, LONG_WIDTH, NEAR_ONE, per_bit, short
from flipscope.studies.hardness._shared import (
    FUNCTIONS,
    KEEP_RULE,
    OTHERS,
    Training,
    by_length,
    how_kept,
    kept,
    measured,
)

LONG = tuple(round(4 + (512 - 4) * place / 19) for place in range(20))  # of E1b


class SharpnessByLength(lab.Study):
    """Whether sensitive functions have sharper minima the longer their strings are."""

    name, paper = "sharpness-by-length", "001"
    title = "Sharpness of transformers that learned PARITY, MAJORITY, FIRST and MEAN, against the length"
    figures = ("Fig 1", "Fig 5", "Fig 6", "Fig 7", "Fig 8")
    scales = lab.scales(
        "{seeds} models of each of 3 functions and {parity_seeds} of PARITY, n in {lengths}, width {width}, "
        "{steps} steps of {batch} strings; {long_seeds} of width 4 for each n in {long}, {long_steps} steps",
        smoke=(0.1, {"lengths": (3, 4), "seeds": 1, "parity_seeds": 1, "width": 8, "batch": 32, "steps": 20}
               | {"long": (6,), "long_seeds": 1, "long_steps": 10, "first_seed": 0}),
        # Seeds from 1000 on: "PARITY is sharper" was judged three times on seeds 0 to 2, at last with three more.
        laptop=(35, {"lengths": (4, 6, 8, 10, 12), "seeds": 3, "width": 128, "batch": 128, "steps": 4_000}
                | {"parity_seeds": 6, "long": LONG[:3], "long_seeds": 2, "long_steps": 2_000, "first_seed": 1_000}),
        paper=(600_000, {"lengths": tuple(range(4, 31)), "seeds": 10, "width": 128, "batch": 1_024, "steps": 10_000}
               | {"parity_seeds": 10, "long": LONG, "long_seeds": 10, "long_steps": 10_000, "first_seed": 0}),
    )  # fmt: skip
    deviations = KEEP_RULE + lab.deviations(
        ("lengths", "4 to 30", "laptop: 4, 6, 8, 10, 12; smoke: 3, 4", "time; PARITY is learned up to there"),
        ("seeds, parity seeds", "10", "laptop: 3, of PARITY 6; smoke: 1", "models of PARITY differ most"),
        ("first seed (laptop)", "0", "1000", "seeds that no earlier run has looked at"),
        ("seeds", "the same ones at every n", "every model its own", "points of a line are then independent"),
        ("width (smoke)", "128", "8", "seconds"),
        ("steps, batch", "10,000 of 1,024 strings", "laptop: 4,000 of 128; smoke: 20 of 32", "equal for all functions"),
        ("long, long seeds, long steps", "20 lengths up to 512, 10 seeds, 10,000 steps",
         "laptop: up to 57, 2 seeds, 2,000 steps; smoke: one of 6 bits, 10 steps", "time"),
        ("strings", "1000 batches of 1024", "1024, or all that there are", "draws of the noise are what varies"),
        ("flat, rising", "a regression of sharpness on n", f"slopes beside {FLAT:.2g} per bit", "silent on a limit"),
        ("reaches 1", "seen in the figure", f"from {NEAR_ONE[0]} to {NEAR_ONE[1]}", "silent on a limit"),
    )  # fmt: skip
    claims = (
        lab.Claim(
            "PARITY is sharper than the others",
            "Figs 1, 5",
            "at long strings the minima of PARITY are sharper than those of functions of low sensitivity",
            "at the largest n with two kept models of PARITY: mean sharpness above that of each other function",
            lengths.judge_above,
        ),
        lab.Claim(
            "PARITY becomes sharper with n",
            "Figs 1, 5",
            "sharpness of PARITY rises with the length",
            f"slope of sharpness over n: at least {FLAT:.2g} per bit",
            lengths.judge_rises,
        ),
        lab.Claim(
            "MAJORITY, FIRST and MEAN stay as they are",
            "Figs 1, 5",
            "sharpness of the others does not depend on the length",
            f"slope of sharpness over n for each: within {FLAT:.2g} per bit of 0",
            lengths.judge_flat,
        ),
        lab.Claim(
            "PARITY reaches 1 near n = 30",
            "Fig 5, Thm 6",
            "the sharpness of PARITY comes to its asymptotic lower bound of 1 near n = 30",
            f"mean sharpness with n from {FROM} on: from {NEAR_ONE[0]} to {NEAR_ONE[1]}",
            lengths.judge_one,
        ),
        lab.Claim(
            "flat up to 512 bits",
            "Fig 8",
            "the same for much longer strings, at width 4",
            f"slope of sharpness over n for each: within {LONG_FLAT:.2g} per bit of 0",
            lengths.judge_long,
        ),
    )

    def trials(self, scale: str) -> list[Training]:
        plan = self.scales[scale].settings
        sizes = plan["batch"], plan["steps"]
        # Models of PARITY differ most, and at the longest strings few are kept.
        seeds = {function: plan["parity_seeds" if function == "parity" else "seeds"] for function in FUNCTIONS}
        short_ones = [
            (*each, (plan["width"], *sizes))
            for each in itertools.product(FUNCTIONS, plan["lengths"])
            for _ in range(seeds[each[0]])
        ]
        long_ones = [
            (*each, (LONG_WIDTH, 128, plan["long_steps"]))
            for each in itertools.product(OTHERS, plan["long"])
            for _ in range(plan["long_seeds"])
        ]
        return [
            Training(function, length, seed, *shape)
            for seed, (function, length, shape) in enumerate([*short_ones, *long_ones], plan["first_seed"])
        ]

    def measure(self, trial: Training, progress: lab.Progress) -> lab.Outcome:
        return measured(trial, progress)

    def provenance(self, table: lab.Rows) -> list[str]:
        found = {
            function: estimate
            for function, rows in kept(short(table)).each("function", FUNCTIONS)
            if (estimate := per_bit(rows, 0.95)) is not None
        }
        slopes = [f"{name} {each.value:.3g} [{each.low:.3g}, {each.high:.3g}]" for name, each in found.items()]
        return [*how_kept(table), *([f"slopes per bit, 95 % each: {', '.join(slopes)}"] if slopes else [])]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        first, second = short(table), table.where(width=LONG_WIDTH)
        one = [lab.Rule(1.0, "bound of PARITY as n grows")]
        main = by_length(first, "sharpness", "sharpness", rules=one)
        others = [by_length(first, "blowup", "blowup", y_log=True), by_length(first, "norm", "weight norm")]
        far = [by_length(second, "sharpness", "sharpness"), by_length(second, "blowup", "blowup", y_log=True)]
        spread = "Lines: means over kept models; bands: the least and the largest; points: models not kept."
        return [
            lab.Figure("sharpness-by-length", self.title, spread, [main], columns=1, where="Figs 1, 5, 6"),
            lab.Figure("blowup-by-length", "Blowup and weight norm against the length", spread, others, where="Fig 7"),
            *(lab.Figure("sharpness-long", "Long strings, width 4", spread, far, where="Fig 8") for _ in second[:1]),
        ]


STUDY = SharpnessByLength()
