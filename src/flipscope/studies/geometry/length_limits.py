"""From which length on trained recognisers fail: First, Majority and Parity, at eps = 0 and eps > 0 (Cors 3.4, 5.4).

The corollaries speak of fixed weights and ever longer strings, so each trained model is evaluated on strings longer
than those it was trained on. Models trained anew at each length are the study `length-trained`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial

import flipscope.lab as lab
from flipscope.bounds.geometry import Constants, log_uniform_constant
from flipscope.cube.expression import parse
from flipscope.probes.recognition import recognition
from flipscope.studies.geometry import recognised_lengths as limits
from flipscope.studies.geometry.recognised_lengths import FIRST_SEED, MARGIN, Recogniser, trials_of

LONGER = (1.0, 1.25, 1.5, 2.0, 4.0)  # lengths to evaluate, in units of the training length


@dataclass(frozen=True)
class Limit(Recogniser):
    """A recogniser to evaluate at its training length and at longer ones."""

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        trained = lab.trained(self.recipe, progress)
        lengths = [round(self.length * factor) for factor in LONGER]
        by_length = [
            recognition(trained.model, parse(f"{self.language}({n})"), MARGIN, samples=self.strings, seed=self.seed)
            for n in lengths
        ]
        return {
            "tested": lengths,
            **{name: [getattr(each, name) for each in by_length] for name in ("correct", "wrong", "undefined")},
            "epochs_used": len(trained.fitted.history),
            "log10_bound": (log_uniform_constant(Constants.of(trained.transformer)) - math.log(2 * MARGIN))
            / math.log(10)
            if self.eps
            else None,
        }


class LengthLimits(lab.Study):
    """At which length trained recognisers fail, as the corollaries say they must."""

    name, paper = "length-limits", "000"
    title = "Up to which length trained recognisers recognise First, Majority and Parity, by eps"
    scales = lab.scales(
        "recognisers of width 16 and 2 layers, {seeds} per language and eps in {eps}, trained at N in {lengths}, "
        "asked {strings} strings up to 4 N",
        common={"first_seed": FIRST_SEED},
        smoke=(0.2, limits.SMOKE),
        laptop=(14, limits.LAPTOP),
        paper=(30_000, limits.PAPER),
    )
    deviations = limits.DEVIATIONS + lab.deviations(
        (
            "cause",
            "a bit's influence falls like 1/N",
            "not distinguished from failure at lengths never trained on",
            "both make a model fail",
        ),
        (
            "experiment",
            "corollaries for all large N",
            "trained models on longer strings",
            "the paper does not say where",
        ),
        ("weights", "almost all, uniformly drawn", "trained ones", "random weights recognise nothing at any N"),
        ("margin", "some xi > 0", f"{MARGIN:g}", "not stated"),
        ("recognised", "every string", f"{limits.KNOWN} of random strings", "there are 2^N"),
        ("lengths", "all large N", "up to 4 times that trained on", "the length in the bound is out of reach"),
    )
    breaks = partial(limits.breaks, margin=MARGIN)
    claims = (
        breaks("first", True, "Cor 3.4", "for eps > 0, fixed weights recognise only constants once N is large"),
        breaks("majority", True, "Cor 3.4", "the same for Majority, which is not constant either", contrast=True),
        breaks("first", False, "Cor 5.4", "with eps = 0, almost all weights fail to recognise First once N is large"),
        limits.lasts(
            "eps = 0: Majority lasts longer than First",
            "Conj 5.5",
            "whether Majority, to which the theorem does not apply, lasts to greater lengths",
            lambda known: (known.where(language="majority", eps=0), known.where(language="first", eps=0)),
        ),
        limits.lasts(
            "First breaks earlier with a larger eps",
            "Cor 3.4, Eq 46",
            "the length in the bound falls with eps; whether the true one does, from the smallest eps > 0 up",
            limits.extreme_eps,
        ),
    )

    def trials(self, scale: str) -> list[Limit]:
        return trials_of(Limit, self.scales[scale].settings)

    def row(self, trial: Limit, outcome: lab.Outcome) -> lab.Row:
        shares = [correct / trial.strings for correct in outcome["correct"]]
        kept = list(
            itertools.takewhile(lambda pair: pair[1] >= limits.KNOWN, zip(outcome["tested"], shares, strict=True))
        )
        reach = kept[-1][0] if kept else None
        gain = math.log2(reach / trial.length) if reach else None
        return {**super().row(trial, outcome), "share": shares[0], "reach": reach, "gain": gain}

    def provenance(self, table: lab.Rows) -> list[str]:
        return limits.how_broken(table)

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return [limits.figure_longer(table, LONGER, MARGIN)]


STUDY = LengthLimits()
