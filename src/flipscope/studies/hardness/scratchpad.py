"""PARITY by an encoder-decoder that writes the parity of every prefix: sharpness, blowup, norm against n (Fig 11)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

import flipscope.lab as lab
from flipscope.basics.seeds import generators
from flipscope.data.lengths import LengthsData
from flipscope.models.parameters import weight_norm
from flipscope.models.seq2seq import Seq2Seq
from flipscope.models.seq2seq_config import Seq2SeqConfig
from flipscope.probes.blowup import hardness_proxy, scratchpad_proxy
from flipscope.probes.sharpness import sharpness
from flipscope.studies.hardness._growth import MEASURED, grows, panel, start_of
from flipscope.studies.hardness._shared import DRAWS, SIGNS, STD, kept
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.hardness import KEPT_ABOVE, scratchpad_recipe, written

RISE = 0.1  # of sharpness over all lengths: a tenth of the 1 that PARITY's must reach without a scratchpad
EXPONENT = 0.1  # of n in a blowup or a norm: without a scratchpad C * blowup is at least 2 sqrt(n), an exponent of 1/2
SIDES: tuple[Literal["encoder", "decoder"], ...] = ("encoder", "decoder")
QUICK = {"lr": 3e-3, "batch": 32, "draws": 20}
# Seeds from 1000 on: the judges of blowup were put right after runs with seeds 0 to 2 had been judged.
LAPTOP = {"lengths": (4, 8, 16, 24, 32), "seeds": 3, "first_seed": 1_000, "steps": 1_500, "strings": 512}
PAPER = {"lengths": tuple(round(4 + step * 1_020 / 29) for step in range(30)), "seeds": 10, "first_seed": 0}


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


def blowups(model: Seq2Seq, inputs: Tensor) -> dict[str, float]:
    """The mean blowup of either side: by the paper's proxy, and with every position and norm."""
    theirs = {f"{side}_paper": float(scratchpad_proxy(model, inputs, side).mean()) for side in SIDES}
    ours: dict[str, float] = {side: float(hardness_proxy(model, inputs, part=side).mean()) for side in SIDES}
    return theirs | ours


