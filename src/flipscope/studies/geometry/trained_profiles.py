"""Sensitivity spectra of transformers trained on First, Majority, Parity, their sparse kin, and random languages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import flipscope.lab as lab
from flipscope.basics.estimates import mean_from_samples
from flipscope.probes.sensitivity import sensitivities
from flipscope.studies.geometry._shared import how_measured, spectrum, spectrum_panel
from flipscope.studies.geometry.training import (
    Name,
    Training,
    expression_of,
    named,
    own_profile,
    recipe_of,
    strings_at,
    strings_of,
    trainings,
)
from flipscope.training.fit import evaluate

LEARNED, CHANCE = 0.99, 0.6  # accuracy from which on a language is learned, and up to which it is not at all
GATHERED, THERE = 0.8, 0.5  # share of the strings that are at a cluster; part of the language's own share found there
AROUND = 1 / 5  # of a sensitivity of the language: how far from it strings still count as there; of First's 1, nothing
VAST, NEAR = 0.9, 1 / 20  # the vast majority; of N: up to where a sensitivity is near 0, as in random-init
FAR = 1 / 2  # of the N/2 of a random function
FEWEST = 3  # models that a claim on every model needs
SETTING = ("head_size", "ffn_multiple", "batch", "learning_rate", "train", "test", "strings", "max_epochs")
TINY = dict(zip(SETTING, (8, 2, 64, 3e-3, 2_000, 1_000, 200, 10), strict=True))
SMALL = dict(zip(SETTING, (16, 2, 128, 1e-2, 10_000, 4_000, 400, 40), strict=True))
SHORT = {**SMALL, "max_epochs": 20}
WORDS = "First, Majority and Parity at N = {length}, models per language: {models}"
GROUPS = {True: f"models that learned it (above {LEARNED})", False: "models that did not"}
Says = Callable[..., lab.Judgement]


def _accuracy(row: lab.Row, confidence: float, says: Says, limit: float) -> lab.Judgement:
    found = lab.share(row["correct"], row["tested"], confidence)
    return says(found, limit, f"accuracy on {named(row)}", unit="strings")


def _right_profile(row: lab.Row, confidence: float) -> lab.Judgement:
    """Strings of sensitivity 0 and the others are judged apart: of each kind there must be some."""
    (zeros, there), own_zeros = strings_at(row, AROUND), row["own_profile"][0]
    kinds = [
        (there + (zeros if own_zeros else 0), row["strings"], GATHERED, "of all strings, at the language's"),
        (there, row["strings"] - row["profile"][0], GATHERED, "of strings above 0, at the language's"),
        (there, row["strings"], THERE * (1 - own_zeros), "of all strings, above 0 at the language's"),
        (zeros, row["strings"], THERE * own_zeros, "of all strings, at 0"),
    ]
    parts = [
        lab.at_least(lab.share(hits, of, confidence), limit, f"share {what}, {named(row)}", unit="strings")
        for hits, of, limit, what in kinds
        if of and limit
    ]
    return lab.all_of(lab.weakest_first(parts))


def _wrong_profile(row: lab.Row, confidence: float) -> lab.Judgement:
    found = lab.share(strings_at(row, AROUND)[1], row["strings"], confidence)
    return lab.at_most(found, GATHERED, f"share of strings at the language's sensitivity, {named(row)}", unit="strings")


def _every(
    one: Callable[[lab.Row, float], lab.Judgement], language: Name, learned: bool | None = None, intervals: int = 1
) -> Callable[[lab.Rows], lab.Judgement]:
    """A judge of every model of a language, or of those that learned it, all intervals valid together."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.where(lambda row: learned in (None, row["learned"]), language=language)
        missing = "no model was trained on it" if learned is None else "no model learned it"
        return lab.for_every(rows, one, missing=missing, intervals=intervals, fewest=FEWEST, what="models")

    return judge


def _judge_higher(table: lab.Rows, parity: Name, others: tuple[Name, ...], besides: int = 0) -> lab.Judgement:
    """Whether models of a parity have strings of higher sensitivity than those of the other languages, for each m."""

    def one(pair: tuple[int, Name], rows: lab.Rows, confidence: float) -> lab.Judgement:
        relevant, other = pair
        name = f"largest s(x) of {parity} less that of {other}".replace("_", " ") + (relevant > 0) * f", m = {relevant}"
        theirs = table.where(language=other, relevant=relevant)
        return lab.larger_mean(rows, theirs, "largest", name, confidence=confidence, unit="models")

    pairs = [((m, other), rows) for m, rows in table.where(language=parity).by("relevant") for other in others]
    return lab.for_each(pairs, one, missing="no model was trained on it", besides=besides, what="comparisons")


