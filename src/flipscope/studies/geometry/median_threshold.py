"""Random transformers with the median of their logits as threshold, so that none is constant (§6, an open question)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

import flipscope.lab as lab
from flipscope.lab import quantities
from flipscope.studies.geometry.random_models import (
    INITS,
    MEDIAN,
    NEAR,
    SIGNS,
    Draw,
    Plan,
    average_bins,
    mean_profile,
    models_of,
    panels_by_init,
)
from flipscope.studies.geometry.shared import how_measured

FAR, VAST = 1 / 2, 9 / 10  # part of a random function's N/2; share of strings that is the vast majority


@dataclass(frozen=True)
class AroundMedian(Draw):
    """Strings of one data set and a random transformer; no flip can be screened where the threshold is its median."""

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """The sensitivities of the strings with the threshold at the median of the logits of `MEDIAN` strings."""
        from flipscope.adapters.subject import Subject  # imported late, as in `random_models`
        from flipscope.flips.engine import logits
        from flipscope.models.transformer import Transformer
        from flipscope.probes.sensitivity import sensitivities

        model = Transformer(self.shape, scheme=self.init, seed=self.seed)
        median = float(np.median(logits(model, replace(self, first=0, count=MEDIAN).strings())))
        measured_strings = sensitivities(Subject(model, threshold=median), self.strings(), progress=progress)
        signs = {name: getattr(measured_strings, name) for name in SIGNS}
        return {"config": self.shape.as_dict(), "median": median, **signs}


def under_each_initialisation(quantity: quantities.Quantity) -> quantities.Quantity:
    """The quantity, for the models of each initialisation."""
    return quantity.each("init", INITS, words="initialisation", what="initialisations")


RELATIVE = quantities.Column("average sensitivity over N/2", lambda row: row["relative"])
NEAR_SHARE = quantities.Column(f"share of strings with s(x) ≤ N/{1 / NEAR:g}", lambda row: row["near_share"])


class MedianThreshold(lab.Study):
    """Whether random transformers are insensitive only because most of them are constant."""

    name, paper = "median-threshold", "000"
    title = "Sensitivity spectra of random transformers with the threshold at the median of their logits"
    sample_sizes, base_seed = ("data_sets", "strings", "seconds", "piece"), "first_data_set"
    scales = lab.scales(
        "the transformers of random-init, {data_sets} data sets, {models} each, N = {length}, width at most {widest}, "
        "{strings[0]:,} to {strings[1]:,} strings per transformer",
        smoke=(0.1, Plan(2, 1, 40, (4, 20), 0.1, (4, 600.0), 64)),
        laptop=(10, Plan(64, 1, 100, (4, 60), 0.5, (4, 600.0), 512)),
        paper=(30_000, Plan(10, 50, 100, (1_000, 1_000), 60.0, (50, 600.0), 1024)),
    )
    deviations = lab.deviations(
        (
            "experiment",
            "none: the threshold is 0",
            f"the median logit of {MEDIAN} strings",
            "most models are constant with threshold 0",
        ),
        ("strings per model, seconds", "10,000", "4 to 60 within 0.5 s; paper 1,000", "flips cannot be screened here"),
        ("data sets, models, widest (laptop)", "500 per initialisation, up to 1,024", "64, at most 512", "10 minutes"),
        ("data sets, models, length, widest (smoke)", "500, N = 100", "2, N = 40, widths up to 64", "to take seconds"),
        ("piece: strings of one trial", "not stated", "fewer than at scale paper", "trials of seconds"),
    )
    claims = (
        lab.claim(
            "around the median: far below a random function",
            "§6",
            "left open: whether insensitivity is due to a threshold far from all logits",
            under_each_initialisation(quantities.mean(RELATIVE, within=(0, 2))) <= FAR,
            exploratory=True,
        ),
        lab.claim(
            "around the median: most strings are insensitive",
            "§6",
            "left open, as above",
            under_each_initialisation(quantities.mean(NEAR_SHARE, within=(0, 1))) >= VAST,
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Draw]:
        plan: Plan = self.scales[scale].settings
        return plan.all_draws(AroundMedian, screen=False)

    def summarise(self, results: Sequence[lab.Result]) -> lab.Rows:
        """One row per model, whose strings are split into several trials."""
        return models_of(results)

    def provenance(self, table: lab.Rows) -> list[str]:
        return how_measured(table)

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        panels = [
            *panels_by_init(table, mean_profile, "sensitivity", "share of strings"),
            *panels_by_init(table, average_bins, "average sensitivity", "share of transformers"),
        ]
        caption = "Spectra, and below average sensitivities, on a log scale. Every transformer counts the same."
        return [lab.Figure("median-threshold", self.title, caption, panels, where="§6")]


STUDY = MedianThreshold()
