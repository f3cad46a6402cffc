"""Recognisers trained anew at each length, which no corollary forbids: up to which length they learn a language (§ 5).

The trainings are those of `length-limits`, so that whichever study runs second finds its models in the store.
"""

from __future__ import annotations

from dataclasses import dataclass

import flipscope.lab as lab
from flipscope.cube.expression import parse
from flipscope.probes.recognition import recognition
from flipscope.studies.geometry.recognised_lengths import (
    DEVIATIONS,
    FIRST_SEED,
    KNOWN,
    LAPTOP,
    MARGIN,
    PAPER,
    SMOKE,
    Recogniser,
    figure_anew,
    trials_of,
)

MOST = 0.5  # the largest share of models that still learn a language that counts as lost


@dataclass(frozen=True)
class Anew(Recogniser):
    """A recogniser to evaluate at its training length only."""

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        trained = lab.trained(self.recipe, progress)
        language = parse(f"{self.language}({self.length})")
        recognised = recognition(trained.model, language, MARGIN, samples=self.strings, seed=self.seed)
        counts = {name: getattr(recognised, name) for name in ("correct", "wrong", "undefined")}
        return {**counts, "epochs_used": len(trained.fitted.history)}


def _judge_lost(table: lab.Rows) -> lab.Judgement:
    """Whether most models trained at the longest length, of all eps together, fail to recognise First there."""
    longest = max(table.column("length"))
    name = f"share of models that recognise First at N = {longest}"
    one = lab.share_where(lambda row: row["known"], lab.at_most, MOST, name)
    # Models of one eps may differ from those of another; the binomial interval is then too wide, not too narrow.
    return lab.for_each([("all eps", table.where(language="first", length=longest))], one)


class LengthTrained(lab.Study):
    """Up to which length a recogniser learns a language if it is trained at that length."""

    name, paper = "length-trained", "000"
    title = "First, Majority and Parity trained at each length separately, by eps"
    scales = lab.scales(
        "recognisers of width 16 and 2 layers, {seeds} per language and eps in {eps}, trained at N in {lengths}, "
        "asked {strings} strings of that length",
        common={"first_seed": FIRST_SEED},
        smoke=(0.2, SMOKE),
        laptop=(14, LAPTOP),
        paper=(30_000, PAPER),
    )
    deviations = DEVIATIONS + lab.deviations(
        (
            "experiment",
            "none: First is learned at moderate N",
            "trained at each N",
            "the paper does not say up to which N",
        ),
        (
            "cause",
            "not stated",
            "a model that cannot represent it, or a training that fails",
            "both look the same here",
        ),
        ("margin", "some xi > 0", f"{MARGIN:g}", "not stated"),
        ("recognised", "every string", f"{KNOWN} of random strings", "there are 2^N"),
    )
    claims = (
        lab.Claim(
            "trained anew at the longest length, First is lost",
            "§ 5",
            "left open: First is learned at moderate lengths; whether it still is at the longest",
            f"share of the models that recognise First at the longest N trained on, of all eps: at most {MOST:g}",
            _judge_lost,
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Anew]:
        return trials_of(Anew, self.scales[scale].settings)

    def row(self, trial: Anew, outcome: lab.Outcome) -> lab.Row:
        share = outcome["correct"] / trial.strings
        return {**super().row(trial, outcome), "share": share, "known": share >= KNOWN}

    def provenance(self, table: lab.Rows) -> list[str]:
        lost = table.where(known=False)
        wrong, none = lost.total("wrong"), lost.total("undefined")
        longest = sum(row["epochs_used"] == row["epochs"] for row in table)
        return [
            f"{longest} of {len(table)} trainings went on to the last epoch",
            f"of the models that do not recognise their language {wrong:,} strings were wrong and {none:,} within the "
            "margin",
        ]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return [figure_anew(table, MARGIN)]


STUDY = LengthTrained()
