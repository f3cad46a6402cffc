"""What trainings with a chain of thought and in one pass say, what the bounds do; judges and figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import flipscope.lab as lab

RIGHT = 0.99  # share of strings whose parity is right: learned from here on
CHANCE = 0.55  # and at chance up to this one
MODELS = 7  # of each way, for a length to have a say: no interval of fewer could tell most of them from half
CHAINS = 3  # that learned, for a mean of what they attend to
LENGTHS = 3
ROUNDING = 1e-9  # of what is computed and not sampled
LOG_ROUNDING = 1e-6  # of exponents of increments, which are differences of logarithms
NAMES: dict[str, str] = {"steps": "chain of thought", "one-pass": "one pass"}
APART = 0.25  # bits between the marks of the two ways


def right_share(row: lab.Row) -> float:
    """The share of the strings asked whose parity is right."""
    return float(row["right"] / row["asked"])


def has_learned(row: lab.Row) -> bool:
    """Whether nearly all parities are right."""
    return right_share(row) >= RIGHT


def at_chance(row: lab.Row) -> bool:
    """Whether hardly more parities are right than by guessing."""
    return right_share(row) <= CHANCE


def judge_gap(table: lab.Rows) -> lab.Judgement:
    """At some length most chains learn, and most single passes stay at chance.

    Lengths with too few models of a way have no say, whatever these show; the longest must have one, since that is
    where a single pass has most to learn.
    """
    rows = table.having("way")
    if not rows:
        return lab.Judgement.without("no model is done")
    by_length = list(rows.by("length"))
    told = [each for each in by_length if min(len(own) for _, own in each[1].each("way", NAMES)) >= MODELS]
    if not told or told[-1][0] != by_length[-1][0]:
        longest, own = by_length[-1]
        counts = ", ".join(f"{len(models)} by {NAMES[way]}" for way, models in own.each("way", NAMES))
        return lab.Judgement.without(f"too few models at T = {longest}: {counts}", f"at least {MODELS} each way")
    confidence = lab.confidence(len(NAMES) * len(told))
    judged = [_at_length(length, own, confidence) for length, own in told]
    order = ("reproduced", "undecided", "contradicted")
    best = min(reversed(judged), key=lambda each: order.index(each.verdict))  # the longest of these
    lengths = [str(length) for (length, _), each in zip(told, judged, strict=True) if each.verdict == "reproduced"]
    parts = tuple(part for each in judged for part in each.parts)
    note = f"{best.note}; so at T = {', '.join(lengths)}" if lengths else best.note
    return replace(best, parts=parts, note=note)


def _at_length(length: int, rows: lab.Rows, confidence: float) -> lab.Judgement:
    """Whether most chains have learned the parity of so many bits, and most single passes are at chance."""
    chains, passes = (rows.where(way=way) for way in NAMES)
    return lab.all_of(
        [
            lab.of_models(
                chains, has_learned, "most", f"share of chains that learn, T = {length}", confidence=confidence
            ),
            lab.of_models(
                passes, at_chance, "most", f"share of single passes at chance, T = {length}", confidence=confidence
            ),
        ]
    )


def judge_chain(table: lab.Rows) -> lab.Judgement:
    """Most chains learn, and at every length some do."""
    rows = table.where(way="steps")
    if not rows:
        return lab.Judgement.without("no model is done")
    by_length = list(rows.by("length"))
    for count, fewest, what in ((len(by_length), LENGTHS, "lengths"), (len(rows), MODELS, "chains")):
        if count < fewest:
            return lab.Judgement.without(f"too few {what}: {count}", f"at least {fewest} {what}")
    confidence = lab.confidence(1 + len(by_length))
    most = lab.of_models(rows, has_learned, "most", "share of chains that learn, all lengths", confidence=confidence)
    some = [
        lab.of_models(own, has_learned, "some", f"share of chains that learn, T = {length}", confidence=confidence)
        for length, own in by_length
    ]
    stuck = [f"T = {row['length']}, seed {row['seed']}" for row in rows if not has_learned(row)]
    judged = lab.all_of([most, *some])
    return replace(judged, note=f"{judged.note}; not learned: {'; '.join(stuck)}") if stuck else judged


def judge_written(table: lab.Rows) -> lab.Judgement:
    """The network of App. G is right on every string at every step."""
    rows = table.having("wrong_anywhere")
    note = f"T = {', '.join(map(str, rows.values('written')))}" if rows else ""
    wrong, strings = rows.total("wrong_anywhere"), rows.total("strings")
    return lab.never(wrong, strings, "share of strings with a wrong step, network written down", note)


def judge_factor(factor: float) -> lab.Judge:
    """The exponent of one pass is at least factor * T times the chain's, and grows so: no constant does."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = lab.Rows({**row, "quotient": row["core_pass"] / row["core_chain"]} for row in table.having("core_pass"))
        said = "exponent of one pass over that of the chain"
        cases = [(row["quotient"] / (factor * row["bits"]), row["bits"]) for row in rows]
        if odd := [at for quotient, at in cases if math.isnan(quotient)]:
            return lab.Judgement.without(f"{said}: not a number at T = {odd[0]}")
        growing = judge_growth("quotient", f"exponent of T in the {said}")(rows)
        if growing.measured is None:
            return growing
        least, at = min(cases)
        above = lab.at_least(
            lab.exactly(least),
            1 - ROUNDING,
            f"{said}, over {factor:g} T, least",
            f"at T = {at}, of {len(cases)} lengths",
        )
        return lab.all_of([above, growing])

    return judge


