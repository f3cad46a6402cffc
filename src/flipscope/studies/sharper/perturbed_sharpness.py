"""How Gaussian noise changes the Hessian's trace of constructed networks, beside the bound on it (Figs 3-4).

Thm 17 bounds by P how much noise on all parameters increases the trace, as long as no neuron flips. The paper finds
that the change is much smaller than P, hardly grows with the length, and is small beside the bound G_u of the sharpness
without noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64
from scipy.signal import find_peaks

import flipscope.lab as lab
from flipscope.adapters.movable_parameters import MovableParameters
from flipscope.adapters.parameters import chosen
from flipscope.adapters.settled import as_settled
from flipscope.basics.bits import Bits
from flipscope.basics.seeds import generators, random_strings, seed_of
from flipscope.bounds.pac_bayes import flip_threshold, gradient_bound, perturbation_term
from flipscope.bounds.pac_bayes.inequalities import MESH
from flipscope.constructions.fourier import fourier_network
from flipscope.cube.fourier_sums import random_sum
from flipscope.lab import quantities
from flipscope.models.fourier_network import FourierNetwork
from flipscope.probes.asking import asked
from flipscope.probes.landscape import landscape
from flipscope.probes.perturbed_trace import trace_changes

Noise = Literal["std", "variance"]  # a value of the mesh is the one in the paper's text, the other in its code
NOISE: dict[Noise, str] = {"std": "a standard deviation", "variance": "a variance"}
DEGREES, SPARSITIES, LENGTHS = (1, 2, 3, 4, 5), (1, 7, 14, 20), (20, 30, 40, 50)
SOME = tuple(MESH[k] for k in (19, 18, 17, 15, 10, 0))
SHIFT, DEEP = 1.2, 0.1  # largest shift of the MLP's input; least depth of a minimum as part of the largest loss
NOISIEST = 0.1  # end of a random slice, as a standard deviation of every parameter

FAR = 0.01  # "far below": two orders of magnitude
SMALL = 0.1  # "small beside G_u"
GROWTH = 0.5  # "not there in reality": the largest exponent of T
CERTAIN = 4  # a change must be this many times its standard error to have an exponent
FEWEST_FUNCTIONS, FEWEST_LINES = 20, 10


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Perturbed(lab.Trial):
    """The construction of one random function under noise of several sizes."""

    tag = "perturbed"

    length: int
    sparsity: int
    degree: int
    seed: int
    noise: Noise
    mesh: tuple[float, ...]
    strings: int
    probes: int
    draws: int = 1

    @property
    def cost(self) -> float:
        """A trace sums over all parameters, most of which are in three square matrices."""
        return float(len(self.mesh) * self.draws * (self.length + 20) ** 2)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """The trace without noise, and for each size of noise its change, the largest trace and the standard error."""
        network, strings, stream = _network(self)
        sigmas = tuple(each if self.noise == "std" else math.sqrt(each) for each in self.mesh)
        traces = trace_changes(network, strings, sigmas, draws=self.draws, probes=self.probes, seed=stream)
        return {
            "base": traces[0].base,
            "sigma": list(sigmas),
            "change": [each.change for each in traces],
            "trace": [each.largest for each in traces],
            "error": [each.error for each in traces],
        }


@dataclass(frozen=True)
class Slice(lab.Trial):
    """The loss of a construction along a shift of the MLP's input, and along random directions."""

    tag = "slice"

    length: int
    sparsity: int
    degree: int
    seed: int
    strings: int
    points: int
    directions: int = 2

    @property
    def cost(self) -> float:
        return float(self.points * self.length / 20)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Losses against the unperturbed outputs, along a shift of the MLP's biases and along Gaussian directions."""
        network, strings, stream = _network(self)
        offsets = np.linspace(-SHIFT, SHIFT, self.points)
        losses = np.empty(self.points)
        with (
            asked(as_settled(network), strings, None) as (evaluation, before),
            MovableParameters(chosen(network, ["bias"])) as moving,
        ):
            for place, offset in enumerate(offsets):
                moving.to(torch.ones(moving.count), float(offset))
                losses[place] = float((evaluation.outputs() - before).square().mean())
            outputs = before.numpy()
        numbers = sum(each.numel() for each in network.parameters())
        reach = NOISIEST * math.sqrt(numbers)  # a draw of noise has about this length
        random = landscape(
            network,
            strings,
            outputs,
            directions=self.directions,
            points=self.points,
            reach=reach,
            normalise="none",
            seed=stream,
        )
        return {
            "offset": offsets,
            "loss": losses,
            "minima": minima(losses),
            "random_offset": random.offsets / math.sqrt(numbers),
            "random_loss": random.losses,
        }


