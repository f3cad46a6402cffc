"""What the hardness studies share: one training, what is measured of its model, which models count, slopes, panels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from scipy import stats

import flipscope.lab as lab
from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.estimates import Estimate
from flipscope.basics.seeds import generators, random_strings
from flipscope.data.lengths import prefix_values
from flipscope.models.parameters import weight_norm
from flipscope.models.transformer import Transformer
from flipscope.probes.blowup import blowup, hardness_proxy
from flipscope.probes.sharpness import sharpnesses
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.hardness import KEPT_BELOW, final, hardness_recipe

Name = Literal["parity", "majority", "first", "mean"]
FUNCTIONS: tuple[Name, ...] = ("parity", "majority", "first", "mean")
OTHERS: tuple[Name, ...] = FUNCTIONS[1:]
STD = 0.02  # of the noise on every parameter but positions
SIGNS = 4  # labels are 0 and 1; with -1 and 1, as in the theorems, squared errors are four times as large
DRAWS = 100  # of the noise, wherever a claim is judged
ROUNDING = 1e-9  # an interval that is narrower, of numbers of size 1, has no width
STRINGS = 1_024  # of a measurement, or the whole cube where that is no larger

LAYERS_APART = (
    "start of the layers",
    "equal copies of one (nn.TransformerEncoder)",
    "each drawn by itself; the recipes take equal_layers=True",
    "a start that training would have to break",
)
KEEP_RULE = lab.deviations(
    ("a kept MEAN", f"squared error below {KEPT_BELOW}", f"below {KEPT_BELOW} / n", "its variance is 1/4n, not 1/4"),
    ("draws of the noise", "10, the same for every batch", f"{DRAWS}, each of its own", "10 give a wide interval"),
    ("sharpness", "increase of the loss", "change of the answers (Thm 6), the loss beside it", "alike at a good fit"),
    LAYERS_APART,
)


@dataclass(frozen=True)
class Training(lab.Trial):
    """One training of one function at one length, and how its model is measured."""

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
    def cost(self) -> float:
        """Of a step, in multiply-adds: some milliseconds whatever the size, matrices, and attention as measured."""
        return self.steps * (1.2e8 + self.batch * self.length * (14.0 * self.width**2 + 600 * self.length))


def recipe_of(trial: Training) -> Recipe:
    """The paper's training (E1, E2) of a trial: the same in every study."""
    return hardness_recipe(
        trial.function,
        trial.length,
        trial.seed,
        width=trial.width,
        batch=trial.batch,
        steps=trial.steps,
        lr=trial.lr,
        weight_decay=trial.weight_decay,
    )


def strings_of(length: int, most: int, seed: int) -> Bits:
    """The whole cube in the order of truth tables, or so many random strings where it is larger."""
    if length < 63 and 1 << length <= most:
        return index_bits(0, 1 << length, length)
    (stream,) = generators(seed, 1)
    return random_strings(stream, most, length)


def measured(trial: Training, progress: lab.Progress) -> lab.Outcome:
    """Error, sharpness, norm and blowup of the trained model of a trial."""
    recipe = recipe_of(trial)
    model = lab.trained(recipe, progress).model
    assert isinstance(model, Transformer)
    done = final(recipe, model)
    about = {"error": done.error.value, "limit": done.limit, "kept": done.kept}
    bits = strings_of(trial.length, trial.strings, trial.seed)
    return {**about, **(_measures(trial, model, bits) if math.isfinite(done.error.value) else {})}


def _measures(trial: Training, model: Transformer, bits: Bits) -> dict[str, float]:
    targets = prefix_values(trial.function, bits)[:, -1].astype(np.float32)
    found = sharpnesses(
        model, bits, targets, measures=("prediction", "loss"), std=STD, draws=trial.draws, seed=trial.seed
    )
    value = found["prediction"].value
    strings = torch.from_numpy(bits)
    return {
        "sharpness": SIGNS * value.value,
        "sharpness_low": SIGNS * value.low,
        "sharpness_high": SIGNS * value.high,
        "loss_sharpness": SIGNS * found["loss"].value.value,
        "norm": weight_norm(model),
        "norm_with_positions": weight_norm(model, positions=True),
        "blowup": float(hardness_proxy(model, strings).mean()),
        "token_mean_blowup": float(hardness_proxy(model, strings, over="mean").mean()),
        "log10_beta": float(np.log10(blowup(model, strings).beta).mean()),
    }


