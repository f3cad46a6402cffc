"""Sensitivity at matched training accuracy: what the studies on images and on texts share.

A model is measured before its first step, when its accuracy on some of its training inputs first reaches each of a few
levels, and at the end. The measurement is part of the recipe (`watched`), so that its results are stored with the model
and an interrupted training loses nothing. `checkpoint_columns` turns the log into an outcome of a trial and
`checkpoint_rows` that into rows, one for each checkpoint and disturbance:

    moment       "start", "level" or "end"
    level        the level of training accuracy, None unless the moment is "level"
    accuracy     on the training inputs that are measured, and `loss`; `step` of the training
    kind         "noise" on one random token of each input, "whole" for noise on all of them, or "replace"
    variance     of the noise; `place`: the module whose output gets it, "" for the input itself
    sensitivity  share of inputs whose answer changes, and `half_width` of its 95 % interval over inputs

Claims compare two kinds of models. `paired` has one row for each seed: the difference averaged over the levels at which
both were measured. So a sample is a pair of models, never an input, and `gap` judges the mean over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float64
from torch import Tensor, nn

import flipscope.lab as lab
from flipscope.basics.errors import InputError
from flipscope.data.batches import Labelled
from flipscope.lab import quantities
from flipscope.probes.tokens import token_sensitivity
from flipscope.training.fit import answered
from flipscope.training.logs import Line
from flipscope.training.named import Measurement, measurement
from flipscope.training.targets import Aim
from flipscope.training.token_measures import HALF, START, Disturbances, disturbance, listed

Kept = TypeVar("Kept")

MEASUREMENT = "token_sensitivity"
NEAR = 0.05  # largest difference of the training accuracies of two models that are compared
FEWEST = 3  # pairs of models that an interval needs
MATCHED = "paired by seed and training accuracy"
COLUMNS = (
    "step", "moment", "level", "accuracy", "loss", "kind", "variance", "place", "sensitivity", "half_width",
)  # fmt: skip
Which = Mapping[str, Any]  # columns and values that select the checkpoints of one kind of model


# ---------------------------------------------------------------- measuring


def watched(
    levels: Sequence[float],
    every: int,
    *,
    variances: Sequence[float] = (1.0,),
    whole_variances: Sequence[float] = (),
    places: Sequence[str] = ("",),
    replace: bool = False,
    patch: int | None = None,
    inputs: int = 1_000,
    tokens: int | None = 1,
    draws: int = 1,
    seed: int = 0,
    normalise: bool = False,
) -> Measurement:
    """The measurement for the log of a recipe; training accuracy is measured `every` so many steps.

    The seed chooses the inputs, their tokens and the noise. Models of one seed should share it: their difference is
    then less noisy, while seeds remain independent.

    >>> watched((0.8, 0.9), 50, variances=(1.0, 4.0), patch=4).every
    50
    """
    settings: dict[str, Any] = {
        "levels": listed(map(float, levels)),
        "variances": listed(map(float, variances)),
        "whole_variances": listed(map(float, whole_variances)),
        "places": listed(places),
        "replace": replace,
        "patch": patch,
        "inputs": inputs,
        "tokens": tokens,
        "draws": draws,
        "seed": seed,
    }
    if normalise:  # noise in units of each token's root mean square
        settings["normalise"] = True
    return measurement(MEASUREMENT, every, **settings)


def checkpoint_columns(log: Iterable[Line]) -> dict[str, list[Any]]:
    """The checkpoints in the log of a training that was `watched`, as columns of an outcome."""
    start, rows = f"{MEASUREMENT}.", []
    for line in log:
        found = {name.removeprefix(start): value for name, value in line.items() if name.startswith(start)}
        if "level" in found:
            first = found["level"] == START
            about: dict[str, Any] = {"step": int(line["step"]), "moment": "start" if first else "level"}
            about |= {"level": None if first else found["level"], "accuracy": found["accuracy"], "loss": found["loss"]}
            rows += [about | _disturbed(name, value, found[name + HALF]) for name, value in found.items()
                     if name + HALF in found]  # fmt: skip
    return _as_columns(rows)


def end_columns(
    model: nn.Module, examples: Labelled, disturbances: Disturbances, *, step: int, seed: int, **options: Any
) -> dict[str, list[Any]]:
    """The same columns for a trained classifier on these examples; `options` are those of `token_sensitivity`."""
    aim = Aim("ce")
    loss, accuracy = answered(model, [(examples.bits, aim.targets(examples.labels, "examples"))], aim)
    about = {"step": step, "moment": "end", "level": None, "accuracy": accuracy, "loss": loss}
    found = disturbances.measured(model, examples.bits, seed=seed, **options)
    return _as_columns([about | _disturbed(name, each.value, each.half_width) for name, each in found.items()])


def _disturbed(name: str, value: float, half_width: float) -> dict[str, Any]:
    kind, variance, place = disturbance(name)
    return {"kind": kind, "variance": variance, "place": place, "sensitivity": value, "half_width": half_width}


def _as_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in COLUMNS}


def joined(*columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns of several measurements of one model, one after the other."""
    return {name: [value for each in columns for value in each[name]] for name in COLUMNS}


