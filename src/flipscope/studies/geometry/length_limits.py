"""From which length on trained recognisers fail: First, Majority and Parity, at eps = 0 and eps > 0 (Cors 3.4, 5.4).

The corollaries speak of fixed weights and ever longer strings, so each trained model is asked on strings longer than
those it was trained on. Beside that, models are trained anew at each length, which the corollaries do not forbid.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import flipscope.lab as lab
from flipscope.bounds.geometry import Constants, log_uniform_constant
from flipscope.cube.expression import parse
from flipscope.models.presets import recognizer
from flipscope.probes.recognition import recognition
from flipscope.training.recipe import Recipe, StringData, TrainingProtocol

MARGIN = 0.1  # of recognition (Def 2.8)
KNOWN = 0.99  # share of the strings that a model must have right, with the margin, to recognise a language
LONGER = (1.0, 1.25, 1.5, 2.0, 4.0)  # lengths to ask, in units of the length trained on
LENGTHS = (10, 20, 40, 80, 160)
FEWEST = 3  # models that a claim on every model needs
Language = Literal["first", "majority", "parity"]
LANGUAGES: tuple[Language, ...] = ("first", "majority", "parity")


@dataclass(frozen=True)
class Limit(lab.Trial):
    """A recogniser to train at one length, and to ask at longer ones."""

    language: Language
    eps: float
    length: int
    seed: int
    epochs: int  # at most, of 50 batches of 64 fresh strings
    strings: int  # to ask at each length

    @property
    def cost(self) -> float:
        """Positions to compute while training, and those of the longest strings afterwards."""
        return float(self.length * 3 * 3_200 * self.epochs + 4 * self.length * self.strings)


def recipe_of(trial: Limit) -> Recipe:
    """The training: of fresh strings, until all validation strings are right or the epochs are over."""
    return Recipe(
        data=StringData(
            function=f"{trial.language}({trial.length})",
            length=trial.length,
            train=None,
            validation=500,
            seed=trial.seed,
        ),
        model=recognizer(width=16, layers=2, eps=trial.eps),
        protocol=TrainingProtocol(
            batch=64, learning_rate=3e-3, stop_after=None, max_epochs=trial.epochs, epoch_steps=50, goal=1.0
        ),
        seed=trial.seed,
    )


def _judge_breaks(table: lab.Rows, language: Language, positive: bool) -> lab.Judgement:
    """Whether every model that recognises the language at its own length fails at the longest that it was asked."""
    known = table.where(lambda row: row["reach"] is not None and (row["eps"] > 0) == positive, language=language)

    def one(row: lab.Row, confidence: float) -> lab.Judgement:
        found = lab.share(row["correct"][-1], row["strings"], confidence)
        name = f"share right at N = {row['tested'][-1]}, trained at {row['length']}, eps = {row['eps']:g}"
        judged = lab.at_most(found, KNOWN, name, unit="strings")
        # More strings could only show that it holds at this length, and say nothing of longer ones.
        kept = found.value >= KNOWN
        return judged.left_open(f"not broken at N = {row['tested'][-1]}", "longer strings") if kept else judged

    return lab.for_every(known, one, missing="no model recognises it", sort=True, fewest=FEWEST, what="models")


def _judge_trained(table: lab.Rows) -> lab.Judgement:
    """Whether models trained at the longest length mostly fail to recognise First there, for each eps."""

    def one(eps: float, rows: lab.Rows, confidence: float) -> lab.Judgement:
        longest = rows.where(length=max(rows.column("length")))
        found = lab.share_of(longest, lambda row: row["reach"] is not None, confidence)
        name = f"share of models that recognise First at N = {longest[0]['length']}, eps = {eps:g}"
        return lab.at_most(found, 0.5, name, unit="models")

    return lab.asymptotic(lab.for_each(table.where(language="first").by("eps"), one, what="eps"))


def _judge_earlier(table: lab.Rows) -> lab.Judgement:
    """Whether First breaks earlier with the largest eps than with the smallest above 0."""
    rows = table.having("reach").where(lambda row: row["eps"] > 0, language="first")
    if len(values := rows.values("eps")) < 2:
        return lab.Judgement.without("fewer than two eps above 0 have models that recognise First", "more models")
    name = f"log2(length reached / trained on), eps = {values[0]:g} less eps = {values[-1]:g}"
    return lab.larger_mean(rows.where(eps=values[0]), rows.where(eps=values[-1]), "gain", name, unit="models")


def _judge_majority(table: lab.Rows) -> lab.Judgement:
    """Whether Majority lasts longer than First at eps = 0."""
    majority, first = (table.having("reach").where(language=name, eps=0) for name in ("majority", "first"))
    name = "log2(length reached / trained on), Majority less First, eps = 0"
    return lab.larger_mean(majority, first, "gain", name, unit="models")


class LengthLimits(lab.Study):
    """At which length a recogniser breaks, as the corollaries say it must."""

    name, paper = "length-limits", "000"
    title = "The lengths up to which trained recognisers know First, Majority and Parity, by eps"
    scales = lab.scales(
        "recognisers of width 16 and 2 layers, {seeds} per language and eps in {eps}, trained at N in {lengths}, "
        "asked {strings} strings up to 4 N",
        smoke=(0.2, {"lengths": (10, 12), "eps": (0.0, 1.0), "seeds": 1, "epochs": 3, "strings": 50}),
        laptop=(15, {"lengths": LENGTHS, "eps": (0.0, 1e-3, 1.0), "seeds": 4, "epochs": 16, "strings": 500}),
        paper=(
            30_000,
            {"lengths": (*LENGTHS, 320, 640), "eps": (0.0, 1e-5, 1e-3, 0.1, 1.0), "seeds": 20}
            | {"epochs": 200, "strings": 2_000},
        ),
    )
    deviations = lab.deviations(
        ("cause", "a bit's influence falls like 1/N", "not told from lengths never trained on", "both break a model"),
        ("experiment", "silent: corollaries on all large N", "trained models on longer strings", "where is not said"),
        ("weights", "almost all, uniformly drawn", "trained ones", "random weights recognise nothing at any N"),
        ("margin", "some xi > 0", f"{MARGIN:g}", "silent"),
        ("recognised", "every string", f"{KNOWN} of random strings", "there are 2^N"),
        ("lengths", "all large N", "up to 4 times that trained on", "the length that the bound gives is out of reach"),
    )
    claims = (
        lab.Claim(
            "eps > 0: First breaks",
            "Cor 3.4",
            "for eps > 0 fixed weights recognise no function that is not constant once N is large",
            f"share right with margin {MARGIN:g} at 4 N, at most {KNOWN} in every model that recognises First at its N",
            partial(_judge_breaks, language="first", positive=True),
        ),
        lab.Claim(
            "eps > 0: Majority breaks",
            "Cor 3.4",
            "the same of Majority, which is not constant either",
            f"share right with margin {MARGIN:g} at 4 N, at most {KNOWN} in every model that recognises it at its N",
            partial(_judge_breaks, language="majority", positive=True),
        ),
        lab.Claim(
            "eps = 0: First breaks",
            "Cor 5.4",
            "almost all weights fail to recognise First once N is large, though eps is 0",
            f"share right with margin {MARGIN:g} at 4 N, at most {KNOWN} in every model that recognises First at its N",
            partial(_judge_breaks, language="first", positive=False),
        ),
        lab.Claim(
            "eps = 0: Majority lasts longer than First",
            "Conj 5.5",
            "left open: whether Majority, which the theorem does not reach, is kept at longer lengths",
            "mean over models of log2(longest N recognised / N trained on), larger than of First",
            _judge_majority,
            exploratory=True,
        ),
        lab.Claim(
            "First breaks earlier with a larger eps",
            "Cor 3.4, Eq 46",
            "left open: the bound's length falls with eps; whether the true one does",
            "mean over models of log2(longest N recognised / N trained on), larger at the smallest eps above 0",
            _judge_earlier,
            exploratory=True,
        ),
        lab.Claim(
            "trained anew at each length, First is lost",
            "§ 5",
            "left open: First is learned at moderate lengths; from which length on no longer",
            "share of the models that recognise First at the longest N trained on: at most 0.5 for each eps",
            _judge_trained,
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Limit]:
        plan = self.scales[scale].settings
        chosen = itertools.product(LANGUAGES, plan["eps"], plan["lengths"], range(plan["seeds"]))
        return [Limit(*setting, plan["epochs"], plan["strings"]) for setting in chosen]

    def measure(self, trial: Limit, progress: lab.Progress) -> lab.Outcome:
        trained = lab.trained(recipe_of(trial), progress)
        lengths = [round(trial.length * factor) for factor in LONGER]
        found = [
            recognition(trained.model, parse(f"{trial.language}({n})"), MARGIN, samples=trial.strings, seed=trial.seed)
            for n in lengths
        ]
        return {
            "tested": lengths,
            **{name: [getattr(each, name) for each in found] for name in ("correct", "wrong", "undefined")},
            "epochs_used": len(trained.fitted.history),
            "log10_bound": (log_uniform_constant(Constants.of(trained.model)) - math.log(2 * MARGIN)) / math.log(10)
            if trial.eps
            else None,
        }

    def row(self, trial: Limit, outcome: lab.Outcome) -> lab.Row:
        shares = [correct / trial.strings for correct in outcome["correct"]]
        kept = list(itertools.takewhile(lambda pair: pair[1] >= KNOWN, zip(outcome["tested"], shares, strict=True)))
        reach = kept[-1][0] if kept else None
        gain = math.log2(reach / trial.length) if reach else None
        return {**super().row(trial, outcome), "share": shares[0], "reach": reach, "gain": gain}

    def provenance(self, table: lab.Rows) -> list[str]:
        known = table.having("reach")
        bounds = [f"10^{least:.1f}" for least in sorted(known.having("log10_bound").column("log10_bound"))]
        ends = [(sum(row["wrong"][-1] for row in known), sum(row["undefined"][-1] for row in known))]
        return [
            *(f"Cor 3.4's bound makes a model constant from N = {each} on, beyond all lengths" for each in bounds[:1]),
            *(f"at 4 N {wrong:,} strings were wrong and {none:,} within the margin" for wrong, none in ends if known),
        ]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        anew, longer = [], []
        for language, own in table.each("language", LANGUAGES):
            trained, kept = [], []
            for colour, eps in enumerate(table.values("eps")):
                rows, label = own.where(eps=eps), f"eps = {eps:g}"
                asked = lab.Rows(
                    {"factor": factor, "share": correct / row["strings"]}
                    for row in rows.having("reach")
                    for factor, correct in zip(LONGER, row["correct"], strict=True)
                )
                trained.append(lab.line(rows, "length", "share", label, "mean", colour=colour))
                kept.append(lab.line(asked, "factor", "share", label, "mean", colour=colour))
            look: dict[str, Any] = {"title": language.capitalize(), "y_label": "share right", "y_range": (0, 1.05)}
            anew.append(lab.Panel(x_label="N trained on", series=trained, x_log=True, **look))
            longer.append(lab.Panel(x_label="N / N trained on", series=kept, **look))
        band = f"Share of random strings right with margin {MARGIN:g}: mean over models, band from least to largest."
        title = "The same weights on longer strings"
        return [
            lab.Figure("length-limits", title, f"Models that recognise it at their own N. {band}", longer, columns=3),
            lab.Figure("length-limits-trained", "Trained anew at each length", band, anew, columns=3),
        ]


STUDY = LengthLimits()
