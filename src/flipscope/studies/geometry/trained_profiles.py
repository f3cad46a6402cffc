"""Sensitivity spectra of transformers trained on First, Majority, Parity, their sparse kin, and random languages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from flipscope.cube.blocks import Progress
from flipscope.lab.plots import Figure, Panel, Rule, Series
from flipscope.lab.study import Outcome, Result, Scale, Study, Table
from flipscope.models.config import encoder
from flipscope.models.init import random_shape
from flipscope.models.transformer import Transformer
from flipscope.probes import flips
from flipscope.studies.geometry._trained_claims import CLAIMS, LEARNED, named, rows_of
from flipscope.studies.geometry._training import Name, Training, strings_of
from flipscope.training.fit import evaluate, fit, random_training

LEARNED_LABEL, FAILED_LABEL = f"models that learned it (above {LEARNED})", "models that did not"


class TrainedProfiles(Study):
    """What training makes of the bias towards low sensitivity."""

    name = "trained-profiles"
    paper = "000"
    title = "Sensitivity spectra of trained transformers: First, Majority, Parity, sparse and random languages"
    figures = ("Fig 3 right", "Fig 5", "Fig 6", "Fig 7")
    scales = {
        "smoke": Scale("First, Majority and Parity at N = 16, one small model each", 0.5),
        "laptop": Scale(
            "N = 100, widths 16 and 32, 2 layers, 3 models a shape and language; random languages N = 40", 30
        ),
        "paper": Scale("App. F.2: N = 100, random shapes, 10 models a language, m in {5, 10, 20, 50}", 500_000),
    }
    claims = CLAIMS

    def trials(self, scale: str) -> list[Training]:
        return _paper_trials() if scale == "paper" else _small_trials(scale)

    def measure(self, trial: Training, progress: Progress) -> Outcome:
        data = strings_of(trial)
        width = trial.heads * trial.head_size
        config = encoder(width=width, layers=trial.layers, heads=trial.heads, ffn_width=trial.ffn_multiple * width)
        model = Transformer(config, scheme=trial.init, seed=trial.seed)
        steps = trial.max_epochs * math.ceil(len(data["train"].bits) / trial.batch)
        fitted = fit(
            model,
            data["train"],
            data["validation"],
            batch=trial.batch,
            learning_rate=trial.learning_rate,
            seed=trial.seed,
            max_epochs=trial.max_epochs,
            callback=lambda moment: progress(moment.step, steps),  # an epoch of a large model takes minutes
        )
        tested = evaluate(model, data["test"])
        found = flips.measure(model, data["test"].bits[: trial.strings])
        return {
            "counts": found.counts,
            "near_ties": found.near_ties,
            "correct": tested.correct,
            "tested": tested.strings,
            "epochs": len(fitted.history),
            "kept_epoch": fitted.kept_epoch,
            "steps": fitted.steps,
            "stopped": fitted.stopped,
            "train_loss": np.array([epoch.train_loss for epoch in fitted.history]),
            "validation_loss": np.array([epoch.validation_loss for epoch in fitted.history]),
            "validation_accuracy": np.array([epoch.validation_accuracy for epoch in fitted.history]),
        }

    def summarise(self, results: Sequence[Result]) -> Table:
        rows = []
        for result in results:
            content, outcome = result.trial.content(), result.outcome
            counts = outcome["counts"]
            kept = ("correct", "tested", "epochs", "steps", "stopped", "near_ties")
            rows.append(
                {
                    **content,
                    **{name: outcome[name] for name in kept},
                    "strings": len(counts),
                    "accuracy": outcome["correct"] / outcome["tested"],
                    "average_sensitivity": float(counts.mean()),
                    "profile": np.bincount(counts, minlength=content["length"] + 1).tolist(),
                    "seconds": result.seconds,
                }
            )
        return rows

    def draw(self, table: Table) -> list[Figure]:
        kinds = sorted({(row["language"], row["relevant"], row["length"]) for row in table})
        spectra = [_spectrum_panel(table, *kind) for kind in kinds]
        averages = _averages_panel(table, kinds)
        caption = "Share of the strings of all models together at each sensitivity, on a log scale."
        return [
            Figure("trained-spectra", "Sensitivity spectra after training", caption, spectra, where="Figs 3, 5, 6, 7"),
            Figure(
                "trained-averages",
                "Average sensitivity of each trained model",
                "One point a model; the accuracy tells whether it learned its language.",
                [averages],
                columns=1,
                where="Figs 5, 6, 7, bottom",
            ),
        ]


# ---------------------------------------------------------------- trials


def _small_trials(scale: str) -> list[Training]:
    """The two smallest shapes of App. F.1 that differ in heads: all of them would take months on two cores."""
    plain: tuple[Name, ...] = ("first", "majority", "parity")
    sparse: tuple[Name, ...] = ("sparse_majority", "sparse_parity")
    if scale == "smoke":
        tiny = partial(Training, length=16, init="uniform", layers=2, heads=2, head_size=8, ffn_multiple=2, batch=64)
        short = partial(tiny, learning_rate=3e-3, train=2_000, test=1_000, strings=200, max_epochs=10)
        return [short(name, 0, 0, 0) for name in plain]
    small = partial(Training, layers=2, head_size=16, ffn_multiple=2, batch=128, learning_rate=1e-2)
    made = partial(small, train=10_000, test=4_000, strings=400, max_epochs=40)
    found = []
    for seed in range(3):
        found += [made(name, 0, seed, seed, 100, "uniform", heads=heads) for name in plain for heads in (1, 2)]
        found += [made(name, m, seed, seed, 100, "uniform", heads=1) for name in sparse for m in (5, 20)]
        found.append(made("random", 0, seed, seed, 40, "xavier_normal", heads=1))
    return found


def _paper_trials() -> list[Training]:
    """App. F.2: ten models a language, with shape, batch and learning rate at random."""
    languages: list[tuple[Name, int, int]] = [("first", 0, 0), ("majority", 0, 0), ("parity", 0, 0)]
    sparse: tuple[Name, ...] = ("sparse_majority", "sparse_parity")
    languages += [(name, m, instance) for name in sparse for m in (5, 10, 20, 50) for instance in range(10)]
    languages += [("random", 0, instance) for instance in range(10)]
    found = []
    for number, (name, relevant, instance) in enumerate(languages):
        for model in range(10):
            seed = 10 * number + model
            shape, setting = random_shape(seed), random_training(seed)
            found.append(
                Training(
                    name,
                    relevant,
                    instance,
                    seed,
                    40 if name == "random" else 100,
                    "xavier_normal" if name == "random" else "uniform",
                    shape.layers,
                    shape.heads,
                    shape.width // shape.heads,
                    shape.hidden_width // shape.width,
                    setting.batch,
                    setting.learning_rate,
                    train=10_000,
                    test=1_000,
                    strings=1_000,
                    max_epochs=1_000,
                )
            )
    return found


# ---------------------------------------------------------------- figures


def _title(language: str, relevant: int, length: int) -> str:
    words = language.replace("_", " ").capitalize()
    return f"{words}, m = {relevant}, N = {length}" if relevant else f"{words}, N = {length}"


def _spectrum_panel(table: Table, language: str, relevant: int, length: int) -> Panel:
    """The strings of all models together, of those that learned the language apart from those that did not."""
    rows = [row for row in rows_of(table, language) if (row["relevant"], row["length"]) == (relevant, length)]
    learned = [row for row in rows if row["accuracy"] > LEARNED]
    series = []
    for colour, (label, own) in enumerate(
        ((LEARNED_LABEL, learned), (FAILED_LABEL, [row for row in rows if row not in learned]))
    ):
        if own:
            total = sum(row["strings"] for row in own)
            counts = np.sum([row["profile"] for row in own], axis=0)
            heights = [float(count) / total if count else None for count in counts]
            series.append(Series(label, list(range(length + 1)), heights, "bars", colour=colour))
    title = f"{_title(language, relevant, length)}: {len(learned)} of {len(rows)} learned"
    lowest = 0.5 / sum(row["strings"] for row in rows)
    return Panel(title, "sensitivity s(x)", "share of strings", series, y_log=True, y_range=(lowest, 1.5))


def _averages_panel(table: Table, kinds: Sequence[tuple[str, int, int]]) -> Panel:
    learned: list[tuple[float, float, str]] = []
    others: list[tuple[float, float, str]] = []
    for place, (language, relevant, length) in enumerate(kinds):
        for row in rows_of(table, language):
            if (row["relevant"], row["length"]) == (relevant, length):
                point = (float(place), row["average_sensitivity"], f"{named(row)}: accuracy {row['accuracy']:.3f}")
                (learned if row["accuracy"] > LEARNED else others).append(point)
    series = []
    for colour, (label, points) in enumerate(((LEARNED_LABEL, learned), (FAILED_LABEL, others))):
        x, y, hover = ([point[axis] for point in points] for axis in range(3))
        series.append(Series(label, x, y, "points", colour=colour, hover=hover))  # type: ignore[arg-type]
    names = [f"{language.replace('_', ' ')} {relevant or ''}".strip() for language, relevant, _ in kinds]
    half = Rule(max(length for _, _, length in kinds) / 2, "N/2, as of a random function")
    return Panel("", "", "average sensitivity", series, categories=names, rules=(half,))


STUDY = TrainedProfiles()
