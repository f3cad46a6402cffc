"""A training of PARITY that is watched: what its curves say of convergence and sharpness, and judges of that."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import flipscope.lab as lab
from flipscope.studies.hardness._shared import above
from flipscope.training.named import measurement
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.hardness import hardness_recipe

MAIN = 0.1  # the weight decay of the paper's main figure
CONVERGED = 0.01  # loss of labels 0 and 1: training has converged at the first measurement below it
WINDOW = 500  # steps before and after convergence that are "at the same time"
LEFT = 1_000  # steps after convergence that a run must have, for what comes later to be told
TOGETHER, RISEN = 1 / 2, 1 / 2  # share of the runs; part of the level after convergence
FALLEN, LEAST = 0.9, 0.1  # of the level after convergence: it has fallen if no more is left; so much must be left
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

    Levels are means over stretches that are fixed in advance, since the largest of noisy measurements is above all that
    come later, also where nothing falls: `before` ends one window before convergence and is as long, `after` is the
    window from convergence on, `final` the last window of the run. `risen` is the part of `after` that was gained since
    `before`, `left` what of it is left in the end, `above` the same less `before`, `blowup_risen` the logarithm of how
    much the blowup grew within a window on either side.
    """
    steps, loss, sharpness, blowup = (np.array(curves[name]) for name in ("step", "loss", "sharpness", "blowup"))
    below = np.flatnonzero(loss < CONVERGED)
    if not len(below):
        return {"converged": None}
    at, end = int(steps[below[0]]), int(steps[-1])

    def level(first: int, last: int) -> float:
        return float(sharpness[(first <= steps) & (steps <= last)].mean())

    rises = np.diff(sharpness)
    place = int(np.argmax(rises))  # of NaN, if there is any: then it is not known where
    lag = float(steps[place] + steps[place + 1]) / 2 - at
    row: lab.Row = {"converged": at, "lag": math.nan if np.isnan(rises[place]) else lag}
    early, late = at - WINDOW >= steps[0], at + WINDOW <= end
    if early and late:
        row |= {"before": level(at - 2 * WINDOW, at - WINDOW), "after": level(at, at + WINDOW)}
        row["risen"] = 1 - row["before"] / row["after"]
        row["blowup_risen"] = float(np.diff(np.interp((at - WINDOW, at + WINDOW), steps, np.log(blowup)))[0])
    if early and at + LEFT <= end:
        row["final"] = level(end - WINDOW, end)
        row |= {"left": row["final"] / row["after"], "above": (row["final"] - row["before"]) / row["after"]}
    return row


def judge_together(table: lab.Rows) -> lab.Judgement:
    """Sharpness rises fastest near convergence in most runs, and gains half of its level there."""
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


GAINED = mean("risen", lab.at_least, RISEN, "part of the level after convergence gained there")
LEVEL = "level at the end over that after convergence"
judge_falls = later("left", mean("left", lab.at_most, FALLEN, LEVEL))
judge_stays = later(
    "left", mean("left", lab.at_least, LEAST, LEVEL), mean("above", above, 0.0, f"{LEVEL}, less that before")
)
judge_blowup = later("blowup_risen", mean("blowup_risen", above, 0.0, "log of the growth of the blowup"))
