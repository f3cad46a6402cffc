"""Sensitivity while a transformer learns a sparse parity (App. A.6; Fig 24).

The paper trains two-layer transformers on the parity of p of d bits, from a fixed set of strings, in six settings,
three of which differ in the seed only. It finds that average sensitivity, over d, rises while training and test
accuracy are still near one half, and reaches p / d when the parity is learned.

Levels of sensitivity before that are means over fixed parts of the time at chance, the first and the last quarter. A
control is trained on the same strings with labels that are almost coins: if its sensitivity rises as much, the rise is
no sign of progress.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import flipscope.lab as lab
from flipscope.data.sparse import SparseData
from flipscope.lab import quantities
from flipscope.models.config import TransformerConfig
from flipscope.training.logs import series
from flipscope.training.named import measurement
from flipscope.training.protocol import TrainingProtocol
from flipscope.training.recipe import Recipe

CHANCE, LEARNED = 0.55, 0.99  # test accuracies: at chance below the first; learned from the second on
QUARTER = 4  # of the time at chance: its first and last part are compared
FEWEST_POINTS = 8  # of a curve at chance, for parts of it
COINS = 0.49  # share of wrong labels of the control; one half is not a parity at all
NEAR, TOGETHER = 0.05, 0.1  # relative distance to p / d at the end; of two steps that coincide
SOME_TIME = 0.1  # part of the steps that accuracy is at chance for
STEADY = 0.5  # rank correlation with the step that counts as a steady rise
FEWEST = 5  # runs that an interval needs


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Parity(lab.TrainedTrial):
    """One training, and with how many strings sensitivity is measured."""

    length: int
    relevant: int
    samples: int
    batch: int
    width: int
    lr: float
    seed: int
    steps: int
    every: int
    strings: int
    validation: int
    noise: float = 0.0  # share of wrong training labels

    @property
    def recipe(self) -> Recipe:
        """The training, which ends when every test string is right."""
        return Recipe(
            data=SparseData(
                gate="parity",
                length=self.length,
                relevant=self.relevant,
                samples=self.samples,
                validation=self.validation,
                noise=self.noise,
                seed=self.seed,
            ),
            model=TransformerConfig(
                width=self.width,
                layers=2,
                heads=4,
                marker="cls",
                readout="first",
                positions="learned",
                max_length=self.length,
                norm="pre",
                final_norm=True,
            ),
            protocol=TrainingProtocol(
                batch=self.batch,
                learning_rate=self.lr,
                decay_after=None,
                stop_after=None,
                max_epochs=None,
                max_steps=self.steps,
                epoch_steps=self.every,
                restore="last",
                goal=1.0,
            ),
            seed=self.seed,
            log=(measurement("sensitivity", self.every, strings=self.strings, seed=self.seed),),
        )

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """The curves of a training: mean loss since the last point, test accuracy, and sensitivity over the length."""
        fitted = lab.trained(self.recipe, progress).fitted
        found = dict(zip(*series(fitted.log, "sensitivity"), strict=True))
        lines = [line for line in fitted.history if line.steps in found]
        return {
            "step": np.array([line.steps for line in lines]),
            "loss": np.array([line.train_loss for line in lines]),
            "accuracy": np.array([line.validation_accuracy for line in lines]),
            "sensitivity": np.array([found[line.steps] / self.length for line in lines]),
            "start": found[0] / self.length,
        }


def progress_of(row: lab.Row) -> lab.Row:
    """When a run left chance and learned, and what its sensitivity did before and in the end.

    `rise` and `order` are of the time at chance, all of it where the run never left chance; a run that left it too
    early for that lacks them, and one that did not learn lacks the rest.
    """
    steps, accuracy, sensitivity = (np.array(row[name], np.float64) for name in ("step", "accuracy", "sensitivity"))
    above, learned = np.flatnonzero(accuracy >= CHANCE), np.flatnonzero(accuracy >= LEARNED)
    count = int(above[0]) if len(above) else len(steps)
    found: lab.Row = {"left": int(steps[above[0]]) if len(above) else None, "learned": None}
    if count >= FEWEST_POINTS:
        part = count // QUARTER
        found["rise"] = float(sensitivity[count - part : count].mean() - sensitivity[:part].mean())
        found["waiting"] = [{"step": step, "sensitivity": value} for step, value in
                            zip(steps[:count].tolist(), sensitivity[:count].tolist(), strict=True)]  # fmt: skip
    if len(learned):
        at, limit = float(steps[learned[0]]), row["relevant"] / row["length"]
        found |= {"learned": int(at), "at_chance": (steps[count - 1] if count else 0.0) / at}
        found["ratio"] = float(sensitivity[-1] / limit)
        far = np.flatnonzero(np.abs(sensitivity / limit - 1) > TOGETHER)
        settled = float(steps[min(far[-1] + 1, len(steps) - 1)]) if len(far) else float(steps[0])
        found["lag"] = settled / at - 1
    return found


# ---------------------------------------------------------------- claims


def is_parity(row: lab.Row) -> bool:
    """Whether a run is on a parity that it learned, and not on coins."""
    return bool(row["noise"] == 0 and row["learned"] is not None)


def mean(column: str, words: str) -> lab.Quantity:
    """The mean of a column over the runs that learn and have it."""
    averaged = quantities.mean(lab.Column(words, lambda row: row[column]), fewest=FEWEST, unit="runs that learn")
    return averaged.where("runs that learn", lambda row: is_parity(row) and row.get(column) is not None)


def at_chance(rows: lab.Rows) -> lab.Rows:
    """The points of each run's time at chance, one row for each."""
    return lab.Rows({"run": place, **point} for place, row in enumerate(rows) for point in row["waiting"])


