"""Trained transformers: their rows, judges and claims on all models of a language, figures."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ClassVar

import numpy as np

import flipscope.lab as lab
from flipscope.cube.expression import parse
from flipscope.cube.sensitivity import profile
from flipscope.studies.geometry.shared import how_measured, spectrum, spectrum_panel
from flipscope.studies.geometry.training import Name, Training, expression_of, named

LEARNED = 0.99  # accuracy from which on a language is learned
GATHERED, THERE = (
    0.8,
    0.5,
)  # share of the strings that make a cluster; part of the language's own share that must be there
AROUND = 1 / 5  # relative distance from a sensitivity of the language within which strings count as there
FEWEST = 3  # models that a claim on every model needs
GROUPS = {True: f"models that learned it (above {LEARNED})", False: "models that did not"}
SHAPES = {"layers": "layers", "width": "width", "ffn_multiple": "FFN width / width"}
DEVIATIONS = lab.deviations(
    ("learned", "perfectly", f"accuracy above {LEARNED}", "no threshold is given"),
    ("cluster", "seen in the figure", f"{GATHERED} of the strings, within {AROUND:g}", "no numbers are given"),
)


def model_row(trial: Training, outcome: lab.Outcome) -> lab.Row:
    """One model; `relative` is its average sensitivity in units of N/2."""
    kept = ("correct", "tested", "epochs", "steps", "stopped", "near_ties")
    accuracy = outcome["correct"] / outcome["tested"]
    return {
        **trial.content(),
        **{name: outcome[name] for name in kept},
        **spectrum(outcome["counts"], trial.length),
        "width": trial.heads * trial.head_size,
        "accuracy": accuracy,
        "learned": accuracy > LEARNED,
        "largest": int(outcome["counts"].max()),
        "relative": 2 * float(outcome["counts"].mean()) / trial.length,
        "own_profile": own_profile(expression_of(trial), trial.length),
    }


@functools.cache
def own_profile(expression: str | None, length: int) -> list[float] | None:
    """The share of strings at each sensitivity in the language itself; None for a random language."""
    return None if expression is None else [count / 2**length for count in profile(parse(expression, length))]


def strings_at(row: lab.Row) -> tuple[int, int]:
    """How many of a model's strings have sensitivity 0, and how many are near a positive one of its language."""
    counts, expected = np.array(row["profile"]), np.flatnonzero(row["own_profile"])
    there = np.abs(np.arange(len(counts))[:, None] - expected[expected > 0]) <= AROUND * expected[expected > 0]
    return int(counts[0]), int(counts[there.any(axis=1)].sum())


def accuracy_judge(says: Callable[..., lab.Judgement], limit: float) -> Callable[[lab.Row, float], lab.Judgement]:
    """A judge of a model's accuracy on the test strings; `says` is `lab.at_least` or `lab.at_most`."""

    def one(row: lab.Row, confidence: float) -> lab.Judgement:
        accuracy = lab.share(row["correct"], row["tested"], confidence)
        return says(accuracy, limit, f"accuracy on {named(row)}", unit="strings")

    return one


def right_profile(row: lab.Row, confidence: float) -> lab.Judgement:
    """Strings of sensitivity 0 and the others are judged apart: of each kind there must be some."""
    (zeros, there), own_zeros = strings_at(row), row["own_profile"][0]
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


def wrong_profile(row: lab.Row, confidence: float) -> lab.Judgement:
    """Whether a model's profile is not that of its language, which has no string of sensitivity 0."""
    gathered = lab.share(strings_at(row)[1], row["strings"], confidence)
    return lab.at_most(
        gathered, GATHERED, f"share of strings at the language's sensitivity, {named(row)}", unit="strings"
    )


def every_model(
    one: Callable[[lab.Row, float], lab.Judgement], language: Name, learned: bool | None = None, intervals: int = 1
) -> lab.Judge:
    """A judge of every model of a language, or of those that learned it, all intervals valid together."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.where(lambda row: learned in (None, row["learned"]), language=language)
        missing = "no model was trained on it" if learned is None else "no model learned it"
        return lab.for_every(rows, one, missing=missing, intervals=intervals, fewest=FEWEST, what="models")

    return judge


def trained_alike(judge: lab.Judge, others: tuple[Name, ...]) -> lab.Judge:
    """The same judge, undecided where no model of the other languages learns: an untrained one fails at everything."""

    def judged(table: lab.Rows) -> lab.Judgement:
        verdict, rows = judge(table), table.where(lambda row: row["language"] in others)
        if verdict.verdict != "reproduced" or rows.where(learned=True):
            return verdict
        reason = f"none of {len(rows)} models trained in the same way learns {' or '.join(map(_plain, others))}"
        return verdict.left_open(reason, "trainings that learn one of these")

    return judged


def judge_higher(table: lab.Rows, parity: Name, others: tuple[Name, ...], besides: int = 0) -> lab.Judgement:
    """Whether models of a parity have strings of higher sensitivity than those of the other languages, for each m."""

    def one(pair: tuple[int, Name], rows: lab.Rows, confidence: float) -> lab.Judgement:
        relevant, other = pair
        name = f"largest s(x) of {parity} less that of {other}".replace("_", " ") + (relevant > 0) * f", m = {relevant}"
        theirs = table.where(language=other, relevant=relevant)
        return lab.larger_mean(rows, theirs, "largest", name, confidence=confidence, unit="models")

    pairs = [((m, other), rows) for m, rows in table.where(language=parity).by("relevant") for other in others]
    return lab.for_each(pairs, one, missing="no model was trained on it", besides=besides, what="comparisons")


def claim_learned(language: Name, title: str, source: str, statement: str) -> lab.Claim:
    """The claim that most models learn a language; a single training that got stuck does not contradict it."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.where(language=language)
        return lab.of_models(rows, lambda row: row["learned"], "most", f"share of models that learn {_plain(language)}")

    criterion = f"share of the models with a test accuracy above {LEARNED}: at least 0.5"
    return lab.Claim(title, source, statement, criterion, judge)


