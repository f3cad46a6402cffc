"""Sharpness of trained transformers against the length, for four functions (E1, E1b; Figs 1, 5 and 6 to 8).

Transformers learn PARITY, MAJORITY, FIRST and MEAN at lengths of up to 30 bits (E1), and all but PARITY at up to 512
bits with a width of 4 (E1b). The paper finds that sharpness rises with the length for PARITY, to its asymptotic lower
bound of 1 (Theorem 6), and for no other function.
"""

from __future__ import annotations

import itertools
from typing import Any

import flipscope.lab as lab
from flipscope.lab import quantities
from flipscope.studies.hardness.shared import (
    FUNCTIONS,
    OTHERS,
    TRAINING_DEVIATIONS,
    Training,
    kept,
    kept_text,
    length_range,
)

LONG_WIDTH = 4  # of the models of E1b, which no model of E1 has
LONG = tuple(round(4 + (512 - 4) * place / 19) for place in range(20))  # lengths of E1b
DRIFT = 0.25  # flat: changes by less over all lengths of the paper; a quarter of what PARITY must reach
FLAT, LONG_FLAT = DRIFT / (30 - 4), DRIFT / (512 - 4)  # per bit
NEAR_ONE, FROM = (0.9, 1.1), 28  # PARITY reaches its bound of 1 near n = 30


# ---------------------------------------------------------------- claims


def short(row: lab.Row) -> bool:
    """Whether a model is one of E1."""
    return bool(row["width"] != LONG_WIDTH)


def beside_parity(rows: lab.Rows) -> list[tuple[str, lab.Rows]]:
    """PARITY with each other function, at the largest n at which two models of PARITY are kept."""
    lengths = [n for n, models in rows.where(function="parity").by("length") if len(models) > 1]
    if not lengths:
        return []
    longest = rows.where(length=lengths[-1])
    parity = longest.where(function="parity")
    return [
        (f"{other}, n = {lengths[-1]}", lab.Rows([*parity, *others] if others else []))
        for other, others in longest.each("function", OTHERS)
    ]


ABOVE = quantities.difference(
    "sharpness",
    ("parity", lambda row: row["function"] == "parity"),
    ("the other function", lambda row: row["function"] != "parity"),
)
PER_BIT = quantities.slope("sharpness", "length").counting("kept models", kept).noting(length_range)
CLAIMS = (
    lab.claim(
        "PARITY is sharper than the others",
        "Figs 1, 5",
        "at large lengths the minima of PARITY are sharper than those of functions of low sensitivity",
        (ABOVE.where("kept models", short, kept=True).grouped("", beside_parity, what="comparisons") > 0).saying(
            "sharpness of PARITY less that of each other function, means over kept models of experiment E1 at the "
            "largest n with two kept models of PARITY: above 0"
        ),
    ),
    lab.claim(
        "PARITY becomes sharper with n",
        "Figs 1, 5",
        "sharpness of PARITY rises with the length",
        PER_BIT.where("PARITY in experiment E1", short, function="parity") >= FLAT,
    ),
    lab.claim(
        "MAJORITY, FIRST and MEAN stay as they are",
        "Figs 1, 5",
        "sharpness of the others does not depend on the length",
        PER_BIT.where("experiment E1", short)
        .each("function", OTHERS, what="functions", weakest_first=False)
        .between(-FLAT, FLAT),
    ),
    lab.claim(
        "PARITY reaches 1 near n = 30",
        "Fig 5, Thm 6",
        "the sharpness of PARITY reaches its asymptotic lower bound of 1 near n = 30",
        quantities.mean("sharpness")
        .where("kept models, experiment E1", short, kept=True)
        .where(f"PARITY, n from {FROM} on", lambda row: row["length"] >= FROM, function="parity")
        .between(*NEAR_ONE),
    ),
    lab.claim(
        "flat up to 512 bits",
        "Fig 8",
        "the same at much greater lengths, at width 4",
        PER_BIT.where("experiment E1b", width=LONG_WIDTH)
        .each("function", OTHERS, what="functions", weakest_first=False)
        .between(-LONG_FLAT, LONG_FLAT),
    ),
)


# ---------------------------------------------------------------- figures


def by_length(table: lab.Rows, column: str, y_label: str, *, y_log: bool = False, **look: Any) -> lab.Panel:
    """A column against n: a line per function with a band from the least to the largest, and models not kept apart."""
    return lab.chart(
        kept(table),
        "length",
        column,
        by="function",
        order=FUNCTIONS,
        centre="geometric" if y_log else "mean",
        apart=table.where(kept=False),
        hover=lambda row: f"{row['function']}, seed {row['seed']}: error {row['error']:.2g}",
        x_label="length n",
        y_label=y_label,
        y_log=y_log,
        **look,
    )