RISE = "sensitivity in the last quarter of the time at chance less that in the first"
CLAIMS = (
    lab.claim(
        "accuracy is at chance for some time",
        "App. A.6",
        "test accuracy stays near one half at first",
        mean("at_chance", f"part of the steps until the parity is learned with test accuracy below {CHANCE:g}")
        >= SOME_TIME,
    ),
    lab.claim(
        "sensitivity increases while accuracy is at chance",
        "Fig 24",
        "sensitivity goes up before accuracy does, a sign of progress",
        mean("rise", RISE) > 0,
    ),
    lab.claim(
        "sensitivity converges to p / d",
        "Fig 24",
        "when the parity is learned sensitivity is that of the parity",
        mean("ratio", "sensitivity in the end over p / d").between(1 - NEAR, 1 + NEAR),
    ),
    lab.claim(
        "that coincides with learning",
        "Fig 24",
        "sensitivity reaches p / d when accuracy goes to 1",
        mean("lag", f"step from which on sensitivity is within {TOGETHER:.0%} of p / d over that at which the parity "
             "is learned, less 1").between(-TOGETHER, TOGETHER),
    ),
    lab.claim(
        "the rise is steady",
        "beyond Fig 24",
        "sensitivity rises throughout the time at chance",
        quantities.order("step", "sensitivity", per="run", fewest=FEWEST, points=FEWEST_POINTS, unit="runs that learn")
        .where("runs that learn", lambda row: is_parity(row) and row.get("waiting") is not None)
        .counting("at chance", at_chance)
        >= STEADY,
        exploratory=True,
    ),
    lab.claim(
        "coins raise sensitivity less",
        "beyond Fig 24",
        "sensitivity rises less where the labels are almost coins and there is nothing to learn",
        quantities.difference(
            lab.Column(RISE, lambda row: row["rise"]),
            ("runs that learn", is_parity),
            ("runs on coins", lambda row: row["noise"] > 0),
            fewest=FEWEST,
            unit="runs",
        ).where("runs with some time at chance", lambda row: row.get("rise") is not None)
        > 0,
        exploratory=True,
    ),
)  # fmt: skip


# ---------------------------------------------------------------- the study