def claim_all_learn(languages: tuple[Name, ...], title: str, source: str, statement: str) -> lab.Claim:
    """The claim that every model learns its language; one that does not contradicts it."""
    one = accuracy_judge(lab.at_least, LEARNED)

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.where(lambda row: row["language"] in languages)
        if lacking := [_plain(name) for name in languages if len(rows.where(language=name)) < FEWEST]:
            verdict = lab.for_every(rows, one, missing="no model was trained on them", what="models")
            reason = f"too few models of {' and '.join(lacking)}"
            return (
                verdict
                if verdict.verdict == "contradicted"
                else verdict.left_open(reason, f"at least {FEWEST} models of each")
            )
        return lab.for_every(rows, one, what="models")

    return lab.Claim(title, source, statement, f"test accuracy at least {LEARNED} in every model", judge)


def _plain(language: str) -> str:
    return language.replace("_", " ").capitalize()


def claim_gathered(language: Name, title: str, source: str, statement: str) -> lab.Claim:
    """The claim that every model that learned a language has sensitivities where the language has them."""
    criterion = (
        f"in every model that learned it, {GATHERED} of all strings, and of those above 0, are at the language's own "
        f"sensitivities (within {AROUND:g} of them); at 0 and above 0 {THERE:g} as many strings as the language has"
    )
    return lab.Claim(title, source, statement, criterion, every_model(right_profile, language, True, intervals=4))


def how_trained(table: lab.Rows) -> list[str]:
    """How signs were computed, and the average sensitivities of models that failed."""
    means = [
        f"{language.replace('_', ' ')} {np.mean(rows.column('average_sensitivity')):.3g}"
        for language, rows in table.where(learned=False).by("language")
    ]
    failed = f"average sensitivity of models that failed, by language: {', '.join(means)}"
    return [*how_measured(table), *([failed] if means else [])]


def figures_of(table: lab.Rows, name: str, where: str) -> list[lab.Figure]:
    """Spectra of each language, average sensitivities of each model, and these by the settings that differ."""
    spectra, names, rows = [], [], lab.Rows()
    for place, ((language, relevant, length), models) in enumerate(table.by("language", "relevant", "length")):
        names.append(f"{language.replace('_', ' ')} {relevant or ''}".strip())
        title = f"{names[-1]}, N = {length}: {len(models.where(learned=True))} of {len(models)} learned"
        series = [
            lab.bars(GROUPS[learned], np.sum(some.column("profile"), axis=0) / some.total("strings"), colour=colour)
            for colour, (learned, some) in enumerate(models.each("learned", GROUPS))
            if some
        ]
        spectra.append(spectrum_panel(title, "sensitivity s(x)", "share of strings", series))
        rows += [{**row, "place": place, "kind": names[-1]} for row in models]
    points = lab.points(rows, "place", "average_sensitivity", "learned", _said, GROUPS)
    half = lab.Rule(max(table.column("length")) / 2, "N/2, as of a random function")
    averages = lab.Panel("", "", "average sensitivity", points, categories=names, rules=(half,))
    free = rows.where(lambda row: row["language"] == "random" or not row["learned"])
    shapes = [
        lab.Panel(
            "", x, "average s(x) / (N/2)", lab.points(free, column, "relative", "kind", _said), x_log=x == "width"
        )
        for column, x in SHAPES.items()
        if len(free.values(column)) > 1
    ]
    captions = (
        "Share of the strings of all models together at each sensitivity, on a log scale.",
        "One point per model; the accuracy tells whether it learned its language.",
        "Models whose sensitivity the language does not fix: those of random languages, and those that failed.",
    )
    titles = ("Sensitivity spectra after training", "Average sensitivity of each trained model", "The same by shape")
    return [
        lab.Figure(f"{name}-spectra", titles[0], captions[0], spectra, where=where),
        lab.Figure(f"{name}-averages", titles[1], captions[1], [averages], columns=1, where=f"{where}, bottom"),
        *(
            lab.Figure(f"{name}-by-shape", titles[2], captions[2], shapes, columns=3, where="App. F.2")
            for _ in shapes[:1]
        ),
    ]


def _said(row: lab.Row) -> str:
    return f"{named(row)}: accuracy {row['accuracy']:.3f}"


class TrainedModels(lab.Study):
    """A study of trained models: their rows, provenance and figures; a subclass adds languages, scales and claims."""

    drawn: ClassVar[tuple[str, str]]  # prefix of the figures' names, and the paper's figures

    def row(self, trial: Training, outcome: lab.Outcome) -> lab.Row:
        return model_row(trial, outcome)

    def provenance(self, table: lab.Rows) -> list[str]:
        return how_trained(table)

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return figures_of(table, *self.drawn)
