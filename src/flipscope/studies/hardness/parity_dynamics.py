"""Loss, sharpness, blowup and weight norm while a transformer learns PARITY (E3; Figs 3, 12, 13 and 14).

A training of PARITY is measured every 100 steps. The paper finds that sharpness jumps up in the moment in which the
loss falls, and that it decreases with further training, though not to 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import flipscope.lab as lab
from flipscope.lab import quantities
from flipscope.studies.hardness.shared import SEPARATE_LAYERS, needing_spread
from flipscope.training.logs import series
from flipscope.training.named import measurement
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.hardness import hardness_recipe
from flipscope.training.targets import SIGN_SCALE

MAIN = 0.1  # the weight decay of the paper's main figure
CONVERGED = 0.01  # loss of labels 0 and 1: training has converged at the first measurement below it
WINDOW = 500  # steps before and after convergence that count as "at the same time"
LEFT = 1_000  # fewest steps after convergence, for later levels to be measured
TOGETHER, RISEN = 1 / 2, 1 / 2  # share of the runs; part of the level after convergence
FALLEN, LEAST = 0.9, 0.1  # of the level after convergence: it has fallen below this part; at least this part remains
FEWEST = 5  # runs that an interval needs
SHARE = 1 / 4  # of the runs that must be measured at a step for a curve to be drawn there


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Dynamics(lab.TrainedTrial):
    """One training of PARITY, and how often and with how many draws of the noise it is measured."""

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
    def recipe(self) -> Recipe:
        """The training with its log: one batch of strings, and the same draws of the noise at every measurement."""
        strings = {"strings": self.batch, "seed": self.seed}
        log = [
            measurement("validation", self.every),
            measurement("sharpness", self.every, draws=self.draws, **strings),
            measurement("blowup", self.every, **strings),
            measurement("norm", self.every),
        ]
        return hardness_recipe(
            "parity",
            self.length,
            self.seed,
            width=self.width,
            batch=self.batch,
            steps=self.steps,
            lr=self.lr,
            weight_decay=self.weight_decay,
            log=log,
        )

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        lines = lab.trained(self.recipe, progress).fitted.log
        names = {"loss": "validation.loss", "blowup": "blowup.proxy", "norm": "norm"}
        curves_by_name = {name: np.array(series(lines, logged)[1]) for name, logged in names.items()}
        steps, sharpness = series(lines, "sharpness")
        return {"step": np.array(steps), "sharpness": SIGN_SCALE * np.array(sharpness), **curves_by_name}


def levels(curves: lab.Outcome) -> lab.Row:
    """When a run converged, how far from that its sharpness rose fastest, and levels of sharpness before and after.

    Levels are means over stretches that are fixed in advance, since the largest of noisy measurements is above later
    ones even where nothing falls: `before` ends one window before convergence and is as long, `after` is the window
    from convergence on, `final` the last window of the run. `risen` is the part of `after` that was gained since
    `before`, `left` the part of it that is left in the end, `above` the same minus `before`, `blowup_risen` the
    logarithm of how much the blowup grew within a window on either side. A run that did not converge, or has too few
    steps before or after, lacks columns.
    """
    steps, loss, sharpness, blowup = (np.array(curves[name]) for name in ("step", "loss", "sharpness", "blowup"))
    below = np.flatnonzero(loss < CONVERGED)
    if not len(below):
        return {"converged": None}
    at, end = int(steps[below[0]]), int(steps[-1])

    def level(first: int, last: int) -> float:
        return float(sharpness[(first <= steps) & (steps <= last)].mean())

    rises = np.diff(sharpness)
    place = int(np.argmax(rises))  # the place of a NaN, if there is any: then the step is unknown
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


# ---------------------------------------------------------------- claims


def main_runs(table: lab.Rows, column: str = "converged") -> list[tuple[str, lab.Rows]]:
    """The converged runs of the paper's main figure that have a column, by how long they were trained."""
    runs = table.where(weight_decay=MAIN).having("converged")
    return [(f"{steps:,} steps", rows.having(column)) for steps, rows in runs.by("steps")]


def mean(column: str, words: str) -> lab.Quantity:
    """The mean of a column over the runs that have it, for each duration of the training."""
    averaged = quantities.mean(lab.Column(words, lambda row: row[column]), fewest=FEWEST, unit="runs")
    return averaged.grouped(
        "for each duration of the training", lambda table: main_runs(table, column), weakest_first=False
    )


