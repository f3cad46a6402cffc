"""Trained recognisers and the lengths that they recognise: trials, judges of how far they last, panels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import flipscope.lab as lab
from flipscope.studies.geometry.shared import mean_at_least
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.geometry import recognizer_recipe

Language = Literal["first", "majority", "parity"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
MARGIN = 0.1  # of recognition (Def 2.8)
KNOWN = 0.99  # share of the strings that a model must have right, with the margin, to recognise a language
FEWEST = 3  # models that a claim on every model needs
LENGTHS = (10, 20, 40, 80, 160)
# Seeds from 0 on were used to choose the present criteria, so they may not be used to judge by them.
FIRST_SEED = 1000
SMOKE: dict[str, Any] = {"lengths": (10, 12), "eps": (0.0, 1.0), "seeds": 1, "epochs": 3, "strings": 50}
LAPTOP: dict[str, Any] = {"lengths": LENGTHS, "eps": (0.0, 1e-3, 1.0), "seeds": 4, "epochs": 16, "strings": 500}
DEVIATIONS = lab.deviations(
    ("lengths, eps, seeds (up to laptop)", "no experiment", "fewer and shorter than at scale paper", "to take minutes"),
    ("epochs, strings (up to laptop)", "not stated", "fewer than at scale paper", "to take minutes"),
)
PAPER: dict[str, Any] = {
    "lengths": (*LENGTHS, 320, 640),
    "eps": (0.0, 1e-5, 1e-3, 0.1, 1.0),
    "seeds": 20,
    "epochs": 200,
    "strings": 2_000,
}


@dataclass(frozen=True)
class Recogniser(lab.TrainedTrial):
    """A recogniser to train at one length; the studies differ in the lengths at which they evaluate it."""

    language: Language
    eps: float
    length: int
    seed: int
    epochs: int  # at most, of 50 batches of 64 fresh strings
    strings: int  # to evaluate at each length

    @property
    def recipe(self) -> Recipe:
        """The training: on fresh strings, until all validation strings are right or the epochs are used up."""
        function = f"{self.language}({self.length})"
        return recognizer_recipe(function, self.length, self.seed, eps=self.eps, epochs=self.epochs)


Kind = TypeVar("Kind", bound=Recogniser)


def trials_of(kind: type[Kind], plan: Mapping[str, Any]) -> list[Kind]:
    """Every language with every eps, length and seed."""
    seeds = range(plan["first_seed"], plan["first_seed"] + plan["seeds"])
    chosen = itertools.product(LANGUAGES, plan["eps"], plan["lengths"], seeds)
    return [kind(*setting, plan["epochs"], plan["strings"]) for setting in chosen]


def breaks(
    language: str, positive: bool, source: str, statement: str, *, margin: float, contrast: bool = False
) -> lab.Claim:
    """The claim that every model that recognises the language at its training length fails at the longest length.

    Longer strings than those trained on break many models that no theorem rules out. With `contrast` the models must
    also break earlier than those with eps = 0, of the same lengths and seeds.
    """

    def one(row: lab.Row, confidence: float) -> lab.Judgement:
        right, longest = lab.share(row["correct"][-1], row["strings"], confidence), f"N = {row['tested'][-1]}"
        name = f"share right at {longest}, trained at {row['length']}, eps = {row['eps']:g}"
        judged = lab.at_most(right, KNOWN, name, unit="strings")
        # More strings could only show that it holds at this length, not at longer ones.
        return judged.left_open(f"not broken at {longest}", "longer strings") if right.value >= KNOWN else judged

    def judge(table: lab.Rows) -> lab.Judgement:
        models = table.having("reach").where(language=language)
        recognising = models.where(lambda row: (row["eps"] > 0) == positive)
        every = lab.for_every(
            recognising,
            one,
            missing="no model recognises it",
            besides=contrast,
            sort=True,
            fewest=FEWEST,
            what="models",
        )
        if not contrast or not recognising:
            return every
        name = f"doublings of N, {language.capitalize()} with eps = 0 less with eps > 0"
        earlier = _longer(models.where(eps=0), recognising, name, lab.confidence(len(recognising) + 1))
        return lab.all_of([earlier, every])

    title = f"eps {'>' if positive else '='} 0: {language.capitalize()} breaks"
    criterion = f"share right with margin {margin:g} at 4 N, at most {KNOWN} in every model that recognises it at its N"
    if contrast:
        title += " earlier than at eps = 0"
        criterion += (
            "; doublings of N that it lasts, less than at eps = 0 in the mean over pairs of one length and seed"
        )
    else:
        criterion += " (not distinguished from failure at lengths never trained on)"
    return lab.Claim(title, source, statement, criterion, judge, asymptotic=True)


def lasts(title: str, source: str, question: str, pair: Callable[[lab.Rows], tuple[lab.Rows, lab.Rows]]) -> lab.Claim:
    """An exploratory claim: the first of two groups of models lasts longer than the second, counted in doublings."""

    def judge(table: lab.Rows) -> lab.Judgement:
        return _longer(*pair(table.having("reach")), f"doublings of N, {title}")

    criterion = (
        "log2(longest N recognised / N trained on), less that of the model compared with, mean over pairs of models "
        "trained at one length, one seed: at least 0"
    )
    return lab.Claim(title, source, f"left open: {question}", criterion, judge, exploratory=True)


def _longer(first: lab.Rows, second: lab.Rows, name: str, confidence: float | None = None) -> lab.Judgement:
    """Whether models of the first group last longer than those of the second that were trained at the same length.

    A model that does not recognise its language at its training length is in neither group. Several models of one
    length and seed, such as of several eps, count by their mean.
    """
    groups = [rows.by("length", "seed") for rows in (first, second)]
    ours, theirs = ({place: sum(models.column("gain")) / len(models) for place, models in group} for group in groups)
    gains = [ours[place] - theirs[place] for place in sorted(ours.keys() & theirs.keys())]
    return mean_at_least(gains, 0.0, name, fewest=FEWEST, unit="pairs of models", confidence=confidence)


def extreme_eps(models: lab.Rows) -> tuple[lab.Rows, lab.Rows]:
    """Models of First with the smallest eps above 0, and with the largest if that is another."""
    rows = models.where(lambda row: row["eps"] > 0, language="first")
    values = rows.values("eps")
    return rows.where(eps=min(values, default=0)), rows.where(eps=max(values[1:], default=0))


def how_broken(table: lab.Rows) -> list[str]:
    """From which length on the bound applies to a model, and how the models that broke did so."""
    models = table.having("reach")
    wrong, none = (sum(row[name][-1] for row in models) for name in ("wrong", "undefined"))
    bounds = sorted(models.having("log10_bound").column("log10_bound"))
    sentences = [
        f"Cor 3.4's bound makes a model constant from N = 10^{each:.1f} on, beyond all lengths" for each in bounds
    ]
    return [*sentences[:1], f"at 4 N {wrong:,} strings were wrong and {none:,} within the margin"]


def figure_longer(table: lab.Rows, factors: Sequence[float], margin: float) -> lab.Figure:
    """The share right at multiples of the training length, for models that recognise the language at that length."""
    by_factor = lab.Rows(
        {**row, "factor": factor, "share": correct / row["strings"]}
        for row in table.having("reach")
        for factor, correct in zip(factors, row["correct"], strict=True)
    )
    caption = f"Models that recognise it at their own N. {_shares_text(margin)}"
    shown = _panels(by_factor, table, "factor", "N / N trained on")
    return lab.Figure("length-limits", "The same weights on longer strings", caption, shown, columns=3)


def figure_anew(table: lab.Rows, margin: float) -> lab.Figure:
    """The share right at the length trained on."""
    shown = _panels(table, table, "length", "N trained on")
    return lab.Figure("length-trained", "Trained anew at each length", _shares_text(margin), shown, columns=3)


def _shares_text(margin: float) -> str:
    """A description of the lines of a panel."""
    return f"Share of random strings right with margin {margin:g}: mean over models, band from least to largest."


def _panels(rows: lab.Rows, table: lab.Rows, x: str, label: str) -> list[lab.Panel]:
    """The share right of each language, with a line for each eps of the whole table."""
    look: Any = {"by": "eps", "labels": "eps = {:g}", "order": table.values("eps"), "x_label": label}
    look |= {"y_label": "share right", "y_range": (0, 1.05), "x_log": x == "length"}
    languages = rows.each("language", table.values("language"))
    return [lab.chart(models, x, "share", title=language.capitalize(), **look) for language, models in languages]
