"""What counts of strings of low sensitivity say of Thm 4.5 and of the questions it leaves open."""

from __future__ import annotations

from collections.abc import Iterable

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate, mean_from_samples
from flipscope.studies.geometry.zero_counts import NAMES, OVER, ends, growths

FLOOR, KEPT = 0.1, 0.5  # a share that has not vanished; part of that at the first sampled length
ALMOST, FEWEST = 0.8, 10  # "almost every" model; models of a shape that are judged by themselves


def _share(shape: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
    """Whether the mean share of such strings is above the floor; the rows are of one length."""
    found = mean_from_samples(rows.column("share"), 0, 1, confidence)
    return lab.at_least(found, FLOOR, f"mean share at N = {rows[0]['length']}, {shape}", unit="models")


def _share_and_change(shape: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
    first, last = ends(rows)
    if not last:
        return lab.Judgement.without(f"{shape}: no model has been sampled at two lengths", "two lengths beyond N = 16")
    changes = [b["share"] - KEPT * a["share"] for a, b in zip(first, last, strict=True)]
    name = f"share at N = {last[0]['length']} less {KEPT:g} of that at N = {first[0]['length']}, {shape}"
    change = lab.at_least(mean_from_samples(changes, -KEPT, 1, confidence), 0.0, name, unit="models")
    return lab.all_of(lab.weakest_first([_share(shape, last, confidence), change]))


def judge_shares(table: lab.Rows) -> lab.Judgement:
    """Whether the share of strings of sensitivity 0 stays above the floor, and does not fall fast, in every shape."""
    shapes = table.each("shape", NAMES.values())
    return lab.for_each(shapes, _share_and_change, intervals=2, sort=True, what="shapes")


def _varied(shape: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
    judged, what = _share(shape, rows, confidence), f"models that vary, {shape}"
    if judged.verdict == "undecided" and len(rows) < FEWEST:
        return judged.left_open(f"too few {what}: {len(rows)}", f"at least {FEWEST} {what}")
    return lab.unless_few(judged, len(rows), FEWEST, what)


def judge_varied(table: lab.Rows) -> lab.Judgement:
    """The same floor for models that are not constant; a shape with few of them leaves it open."""
    varied = [(shape, ends(rows)[1].where(constant=False)) for shape, rows in table.each("shape", NAMES.values())]
    return lab.for_each(varied, _varied, missing="no model that varies", sort=True, what="shapes")


def _above(column: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
    """A model counts if the lower end of its own interval is above the threshold; None is no such string at all."""
    found = lab.share_of(rows, lambda row: row[column] is not None and row[column] >= 0, confidence)
    quantity = f"share of models with so many strings of sensitivity {OVER[column]} at N = {rows[0]['length']}"
    return lab.at_least(found, ALMOST, quantity, unit="models")


def judge_threshold(table: lab.Rows, columns: Iterable[str]) -> lab.Judgement:
    """Whether almost every model of the theorem has the strings promised, in each of these columns of `OVER`."""
    last = ends(table.where(lambda row: row["exponent"] > 0, preset="recognizer", eps=0))[1]
    missing = "no model of the theorem was sampled at two lengths"
    found = lab.for_each([(name, last) for name in columns], _above, missing=missing, sort=True, what="k")
    return lab.asymptotic(found)


def judge_growth(table: lab.Rows) -> lab.Judgement:
    """Whether an exponential of N fits the number of strings of sensitivity 0 better than a power, in most models."""
    if not (found := growths(table)):
        return lab.Judgement.without("no model that is not constant has four lengths", "four lengths per model")
    exponential, unknown = sum(kind is True for kind, _ in found), sum(kind is None for kind, _ in found)
    # A model whose K_0 is unknown counts against at the lower end, and for it at the upper one.
    least, most = (lab.share(count, len(found)) for count in (exponential, exponential + unknown))
    share = Estimate(least.value, least.low, most.high, least.confidence, len(found))
    name = "share of models whose K_0 an exponential of N fits better than a power"
    return lab.at_least(share, 0.5, name, f"{unknown} of {len(found)} models in doubt", "models")
