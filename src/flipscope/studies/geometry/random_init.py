"""Sensitivity spectra and average sensitivities of randomly initialised transformers (App. F.1, Figs 3 left and 4)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import flipscope.lab as lab
from flipscope.basics.estimates import mean_from_samples
from flipscope.probes.sensitivity import Options
from flipscope.studies.geometry._shared import how_measured, screen_error, spectrum_panel
from flipscope.studies.geometry.random_models import INITS, Draw, Plan, joined, measured

NEAR, MOST = 1 / 20, 1 / 2  # of N: sensitivity near 0; share of strings, or of models, that is most of them
CLUSTER = 1.0  # averages below this are in the cluster at 0
TAIL, THIN = 1 / 10, 1 / 10  # of N: averages in the tail; share of all models that a thin tail may hold
FAR = 1 / 2  # of the N/2 of a random function
Judge = Callable[[lab.Rows], lab.Judgement]


def _strings(init: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
    near = [sum(row["profile"][: int(NEAR * row["length"]) + 1]) / row["strings"] for row in rows]
    found = mean_from_samples(near, 0, 1, confidence)
    judged = lab.at_least(found, MOST, f"share of strings with sensitivity at most N/{1 / NEAR:g}, {init}")
    return lab.with_fewest(judged, found, 1 - MOST, "models per initialisation")


def _averages(init: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
    found = lab.share_of(rows, lambda row: row["average_sensitivity"] < CLUSTER, confidence)
    judged = lab.at_least(found, MOST, f"share of models with average sensitivity below {CLUSTER:g}, {init}")
    return lab.with_fewest(judged, found, 1 - MOST, "models per initialisation")


def _mean(init: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
    found = mean_from_samples(rows.column("average_sensitivity"), 0, length := rows[0]["length"], confidence)
    judged = lab.at_most(found.scaled(2 / length), FAR, f"mean average sensitivity in units of N/2, {init}")
    return lab.with_fewest(judged, found, FAR / 2, "models per initialisation")


def _thin(table: lab.Rows) -> lab.Judgement:
    # The models of one initialisation are not distributed like those of another, but the binomial interval of
    # equally many of each is then too wide rather than too narrow (Hoeffding 1956).
    found = lab.share_of(table, lambda row: row["average_sensitivity"] >= TAIL * row["length"], 1 - 0.05 / 5)
    judged = lab.at_most(found, THIN, f"share of all models with average sensitivity of at least N/{1 / TAIL:g}")
    return lab.with_fewest(judged, found, THIN, "models")


def _judge(one: Callable[[str, lab.Rows, float], lab.Judgement], *whole: Judge) -> Judge:
    """A judge of each initialisation and of the whole, undecided where the screen has not been audited enough."""

    def judge(table: lab.Rows) -> lab.Judgement:
        inits = table.each("init", INITS)
        each = lab.for_each(inits, one, missing="no model is done", besides=len(whole), sort=True, what="schemes")
        judged, hidden = lab.all_of([each, *(part(table) for part in whole)]), screen_error(table)[1]
        if hidden <= CLUSTER:
            return judged
        return judged.left_open(f"the screen could hide {hidden:.3g} of an average", "a larger audit of the screen")

    return judge


class RandomInit(lab.Study):
    """Whether random transformers are insensitive, whatever the initialisation."""

    name, paper, figures = "random-init", "000", ("Fig 3 left", "Fig 4")
    title = "Sensitivity spectra and average sensitivities of randomly initialised transformers"
    scales = lab.scales(
        "4 initialisations, {data_sets} data sets, {models} transformers each, N = {length}, width at most {widest}, "
        "{strings[0]:,} to {strings[1]:,} strings per transformer",
        smoke=(0.1, Plan(3, 1, 40, (20, 60), 0.2, (30, 1.0), 64)),
        demo=(0.6, Plan(1, 50, 100, (30, 100), 0.2, (30, 600.0), 32)),
        laptop=(20, Plan(24, 1, 100, (100, 2_000), 8.0, (50, 600.0), 1024)),
        paper=(45_000, Plan(10, 50, 100, (10_000, 10_000), 600.0, (100, 600.0), 1024)),
    )
    deviations = lab.deviations(
        ("flips of dear models", "all computed", "screened, with an audit", "months otherwise"),
        ("strings per model (laptop)", "10,000", "100 to 2,000", "as many as take 8 seconds"),
        ("models (laptop)", "500 per initialisation", "24, each with its own strings", "20 minutes"),
        ("models (demo)", "500 per initialisation", "50, of widths 16 and 32", "half a minute"),
        ("strings per model (demo)", "10,000", "30 to 100", "the mean over models is what is judged"),
        ("eps", "a small constant", "1e-5", "silent; PyTorch's"),
        ("Xavier biases", "drawn like the weights, gain 1", "PyTorch's law", "a vector has no fans"),
        ("Thm 4.5", "eps = 0, said to predict Fig 3", "measured with eps > 0", "contradicts § 6, App. F"),
    )
    claims = (
        lab.Claim(
            "most strings are insensitive",
            "Figs 3 and 4, top",
            "under every initialisation the vast majority of strings have sensitivity 0 or close to 0",
            f"share of strings with sensitivity at most N/{1 / NEAR:g}, averaged over models: more than {MOST:g} under "
            "each initialisation",
            _judge(_strings),
        ),
        lab.Claim(
            "average sensitivities cluster at 0",
            "Figs 3 and 4, bottom",
            "average sensitivities cluster tightly near 0, with a thin tail",
            f"share of models below {CLUSTER:g}: more than {MOST:g} under each initialisation; share of all models "
            f"with N/{1 / TAIL:g} or more: less than {THIN:g}",
            _judge(_averages, _thin),
        ),
        lab.Claim(
            "random transformers are far below a random function",
            "Figs 3 and 4, bottom",
            "random transformers are far less sensitive than the N/2 of a random function",
            f"mean average sensitivity over models: less than {FAR:g} of N/2 under each initialisation",
            _judge(_mean),
        ),
    )

    def trials(self, scale: str) -> list[Draw]:
        plan = self.scales[scale].settings
        drawn = itertools.product(INITS, range(plan.data_sets), range(plan.models))
        return [draw for chosen in drawn for draw in plan.draws(*chosen)]

    def measure(self, trial: Draw, progress: lab.Progress) -> lab.Outcome:
        options: Options = {"heuristic": trial.screened, "progress": progress}
        found = measured(trial.shape, trial.init, trial.seed, trial.strings(), **options)
        signs = {name: getattr(found, name) for name in ("counts", "path", "precision", "rechecked", "near_ties")}
        guesses = {name: getattr(found.screening, name, 0) for name in ("skipped", "audited", "wrong")}
        return {"config": trial.shape.as_dict(), **signs, **guesses}

    def row(self, trial: Any, outcome: lab.Outcome) -> lab.Row:
        return {**trial.content(), **outcome, "seed": trial.seed}

    def summarise(self, results: Sequence[lab.Result]) -> lab.Rows:
        rows = lab.Rows({**self.row(each.trial, each.outcome), "seconds": each.seconds} for each in results)
        models = (own for _, inits in rows.each("init", INITS) for _, own in inits.by("data_set", "model"))
        return lab.Rows(map(joined, models))

    def provenance(self, table: lab.Rows) -> list[str]:
        return how_measured(table)

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        spectra, averages, half = [], [], table[0]["length"] / 2
        for init, rows in sorted(table.by("init"), key=lambda group: INITS.index(group[0])):
            title, colour = f"{init.replace('_', ' ').capitalize()}, {len(rows)} transformers", INITS.index(init)
            shares = np.mean([np.array(row["profile"]) / row["strings"] for row in rows], axis=0)
            bins = np.bincount([int(row["average_sensitivity"]) for row in rows], minlength=len(shares)) / len(rows)
            shown = [lab.bars(title, heights, colour=colour) for heights in (shares, bins)]
            spectra.append(spectrum_panel(title, "sensitivity", "share of strings", shown[:1], half))
            averages.append(spectrum_panel(title, "average sensitivity", "share of transformers", shown[1:], half))
        every = "Share of the strings at each sensitivity, on a log scale. Every transformer counts the same."
        bits = "Share of the transformers by average sensitivity, in bins of one bit, on a log scale to show the tail."
        top, bottom = "Sensitivity spectra", "Distribution of average sensitivities"
        return [
            lab.Figure("random-init-spectra", top, every, spectra, where="Figs 3 and 4, top"),
            lab.Figure("random-init-averages", bottom, bits, averages, where="Figs 3 and 4, bottom"),
        ]


STUDY = RandomInit()