def judge_growth(column: str, quantity: str) -> lab.Judge:
    """The exponent of T in a column, between neighbouring lengths, is at least 1."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = _by_length(table, column)
        if len(rows) < LENGTHS:
            return _few(rows)
        found = slopes([math.log(row["bits"]) for row in rows], [math.log(row[column]) for row in rows])
        if any(map(math.isnan, found)):
            return lab.Judgement.without(f"{quantity}: not a number at one of {len(rows)} lengths")
        worst = min(found)
        place = found.index(worst)
        note = f"from T = {rows[place]['bits']} to {rows[place + 1]['bits']}"
        return lab.at_least(lab.exactly(worst), 1 - ROUNDING, quantity, note)

    return judge


def judge_increments(column: str, quantity: str, *, log: bool) -> lab.Judge:
    """What a bit adds to a column, or to e to the power of it, does not grow: so it is linear at most.

    The exponent of T in the column itself would be small beside any intercept, however fast the rest grows.
    """

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = _by_length(table, column)
        if len(rows) < LENGTHS:
            return _few(rows)
        lengths = [float(row["bits"]) for row in rows]
        logs = [row[column] if log else math.log(row[column]) for row in rows]
        if any(map(math.isnan, logs)):
            return lab.Judgement.without(f"{quantity}: not a number at one of {len(rows)} lengths")
        found = _steepening(lengths, logs)
        worst = max(found)
        place = found.index(worst)
        note = f"from T = {rows[place]['bits']} to {rows[place + 2]['bits']}"
        worst = worst if abs(worst) > LOG_ROUNDING else 0.0
        return lab.at_most(lab.exactly(worst), 0.0, quantity, note)

    return judge


def _by_length(table: lab.Rows, column: str) -> list[lab.Row]:
    return sorted(table.having(column), key=lambda row: row["bits"])


def _few(rows: Sequence[lab.Row]) -> lab.Judgement:
    return lab.Judgement.without(f"bounds at {len(rows)} lengths", f"at least {LENGTHS} lengths")


def slopes(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """Slopes between neighbours."""
    return [float(slope) for slope in np.diff(y) / np.diff(x)]


def _steepening(lengths: Sequence[float], logs: Sequence[float]) -> list[float]:
    """Exponents of T in what a bit adds, from one pair of neighbouring lengths to the next; logs are of the column."""
    added = [
        high + math.log(-math.expm1(low - high)) - math.log(longer - shorter) if high > low else -math.inf
        for (low, high), (shorter, longer) in zip(itertools.pairwise(logs), itertools.pairwise(lengths), strict=True)
    ]
    middles = [math.log((shorter + longer) / 2) for shorter, longer in itertools.pairwise(lengths)]
    return [
        0.0 if later == -math.inf else (later - earlier) / (after - before)  # what adds nothing does not grow
        for (earlier, later), (before, after) in zip(
            itertools.pairwise(added), itertools.pairwise(middles), strict=True
        )
    ]


def judge_attention(table: lab.Rows) -> lab.Judgement:
    """Chains that learned pay most of their attention to the tokens of their own place."""
    rows = table.where(way="steps").where(has_learned)
    if len(rows) < CHAINS:
        return lab.Judgement.without(f"{len(rows)} chains learned", f"at least {CHAINS} of them")
    found = lab.student_mean(rows.column("attention"))
    return lab.at_least(found, 0.5, "attention to tokens of the same place, mean of chains that learned", unit="models")


# ---------------------------------------------------------------- figures


def figure_of_models(table: lab.Rows, title: str) -> lab.Figure:
    """The share of right parities against the length, and how the loss went at the longest."""
    rows = table.having("way")
    right = [
        lab.estimates(
            NAMES[way],
            [row["length"] + APART * (2 * colour - 1) for row in own],
            [lab.share(row["right"], row["asked"]) for row in own],
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