def _judge_sparse_parities(table: lab.Rows) -> lab.Judgement:
    """Both patterns of Parity, each with half of the error."""
    rows = table.where(language="sparse_parity")
    wrong = lab.for_every(rows, _wrong_profile, besides=len(rows), fewest=FEWEST, what="models")
    higher = _judge_higher(table, "sparse_parity", ("sparse_majority",), besides=len(rows.values("relevant")))
    return lab.all_of([higher, wrong]) if rows else lab.Judgement.without("no model was trained on it")


def _judge_failures(table: lab.Rows) -> lab.Judgement:
    if not (failed := table.where(language="random", learned=False)):
        return lab.Judgement.without("no model failed to learn a random language")
    shares = [sum(row["profile"][: int(NEAR * row["length"]) + 1]) / row["strings"] for row in failed]
    found = mean_from_samples(shares, 0, 1)
    judged = lab.at_least(found, VAST, f"share of strings with s(x) at most N/{1 / NEAR:g}", unit="models")
    return lab.with_fewest(judged, found, 1 - VAST, "models that fail")


def _judge_bias(table: lab.Rows) -> lab.Judgement:
    if not (learned := table.where(language="random", learned=True)):
        return lab.Judgement.without("no model learned a random language", "wider models, trained for longer")
    found = mean_from_samples([2 * row["average_sensitivity"] / row["length"] for row in learned], 0, 2)
    judged = lab.at_most(found, FAR, "mean average sensitivity in units of N/2", unit="models")
    return lab.with_fewest(judged, found, FAR / 2, "models that learn")


def _learned(language: Name, title: str, source: str) -> lab.Claim:
    judge = _every(partial(_accuracy, says=lab.at_least, limit=LEARNED), language)
    return lab.Claim(title, source, "all models learn it", f"test accuracy at least {LEARNED} in every model", judge)