def checkpoint_rows(outcome: Mapping[str, Any], about: Mapping[str, Any]) -> list[lab.Row]:
    """A row for each checkpoint and disturbance of an outcome that has these columns, beside what is known `about` it.

    >>> columns = {name: [0.5, 0.6] for name in COLUMNS}
    >>> [row["sensitivity"] for row in checkpoint_rows(columns, {"model": "lstm"})]
    [0.5, 0.6]
    """
    return [{**about, **dict(zip(COLUMNS, each, strict=True))} for each in zip(*map(outcome.__getitem__, COLUMNS),
                                                                               strict=True)]  # fmt: skip


def sensitivity_map(
    model: nn.Module, inputs: Tensor, *, variance: float, draws: int, seed: int, **options: Any
) -> Float64[np.ndarray, "input token"]:
    """For a heat map: the share of draws in which noise on each token changes the answer; NaN where none counts."""
    options = {"whole_variance": 0.0, **options}
    return token_sensitivity(model, inputs, variance=variance, draws=draws, seed=seed, **options).changed


def if_present(load: Callable[[], Kept]) -> Kept | None:
    """Data for a figure, or None where they are not on this machine: a report then leaves the figure out."""
    try:
        return load()
    except InputError:
        return None


# ---------------------------------------------------------------- comparing models


def paired(rows: lab.Rows, first: Which, second: Which, *, column: str = "sensitivity", near: float = NEAR) -> lab.Rows:
    """For each seed, how the first kind of model differs from the second at equal training accuracy.

    Compared are checkpoints of the same level whose accuracies differ by at most `near`; a fast learner may jump over a
    level. A row has the means over these levels: `first`, `second`, `gap` (first less second), `relative` (the gap over
    the sum, between -1 and 1; 0 if both are 0), `accuracy_gap` (of the training accuracies), and `levels`. Seeds
    without common levels have no row.
    """
    found = lab.Rows()
    for seed, own in rows.where(moment="level").by("seed"):
        ours, theirs = (_by_level(own.where(**which)) for which in (first, second))
        levels = [level for level in sorted(ours.keys() & theirs.keys())
                  if abs(ours[level]["accuracy"] - theirs[level]["accuracy"]) <= near]  # fmt: skip
        if levels:
            means = [float(np.mean([side[level][column] for level in levels])) for side in (ours, theirs)]
            ahead = float(np.mean([ours[level]["accuracy"] - theirs[level]["accuracy"] for level in levels]))
            found.append({"seed": seed, "levels": levels, "accuracy_gap": ahead, **_gap(*means)})
    return found


