"""Testers of degree and sparsity: what they find of targets, written-down networks and learned models (Fig 8)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import flipscope.lab as lab
from flipscope.studies.sharper._learned import DEGREES, LAPTOP, LONG, PAPER, SMOKE, counted, places
from flipscope.studies.sharper._tester_claims import (
    CLOSE,
    COARSE,
    LARGE,
    judge_bounds,
    judge_degrees,
    judge_learned,
    judge_one_sided,
    judge_short,
    judge_wilting,
    judge_written,
)
from flipscope.studies.sharper._tester_figures import drawn
from flipscope.studies.sharper._testers import (
    LEARNED_TAIL,
    TAIL,
    TOLERANCE,
    Learned,
    Target,
    Written,
    asked_learned,
    asked_target,
    asked_written,
    learned_row,
    target_row,
)

SPARSITIES, MODELS = (1, 7, 14, 20), (1, 4, 7, 10)


class FourierTesters(lab.Study):
    """Whether the class of a function is found by queries alone."""

    name, paper, figures = "fourier-testers", "002", ("Fig 8",)
    title = "Degree and sparsity by property testers"
    scales = lab.scales(
        "{functions} functions of {length} bits of each degree in {degrees} and sparsity in {sparsities}, {written} "
        "networks written down for each, {models} learned models for each sparsity in {learned}",
        smoke=(0.1, {"length": 8, "degrees": (1, 2), "sparsities": (1, 3), "functions": 2, "written": 1, "models": 1}
               | {"learned": (1, 2), "training": SMOKE, "long": None, "free": 6, "trials": 50}),
        laptop=(27, {"length": 20, "degrees": DEGREES, "sparsities": SPARSITIES, "functions": 8, "written": 2}
                | {"models": 3, "learned": MODELS, "training": LAPTOP, "long": LONG, "free": 12, "trials": 1_000}),
        paper=(200_000, {"length": 20, "degrees": DEGREES, "sparsities": SPARSITIES, "functions": 8, "written": 8}
               | {"models": 11, "learned": SPARSITIES, "training": PAPER, "long": None, "free": 16, "trials": 1_000}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("degree tester", "d + 2 points, interpolation", "2^(d+1) points, one group frozen (B11)", "for real values"),
        (
            "its proximity, confidence",
            "lost",
            "1,000 trials for each degree, of learned models 300",
            "tolerance is 1e-9",
        ),
        (
            "sparsity tester",
            "free coordinates, ε, δ lost",
            f"12 of 20 free (paper scale 16, learned 10), 12 restrictions, ε = {TAIL:g}",
            "silent",
        ),
        ("sparsity", "of the indicators", "of characters, less 1 for the constant", "indicators have a constant term"),
        ("written-down networks", "not tested", "mask 0, tolerance: their output error", "of no low degree exactly"),
        ("most, usually", "said of both testers", "of at least half of the functions", "silent on numbers"),
        ("learned models", "named, not shown", "those of generalization-gap", "testers are for black boxes"),
        (
            "their training, models, learned sparsities, long arm (laptop)",
            "length 20, 8,192 samples, lr, steps, dropout as there; 11 of 1, 7, 14, 20; none",
            "length 10, 512 samples, lr 1e-3, 4,000 steps, no dropout; 3 of 1, 4, 7, 10; length 20 at sparsity 1",
            "minutes",
        ),
        ("networks written (laptop)", "8 of each class (paper scale)", "2", "minutes"),
        ("their range", "silent", "the target's and 1 more; outputs beyond are cut off", "no norm bounds them"),
        ("their tolerances", "silent", f"{TOLERANCE:g} for degree, ε = {LEARNED_TAIL:g}", "loss ends at 0.02"),
    )
    claims = (
        lab.Claim("the degree is found for most functions", "Fig 8 left",
                  "for most functions the first degree that is accepted is the true one",
                  "share of functions whose first accepted degree is the true one, for each degree from 1 to 5: at "
                  "least a half", judge_degrees, formerly=("the degree is found exactly",), decided_from="laptop"),
        lab.Claim("large sparsities are found too small", "Fig 8 right",
                  "the first sparsity that is accepted falls short of the true one where that is large",
                  f"ω less the mean sparsity found, ω = {LARGE} and more, ε = {TAIL:g}: at least 1; and more is found "
                  "at the largest ω than at the smallest of these", judge_short, decided_from="laptop"),
        lab.Claim("most functions are found no larger than they are", "App. H",
                  "testers usually accept at or below the true level",
                  "share of functions found with no more than their degree and sparsity: at least a half",
                  judge_one_sided, formerly=("nothing is found larger than it is",), decided_from="laptop"),
        lab.Claim("a larger ε finds less", "App. H",
                  "falling short is more pronounced with larger proximity parameters",
                  f"sparsity found at ε = {COARSE:g} less that at {TAIL:g}, ω = {LARGE} and more: at most -1",
                  judge_wilting, decided_from="laptop"),
        lab.Claim("the bound of the class that is found is close", "App. H",
                  "left open: whether what the testers miss matters for the bound",
                  f"truncated bound of the class found over that of the true class, by sparsity: from {CLOSE:g} to "
                  f"1/{CLOSE:g}", judge_bounds, exploratory=True, decided_from="laptop"),
        lab.Claim("written-down networks need a tolerance", "App. B",
                  "left open: with mask 0 positions without a set keep some weight, so that no degree is exact",
                  "degree found with the output error as tolerance: the target's; with none: never", judge_written,
                  exploratory=True, decided_from="laptop"),
        lab.Claim("learned models have their target's degree", "App. H",
                  "left open: whether testers see through what is learned nearly",
                  f"share of learned models whose degree, at tolerance {TOLERANCE:g}, is the target's: at least 0.5",
                  judge_learned("found_degree", "degree"), exploratory=True, decided_from="laptop"),
        lab.Claim("learned models have their target's sparsity", "App. H", "left open, as for the degree",
                  f"share of learned models with the sparsity their target has at ε = {LEARNED_TAIL:g}, where that is "
                  "more than 1, which a constant has: at least 0.5",
                  judge_learned("found_sparsity", "wanted_sparsity", least=1), exploratory=True, decided_from="laptop"),
    )  # fmt: skip

    def trials(self, scale: str) -> list[lab.Trial]:
        plan = self.scales[scale].settings
        length, degrees, trials = plan["length"], plan["degrees"], plan["trials"]
        classes = list(itertools.product(plan["sparsities"], degrees))
        targets = [
            Target(length, *one, seed, plan["free"], trials) for one in classes for seed in range(plan["functions"])
        ]
        written = [Written(length, *one, seed, trials) for one in classes for seed in range(plan["written"])]
        models = [plan["training"] | place for place in places(plan["learned"], degrees, plan["models"])]
        if plan["long"]:
            models += [plan["long"] | place for place in places((1,), degrees, plan["models"])]
        return [*targets, *written, *(Learned(**each) for each in models)]

    def measure(self, trial: Target | Written | Learned, progress: lab.Progress) -> lab.Outcome:
        if isinstance(trial, Learned):
            return asked_learned(trial, progress)
        return asked_target(trial) if isinstance(trial, Target) else asked_written(trial)

    def summarise(self, results: Sequence[lab.Result]) -> lab.Rows:
        rows = lab.Rows()
        for result in results:
            content, outcome = result.trial.content(), result.outcome
            if isinstance(result.trial, Written):
                rows.append({**content, **outcome, "kind": "written"})
            else:
                make = target_row if isinstance(result.trial, Target) else learned_row
                rows.append(make(content, outcome))
        return rows

    def provenance(self, table: lab.Rows) -> list[str]:
        return [f"models, others are not judged: {counted(table.where(kind='learned'))}"]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return drawn(table, self.title)


STUDY = FourierTesters()