# ---------------------------------------------------------------- models that count, and slopes


def kept(table: lab.Rows) -> lab.Rows:
    """The models that the paper would keep."""
    return table.where(kept=True)


def how_kept(table: lab.Rows) -> list[str]:
    """How many models count, and which do not."""
    said = f"kept {len(kept(table))} of {len(table)} models, those of a squared error below {KEPT_BELOW} (MEAN: / n)"
    failed = [
        f"{function} n = {length}: {missed} of {len(rows)}"
        for (function, length), rows in table.by("function", "length")
        if (missed := len(rows) - len(kept(rows)))
    ]
    return [said, *([f"trained, not kept and not judged: {', '.join(failed)}"] if failed else [])]


def slope(
    y: Sequence[float], x: Sequence[float], others: Sequence[Sequence[float]] = (), confidence: float | None = None
) -> Estimate | None:
    """How much y rises with x by least squares, the others being equal, with Student's interval.

    Without a `confidence` it is that of the look under way.

    None if there are fewer than two points more than coefficients, or x does not vary by itself.

    >>> found = slope([1.0, 2.1, 2.9, 4.0, 5.1], [1, 2, 3, 4, 5])
    >>> round(found.value, 3), found.low < 1 < found.high
    (1.01, True)
    """
    confidence = lab.confidence() if confidence is None else confidence
    columns = np.column_stack([x, np.ones(len(x)), *others]).astype(np.float64)
    values = np.asarray(y, np.float64)
    freedom = len(values) - columns.shape[1]
    if freedom < 2 or np.linalg.matrix_rank(columns / np.abs(columns).max(axis=0)) < columns.shape[1]:
        return None
    coefficients = np.linalg.lstsq(columns, values)[0]
    spread = float(np.square(values - columns @ coefficients).sum()) / freedom
    error = math.sqrt(spread * float(np.linalg.inv(columns.T @ columns)[0, 0]))
    reach = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
    value = float(coefficients[0])
    return Estimate(value, value - reach, value + reach, confidence, len(values))


def above(found: Estimate, limit: float, quantity: str, note: str = "", unit: str = "samples") -> lab.Judgement:
    """Whether a quantity is above the limit: as `lab.at_least`, but undecided where all samples are equal.

    Without spread the interval has no width, whatever the number of samples, and says nothing.

    >>> above(Estimate(0.0, 0.0, 0.0, 0.95, 8), 0.0, "rise").verdict
    'undecided'
    """
    if found.high - found.low <= ROUNDING * max(1.0, abs(found.value)):
        return lab.Judgement.without(
            f"{quantity}: {found.value:.3g} of all {found.samples} {unit}, without spread", f"more {unit}"
        )
    return lab.at_least(found, limit, quantity, note, unit)


def slope_judge(
    found: Callable[[lab.Rows, float], Estimate | None],
    says: Callable[..., lab.Judgement],
    limits: Sequence[float],
    quantity: str,
) -> lab.GroupJudge:
    """A judge for `for_each` of a function's kept models: a slope, with `says` held against the limits."""

    def one(function: Any, rows: lab.Rows, confidence: float) -> lab.Judgement:
        estimate = found(kept(rows), confidence)
        if estimate is None:
            return lab.Judgement.without(f"{quantity}, {function}: too few kept models", "more seeds or lengths")
        lengths = kept(rows).values("length")
        note = f"n from {lengths[0]} to {lengths[-1]}"
        return says(estimate, *limits, f"{quantity}, {function}", note, "models")

    return one


# ---------------------------------------------------------------- figures


def by_length(
    table: lab.Rows, column: str, y: str, *, y_log: bool = False, rules: Sequence[lab.Rule] = (), title: str = ""
) -> lab.Panel:
    """A column against n: a line per function with a band from the least to the largest, and models not kept apart."""
    series = [
        lab.line(rows, "length", column, function, "geometric" if y_log else "mean", colour=number)
        for number, function in enumerate(FUNCTIONS)
        if (rows := kept(table).where(function=function).having(column))
    ]
    apart = table.where(kept=False).having(column)
    if apart:
        hover = [f"{row['function']}, seed {row['seed']}: error {row['error']:.2g}" for row in apart]
        x, values = apart.column("length"), apart.column(column)
        series.append(lab.Series("not kept", x, values, "points", colour=len(FUNCTIONS), hover=hover))
    return lab.Panel(title, "length n", y, series, y_log=y_log, rules=rules)
