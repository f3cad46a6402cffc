"""Shared by the studies of the hardness paper: a training with its measurements, and which of its models are kept."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

import flipscope.lab as lab
from flipscope.adapters.parameters import weight_norm
from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.estimates import Estimate
from flipscope.basics.seeds import generators, random_strings
from flipscope.data.lengths import prefix_values
from flipscope.models.transformer import Transformer
from flipscope.probes.blowup import blowup, hardness_proxy
from flipscope.probes.sharpness import sharpnesses
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.hardness import KEPT_BELOW, final, hardness_recipe
from flipscope.training.targets import SIGN_SCALE

Name = Literal["parity", "majority", "first", "mean"]
FUNCTIONS: tuple[Name, ...] = ("parity", "majority", "first", "mean")
OTHERS: tuple[Name, ...] = FUNCTIONS[1:]
STD = 0.02  # of the noise on every parameter but positions
DRAWS = 100  # of the noise, wherever a claim is judged
STRINGS = 1_024  # of a measurement, or the whole cube where that is no larger
ROUNDING = 1e-9  # an interval that is narrower, of numbers of size 1, has no width

SEPARATE_LAYERS = (
    "start of the layers",
    "identical copies of one layer (nn.TransformerEncoder)",
    "each drawn independently; recipes accept equal_layers=True",
    "a symmetry that training would have to break",
)
TRAINING_DEVIATIONS = lab.deviations(
    ("a kept MEAN", f"squared error below {KEPT_BELOW}", f"below {KEPT_BELOW} / n", "its variance is 1/4n, not 1/4"),
    (
        "draws of the noise",
        "10, the same for every batch",
        f"{DRAWS}, each of its own",
        "10 draws give a wide interval",
    ),
    (
        "sharpness",
        "increase of the loss",
        "change of the answers (Thm 6), the loss beside it",
        "the two agree at a good fit",
    ),
    SEPARATE_LAYERS,
)


# ---------------------------------------------------------------- one training and its measurements


@dataclass(frozen=True)
class Training(lab.TrainedTrial):
    """One training of one function at one length (E1, E2), and how its model is measured."""

    function: Name
    length: int
    seed: int
    width: int
    batch: int
    steps: int
    lr: float = 3e-4
    weight_decay: float = 0.1
    draws: int = DRAWS
    strings: int = STRINGS

    @property
    def recipe(self) -> Recipe:
        """The paper's training: equal trials of several studies share a model."""
        return hardness_recipe(
            self.function,
            self.length,
            self.seed,
            width=self.width,
            batch=self.batch,
            steps=self.steps,
            lr=self.lr,
            weight_decay=self.weight_decay,
        )

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Error, sharpness, norm and blowup of the trained model."""
        recipe = self.recipe
        model = lab.trained(recipe, progress).model
        assert isinstance(model, Transformer)
        done = final(recipe, model)
        about = {"error": done.error.value, "limit": done.limit, "kept": done.kept}
        bits = strings_of(self.length, self.strings, self.seed)
        return {**about, **(_measurements(self, model, bits) if math.isfinite(done.error.value) else {})}


def _measurements(trial: Training, model: Transformer, bits: Bits) -> dict[str, float]:
    targets = prefix_values(trial.function, bits)[:, -1].astype(np.float32)
    estimates = sharpnesses(
        model, bits, targets, measures=("prediction", "loss"), std=STD, draws=trial.draws, seed=trial.seed
    )
    value = estimates["prediction"].value
    strings = torch.from_numpy(bits)
    return {
        "sharpness": SIGN_SCALE * value.value,
        "sharpness_low": SIGN_SCALE * value.low,
        "sharpness_high": SIGN_SCALE * value.high,
        "loss_sharpness": SIGN_SCALE * estimates["loss"].value.value,
        "norm": weight_norm(model),
        "norm_with_positions": weight_norm(model, positions=True),
        "blowup": float(hardness_proxy(model, strings).mean()),
        "token_mean_blowup": float(hardness_proxy(model, strings, over="mean").mean()),
        "log10_beta": float(np.log10(blowup(model, strings).beta).mean()),
    }


def strings_of(length: int, most: int, seed: int) -> Bits:
    """The whole cube in the order of truth tables, or `most` random strings where it is larger."""
    if length < 63 and 1 << length <= most:
        return index_bits(0, 1 << length, length)
    (stream,) = generators(seed, 1)
    return random_strings(stream, most, length)


# ---------------------------------------------------------------- which models count, and how they are compared


def kept(table: lab.Rows) -> lab.Rows:
    """The models that the paper would keep."""
    return table.where(kept=True)


def kept_text(table: lab.Rows) -> list[str]:
    """How many models are kept, and how many of each function and length are not."""
    sentence = (
        f"kept {len(kept(table))} of {len(table)} models, those of a squared error below {KEPT_BELOW} (MEAN: / n)"
    )
    failed = [
        f"{function} n = {length}: {missed} of {len(rows)}"
        for (function, length), rows in table.by("function", "length")
        if (missed := len(rows) - len(kept(rows)))
    ]
    return [sentence, *([f"trained, not kept and not judged: {', '.join(failed)}"] if failed else [])]


def length_range(rows: lab.Rows) -> str:
    """The shortest and the longest strings of the rows, for the note of a judgement."""
    lengths = rows.column("length")
    return f"n from {min(lengths)} to {max(lengths)}"


def needing_spread(quantity: lab.Quantity) -> lab.Quantity:
    """The same quantity, undecided where all samples are equal.

    Without spread the interval has no width, whatever the number of samples, and says nothing.

    >>> from flipscope.lab import quantities
    >>> rises = needing_spread(quantities.mean("rise")) > 0
    >>> [rises(lab.Rows({"rise": rise} for rise in rises_of)).verdict for rises_of in ([1.0] * 8, [1.0, 1.1] * 4)]
    ['undecided', 'reproduced']
    """

    def judged_with_spread(judged: lab.Judgement, estimate: Estimate, rows: lab.Rows) -> lab.Judgement:
        if estimate.high - estimate.low > ROUNDING * max(1.0, abs(estimate.value)):
            return judged
        reason = f"{judged.quantity}: {estimate.value:.3g} of all {estimate.samples} {quantity.unit}, without spread"
        return lab.Judgement.without(reason, f"more {quantity.unit}")

    return dataclasses.replace(quantity, after=judged_with_spread)