def _network(trial: Perturbed | Slice) -> tuple[FourierNetwork, Bits, np.random.Generator]:
    """The network with mask 0 of a random function, strings to evaluate it on, and a stream for the rest."""
    seed = seed_of(trial.seed, trial.length, trial.sparsity, trial.degree)  # a different one for each class
    for_function, for_strings, rest = generators(seed, 3)
    network = fourier_network(random_sum(trial.length, trial.sparsity, trial.degree, for_function))
    return network, random_strings(for_strings, trial.strings, trial.length), rest


def rows_by_noise(trial: Perturbed, outcome: lab.Outcome) -> list[lab.Row]:
    """A row for each size of the noise, with the bounds of Thms 5 and 17 beside it."""
    fields = {name: value for name, value in trial.content().items() if name != "mesh"}
    in_class = (trial.sparsity, trial.degree, trial.length)
    gradient, threshold = gradient_bound(*in_class[:2]), flip_threshold(trial.degree, trial.length)
    rows = []
    for place, value in enumerate(trial.mesh):
        sigma, change = outcome["sigma"][place], outcome["change"][place]
        mended, released = (perturbation_term(sigma, *in_class, mend=mend).value for mend in (True, False))
        rows.append(
            {
                "kind": "perturbed",
                **fields,
                "value": value,
                "sigma": sigma,
                "base": outcome["base"],
                **{name: outcome[name][place] for name in ("change", "trace", "error")},
                "relative": change / outcome["base"],
                "analytic": mended,
                "released": released,
                "gradient": gradient,
                "thm17": 2 * gradient + mended,
                "valid": sigma <= threshold,
                "threshold": threshold,
            }
        )
    return rows


def minima(losses: Float64[np.ndarray, " point"]) -> int:
    """How many minima of a slice are at least a tenth of its largest loss deep; its ends do not count.

    >>> minima(np.array([0.0, 1.0, 0.01, 0.05, 0.0, 1.0, 0.0]))
    1
    """
    return len(find_peaks(-losses, prominence=DEEP * float(losses.max()))[0])


# ---------------------------------------------------------------- claims


def never_above(
    column: str, words: str, bound: str, limit: str, *, part: float = 1.0, noise: Noise = "std", valid: bool = False
) -> quantities.Judged:
    """A column is never above this part of its bound: one case per function, its worst size of noise.

    With `valid` only sizes at which no neuron flips are judged. All sizes of a function share their directions. The
    intervals are those of random signs, all valid together; a limit inside an interval is neither broken nor kept. A
    network that no size of noise changes counts as one without noise.
    """

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.where(lambda row: row["valid"] or not valid, kind="perturbed", noise=noise)
        functions = [
            sizes for _, sizes in rows.by("length", "sparsity", "degree", "seed") if any(sizes.column("change"))
        ]
        reach = NormalDist().inv_cdf((1 + lab.confidence(len(functions))) / 2)  # standard errors
        cases, doubtful = lab.Rows(), 0
        for sizes in functions:
            each = [
                {"low": row[column] - reach * row["error"], "high": row[column] + reach * row["error"]}
                | {"limit": part * row[bound]}
                for row in sizes
            ]
            cases.append(max(each, key=_severity))
            doubtful += any(case["high"] > case["limit"] for case in each)
        quantity = f"share of functions with a {words} above {limit}"
        judged = lab.never_exceeds("low", "limit", quantity, fewest=FEWEST_FUNCTIONS)(cases)
        if judged.verdict != "reproduced" or not doubtful:
            return judged
        note = f"{doubtful} of {len(cases)} functions have an interval that holds the limit"
        return judged.left_open(note, "more signs")

    where = f"every value of the mesh as {NOISE[noise]}" + (", where no neuron flips" if valid else "")
    return quantities.Judged(f"{words} at {where}: never above {limit}", judge)


def _severity(case: dict[str, float]) -> tuple[bool, bool, float]:
    """The sort key of a function's sizes: those that break the limit, those that are not a number, then the largest."""
    quotient = case["low"] / case["limit"]
    unknown = math.isnan(quotient)
    return quotient > 1, unknown, 0.0 if unknown else quotient


