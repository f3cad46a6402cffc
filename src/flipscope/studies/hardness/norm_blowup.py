"""Weight norm against blowup of trained transformers, by length: a random search (E2; Figs 2, 9 and 10).

Transformers learn the four functions with weight decay and learning rate drawn at random, so that their weight norms
and blowups differ. The paper finds that at longer strings PARITY needs more of either, and that one can be traded for
the other; the other functions need no more.
"""

from __future__ import annotations

import math

import numpy as np

import flipscope.lab as lab
from flipscope.lab import quantities
from flipscope.studies.hardness.shared import (
    FUNCTIONS,
    OTHERS,
    TRAINING_DEVIATIONS,
    Name,
    Training,
    kept,
    kept_text,
    length_range,
)

STILL = math.log10(2) / (25 - 4)  # no growth: the blowup less than doubles over the paper's lengths; log10 per bit
WEIGHT_DECAY, RATE = (0.0, 0.4), (1e-4, 5e-4)
STREAMS = {"frontier": 0x66726F6E, "four": 0x666F7572}  # random streams of the two searches


# ---------------------------------------------------------------- trials


def drawn(
    search: str, number: int, functions: tuple[Name, ...], lengths: tuple[int, ...], sizes: tuple[int, int, int]
) -> Training:
    """One model of a search, by its number: functions and lengths in turn, weight decay and learning rate at random."""
    stream = np.random.default_rng([STREAMS[search], len(functions), number])
    decay, rate = (float(stream.uniform(*ends)) for ends in (WEIGHT_DECAY, RATE))
    function = functions[number % len(functions)]
    length = lengths[number // len(functions) % len(lengths)]
    return Training(function, length, number, *sizes, lr=rate, weight_decay=decay)


# ---------------------------------------------------------------- claims


BLOWUP = lab.Column("log10 blowup", lambda row: float(np.log10(row["blowup"])))
NORM = lab.Column("log10 norm", lambda row: float(np.log10(row["norm"])))
PER_BIT = quantities.slope(BLOWUP, "length", others=[NORM]).counting("kept models", kept).noting(length_range)
TRADE = quantities.slope(BLOWUP, NORM, others=["length"]).counting("kept models", kept).noting(length_range)
CLAIMS = (
    lab.claim(
        "PARITY's frontier moves out with n",
        "Fig 2",
        "longer PARITY needs a larger weight norm or a larger blowup",
        PER_BIT.where("PARITY", function="parity") >= STILL,
    ),
    lab.claim(
        "the others' frontiers stay",
        "Figs 9, 10",
        "for MAJORITY, FIRST and MEAN, neither depends on the length",
        PER_BIT.each("function", OTHERS, what="functions", weakest_first=False).between(-STILL, STILL),
    ),
    lab.claim(
        "norm is traded for blowup",
        "Fig 2",
        "at a given length, models of PARITY with a smaller norm have a larger blowup",
        TRADE.where("PARITY", function="parity") <= 0,
    ),
)


# ---------------------------------------------------------------- figures


def scatter(function: str, rows: lab.Rows) -> lab.Panel:
    """Norm against blowup of one function's kept models, coloured by length."""
    shown = kept(rows)
    hover = [
        f"n = {row['length']}, lr {row['lr']:.2g}, decay {row['weight_decay']:.2g}, error {row['error']:.1g}"
        for row in shown
    ]
    blowups, norms, lengths = (shown.column(name) for name in ("blowup", "norm", "length"))
    series = lab.Series(function, blowups, norms, "points", hover=hover, values=lengths)
    title = f"{function}: {len(shown)} of {len(rows)} kept"
    return lab.Panel(title, "blowup", "weight norm", [series], x_log=True, value_label="length n")


class NormBlowup(lab.Study):
    """Whether PARITY needs large weights or blowup, and more of them for longer strings."""

    name, paper = "norm-blowup", "001"
    title = "Weight norm against blowup of trained transformers, by length"
    figures = ("Fig 2", "Fig 9", "Fig 10")
    sample_sizes = ("parity", "others", "four")
    scales = lab.scales(
        "{parity} models of PARITY and {others} of the others, n in {lengths}, width {width}, {steps} steps of {batch} "
        "strings, weight decay and learning rate at random; {four} more of all four functions, n in {few}",
        common={"first_seed": 0},
        smoke=(0.1, {"parity": 2, "others": 2, "four": 1, "lengths": (3, 4), "few": (5,)}
               | {"width": 8, "batch": 32, "steps": 20}),
        laptop=(25, {"parity": 60, "others": 30, "four": 0, "lengths": (4, 6, 8, 10), "few": ()}
                | {"width": 64, "batch": 128, "steps": 3_000}),
        paper=(1_000_000, {"parity": 1_000, "others": 1_000, "four": 1_000, "lengths": tuple(range(4, 26))}
               | {"few": (5, 10, 15, 20), "width": 128, "batch": 1_024, "steps": 10_000}),
    )  # fmt: skip
    deviations = TRAINING_DEVIATIONS + lab.deviations(
        ("parity, others", "1,000 and 1,000 runs", "laptop: 60 and 30; smoke: 2 and 2", "computing time"),
        (
            "four, few",
            "2 × 500 runs at 5, 10, 15, 20 bits (Fig 10)",
            "laptop: none; smoke: one of 5 bits",
            "computing time",
        ),
        ("lengths", "at random from 4 to 25", "in turn; laptop: 4, 6, 8, 10; smoke: 3, 4", "equal numbers of each"),
        ("width, batch, steps", "128, 1,024, 10,000", "laptop: 64, 128, 3,000; smoke: 8, 32, 20", "computing time"),
        (
            "seeds",
            "at random up to 1,000 or 2,000",
            "the number of the run",
            "so that no two runs of a search are identical",
        ),
        ("strings", "1000 batches of 1024", "1024, or all that there are", "strings vary less than models"),
        (
            "frontier",
            "seen in the figure",
            "regression of log10 blowup on n and norm",
            "a convex hull has no confidence interval",
        ),
        ("not moving", "seen in the figure", f"within {STILL:.2g} per bit of 0", "no limit is given"),
        ("blowup", "the proxy of the released code", "the same", "Eq 18 is in the table as log10_beta"),
    )
    claims = CLAIMS

    def trials(self, scale: str) -> list[Training]:
        plan = self.scales[scale].settings
        kinds: list[tuple[str, int, tuple[Name, ...], tuple[int, ...]]] = [
            ("frontier", plan["parity"], ("parity",), plan["lengths"]),
            ("frontier", plan["others"], OTHERS, plan["lengths"]),
            ("four", plan["four"], FUNCTIONS, plan["few"]),
        ]
        sizes = (plan["width"], plan["batch"], plan["steps"])
        return [
            drawn(search, number, functions, lengths, sizes)
            for search, count, functions, lengths in kinds
            for number in range(plan["first_seed"], plan["first_seed"] + count)
        ]

    def provenance(self, table: lab.Rows) -> list[str]:
        return kept_text(table)

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        caption = "One point per kept model. Further right and further up is further out."
        panels = [scatter(function, rows) for function, rows in table.each("function", FUNCTIONS) if kept(rows)]
        return [lab.Figure("norm-blowup", self.title, caption, panels, where="Figs 2, 9, 10", same_axes=True)]


STUDY = NormBlowup()