def _gathered(language: Name, title: str, source: str, statement: str) -> lab.Claim:
    criterion = (
        f"in every model that learned it, {GATHERED} of all strings, and of those above 0, are at the language's own "
        f"sensitivities (within {AROUND:g} of them); at 0 and above 0 {THERE:g} as many strings as the language has"
    )
    return lab.Claim(title, source, statement, criterion, _every(_right_profile, language, True, intervals=4))


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
        ("Parity", "not learned", f"accuracy at most {CHANCE}", "silent on accuracy"),
        ("higher-sensitivity strings of Parity", "silent: than what", "than of First and Majority", "its neighbours"),
        ("cluster", "seen in the figure", f"{GATHERED} of the strings, within {AROUND:g}", "silent on numbers"),
    )
    claims = (
        _learned("first", "First is learned", "Fig 5"),
        _gathered("first", "First: spectrum at 1", "§ 6, Fig 5", "sensitivities cluster at 1"),
        _learned("majority", "Majority is learned", "Fig 5"),
        _gathered("majority", "Majority: spectrum at 0 and N/2", "§ 6, Fig 5", "at 0 and at half the length"),
        lab.Claim(
            "Parity is not learned",
            "Cor 5.1, Fig 5",
            "no model learns Parity",
            f"test accuracy at most {CHANCE} in every model",
            _every(partial(_accuracy, says=lab.at_most, limit=CHANCE), "parity"),
        ),
        lab.Claim(
            "Parity: a wrong profile",
            "§ 6, Fig 5",
            "models trained on Parity do not reach its sensitivity profile",
            f"share of the strings with sensitivity {1 - AROUND:g} N or more: at most {GATHERED} in every model",
            _every(_wrong_profile, "parity"),
        ),
        lab.Claim(
            "Parity: strings of higher sensitivity",
            "App. F.2, Fig 5",
            "models trained on Parity have strings of higher sensitivity",
            "largest sensitivity of a model's strings, mean over models: larger than of First and than of Majority",
            partial(_judge_higher, parity="parity", others=("first", "majority")),
        ),
        _learned("sparse_majority", "sparse majorities are learned", "§ 6, Figs 6, 7"),
        _gathered("sparse_majority", "sparse majorities mirror Majority", "§ 6, Figs 6, 7", "at 0 and half the m bits"),
        lab.Claim(
            "sparse parities mirror Parity",
            "§ 6, Figs 6, 7",
            "the patterns of sparse parities are those of Parity: a wrong profile, and strings of higher sensitivity",
            f"share of strings at m, within {AROUND:g} m: at most {GATHERED} in every model; mean of the largest "
            "sensitivity larger than with sparse Majority of the same m",
            _judge_sparse_parities,
        ),
        lab.Claim(
            "random languages that are not learned: sensitivities at 0",
            "Fig 3 right, App. F.2",
            "models that fail to learn a random language have sensitivities and average sensitivities around 0",
            f"share of strings with sensitivity at most N/{1 / NEAR:g}, mean over these models: at least {VAST}",
            _judge_failures,
        ),
        lab.Claim(
            "random languages that are learned: the bias persists",
            "§ 6, Fig 3 right",
            "the bias towards low sensitivity is there after training too",
            f"average sensitivity, mean over the models that learned a random language: at most {FAR:g} of N/2",
            _judge_bias,
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
            "largest": int(outcome["counts"].max()),
            "own_profile": own_profile(expression_of(trial), trial.length),
        }

    def provenance(self, table: lab.Rows) -> list[str]:
        means = [
            f"{language.replace('_', ' ')} {np.mean(rows.column('average_sensitivity')):.3g}"
            for language, rows in table.where(learned=False).by("language")
        ]
        failed = f"average sensitivity of models that failed, by language: {', '.join(means)}"
        return [*how_measured(table), *([failed] if means else [])]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        spectra, names = [], []
        rows = lab.Rows()
        for place, ((language, relevant, length), own) in enumerate(table.by("language", "relevant", "length")):
            names.append(f"{language.replace('_', ' ')} {relevant or ''}".strip())
            title = f"{names[-1]}, N = {length}: {len(own.where(learned=True))} of {len(own)} learned"
            series = [
                lab.bars(GROUPS[learned], np.sum(some.column("profile"), axis=0) / some.total("strings"), colour=colour)
                for colour, (learned, some) in enumerate(own.each("learned", GROUPS))
                if some
            ]
            spectra.append(spectrum_panel(title, "sensitivity s(x)", "share of strings", series))
            rows += [{**row, "place": place, "kind": names[-1], **_drawn(row)} for row in own]
        points = lab.points(rows, "place", "average_sensitivity", "learned", _said, GROUPS)
        half = lab.Rule(max(table.column("length")) / 2, "N/2, as of a random function")
        panel = lab.Panel("", "", "average sensitivity", points, categories=names, rules=(half,))
        free = rows.where(lambda row: row["language"] == "random" or not row["learned"])
        shapes = [
            lab.Panel("", x, "s / N", lab.points(free, column, "relative", "kind", _said), x_log=column == "width")
            for column, x in (("layers", "layers"), ("width", "width"), ("ffn_multiple", "FFN width / width"))
        ]
        titles = (
            "Sensitivity spectra after training",
            "Average sensitivity of each trained model",
            "The same by shape",
        )
        captions = (
            "Share of the strings of all models together at each sensitivity, on a log scale.",
            "One point per model; the accuracy tells whether it learned its language.",
            "Models whose sensitivity the language does not fix: those of random languages, and those that failed.",
        )
        return [
            lab.Figure("trained-spectra", titles[0], captions[0], spectra, where="Figs 3, 5, 6, 7"),
            lab.Figure("trained-averages", titles[1], captions[1], [panel], columns=1, where="Figs 5, 6, 7, bottom"),
            lab.Figure("trained-by-shape", titles[2], captions[2], shapes, columns=3, where="App. F.2"),
        ]


def _drawn(row: lab.Row) -> lab.Row:
    """What figures show of a model besides its columns."""
    return {"width": row["heads"] * row["head_size"], "relative": row["average_sensitivity"] / row["length"]}


def _said(row: lab.Row) -> str:
    return f"{named(row)}: accuracy {row['accuracy']:.3f}"


STUDY = TrainedProfiles()
