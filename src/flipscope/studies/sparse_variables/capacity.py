"""Covering numbers by length and depth, the capacity that constructions need, and bounds against measured gaps."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import flipscope.lab as lab
from flipscope.studies.sparse_variables._capacities import (
    MAPPINGS,
    RESULTS,
    TEST,
    Constructed,
    Formula,
    Limit,
    Perturbed,
    Trained,
    constructed,
    formula,
    limit,
    perturbed,
    trained,
)
from flipscope.studies.sparse_variables._capacity_claims import AXES, claims, panels

AnyTrial = Formula | Constructed | Limit | Perturbed | Trained
MEASURES: dict[type[lab.Trial], Callable[..., lab.Outcome]] = {
    Formula: formula,
    Constructed: constructed,
    Limit: limit,
    Perturbed: perturbed,
    Trained: trained,
}
RELEVANT = (2, 3, 4, 5, 6)  # bits of the constructions
USUAL = {"length": 50, "samples": 100, "width": 32, "layers": 1}


class Capacity(lab.Study):
    """What the covering theorems say of lengths, of their own constructions, and of networks that were trained."""

    name, paper = "capacity", "003"
    title = "Covering numbers of attention networks, and the generalization they promise"
    figures = ("Lem 2.2", "Thm 4.2", "Cor 4.4", "Thm 4.6", "Prop 4.7")
    scales = lab.scales(
        "T up to 2^{log_length}; {pairs} perturbed pairs; networks on T = {length}, m = {samples}, d = {width}, "
        "L = {layers}, one choice at a time, {seeds} seeds of {steps} steps",
        smoke=(
            0.05,
            {"log_length": 8, "pairs": 10, "length": (20,), "samples": (20,), "width": (16,), "layers": (1,),
             "seeds": 1, "steps": 3},
        ),
        laptop=(
            6,
            {"log_length": 17, "pairs": 4_000, "length": (20, 50, 100, 200), "samples": (50, 100, 200, 400),
             "width": (16, 32, 64), "layers": (1, 2, 3), "seeds": 8, "steps": 500},
        ),
        paper=(
            3_000,
            {"log_length": 20, "pairs": 40_000, "length": (50, 100, 200, 400, 800),
             "samples": (50, 100, 200, 500, 1_000), "width": (16, 32, 64, 128), "layers": (1, 2, 3, 4),
             "seeds": 50, "steps": 5_000},
        ),
    )  # fmt: skip
    deviations = lab.deviations(
        ("constants", 'hidden by "<~"', "36, 144, C = 2, c = 12, each ceil", "a bound without them is none"),
        ("vectors to cover", "m T", "m (T + 1)", "[CLS] is one of them"),
        ("Lem 2.2", "one formula", "4 c L A where it would fall", "for K > e A the formula is negative"),
        ("Thm A.17", "alpha_i is a product over j < i", "over j > i", "an error passes the layers after it"),
        ("norms", "fixed before the data", "those of the trained model, rounded up on a grid", "delta is shared"),
        ("networks", "none were measured", f"AND of 3 bits, Adam on all strings, gap on {TEST} others", "ours"),
        ("gap by T", "samples for a gap", "the gap at fixed m", "it jumps where m is too small; sparse-and asks for m"),
    )
    claims = claims()

    def trials(self, scale: str) -> list[AnyTrial]:
        plan = self.scales[scale].settings
        lengths = [2**power for power in range(4, plan["log_length"] + 1)]
        formulas = [Formula(result, length) for result in RESULTS for length in lengths]
        deep = [Formula("Thm A.17", lengths[0], layers) for layers in range(2, 7)]
        made = [Constructed(*each) for each in itertools.product(MAPPINGS, lengths, RELEVANT)]
        limits = [Limit(*each) for each in itertools.product(MAPPINGS, RELEVANT)]
        pairs = [Perturbed(seed, plan["pairs"] // 10) for seed in range(10)]
        shapes = [USUAL | {axis: value} for axis in AXES for value in plan[axis]]
        chosen = {tuple(shape.values()): shape for shape in shapes}.values()
        models = [Trained(**shape, seed=seed, steps=plan["steps"]) for shape in chosen for seed in range(plan["seeds"])]
        return [*formulas, *deep, *made, *limits, *pairs, *models]

    def measure(self, trial: AnyTrial, progress: lab.Progress) -> lab.Outcome:
        return MEASURES[type(trial)](trial)

    def row(self, trial: AnyTrial, outcome: lab.Outcome) -> lab.Row:
        return {"kind": type(trial).__name__.lower(), **super().row(trial, outcome)}

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return panels(table)


STUDY = Capacity()
