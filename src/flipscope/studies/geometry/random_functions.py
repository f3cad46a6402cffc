"""How many strings of sensitivity 0 a uniformly random function has: Poisson(1) many, in the limit (§7)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import flipscope.lab as lab
from flipscope.basics.seeds import seed_of
from flipscope.cube import functions
from flipscope.cube.sensitivity import zero_strings

BLOCK = 500  # functions in one trial
POISSON = tuple(math.exp(-1) / math.factorial(k) for k in range(7))  # P(Poisson(1) = k)
SOME, TOLERANCE = 1 - math.exp(-1), 0.05  # P(Poisson(1) >= 1), and how far from it the interval may reach
# The limit is off by about N/2^N at N bits (0.03 at 8, 0.003 at 12): shorter functions say nothing of it.
SHORTEST = 12


@dataclass(frozen=True)
class Functions(lab.Trial):
    """Uniformly random functions of so many bits."""

    length: int
    block: int
    count: int

    @property
    def cost(self) -> float:
        return self.count * 2.0**self.length  # entries of the truth tables


def _judge(table: lab.Rows) -> lab.Judgement:
    longest = max(table.column("length"))
    if longest < SHORTEST:
        said = f"functions of {longest} bits are too short for the limit"
        return lab.Judgement.without(said, f"functions of {SHORTEST} bits or more")
    own = table.where(length=longest)
    found = lab.share(own.total("having"), own.total("count"))
    name = f"share of functions of {longest} bits with a string of sensitivity 0"
    return lab.consistent_with(found, SOME, TOLERANCE, name, unit="functions")


class RandomFunctions(lab.Study):
    """Whether random functions, unlike random transformers, have few strings that no flip moves."""

    name, paper = "random-functions", "000"
    title = "Strings of sensitivity 0 of uniformly random functions beside Poisson(1)"
    scales = lab.scales(
        "{functions:,} random functions of {bits} bits",
        smoke=(0.1, {"bits": (8,), "functions": 200}),
        demo=(0.1, {"bits": (8, 12), "functions": 4_000}),
        laptop=(0.2, {"bits": (8, 12, 16), "functions": 4_000}),
        paper=(10, {"bits": (8, 12, 16, 20), "functions": 20_000}),
    )
    deviations = lab.deviations(("experiment", "silent: a limit", "counted, all strings", "§ 7 appeals to counts"))
    claims = (
        lab.Claim(
            "random functions: strings of sensitivity 0 follow Poisson(1)",
            "§7",
            "a uniformly random function has a string of sensitivity 0 with probability 1 - 1/e for large N",
            f"share of random functions of at least {SHORTEST} bits that have one: {SOME:.4f} within {TOLERANCE}",
            _judge,
        ),
    )

    def trials(self, scale: str) -> list[Functions]:
        plan = self.scales[scale].settings
        blocks = math.ceil(plan["functions"] / BLOCK)
        size = math.ceil(plan["functions"] / blocks)
        return [Functions(bits, block, size) for bits in plan["bits"] for block in range(blocks)]

    def measure(self, trial: Functions, progress: lab.Progress) -> lab.Outcome:
        seeds = [seed_of(trial.length, trial.block, number) for number in range(trial.count)]
        return {"zeros": np.array([zero_strings(functions.random(trial.length, seed)) for seed in seeds])}

    def row(self, trial: Functions, outcome: lab.Outcome) -> lab.Row:
        histogram = np.bincount(outcome["zeros"], minlength=len(POISSON)).tolist()
        return {**trial.content(), "having": int((outcome["zeros"] > 0).sum()), "histogram": histogram}

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
