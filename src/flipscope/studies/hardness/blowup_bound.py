"""The explicit-constant bounds of paper 001 on hundreds of models, and Theorem 6 at finite n (Fact 1, Thms 4, 6).

Theorem 4, Corollary 5 and Fact 1 bound sensitivity by weights and blowup; with constants that are derived from the
weights (docs/hardness-bounds.md) they can be tested on models: on random ones, on a hand-made PARITY, on models that
are optimised towards their bound, and on the trained models of sharpness-by-length and norm-blowup. For the trained
models the study also measures what Theorem 6 assumes, that perturbations reduce sensitivity, and how much of the
sharpness the Fourier gap between a model and its perturbations explains.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

import flipscope.lab as lab
from flipscope.adapters.hooks import watching
from flipscope.basics.bits import Bits
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
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
from flipscope.lab import quantities
from flipscope.models.init import initialise
from flipscope.models.presets import hardness
from flipscope.models.transformer import Block, LayerNorm, Transformer
from flipscope.probes.sharpness import sharpnesses
from flipscope.studies.hardness import norm_blowup, sharpness_by_length
from flipscope.studies.hardness.shared import DRAWS, STD, Training, strings_of
from flipscope.training.targets import SIGN_SCALE

Norm = Literal["post", "pre", "none"]
NORMS: tuple[Norm, ...] = ("post", "pre", "none")
KINDS = ("random", "constructed", "adversarial", "trained")
STRINGS = 64  # on which bounds are tested, or the whole cube
GAP_BITS = 10  # lengths up to this have exact sensitivities of every perturbed model
ROUNDS, STEPS, RATE = 4, 25, 0.02  # of an ascent: the true bound is computed after each round

FORMS = {
    "product": ("Thm 4", "s(x, T) is at most C^2 Blowup(x)^2 J / 4"),
    "layers": ("Thm 4, layer by layer", "the same, with the factor of each norm at each position"),
    "focus": ("Thm 4, with attention", "the same, with the attention weights on the string"),
    "average": ("Cor 5", "as_n(T) is at most C^2 J E[Blowup^2] / 4"),
    "every": ("Fact 1", "for eps > 0 or without norms s(x, T) is bounded on every string"),
}
ROUNDING = 1e-6  # of log10
FEWEST = 100  # fewest models for a claim that holds without exception
FEWEST_LENGTHS = 3  # for a line through them
CLOSE = 2.0  # powers of ten
TIGHT = 0.5  # of the sharpness measured


# ---------------------------------------------------------------- models that are not trained


@dataclass(frozen=True)
class Made(lab.Trial):
    """A model that is not trained: `scale` multiplies random weights, or weighs attention against a position's bit."""

    tag = "made"

    kind: Literal["random", "constructed", "adversarial"]
    length: int
    width: int
    scale: float
    eps: float
    norm: Norm
    seed: int
    strings: int

    @property
    def cost(self) -> float:
        """About as much as a hundred steps of a training."""
        return 3e10

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        return slacks(made(self), strings_of(self.length, self.strings, self.seed))


@dataclass(frozen=True)
class Trained(Training):
    """A model that other studies train as well, measured against the bounds."""

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        model = lab.trained(self.recipe, progress).model
        assert isinstance(model, Transformer)
        by_form = slacks(model, strings_of(self.length, STRINGS, self.seed))
        return {**by_form, **(gap(model, self.length, self.seed) if self.length <= GAP_BITS else {})}


def made(trial: Made) -> Transformer:
    """The model of a trial, in float64."""
    config = dataclasses.replace(hardness(trial.length, trial.width), eps=trial.eps, norm=trial.norm)
    model = Transformer(config, scheme="gaussian", seed=trial.seed, dtype=torch.float64)
    if trial.kind == "constructed":
        return parity_by_hand(model, trial.length, trial.scale * trial.length)
    initialise(model, "gaussian", trial.seed, scale=trial.scale / math.sqrt(trial.width))
    if trial.kind == "random":
        return model
    return ascended(model, strings_of(trial.length, trial.strings, trial.seed))