def judge_lengths(table: lab.Rows) -> lab.Judgement:
    """The exponent of T in the change is below that in P, and small: of each class and seed, averaged.

    Rows whose standard error is a quarter of the change or more do not count, nor do those where neurons may flip. The
    remaining rows are selected by their change, so that the claim stays undecided with less than half of all classes
    and seeds.
    """
    valid = table.where(kind="perturbed", noise="std", valid=True)
    certain = valid.where(lambda row: CERTAIN * row["error"] < row["change"])
    exponents, differences = [], []
    for _, rows in certain.by("sparsity", "degree", "seed"):
        pairs = [
            [lab.slopes(at, "length", column, log=True) for column in ("change", "analytic")]
            for _, at in rows.by("value")
        ]
        fitted = [(measured[0], analytic[0]) for measured, analytic in pairs if measured and analytic]
        if fitted:  # the sizes of noise of one function share their directions, so they count once
            exponents.append(float(np.mean([measured for measured, _ in fitted])))
            differences.append(float(np.mean([measured - analytic for measured, analytic in fitted])))
    possible = len(list(valid.by("sparsity", "degree", "seed")))
    fewest = max(FEWEST_LINES, math.ceil(possible / 2))
    if len(exponents) < fewest:
        reason = f"too few classes and seeds with a change that is sure at 3 lengths: {len(exponents)} of {possible}"
        return lab.Judgement.without(reason, f"at least {fewest} of them, or more signs")
    words = "exponent of T in the change"
    return lab.all_of(
        [
            lab.at_most(lab.student_mean(values, lab.confidence(2)), limit, quantity, unit="classes and seeds")
            for values, limit, quantity in ((exponents, GROWTH, words), (differences, 0.0, f"{words} minus that in P"))
        ]
    )


SEVERAL_MINIMA = quantities.share(
    "share of functions with several minima", lambda row: row["minima"] > 1, unit="functions"
).where("functions of degree 2 or more", lambda row: row["degree"] > 1, kind="slice")
CLAIMS = (
    lab.claim(
        "the trace under noise is at most 2 G_u + P",
        "Thm 17",
        "Gaussian noise adds at most P to the bound on the trace",
        never_above("trace", "trace of the perturbed network", "thm17", "2 G_u + P", valid=True),
    ),
    lab.claim(
        "the change is far below its bound",
        "§ 2.3, Figs 3-4",
        "the actual change under noise is much smaller than its analytic bound",
        never_above("change", "change of the trace", "analytic", f"{FAR:g} P", part=FAR, valid=True),
    ),
    lab.claim(
        "the change is small beside G_u",
        "E.3.1",
        "the perturbation term is negligible relative to the sharpness without noise",
        never_above("change", "change of the trace", "gradient", f"{SMALL:g} G_u", part=SMALL),
    ),
    lab.Claim(
        "the change hardly grows with T",
        "§ 1.1",
        "the actual change does not grow with the length as its analytic bound does",
        f"exponent of T in the change, of each class and seed in which signs leave less than a quarter of it, "
        f"averaged: at most {GROWTH:g}, and that in P",
        judge_lengths,
    ),
    lab.claim(
        "the change is small with the mesh as variances too",
        "§ 2.3, the released code",
        "left open: the code uses as a variance what the text calls a standard deviation",
        never_above("change", "change of the trace", "gradient", f"{SMALL:g} G_u", part=SMALL, noise="variance"),
        exploratory=True,
    ),
    lab.claim(
        "the loss oscillates along a shift of the MLP's input",
        "Thm 9",
        "left open: the MLP is a wave of D + 1 trapezoids, so there are further minima next to the network",
        (SEVERAL_MINIMA >= 0.5).saying(
            "share of functions of degree 2 or more with several minima along a shift of all biases: at least 0.5"
        ),
        exploratory=True,
    ),
)


# ---------------------------------------------------------------- figures

RANGE = (1e-4, 1e18)  # of traces and their bounds, alike in all panels
RELATIVE = "change of the trace / trace without noise"


