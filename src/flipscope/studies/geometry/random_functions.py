"""How many strings of sensitivity 0 a uniformly random function has: Poisson(1) many, in the limit (§7)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
from flipscope.basics.seeds import seed_of
from flipscope.cube import functions
from flipscope.cube.sensitivity import zero_strings

BLOCK = 500  # functions in one trial
POISSON = tuple(math.exp(-1) / math.factorial(k) for k in range(7))  # P(Poisson(1) = k)
TOLERANCE = 0.05  # largest total variation distance from it that the interval may include
LEAST = 5  # least expected number in a cell of the chi-square test; rarer counts share the last cell
# At N bits the distribution differs from the limit by about N/2^N (0.03 at 8, 0.003 at 12).
SHORTEST = 12


@dataclass(frozen=True)
class Functions(lab.Trial):
    """Uniformly random functions of `length` bits."""

    length: int
    block: int
    count: int

    @property
    def cost(self) -> float:
        return self.count * 2.0**self.length  # entries of the truth tables

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        seeds = [seed_of(self.length, self.block, number) for number in range(self.count)]
        return {"zeros": np.array([zero_strings(functions.random(self.length, seed)) for seed in seeds])}


def _shape(table: lab.Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How many functions have 0, 1, 2, ... such strings, and how many are expected, the rare ones in the last cell."""
    total = table.total("count")
    cells = max(2, 1 + sum(total * (1 - sum(POISSON[:k])) >= LEAST for k in range(1, len(POISSON))))
    seen, expected = np.zeros(cells), np.append(POISSON[: cells - 1], 1 - sum(POISSON[: cells - 1])) * total
    for histogram in table.column("histogram"):
        seen[: cells - 1] += histogram[: cells - 1]
        seen[-1] += sum(histogram[cells - 1 :])
    return seen, expected


def _judge(table: lab.Rows) -> lab.Judgement:
    longest = max(table.column("length"))
    if longest < SHORTEST:
        reason = f"functions of {longest} bits are too short for the limit"
        return lab.Judgement.without(reason, f"functions of {SHORTEST} bits or more")
    seen, expected = _shape(table.where(length=longest))
    total, cells = int(seen.sum()), len(seen)
    away = float(np.abs(seen - expected).sum()) / (2 * total)
    # The share of each of the 2^k - 2 events of k cells is wrong by more than r with probability <= exp(-2 n r^2)
    # (Hoeffding), and the largest of them is the total variation. The interval and the test share the error of the
    # judgement.
    confidence = lab.confidence(2)
    reach = math.sqrt(math.log((2**cells - 2) / (1 - confidence)) / (2 * total))
    distance = Estimate(away, max(0.0, away - reach), away + reach, confidence, total)
    name = f"total variation between Poisson(1) and the counts of functions of {longest} bits"
    chance = float(stats.chisquare(seen, expected).pvalue)
    test = f"chance of so large a chi-square if they were Poisson(1), {cells} cells"
    parts = [
        lab.at_most(distance, TOLERANCE, name, unit="functions"),
        lab.at_least(Estimate(chance, chance, chance, confidence, total), 1 - confidence, test, unit="functions"),
    ]
    return lab.all_of(parts)


class RandomFunctions(lab.Study):
    """Whether random functions, unlike random transformers, have few strings that no flip moves."""

    name, paper = "random-functions", "000"
    title = "The number of sensitivity-0 strings of random functions, compared with Poisson(1)"
    scales = lab.scales(
        "{functions:,} random functions of {bits} bits",
        smoke=(0.1, {"bits": (8,), "functions": 200}),
        demo=(0.1, {"bits": (8, 12), "functions": 4_000}),
        laptop=(0.2, {"bits": (8, 12, 16), "functions": 4_000}),
        paper=(10, {"bits": (8, 12, 16, 20), "functions": 20_000}),
    )
    deviations = lab.deviations(
        ("experiment", "a limit, nothing measured", "counted, all strings", "§ 7 appeals to counts"),
        ("bits, functions (up to laptop)", "the limit of long strings", "fewer than at scale paper", "to take minutes"),
    )
    claims = (
        lab.Claim(
            "random functions: strings of sensitivity 0 follow Poisson(1)",
            "§7",
            "the number of sensitivity-0 strings of a random function converges to Poisson(1) in distribution",
            f"of functions of at least {SHORTEST} bits: total variation at most {TOLERANCE}, and not rejected by a "
            "chi-square test, each with half of the error",
            _judge,
        ),
    )

    def trials(self, scale: str) -> list[Functions]:
        plan = self.scales[scale].settings
        blocks = math.ceil(plan["functions"] / BLOCK)
        size = math.ceil(plan["functions"] / blocks)
        return [Functions(bits, block, size) for bits in plan["bits"] for block in range(blocks)]

    def row(self, trial: Functions, outcome: lab.Outcome) -> lab.Row:
        histogram = np.bincount(outcome["zeros"], minlength=len(POISSON)).tolist()
        return {**trial.content(), "histogram": histogram}

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        laws, places = [], list(range(len(POISSON)))
        for bits, rows in table.by("length"):
            heights = np.sum([each[: len(POISSON)] for each in rows.column("histogram")], axis=0) / rows.total("count")
            laws.append(lab.Series(f"{bits} bits", places, heights.tolist(), "points"))
        laws.append(lab.Series("Poisson(1)", places, POISSON, "steps", dashed=True))
        rules = [lab.Rule(math.exp(-1), "1/e")]
        panel = lab.Panel("", "strings of sensitivity 0", "share of functions", laws, rules=rules)
        caption = "Share of the functions with so many such strings, beside Poisson(1)."
        return [lab.Figure("zero-strings-of-functions", self.title, caption, [panel], columns=1, where="§7")]


STUDY = RandomFunctions()
