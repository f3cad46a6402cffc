"""Sensitivity spectra and average sensitivities of randomly initialised transformers (App. F.1, Figs 3 left and 4)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import flipscope.lab as lab
from flipscope.studies.geometry import random_judges as judges
from flipscope.studies.geometry._shared import how_measured
from flipscope.studies.geometry.random_figures import breakdown, spectra_figures
from flipscope.studies.geometry.random_judges import CLUSTER, FAR, MOST, SETTINGS, TAIL, THIN, VAST, by_init, judge_of
from flipscope.studies.geometry.random_models import INITS, NEAR, Draw, Plan, joined, spectra


class RandomInit(lab.Study):
    """Whether random transformers are insensitive, whatever the initialisation."""

    name, paper, figures = "random-init", "000", ("Fig 3 left", "Fig 4")
    title = "Sensitivity spectra and average sensitivities of randomly initialised transformers"
    scales = lab.scales(
        "4 initialisations, {data_sets} data sets, {models} transformers each, N = {length}, width at most {widest}, "
        "{strings[0]:,} to {strings[1]:,} strings per transformer; where these take more than {seconds:g} s, screened",
        smoke=(0.1, Plan(3, 1, 40, (20, 60), 0.2, (30, 1.0), (4, 20, 0.1), 64)),
        demo=(0.6, Plan(1, 60, 100, (30, 60), 0.2, (30, 600.0), (4, 10, 0.05), 32)),
        laptop=(17, Plan(64, 1, 100, (40, 1_000), 3.0, (50, 600.0), (4, 100, 1.0), 512)),
        paper=(45_000, Plan(10, 50, 100, (10_000, 10_000), 600.0, (100, 600.0), (10, 100, 60.0), 1024)),
    )
    deviations = lab.deviations(
        ("flips of dear models", "all computed", "screened, with an audit", "months otherwise"),
        ("strings per model (laptop)", "10,000", "40 to 1,000", "as many as take 3 seconds"),
        ("models (laptop)", "500 per initialisation", "64, each with its own strings", "17 minutes"),
        ("width (laptop)", "up to 1,024", "at most 512", "1 model in 16 would take half the time"),
        ("models (demo)", "500 per initialisation", "60, of widths 16 and 32", "half a minute"),
        ("strings per model (demo)", "10,000", "30 to 60", "the mean over models is what is judged"),
        ("threshold at the median", "not measured", "4 to 100 of the strings", "no flip can be screened there"),
        ("eps", "a small constant", "1e-5", "silent; PyTorch's"),
        ("Xavier biases", "drawn like the weights, gain 1", "PyTorch's law", "a vector has no fans"),
        ("Thm 4.5", "eps = 0, said to predict Fig 3", "measured with eps > 0", "contradicts § 6, App. F"),
    )
    claims = (
        lab.Claim(
            "most strings are insensitive",
            "Figs 3 and 4, top",
            "under every initialisation the vast majority of strings have sensitivity 0 or close to 0",
            f"share of strings with sensitivity at most N/{1 / NEAR:g}, averaged over models: {VAST:g} or more under "
            "each initialisation",
            judge_of(by_init, judges.near),
        ),
        lab.Claim(
            "average sensitivities cluster at 0",
            "Figs 3 and 4, bottom",
            "average sensitivities cluster tightly near 0, with a thin tail",
            f"share of models below {CLUSTER:g}: {VAST:g} or more under each initialisation; share of all models "
            f"with N/{1 / TAIL:g} or more: at most {THIN:g}",
            judge_of(by_init, judges.averages, judges.thin),
        ),
        lab.Claim(
            "random transformers are far below a random function",
            "Figs 3 and 4, bottom",
            "random transformers are far less sensitive than the N/2 of a random function",
            f"mean average sensitivity over models: at most {FAR:g} of N/2 under each initialisation",
            judge_of(by_init, judges.mean),
        ),
        lab.Claim(
            "every depth, width and FFN is insensitive",
            "§6",
            "spectra are heavily skewed toward 0 under all hyperparameters",
            f"share of strings with sensitivity at most N/{1 / NEAR:g}, averaged over the models of each depth, each "
            f"width, each FFN multiple: {MOST:g} or more",
            judge_of(judges.by_setting, judges.near, least=MOST),
        ),
        lab.Claim(
            "models that are not constant are far below a random function",
            "§6",
            "left open: whether this is owed to models that give one answer only",
            f"mean average sensitivity over the other models, all initialisations together: at most {FAR:g} of N/2",
            judge_of(judges.varied, judges.mean),
            exploratory=True,
        ),
        lab.Claim(
            "with the threshold at the median: far below a random function",
            "§6",
            "left open: whether this is owed to a threshold that is far from all logits",
            f"mean average sensitivity over models: at most {FAR:g} of N/2 under each initialisation",
            judge_of(judges.centred, judges.mean, column="centred_average_sensitivity"),
            exploratory=True,
        ),
        lab.Claim(
            "with the threshold at the median: most strings are insensitive",
            "§6",
            "left open, as above",
            f"share of strings with sensitivity at most N/{1 / NEAR:g}, averaged over models: {VAST:g} or more under "
            "each initialisation",
            judge_of(judges.centred, judges.near, column="centred_near_share"),
            exploratory=True,
        ),
    )

    def trials(self, scale: str) -> list[Draw]:
        plan = self.scales[scale].settings
        drawn = itertools.product(INITS, range(plan.data_sets), range(plan.models))
        return [draw for chosen in drawn for draw in plan.draws(*chosen)]

    def measure(self, trial: Draw, progress: lab.Progress) -> lab.Outcome:
        return spectra(trial, progress)

    def row(self, trial: Any, outcome: lab.Outcome) -> lab.Row:
        return {**trial.content(), **outcome, "seed": trial.seed}

    def summarise(self, results: Sequence[lab.Result]) -> lab.Rows:
        rows = lab.Rows({**self.row(each.trial, each.outcome), "seconds": each.seconds} for each in results)
        models = (own for _, inits in rows.each("init", INITS) for _, own in inits.by("data_set", "model"))
        return lab.Rows(map(joined, models))

    def provenance(self, table: lab.Rows) -> list[str]:
        constant = [f"{sum(own.column('constant'))} of {len(own)} {init}" for init, own in by_init(table)]
        said = [f"models that are constant as far as seen: {', '.join(constant)}"]
        ties = f"{table.total('centred_near_ties'):,} signs too close to call with the threshold at the median"
        return [*how_measured(table), *said, ties]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return [*spectra_figures(table), breakdown(table, SETTINGS)]


STUDY = RandomInit()
