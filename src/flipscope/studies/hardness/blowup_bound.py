"""The explicit-constant bounds of paper 001 on hundreds of models, and Theorem 6 at finite n (Fact 1, Thms 4, 6)."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import torch
from torch import Tensor

import flipscope.lab as lab
from flipscope.basics.bits import Bits
from flipscope.bounds.hardness import (
    Constants,
    average_bound,
    expected_sensitivity,
    flip_bound,
    layerwise_bound,
    measure,
    product_bound,
    sharpness_lower_bound,
)
from flipscope.bounds.hardness.overview import string_sensitivities
from flipscope.cube.spectrum import RealSpectrum
from flipscope.models.transformer import Transformer
from flipscope.probes.sharpness import sharpnesses
from flipscope.studies.hardness import norm_blowup, sharpness_by_length
from flipscope.studies.hardness._bounds import KINDS, claims, panels
from flipscope.studies.hardness._lengths import LONG_WIDTH
from flipscope.studies.hardness._made import NORMS, Made, made
from flipscope.studies.hardness._shared import DRAWS, SIGNS, STD, Training, recipe_of, strings_of

GAP_BITS = 10  # up to which the sensitivity of every perturbed model is exact
STRINGS = 64  # on which bounds are tried, or the whole cube


def slacks(model: Transformer, bits: Bits) -> dict[str, float | None]:
    """log10 of each bound over what it bounds, at the string where that is least; None where nothing is bounded."""
    own = Constants.of(model, bits.shape[1])
    seen = string_sensitivities(model, bits)
    found = list(measure(model, bits))
    bare = [dataclasses.replace(each, focus=()) for each in found]
    forms = {
        "product": [product_bound(own, each.log_blowup) for each in found],
        "layers": [layerwise_bound(own, each) for each in bare],
        "focus": [layerwise_bound(own, each) for each in found],
    }
    some = np.flatnonzero(~(seen <= 0))
    out: dict[str, float | None] = {"sensitivity": float(seen.max()), "mean_sensitivity": float(seen.mean())}
    for name, bounds in forms.items():
        logs = [((bounds[i].log - math.log(seen[i])) / math.log(10), math.log10(seen[i])) for i in some]
        # NaN comes first: it is not to be hidden by the other strings.
        out[name], out[f"{name}_at"] = min(logs, key=_nan_first, default=(None, None))
        out[f"{name}_says"] = sum(not bound.vacuous for bound in bounds) / len(bounds)
    if len(some):
        average = average_bound(own, [each.log_blowup for each in found]).log - math.log(seen.mean())
        every = flip_bound(own).sensitivity.log - math.log(seen.max())
        out |= {"average": average / math.log(10), "every": None if every == math.inf else every / math.log(10)}
    if own.norms and all(step.norm == "after" for step in own.steps):
        out["random_says"] = float(not expected_sensitivity(own, STD).vacuous)
    return out


def _nan_first(pair: tuple[float, float]) -> float:
    return -math.inf if math.isnan(pair[0]) else pair[0]


def gap(model: Transformer, length: int, seed: int) -> dict[str, float]:
    """Sharpness of the answers as signs, its lower bound by Eq 11, and the mean average sensitivity it is made from."""
    bits = strings_of(length, 1 << length, seed)
    moved = sharpnesses(
        model, bits, np.zeros(len(bits), np.float32), measures=("prediction", "loss"), loss=_sensitivity,
        std=STD, draws=DRAWS, seed=seed,
    )  # fmt: skip
    own = moved["loss"].loss
    assert own is not None
    perturbed = own + float(moved["loss"].draws.mean())
    with torch.no_grad():
        weights = RealSpectrum.of(2 * model(torch.from_numpy(bits)).double().numpy() - 1).weight_by_degree()
    bound = sharpness_lower_bound(weights, max(0.0, perturbed))
    return {"sharpness": SIGNS * moved["prediction"].value.value, "gap": bound, "as": own, "as_perturbed": perturbed}


def _sensitivity(outputs: Tensor, targets: Tensor) -> Tensor:
    """as_n of 2 T - 1 from the outputs on the whole cube, in the order of truth tables."""
    cube = outputs.double().reshape((2,) * (len(outputs).bit_length() - 1))
    return torch.stack([cube.diff(dim=axis).square().mean() for axis in range(cube.ndim)]).sum()


class BlowupBound(lab.Study):
    """Whether the bounds with their constants hold, how loose they are, and what Theorem 6 says at finite n."""

    name, paper = "blowup-bound", "001"
    title = "What weights and blowup allow of sensitivity, against what is measured"
    figures = ("Fact 1", "Thm 4", "Cor 5", "Thm 6")
    scales = lab.scales(
        "{random} random, {constructed} constructed and {adversarial} adversarial models, and {trained} trained ones "
        "of sharpness-by-length and norm-blowup",
        smoke=(0.1, {"random": 6, "constructed": 2, "adversarial": 1, "trained": 2}),
        laptop=(10, {"random": 162, "constructed": 24, "adversarial": 20, "trained": 150}),
        paper=(20_000, {"random": 1_620, "constructed": 24, "adversarial": 1_000, "trained": 4_080}),
    )
    deviations = lab.deviations(
        ("constants", "inside O(·)", "from the weights, derived here", "docs/hardness-bounds.md"),
        (
            "Thm 4",
            "with probability 1 - H/n^2",
            "for every string, the attention logits in the constant",
            "derived here",
        ),
        (
            "random, constructed, adversarial, trained",
            "nothing measured",
            "laptop: 162, 24, 20, 150; smoke: 6, 2, 1, 2; the paper's scale has more of each",
            "time",
        ),
        ("Thm 6", "as n grows", f"at n up to {GAP_BITS}, by the measured as_n of perturbed models", "to be compared"),
    )
    claims = claims()

    def trials(self, scale: str) -> list[Made | Training]:
        plan = self.scales[scale].settings
        searched = norm_blowup.STUDY.trials(scale)
        lengths = [each for each in sharpness_by_length.STUDY.trials(scale) if each.width != LONG_WIDTH]
        settings = itertools.product(
            range(-(-plan["random"] // 81)), (4, 8, 16), (0.0, 1e-5, 1.0), (0.3, 1.0, 3.0), NORMS
        )
        random = [Made("random", n, 16, size, eps, norm, seed, STRINGS) for seed, n, eps, size, norm in settings]
        by_hand = itertools.product((4, 8, 16, 24), (2.0, 10.0, 100.0), (1e-5, 1e-3))
        constructed = [Made("constructed", n, 32, gain, eps, "post", 0, STRINGS) for n, gain, eps in by_hand]
        climbs = itertools.product(range(-(-plan["adversarial"] // 4)), (4, 6), (1e-5, 1e-2))
        adversarial = [Made("adversarial", n, 8, 1.0, eps, "post", seed, STRINGS) for seed, n, eps in climbs]
        kinds = {"random": random, "constructed": constructed, "adversarial": adversarial}
        chosen = [each for kind, trials in kinds.items() for each in trials[: plan[kind]]]
        return [*chosen, *[*lengths, *searched][: plan["trained"]]]

    def measure(self, trial: Made | Training, progress: lab.Progress) -> lab.Outcome:
        if isinstance(trial, Made):
            return slacks(made(trial), strings_of(trial.length, trial.strings, trial.seed))
        model = lab.trained(recipe_of(trial), progress).model
        assert isinstance(model, Transformer)
        found = slacks(model, strings_of(trial.length, STRINGS, trial.seed))
        return {**found, **(gap(model, trial.length, trial.seed) if trial.length <= GAP_BITS else {})}

    def row(self, trial: Made | Training, outcome: lab.Outcome) -> lab.Row:
        return {"kind": "trained", **super().row(trial, outcome)}

    def provenance(self, table: lab.Rows) -> list[str]:
        return [f"{len(rows)} {kind} models" for kind, rows in table.each("kind", KINDS) if rows]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return panels(table, self.title)


STUDY = BlowupBound()