def _figure_of_changes(rows: lab.Rows, noise: Noise) -> lab.Figure:
    """Figs 3 and 4: the relative change by degree, by T and by size of the noise."""
    sizes, degrees = _three(rows.values("value")), _three(rows.values("degree"))
    shortest, several = min(rows.values("length")), len(rows.values("length")) > 1
    some = rows.where(lambda row: row["value"] in sizes)
    look: dict[str, Any] = {"labels": "σ = {:.2g}" if noise == "std" else "σ² = {:.2g}", "order": sizes}
    look |= {"centre": "geometric", "y_label": RELATIVE, "y_log": True}
    at = f"T = {shortest}"
    panels = [
        lab.chart(some.where(length=shortest), "degree", "relative", "value", title=at, x_label="degree D", **look)
    ]
    if several:
        panels.append(lab.chart(some, "length", "relative", "value", title="all degrees", x_label="length T", **look))
    by_value = [
        lab.line(functions, "value", "relative", f"D = {degree}", colour=len(sizes) + place)
        for place, (degree, functions) in enumerate(rows.where(length=shortest).each("degree", degrees))
        if functions
    ]
    label = f"size of the noise, {NOISE[noise]}"
    panels.append(lab.Panel(at, label, RELATIVE, by_value, x_log=True, y_log=True))
    caption = "Geometric means over functions and sparsities, with bands from the least change to the largest."
    title = f"The change of the trace, the size of the noise being {NOISE[noise]}"
    return lab.Figure(f"perturbed-sharpness-{noise}", title, caption, panels, columns=3, where="Figs 3-4")


