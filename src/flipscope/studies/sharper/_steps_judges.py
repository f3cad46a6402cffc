"""What trainings with a chain of thought and in one pass say, what the bounds do; judges and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate

RIGHT = 0.99  # share of strings whose parity is right: learned above it
CHANCE = 0.55  # and at chance below this one
ROUNDING = 1e-9  # of what is computed and not sampled
SEEDS = 3  # of each way that a length needs
NAMES: dict[str, str] = {"steps": "chain of thought", "one-pass": "one pass"}
APART = 0.25  # bits between the marks of the two ways


def judge_gap(table: lab.Rows) -> lab.Judgement:
    """Some length is learned by every chain and by no single pass."""
    rows = table.having("way")
    if not rows:
        return lab.Judgement.without("no model is done")
    confidence = 1 - 0.05 / len(rows)
    judged = [_at_length(length, own, confidence) for length, own in rows.by("length")]
    order = ("reproduced", "undecided", "contradicted")
    best = min(reversed(judged), key=lambda each: order.index(each.verdict))  # the longest of these
    lengths = [str(n) for (n, _), each in zip(rows.by("length"), judged, strict=True) if each.verdict == order[0]]
    parts = tuple(part for each in judged for part in (each.parts or (each,)))
    note = f"so at T = {', '.join(lengths)}" if lengths else best.note
    return replace(best, parts=parts, note=note)


def _at_length(length: int, rows: lab.Rows, confidence: float) -> lab.Judgement:
    """Whether every chain has learned parity of so many bits, and every single pass is at chance."""
    parts = []
    for way, says, limit in (("steps", lab.at_least, RIGHT), ("one-pass", lab.at_most, CHANCE)):
        own = rows.where(way=way)
        quantity = f"share of right parities, {NAMES[way]}, T = {length}"
        each = [says(share_right(row, confidence), limit, quantity, f"seed {row['seed']}") for row in own]
        if not each:
            parts.append(lab.Judgement.without(f"T = {length}: no model, {NAMES[way]}", f"at least {SEEDS} seeds"))
        parts += [lab.unless_few(judged, len(own), SEEDS, "seeds") for judged in each]
    return lab.all_of(parts)


def judge_chain(table: lab.Rows) -> lab.Judgement:
    """Every chain learns, at three lengths or more."""
    rows = table.where(way="steps")

    def one(row: lab.Row, level: float) -> lab.Judgement:
        quantity = f"share of right parities, T = {row['length']}, seed {row['seed']}"
        return lab.at_least(share_right(row, level), RIGHT, quantity, unit="strings")

    judged = lab.for_every(rows, one, missing="no model is done", sort=True, what="models")
    return lab.unless_few(judged, len(set(rows.column("length"))), 3, "lengths") if rows else judged


def share_right(row: lab.Row, confidence: float = 0.95) -> Estimate:
    """The share of right parities."""
    return lab.share(row["right"], row["asked"], confidence)


def judge_written(table: lab.Rows) -> lab.Judgement:
    """The network of App. G is right on every string at every step."""
    rows = table.having("wrong_anywhere")
    note = f"T = {', '.join(map(str, rows.values('written')))}" if rows else ""
    wrong, strings = rows.total("wrong_anywhere"), rows.total("strings")
    return lab.never(wrong, strings, "share of strings with a wrong step, network written down", note)


def judge_factor(factor: float) -> lab.Judge:
    """The exponent of one pass is at least factor * T times the chain's."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.having("core_pass")
        cases = [(row["core_pass"] / row["core_chain"] / (factor * row["bits"]), row["bits"]) for row in rows]
        if len(cases) < 3:
            return lab.Judgement.without(f"bounds at {len(cases)} lengths", "at least 3 lengths")
        said = f"exponent of one pass over that of the chain, over {factor:g} T, least"
        if odd := [at for quotient, at in cases if math.isnan(quotient)]:
            return lab.Judgement.without(f"{said}: not a number at T = {odd[0]}")
        least, at = min(cases)
        return lab.at_least(exactly(least), 1 - ROUNDING, said, f"at T = {at}, of {len(cases)} lengths")

    return judge


