"""How often noise on the bits changes a function, beside its bounds (Prop 3.2): all small functions, random, trained.

Prop 3.2 bounds the probability that f(x) and f(x') differ, for a pair of correlation rho, by the maximal sensitivity.
The same argument gives a sharper bound by the average sensitivity (`flipscope.bounds.noise_stability`). Every number
here is exact: it comes from the Fourier weights of the function, or of the truth table that a trained model computes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

import flipscope.lab as lab
from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.bounds.noise_stability import change_bound, degree_bound, noise_bounds
from flipscope.cube import functions, sensitivity, spectrum
from flipscope.cube.expression import parse
from flipscope.cube.few_bits import all_tables
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.zoo import ZOO
from flipscope.lab import quantities
from flipscope.probes.sensitivity import truth_table
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.hardness import hardness_recipe

RHOS = (0.5, 0.9, 0.99)
SOURCES = {
    "every": "every function",
    "zoo": "named functions",
    "random": "random functions",
    "trained": "trained models",
}
ROUNDING = 1e-9  # a bound is not broken by so small a part of itself
HALF = 0.5  # of the trained models' outputs: their labels are 0 and 1
FOLLOWS = 0.5  # the least rank correlation of robustness and sensitivity that counts as going together
CLOSE = 0.9  # of a bound: a quotient from which on it is nearly attained
FEWEST = 12  # random functions from which on Student's interval is taken


# ---------------------------------------------------------------- trials


@dataclass(frozen=True)
class Every(lab.Trial):
    """All functions of so few bits."""

    tag = "every"
    bits: int

    def check(self) -> None:
        if self.bits > 4:
            raise InputError(f"bits={self.bits} is too large: there are 2^(2^{self.bits}) functions; at most 4 bits")

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Counts and means over all functions of so few bits, one entry for each rho."""
        strings = np.arange(1 << self.bits)
        tables = all_tables(self.bits).astype(np.int64)
        signs = 1.0 - 2.0 * ((tables[:, None] >> strings) & 1)
        flips = np.stack([signs != signs[:, strings ^ (1 << bit)] for bit in range(self.bits)]).sum(axis=0)
        characters = 1.0 - 2.0 * (np.bitwise_count(strings[:, None] & strings) & 1)
        squares = np.square(signs @ characters / len(strings))
        sizes = np.bitwise_count(strings).astype(np.int64)
        degrees = np.where(squares > 0, sizes, 0).max(axis=1)
        largest, average = flips.max(axis=1), flips.mean(axis=1)
        found: dict[str, list[Any]] = {
            name: [] for name in ("printed_broken", "sharper_broken", "probability", "printed")
        }
        found |= {name: [] for name in ("sharper", "by_degree", "loose", "correlation")}
        for rho in RHOS:
            probability = squares @ ((1 - rho**sizes) / 2)
            bounds = {name: _bounds(exponents, rho) for name, exponents in (
                ("printed", largest**2), ("sharper", average), ("by_degree", degrees))}  # fmt: skip
            for name, bound in bounds.items():
                found[name].append(float(bound.mean()))
            for name in ("printed", "sharper"):
                found[f"{name}_broken"].append(int((probability > bounds[name] * (1 + ROUNDING) + 1e-15).sum()))
            found["probability"].append(float(probability.mean()))
            varied = bounds["printed"] > 0  # constants reach every bound
            found["loose"].append(float((probability[varied] <= bounds["printed"][varied] / 2).mean()))
            found["correlation"].append(float(stats.spearmanr(largest, probability).statistic))
        high_degree = int((degrees > [degree_bound(each) for each in largest.tolist()]).sum())
        return {**found, "cases": len(tables), "degree_broken": high_degree}


@dataclass(frozen=True)
class Named(lab.Trial):
    """A function by its expression."""

    tag = "zoo"
    function: str

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        return of_function(parse(self.function))


@dataclass(frozen=True)
class Drawn(lab.Trial):
    """A uniformly random function."""

    tag = "random"
    bits: int
    seed: int

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        return of_function(functions.random(self.bits, self.seed))


@dataclass(frozen=True)
class Learned(lab.TrainedTrial):
    """A transformer that was trained on a function, whatever it has learned."""

    tag = "trained"
    function: str
    length: int
    seed: int
    width: int
    batch: int
    steps: int

    @property
    def recipe(self) -> Recipe:
        return hardness_recipe(
            self.function, self.length, self.seed, width=self.width, batch=self.batch, steps=self.steps
        )

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        model = lab.trained(self.recipe, progress).model
        return of_function(truth_table(Subject(model, threshold=HALF), self.length))


