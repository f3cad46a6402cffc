"""Curvature and norm of networks that are written down for sums of parities, against learned ones (Fig 2)."""

from __future__ import annotations

import flipscope.lab as lab
from flipscope.studies.sharper._flatness import (
    MOST,
    ORDERS,
    TRACED,
    Flatness,
    judge_dominated,
    larger,
    measured,
    orders,
    row_of,
    with_penalty,
)
from flipscope.studies.sharper._flatness_figures import figures
from flipscope.studies.sharper._learned import DEGREES, LAPTOP, LONG, PAPER, SMOKE, counted, places

PENALTY = 1e-4  # beta of Def 1: times a trace of hundreds it weighs as much as the loss that a training ends with

PENALISED = {"penalty": PENALTY}


class LowSharpness(lab.Study):
    """Whether learned networks are flatter and smaller than the construction, as Thm 2 supposes."""

    name, paper, figures = "low-sharpness", "002", ("Fig 2",)
    title = "Hessian trace and norm of learned networks and of the construction"
    scales = lab.scales(
        "{functions} functions of each class, D in {degrees}, sparsity in {sparsities}, {probes} products",
        smoke=(0.1, {"training": SMOKE, "degrees": (1, 2), "sparsities": (1,), "functions": 1, "long": None}
               | {"penalised": (1,), "probes": 6, "lanczos": 4}),
        laptop=(10, {"training": LAPTOP, "degrees": DEGREES, "sparsities": (1, 4, 7, 10), "functions": 3, "long": LONG}
                | {"penalised": (1, 2, 3), "probes": 60, "lanczos": 40}),
        paper=(200_000, {"training": PAPER, "degrees": DEGREES, "sparsities": (1, 7, 14, 20), "functions": 11}
               | {"long": None, "penalised": DEGREES, "probes": 999, "lanczos": 100}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("functions, sparsity, training, T, long arm (laptop)", "11 of each class, T = 20",
         "those of generalization-gap", "models are shared"),
        ("penalised degrees, products (probes), Lanczos steps (laptop)", "1 to 5, 999, 100 (paper scale)",
         "1 to 3, 60, 40", "minutes"),
        ("construction", "silent on its mask", "mask 0: the network of Thms 10 and 13", "the one that is bounded"),
        ("its loss", "of the targets", "of its own outputs", "with mask 0 it interpolates these; Thm 5 is exact there"),
        ("trace", "Hutchinson", "Hutch++; 2 mean |grad f|^2 for the construction", "less noise"),
        ("strings", f"{TRACED:,} of the training", f"the same; all {LAPTOP['samples']} (laptop)", "there are no more"),
        ("not converged", "drawn again", "recorded and counted, not judged", "a redraw hides hard ones"),
        ("two orders of magnitude", "roughly", f"log10 from {ORDERS[0]:g} to {ORDERS[1]:g}", "silent on the range"),
        ("domination", "of the trace under noise, loss 0", "of the trace without noise, loss < 0.02",
         "as section 2.2 measures it"),
        ("low-sharpness learner", "idealised", f"the trace in the loss, strength {PENALTY:g}", "ours; sparsity 1"),
    )  # fmt: skip
    claims = (
        *(
            lab.Claim(
                f"the construction {words}",
                "Fig 2",
                f"the {what} of the network that is written down is well above that of learned ones",
                f"share of learned functions for which it is larger, by the interval of an estimated trace: at least "
                f"{MOST:g}",
                larger(column),
            )
            for column, words, what in (("trace", "is sharper", "trace"), ("norm", "has larger weights", "norm"))
        ),
        *(
            lab.Claim(
                f"two orders of magnitude in the {column}",
                "Remark 3, Fig 2",
                "the two differ by roughly a factor of 100",
                f"log10 of construction over learned, averaged over classes, if half of them are learned or more: from "
                f"{ORDERS[0]:g} to {ORDERS[1]:g}",
                orders(column),
            )
            for column in ("trace", "norm")
        ),
        lab.Claim(
            "learned networks are dominated",
            "Remark 3, § 2.2",
            "what § 2.2 tests of the assumption of Thm 2: neither trace nor norm above the construction's",
            f"share of functions of which both hold, the trace without noise by its interval: at least {MOST:g}",
            judge_dominated,
        ),
        *(
            lab.Claim(
                f"a trace in the loss makes the {name} smaller",
                "Def 1",
                "left open: what a learner that avoids sharpness finds",
                f"{quantity}, without less with, for the same functions: above 0",
                with_penalty(column, quantity, log=log),
                exploratory=True,
            )
            for column, name, quantity, log in (
                ("trace", "Hessian trace", "log10 of the Hessian trace", True),
                ("gap", "gap", "gap", False),
            )
        ),
    )

    def trials(self, scale: str) -> list[Flatness]:
        plan = self.scales[scale].settings
        degrees, sparsities, probes = plan["degrees"], plan["sparsities"], plan["probes"]
        own = places(sparsities, degrees, plan["functions"])
        some = [each for each in own if each["sparsity"] == sparsities[0] and each["degree"] in plan["penalised"]]
        arms = [(plan["training"], own, (sparsities[0], sparsities[-1])), (plan["training"] | PENALISED, some, ())]
        if plan["long"]:
            arms.append((plan["training"] | plan["long"], places((1,), degrees, plan["functions"]), ()))
        return [
            Flatness(
                **(training | each),
                probes=probes,
                lanczos=plan["lanczos"] if each["seed"] == 0 and each["sparsity"] in spectra else 0,
            )
            for training, chosen, spectra in arms
            for each in chosen
        ]

    def measure(self, trial: Flatness, progress: lab.Progress) -> lab.Outcome:
        return measured(trial, progress)

    def row(self, trial: Flatness, outcome: lab.Outcome) -> lab.Row:
        return row_of(trial, super().row(trial, outcome))

    def provenance(self, table: lab.Rows) -> list[str]:
        named = (("classes", "weight decay"), ("penalty", "trace in the loss"))
        return [f"{words}: {counted(table.where(arm=arm))}" for arm, words in named if table.where(arm=arm)]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return figures(table, self.title)


STUDY = LowSharpness()
