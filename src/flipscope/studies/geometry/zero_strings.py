"""How many strings of sensitivity 0 random transformers have, against the length (Thm 4.5)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial

import numpy as np

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate, mean_from_samples
from flipscope.bounds.geometry import Threshold
from flipscope.studies.geometry._shared import how_measured
from flipscope.studies.geometry.random_models import Network, Preset, count_zeros

# (D-1)/2L - 5 is 2.75 for the first shape, negative for the second; the third has eps > 0, and the last is the model
# of App. F, to which the theorem does not apply to the letter.
SHAPES: tuple[tuple[Preset, int, int, float], ...] = (
    ("recognizer", 32, 2, 0.0),
    ("recognizer", 16, 2, 0.0),
    ("recognizer", 32, 2, 1.0),
    ("encoder", 32, 2, 1e-5),
)
NAMES = {shape: "{} D={} L={} eps={:g}".format(*shape) for shape in SHAPES}
LENGTHS = (4, 6, 8, 10, 12, 14, 16, 24, 40, 64, 100, 150)
FLOOR, KEPT = 0.1, 0.5  # a share that has not vanished; part of that at the first sampled length
ALMOST, FEWEST = 0.8, 10  # "almost every" model; models of a shape that are judged by themselves


def _shapes(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    return [(shape, rows) for shape, rows in table.each("shape", NAMES.values()) if rows]


def _ends(rows: lab.Rows) -> tuple[lab.Rows, lab.Rows]:
    """For each model that has both, the row of the first sampled length and that of the longest."""
    sampled = rows.where(exact=False)
    if len(lengths := sampled.values("length")) < 2:
        return lab.Rows(), sampled
    pairs = lab.matched(sampled.where(length=lengths[0]), sampled.where(length=lengths[-1]), "seed")
    return lab.Rows(first for first, _ in pairs), lab.Rows(last for _, last in pairs)


def _share(shape: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
    """Whether the mean share of such strings is above the floor; the rows are of one length."""
    found = mean_from_samples(rows.column("share"), 0, 1, confidence)
    return lab.at_least(found, FLOOR, f"mean share at N = {rows[0]['length']}, {shape}", unit="models")


def _share_and_change(shape: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
    first, last = _ends(rows)
    if not last:
        return lab.Judgement.without(f"{shape}: no model has been sampled")
    parts = [_share(shape, last, confidence)]
    if first:
        changes = [b["share"] - KEPT * a["share"] for a, b in zip(first, last, strict=True)]
        name = f"share at N = {last[0]['length']} less {KEPT:g} of that at N = {first[0]['length']}, {shape}"
        parts.append(lab.at_least(mean_from_samples(changes, -KEPT, 1, confidence), 0.0, name, unit="models"))
    return lab.all_of(lab.weakest_first(parts))


def _judge_shares(table: lab.Rows) -> lab.Judgement:
    return lab.for_each(_shapes(table), _share_and_change, intervals=2, sort=True, what="shapes")


def _judge_varied(table: lab.Rows) -> lab.Judgement:
    varied = [(shape, _ends(rows)[1].where(constant=False)) for shape, rows in _shapes(table)]
    enough = [(shape, rows) for shape, rows in varied if len(rows) >= FEWEST]
    judged = lab.for_each(enough, _share, missing="too few models that are not constant", sort=True, what="shapes")
    if len(enough) == len(varied):
        return judged
    note = f"{len(varied) - len(enough)} of {len(varied)} shapes have fewer than {FEWEST} such models"
    return replace(judged, note=note, remedy=judged.remedy or f"{FEWEST} such models per shape")


def _judge_threshold(table: lab.Rows) -> lab.Judgement:
    """A model counts if the lower end of its own interval is above the threshold."""
    last = _ends(table.where(lambda row: row["exponent"] > 0, preset="recognizer", eps=0))[1]
    if not last:
        return lab.Judgement.without("no model of the theorem has been sampled")
    found = lab.share_of(last, lambda row: (row["log2_zeros_low"] or -math.inf) >= row["log2_threshold"])
    name = f"share of models with N^{last[0]['exponent']:g} strings of sensitivity 0 at N = {last[0]['length']}"
    return lab.asymptotic(lab.at_least(found, ALMOST, name, unit="models"))


def _growths(table: lab.Rows) -> list[tuple[bool | None, float]]:
    """Of the models with four lengths that are not constant at all of them; None where a sample saw no such string."""
    found = []
    for _, rows in table.by("shape", "seed"):
        if len(rows) >= 4 and not all(rows.column("constant")):
            rows.sort(key=lambda row: int(row["length"]))
            exponential, rate = lab.growth(rows.column("length"), rows.column("log2_zeros"))
            unseen = any(row["zeros"] == 0 and not row["exact"] for row in rows)
            found.append((None if unseen else exponential, rate))
    return found


def _judge_growth(table: lab.Rows) -> lab.Judgement:
    if not (found := _growths(table)):
        return lab.Judgement.without("no model that is not constant has four lengths", "four lengths per model")
    exponential, unknown = sum(kind is True for kind, _ in found), sum(kind is None for kind, _ in found)
    # A model whose K_0 is unknown counts against at the lower end, and for it at the upper one.
    least, most = (lab.share(count, len(found)) for count in (exponential, exponential + unknown))
    share = Estimate(least.value, least.low, most.high, least.confidence, len(found))
    name = "share of models whose K_0 an exponential of N fits better than a power"
    return lab.at_least(share, 0.5, name, f"{unknown} of {len(found)} models in doubt", "models")


class ZeroStrings(lab.Study):
    """Whether random transformers have strings that no flip moves, and how many."""

    name, paper = "zero-strings", "000"
    title = "Strings of sensitivity 0 of random transformers against N"
    scales = lab.scales(
        "{models} transformers of each of 4 shapes, N in {lengths}, {strings} strings beyond N = 16",
        smoke=(0.1, {"models": 3, "lengths": (4, 8, 24), "strings": 20}),
        demo=(0.5, {"models": 30, "lengths": (8, 12, 24, 64), "strings": 30}),
        laptop=(9, {"models": 40, "lengths": LENGTHS, "strings": 100}),
        paper=(4_500, {"models": 500, "lengths": (*LENGTHS, 250, 400), "strings": 1_000}),
    )
    deviations = lab.deviations(
        ("experiment", "silent: a theorem", "counted, all strings up to N = 16", "§ 7 appeals to counts"),
        ("beyond N = 16", "all strings", "a random sample", "there are 2^N"),
        ("lengths", "all large N", "up to 150; demo 64, paper 400", "how large is not said"),
        ("shapes", "(D-1)/2L > 5", "that, a narrower one, eps > 0, App. F's", "what the theorem leaves out"),
        ("K_0 against N", "exponential, from N = 100 alone", "fitted over all N", "§ 6 has one length"),
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
            _judge_threshold,
        ),
        lab.Claim(
            "models that are not constant: the share does not vanish",
            "§6",
            "left open: whether this is owed to models that give one answer only",
            f"mean share at the longest N over the models that are not constant there: at least {FLOOR} in every shape",
            _judge_varied,
            exploratory=True,
        ),
        lab.Claim(
            "the number of strings of sensitivity 0 grows exponentially",
            "§7",
            "the experiments suggest exponential growth of K_0; a polynomial lower bound is proved",
            "straight lines for log K_0 against N and log N, by AIC; share of the models that vary for which N fits "
            "better: more than 0.5",
            _judge_growth,
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Network]:
        plan = self.scales[scale].settings
        chosen = itertools.product(SHAPES, range(plan["models"]), plan["lengths"])
        return [Network(*shape, seed, length, plan["strings"]) for shape, seed, length in chosen]

    def measure(self, trial: Network, progress: lab.Progress) -> lab.Outcome:
        return count_zeros(trial, progress)

    def row(self, trial: Network, outcome: lab.Outcome) -> lab.Row:
        share, threshold = outcome["zeros"] / trial.asked, Threshold(trial.width, trial.layers)
        # What some strings say of all of them.
        low = share if trial.exact else lab.share(outcome["zeros"], trial.asked).low
        logs = {"log2_zeros": share, "log2_zeros_low": low}
        return {
            "shape": NAMES[trial.preset, trial.width, trial.layers, trial.eps],
            **super().row(trial, outcome),
            **{"asked": trial.asked, "exact": trial.exact, "share": share, "exponent": threshold.exponent},
            **{name: trial.length + math.log2(part) if part else None for name, part in logs.items()},
            "log2_threshold": threshold.log2_at(trial.length),
        }

    def provenance(self, table: lab.Rows) -> list[str]:
        rates = [rate for _, rate in _growths(table)]
        low, middle, high = np.quantile(rates or [0.0], (0.25, 0.5, 0.75))
        fits = f"b of K_0 = 2^(bN) in {len(rates)} models that vary: {middle:.3g}, quartiles {low:.3g} and {high:.3g}"
        return [*how_measured(table), *([fits] if rates else [])]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        shares, numbers = [], []
        for colour, (shape, rows) in enumerate(_shapes(table)):
            line, varied = partial(lab.line, x="length", band=False, colour=colour), rows.where(constant=False)
            seen = lab.Rows({**row, "log2_zeros": row["log2_zeros"] or 0.0} for row in rows)
            shares.append(lab.means(rows, "length", "share", shape, colour=colour))
            shares.append(line(varied, y="share", label=f"{shape}, not constant", centre="mean", dashed=True))
            numbers.append(line(seen, y="log2_zeros", label=shape, centre="median", kind="points"))
            if rows[0]["exponent"] > 0 and rows[0]["eps"] == 0:
                numbers.append(line(rows, y="log2_threshold", label=f"threshold, {shape}", centre="mean", dashed=True))
        every = table.values("length")
        numbers.append(lab.Series("all strings", every, every, dashed=True))
        left = lab.Panel("Share", "N", "share of strings", shares, x_log=True, y_range=(0, 1))
        right = lab.Panel("Number", "N", "log2 of the number", numbers)
        caption = (
            "Left: mean share over models with its interval (dashed: of models that are not constant at that length). "
            "Right: log2 of their number, median over models, beside the theorem's threshold and all 2^N (both dashed)."
        )
        name, title = "zero-strings-by-length", "Strings of sensitivity 0 in random transformers"
        return [lab.Figure(name, title, caption, [left, right], where="Thm 4.5")]


STUDY = ZeroStrings()
