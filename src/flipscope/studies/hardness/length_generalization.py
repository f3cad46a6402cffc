"""Trained on short strings, tested on longer ones: PARITY, MAJORITY, FIRST, MEAN, and PARITY with a scratchpad.

The paper's abstract says that transformers fail on strings of PARITY that are longer than in training, but not on
functions of low sensitivity; it has no experiment on it. Here models are trained on a range of lengths and tested on
strings of up to 8/3 times the longest of these, with sinusoidal and with learned positions.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
from flipscope.lab import quantities
from flipscope.models.seq2seq import Seq2Seq
from flipscope.studies.hardness.shared import FUNCTIONS, SEPARATE_LAYERS, Name, kept
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.hardness import (
    KEPT_ABOVE,
    KEPT_BELOW,
    Positions,
    final,
    lengths_recipe,
    longer_lengths,
    scratchpad_recipe,
    written,
)

Task = Name | Literal["scratchpad"]
TASKS: tuple[Task, ...] = (*FUNCTIONS, "scratchpad")
IN_ABSTRACT: tuple[Name, ...] = ("parity", "majority", "first")  # functions that the paper's claim names
POSITIONS: tuple[Positions, ...] = ("sinusoidal", "learned")
FACTORS = (4 / 3, 2.0, 8 / 3)
JUDGED = 2.0  # claims are judged on strings this many times as long as the longest of the training
CHANCE, GENERAL = 0.6, 0.9  # a function is lost up to this accuracy, and carries over from this one on
# `steps` are those of PARITY, and of the others.
# Seeds from 1000 on: runs with seeds 0 to 2 were used to choose the criterion of most models instead of all.
PLAN = {"shortest": 4, "longest": 12, "seeds": 6, "first_seed": 1_000, "width": 64, "batch": 128,
        "steps": (10_000, 4_000), "strings": 4_096}  # fmt: skip
PAPER = {**PLAN, "longest": 30, "seeds": 10, "width": 128, "batch": 1_024, "steps": (10_000,) * 2, "strings": 100_000,
         "first_seed": 0}  # fmt: skip
SMOKE = {**PLAN, "shortest": 2, "longest": 3, "seeds": 1, "width": 16, "batch": 32, "steps": (30, 30), "strings": 200}


# ---------------------------------------------------------------- trials


@dataclass(frozen=True)
class Lengths(lab.TrainedTrial):
    """One training on lengths from the shortest to the longest, and the number of test strings of each length."""

    task: Task
    positions: Positions
    seed: int
    shortest: int
    longest: int
    width: int
    batch: int
    steps: int
    strings: int

    @property
    def recipe(self) -> Recipe:
        """The training; the encoder-decoder with a scratchpad has a width of its own."""
        options: dict[str, Any] = {"shortest": self.shortest, "batch": self.batch, "steps": self.steps}
        if self.task == "scratchpad":
            longest = max(longer_lengths(self.longest, FACTORS))
            return scratchpad_recipe(self.longest, self.seed, longest=longest, **options)
        options |= {"factors": FACTORS, "positions": self.positions, "width": self.width}
        return lengths_recipe(self.task, self.longest, self.seed, **options)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Accuracy at every length, and the share of right bits of a scratchpad or the error over the variance."""
        recipe = self.recipe
        model = lab.trained(recipe, progress).model
        lengths = [*range(self.shortest, self.longest + 1), *longer_lengths(self.longest, FACTORS)]
        trained = np.array(lengths) <= self.longest
        options = {"strings": self.strings, "seed": self.seed}
        accuracies: list[Estimate | None]
        if isinstance(model, Seq2Seq):
            pages = [written(recipe, model, length=n, **options) for n in lengths]
            bits = [page.tokens.value for page in pages]
            accuracies = [page.answers for page in pages]
            fit = {"bits": bits, "kept": bool(np.mean(np.array(bits)[trained]) > KEPT_ABOVE)}
        else:
            tests = [final(recipe, model, length=n, **options) for n in lengths]
            scale = [4 * n if self.task == "mean" else 4 for n in lengths]  # 1 over the variance of the values
            relative = [factor * test.error.value for factor, test in zip(scale, tests, strict=True)]
            accuracies = [test.accuracy for test in tests]
            fit = {"relative": relative, "kept": bool(np.mean(np.array(relative)[trained]) < 4 * KEPT_BELOW)}
        return {
            "lengths": lengths,
            "accuracy": [None if each is None else each.value for each in accuracies],
            "asked": [None if each is None else each.samples for each in accuracies],
            "right": [None if each is None else round(each.value * each.samples) for each in accuracies],
            **fit,
        }


