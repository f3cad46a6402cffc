"""Loss, sharpness, blowup and weight norm while a transformer learns PARITY (E3; Figs 3, 12, 13 and 14)."""

from __future__ import annotations

import numpy as np

import flipscope.lab as lab
from flipscope.studies.hardness._curves import panels, path
from flipscope.studies.hardness._dynamics import (
    CONVERGED,
    FALLEN,
    LEAST,
    LEFT,
    MAIN,
    RISEN,
    TOGETHER,
    WINDOW,
    Dynamics,
    judge_blowup,
    judge_falls,
    judge_stays,
    judge_together,
    recipe_of,
    told,
)
from flipscope.studies.hardness._shared import LAYERS_APART
from flipscope.training.logs import series
from flipscope.training.targets import SIGN_SCALE


class ParityDynamics(lab.Study):
    """Whether a transformer becomes sharp in the moment in which it learns PARITY."""

    name, paper, figures = "parity-dynamics", "001", ("Fig 3", "Fig 12", "Fig 13", "Fig 14")
    title = "Loss, sharpness, blowup and weight norm while a transformer learns PARITY"
    scales = lab.scales(
        "{seeds} trainings each of {said}; n = {length}, width {width}, batches of {batch}; every {every} steps "
        "{draws} draws of the noise on one batch",
        smoke=(0.1, {"length": 2, "width": 8, "batch": 16, "seeds": 2, "first_seed": 0, "runs": ((60, (MAIN,)),)}
               | {"said": "60 steps", "lr": 1e-2, "every": 10, "draws": 4}),
        # Seeds from 1000 on: levels are means over fixed stretches since runs with seeds 0 to 7 were looked at.
        laptop=(12, {"length": 12, "width": 64, "batch": 128, "seeds": 8, "first_seed": 1_000}
                | {"runs": ((8_000, (MAIN,)),), "said": "8,000 steps", "lr": 3e-4, "every": 100, "draws": 100}),
        paper=(240_000, {"length": 25, "width": 128, "batch": 1_024, "seeds": 101, "first_seed": 0}
               | {"runs": ((20_000, (0.0, MAIN, 0.2, 0.3)), (100_000, (0.0, MAIN)))}
               | {"said": "20,000 steps at weight decay 0, 0.1, 0.2, 0.3, and of 100,000 at 0, 0.1"}
               | {"lr": 3e-4, "every": 100, "draws": 500}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("length, width", "25 and 128", "laptop: 12 and 64; smoke: 2 and 8", "12 minutes"),
        ("batch", "1,024", "laptop: 128; smoke: 16", "time"),
        (
            "runs (steps, weight decay)",
            "20,000 at weight decay 0, 0.1, 0.2, 0.3; 100,000 at 0, 0.1",
            "laptop: 8,000 at 0.1, that of the main figure; smoke: 60 at 0.1",
            "time; n = 12 converges early enough",
        ),
        ("seeds", "101", "laptop: 8; smoke: 2", "time"),
        ("first seed (laptop)", "0", "1000", "seeds that no earlier run has looked at"),
        ("lr, every (smoke)", "3e-4, every 100 steps", "1e-2, every 10", "seconds"),
        ("draws", "500", "laptop: 100; smoke: 4; the same ones at every measurement", "a curve without their noise"),
        ("strings of a measurement", "one batch, drawn before training", "one batch, of its own seed", "the same"),
        ("sharpness", "increase of the loss", "change of the answers (Thm 6)", "the loss is large before convergence"),
        (
            "coincide, fall",
            "seen in the figure",
            f"within {WINDOW} steps; {FALLEN:g} of the level",
            "silent on numbers",
        ),
        (
            "runs that count",
            "a final loss below 0.001",
            f"a loss below {CONVERGED:g} at some measurement; the others are counted",
            "where they are aligned is what is asked",
        ),
        LAYERS_APART,
    )
    claims = (
        lab.Claim(
            "the loss drops and sharpness rises at once",
            "Fig 3",
            "the moment in which the loss falls is the one in which sharpness jumps up",
            f"share of converged runs whose sharpness rises fastest within {WINDOW} steps of the first loss below "
            f"{CONVERGED:g}: at least {TOGETHER:g}; and of its mean level in the {WINDOW} steps after that at least "
            f"{RISEN:g} was gained since the {WINDOW} steps that end {WINDOW} before, averaged over runs",
            judge_together,
        ),
        lab.Claim(
            "sharpness falls afterwards",
            "Fig 3",
            "with further training the minimum becomes flatter again",
            f"mean level of the last {WINDOW} steps over that of the {WINDOW} after convergence, averaged over runs "
            f"with {LEFT:,} steps left: at most {FALLEN:g}",
            judge_falls,
        ),
        lab.Claim(
            "sharpness does not fall to 0",
            "Fig 3",
            "but it stays at a level that is not 0",
            f"the same: at least {LEAST:g}; and its difference to the level that ends {WINDOW} steps before "
            "convergence: above 0",
            judge_stays,
        ),
        lab.Claim(
            "blowup rises with it",
            "Fig 12",
            "left open: whether the layer norms are what the jump is made by",
            f"logarithm of how much the blowup grows within {WINDOW} steps of convergence, averaged: above 0",
            judge_blowup,
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Dynamics]:
        plan = self.scales[scale].settings
        shape = plan["width"], plan["batch"]
        watched = plan["lr"], plan["every"], plan["draws"]
        return [
            Dynamics(plan["length"], seed, *shape, steps, decay, *watched)
            for steps, decays in plan["runs"]
            for decay in decays
            for seed in range(plan["first_seed"], plan["first_seed"] + plan["seeds"])
        ]

    def measure(self, trial: Dynamics, progress: lab.Progress) -> lab.Outcome:
        lines = lab.trained(recipe_of(trial), progress).fitted.log
        names = {"loss": "validation.loss", "blowup": "blowup.proxy", "norm": "norm"}
        found = {name: np.array(series(lines, logged)[1]) for name, logged in names.items()}
        steps, sharpness = series(lines, "sharpness")
        return {"step": np.array(steps), "sharpness": SIGN_SCALE * np.array(sharpness), **found}

    def row(self, trial: Dynamics, outcome: lab.Outcome) -> lab.Row:
        return {**super().row(trial, outcome), **told(outcome)}

    def provenance(self, table: lab.Rows) -> list[str]:
        converged, left = table.having("converged"), table.having("left")
        return [
            f"{len(converged)} of {len(table)} runs converged (loss below {CONVERGED:g}); the others are not judged",
            f"{len(left)} of them were measured {WINDOW} steps before and {LEFT:,} after: what follows is of these",
            *(f"converged at step {', '.join(map(str, sorted(converged.column('converged'))))}" for _ in converged[:1]),
        ]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        if not table.having("converged"):
            return []
        caption = "Means over the runs that converged (blowup: geometric), bands from the least to the largest."
        ways = "Blowup and weight norm after convergence, means over runs, by the steps since then."
        return [
            figure
            for steps, own in table.by("steps")
            if own.having("converged")
            for figure in (
                lab.Figure(f"parity-dynamics-{steps}", self.title, caption, panels(own), where="Figs 3, 12, 14"),
                lab.Figure(f"parity-path-{steps}", "Weight norm and blowup", ways, [path(own)], 1, where="Fig 13"),
            )
        ]


STUDY = ParityDynamics()