class ParityProgress(lab.Study):
    """Whether sensitivity shows that a transformer is about to learn a parity."""

    name, paper, figures = "parity-progress", "004", ("Fig 24",)
    title = "Sensitivity while a transformer learns a sparse parity"
    # Settings: (training strings, batch, width, learning rate, seeds, steps at most).
    scales = lab.scales(
        "parity of {relevant} of {length} bits; (strings, batch, width, rate, runs, steps) in {settings}; {controls} "
        "controls of {control_steps} steps; every {every} steps sensitivity from {strings} strings",
        smoke=(0.1, {"length": 4, "relevant": 2, "settings": ((32, 16, 8, 0.01, 2, 60),), "first_seed": 0}
               | {"controls": 1, "control_steps": 40, "every": 10, "strings": 10, "validation": 16}),
        # The model and the numbers of steps were chosen with seeds 100 and 101.
        laptop=(12, {"length": 20, "relevant": 3, "first_seed": 1_000}
                | {"settings": ((50_000, 250, 32, 1e-3, 6, 4_000), (10_000, 100, 64, 1e-3, 2, 4_000),
                                (5_000, 25, 32, 1e-4, 1, 6_000), (5_000, 50, 32, 1e-4, 1, 6_000))}
                | {"controls": 5, "control_steps": 800, "every": 25, "strings": 100, "validation": 2_000}),
        paper=(3_000, {"length": 40, "relevant": 4, "first_seed": 0}
               | {"settings": ((50_000, 250, 32, 1e-3, 3, 200_000), (10_000, 100, 64, 1e-3, 1, 100_000),
                               (5_000, 25, 32, 1e-4, 1, 200_000), (5_000, 50, 32, 1e-4, 1, 100_000))}
               | {"controls": 5, "control_steps": 10_000, "every": 200, "strings": 2_500, "validation": 10_000}),
    )  # fmt: skip
    sample_sizes = ("controls",)
    deviations = lab.deviations(
        ("length, relevant (laptop)", "40 and 4", "20 and 3, limit 0.15", "learned within minutes"),
        ("settings, steps", "six, 1,000 epochs", "laptop: the same, 6 and 2 seeds of the first two; 6,000 steps",
         "time; intervals"),
        ("seeds", "123, 42 and 0", "from 0 on; laptop: from 1000 on", "laptop: seeds not used by any earlier run"),
        ("end", "after 1,000 epochs", "when all test strings are right, or at the limit of steps", "time"),
        ("strings, validation", "10^5 flips' samples; silent",
         "laptop: all flips of 100 strings, accuracy on 2,000; paper: of 2,500, on 10,000", "time"),
        ("training accuracy", "shown", "the training loss instead", "50,000 strings are many to evaluate often"),
        ("model", "two layers, 4 heads", "norms before attention and MLP, learned positions, read at a CLS token",
         "silent"),
        ("batches", "epochs", "drawn from the fixed set at every step", "one kind of data for all sparse functions"),
        ("noise, control", "none", f"runs with {COINS:g} of the labels wrong", "what a rise means"),
        ("every, control_steps", "silent", "laptop: 25 steps, controls of 800", "time"),
        ("limits of the claims", "close to 50 %, converges, coincides", f"{CHANCE:g}; {NEAR:g}; {TOGETHER:g}",
         "chosen before the laptop run"),
    )  # fmt: skip
    claims = CLAIMS

    def trials(self, scale: str) -> list[Parity]:
        plan = self.scales[scale].settings
        shared = {name: plan[name] for name in ("length", "relevant", "every", "strings", "validation")}
        first = plan["first_seed"]
        found = [
            Parity(samples=samples, batch=batch, width=width, lr=lr, seed=seed, steps=steps, **shared)
            for samples, batch, width, lr, seeds, steps in plan["settings"]
            for seed in range(first, first + seeds)
        ]
        samples, batch, width, lr, *_ = plan["settings"][0]
        return found + [
            Parity(samples=samples, batch=batch, width=width, lr=lr, seed=seed, steps=plan["control_steps"],
                   noise=COINS, **shared)
            for seed in range(first, first + plan["controls"])
        ]  # fmt: skip

    def row(self, trial: Parity, outcome: lab.Outcome) -> lab.Row:
        row = super().row(trial, outcome)
        return {**row, **progress_of(row)}

    def provenance(self, table: lab.Rows) -> list[str]:
        runs = table.where(noise=0.0)
        learned = runs.having("learned")
        sentences = [f"{len(learned)} of {len(runs)} runs learned the parity: claims are about these"]
        for row in runs:
            rise = f"{row['rise']:+.4f}" if row.get("rise") is not None else "not measured"
            end = f"learned at step {row['learned']}" if row["learned"] is not None else "not learned"
            sentences.append(f"{setting(row)}, seed {row['seed']}: {end}; rise at chance {rise}")
        return sentences

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        panels = []
        for words, rows in [("parity", table.where(noise=0.0)), ("control", table.where(noise=COINS))]:
            for column in ("loss", "accuracy", "sensitivity"):
                lines = [
                    lab.Series(f"{setting(row)}, seed {row['seed']}", row["step"], row[column], colour=place)
                    for place, row in enumerate(rows)
                ]
                limits = [lab.Rule(row["relevant"] / row["length"], "p / d") for row in rows[:1]]
                rules = {"loss": [lab.Rule(math.log(2), "chance, ln 2")], "accuracy": [lab.Rule(0.5, "chance")]}
                title = {"loss": "training loss", "accuracy": "test accuracy"}.get(column, "sensitivity over length")
                panels.append(lab.Panel(words, "step", title, lines, rules=rules.get(column, limits)))
        caption = "One line per run, up to the step at which all test strings are right. Control: labels almost coins."
        return [lab.Figure("parity-progress", self.title, caption, panels, 3, where="Fig 24")]


def setting(row: lab.Row) -> str:
    """The setting of a run as the paper lists it."""
    return f"({row['samples']:,}, {row['batch']}, {row['width']}, {row['lr']:g})"


STUDY = ParityProgress()
