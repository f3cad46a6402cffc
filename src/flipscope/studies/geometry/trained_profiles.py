"""Sensitivity spectra of transformers trained on First, Majority, Parity, their sparse kin, and random languages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flipscope.lab as lab
from flipscope.probes.sensitivity import sensitivities
from flipscope.studies.geometry._shared import how_measured, spectrum, spectrum_panel
from flipscope.studies.geometry.training import Name, Training, named, recipe_of, strings_of, trainings
from flipscope.training.fit import evaluate

LEARNED, CHANCE = 0.99, 0.6  # accuracy from which on a language is learned, and up to which it is not at all
GATHERED = 0.8  # share of the strings that must lie where the spectrum is said to cluster
FEWEST = 3  # models that a claim on every model needs
NEAR_ZERO = 0.1  # of N: average sensitivity up to which that of a model that failed is near 0
SETTING = ("head_size", "ffn_multiple", "batch", "learning_rate", "train", "test", "strings", "max_epochs")
TINY = dict(zip(SETTING, (8, 2, 64, 3e-3, 2_000, 1_000, 200, 10), strict=True))
SMALL = dict(zip(SETTING, (16, 2, 128, 1e-2, 10_000, 4_000, 400, 40), strict=True))
SHORT = {**SMALL, "max_epochs": 20}
WORDS = "First, Majority and Parity at N = {length}, models per language: {models}"
GROUPS = {True: f"models that learned it (above {LEARNED})", False: "models that did not"}


def _in_every_model(
    hits: Callable[[lab.Row], int], of: str, says: Callable[..., lab.Judgement], limit: float, what: str, **where: Any
) -> Callable[[lab.Rows], lab.Judgement]:
    """A judge of how many hits there are in every such model, all intervals valid together."""

    def one(name: str, model: lab.Rows, confidence: float) -> lab.Judgement:
        return says(lab.share(hits(model[0]), model[0][of], confidence), limit, f"{what} {name}", unit="strings")

    def judge(table: lab.Rows) -> lab.Judgement:
        models = [(named(row), lab.Rows([row])) for row in table.where(**where)]
        missing = "no model learned it" if "learned" in where else "no model was trained on it"
        return lab.for_each(models, one, missing=missing, fewest=FEWEST, what="models")

    return judge


def _accuracy(language: Name, title: str, source: str, says: Callable[..., lab.Judgement], limit: float) -> lab.Claim:
    """The claim that the test accuracy of every model, compared with the limit, is as the paper says."""
    judge = _in_every_model(lambda row: int(row["correct"]), "tested", says, limit, "accuracy on", language=language)
    criterion = f"test accuracy {'at least' if limit == LEARNED else 'at most'} {limit} in every model"
    return lab.Claim(title, source, f"{title}, in every model", criterion, judge)


def _gathered(row: lab.Row) -> int:
    """Strings whose sensitivity is where that of the language is: 1, or 0 and about half the bits that count."""
    counts, bits = np.arange(len(row["profile"])), row["relevant"] or row["length"]
    middle = (counts == 0) | (np.abs(counts - bits / 2) <= max(1.0, bits / 10))
    return int(np.array(row["profile"])[counts == 1 if row["language"] == "first" else middle].sum())


def _spectrum(language: Name, title: str, source: str, statement: str) -> lab.Claim:
    """The claim that the strings of every model that learned the language have its sensitivities."""
    what, chosen = "share of strings at the language's sensitivities,", {"language": language, "learned": True}
    judge = _in_every_model(_gathered, "strings", lab.at_least, GATHERED, what, **chosen)
    criterion = f"at least {GATHERED} of the strings in every model that learned it"
    return lab.Claim(title, source, statement, criterion, judge)


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
    deviations = lab.deviations(
        ("models per language", "10 in the text, 50 under Figs 5 to 7", "10", "the paper contradicts itself"),
        ("shapes (laptop)", "at random, width up to 1024", "widths 16 and 32; demo 16", "months on two cores"),
        ("training (demo, laptop)", "until it stops improving", "at most 40 epochs, demo 20", "30 minutes in all"),
        ("batch, learning rate (demo, laptop)", "at random", "128 and 0.01", "small models learn with these"),
        ("length, languages (demo)", "N = 100, sparse and random too", "N = 20, the three plain ones", "a minute"),
        ("most epochs", "silent", "1,000 at scale paper", "a training must end"),
        ("test strings (demo, laptop)", "1,000", "4,000", "to tell 0.99 from 1 in every model together"),
        ("learned", "perfectly", f"accuracy above {LEARNED}", "silent on the threshold"),
        ("Parity", "not reached, yet 'higher-sensitivity strings'", f"at most {CHANCE}", "silent on accuracy"),
    )
    claims = (
        _accuracy("first", "First is learned", "Fig 5", lab.at_least, LEARNED),
        _spectrum("first", "First: spectrum at 1", "Fig 5", "its sensitivities cluster at 1"),
        _accuracy("majority", "Majority is learned", "Fig 5", lab.at_least, LEARNED),
        _spectrum("majority", "Majority: spectrum at 0 and N/2", "Fig 5", "at 0 and half the length, within N/10"),
        _accuracy("parity", "Parity is not learned", "Fig 5", lab.at_most, CHANCE),
        _accuracy("sparse_majority", "sparse majorities are learned", "Figs 6, 7", lab.at_least, LEARNED),
        _spectrum(
            "sparse_majority",
            "sparse Majority: spectrum at 0 and m/2",
            "Figs 6, 7",
            "at 0 and half the relevant bits, within max(1, m/10)",
        ),
        _accuracy("sparse_parity", "sparse parities are not learned", "Figs 6, 7", lab.at_most, CHANCE),
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
        return list(trainings(self.scales[scale].settings))

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
        return {
            **trial.content(),
            **{name: outcome[name] for name in kept},
            **spectrum(outcome["counts"], trial.length),
            "accuracy": accuracy,
            "learned": accuracy > LEARNED,
        }

    def provenance(self, table: lab.Rows) -> list[str]:
        means = [
            f"{language.replace('_', ' ')} {np.mean(rows.column('average_sensitivity')):.3g}"
            for language, rows in table.where(learned=False).by("language")
        ]
        failed = f"average sensitivity of models that failed, by language: {', '.join(means)}"
        return [*how_measured(table), *([failed] if means else [])]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        spectra, averages, names = [], [], []
        groups = list(table.by("language", "relevant", "length"))
        for (language, relevant, length), rows in groups:
            names.append(f"{language.replace('_', ' ')} {relevant or ''}".strip())
            title = f"{names[-1]}, N = {length}: {len(rows.where(learned=True))} of {len(rows)} learned"
            series = [
                lab.bars(GROUPS[learned], np.sum(own.column("profile"), axis=0) / own.total("strings"), colour=colour)
                for colour, (learned, own) in enumerate(rows.each("learned", GROUPS))
                if own
            ]
            spectra.append(spectrum_panel(title, "sensitivity s(x)", "share of strings", series))
        for colour, (learned, label) in enumerate(GROUPS.items()):
            own = [(place, row) for place, (_, rows) in enumerate(groups) for row in rows.where(learned=learned)]
            heights = [row["average_sensitivity"] for _, row in own]
            hover = [f"{named(row)}: accuracy {row['accuracy']:.3f}" for _, row in own]
            averages.append(lab.Series(label, [x for x, _ in own], heights, "points", colour=colour, hover=hover))
        half = lab.Rule(max(table.column("length")) / 2, "N/2, as of a random function")
        panel = lab.Panel("", "", "average sensitivity", averages, categories=names, rules=(half,))
        all_models = "Share of the strings of all models together at each sensitivity, on a log scale."
        each_model = "One point per model; the accuracy tells whether it learned its language."
        top, bottom = "Sensitivity spectra after training", "Average sensitivity of each trained model"
        return [
            lab.Figure("trained-spectra", top, all_models, spectra, where="Figs 3, 5, 6, 7"),
            lab.Figure("trained-averages", bottom, each_model, [panel], columns=1, where="Figs 5, 6, 7, bottom"),
        ]


STUDY = TrainedProfiles()