# ---------------------------------------------------------------- claims


def judged_at(row: lab.Row) -> int:
    """The place of the length at which a model is judged, among those it was tested at."""
    return int(row["lengths"].index(longer_lengths(row["longest"], [JUDGED])[0]))


def accuracy_at(row: lab.Row) -> float:
    """The accuracy of a model on strings that are longer by the judged factor."""
    place = judged_at(row)
    return float(row["right"][place] / row["asked"][place])


def fails(row: lab.Row) -> bool:
    """Whether a model has lost its function on longer strings."""
    return accuracy_at(row) <= CHANCE


def carries_over(row: lab.Row) -> bool:
    """Whether a model has its function on longer strings."""
    return accuracy_at(row) >= GENERAL


def claim(task: Task, positions: Positions) -> lab.Claim:
    """The claim that most kept models fail on longer strings if the task is PARITY, and otherwise that most do not."""
    failing = task == "parity"
    test, limit = (fails, f"at most {CHANCE}") if failing else (carries_over, f"at least {GENERAL}")

    def note(rows: lab.Rows) -> str:
        accuracies = sorted(map(accuracy_at, rows))
        lengths = sorted({row["lengths"][judged_at(row)] for row in rows})
        passed = f"{sum(map(test, rows))} of {len(rows)} models at {', '.join(map(str, lengths))} bits"
        return f"{passed}, accuracy from {accuracies[0]:.2f} to {accuracies[-1]:.2f}"

    name = task.upper() if task != "scratchpad" else "PARITY with a scratchpad"
    words = f"at {JUDGED:g} times the longest length of the training, share with accuracy {limit}"
    claimed = task in IN_ABSTRACT
    return lab.claim(
        f"{name} {'fails' if failing else 'does not fail'} on longer strings, {positions} positions",
        "abstract" if claimed else "none: left open",
        "what is learned does not generalise to longer strings"
        if failing
        else "what is learned generalises to longer strings",
        quantities.share(words, test)
        .where(f"kept models, {task}, {positions} positions", task=task, positions=positions, kept=True)
        .noting(note)
        >= 1 / 2,
        exploratory=not claimed,
    )


CLAIMS = (
    *(claim(task, positions) for positions, task in itertools.product(POSITIONS, IN_ABSTRACT)),
    claim("scratchpad", "learned"),
)


# ---------------------------------------------------------------- figures


def panels(table: lab.Rows, column: str, y: str, rules: Sequence[lab.Rule] = ()) -> list[lab.Panel]:
    """A column of lists against the length, a panel for each kind of positions, models that are not kept apart."""
    drawn = []
    for positions, rows in table.by("positions"):
        points = lab.Rows(
            {**row, "length": length, "value": value}
            for row in rows
            for length, value in zip(row["lengths"], row[column], strict=True)
            if value is not None
        )
        series = []
        for colour, task in enumerate(TASKS):
            shown, apart = (points.where(task=task, kept=kept) for kept in (True, False))
            if shown:
                series.append(lab.line(shown, "length", "value", task, "mean", colour=colour))
            if apart:
                places = (apart.column("length"), apart.column("value"))
                series.append(lab.Series(f"{task}, not kept", *places, "points", colour=colour, dashed=True))
        ends = [lab.Rule(length, "longest of the training", "x") for length in rows.values("longest")]
        title = f"{positions} positions"
        drawn.append(lab.Panel(title, "length n", y, series, rules=[*rules, *ends], y_log=column == "relative"))
    return drawn