RISES_NEAR = (
    quantities.share(
        f"share of converged runs whose sharpness rises fastest within {WINDOW} steps of the first loss below "
        f"{CONVERGED:g}",
        lambda row: abs(row["lag"]) <= WINDOW,
        unit="runs",
    ).grouped("for each duration of the training", main_runs)
    >= TOGETHER
)
GAINED = (
    mean(
        "risen",
        f"part of the level of sharpness in the {WINDOW} steps after convergence that was gained since the {WINDOW} "
        f"steps that end {WINDOW} before",
    )
    >= RISEN
)
LEFT_OF_LEVEL = mean(
    "left",
    f"level of sharpness in the last {WINDOW} steps over that in the {WINDOW} after convergence, of runs with {LEFT:,} "
    "steps left",
)
ABOVE_START = needing_spread(
    mean(
        "above",
        f"rise of sharpness from the {WINDOW} steps that end {WINDOW} before convergence to the last {WINDOW}, over "
        "its level after convergence",
    )
)
STAYS = LEFT_OF_LEVEL >= LEAST, ABOVE_START > 0
BLOWUP_GROWTH = needing_spread(
    mean("blowup_risen", f"logarithm of how much the blowup grows within {WINDOW} steps of convergence")
)


def judge_together(table: lab.Rows) -> lab.Judgement:
    """Sharpness rises fastest near convergence in most runs, and gains half of its level there."""

    def both(steps: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        return lab.all_of(
            [RISES_NEAR.judge(steps, rows, confidence), GAINED.judge(steps, rows.having("risen"), confidence)]
        )

    return lab.for_each(main_runs(table), both, missing="no run converged", intervals=2)


def judge_stays(table: lab.Rows) -> lab.Judgement:
    """The level at the end is not near 0, and above that before convergence."""

    def both(steps: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        return lab.all_of([criterion.judge(steps, rows, confidence) for criterion in STAYS])

    return lab.for_each(main_runs(table, "left"), both, missing="too few steps beside convergence", intervals=2)


CLAIMS = (
    lab.Claim(
        "the loss drops and sharpness rises at once",
        "Fig 3",
        "sharpness jumps up at the moment the loss drops",
        f"{RISES_NEAR.text}; {GAINED.text}",
        judge_together,
    ),
    lab.claim(
        "sharpness falls afterwards",
        "Fig 3",
        "the minimum becomes flatter again with further training",
        LEFT_OF_LEVEL <= FALLEN,
    ),
    lab.Claim(
        "sharpness does not fall to 0",
        "Fig 3",
        "sharpness settles at a level above 0",
        "; ".join(criterion.text for criterion in STAYS),
        judge_stays,
    ),
    lab.claim(
        "blowup rises with it",
        "Fig 12",
        "left open: whether the layer norms cause the jump",
        BLOWUP_GROWTH > 0,
        exploratory=True,
    ),
)


# ---------------------------------------------------------------- figures

CURVES = {"loss": "loss", "sharpness": "sharpness", "blowup": "blowup", "norm": "weight norm"}
AFTER = "steps after convergence"


def aligned(table: lab.Rows, column: str) -> lab.Rows:
    """Curves of the converged runs against the steps since convergence, where a quarter of the runs are measured."""
    shown = lab.Rows()
    for decay, runs in table.having("converged").by("weight_decay"):
        rows = lab.Rows(
            {"weight_decay": decay, "after": step - run["converged"], "value": value}
            for run in runs
            for step, value in zip(run["step"], run[column], strict=True)
            if np.isfinite(value)
        )
        shown += [row for _, at_step in rows.by("after") if len(at_step) >= SHARE * len(runs) for row in at_step]
    return shown


def curves(table: lab.Rows, column: str) -> lab.Panel:
    """One measurement against the steps after convergence, a line for each weight decay."""
    return lab.chart(
        aligned(table, column),
        "after",
        "value",
        by="weight_decay",
        labels="weight decay {:g}",
        centre="geometric" if column == "blowup" else "mean",
        x_label=AFTER,
        y_label=CURVES[column],
        y_log=column == "blowup",
        rules=[lab.Rule(0.0, "converged", axis="x")],
    )


def path(table: lab.Rows) -> lab.Panel:
    """Norm against blowup after convergence, coloured by the step: means over runs."""
    shown = []
    for decay, runs in table.having("converged").by("weight_decay"):
        norm = lab.line(aligned(runs, "norm"), "after", "value", "", "mean", band=False)
        blowup = lab.line(aligned(runs, "blowup"), "after", "value", "", "geometric", band=False)
        places = [place for place, after in enumerate(norm.x) if after is not None and after >= 0]
        x, y, steps = ([each[place] for place in places] for each in (blowup.y, norm.y, norm.x))
        if places:
            shown.append(lab.Series(f"weight decay {decay:g}", x, y, "points", values=steps))
    return lab.Panel("", "blowup", "weight norm", shown, x_log=True, value_label=AFTER)


class ParityDynamics(lab.Study):
    """Whether a transformer becomes sharp in the moment in which it learns PARITY."""

    name, paper, figures = "parity-dynamics", "001", ("Fig 3", "Fig 12", "Fig 13", "Fig 14")
    title = "Loss, sharpness, blowup and weight norm while a transformer learns PARITY"
    scales = lab.scales(
        "{seeds} trainings each of {said}; n = {length}, width {width}, batches of {batch}; every {every} steps "
        "{draws} draws of the noise on one batch",
        smoke=(0.1, {"length": 2, "width": 8, "batch": 16, "seeds": 2, "first_seed": 0, "runs": ((60, (MAIN,)),)}
               | {"said": "60 steps", "lr": 1e-2, "every": 10, "draws": 4}),
        # Seeds from 1000 on: runs with seeds 0 to 7 were used to choose means over fixed stretches.
        laptop=(12, {"length": 12, "width": 64, "batch": 128, "seeds": 8, "first_seed": 1_000}
                | {"runs": ((8_000, (MAIN,)),), "said": "8,000 steps", "lr": 3e-4, "every": 100, "draws": 100}),
        paper=(240_000, {"length": 25, "width": 128, "batch": 1_024, "seeds": 101, "first_seed": 0}
               | {"runs": ((20_000, (0.0, MAIN, 0.2, 0.3)), (100_000, (0.0, MAIN)))}
               | {"said": "20,000 steps at weight decay 0, 0.1, 0.2, 0.3, and of 100,000 at 0, 0.1"}
               | {"lr": 3e-4, "every": 100, "draws": 500}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("length, width", "25 and 128", "laptop: 12 and 64; smoke: 2 and 8", "12 minutes"),
        ("batch", "1,024", "laptop: 128; smoke: 16", "computing time"),
        (
            "runs (steps, weight decay)",
            "20,000 at weight decay 0, 0.1, 0.2, 0.3; 100,000 at 0, 0.1",
            "laptop: 8,000 at 0.1, that of the main figure; smoke: 60 at 0.1",
            "time; n = 12 converges early enough",
        ),
        ("seeds", "101", "laptop: 8; smoke: 2", "computing time"),
        ("first seed (laptop)", "0", "1000", "seeds not used by any earlier run"),
        ("lr, every (smoke)", "3e-4, every 100 steps", "1e-2, every 10", "to take seconds"),
        (
            "draws",
            "500",
            "laptop: 100; smoke: 4; the same ones at every measurement",
            "the curve is then free of their noise",
        ),
        ("strings of a measurement", "one batch, drawn before training", "one batch, of its own seed", "the same"),
        ("sharpness", "increase of the loss", "change of the answers (Thm 6)", "the loss is large before convergence"),
        (
            "coincide, fall",
            "seen in the figure",
            f"within {WINDOW} steps; {FALLEN:g} of the level",
            "no numbers are given",
        ),
        (
            "runs that count",
            "a final loss below 0.001",
            f"a loss below {CONVERGED:g} at some measurement; the others are counted",
            "the question is what happens at convergence",
        ),
        SEPARATE_LAYERS,
    )
    claims = CLAIMS

    def trials(self, scale: str) -> list[Dynamics]:
        plan = self.scales[scale].settings
        shape = plan["width"], plan["batch"]
        measured = plan["lr"], plan["every"], plan["draws"]
        return [
            Dynamics(plan["length"], seed, *shape, steps, decay, *measured)
            for steps, decays in plan["runs"]
            for decay in decays
            for seed in range(plan["first_seed"], plan["first_seed"] + plan["seeds"])
        ]

    def row(self, trial: Dynamics, outcome: lab.Outcome) -> lab.Row:
        return {**super().row(trial, outcome), **levels(outcome)}

    def provenance(self, table: lab.Rows) -> list[str]:
        converged, left = table.having("converged"), table.having("left")
        sentences = [
            f"{len(converged)} of {len(table)} runs converged (loss below {CONVERGED:g}); the others are not judged",
            f"{len(left)} of them were measured {WINDOW} steps before and {LEFT:,} after: what follows is of these",
        ]
        if converged:
            sentences.append(f"converged at step {', '.join(map(str, sorted(converged.column('converged'))))}")
        return sentences

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        caption = "Means over the runs that converged (blowup: geometric), bands from the least to the largest."
        after = "Blowup and weight norm after convergence, means over runs, by the steps since then."
        figures = []
        for steps, runs in table.having("converged").by("steps"):
            panels = [curves(runs, column) for column in CURVES]
            figures += [
                lab.Figure(f"parity-dynamics-{steps}", self.title, caption, panels, where="Figs 3, 12, 14"),
                lab.Figure(f"parity-path-{steps}", "Weight norm and blowup", after, [path(runs)], 1, where="Fig 13"),
            ]
        return figures


STUDY = ParityDynamics()