# ---------------------------------------------------------------- measurements


def _bounds(exponents: Any, rho: float) -> Any:
    """The bound of each exponent; there are few different ones."""
    values, places = np.unique(exponents, return_inverse=True)
    return np.array([change_bound(float(value), rho) for value in values])[places]


def of_function(f: BooleanFunction) -> lab.Outcome:
    """The same numbers of one function."""
    bounds = noise_bounds(f, RHOS)
    probability = [(1 - spectrum.noise_stability(f, rho)) / 2 for rho in RHOS]
    printed, sharper = (
        [getattr(each, name) for each in bounds] for name in ("by_max_sensitivity", "by_average_sensitivity")
    )
    degree, largest = spectrum.degree(f), sensitivity.max_sensitivity(f)
    return {
        "cases": 1,
        "probability": probability,
        "printed": printed,
        "sharper": sharper,
        "by_degree": [each.by_degree for each in bounds],
        "printed_broken": [_broken(*pair) for pair in zip(probability, printed, strict=True)],
        "sharper_broken": [_broken(*pair) for pair in zip(probability, sharper, strict=True)],
        "degree_broken": int(degree > degree_bound(largest)),
        "degree": degree,
        "max_sensitivity": largest,
        "average_sensitivity": float(sensitivity.average_sensitivity(f)),
    }


def _broken(probability: float, bound: float) -> int:
    return int(probability > bound * (1 + ROUNDING) + 1e-15)


# ---------------------------------------------------------------- claims


def never_broken(column: str, words: str, *, once: bool = False) -> quantities.Judged:
    """No case breaks it, from any source; with `once` a case counts at one rho only, since it has no rho in it."""

    def one(source: Any, rows: lab.Rows, confidence: float) -> lab.Judgement:
        return lab.never(rows.total(column), rows.total("cases"), f"{words}, {SOURCES[source]}", confidence=confidence)

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.where(rho=RHOS[0]) if once else table
        return lab.for_each(rows.each("source", SOURCES), one, missing="no function", what="sources")

    return quantities.Judged(
        f"{words}, for every function, named and random functions and trained models: never", judge
    )


ALL_OF_FOUR: dict[str, Any] = {"source": "every", "bits": 4}
CLAIMS = (
    lab.claim(
        "Prop 3.2 holds",
        "Prop 3.2",
        "noise changes the value with probability at most (1 - rho^t) / 2, t the square of the maximal sensitivity",
        never_broken("printed_broken", "share of functions above the bound by maximal sensitivity"),
    ),
    lab.claim(
        "the degree is at most the square of the sensitivity",
        "Thm B.5",
        "the degree of a function is at most the square of its maximal sensitivity",
        never_broken("degree_broken", "share of functions of a larger degree", once=True),
    ),
    lab.claim(
        "less sensitive functions are more robust",
        "§ 3",
        "a function of lower maximal sensitivity changes its value less often under noise",
        quantities.computed(lab.Column("rank correlation with the maximal sensitivity", lambda row: row["correlation"]))
        .where("all functions of four bits", **ALL_OF_FOUR)
        .each("rho", RHOS, what="correlations")
        >= FOLLOWS,
    ),
    lab.claim(
        "the average sensitivity bounds it as well",
        "beyond Prop 3.2",
        "the exponent can be the average sensitivity, which is never larger",
        never_broken("sharper_broken", "share of functions above the bound by average sensitivity"),
        exploratory=True,
    ),
    lab.claim(
        "Prop 3.2 is loose for most functions",
        "beyond Prop 3.2",
        "for at least half of all functions the probability is at most half of the bound",
        quantities.computed(lab.Column("share of functions at half the bound or less", lambda row: row["loose"]))
        .where("all functions of four bits, rho = 0.9", rho=0.9, **ALL_OF_FOUR)
        >= 0.5,
        exploratory=True,
    ),
    lab.claim(
        "random functions nearly attain the bound by average sensitivity",
        "beyond Prop 3.2",
        "for random functions the sharper bound is close to the probability itself",
        quantities.mean(
            lab.Column(
                "probability over the bound by average sensitivity", lambda row: row["probability"] / row["sharper"]
            ),
            fewest=FEWEST,
            unit="functions",
        )
        .where("random functions, rho = 0.9", source="random", rho=0.9)
        .each("bits", words="number of bits")
        >= CLOSE,
        exploratory=True,
    ),
)  # fmt: skip