class WithScratchpad(lab.Study):
    """Whether PARITY is no longer sharp once it is written down step by step."""

    name, paper, figures = "scratchpad", "001", ("Fig 11",)
    revision = 2  # blowup before the training, and by the paper's proxy
    title = "PARITY with a scratchpad: sharpness, blowup and norm against n"
    scales = lab.scales(
        "encoder-decoders of width 32, n in {lengths}, {seeds} seeds, {steps} steps",
        smoke=(0.2, {"lengths": (2, 3, 4), "seeds": 2, "first_seed": 0, "steps": 100, "strings": 64, **QUICK}),
        laptop=(10, LAPTOP),
        paper=(60_000, {**PAPER, "steps": 10_000, "strings": 1_024}),
    )
    deviations = lab.deviations(
        ("lengths", "30 from 4 to 1024", "laptop: 4, 8, 16, 24, 32; smoke: 2, 3, 4", "longer ones take days"),
        ("seeds, steps", "10 of 10,000 steps", "laptop: 3 of 1,500, the same for every n; smoke: 2 of 100", "time"),
        ("first seed (laptop)", "0", "1000", "seeds that no earlier run has looked at"),
        ("seeds", "the same ones at every n", "every model its own", "points of a line are then independent"),
        ("strings", "1000 batches of 128", "1,024; laptop: 512; smoke: 64", "draws of the noise are what varies"),
        ("lr, batch, draws (smoke)", "3e-4, 128, 10", "3e-3, 32, 20", "seconds"),
        ("draws of the noise", "10, the same for every batch", f"{DRAWS}, each of its own", "10 are too few"),
        ("sharpness", "increase of the loss", "change of the answers at all positions (Thm 6)", "alike at a good fit"),
        (
            "growth of a blowup",
            "as it is",
            "beyond that of the same models before training",
            "the largest of more positions is larger, also where nothing was learned",
        ),
        (
            "blowup",
            "in the last layer at the last position; two of the decoder's three norms",
            "the same as the paper's proxy, and beside it all positions and norms",
            "any position and any norm can amplify",
        ),
        (
            "last position of the decoder",
            "one behind the last that is asked, in the code",
            "where the last bit is written",
            "the other is never trained",
        ),
        (
            "start of the layers",
            "matrices drawn apart, biases of MLPs equal copies (nn.Transformer)",
            "all drawn apart",
            "biases start small",
        ),
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
                f"blowup of the {side} does not grow with n, {way}",
                source,
                "nor is there a need of a larger blowup",
                "exponent of n in the blowup over that of the same models before training, by a line through all kept "
                f"models on log scales: at most {EXPONENT}",
                grows(column, EXPONENT, f"exponent of n in the {MEASURED[column]}", beyond=start_of(column)),
                exploratory=source != "Fig 11",
            )
            for side, end, way, source in (
                ("encoder", "_paper", "the paper's proxy", "Fig 11"),
                ("decoder", "_paper", "the paper's proxy", "Fig 11"),
                ("encoder", "", "all positions and norms", "none: left open"),
                ("decoder", "", "all positions and norms", "none: left open"),
            )
            for column in [side + end]
        ),
        lab.Claim(
            "weight norm does not grow with n",
            "Fig 11",
            "nor is there a need of a larger weight norm in place of it",
            f"exponent of n, by a line through all kept models on log scales: at most {EXPONENT}",
            grows("norm", EXPONENT, f"exponent of n in the {MEASURED['norm']}"),
        ),
    )

    def trials(self, scale: str) -> list[Scratchpad]:
        plan = dict(self.scales[scale].settings)
        places = itertools.product(plan.pop("lengths"), range(plan.pop("seeds")))
        first = plan.pop("first_seed")
        return [Scratchpad(length, first + number, **plan) for number, (length, _) in enumerate(places)]

    def measure(self, trial: Scratchpad, progress: lab.Progress) -> lab.Outcome:
        recipe = recipe_of(trial)
        model = lab.trained(recipe, progress).model
        assert isinstance(model, Seq2Seq)
        assert isinstance(recipe.data, LengthsData)
        assert isinstance(recipe.model, Seq2SeqConfig)
        done = written(recipe, model, seed=trial.seed)
        (stream,) = generators(trial.seed, 1)
        inputs = torch.from_numpy(recipe.data.draw_inputs(trial.strings, stream))
        found = sharpness(model, inputs, std=STD, draws=trial.draws, seed=trial.seed).value
        before = recipe.model.network(scheme=recipe.init, seed=recipe.seed)
        return {
            "tokens": done.tokens.value,
            "answers": done.answers.value,
            "kept": done.kept,
            "sharpness": SIGNS * found.value,
            "sharpness_low": SIGNS * found.low,
            "sharpness_high": SIGNS * found.high,
            **blowups(model, inputs),
            **{start_of(name): value for name, value in blowups(before, inputs).items()},
            "norm": weight_norm(model),
        }

    def provenance(self, table: lab.Rows) -> list[str]:
        by = [f"n = {length}: {len(kept(rows))} of {len(rows)}" for length, rows in table.by("length")]
        rule = f"kept and judged are models that write more than {KEPT_ABOVE} of the bits right by themselves"
        return [f"{rule}: {', '.join(by)}"]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        shown = "Each against the length n, of models that write PARITY down"
        paper = (
            f"{shown}; blowup is the product over the norms of the largest 1 / std at a position, in the last layer at "
            "the last one, averaged over strings."
        )
        every = f"{shown}; blowup is the product over all norms of the largest 1 / std at any position."
        first = [panel(table, column) for column in MEASURED if column not in SIDES]
        second = [panel(table, column) for column in SIDES]
        return [
            lab.Figure("scratchpad", self.title, paper, first, where="Fig 11"),
            lab.Figure("scratchpad-all-positions", "Blowup at all positions and norms", every, second),
        ]


STUDY = WithScratchpad()
