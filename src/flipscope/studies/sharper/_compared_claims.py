"""How `bound-comparison` is judged. Formulas have no error: their intervals are single numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
from flipscope.basics.resampling import straight_line
from flipscope.bounds.pac_bayes.norm_based import PRINTED
from flipscope.studies.sharper._compared import LENGTH, SAMPLES, TRAINED

NUMBERS = {  # of E.3, and between what a number lies that is printed so
    "gradient_bound": ("G_u", 15_523.5, 15_524.5),
    "norm_bound": ("L", 1_303.925, 1_303.935),
    "sigma": ("σ*", 2.265e-3, 2.275e-3),
}
SEMI = (0.3265, 0.3275)
NEEDED = (9.0, 9.6)  # log10, of 2e9 but for a factor of 2
STEEP = 0.01
MOST_SAMPLES = 100.0  # log10, of a crossover: beyond, there is none
FEWEST_SEEDS = 3


def _formulas(table: lab.Rows, **where: Any) -> lab.Rows:
    return table.where(kind="formulas", **where)


def _measured(table: lab.Rows, column: str, samples: int, says: Callable[[Estimate], lab.Judgement]) -> lab.Judgement:
    rows = table.where(kind="measured", length=LENGTH, samples=samples)
    if len(rows) < FEWEST_SEEDS:
        reason = f"too few measurements at T = {LENGTH}, m = {samples:,}: {len(rows)}"
        return lab.Judgement.without(reason, f"at least {FEWEST_SEEDS} seeds")
    return says(lab.student_mean(rows.column(column)))


def judge_numbers(table: lab.Rows) -> lab.Judgement:
    """Each number of E.3 is as printed."""
    rows = _formulas(table, length=LENGTH, samples=SAMPLES)
    if not rows:
        return lab.Judgement.without("the setting of E.3 was not computed")
    return lab.all_of(
        [lab.between(lab.exactly(rows[0][key]), low, high, name) for key, (name, low, high) in NUMBERS.items()]
    )


def judge_semi(table: lab.Rows) -> lab.Judgement:
    """The semi-analytic bound at the truncated one's sigma is as printed."""
    quantity = "semi-analytic bound at σ*, over seeds"
    return _measured(table, "semi_same", SAMPLES, lambda found: lab.between(found, *SEMI, quantity, unit="seeds"))


def judge_tighter(table: lab.Rows) -> lab.Judgement:
    """Both PAC-Bayes bounds are below the printed value of the covering bound and below the template."""
    rows = _formulas(table, length=LENGTH, samples=SAMPLES)
    if not rows:
        return lab.Judgement.without("the setting of E.3 was not computed")
    least = min(PRINTED, rows[0]["template"])
    limit = f"the lower of {PRINTED:g}, as printed, and the template"
    semi = _measured(
        table, "semi", SAMPLES, lambda found: lab.at_most(found, least, f"semi-analytic bound against {limit}")
    )
    return lab.all_of([lab.at_most(lab.exactly(rows[0]["truncated"]), least, f"truncated bound against {limit}"), semi])


def judge_crossover(table: lab.Rows) -> lab.Judgement:
    """At every T the truncated bound falls like m^(-1/3), the template faster, and they cross."""

    def one(length: int, rows: lab.Rows, _: float) -> lab.Judgement:
        late = rows.where(lambda row: row["samples"] >= SAMPLES)
        if len(late) < 3:
            return lab.Judgement.without(f"T = {length}: too few numbers of samples", "3 from a million on")
        logs = [math.log(samples) for samples in late.column("samples")]
        truncated, template = (
            straight_line(logs, [math.log(value) for value in late.column(name)])[0]
            for name in ("truncated", "template")
        )
        if not any("crossover" in row for row in rows):
            return lab.Judgement.without(f"T = {length}: no crossover was looked for", "the trial of a million samples")
        known = rows.having("crossover")
        at = float(known[0]["crossover"]) if known else math.inf
        cross = lab.at_most(lab.exactly(at), MOST_SAMPLES, f"log10 of the samples of the crossover, T = {length}")
        return lab.all_of(
            [
                lab.between(
                    lab.exactly(truncated), -1 / 3 - STEEP, -1 / 3 + STEEP, f"exponent of m, truncated, T = {length}"
                ),
                lab.at_most(
                    lab.exactly(template - truncated), -0.1, f"exponent of m, template less truncated, T = {length}"
                ),
                cross,
            ]
        )

    rows = _formulas(table)
    judged = lab.for_each(rows.by("length"), one, missing="no formula was computed", fewest=2, what="lengths")
    found = rows.where(length=LENGTH).having("crossover")
    if not found:
        return judged
    said = f"at T = {LENGTH} from 10^{found[0]['crossover']:.2f} samples on, "
    said += f"10^{found[0]['crossover_scaled']:.2f} with the printed value's constant"
    return replace(judged, note=f"{judged.note}; {said}" if judged.note else said)


def judge_trained(table: lab.Rows) -> lab.Judgement:
    """The semi-analytic bound is below 1 at the size of the paper's training set."""
    quantity = f"semi-analytic bound at m = {TRAINED:,}"
    return _measured(table, "semi", TRAINED, lambda found: lab.at_most(found, 1.0, quantity, unit="seeds"))


def judge_needed(table: lab.Rows) -> lab.Judgement:
    """The analytic bound is below 1 from 2e9 samples on, by the constants released or by those put right."""
    rows = _formulas(table, length=LENGTH, samples=SAMPLES)
    known = [rows[0][name] for name in ("needed_released", "needed_mended") if rows and rows[0][name] is not None]
    if not known:
        return lab.Judgement.without(f"no analytic bound was computed at T = {LENGTH}")
    nearest = min(known, key=lambda each: abs(each - sum(NEEDED) / 2))
    both = ", ".join(f"10^{each:.2f}" for each in known)
    note = f"as released and put right: {both}"
    return lab.between(lab.exactly(nearest), *NEEDED, "log10 of the samples that the analytic bound needs", note)


def judge_below_one(column: str, samples: int, quantity: str) -> lab.Judge:
    """A computed bound is below 1 at T = 20 and so many samples."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = _formulas(table, length=LENGTH, samples=samples)
        if not rows:
            return lab.Judgement.without(f"nothing was computed at T = {LENGTH}, m = {samples:,}")
        return lab.at_most(lab.exactly(rows[0][column]), 1.0, quantity)

    return judge
