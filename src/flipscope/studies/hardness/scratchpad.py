"""PARITY by an encoder-decoder that writes the parity of every prefix: sharpness, blowup, norm against n (Fig 11)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

import flipscope.lab as lab
from flipscope.basics.seeds import generators
from flipscope.models.parameters import weight_norm
from flipscope.models.seq2seq import Seq2Seq
from flipscope.probes.blowup import hardness_proxy
from flipscope.probes.sharpness import sharpness
from flipscope.studies.hardness._growth import MEASURED, grows, panel
from flipscope.studies.hardness._shared import DRAWS, SIGNS, STD, kept
from flipscope.training.protocols import KEPT_ABOVE, scratchpad_recipe, written
from flipscope.training.recipe import Recipe
from flipscope.training.sets import LengthsData

RISE = 0.1  # of sharpness over all lengths: a tenth of the 1 that PARITY's must reach without a scratchpad
EXPONENT = 0.1  # of n in a blowup or a norm: without a scratchpad C * blowup is at least 2 sqrt(n), an exponent of 1/2
QUICK = {"lr": 3e-3, "batch": 32, "draws": 20}
LAPTOP = {"lengths": (4, 8, 16, 24, 32), "seeds": 3, "steps": 1_500, "strings": 512}
PAPER = {"lengths": tuple(round(4 + step * 1_020 / 29) for step in range(30)), "seeds": 10, "strings": 1_024}


@dataclass(frozen=True)
class Scratchpad(lab.Trial):
    """One training at one length, and how its model is measured."""

    length: int
    seed: int
    steps: int
    strings: int
    lr: float = 3e-4
    batch: int = 128
    draws: int = DRAWS

    @property
    def cost(self) -> float:
        """Of a step: some milliseconds whatever the length, and as much again for every 10 bits."""
        return float(self.steps * (10 + self.length))


def recipe_of(trial: Scratchpad) -> Recipe:
    """The training of E5 at the trial's length."""
    return scratchpad_recipe(trial.length, trial.seed, batch=trial.batch, steps=trial.steps, lr=trial.lr)


class WithScratchpad(lab.Study):
    """Whether PARITY is no longer sharp once it is written down step by step."""

    name, paper, figures = "scratchpad", "001", ("Fig 11",)
    title = "PARITY with a scratchpad: sharpness, blowup and norm against n"
    scales = lab.scales(
        "encoder-decoders of width 32, n in {lengths}, {seeds} seeds, {steps} steps",
        smoke=(0.2, {"lengths": (2, 3, 4), "seeds": 2, "steps": 100, "strings": 64, **QUICK}),
        laptop=(10, LAPTOP),
        paper=(60_000, {**PAPER, "steps": 10_000}),
    )
    deviations = lab.deviations(
        ("lengths (laptop)", "30 from 4 to 1024", "4, 8, 16, 24, 32", "longer ones take days on two cores"),
        ("seeds, steps (laptop)", "10 of 10,000 steps", "3 of 1,500 steps, the same for every n", "time"),
        ("draws of the noise", "10, the same for every batch", f"{DRAWS}, each of its own", "10 are too few"),
        ("sharpness", "increase of the loss", "change of the answers at all positions (Thm 6)", "alike at a good fit"),
        ("norms of the decoder", "two of each layer's three", "all three", "the third amplifies as well"),
        ("does not grow", "seen in the figure", f"rise at most {RISE}, exponent {EXPONENT}", "silent on numbers"),
    )
    claims = (
        lab.Claim(
            "sharpness does not grow with n",
            "Fig 11",
            "with intermediate parities written down, sharpness is about the same at every length",
            f"rise of the line through all kept models, from the shortest n to the longest: at most {RISE}, where "
            "PARITY without a scratchpad goes up to 1",
            grows("sharpness", RISE, "rise of sharpness from the shortest n to the longest", power=False),
        ),
        *(
            lab.Claim(
                f"{name} does not grow with n",
                "Fig 11",
                f"nor is there a need of a larger {what}",
                f"exponent of n, by a line through all kept models on log scales: at most {EXPONENT}",
                grows(column, EXPONENT, f"exponent of n in the {MEASURED[column]}"),
            )
            for column, name, what in (
                ("encoder", "blowup of the encoder", "blowup"),
                ("decoder", "blowup of the decoder", "blowup"),
                ("norm", "weight norm", "weight norm in place of it"),
            )
        ),
    )

    def trials(self, scale: str) -> list[Scratchpad]:
        plan = dict(self.scales[scale].settings)
        places = itertools.product(plan.pop("lengths"), range(plan.pop("seeds")))
        return [Scratchpad(length, seed, **plan) for length, seed in places]

    def measure(self, trial: Scratchpad, progress: lab.Progress) -> lab.Outcome:
        recipe = recipe_of(trial)
        model = lab.trained(recipe, progress).model
        assert isinstance(model, Seq2Seq)
        assert isinstance(recipe.data, LengthsData)
        done = written(recipe, model, seed=trial.seed)
        (stream,) = generators(trial.seed, 1)
        inputs = torch.from_numpy(recipe.data.draw_inputs(trial.strings, stream))
        found = sharpness(model, inputs, std=STD, draws=trial.draws, seed=trial.seed).value
        return {
            "tokens": done.tokens.value,
            "answers": done.answers.value,
            "kept": done.kept,
            "sharpness": SIGNS * found.value,
            "sharpness_low": SIGNS * found.low,
            "sharpness_high": SIGNS * found.high,
            **{part: float(hardness_proxy(model, inputs, part=part).mean()) for part in ("encoder", "decoder")},
            "norm": weight_norm(model),
        }

    def provenance(self, table: lab.Rows) -> list[str]:
        by = [f"n = {length}: {len(kept(rows))} of {len(rows)}" for length, rows in table.by("length")]
        rule = f"kept and judged are models that write more than {KEPT_ABOVE} of the bits right by themselves"
        return [f"{rule}: {', '.join(by)}"]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        caption = (
            "Each against the length n, of models that write PARITY down; blowup is the product over the norms of the "
            "largest 1 / std at a position, averaged over strings."
        )
        panels = [panel(table, column) for column in MEASURED]
        return [lab.Figure("scratchpad", self.title, caption, panels, where="Fig 11")]


STUDY = WithScratchpad()
