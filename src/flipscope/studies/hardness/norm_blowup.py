"""Weight norm against blowup of trained transformers, coloured by length: a random search (E2; Figs 2, 9 and 10)."""

from __future__ import annotations

import numpy as np

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
from flipscope.studies.hardness._shared import (
    FUNCTIONS,
    KEEP_RULE,
    OTHERS,
    Name,
    Training,
    how_kept,
    kept,
    measured,
    slope,
    slope_judge,
)

STILL = float(np.log10(2)) / (25 - 4)  # no move: blowup less than doubles over the paper's lengths; log10 per bit
WEIGHT_DECAY, RATE = (0.0, 0.4), (1e-4, 5e-4)
WAYS = {"frontier": 0x66726F6E, "four": 0x666F7572}  # streams of the two searches


def _logs(rows: lab.Rows, column: str) -> list[float]:
    return [float(np.log10(value)) for value in rows.column(column)]


def outward(rows: lab.Rows, confidence: float) -> Estimate | None:
    """How much log10 blowup rises per bit at equal weight norm."""
    return slope(_logs(rows, "blowup"), rows.column("length"), [_logs(rows, "norm")], confidence)


def trade(rows: lab.Rows, confidence: float) -> Estimate | None:
    """How much log10 blowup rises with log10 norm at equal length."""
    return slope(_logs(rows, "blowup"), _logs(rows, "norm"), [rows.column("length")], confidence)


def judge_out(table: lab.Rows) -> lab.Judgement:
    """PARITY needs more blowup at equal norm the longer its strings are."""
    judge = slope_judge(outward, lab.at_least, [STILL], "log10 blowup per bit at equal norm")
    return lab.for_each(table.each("function", ["parity"]), judge)


def judge_still(table: lab.Rows) -> lab.Judgement:
    """The others do not."""
    judge = slope_judge(outward, lab.between, [-STILL, STILL], "log10 blowup per bit at equal norm")
    return lab.for_each(table.each("function", OTHERS), judge, what="functions")


def judge_trade(table: lab.Rows) -> lab.Judgement:
    """Of PARITY, models of smaller norm have more blowup."""
    judge = slope_judge(trade, lab.at_most, [0.0], "log10 blowup over log10 norm at equal n")
    return lab.for_each(table.each("function", ["parity"]), judge)