@torch.no_grad()
def parity_by_hand(model: Transformer, length: int, gain: float) -> Transformer:
    """Approximate PARITY on {0, 1} in a model of `hardness()`: attention counts, the MLP's ReLUs fold the count.

    Uniform attention adds `gain` times the mean of the bits, as ±1, along a direction u of mean zero, and a bias along
    another, v. After the norm this is an increasing function of the count, up to the position's own bit, 1 / gain of
    it. A sum of n ReLUs alternates between its values at the counts and is written along w, which is read; the second
    layer passes it on.
    """
    width = model.config.width
    if width < 8 or width < length:
        raise InputError(f"width={width} must be at least 8 and the length {length}, for as many ReLUs")
    for parameter in model.parameters():
        parameter.zero_()
    for module in model.modules():
        if isinstance(module, LayerNorm):
            module.reset_parameters()
    u, w, v = (torch.zeros(width, dtype=torch.float64) for _ in range(3))
    for vector, place in ((u, 0), (w, 2), (v, width // 2)):
        vector[place], vector[place + 1] = math.sqrt(0.5), -math.sqrt(0.5)
    assert model.embedding.symbol is not None
    model.embedding.symbol.weight.copy_(torch.stack([-u, u])[:, : width // 2] / gain)
    block = cast("Block", model.blocks[0])
    assert block.attention.output is not None
    assert block.mlp is not None
    block.attention.value.weight.copy_(torch.eye(width))
    block.attention.output.weight.copy_(gain * torch.outer(u, u))
    block.attention.output.bias.copy_(v)
    level = np.linspace(-1, 1, length + 1)  # the mean of the bits at each count
    knots = math.sqrt(width) * level / np.sqrt(level**2 + 1 + width * model.config.eps)  # along u after the norm
    height = math.sqrt(width) * (-1.0) ** np.arange(1, length + 2)
    slopes = np.diff(height) / np.diff(knots)
    block.mlp.up.weight[:length] = u
    block.mlp.up.bias[:length] = torch.from_numpy(-knots[:-1])
    block.mlp.down.weight[:, :length] = torch.outer(w, torch.from_numpy(np.diff(slopes, prepend=0.0)))
    block.mlp.down.bias.copy_(float(height[0]) * w)
    model.head.weight.copy_(w[None] / math.sqrt(2 * width))  # w is sqrt(width / 2) after the norm
    if model.head.bias is not None:
        model.head.bias.fill_(0.5)
    return model


def ascended(model: Transformer, strings: Bits) -> Transformer:
    """The model closest to its bound in a gradient ascent of s(x, T) / Blowup(x)^2 on one string, its norm fixed."""
    bits = torch.from_numpy(strings[:1].astype(np.int64))
    flips = torch.cat([bits, bits ^ torch.eye(bits.shape[1], dtype=torch.int64)])  # the string, then its flips
    parameters = list(model.parameters())
    size = _norm(parameters)
    climber = torch.optim.Adam(parameters, lr=RATE)
    best, nearest = copy.deepcopy(model), slack(model, strings[:1])
    for _ in range(ROUNDS):
        for _ in range(STEPS):
            climber.zero_grad()
            (-_height(model, flips)).backward()
            climber.step()
            with torch.no_grad():
                factor = size / _norm(parameters)
                for parameter in parameters:
                    parameter.mul_(factor)
        distance = slack(model, strings[:1])
        if distance < nearest:
            best, nearest = copy.deepcopy(model), distance
    return best


def _height(model: Transformer, flips: Tensor) -> Tensor:
    """ln of s(x, T) / Blowup(x)^2, x being the first string and the others its flips."""
    logs: list[Tensor] = []

    def visit(name: str, module: nn.Module, x: Tensor) -> None:
        assert isinstance(module, LayerNorm)
        logs.append(torch.log1p(module.normalizer(x[0]).amax()))

    norms = {name: module for name, module in model.named_modules() if isinstance(module, LayerNorm)}
    with watching(norms, inputs=visit):
        out = model.read(model.states(flips)[-1])
    return ((out[1:] - out[0]).square().sum() / 4 + 1e-300).log() - 2 * sum(logs, torch.zeros(()))


def slack(model: Transformer, strings: Bits) -> float:
    """ln of the bound of Eq 6 over s(x, T) on one string; infinite where nothing changes."""
    (sensitivity,) = string_sensitivities(model, strings)
    (measured,) = measure(model, strings, attention=False)
    bound = product_bound(Constants.of(model, strings.shape[1]), measured.log_blowup).log
    return bound - math.log(sensitivity) if sensitivity > 0 else math.inf


def _norm(parameters: list[nn.Parameter]) -> float:
    return math.sqrt(sum(float(parameter.detach().square().sum()) for parameter in parameters))


# ---------------------------------------------------------------- measurements


def slacks(model: Transformer, bits: Bits) -> dict[str, float | None]:
    """log10 of each bound over the bounded quantity, at the string where it is least; None where that quantity is 0."""
    constants = Constants.of(model, bits.shape[1])
    sensitivities = string_sensitivities(model, bits)
    measured = list(measure(model, bits))
    without_attention = [dataclasses.replace(each, focus=()) for each in measured]
    forms = {
        "product": [product_bound(constants, each.log_blowup) for each in measured],
        "layers": [layerwise_bound(constants, each) for each in without_attention],
        "focus": [layerwise_bound(constants, each) for each in measured],
    }
    some = np.flatnonzero(~(sensitivities <= 0))
    out: dict[str, float | None] = {
        "sensitivity": float(sensitivities.max()),
        "mean_sensitivity": float(sensitivities.mean()),
    }
    for name, bounds in forms.items():
        logs = [
            ((bounds[i].log - math.log(sensitivities[i])) / math.log(10), math.log10(sensitivities[i])) for i in some
        ]
        # NaN comes first, so that the other strings do not hide it.
        out[name], out[f"{name}_at"] = min(logs, key=_nan_first, default=(None, None))
        out[f"{name}_says"] = sum(not bound.vacuous for bound in bounds) / len(bounds)
    if len(some):
        average = average_bound(constants, [each.log_blowup for each in measured]).log - math.log(sensitivities.mean())
        every = flip_bound(constants).sensitivity.log - math.log(sensitivities.max())
        out |= {"average": average / math.log(10), "every": None if every == math.inf else every / math.log(10)}
    if constants.norms and all(step.norm == "after" for step in constants.steps):
        out["random_says"] = float(not expected_sensitivity(constants, STD).vacuous)
    return out


def _nan_first(pair: tuple[float, float]) -> float:
    return -math.inf if math.isnan(pair[0]) else pair[0]


def gap(model: Transformer, length: int, seed: int) -> dict[str, float]:
    """Sharpness of the answers as signs, its lower bound by Eq 11, and the mean average sensitivity in that bound."""
    bits = strings_of(length, 1 << length, seed)
    moved = sharpnesses(
        model, bits, np.zeros(len(bits), np.float32), measures=("prediction", "loss"), loss=_sensitivity,
        std=STD, draws=DRAWS, seed=seed,
    )  # fmt: skip
    unperturbed = moved["loss"].loss
    assert unperturbed is not None
    perturbed = unperturbed + float(moved["loss"].draws.mean())
    with torch.no_grad():
        weights = RealSpectrum.of(2 * model(torch.from_numpy(bits)).double().numpy() - 1).weight_by_degree()
    return {
        "sharpness": SIGN_SCALE * moved["prediction"].value.value,
        "gap": sharpness_lower_bound(weights, max(0.0, perturbed)),
        "as": unperturbed,
        "as_perturbed": perturbed,
    }


def _sensitivity(outputs: Tensor, targets: Tensor) -> Tensor:
    """as_n of 2 T - 1 from the outputs on the whole cube, in the order of truth tables."""
    cube = outputs.double().reshape((2,) * (len(outputs).bit_length() - 1))
    return torch.stack([cube.diff(dim=axis).square().mean() for axis in range(cube.ndim)]).sum()


# ---------------------------------------------------------------- claims


def never_exceeded(form: str) -> lab.Judge:
    """A judge: no model is above the bound."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.having(form)
        if not rows:
            return lab.Judgement.without("no model has this bound")
        numbers = rows.where(lambda row: not math.isnan(row[form]))
        broken, unknown = sum(row[form] < -ROUNDING for row in numbers), len(rows) - len(numbers)
        tightest = min(numbers, key=lambda row: row[form], default=rows[0])
        note = f"nearest: 10^{tightest[form]:.2g} above what is measured, a {tightest['kind']} model"
        judged = lab.never(broken, len(numbers), "share of models above the bound", note, unknown=unknown)
        return lab.unless_few(judged, len(rows), FEWEST, "models")

    return judge


def judge_gap(table: lab.Rows) -> lab.Judgement:
    """No sharpness is below its Fourier gap."""
    rows = table.having("gap")
    if not rows:
        return lab.Judgement.without("no trained model was perturbed")
    unknown = sum(math.isnan(row["sharpness"]) or math.isnan(row["gap"]) for row in rows)
    broken = sum(row["sharpness"] < row["gap"] * (1 - ROUNDING) - 1e-9 for row in rows)
    what = "share of models flatter than the Fourier gap allows"
    judged = lab.never(broken, len(rows) - unknown, what, unknown=unknown)
    return lab.unless_few(judged, len(rows), FEWEST, "models")


def learned_parity(row: lab.Row) -> bool:
    """Whether a model of PARITY was perturbed and has more than half of its average sensitivity, or NaN."""
    perturbed = row.get("function") == "parity" and row.get("gap") is not None
    return bool(perturbed and not row["as"] <= row["length"] / 2)


def at_the_longest(rows: lab.Rows) -> list[tuple[str, lab.Rows]]:
    """The models of the longest strings."""
    longest = max(rows.column("length"), default=None)
    return [] if longest is None else [(f"n = {longest}", rows.where(length=longest))]


# The share, not what is left per bit: longer PARITY is learned less well, perturbed or not.
LEFT = lab.Column("the share of as_n that perturbations leave", lambda row: row["as_perturbed"] / row["as"])
EXPLAINED = lab.Column(
    "Fourier gap over sharpness",
    lambda row: math.nan if math.isnan(row["as"]) else row["gap"] / row["sharpness"],
)


def slack_of(form: str) -> lab.Quantity:
    """log10 of the bound over the measured value, averaged over the models that have both."""
    column = lab.Column(f"log10 of the {form} bound over s(x, T) at the nearest string", lambda row: row[form])
    return quantities.mean(column, fewest=5).where("models with this bound", lambda row: row.get(form) is not None)


def unless_nothing_varies(judged: lab.Judgement, estimate: Estimate, rows: lab.Rows) -> lab.Judgement:
    """The same judgement, undecided where perturbations leave the same share in every model."""
    left = LEFT.of(rows)
    if max(left) - min(left) > ROUNDING:
        return judged
    return lab.Judgement.without(f"perturbations leave {left[0]:.3g} of as_n in all {len(left)} models, at every n")


def length_note(rows: lab.Rows) -> str:
    """The lengths of the models and the mean share that perturbations leave."""
    lengths, left = rows.values("length"), LEFT.of(rows)
    return f"n from {lengths[0]} to {lengths[-1]}, mean {sum(left) / len(left):.2g}"


LOSS = dataclasses.replace(
    quantities.slope(LEFT, "length", places=FEWEST_LENGTHS),
    remedy=f"the scale laptop, with {FEWEST_LENGTHS} lengths that are learned",
    after=unless_nothing_varies,
).noting(length_note)
CLAIMS = (
    *(
        lab.Claim(
            f"{source}: never exceeded",
            source.partition(",")[0],
            statement,
            f"bound over measured on every model tried, of at least {FEWEST}: never below 1",
            never_exceeded(form),
        )
        for form, (source, statement) in FORMS.items()
    ),
    *(
        lab.claim(
            f"the bound is close, {form}",
            "none: the paper has no constants",
            "the bound is within two orders of magnitude of the measured sensitivity",
            slack_of(form).each("kind", KINDS, words="kind of model", what="kinds") <= CLOSE,
            exploratory=True,
        )
        for form in ("product", "focus")
    ),
    lab.claim(
        "perturbed models of PARITY lose their sensitivity",
        "Thm 6",
        "after a perturbation the average sensitivity is o(n), which makes sensitive functions sharp",
        LOSS.where("models that learned PARITY", learned_parity) <= 0,
        asymptotic=True,
    ),
    lab.Claim(
        "sharpness is never below the Fourier gap",
        "none: a step of the proof of Thm 6",
        "two functions are at least as far apart as their average sensitivities imply: true of any two, so this checks "
        "the measuring code and says nothing about transformers",
        f"measured sharpness over Eq 11 at the measured mean as_n of the perturbed models, at least {FEWEST} of them: "
        "never below 1",
        judge_gap,
        exploratory=True,
    ),
    lab.claim(
        "the gap explains PARITY's sharpness",
        "Thm 6",
        "PARITY is sharp because perturbations destroy its sensitivity",
        quantities.mean(EXPLAINED)
        .where("models that learned PARITY", lambda row: learned_parity(row) and not row["sharpness"] <= 0)
        .grouped("at the longest n", at_the_longest)
        >= TIGHT,
        exploratory=True,
    ),
)


# ---------------------------------------------------------------- figures


def against_bound(table: lab.Rows, form: str) -> lab.Panel:
    """The bound of each model against the bounded quantity, both at the string where they are closest."""
    rows, place = table.having(form), f"{form}_at"
    series = [
        lab.Series(kind, models.column(place), [row[place] + row[form] for row in models], "points", colour=number)
        for number, (kind, models) in enumerate(rows.each("kind", KINDS))
        if models
    ]
    equal = _diagonal(min(rows.column(place)), max(rows.column(place)))
    return lab.Panel(FORMS[form][0], "log10 of s(x, T)", "log10 of its bound", [*series, equal])


def against_gap(rows: lab.Rows) -> lab.Panel:
    """The sharpness of each perturbed model against its Fourier gap."""
    points = lab.points(rows, "gap", "sharpness", "function", lambda row: f"{row['function']}, n = {row['length']}")
    return lab.Panel("", "Fourier gap", "sharpness", [*points, _diagonal(0.0, max(rows.column("gap")))])


def _diagonal(low: float, high: float) -> lab.Series:
    return lab.Series("equal", [low, high], [low, high], dashed=True)


class BlowupBound(lab.Study):
    """Whether the bounds with their constants hold, how loose they are, and what Theorem 6 says at finite n."""

    name, paper = "blowup-bound", "001"
    title = "Bounds on sensitivity from weights and blowup, against measured sensitivity"
    figures = ("Fact 1", "Thm 4", "Cor 5", "Thm 6")
    sample_sizes = ("random", "constructed", "adversarial", "trained")
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
    claims = CLAIMS

    def trials(self, scale: str) -> list[Made | Trained]:
        plan = self.scales[scale].settings
        searched = norm_blowup.STUDY.trials(scale)
        by_length = [
            trial for trial in sharpness_by_length.STUDY.trials(scale) if trial.width != sharpness_by_length.LONG_WIDTH
        ]
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
        trained = [Trained(**trial.content()) for trial in [*by_length, *searched][: plan["trained"]]]
        return [*chosen, *trained]

    def row(self, trial: Made | Trained, outcome: lab.Outcome) -> lab.Row:
        return {"kind": "trained", **super().row(trial, outcome)}

    def provenance(self, table: lab.Rows) -> list[str]:
        return [f"{len(rows)} {kind} models" for kind, rows in table.each("kind", KINDS) if rows]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        figures = []
        if panels := [against_bound(table, form) for form in ("product", "focus") if table.having(form)]:
            caption = "One point per model, at the string nearest to its bound. Nothing may be below the line."
            figures.append(lab.Figure("blowup-bound", self.title, caption, panels, where="Thm 4"))
        if gaps := table.having("gap"):
            title = "Sharpness and the Fourier gap"
            caption = (
                "One point per trained model: sharpness, and the least that the sensitivity of its perturbations "
                "allows."
            )
            figures.append(lab.Figure("fourier-gap", title, caption, [against_gap(gaps)], columns=1, where="Thm 6"))
        return figures


STUDY = BlowupBound()