def judge_growth(column: str, says: str, limit: float, quantity: str, log: bool) -> lab.Judge:
    """The exponent of T in a column, or in e to the power of a column, between neighbouring lengths."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = sorted(table.having(column), key=lambda row: row["bits"])
        if len(rows) < 3:
            return lab.Judgement.without(f"bounds at {len(rows)} lengths", "at least 3 lengths")
        heights = [row[column] if log else math.log(row[column]) for row in rows]
        found = growth(([math.log(row["bits"]) for row in rows]), heights)
        if any(map(math.isnan, found)):
            return lab.Judgement.without(f"{quantity}: not a number at one of {len(rows)} lengths")
        most = says == "at most"
        worst = max(found) if most else min(found)
        place = found.index(worst)
        note = f"from T = {rows[place]['bits']} to {rows[place + 1]['bits']}"
        if most:
            return lab.at_most(exactly(worst), limit + ROUNDING, quantity, note)
        return lab.at_least(exactly(worst), limit - ROUNDING, quantity, note)

    return judge


def growth(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """Slopes between neighbours."""
    return [float(slope) for slope in np.diff(y) / np.diff(x)]


def judge_attention(table: lab.Rows) -> lab.Judgement:
    """Chains that learned pay most of their attention to the tokens of their own place."""
    rows = table.where(lambda row: row.get("way") == "steps" and share_right(row).low > RIGHT)
    if len(rows) < SEEDS:
        return lab.Judgement.without(f"{len(rows)} chains learned", f"at least {SEEDS} of them")
    found = lab.student_mean(rows.column("attention"))
    return lab.at_least(found, 0.5, "attention to tokens of the same place, mean of chains that learned", unit="models")


def exactly(value: float) -> Estimate:
    """A number that is computed and not sampled."""
    return Estimate(value, value, value, 0.95, 1)


# ---------------------------------------------------------------- figures


def figure_of_models(table: lab.Rows, title: str) -> lab.Figure:
    """The share of right parities against the length, and how the loss went at the longest."""
    rows = table.having("way")
    right = [
        lab.estimates(
            NAMES[way],
            [row["length"] + APART * (2 * colour - 1) for row in own],
            [share_right(row) for row in own],
            "points",
            colour=colour,
        )
        for colour, (way, own) in enumerate(rows.each("way", NAMES))
        if own
    ]
    made = table.having("wrong")
    if made:
        shares = [1 - row["wrong"] / row["strings"] for row in made]
        right.append(lab.Series("network written down", made.column("written"), shares, "line", dashed=True, colour=2))
    rules = [lab.Rule(0.5, "chance")]
    panels = [lab.Panel("", "length T", "share of right parities", right, y_range=(0.4, 1.02), rules=rules)]
    longest = rows.where(length=max(rows.column("length"), default=0))
    along = lab.Rows(
        [
            {"way": row["way"], "step": step, "loss": loss}
            for row in longest
            for step, loss in zip(row["epochs"], row["losses"], strict=True)
        ]
    )
    losses = [
        lab.line(own, "step", "loss", NAMES[way], "mean", colour=list(NAMES).index(way)) for way, own in along.by("way")
    ]
    if losses:
        said = f"squared error on validation strings, T = {longest[0]['length']}"
        panels.append(lab.Panel("", "step", said, losses, rules=[lab.Rule(0.25, "says 1/2")]))
    caption = (
        "Left: a point per model with its 95 % interval, parities of fresh strings, every step written by the model. "
        "Right: means over models, with bands to the least and largest; of a chain over all its tokens, of which the "
        "bits are half."
    )
    return lab.Figure("parities", title, caption, panels, where="§ 3")


def figure_of_bounds(table: lab.Rows) -> lab.Figure:
    """Samples from which each bound says something, and the exponents."""
    rows = table.having("needed_chain")
    lines = [
        lab.line(rows, "bits", f"needed_{name}", label, band=False, colour=colour, dashed=name == "network")
        for colour, (name, label) in enumerate(
            (("chain", "chain of thought"), ("pass", "one pass"), ("network", "chain, norm of the network"))
        )
    ]
    exponents = [
        lab.line(rows, "bits", f"core_{name}", label, band=False, colour=colour)
        for colour, (name, label) in enumerate((("chain", "chain of thought"), ("pass", "one pass")))
    ]
    rules = [lab.Rule(float(samples), "strings of a training") for samples in rows.values("samples")]
    panels = [
        lab.Panel("", "length T", "samples needed", lines, x_log=True, y_log=True, rules=rules),
        lab.Panel("", "length T", "exponent of the bound", exponents, x_log=True, y_log=True),
    ]
    caption = (
        "Left: samples from which the bound on a wrong parity is below 1. Right: the exponent of the bound but for "
        "-m / 8 Σ², at the σ that is best for the chain. Both bounds are for a training loss of 0."
    )
    return lab.Figure("bounds", "Bounds of PARITY with and without a chain of thought", caption, panels, where="Thm 16")
