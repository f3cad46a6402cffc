"""Sensitivity spectra of transformers trained on First, Majority, Parity, their sparse kin, and random languages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
from flipscope.probes.sensitivity import sensitivities
from flipscope.studies.geometry._shared import how_measured, spectrum, spectrum_panel
from flipscope.studies.geometry.training import Name, Training, random_training, recipe_of, strings_of
from flipscope.training.fit import evaluate

LEARNED, CHANCE = 0.99, 0.6  # accuracy from which on a language is learned, and up to which it is not at all
GATHERED = 0.8  # share of the strings that must lie where the spectrum is said to cluster
FEWEST = 3  # models that a claim on every model needs
NEAR_ZERO = 0.1  # of N: average sensitivity up to which that of a model that failed is near 0
PLAIN: tuple[Name, ...] = ("first", "majority", "parity")
SPARSE: tuple[Name, ...] = ("sparse_majority", "sparse_parity")
SETTING = ("head_size", "ffn_multiple", "batch", "learning_rate", "train", "test", "strings", "max_epochs")
TINY = dict(zip(SETTING, (8, 2, 64, 3e-3, 2_000, 1_000, 200, 10), strict=True))
SMALL = dict(zip(SETTING, (16, 2, 128, 1e-2, 10_000, 4_000, 400, 40), strict=True))
SHORT = {**SMALL, "max_epochs": 20}
WORDS = "First, Majority and Parity at N = {length}, models per language: {models}"
GROUPS = {True: f"models that learned it (above {LEARNED})", False: "models that did not"}


def named(row: lab.Row) -> str:
    """A trained model in words."""
    sparse = f" of {row['relevant']} bits" if row["relevant"] else ""
    return f"{row['language'].replace('_', ' ')}{sparse}, width {row['heads'] * row['head_size']}, seed {row['seed']}"


def _each_model(rows: lab.Rows, judge: Callable[[str, lab.Row, float], lab.Judgement], missing: str) -> lab.Judgement:
    def one(name: str, model: lab.Rows, confidence: float) -> lab.Judgement:
        return judge(name, model[0], confidence)

    models = [(named(row), lab.Rows([row])) for row in rows]
    return lab.for_each(models, one, missing=missing, fewest=FEWEST, what="models")


def _accuracy(
    language: Name, says: Callable[[Estimate, float, str], lab.Judgement], limit: float, source: str, title: str
) -> lab.Claim:
    """The claim that the test accuracy of every model, compared with the limit, is as the paper says."""

    def one(name: str, row: lab.Row, confidence: float) -> lab.Judgement:
        return says(lab.share(row["correct"], row["tested"], confidence), limit, f"accuracy on {name}")

    def judge(table: lab.Rows) -> lab.Judgement:
        return _each_model(table.where(language=language), one, "no model was trained on it")

    statement, sign = f"{title}, in every model", "at least" if limit == LEARNED else "at most"
    return lab.Claim(title, source, statement, f"test accuracy {sign} {limit} in every model", judge)


def _gathered(row: lab.Row) -> int:
    """Strings whose sensitivity is where that of the language is: 1, or 0 and about half the bits that count."""
    counts, bits = np.arange(len(row["profile"])), row["relevant"] or row["length"]
    middle = (counts == 0) | (np.abs(counts - bits / 2) <= max(1.0, bits / 10))
    return int(np.array(row["profile"])[counts == 1 if row["language"] == "first" else middle].sum())


def _spectrum(language: Name, source: str, title: str, statement: str) -> lab.Claim:
    """The claim that the strings of every model that learned the language have its sensitivities."""

    def one(name: str, row: lab.Row, confidence: float) -> lab.Judgement:
        found = lab.share(_gathered(row), row["strings"], confidence)
        return lab.at_least(
            found, GATHERED, f"share of strings at the language's sensitivities, {name}", unit="strings"
        )

    def judge(table: lab.Rows) -> lab.Judgement:
        return _each_model(table.where(language=language, learned=True), one, "no model learned it")

    return lab.Claim(
        title, source, statement, f"at least {GATHERED} of the strings in every model that learned it", judge
    )


def _judge_failures(table: lab.Rows) -> lab.Judgement:
    if not (failed := table.where(learned=False)):
        return lab.Judgement.without("no model failed")
    found = lab.share_of(failed, lambda row: row["average_sensitivity"] <= NEAR_ZERO * row["length"])
    return lab.at_least(found, 0.5, "share of models that failed with average sensitivity near 0", unit="models")


class TrainedProfiles(lab.Study):
    """What training makes of the bias towards low sensitivity."""

    name, paper, figures = "trained-profiles", "000", ("Fig 3 right", "Fig 5", "Fig 6", "Fig 7")
    title = "Sensitivity spectra of trained transformers: First, Majority, Parity, sparse and random languages"
    scales = lab.scales(
        WORDS,
        smoke=(0.5, {"length": 16, "models": 1, "heads": (2,), "sparse": (), "training": TINY}),
        demo=(1.2, {"length": 20, "models": 3, "heads": (1,), "sparse": (), "training": SHORT}),
    )
    scales |= lab.scales(
        WORDS + "; sparse ones with m in {sparse}; random languages at N = {random}",
        laptop=(30, {"length": 100, "models": 3, "sparse": (5, 20), "random": 40, "heads": (1, 2), "training": SMALL}),
        paper=(500_000, {"length": 100, "models": 10, "sparse": (5, 10, 20, 50), "random": 40}),
    )
    deviations = (
        lab.Deviation(
            "models per language", "10 in the text, 50 under Figs 5 to 7", "10", "the paper contradicts itself"
        ),
        lab.Deviation(
            "shapes (laptop)", "at random, width up to 1024", "widths 16 and 32; demo 16", "months on two cores"
        ),
        lab.Deviation(
            "training (demo, laptop)", "until it stops improving", "at most 40 epochs, demo 20", "30 minutes in all"
        ),
        lab.Deviation(
            "batch, learning rate (demo, laptop)", "at random", "128 and 0.01", "small models learn with these"
        ),
        lab.Deviation(
            "length, languages (demo)", "N = 100, sparse and random too", "N = 20, the three plain ones", "a minute"
        ),
        lab.Deviation("most epochs", "silent", "1,000 at scale paper", "a training must end"),
        lab.Deviation("test strings (demo, laptop)", "1,000", "4,000", "to tell 0.99 from 1 in every model together"),
        lab.Deviation("learned", "perfectly", f"accuracy above {LEARNED}", "silent on the threshold"),
        lab.Deviation(
            "Parity", "not reached, yet 'higher-sensitivity strings'", f"at most {CHANCE}", "silent on accuracy"
        ),
    )
    claims = (
        _accuracy("first", lab.at_least, LEARNED, "Fig 5", "First is learned"),
        _spectrum("first", "Fig 5", "First: spectrum at 1", "its sensitivities cluster at 1"),
        _accuracy("majority", lab.at_least, LEARNED, "Fig 5", "Majority is learned"),
        _spectrum("majority", "Fig 5", "Majority: spectrum at 0 and N/2", "at 0 and half the length, within N/10"),
        _accuracy("parity", lab.at_most, CHANCE, "Fig 5", "Parity is not learned"),
        _accuracy("sparse_majority", lab.at_least, LEARNED, "Figs 6, 7", "sparse majorities are learned"),
        _spectrum(
            "sparse_majority",
            "Figs 6, 7",
            "sparse Majority: spectrum at 0 and m/2",
            "at 0 and half the relevant bits, within max(1, m/10)",
        ),
        _accuracy("sparse_parity", lab.at_most, CHANCE, "Figs 6, 7", "sparse parities are not learned"),
        lab.Claim(
            "models that fail to learn: sensitivities at 0",
            "Fig 3 right, App. F.2",
            "sensitivities of models that fail to learn cluster around 0",
            f"share of the models with accuracy up to {LEARNED} whose average sensitivity is at most {NEAR_ZERO} N: "
            "more than half",
            _judge_failures,
        ),
    )

    def trials(self, scale: str) -> list[Training]:
        plan = self.scales[scale].settings
        return list(_paper_trials(plan) if scale == "paper" else _small_trials(plan))

    def measure(self, trial: Training, progress: lab.Progress) -> lab.Outcome:
        data = strings_of(trial)
        trained = lab.trained(recipe_of(trial), progress)
        model, fitted = trained.model, trained.fitted
        tested = evaluate(model, data["test"])
        found = sensitivities(model, data["test"].bits[: trial.strings])
        curves = ("train_loss", "validation_loss", "validation_accuracy")
        return {
            "counts": found.counts,
            "near_ties": found.near_ties,
            "correct": tested.correct,
            "tested": tested.strings,
            "epochs": len(fitted.history),
            **{name: getattr(fitted, name) for name in ("kept_epoch", "steps", "stopped")},
            **{name: np.array([getattr(epoch, name) for epoch in fitted.history]) for name in curves},
        }

    def row(self, trial: Training, outcome: lab.Outcome) -> lab.Row:
        kept = ("correct", "tested", "epochs", "steps", "stopped", "near_ties")
        accuracy = outcome["correct"] / outcome["tested"]
        told = {
            **trial.content(),
            **{name: outcome[name] for name in kept},
            **spectrum(outcome["counts"], trial.length),
        }
        return {**told, "accuracy": accuracy, "learned": accuracy > LEARNED}

    def provenance(self, table: lab.Rows) -> list[str]:
        means = [
            f"{language.replace('_', ' ')} {np.mean(rows.column('average_sensitivity')):.3g}"
            for language, rows in table.where(learned=False).by("language")
        ]
        failed = f"average sensitivity of models that failed, by language: {', '.join(means)}"
        return [*how_measured(table), *([failed] if means else [])]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        spectra, names = [], []
        points: dict[bool, list[tuple[int, float, str]]] = {True: [], False: []}
        for place, ((language, relevant, length), rows) in enumerate(table.by("language", "relevant", "length")):
            words, series = f"{language.replace('_', ' ')} {relevant or ''}".strip(), []
            for colour, (learned, own) in enumerate(rows.each("learned", GROUPS)):
                points[learned] += [
                    (place, row["average_sensitivity"], f"{named(row)}: accuracy {row['accuracy']:.3f}") for row in own
                ]
                if own:
                    shares = np.sum(own.column("profile"), axis=0) / own.total("strings")
                    series.append(lab.bars(GROUPS[learned], shares, colour=colour))
            title = f"{words}, N = {length}: {len(rows.where(learned=True))} of {len(rows)} learned"
            spectra.append(spectrum_panel(title, "sensitivity s(x)", "share of strings", series))
            names.append(words)
        averages = []
        for colour, (learned, found) in enumerate(points.items()):
            x, y, hover = ([point[axis] for point in found] for axis in range(3))
            averages.append(lab.Series(GROUPS[learned], x, y, "points", colour=colour, hover=hover))  # type: ignore[arg-type]
        half = lab.Rule(max(table.column("length")) / 2, "N/2, as of a random function")
        panel = lab.Panel("", "", "average sensitivity", averages, categories=names, rules=(half,))
        all_models = "Share of the strings of all models together at each sensitivity, on a log scale."
        each_model = "One point per model; the accuracy tells whether it learned its language."
        top, bottom = "Sensitivity spectra after training", "Average sensitivity of each trained model"
        return [
            lab.Figure("trained-spectra", top, all_models, spectra, where="Figs 3, 5, 6, 7"),
            lab.Figure("trained-averages", bottom, each_model, [panel], columns=1, where="Figs 5, 6, 7, bottom"),
        ]


def _small_trials(plan: Mapping[str, Any]) -> Iterator[Training]:
    """Small shapes with fixed batch and learning rate: those of App. F.1 would take months on two cores."""
    for seed in range(plan["models"]):
        settings: list[tuple[Name, int, int]] = [(name, 0, heads) for name in PLAIN for heads in plan["heads"]]
        settings += [(name, m, 1) for name in SPARSE for m in plan["sparse"]]
        for name, relevant, heads in settings:
            yield Training(name, relevant, seed, seed, plan["length"], "uniform", 2, heads, **plan["training"])
        if plan["sparse"]:
            yield Training("random", 0, seed, seed, 40, "xavier_normal", 2, 1, **plan["training"])


def _paper_trials(plan: Mapping[str, Any]) -> Iterator[Training]:
    """App. F.2: shape, batch and learning rate at random."""
    several = range(plan["models"])
    languages: list[tuple[Name, int, int]] = [(name, 0, 0) for name in PLAIN]
    languages += itertools.product(SPARSE, plan["sparse"], several)
    languages += [("random", 0, instance) for instance in several]
    for number, language in enumerate(languages):
        for model in several:
            yield random_training(*language, plan["models"] * number + model)


STUDY = TrainedProfiles()
