"""Average sensitivity of randomly initialised transformers against the length, by where their norms are (Thm 7).

Theorem 7 says that the expected average sensitivity of a random transformer is o(n), where that of a random function is
n/2. The paper does not measure it. Here the paper's model is initialised as PyTorch does it, with layer norms after or
before each sub-layer or without any; its average sensitivity comes from all strings, or from random ones at lengths at
which there are too many.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np

import flipscope.lab as lab
from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import generators, random_strings, seed_of
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.sensitivity import average_sensitivity
from flipscope.lab import quantities
from flipscope.models.presets import hardness
from flipscope.models.transformer import Transformer
from flipscope.probes.fourier import oracle, spectrum
from flipscope.probes.sensitivity import logit_changes
from flipscope.studies.hardness.shared import SEPARATE_LAYERS

Norm = Literal["post", "pre", "none"]
NORMS: dict[Norm, str] = {"post": "norm after each sub-layer", "pre": "norm before each sub-layer", "none": "no norm"}
MIDDLE = 1_000  # strings for median and variance where not all are computed: half of them, and their complements
NEAR = 1.1  # as / Var is the mean degree: at most a tenth of the variance is then beyond degree 1
FAR = 1 / 2  # of the way from 1, the least of a balanced function, to the n/2 of a random one
SLOW = 1 / 20  # per bit: a tenth of the 1/2 of a random function
FEWEST = 12  # fewest models for Student's interval
FEWEST_SLOPES = 5  # seeds at three lengths


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Start(lab.Trial):
    """A transformer as it is initialised, measured on `strings` with all their flips; 0 stands for the whole cube."""

    norm: Norm
    length: int
    seed: int
    width: int
    strings: int

    def check(self) -> None:
        if self.length < 3:
            raise InputError(f"length={self.length} must be at least 3: of fewer bits n/2 is the least there is")

    @property
    def cost(self) -> float:
        """The number of tokens to compute."""
        return self.length * (self.strings * (self.length + 1) + MIDDLE if self.strings else 2.0**self.length)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        return sampled(self, progress) if self.strings else exact(self)


def initialised(trial: Start) -> Transformer:
    """The hardness paper's model with PyTorch's initialisation, in float64."""
    config = dataclasses.replace(hardness(trial.length, trial.width), norm=trial.norm)
    return Transformer(config, scheme="pytorch", seed=seed_of(trial.length, trial.seed)).eval().double()


def exact(trial: Start) -> lab.Outcome:
    """Average sensitivity of the output and of its sign around the median, and the variance, from all strings."""
    computed = spectrum(initialised(trial), trial.length)
    sign = BooleanFunction.from_table((computed.logits > np.median(computed.logits)).astype(np.uint8))
    return {
        "real": computed.real.average_sensitivity(),
        "variance": float(computed.real.weight_by_degree()[1:].sum()),
        "sign": float(average_sensitivity(sign)),
    }


def sampled(trial: Start, progress: lab.Progress) -> lab.Outcome:
    """The same from random strings and all their flips; median and variance come from further strings.

    Each of these comes with its complement, so that every bit is 0 as often as 1: where outputs form two clusters, as
    those of a model that follows one bit, the median then lies between them, as that of all strings does.
    """
    model = initialised(trial)
    for_middle, for_flips = generators(seed_of(trial.length, trial.seed, 1), 2)
    output = oracle(model, "logit")
    half = random_strings(for_middle, MIDDLE // 2, trial.length)
    logits = output(np.concatenate([half, 1 - half]))
    median = float(np.median(logits))
    strings = random_strings(for_flips, trial.strings, trial.length)
    changes = logit_changes(Subject(model, precision="float64"), strings, progress=progress)
    here = output(strings)[:, None]
    changed = (here > median) != (here + changes > median)
    real = float(np.square(changes).sum(axis=1).mean()) / 4
    return {"real": real, "variance": float(logits.var()), "sign": float(changed.sum(axis=1).mean())}


# ---------------------------------------------------------------- claims


def mean(words: str, column: str) -> lab.Quantity:
    """The mean of a column at each length and place of the norm, of models that are not constant."""

    def groups(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
        return [
            (f"{norm}, n = {n}", rows.having(column))
            for norm in NORMS
            for n, rows in table.where(norm=norm).by("length")
        ]

    averaged = quantities.mean(lab.Column(words, lambda row: row[column]), fewest=FEWEST)
    return averaged.grouped("for each n and place of the norms, of models that are not constant", groups)


def at_all_lengths(rows: lab.Rows) -> lab.Rows:
    """The models that are not constant, of the seeds that the longest strings have, which are fewer."""
    longest = max(rows.column("length"))
    seeds = {row["seed"] for row in rows.where(length=longest)}
    return rows.having("ratio").where(lambda row: row["seed"] in seeds)


CLAIMS = (
    lab.claim(
        "random transformers are nearly linear",
        "Thm 7",
        "random initialisation is biased towards low sensitivity",
        mean("as / Var of the output", "ratio") <= NEAR,
    ),
    lab.claim(
        "their answers are far below a random function",
        "Thm 7",
        "the Boolean function of a random transformer is far less sensitive than a random one",
        mean("(as - 1) / (n/2 - 1) of sign(T - median)", "way") <= FAR,
    ),
    lab.claim(
        "sensitivity grows far slower than that of a random function",
        "Thm 7",
        "the expected average sensitivity of random transformers is o(n), whereas that of random functions is n/2",
        # Linear and not on log scales, where the initial level of as / Var hides any growth.
        quantities.slope(
            lab.Column("as / Var of the output", lambda row: row["ratio"]),
            "length",
            per="seed",
            fewest=FEWEST_SLOPES,
            unit="seeds",
        )
        .each("norm", NORMS, words="place of the norms", what="places of the norm", weakest_first=False)
        .counting("those that the longest strings have", at_all_lengths)
        .noting(lambda rows: f"n up to {max(rows.column('length'))}")
        <= SLOW,
    ),
)


# ---------------------------------------------------------------- the study


class RandomSensitivity(lab.Study):
    """Whether transformers are insensitive before they are trained, at every length."""

    name, paper, figures = "random-sensitivity", "001", ()
    title = "Average sensitivity of randomly initialised transformers against the length"
    scales = lab.scales(
        "norm after, before and nowhere; width {width}; {models} models for each n in {lengths}, all strings; "
        "{long_models} for each n in {long}, {strings} strings with all flips",
        smoke=(0.1, {"width": 16, "lengths": (3, 4, 5), "models": 3, "long": (8,), "long_models": 1, "strings": 5}
               | {"first_seed": 0}),
        # Seeds from 1000 on: models with seeds 0 to 39 were used to choose growth per bit as the criterion.
        laptop=(4, {"width": 128, "lengths": (4, 6, 8, 10, 12), "models": 40}
                | {"long": (24, 48, 96), "long_models": 16, "strings": 16, "first_seed": 1_000}),
        paper=(1_000, {"width": 128, "lengths": (4, 6, 8, 10, 12, 16), "models": 100}
               | {"long": (24, 48, 96, 192, 384), "long_models": 100, "strings": 100, "first_seed": 0}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("experiment", "a theorem, nothing measured", "the paper's model, PyTorch's start", "Thm 7 is a limit"),
        ("as / Var", "as of the model itself", "as over the variance", "the scale of an untrained output is arbitrary"),
        ("threshold", "not stated", "the median of the model's outputs", "around 0 many models are constant"),
        ("norm before, none", "not stated", "norms moved or left out, no final norm", "to see their effect"),
        (
            "near, far, slow",
            "as_n = o(n)",
            f"{NEAR:g}; {FAR:g} of the way from 1 to n/2; {SLOW:g} per bit",
            "a limit theorem has no numbers, and no finite n says o(n)",
        ),
        (
            "constant models",
            "have as_n = 0",
            "are counted and not judged",
            "they are insensitive trivially",
        ),
        (
            "models, lengths, long, long models, strings",
            "nothing measured",
            "laptop: 40 up to 12 bits, 16 up to 96, 16 strings; smoke: 3 up to 5, one of 8, 5 strings",
            "time",
        ),
        ("width (smoke)", "128", "16", "to take seconds"),
        ("first seed (laptop)", "0", "1000", "models not used by any earlier run"),
        SEPARATE_LAYERS,
    )
    claims = CLAIMS

    def trials(self, scale: str) -> list[Start]:
        plan = self.scales[scale].settings
        sizes = [(n, plan["models"], 0) for n in plan["lengths"]]
        sizes += [(n, plan["long_models"], plan["strings"]) for n in plan["long"]]
        return [
            Start(norm, n, seed, plan["width"], strings)
            for norm in NORMS
            for n, models, strings in sizes
            for seed in range(plan["first_seed"], plan["first_seed"] + models)
        ]

    def row(self, trial: Start, outcome: lab.Outcome) -> lab.Row:
        """Adds as / Var and the answers' share of the way to a random function; None for constant models."""
        ratio = outcome["real"] / outcome["variance"] if outcome["variance"] > 0 else None
        way = (outcome["sign"] - 1) / (trial.length / 2 - 1) if outcome["sign"] > 0 else None
        return {**super().row(trial, outcome), "ratio": ratio, "way": way}

    def provenance(self, table: lab.Rows) -> list[str]:
        constant = len(table) - len(table.having("way"))
        return [f"{constant} of {len(table)} models give one answer to all their strings: counted and not judged"]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        lengths = table.values("length")
        half = lab.Series("n/2, a random function", lengths, [n / 2 for n in lengths], dashed=True, colour=len(NORMS))
        columns = {"ratio": "as / Var of the output", "sign": "as of sign(output - median)"}
        panels = [
            lab.chart(
                table.having("way"), "length", column, by="norm", labels=NORMS, extra=[half], x_label="length n",
                y_label=label, x_log=True, y_log=True,
            )
            for column, label in columns.items()
        ]  # fmt: skip
        caption = "Lines: means over models; bands: the least and the largest. Dashed: n/2."
        return [lab.Figure("random-sensitivity", self.title, caption, panels, where="Thm 7")]


STUDY = RandomSensitivity()
