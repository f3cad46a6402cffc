"""A training of PARITY that is watched: what its curves say of convergence and sharpness, and judges of that."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import flipscope.lab as lab
from flipscope.training.named import measurement
from flipscope.training.protocols import hardness_recipe
from flipscope.training.recipe import Recipe

MAIN = 0.1  # the weight decay of the paper's main figure
CONVERGED = 0.01  # loss of labels 0 and 1: training has converged at the first measurement below it
WINDOW = 500  # steps before and after convergence that are "at the same time"
LEFT = 1_000  # steps after convergence that a run must have, for what comes later to be told
SMOOTH = 5  # measurements in a row whose mean is a level
TOGETHER, RISEN = 1 / 2, 1 / 2  # share of the runs; part of the largest level
FALLEN, LEAST = 0.9, 0.1  # of the largest level: it has fallen if no more is left; so much must be left
FEWEST = 5  # runs that an interval needs


@dataclass(frozen=True)
class Dynamics(lab.Trial):
    """One training of PARITY, and how it is watched."""

    length: int
    seed: int
    width: int
    batch: int
    steps: int
    weight_decay: float
    lr: float
    every: int
    draws: int

    @property
    def cost(self) -> float:
        """Steps; all else is alike."""
        return float(self.steps)


def recipe_of(trial: Dynamics) -> Recipe:
    """The training with its log: one batch of strings, and the same draws of the noise at every measurement."""
    asked = {"strings": trial.batch, "seed": trial.seed}
    log = [
        measurement("validation", trial.every),
        measurement("sharpness", trial.every, draws=trial.draws, **asked),
        measurement("blowup", trial.every, **asked),
        measurement("norm", trial.every),
    ]
    settings = {name: getattr(trial, name) for name in ("width", "batch", "steps", "lr", "weight_decay")}
    return hardness_recipe("parity", trial.length, trial.seed, log=log, **settings)


def told(curves: lab.Outcome) -> lab.Row:
    """When a run converged, and how far from that its sharpness rose fastest; None where a run cannot tell.

    `risen` is the part of the largest level of sharpness that was gained within the window, `left` what is left of it
    in the end, `above` the same less what was there before the window, `blowup_risen` the logarithm of how much the
    blowup grew within the window.
    """
    steps, loss, sharpness, blowup = (np.array(curves[name]) for name in ("step", "loss", "sharpness", "blowup"))
    below = np.flatnonzero(loss < CONVERGED)
    if not len(below):
        return {"converged": None}
    at = int(steps[below[0]])
    rises = np.diff(sharpness)
    place = int(np.argmax(rises))  # of NaN, if there is any: then it is not known where
    lag = float(steps[place] + steps[place + 1]) / 2 - at
    row: lab.Row = {"converged": at, "lag": math.nan if np.isnan(rises[place]) else lag}
    levels = np.convolve(sharpness, np.full(SMOOTH, 1 / SMOOTH), "valid")
    row |= {"peak": float(levels.max()), "final": float(levels[-1])}
    early, late = at - WINDOW >= steps[0], at + WINDOW <= steps[-1]
    if early and late:
        ends = at - WINDOW, at + WINDOW
        risen, grown = (float(np.diff(np.interp(ends, steps, each))[0]) for each in (sharpness, np.log(blowup)))
        row |= {"risen": risen / row["peak"], "blowup_risen": grown}
    if early and at + LEFT <= steps[-1]:
        before = float(np.interp(at - WINDOW, steps, sharpness))
        row |= {"left": row["final"] / row["peak"], "above": (row["final"] - before) / row["peak"]}
    return row


def judge_together(table: lab.Rows) -> lab.Judgement:
    """Sharpness rises fastest near convergence in most runs, and gains half of its largest level there."""
    name = "share of runs that rise fastest there"
    near = lab.share_where(lambda row: abs(row["lag"]) <= WINDOW, lab.at_least, TOGETHER, name, unit="runs")

    def one(steps: int, rows: lab.Rows, confidence: float) -> lab.Judgement:
        place, told_of = f"{steps:,} steps", rows.having("risen")
        return lab.all_of([near(place, rows, confidence), GAINED(place, told_of, confidence)])

    return lab.for_each(main(table), one, missing="no run converged", intervals=2)


def main(table: lab.Rows) -> list[tuple[int, lab.Rows]]:
    """The converged runs of the paper's main figure, by how long they were trained."""
    return list(table.where(weight_decay=MAIN).having("converged").by("steps"))


def mean(column: str, says: Callable[..., lab.Judgement], limit: float, quantity: str) -> lab.GroupJudge:
    """A judge of the mean of a column over runs."""
    return lab.mean_of(column, says, limit, quantity, within=None, fewest=FEWEST, unit="runs")


def later(column: str, *judges: lab.GroupJudge) -> lab.Judge:
    """A judge of the runs that can tell of a column, all of these together."""

    def one(steps: int, rows: lab.Rows, confidence: float) -> lab.Judgement:
        return lab.all_of([judge(f"{steps:,} steps", rows, confidence) for judge in judges])

    def judge(table: lab.Rows) -> lab.Judgement:
        groups = [(steps, rows.having(column)) for steps, rows in main(table)]
        return lab.for_each(groups, one, missing="too few steps beside convergence", intervals=len(judges))

    return judge


GAINED = mean("risen", lab.at_least, RISEN, "part of the peak gained there")
LEVEL = "level at the end over the peak"
judge_falls = later("left", mean("left", lab.at_most, FALLEN, LEVEL))
judge_stays = later(
    "left", mean("left", lab.at_least, LEAST, LEVEL), mean("above", lab.at_least, 0.0, f"{LEVEL}, less that before")
)
judge_blowup = later("blowup_risen", mean("blowup_risen", lab.at_least, 0.0, "log of the growth of the blowup"))