def paired_ends(
    rows: lab.Rows, first: Which, second: Which, *, column: str = "sensitivity", accuracy: str | None = None
) -> lab.Rows:
    """The same at the end of training: whatever the accuracies are, or with `accuracy` as in `seed_pairs`."""
    ours, theirs = (rows.where(moment="end", **which) for which in (first, second))
    return lab.Rows(
        {"seed": one["seed"], **_gap(one[column], other[column])} for one, other in seed_pairs(ours, theirs, accuracy)
    )


def seed_pairs(ours: lab.Rows, theirs: lab.Rows, accuracy: str | None) -> list[tuple[lab.Row, lab.Row]]:
    """The rows of two kinds of models that agree in the seed and, up to NEAR, in this column of training accuracies."""
    pairs = lab.matched(ours, theirs, "seed")
    return [(one, other) for one, other in pairs if accuracy is None or abs(one[accuracy] - other[accuracy]) <= NEAR]


def _by_level(rows: lab.Rows) -> dict[float, lab.Row]:
    found = {row["level"]: row for row in rows}
    if len(found) < len(rows):
        raise ValueError("these columns do not select one kind of model and one disturbance")
    return found


def _gap(first: float, second: float) -> dict[str, float]:
    total = first + second
    return {"first": first, "second": second, "gap": first - second,
            "relative": (first - second) / total if total else 0.0}  # fmt: skip


def gap(
    words: str, first: Which, second: Which, *, part: str = "gap", column: str = "sensitivity", fewest: int = FEWEST
) -> quantities.Quantity:
    """The mean over seeds of a column of `paired`: how much more sensitive the first kind of model is.

    >>> rows = lab.Rows({"model": name, "seed": seed, "moment": "level", "level": 0.9, "accuracy": 0.9,
    ...                  "sensitivity": share + 0.01 * seed} for name, share in (("cnn", 0.2), ("vit", 0.1)) for seed in (1, 2, 3))
    >>> round(gap("CNN less ViT", {"model": "cnn"}, {"model": "vit"}).estimate(
    ...     paired(rows, {"model": "cnn"}, {"model": "vit"}), 0.95).value, 3)
    0.1
    """  # noqa: E501 - one example
    return over_seeds(words, lambda rows: paired(rows, first, second, column=column), part=part, fewest=fewest)


def end_gap(
    words: str,
    first: Which,
    second: Which,
    *,
    part: str = "gap",
    column: str = "sensitivity",
    accuracy: str | None = None,
    fewest: int = FEWEST,
) -> quantities.Quantity:
    """The same at the end of training; `accuracy` as in `paired_ends`."""

    def ends(rows: lab.Rows) -> lab.Rows:
        return paired_ends(rows, first, second, column=column, accuracy=accuracy)

    pairs = "paired by seed" if accuracy is None else MATCHED
    return over_seeds(words, ends, part=part, fewest=fewest, pairs=pairs)


def gap_change(
    words: str, first: Which, second: Which, one: Which, other: Which, *, part: str = "gap", fewest: int = FEWEST
) -> quantities.Quantity:
    """How much larger the gap of two kinds of models is under one disturbance than under another, paired by seed.

    `one` and `other` are columns of the disturbance, such as {"kind": "noise", "variance": 4.0}.
    """

    def changes(rows: lab.Rows) -> lab.Rows:
        larger, smaller = (paired(rows, {**first, **each}, {**second, **each}) for each in (one, other))
        return lab.Rows(
            {"seed": ours["seed"], part: ours[part] - theirs[part]}
            for ours, theirs in lab.matched(larger, smaller, "seed")
        )

    return over_seeds(words, changes, part=part, fewest=fewest)


def over_seeds(
    words: str,
    counted: Callable[[lab.Rows], lab.Rows],
    *,
    part: str = "gap",
    fewest: int = FEWEST,
    pairs: str = MATCHED,
) -> quantities.Quantity:
    """The mean over seeds of a column of what `counted` makes of the rows: one row for each pair of models."""
    mean = quantities.mean(lab.Column(words, lambda row: row[part]), fewest=fewest, unit="seeds")
    return mean.counting(f"models {pairs}", counted)
