"""How many strings have sensitivity 0: random transformers (Thm 4.5) beside uniformly random functions (§7)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch

from flipscope.bounds.geometry import Threshold
from flipscope.cube import functions
from flipscope.cube.blocks import Progress
from flipscope.cube.estimate import generators, random_strings
from flipscope.cube.intervals import mean_from_samples, proportions
from flipscope.cube.sensitivity import zero_strings
from flipscope.errors import InputError
from flipscope.lab.plots import Figure, Panel, Rule, Series
from flipscope.lab.study import Outcome, Result, Scale, Study, Table, Trial
from flipscope.models.config import TransformerConfig, encoder, recognizer
from flipscope.models.transformer import Transformer
from flipscope.probes import flips
from flipscope.studies.geometry._shared import flip_work, seed_of
from flipscope.studies.geometry._zero_claims import CLAIMS, POISSON, by_shape, network_rows

Preset = Literal["recognizer", "encoder"]
PRESETS: tuple[Preset, ...] = get_args(Preset)
MAX_EXACT = 16  # bits: up to here all strings are asked
BLOCK = 500  # random functions in one trial
BESIDES = 2e10  # multiply-adds of the half second in which a model is built and its precision checked


@dataclass(frozen=True)
class Network(Trial):
    """A random transformer, parameters uniform in [-1, 1], on strings of one length.

    A seed stands for the same model at every length, and for unrelated models of different shapes.
    """

    preset: Preset
    width: int
    layers: int
    eps: float
    seed: int
    length: int
    strings: int  # asked beyond MAX_EXACT bits, drawn at random

    def check(self) -> None:
        if min(self.width, self.layers, self.length, self.strings) < 1 or self.seed < 0:
            raise InputError(f"{self} needs a width, layers, a length, strings, and a seed from 0 on")

    @property
    def config(self) -> TransformerConfig:
        """Its choices; one head."""
        return (recognizer if self.preset == "recognizer" else encoder)(self.width, self.layers, 1, eps=self.eps)

    @property
    def model_seed(self) -> int:
        """Of the weights, and with the length of the strings."""
        return seed_of(PRESETS.index(self.preset), self.width, self.layers, round(self.eps * 1e9), self.seed)

    @property
    def asked(self) -> int:
        """Number of strings whose sensitivity is found."""
        return 1 << self.length if self.length <= MAX_EXACT else self.strings

    @property
    def cost(self) -> float:
        """Multiply-adds, and what a trial takes besides; of a sample of strings every flip is asked as well."""
        work = flip_work(self.config, self.length)
        return BESIDES + self.asked * (work / (self.length + 1) if self.length <= MAX_EXACT else work)


@dataclass(frozen=True)
class Functions(Trial):
    """Uniformly random functions of so many bits."""

    length: int
    block: int
    count: int

    @property
    def cost(self) -> float:
        """Entries of the truth tables, in multiply-adds."""
        return 1e3 * self.count * 2.0**self.length


@dataclass(frozen=True)
class Plan:
    """What a scale measures."""

    models: int  # of each shape
    lengths: tuple[int, ...]
    strings: int
    bits: tuple[int, ...]  # of the random functions
    functions: int  # of each


# (D-1)/2L - 5 is 2.75 for the first shape, negative for the second; the third has eps > 0, and the last is the model
# of App. F, to which the theorem does not apply to the letter.
SHAPES: tuple[tuple[Preset, int, int, float], ...] = (
    ("recognizer", 32, 2, 0.0),
    ("recognizer", 16, 2, 0.0),
    ("recognizer", 32, 2, 1.0),
    ("encoder", 32, 2, 1e-5),
)
LENGTHS = (4, 6, 8, 10, 12, 14, 16, 24, 40, 64, 100, 150)
PLANS = {
    "smoke": Plan(3, (4, 8, 24), 20, (8,), 200),
    "laptop": Plan(40, LENGTHS, 100, (8, 12, 16), 4_000),
    "paper": Plan(500, (*LENGTHS, 250, 400), 1_000, (8, 12, 16, 20), 20_000),
}


class ZeroStrings(Study):
    """Whether random transformers have strings that no flip moves, and how many."""

    name = "zero-strings"
    paper = "000"
    title = "Strings of sensitivity 0 against N: random transformers beside random functions"
    scales = {
        "smoke": Scale("3 transformers of each of 4 shapes, N up to 24; 200 random functions of 8 bits", 0.1),
        "laptop": Scale("40 transformers of each of 4 shapes, N up to 150; 4,000 random functions of 8 to 16 bits", 10),
        "paper": Scale(
            "500 transformers of each of 4 shapes, N up to 400; the paper proves this, without counts", 4_500
        ),
    }
    claims = CLAIMS

    def trials(self, scale: str) -> list[Trial]:
        plan = PLANS[scale]
        networks: list[Trial] = [
            Network(*shape, seed, length, plan.strings)
            for shape, seed, length in itertools.product(SHAPES, range(plan.models), plan.lengths)
        ]
        blocks = math.ceil(plan.functions / BLOCK)
        size = math.ceil(plan.functions / blocks)
        return networks + [Functions(bits, block, size) for bits in plan.bits for block in range(blocks)]

    def measure(self, trial: Network | Functions, progress: Progress) -> Outcome:
        if isinstance(trial, Functions):
            seeds = [seed_of(trial.length, trial.block, number) for number in range(trial.count)]
            return {"zeros": np.array([zero_strings(functions.random(trial.length, seed)) for seed in seeds])}
        model = Transformer(trial.config, scheme="uniform", seed=trial.model_seed)
        if trial.length <= MAX_EXACT:
            exact = flips.spectrum(model, trial.length, exhaustive=True, progress=progress)
            zeros = exact.profile[0]
            # The cube is connected: every string has sensitivity 0 just if the function is constant.
            return {"zeros": zeros, "constant": zeros == trial.asked, "near_ties": exact.near_ties}
        (stream,) = generators(seed_of(trial.model_seed, trial.length), 1)
        strings = random_strings(stream, trial.strings, trial.length)
        found = flips.measure(model, strings, progress=progress)
        with torch.no_grad():
            ones = int((model.eval()(torch.from_numpy(strings)) > 0).sum())
        zeros = int((found.counts == 0).sum())
        constant = zeros == len(strings) and ones in (0, len(strings))  # as far as the sample shows
        return {"zeros": zeros, "constant": constant, "near_ties": found.near_ties}

    def summarise(self, results: Sequence[Result]) -> Table:
        drawn: dict[int, list[Any]] = {}
        rows: Table = []
        for result in results:
            trial = result.trial
            if isinstance(trial, Functions):
                drawn.setdefault(trial.length, []).append(result.outcome["zeros"])
            elif isinstance(trial, Network):
                rows.append(_network_row(trial, result.outcome))
        rows.sort(key=lambda row: (SHAPES.index(row["shape"]), row["seed"], row["length"]))
        for row in rows:
            row["shape"] = _named(row["shape"])
        return rows + [_function_row(bits, np.concatenate(drawn[bits])) for bits in sorted(drawn)]

    def draw(self, table: Table) -> list[Figure]:
        return [
            Figure(
                "zero-strings-by-length",
                "Strings of sensitivity 0 in random transformers",
                "Left: mean share over models with its interval (dashed: over models that are not constant at that "
                "length). Right: log2 of their number, median over models, beside the theorem's threshold and all 2^N "
                "strings (both dashed).",
                [_share_panel(table), _number_panel(table)],
                where="Thm 4.5",
            ),
            Figure(
                "zero-strings-of-functions",
                "Strings of sensitivity 0 in uniformly random functions",
                "Share of the functions with so many such strings, beside Poisson(1).",
                [_poisson_panel(table)],
                columns=1,
                where="§7",
            ),
        ]


def _named(shape: tuple[str, int, int, float]) -> str:
    preset, width, layers, eps = shape
    return f"{preset} D={width} L={layers} eps={eps:g}"


def _network_row(trial: Network, outcome: Outcome) -> dict[str, Any]:
    zeros, asked = outcome["zeros"], trial.asked
    share = zeros / asked
    # Clopper and Pearson's lower end, for what can be said of all strings from some of them.
    low = share if trial.length <= MAX_EXACT else proportions([zeros], asked)[0].low
    return {
        "kind": "network",
        "shape": (trial.preset, trial.width, trial.layers, trial.eps),
        "eps": trial.eps,
        "preset": trial.preset,
        "exponent": Threshold(trial.width, trial.layers).exponent,
        "seed": trial.seed,
        "length": trial.length,
        "exact": trial.length <= MAX_EXACT,
        "asked": asked,
        "zeros": zeros,
        "share": share,
        "log2_zeros": trial.length + math.log2(share) if zeros else None,
        "log2_zeros_low": trial.length + math.log2(low) if low else None,
        "log2_threshold": Threshold(trial.width, trial.layers).log2_at(trial.length),
        "constant": outcome["constant"],
        "near_ties": outcome["near_ties"],
        "histogram": None,
    }


def _function_row(bits: int, zeros: np.ndarray[Any, Any]) -> dict[str, Any]:
    names = ("shape", "eps", "preset", "exponent", "seed", "log2_zeros", "log2_zeros_low", "log2_threshold", "constant")
    return {
        "kind": "function",
        **dict.fromkeys(names),
        "length": bits,
        "exact": True,
        "asked": len(zeros),
        "zeros": int((zeros > 0).sum()),  # functions that have such a string
        "share": float(np.mean(zeros > 0)),
        "near_ties": 0,
        "histogram": np.bincount(zeros, minlength=len(POISSON)).tolist(),
    }


# ---------------------------------------------------------------- figures


def _share_panel(table: Table) -> Panel:
    series = []
    for colour, (shape, rows) in enumerate(by_shape(network_rows(table)).items()):
        for only_varied in (False, True):
            kept = [row for row in rows if not (only_varied and row["constant"])]
            lengths = sorted({row["length"] for row in kept})
            means = [mean_from_samples([r["share"] for r in kept if r["length"] == n], 0, 1) for n in lengths]
            ends = ([mean.low for mean in means], [mean.high for mean in means])
            low, high = (None, None) if only_varied else ends
            label = f"{shape}, not constant" if only_varied else shape
            values = [mean.value for mean in means]
            series.append(Series(label, lengths, values, low=low, high=high, dashed=only_varied, colour=colour))
    return Panel("Share", "N", "share of strings", series, x_log=True, y_range=(0, 1))


def _number_panel(table: Table) -> Panel:
    series = []
    for colour, (shape, rows) in enumerate(by_shape(network_rows(table)).items()):
        lengths = sorted({row["length"] for row in rows})
        middle = [
            float(np.median([row["log2_zeros"] or 0.0 for row in rows if row["length"] == length]))
            for length in lengths
        ]
        series.append(Series(shape, lengths, middle, "points", colour=colour))
        if rows[0]["exponent"] > 0 and rows[0]["eps"] == 0:
            bounds = {row["length"]: row["log2_threshold"] for row in rows}
            values = [bounds[length] for length in lengths]
            series.append(Series(f"threshold, {shape}", lengths, values, dashed=True, colour=colour))
    every = sorted({row["length"] for row in network_rows(table)})
    series.append(Series("all strings", every, [float(length) for length in every], dashed=True))
    return Panel("Number", "N", "log2 of the number", series)


def _poisson_panel(table: Table) -> Panel:
    rows = [row for row in table if row["kind"] == "function"]
    series = []
    for row in rows:
        shares = [count / row["asked"] for count in row["histogram"][: len(POISSON)]]
        series.append(Series(f"{row['length']} bits", list(range(len(POISSON))), shares, "points"))
    series.append(Series("Poisson(1)", list(range(len(POISSON))), list(POISSON), "steps", dashed=True))
    return Panel(
        "Random functions", "strings of sensitivity 0", "share of functions", series, rules=(Rule(math.exp(-1), "1/e"),)
    )


STUDY = ZeroStrings()