def _three(values: list[Any]) -> list[Any]:
    """The first, the middle and the last value: with more the colours would repeat."""
    return [values[k] for k in sorted({0, len(values) // 2, len(values) - 1})]


def _figure_of_bounds(std: lab.Rows) -> lab.Figure:
    """Measured changes beside P and G_u, at the smallest T, by size of the noise: one panel for each sparsity."""
    shortest = std.where(length=min(std.values("length")))
    degree = shortest.values("degree")[len(shortest.values("degree")) // 2]
    panels = []
    for sparsity, rows in shortest.where(degree=degree).by("sparsity"):
        series = [
            lab.line(rows, "sigma", "change", "change, measured", colour=0),
            lab.line(rows, "sigma", "base", "trace without noise", colour=1, dashed=True),
            lab.line(rows, "sigma", "gradient", "G_u", colour=2, dashed=True),
            lab.line(rows, "sigma", "analytic", "P of Thm 17, mended", colour=3),
            lab.line(rows, "sigma", "released", "P as released", colour=4),
        ]
        rule = [lab.Rule(rows[0]["threshold"], "neurons may flip", "x")]
        title = f"ω = {sparsity}, D = {degree}, T = {rows[0]['length']}"
        panels.append(lab.Panel(title, "σ", "trace", series, x_log=True, y_log=True, y_range=RANGE, rules=rule))
    caption = "Geometric means over functions, with bands from the least to the largest."
    title = "The change of the trace and its bounds"
    return lab.Figure("perturbed-sharpness-bounds", title, caption, panels, where="§ 2.3")


def _figure_of_slices(slices: lab.Rows) -> lab.Figure:
    """The loss along a shift of the MLP's input and along noise, of the first function of each degree."""
    shift, random = [], []
    for colour, (degree, rows) in enumerate(slices.by("degree")):
        row = rows[0]
        shift.append(lab.Series(f"D = {degree}", row["offset"], row["loss"], colour=colour))
        random.append(lab.Series(f"D = {degree}", row["random_offset"], row["random_loss"][0], colour=colour))
    title = f"ω = {slices[0]['sparsity']}, T = {slices[0]['length']}"
    panels = [
        lab.Panel(title, "shift of the MLP's input", "loss", shift),
        lab.Panel(title, "offset along noise, in σ", "loss", random),
    ]
    caption = (
        "Loss against the network's own outputs, of the first function of each degree: left all biases of the MLP "
        "move together, right all parameters move along one draw of Gaussian noise."
    )
    return lab.Figure("perturbed-sharpness-slices", "Slices of the loss", caption, panels, where="Thm 9")


# ---------------------------------------------------------------- the study


class PerturbedSharpness(lab.Study):
    """Whether the perturbation term of the bound is as large as its theorem allows."""

    name, paper, figures = "perturbed-sharpness", "002", ("Fig 3", "Fig 4")
    title = "The Hessian trace of a constructed network under Gaussian noise"
    scales = lab.scales(
        "{functions} functions of each degree in {degrees} and sparsity in {sparsities}, T in {lengths}, and with the "
        "mesh as variances in {variances}",
        smoke=(0.1, {"degrees": (1, 2, 3), "sparsities": (1, 3), "lengths": (6, 7, 8), "variances": (6,)}
               | {"functions": 1, "mesh": SOME[1:3], "strings": 16, "probes": 4, "points": 61}),
        laptop=(6, {"degrees": DEGREES, "sparsities": SPARSITIES, "lengths": (20, 30, 40), "variances": (20,)}
                | {"functions": 3, "mesh": SOME, "strings": 100, "probes": 32, "points": 121}),
        paper=(2_500, {"degrees": DEGREES, "sparsities": SPARSITIES, "lengths": LENGTHS, "variances": LENGTHS}
               | {"functions": 10, "mesh": MESH, "strings": 1_000, "probes": 32, "points": 241}),
    )  # fmt: skip
    deviations = lab.deviations(
        (
            "trace",
            "Hutchinson, 50,000 probes",
            "exact but for the residuals' part: signs, parameter by parameter",
            "time",
        ),
        ("target", "the function", "the network's own output", "with mask 0 it does not interpolate the function"),
        (
            "a value of the mesh",
            "text: std; code: variance",
            "both, as a field of the trial",
            "σ differs 10-fold to 316-fold",
        ),
        (
            "P",
            "Thm 17",
            "constants of the notebook, with the σ that two terms lack",
            "smaller, hence harder to stay below",
        ),
        ("where P holds", "Lem 22, number lost", "no neuron flips with probability 0.99", "derived anew"),
        ("no growth with T", "no numbers are given", f"exponent at most {GROWTH:g}", "a bound's is about 3"),
        ("functions", "the largest change of 10", "one draw of noise for each function, all judged", "stricter"),
        ("signs' error", "not stated", "where its interval contains a limit, nothing is decided", "it is known"),
        ("strings", "all", "1,000 (paper scale), 100 (laptop)", "computing time"),
        ("far, small", "seen in the figures", f"{FAR:g} of P, {SMALL:g} of G_u", "no numbers are given"),
        ("lengths, functions, mesh (laptop)", "20 to 50, 10, 20", "20 to 40, 3, 6", "to take minutes"),
        (
            "lengths of variances, points of a slice (laptop)",
            "not stated; 20 to 50, 241 (paper scale)",
            "20, 121",
            "minutes",
        ),
    )
    claims = CLAIMS

    def trials(self, scale: str) -> list[lab.Trial]:
        plan = self.scales[scale].settings
        degrees, functions = plan["degrees"], range(plan["functions"])
        readings: list[tuple[Noise, Sequence[int]]] = [("std", plan["lengths"]), ("variance", plan["variances"])]
        noisy = [
            Perturbed(length, sparsity, degree, seed, noise, plan["mesh"], plan["strings"], plan["probes"])
            for noise, lengths in readings
            for length, degree, sparsity, seed in itertools.product(lengths, degrees, plan["sparsities"], functions)
        ]
        slices = [
            Slice(plan["lengths"][0], plan["sparsities"][1], degree, seed, plan["strings"], plan["points"])
            for degree, seed in itertools.product(degrees, functions)
        ]
        return [*noisy, *slices]

    def rows(self, trial: Perturbed | Slice, outcome: lab.Outcome) -> list[lab.Row]:
        if isinstance(trial, Perturbed):
            return rows_by_noise(trial, outcome)
        return [{"kind": "slice", **self.row(trial, outcome)}]

    def provenance(self, table: lab.Rows) -> list[str]:
        lines = []
        for noise, words in NOISE.items():
            if rows := table.where(kind="perturbed", noise=noise):
                error = float(np.median([row["error"] / row["change"] for row in rows]))
                lines.append(
                    f"size of the noise as {words}: small enough for Lemma 22, by which no neuron flips, in "
                    f"{len(rows.where(valid=True))} of {len(rows)} cases; random signs leave a standard error of "
                    f"{error:.2g} of the change, in the median"
                )
        return lines

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        noisy, slices = table.where(kind="perturbed"), table.where(kind="slice")
        figures = [_figure_of_changes(rows, noise) for noise in NOISE if (rows := noisy.where(noise=noise))]
        if rows := noisy.where(noise="std"):
            figures.append(_figure_of_bounds(rows))
        if slices:
            figures.append(_figure_of_slices(slices))
        return figures


STUDY = PerturbedSharpness()
