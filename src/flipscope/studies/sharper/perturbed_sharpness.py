"""What Gaussian noise does to the Hessian's trace of the written-down networks, beside the bound on it (Figs 3-4)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

import flipscope.lab as lab
from flipscope.bounds.pac_bayes.inequalities import MESH
from flipscope.studies.sharper._perturbation_claims import (
    FAR,
    GROWTH,
    SMALL,
    judge_far,
    judge_lengths,
    judge_slices,
    judge_small,
    judge_theorem,
)
from flipscope.studies.sharper._perturbation_figures import figures as drawn
from flipscope.studies.sharper._perturbations import (
    DEGREES,
    NOISE,
    SOME,
    SPARSITIES,
    Noise,
    Perturbed,
    Slice,
    by_size,
    changes,
    sliced,
)

LENGTHS = (20, 30, 40, 50)


class PerturbedSharpness(lab.Study):
    """Whether the perturbation term of the bound is as large as its theorem allows."""

    name, paper, figures = "perturbed-sharpness", "002", ("Fig 3", "Fig 4")
    title = "The trace of the Hessian of a written-down network under Gaussian noise"
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
        ("P", "Thm 17", "constants of the notebook, with the σ that two terms lack", "smaller, so harder to be below"),
        ("where P holds", "Lem 22, number lost", "no neuron flips with probability 0.99", "derived anew"),
        ("no growth with T", "silent on numbers", f"exponent at most {GROWTH:g}", "a bound's is about 3"),
        ("functions", "the largest change of 10", "one draw of noise for each function, all judged", "stricter"),
        ("signs' error", "silent", "where its interval holds a limit nothing is decided", "it is known"),
        ("strings", "all", "1,000 (paper scale), 100 (laptop)", "time"),
        ("far, small", "seen in the figures", f"{FAR:g} of P, {SMALL:g} of G_u", "silent on numbers"),
        ("lengths, functions, mesh (laptop)", "20 to 50, 10, 20", "20 to 40, 3, 6", "minutes"),
        (
            "lengths of variances, points of a slice (laptop)",
            "silent; 20 to 50, 241 (paper scale)",
            "20, 121",
            "minutes",
        ),
    )
    claims = (
        lab.Claim(
            "the trace under noise is at most 2 G_u + P",
            "Thm 17",
            "Gaussian noise adds no more than P to the bound of the trace",
            "trace at a perturbed network, σ as standard deviation where no neuron flips: never above 2 G_u + P",
            judge_theorem,
        ),
        lab.Claim(
            "the change is far below its bound",
            "§ 2.3, Figs 3-4",
            "what noise adds in truth is much smaller than the analytic bound on it",
            f"change of the trace, σ as standard deviation where no neuron flips: never above {FAR:g} P",
            judge_far,
        ),
        lab.Claim(
            "the change is small beside G_u",
            "E.3.1",
            "the perturbation term is small relative to the sharpness without noise, so that it may be left out",
            f"change of the trace at every σ of the mesh, as standard deviation: never above {SMALL:g} G_u",
            judge_small("std"),
        ),
        lab.Claim(
            "the change hardly grows with T",
            "§ 1.1",
            "the growth with the length that the analytic bound has is not there in reality",
            f"exponent of T in the change, of each class and seed in which signs leave less than a quarter of it, "
            f"averaged: at most {GROWTH:g}, and that in P",
            judge_lengths,
        ),
        lab.Claim(
            "the change is small with the mesh as variances too",
            "§ 2.3, the released code",
            "left open: the code takes for a variance what the text calls a standard deviation",
            f"change of the trace at every value of the mesh, as variance: never above {SMALL:g} G_u",
            judge_small("variance"),
            exploratory=True,
        ),
        lab.Claim(
            "the loss oscillates along a shift of the MLP's input",
            "Thm 9",
            "left open: the MLP is a wave of D + 1 trapezoids, so that further minima lie beside the network",
            "share of functions of degree 2 or more with several minima along a shift of all biases: at least 0.5",
            judge_slices,
            exploratory=True,
        ),
    )

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

    def measure(self, trial: Perturbed | Slice, progress: lab.Progress) -> lab.Outcome:
        return changes(trial) if isinstance(trial, Perturbed) else sliced(trial)

    def summarise(self, results: Sequence[lab.Result]) -> lab.Rows:
        rows = lab.Rows()
        for result in results:
            if isinstance(result.trial, Perturbed):
                rows += by_size(result.trial.content(), result.outcome)
            else:
                rows.append({"kind": "slice", **self.row(result.trial, result.outcome)})
        return rows

    def provenance(self, table: lab.Rows) -> list[str]:
        noisy = table.where(kind="perturbed")
        if not noisy:
            return []
        said = []
        for noise, meant in NOISE.items():
            own = noisy.where(noise=noise)
            if own:
                open_ = float(np.median([row["error"] / row["change"] for row in own]))
                said += [
                    f"size of the noise as {meant}: small enough for Lemma 22, by which no neuron flips, in "
                    f"{len(own.where(valid=True))} of {len(own)} cases; random signs leave a standard error of "
                    f"{open_:.2g} of the change, in the median"
                ]
        return said

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return drawn(table)


STUDY = PerturbedSharpness()