class NormBlowup(lab.Study):
    """Whether PARITY needs large weights or blowup, and more of them for longer strings."""

    name, paper = "norm-blowup", "001"
    title = "Weight norm against blowup of trained transformers, by length"
    figures = ("Fig 2", "Fig 9", "Fig 10")
    scales = lab.scales(
        "{parity} models of PARITY and {others} of the others, n in {lengths}, width {width}, {steps} steps of {batch} "
        "strings, weight decay and learning rate at random; {four} more of all four functions, n in {few}",
        smoke=(0.1, {"parity": 2, "others": 2, "four": 1, "lengths": (3, 4), "few": (5,)}
               | {"width": 8, "batch": 32, "steps": 20}),
        laptop=(25, {"parity": 60, "others": 30, "four": 0, "lengths": (4, 6, 8, 10), "few": ()}
                | {"width": 64, "batch": 128, "steps": 3_000}),
        paper=(1_000_000, {"parity": 1_000, "others": 1_000, "four": 1_000, "lengths": tuple(range(4, 26))}
               | {"few": (5, 10, 15, 20), "width": 128, "batch": 1_024, "steps": 10_000}),
    )  # fmt: skip
    deviations = KEEP_RULE + lab.deviations(
        ("parity, others", "1,000 and 1,000 runs", "laptop: 60 and 30; smoke: 2 and 2", "time"),
        ("four, few", "2 × 500 runs at 5, 10, 15, 20 bits (Fig 10)", "laptop: none; smoke: one of 5 bits", "time"),
        ("lengths", "at random from 4 to 25", "in turn; laptop: 4, 6, 8, 10; smoke: 3, 4", "equal numbers of each"),
        ("width, batch, steps", "128, 1,024, 10,000", "laptop: 64, 128, 3,000; smoke: 8, 32, 20", "time"),
        ("seeds", "at random up to 1,000 or 2,000", "the number of the run", "no two runs of a search are then alike"),
        ("strings", "1000 batches of 1024", "1024, or all that there are", "they vary less than models"),
        ("frontier", "seen in the figure", "regression of log10 blowup on n and norm", "a hull has no interval"),
        ("not moving", "seen in the figure", f"within {STILL:.2g} per bit of 0", "silent on a limit"),
        ("blowup", "the stand-in of the released code", "the same", "Eq 18 is in the table as log10_beta"),
    )
    claims = (
        lab.Claim(
            "PARITY's frontier moves out with n",
            "Fig 2",
            "longer strings of PARITY need more weight norm or more blowup",
            f"regression of log10 blowup on n and log10 norm: at least {STILL:.2g} per bit",
            judge_out,
        ),
        lab.Claim(
            "the others' frontiers stay",
            "Figs 9, 10",
            "for MAJORITY, FIRST and MEAN neither depends on the length",
            f"the same for each: within {STILL:.2g} per bit of 0",
            judge_still,
        ),
        lab.Claim(
            "norm is traded for blowup",
            "Fig 2",
            "at one length, models of PARITY with less norm have more blowup",
            "regression of log10 blowup on log10 norm and n: at most 0",
            judge_trade,
        ),
    )

    def trials(self, scale: str) -> list[Training]:
        plan = self.scales[scale].settings
        kinds: list[tuple[str, int, tuple[Name, ...], tuple[int, ...]]] = [
            ("frontier", plan["parity"], ("parity",), plan["lengths"]),
            ("frontier", plan["others"], OTHERS, plan["lengths"]),
            ("four", plan["four"], FUNCTIONS, plan["few"]),
        ]
        sizes = (plan["width"], plan["batch"], plan["steps"])
        return [drawn(way, number, functions, lengths, sizes) for way, count, functions, lengths in kinds
                for number in range(count)]  # fmt: skip

    def measure(self, trial: Training, progress: lab.Progress) -> lab.Outcome:
        return measured(trial, progress)

    def provenance(self, table: lab.Rows) -> list[str]:
        return how_kept(table)

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        caption = "One point per kept model. Further right and further up is further out."
        panels = [scatter(function, rows) for function, rows in table.each("function", FUNCTIONS) if kept(rows)]
        return [lab.Figure("norm-blowup", self.title, caption, panels, where="Figs 2, 9, 10", same_axes=True)]


def drawn(
    way: str, number: int, functions: tuple[Name, ...], lengths: tuple[int, ...], sizes: tuple[int, int, int]
) -> Training:
    """Model number so-and-so of the search: functions and lengths in turn, the rest at random."""
    stream = np.random.default_rng([WAYS[way], len(functions), number])
    decay, rate = (float(stream.uniform(*ends)) for ends in (WEIGHT_DECAY, RATE))
    function = functions[number % len(functions)]
    length = lengths[number // len(functions) % len(lengths)]
    return Training(function, length, number, *sizes, lr=rate, weight_decay=decay)


def scatter(function: str, rows: lab.Rows) -> lab.Panel:
    """Norm against blowup of one function's kept models, coloured by length."""
    own = kept(rows)
    said = "n = {length}, lr {lr:.2g}, decay {weight_decay:.2g}, error {error:.1g}"
    hover, lengths, norms = [said.format(**row) for row in own], own.column("length"), own.column("norm")
    series = lab.Series(function, own.column("blowup"), norms, "points", hover=hover, values=lengths)
    title = f"{function}: {len(own)} of {len(rows)} kept"
    return lab.Panel(title, "blowup", "weight norm", [series], x_log=True, value_label="length n")


STUDY = NormBlowup()
