"""How often the blowup of a random transformer is large at eps = 0, against its bound (Lem 4.2)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

import flipscope.lab as lab
from flipscope.basics.seeds import generators, random_strings
from flipscope.bounds.geometry import blowup_tail
from flipscope.models.init import initialise
from flipscope.models.presets import recognizer
from flipscope.models.transformer import Transformer
from flipscope.probes.blowup import blowup

SHAPES, LENGTH = ((3, 1), (4, 1), (6, 1), (4, 2)), 16  # width and layers of the models; length of the strings
TAIL, FEWEST, SLACK = (
    0.01,
    20,
    0.8,
)  # share of models in the tail; fewest models there; part of D - 1 that the exponent must reach
BOUNDS = (0.5, 0.1, 0.02)  # the tail is compared with its bound at the levels where the bound has these values
NAME = "D = {}, L = {}"  # of a shape


@dataclass(frozen=True)
class Tail(lab.Trial):
    """The blowup of random recognisers at eps = 0, parameters uniform in [-1, 1], on one random string each."""

    width: int
    layers: int
    seed: int
    models: int

    @property
    def cost(self) -> float:
        return float(self.models)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        model = Transformer(recognizer(self.width, self.layers, eps=0.0)).double()
        drawn = ((initialise(model, "uniform", stream), stream) for stream in generators(self.seed, self.models))
        blowups = (blowup(model, random_strings(stream, 1, LENGTH)) for model, stream in drawn)
        return {"largest": np.array([each.tau.max() - 1 for each in blowups])}  # the largest z anywhere in a model


def _exponent(shape: tuple[int, int], rows: lab.Rows, confidence: float) -> lab.Judgement:
    values, name = rows.pooled("largest"), f"tail exponent over D - 1, {NAME.format(*shape)}"
    if (kept := int(TAIL * len(values))) < FEWEST:
        return lab.Judgement.without(f"{name}: too few models", f"at least {FEWEST / TAIL:,.0f} models per shape")
    relative = lab.tail_exponent(values, kept, confidence).scaled(1 / (shape[0] - 1))
    return lab.at_least(relative, SLACK, name, unit="models")


def _level(shape: tuple[int, int], bound: float) -> float:
    """The level at which the bound has this value; it falls like a power."""
    far = 1e6
    return float(far * (blowup_tail(*shape, LENGTH, 1.0, far) / bound) ** (1 / (shape[0] - 1)))


def _below_bound(shape: tuple[int, int], rows: lab.Rows, confidence: float) -> lab.Judgement:
    values, parts = np.array(rows.pooled("largest")), []
    for bound in BOUNDS:
        level = _level(shape, bound)
        beyond = int(np.count_nonzero(~(values <= level)))  # NaN counts as beyond
        name = f"share of models beyond {level:.3g} over the bound {bound:g} there, {NAME.format(*shape)}"
        relative = lab.share(beyond, len(values), confidence).scaled(1 / bound)
        parts.append(lab.at_most(relative, 1.0, name, f"{beyond} of {len(values)} models", "models"))
    return lab.all_of(lab.weakest_first(parts))


class BlowupTail(lab.Study):
    """Whether a random last bias keeps the blowup small although eps = 0."""

    name, paper = "blowup-tail", "000"
    title = "Tail of the blowup of random transformers at eps = 0"
    sample_sizes = ("blocks",)
    scales = lab.scales(
        "{blocks:,} times {models:,} models of (D, L) in {shapes}",
        common={"first_seed": 0},
        smoke=(0.1, {"shapes": SHAPES[:1], "blocks": 3, "models": 50}),
        demo=(0.1, {"shapes": SHAPES[:1], "blocks": 4, "models": 500}),
        laptop=(1.5, {"shapes": SHAPES, "blocks": 12, "models": 1000}),
        paper=(30, {"shapes": SHAPES, "blocks": 1000, "models": 250}),
    )
    deviations = lab.deviations(
        ("experiment", "a lemma, nothing measured", "random models", "it states what can be counted"),
        ("shapes, blocks, models (up to laptop)", "not stated", "fewer than at scale paper", "to take minutes"),
        ("constant of Lem 4.2", "in O(.)", "derived (docs/geometry.md)", "an O(.) cannot be tested by numbers"),
        ("randomness", "last biases", "all parameters, in [-1, 1]", "as § 6 draws them; the case rho = 1"),
    )
    claims = (
        lab.Claim(
            "light tail of the blowup",
            "Lem 4.2",
            "at eps = 0 a random transformer's blowup exceeds t with probability of order t^-(D-1) at most",
            f"Hill's exponent of the {100 * TAIL:g} % largest is at least {SLACK} (D-1), for all shapes together",
            lambda table: lab.for_each(table.by("width", "layers"), _exponent, missing="no blowup was measured"),
        ),
        lab.Claim(
            "explicit tail bound of the blowup",
            "Lem 4.2",
            "the same with explicit constants in place of O(.)",
            f"share of models beyond the levels where the bound is {', '.join(map(str, BOUNDS))}, over it: at most 1",
            lambda table: lab.for_each(
                table.by("width", "layers"), _below_bound, intervals=len(BOUNDS), missing="no blowup was measured"
            ),
        ),
    )

    def trials(self, scale: str) -> list[Tail]:
        plan = self.scales[scale].settings
        chosen = itertools.product(plan["shapes"], range(plan["first_seed"], plan["first_seed"] + plan["blocks"]))
        return [Tail(width, layers, seed, plan["models"]) for (width, layers), seed in chosen]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        tails, bounds = [], []
        for colour, (shape, rows) in enumerate(table.by("width", "layers")):
            tails.append(lab.survival(NAME.format(*shape), rows.pooled("largest"), colour=colour))
            levels = [_level(shape, bound) for bound in (1.0, 1e-4)]
            bounds.append(lab.Series(f"{tails[-1].label}, bound", levels, [1.0, 1e-4], dashed=True, colour=colour))
        panel = lab.Panel("", "t", "share of models with max z > t", [*tails, *bounds], x_log=True, y_log=True)
        caption = "Lines of slope -(D-1) are predicted, below the dashed bounds, which begin where they are 1."
        return [lab.Figure("blowup-tail", self.title, caption, [panel], columns=1, where="Lem 4.2")]


STUDY = BlowupTail()