class LengthGeneralization(lab.Study):
    """Which functions carry over to strings that are longer than all of the training."""

    name, paper = "length-generalization", "001"
    title = "Trained on short strings, tested on longer ones"
    scales = lab.scales(
        "trained on {shortest} to {longest} bits, tested at 4/3, 2 and 8/3 times that; {seeds} seeds of the four "
        "functions with sinusoidal and learned positions, and of PARITY with a scratchpad",
        smoke=(0.2, SMOKE),
        laptop=(36, PLAN),
        paper=(20_000, PAPER),
    )
    deviations = lab.deviations(
        (
            "experiment",
            "a sentence in the abstract; the released code has no such sweep",
            "a design of our own",
            "there is none to copy",
        ),
        ("positions", "learned, in all of its code", "sinusoidal beside them", "learned ones end with the training"),
        ("lengths of a batch", "mixed where lengths are", "one length a batch, drawn anew", "nothing is padded"),
        ("shortest, longest", "not stated; 4 to 30", "laptop: 4 to 12; smoke: 2 to 3", "PARITY is learned up to there"),
        ("width, batch", "128, 1024", "laptop: 64, 128; smoke: 16, 32; scratchpad: width 32 always", "computing time"),
        (
            "steps",
            "10,000",
            "laptop: 4,000, PARITY 10,000; smoke: 30",
            "after 4,000 steps PARITY of 12 bits reaches an accuracy of only 94 %",
        ),
        ("seeds, strings", "not stated; 10, 100,000", "laptop: 6, 4,096; smoke: 1, 200", "computing time"),
        ("first seed (laptop, smoke)", "0", "1000", "seeds not used by any earlier run"),
        ("models that fail, or do not", "not stated", "most of the kept ones", "single trainings can get stuck"),
        SEPARATE_LAYERS,
        (
            "kept",
            f"error below {KEPT_BELOW} at one length",
            "its mean over all lengths of the training",
            "there are many",
        ),
        (
            "fails, does not fail",
            "not stated",
            f"accuracy at most {CHANCE}, at least {GENERAL}, at factor 2",
            "there is no number",
        ),
    )
    claims = CLAIMS

    def trials(self, scale: str) -> list[Lengths]:
        plan = self.scales[scale].settings
        kinds: list[tuple[Task, Positions]] = [*itertools.product(FUNCTIONS, POSITIONS), ("scratchpad", "learned")]
        same = {name: plan[name] for name in ("shortest", "longest", "width", "batch", "strings")}
        return [
            Lengths(task, positions, seed, steps=plan["steps"][task != "parity"], **same)
            for task, positions in kinds
            for seed in range(plan["first_seed"], plan["first_seed"] + plan["seeds"])
        ]

    def provenance(self, table: lab.Rows) -> list[str]:
        counts = [
            f"{task}, {positions}: {len(kept(rows))} of {len(rows)}"
            for (task, positions), rows in table.by("task", "positions")
        ]
        rule = (
            f"kept and judged are models whose squared error over the lengths of the training is below {KEPT_BELOW} "
            f"(of the mean / n), and scratchpads with more than {KEPT_ABOVE} of the bits right"
        )
        return [f"{rule}: {'; '.join(counts)}"]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        chance, needed = lab.Rule(0.5, "chance"), lab.Rule(GENERAL, "does not fail")
        shown = [
            *panels(table, "accuracy", "accuracy", (chance, needed)),
            *panels(table.having("relative"), "relative", "squared error / variance"),
        ]
        caption = (
            "Mean of the models at each length, with a band from the least to the largest; hollow points are models "
            "that did not learn the lengths of their training. A scratchpad is right if the last bit that it writes is."
        )
        return [lab.Figure("length-generalization", self.title, caption, shown)]


STUDY = LengthGeneralization()