# ---------------------------------------------------------------- the study


class NoiseStability(lab.Study):
    """Whether functions of low sensitivity are robust to noise, and how much of the bound they use."""

    name, paper = "noise-stability", "004"
    title = "How often noise changes a function, beside bounds by its sensitivity"
    scales = lab.scales(
        "every function of {every} bits, {zoo} named ones, {random} random ones of each of {bits} bits; {seeds} "
        "trained models of each of {functions} at {lengths} bits, width {width}, {steps} steps of {batch} strings",
        smoke=(0.1, {"every": (3, 4), "zoo": 3, "bits": (5,), "random": 3, "functions": ("parity",), "lengths": (4,)}
               | {"seeds": 1, "width": 8, "batch": 32, "steps": 20}),
        # Seeds from 1000 on: smaller ones were used while the study was written.
        laptop=(6, {"every": (2, 3, 4), "zoo": len(ZOO), "bits": (6, 8, 10, 12), "random": 40}
                | {"functions": ("parity", "majority", "first"), "lengths": (5, 9), "seeds": 3, "width": 32}
                | {"batch": 128, "steps": 1_500, "first_seed": 1_000}),
        paper=(600, {"every": (2, 3, 4), "zoo": len(ZOO), "bits": (6, 8, 10, 12, 14, 16), "random": 200}
               | {"functions": ("parity", "majority", "first"), "lengths": (5, 9, 13, 17), "seeds": 10, "width": 128}
               | {"batch": 1_024, "steps": 10_000}),
    )  # fmt: skip
    deviations = lab.deviations(
        (
            "experiment",
            "silent: a proposition, nothing measured",
            "computed for functions and models",
            "to see how tight",
        ),
        ("rho", "any in (0, 1)", ", ".join(map(str, RHOS)), "one far from 1, two near it"),
        ("models", "silent", "the hardness paper's model and training, three functions", "models that learn bits"),
        ("length, width, batch, steps, seed", "silent", "laptop: smaller and fewer than at scale paper", "time"),
        ("first seed (laptop)", "silent", "1000", "seeds not used by any earlier run"),
        ("bits, random", "silent", "laptop: up to 12 bits, 40 functions; smoke: 5 bits, 3", "time"),
        (
            "limits of the claims",
            "silent: lower sensitivity, better robustness",
            f"rank correlation {FOLLOWS:g}; half of the bound; {CLOSE:g} of it",
            "chosen before the numbers were seen",
        ),
    )
    claims = CLAIMS

    def trials(self, scale: str) -> list[lab.Trial]:
        plan = self.scales[scale].settings
        sizes, first = (plan["width"], plan["batch"], plan["steps"]), plan.get("first_seed", 0)
        return [
            *(Every(bits) for bits in plan["every"]),
            *(Named(entry.example) for entry in ZOO[: plan["zoo"]]),
            *(Drawn(bits, seed) for bits in plan["bits"] for seed in range(first, first + plan["random"])),
            *(
                Learned(function, length, seed, *sizes)
                for function in plan["functions"]
                for length in plan["lengths"]
                for seed in range(first, first + plan["seeds"])
            ),
        ]

    def rows(self, trial: lab.Trial, outcome: lab.Outcome) -> Iterable[lab.Row]:
        """A row for each rho."""
        for place, rho in enumerate(RHOS):
            own = {name: value[place] if isinstance(value, list) else value for name, value in outcome.items()}
            yield {"source": trial.tag, **trial.content(), "rho": rho, **own}

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        panels = []
        for rho, rows in table.where(lambda row: row["source"] != "every").by("rho"):
            shown = rows.where(lambda row: row["printed"] > 0)
            ends = [0.0, max([*shown.column("printed"), *shown.column("sharper"), 0.0])]
            series = [
                lab.Series(
                    "by maximal sensitivity (Prop 3.2)", shown.column("printed"), shown.column("probability"), "points"
                ),
                lab.Series("by average sensitivity", shown.column("sharper"), shown.column("probability"), "points"),
                lab.Series("attained", ends, ends, dashed=True),
            ]
            panels.append(lab.Panel(f"rho = {rho:g}", "bound", "P(value changes)", series))
        caption = (
            "Each function or model twice: the probability against either bound. Dashed: a bound that is attained."
        )
        return [lab.Figure("noise-stability", self.title, caption, panels, where="Prop 3.2")]


STUDY = NoiseStability()