class SharpnessByLength(lab.Study):
    """Whether sensitive functions have sharper minima the longer their strings are."""

    name, paper = "sharpness-by-length", "001"
    title = "Sharpness of transformers that learned PARITY, MAJORITY, FIRST and MEAN, by length"
    figures = ("Fig 1", "Fig 5", "Fig 6", "Fig 7", "Fig 8")
    scales = lab.scales(
        "{seeds} models of each of 3 functions and {parity_seeds} of PARITY, n in {lengths}, width {width}, "
        "{steps} steps of {batch} strings; {long_seeds} of width 4 for each n in {long}, {long_steps} steps",
        smoke=(0.1, {"lengths": (3, 4), "seeds": 1, "parity_seeds": 1, "width": 8, "batch": 32, "steps": 20}
               | {"long": (6,), "long_seeds": 1, "long_steps": 10, "first_seed": 0}),
        # Seeds from 1000 on: "PARITY is sharper" was judged three times on seeds 0 to 2, at last with three more.
        laptop=(50, {"lengths": (4, 6, 8, 10, 12), "seeds": 3, "width": 128, "batch": 128, "steps": 4_000}
                | {"parity_seeds": 6, "long": LONG[:3], "long_seeds": 2, "long_steps": 2_000, "first_seed": 1_000}),
        paper=(600_000, {"lengths": tuple(range(4, 31)), "seeds": 10, "width": 128, "batch": 1_024, "steps": 10_000}
               | {"parity_seeds": 10, "long": LONG, "long_seeds": 10, "long_steps": 10_000, "first_seed": 0}),
    )  # fmt: skip
    deviations = TRAINING_DEVIATIONS + lab.deviations(
        ("lengths", "4 to 30", "laptop: 4, 6, 8, 10, 12; smoke: 3, 4", "time; PARITY is learned up to there"),
        ("seeds, parity seeds", "10", "laptop: 3, of PARITY 6; smoke: 1", "models of PARITY differ most"),
        ("first seed (laptop)", "0", "1000", "seeds not used by any earlier run"),
        ("seeds", "the same ones at every n", "every model its own", "so that the points of a line are independent"),
        ("width (smoke)", "128", "8", "to take seconds"),
        ("steps, batch", "10,000 of 1,024 strings", "laptop: 4,000 of 128; smoke: 20 of 32", "equal for all functions"),
        ("long, long seeds, long steps", "20 lengths up to 512, 10 seeds, 10,000 steps",
         "laptop: up to 57, 2 seeds, 2,000 steps; smoke: one of 6 bits, 10 steps", "computing time"),
        ("strings", "1000 batches of 1024", "1024, or all that there are", "most of the variance comes from the noise"),
        ("flat, rising", "a regression of sharpness on n", f"slopes beside {FLAT:.2g} per bit", "no limit is given"),
        ("reaches 1", "seen in the figure", f"from {NEAR_ONE[0]} to {NEAR_ONE[1]}", "no limit is given"),
    )  # fmt: skip
    claims = CLAIMS

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

    def provenance(self, table: lab.Rows) -> list[str]:
        slopes = [
            f"{function} {slope.value:.3g} [{slope.low:.3g}, {slope.high:.3g}]"
            for function, rows in kept(table.where(short)).each("function", FUNCTIONS)
            if rows and not isinstance(slope := PER_BIT.estimate(rows, 0.95), str)
        ]
        return [*kept_text(table), *([f"slopes per bit, 95 % each: {', '.join(slopes)}"] if slopes else [])]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        first, second = table.where(short), table.where(width=LONG_WIDTH)
        main = by_length(first, "sharpness", "sharpness", rules=[lab.Rule(1.0, "bound of PARITY as n grows")])
        others = [by_length(first, "blowup", "blowup", y_log=True), by_length(first, "norm", "weight norm")]
        far = [by_length(second, "sharpness", "sharpness"), by_length(second, "blowup", "blowup", y_log=True)]
        spread = "Lines: means over kept models; bands: the least and the largest; points: models not kept."
        figures = [
            lab.Figure("sharpness-by-length", self.title, spread, [main], columns=1, where="Figs 1, 5, 6"),
            lab.Figure("blowup-by-length", "Blowup and weight norm against the length", spread, others, where="Fig 7"),
        ]
        if second:
            figures.append(lab.Figure("sharpness-long", "Long strings, width 4", spread, far, where="Fig 8"))
        return figures


STUDY = SharpnessByLength()
