"""From which length on trained recognisers fail: First, Majority and Parity, at eps = 0 and eps > 0 (Cors 3.4, 5.4).

The corollaries speak of fixed weights and ever longer strings, so each trained model is asked on strings longer than
those it was trained on. Beside that, models are trained anew at each length, which the corollaries do not forbid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
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
PLAN = ("lengths", "eps", "seeds", "epochs", "strings")
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


def _breaks(language: Language, positive: bool, source: str, statement: str) -> lab.Claim:
    """That every model that recognises the language at its own length fails at the longest that it was asked."""

    def one(row: lab.Row, confidence: float) -> lab.Judgement:
        found, longest = lab.share(row["correct"][-1], row["strings"], confidence), f"N = {row['tested'][-1]}"
        name = f"share right at {longest}, trained at {row['length']}, eps = {row['eps']:g}"
        judged = lab.at_most(found, KNOWN, name, unit="strings")
        # More strings could only show that it holds at this length, and say nothing of longer ones.
        return judged.left_open(f"not broken at {longest}", "longer strings") if found.value >= KNOWN else judged

    def judge(table: lab.Rows) -> lab.Judgement:
        known = table.having("reach").where(lambda row: (row["eps"] > 0) == positive, language=language)
        return lab.for_every(known, one, missing="no model recognises it", sort=True, fewest=FEWEST, what="models")

    title = f"eps {'>' if positive else '='} 0: {language.capitalize()} breaks"
    criterion = f"share right with margin {MARGIN:g} at 4 N, at most {KNOWN} in every model that recognises it at its N"
    return lab.Claim(title, source, statement, criterion, judge)


def _lasts(title: str, source: str, question: str, pair: Callable[[lab.Rows], tuple[lab.Rows, lab.Rows]]) -> lab.Claim:
    """The question whether the first of two groups of models lasts longer than the second, counted in doublings."""

    def judge(table: lab.Rows) -> lab.Judgement:
        return lab.larger_mean(*pair(table.having("reach")), "gain", f"doublings of N, {title}", unit="models")

    criterion = "log2(longest N recognised / N trained on), mean over models: larger than of those compared with"
    return lab.Claim(title, source, f"left open: {question}", criterion, judge, exploratory=True)


def _extreme_eps(known: lab.Rows) -> tuple[lab.Rows, lab.Rows]:
    """Models of First with the smallest eps above 0, and with the largest if that is another."""
    rows = known.where(lambda row: row["eps"] > 0, language="first")
    values = rows.values("eps")
    return rows.where(eps=min(values, default=0)), rows.where(eps=max(values[1:], default=0))


def _judge_trained(table: lab.Rows) -> lab.Judgement:
    """Whether models trained at the longest length mostly fail to recognise First there, for each eps."""
    longest = max(table.column("length"))
    name = f"share of models that recognise First at N = {longest}"
    one = lab.share_where(lambda row: row["reach"] is not None, lab.at_most, 0.5, name)
    groups = [(f"eps = {eps:g}", own) for eps, own in table.where(language="first", length=longest).by("eps")]
    return lab.asymptotic(lab.for_each(groups, one, what="eps"))


class LengthLimits(lab.Study):
    """At which length a recogniser breaks, as the corollaries say it must."""

    name, paper = "length-limits", "000"
    title = "The lengths up to which trained recognisers know First, Majority and Parity, by eps"
    scales = lab.scales(
        "recognisers of width 16 and 2 layers, {seeds} per language and eps in {eps}, trained at N in {lengths}, "
        "asked {strings} strings up to 4 N",
        smoke=(0.2, dict(zip(PLAN, ((10, 12), (0.0, 1.0), 1, 3, 50), strict=True))),
        laptop=(10, dict(zip(PLAN, (LENGTHS, (0.0, 1e-3, 1.0), 3, 16, 500), strict=True))),
        paper=(
            30_000,
            dict(zip(PLAN, ((*LENGTHS, 320, 640), (0.0, 1e-5, 1e-3, 0.1, 1.0), 20, 200, 2_000), strict=True)),
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
        _breaks("first", True, "Cor 3.4", "for eps > 0 fixed weights recognise nothing but constants once N is large"),
        _breaks("majority", True, "Cor 3.4", "the same of Majority, which is not constant either"),
        _breaks("first", False, "Cor 5.4", "almost all weights fail to recognise First once N is large, with eps = 0"),
        _lasts(
            "eps = 0: Majority lasts longer than First",
            "Conj 5.5",
            "whether Majority, which the theorem does not reach, is kept at longer lengths",
            lambda known: (known.where(language="majority", eps=0), known.where(language="first", eps=0)),
        ),
        _lasts(
            "First breaks earlier with a larger eps",
            "Cor 3.4, Eq 46",
            "the bound's length falls with eps; whether the true one does, from the smallest above 0 to the largest",
            _extreme_eps,
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
            "log10_bound": (log_uniform_constant(Constants.of(trained.transformer)) - math.log(2 * MARGIN))
            / math.log(10)
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
        wrong, none = (sum(row[name][-1] for row in known) for name in ("wrong", "undefined"))
        bounds = sorted(known.having("log10_bound").column("log10_bound"))
        said = [
            f"Cor 3.4's bound makes a model constant from N = 10^{each:.1f} on, beyond all lengths" for each in bounds
        ]
        return [*said[:1], f"at 4 N {wrong:,} strings were wrong and {none:,} within the margin"]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        asked = lab.Rows(
            {**row, "factor": factor, "share": correct / row["strings"]}
            for row in table
            for factor, correct in zip(LONGER, row["correct"], strict=True)
        )
        band = f"Share of random strings right with margin {MARGIN:g}: mean over models, band from least to largest."
        title, known = "The same weights on longer strings", f"Models that recognise it at their own N. {band}"
        longer = _panels(asked.having("reach"), table, "factor", "N / N trained on")
        anew = _panels(table, table, "length", "N trained on")
        return [
            lab.Figure("length-limits", title, known, longer, columns=3),
            lab.Figure("length-limits-trained", "Trained anew at each length", band, anew, columns=3),
        ]


def _panels(rows: lab.Rows, table: lab.Rows, x: str, label: str) -> list[lab.Panel]:
    """One for each language, with a line for each eps of the whole table."""
    lines = partial(lab.lines, x=x, y="share", by="eps", label="eps = {:g}", centre="mean", order=table.values("eps"))
    look: dict[str, Any] = {"y_range": (0, 1.05), "x_log": x == "length"}
    languages = rows.each("language", LANGUAGES)
    return [lab.Panel(language.capitalize(), label, "share right", lines(own), **look) for language, own in languages]


STUDY = LengthLimits()
