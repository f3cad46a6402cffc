"""Traps for the studies of paper 001, and beside them tables on which their claims do come out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from studies.hardness_rows import rows as length_rows
from studies.traps.trap import Trap

from flipscope.adapters.parameters import weight_norm
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.sensitivity import average_sensitivity
from flipscope.cube.spectrum import weight_floats
from flipscope.data.tables import TableData, completed_table
from flipscope.lab import Claim, Rows
from flipscope.models import Transformer, hardness
from flipscope.probes.blowup import hardness_proxy
from flipscope.studies.hardness import (
    blowup_bound,
    length_generalization,
    norm_blowup,
    norm_essential,
    parity_dynamics,
    random_sensitivity,
    reduced_sensitivity,
    scratchpad,
    sharpness_by_length,
)
from flipscope.studies.hardness.blowup_bound import FEWEST, FORMS, KINDS
from flipscope.studies.hardness.norm_essential import BOUNDED, VARIANTS, Variant, Variation
from flipscope.studies.hardness.parity_dynamics import Dynamics
from flipscope.studies.hardness.random_sensitivity import NORMS, Start
from flipscope.studies.hardness.reduced_sensitivity import Learned, known_rows
from flipscope.studies.hardness.scratchpad import MEASURED
from flipscope.studies.hardness.shared import OTHERS

STUDIES = (
    blowup_bound.STUDY,
    length_generalization.STUDY,
    norm_blowup.STUDY,
    norm_essential.STUDY,
    parity_dynamics.STUDY,
    random_sensitivity.STUDY,
    reduced_sensitivity.STUDY,
    scratchpad.STUDY,
    sharpness_by_length.STUDY,
)


# ---------------------------------------------------------------- reduced-sensitivity

KINDS_OF_ROWS = ((128, "learned"), (256, "learned"), (512, "learned"), (256, "random"))


def _learned(level: Callable[[int, int, int], float], targets: int = 8, seeds: int = 1) -> Rows:
    """Everything that is measured of a target, a seed and a place among the kinds has this level."""
    found = Rows()
    for target, seed, (place, (size, kind)) in (
        (target, seed, each) for target in range(targets) for seed in range(seeds) for each in enumerate(KINDS_OF_ROWS)
    ):
        trial = Learned(target, seed, size, kind, 0, 10, 64, 128, 1, 1, 1e-3)  # type: ignore[arg-type]
        numbers = dict.fromkeys(("sensitivity", "sharpness", "sharpness_known", "high"), level(target, seed, place))
        about = {"fitted": True, "kept": True, "target_sensitivity": level(target, seed, 4)}
        found.append({**trial.content(), **numbers, **about})
    return found


def _reduced(target: int, seed: int, place: int) -> float:
    return 1 + 0.5 * place + 0.1 * float(np.sin(7 * target + 3 * seed + 5 * place))


def _target_effect(target: int, seed: int, place: int) -> float:
    """Each target is higher or lower by itself from kind to kind, its two seeds alike: eight pairs, and four cases."""
    return place * (1.0, 0.9, 1.2, -0.4)[target] + 0.01 * seed


@cache
def _coins() -> Rows:
    """Functions that agree with the known rows and are those of fair coins elsewhere, as if they had been learned."""
    found = Rows()
    for target in range(8):
        for place, (size, kind) in enumerate(KINDS_OF_ROWS):
            trial = Learned(target, 0, size, kind, 0, 10, 64, 128, 1, 1, 1e-3)  # type: ignore[arg-type]
            known = known_rows(trial)
            labels = TableData(table=completed_table(known, 100 * target + place), length=10).values()
            functions = [BooleanFunction.from_table(each) for each in (labels, known.values())]
            own, truth = (float(average_sensitivity(each)) for each in functions)
            high = sum(weight_floats(functions[0])[6:])
            about = {"fitted": True, "kept": True, "sensitivity": own, "target_sensitivity": truth, "high": high}
            found.append({**trial.content(), **about, "sharpness": own / 10, "sharpness_known": own / 10})
    return found


REDUCED = [
    *(
        Trap("reduced-sensitivity", claim, "fair coins stand for what was learned elsewhere", _coins, "undecided")
        for claim in (
            "learned functions are less sensitive than the random one",
            "learned functions are less sensitive than random completions",
            "learned functions have a lower degree than random completions",
            "fewer rows, lower sensitivity",
            "fewer rows, lower degree",
        )
    ),
    *(
        Trap(
            "reduced-sensitivity",
            claim,
            "targets differ, their two seeds do not: four cases in eight pairs",
            partial(_learned, _target_effect, targets=4, seeds=2),
            "undecided",
        )
        for claim in (
            "learned functions are flatter than random completions",
            "flatter on the rows of the training, too",
            "fewer rows, lower sharpness",
            "learned functions are less sensitive than random completions",
        )
    ),
]


# ---------------------------------------------------------------- scratchpad


def _written(exponent: float = 0.0, rise: float = 0.0, kept: bool = True) -> Rows:
    """Three models at each of five lengths; blowup is above that before training by this power of n."""
    found = Rows()
    for number, length in enumerate(np.repeat((4, 8, 16, 24, 32), 3).tolist()):
        noise = 0.01 * float(np.sin(5 * number))
        start = {f"{name}_start": length**0.2 for name in MEASURED}  # as in networks that are not trained
        own = {name: length**0.2 * length**exponent * np.exp(noise) for name in MEASURED if name != "norm"}
        norm = {"norm": 20 * length**exponent * np.exp(noise), "sharpness": 0.2 + rise * (length - 4) / 28 + noise}
        found.append({"length": length, "seed": number, "kept": kept, "tokens": 1.0, **start, **own, **norm})
    return found


SCRATCHPAD = [
    Trap(
        "scratchpad",
        "sharpness does not grow with n",
        "it rises to 0.9, as PARITY's does without a scratchpad",
        partial(_written, rise=0.7),
        "contradicted",
    ),
    *(
        Trap("scratchpad", claim, what, table, expected)  # type: ignore[arg-type]
        for claim in (
            "blowup of the encoder does not grow with n, the paper's proxy",
            "blowup of the decoder does not grow with n, the paper's proxy",
            "blowup of the encoder does not grow with n, all positions and norms",
            "blowup of the decoder does not grow with n, all positions and norms",
            "weight norm does not grow with n",
        )
        for what, table, expected in (
            ("it grows like sqrt(n), as the bound has it without a scratchpad", partial(_written, 0.5), "contradicted"),
            ("networks that write nothing right: not kept", partial(_written, kept=False), "undecided"),
        )
    ),
]


# ---------------------------------------------------------------- norm-essential


def _norms(
    learned: dict[Variant, float],
    weights: dict[Variant, float],
    growth: dict[Variant, float] | None = None,
    blowup: tuple[float, float] = (0.1, 0.0),
) -> Rows:
    """Eight seeds of each variant and length: accuracy, norm at 10 bits and its growth, log10 blowup over the start."""
    found = Rows()
    for number, variant in enumerate(VARIANTS):
        for n in (4, 6, 8, 10):
            for seed in range(8):
                wiggle = 0.02 * float(np.sin(3 * seed + number))
                slope = (growth or {}).get(variant, 0.0) + wiggle
                outcome = {"accuracy": learned[variant], "error": 0.0, "kept": True, "norm": 25.0}
                outcome |= {"matrices": weights[variant] + slope * (n - 10) + wiggle}
                outcome |= {"log10_beta": 2 + (blowup[0] + wiggle) * n, "log10_beta_start": 2 + blowup[1] * n}
                found.append(norm_essential.STUDY.row(Variation(variant, n, seed, 64, 128, 4_000), outcome))
    return found


ALL = dict.fromkeys(VARIANTS, 1.0)
SAME = dict.fromkeys(VARIANTS, 20.0)
LARGER: dict[Variant, float] = {**SAME, **dict.fromkeys(BOUNDED, 25.0)}
NORM_ESSENTIAL = [
    Trap(
        "norm-essential",
        "the paper's model learns PARITY",
        "untrained networks, right on half of the strings",
        partial(_norms, dict.fromkeys(VARIANTS, 0.5), SAME),
        "contradicted",
    ),
    Trap(
        "norm-essential",
        "blowup is essential",
        "all variants learn, with weights of one size",
        partial(_norms, ALL, SAME),
        "undecided",
    ),
    Trap(
        "norm-essential",
        "blowup is essential",
        "nothing learns PARITY, whatever its norms",
        partial(_norms, dict.fromkeys(VARIANTS, 0.5), SAME),
        "undecided",
    ),
    Trap(
        "norm-essential",
        "blowup grows with the length",
        "it grows as much as that of the untrained networks",
        partial(_norms, ALL, SAME, blowup=(0.1, 0.1)),
        "undecided",
    ),
    Trap(
        "norm-essential",
        "without blowup weights grow with the length",
        "weights grow with and without blowup, with it faster",
        partial(_norms, ALL, SAME, {"post": 0.5, "large eps": 0.2, "none": 0.2}),
        "contradicted",
    ),
]


# ---------------------------------------------------------------- sharpness-by-length


def _sharp(parity: float, others: float, above: float = 0.2, long: float = 0.0) -> Rows:
    """Slopes of sharpness per bit, how far PARITY is above the others at 4 bits, and the slope of long strings."""
    short = length_rows(
        "sharpness", lambda f, n: 0.2 + (above + parity * (n - 4) if f == "parity" else others * (n - 4)), seeds=4
    )
    far = length_rows("sharpness", lambda _, n: 0.2 + long * n, lengths=sharpness_by_length.LONG, functions=OTHERS,
                      width=4)  # fmt: skip
    return Rows([*short, *far])


def _near_thirty(level: float) -> Rows:
    return length_rows("sharpness", lambda *_: level, lengths=(28, 30), functions=["parity"])


SHARPNESS = [
    Trap(
        "sharpness-by-length",
        "PARITY is sharper than the others",
        "four functions that are equally sharp at every length",
        partial(_sharp, 0.0, 0.0, above=0.0),
        "undecided",
    ),
    Trap(
        "sharpness-by-length",
        "PARITY becomes sharper with n",
        "PARITY is sharper than the others at every length, by as much",
        partial(_sharp, 0.0, 0.0),
        "contradicted",
    ),
    Trap(
        "sharpness-by-length",
        "MAJORITY, FIRST and MEAN stay as they are",
        "they become sharper as fast as PARITY does",
        partial(_sharp, 0.04, 0.04),
        "contradicted",
    ),
    Trap(
        "sharpness-by-length",
        "PARITY reaches 1 near n = 30",
        "it is at 5, far above its bound",
        partial(_near_thirty, 5.0),
        "contradicted",
    ),
    Trap(
        "sharpness-by-length",
        "flat up to 512 bits",
        "a rise that eight lengths of up to 30 bits do not show: to 1.2 at 512",
        partial(_sharp, 0.04, 0.0, long=0.002),
        "contradicted",
    ),
]


# ---------------------------------------------------------------- parity-dynamics


def _training(sharpness: Callable[[np.ndarray], np.ndarray], noise: float = 0.02, blowup: float = 3.0) -> Rows:
    """Eight runs that converge at step 3,000, with this curve of sharpness over the steps after that."""
    stream = np.random.default_rng(1)
    steps = np.arange(0, 8_001, 100)
    after = steps - 3_000
    found = Rows()
    for seed in range(8):
        curves = {"step": steps, "loss": np.where(after < 0, 0.25, 1e-4), "norm": 20 + steps / 1_000}
        curves |= {"sharpness": np.abs(sharpness(after) * (1 + noise * stream.normal(size=len(steps))))}
        curves |= {"blowup": np.where(after < 0, 1.0, blowup * (1 + 0.01 * stream.normal()))}
        trial = Dynamics(12, seed, 64, 128, 8_000, 0.1, 3e-4, 100, 100)
        found.append(parity_dynamics.STUDY.row(trial, curves))
    return found


def _jump(after: np.ndarray, end: float = 0.5, before: float = 0.05) -> np.ndarray:
    return np.where(after < 0, before, 1 + (end - 1) * np.clip(after / 4_000, 0, 1))


DYNAMICS = [
    Trap(
        "parity-dynamics",
        "the loss drops and sharpness rises at once",
        "sharpness rises steadily over the whole training",
        partial(_training, lambda after: 0.1 + (after + 3_000) / 8_000),
        "contradicted",
    ),
    Trap(
        "parity-dynamics",
        "sharpness falls afterwards",
        "it stays where it jumped to, with noise that has a largest value",
        partial(_training, partial(_jump, end=1.0), noise=0.3),
        "undecided",
    ),
    Trap(
        "parity-dynamics",
        "sharpness falls afterwards",
        "it stays where it jumped to",
        partial(_training, partial(_jump, end=1.0)),
        "contradicted",
    ),
    Trap(
        "parity-dynamics",
        "sharpness does not fall to 0",
        "it comes back to the level it had before, which is not 0",
        partial(_training, partial(_jump, end=0.3, before=0.3)),
        "undecided",
    ),
    Trap(
        "parity-dynamics",
        "sharpness does not fall to 0",
        "it falls below a tenth of the level after convergence",
        partial(_training, partial(_jump, end=0.02)),
        "contradicted",
    ),
    Trap(
        "parity-dynamics",
        "blowup rises with it",
        "the blowup never changes",
        partial(_training, _jump, blowup=1.0),
        "undecided",
    ),
]


# ---------------------------------------------------------------- norm-blowup


def _searched(parity: float, others: float, trade: float = -1.0) -> Rows:
    """Models whose log10 blowup rises by so much per bit, and with log10 norm."""
    found = length_rows("norm", lambda *_: 30.0, lengths=(4, 6, 8, 10), seeds=6, noise=3.0)
    stream = np.random.default_rng(3)
    for row in found:
        level = (parity if row["function"] == "parity" else others) * row["length"] + trade * np.log10(row["norm"])
        row["blowup"] = float(10 ** (level + 0.02 * stream.normal()))
    return found


@cache
def _untrained() -> Rows:
    """The paper's model as it starts, in place of models that learned: the largest 1 / std of more positions."""
    found = Rows()
    for number in range(48):
        n = (4, 6, 8, 10)[number % 4]
        model = Transformer(hardness(n, 32), seed=number).eval()
        strings = torch.from_numpy(np.random.default_rng(number).integers(0, 2, (32, n), np.uint8))
        about = {"function": "parity", "length": n, "seed": number, "width": 32, "kept": True}
        found.append({**about, "norm": weight_norm(model), "blowup": float(hardness_proxy(model, strings).mean())})
    return found


NORM_BLOWUP = [
    Trap(
        "norm-blowup",
        "PARITY's frontier moves out with n",
        "untrained networks, whose blowup is the largest of more positions",
        _untrained,
        "contradicted",
    ),
    Trap(
        "norm-blowup",
        "the others' frontiers stay",
        "they move out as PARITY's does",
        partial(_searched, 0.05, 0.05),
        "contradicted",
    ),
    Trap(
        "norm-blowup",
        "norm is traded for blowup",
        "blowup does not depend on the norm",
        partial(_searched, 0.05, 0.0, trade=0.0),
        "undecided",
    ),
]


# ---------------------------------------------------------------- blowup-bound


def _bounded(count: int = FEWEST, **other: Any) -> Rows:
    """Models of every kind that are within their bounds by a power of ten, the last of them with other columns."""
    usual = {"sensitivity": 1.0, **dict.fromkeys(FORMS, 1.0), "function": "parity", "length": 8}
    gap = {"gap": 0.4, "sharpness": 0.6, "as": 8.0, "as_perturbed": 6.0}
    found = Rows({**usual, **gap, "kind": KINDS[place % 4]} for place in range(count))
    for place, row in enumerate(found):
        row.update({form: row[form] + 0.01 * (-1) ** (place // 4) for form in FORMS}, gap=0.4 + 0.01 * (-1) ** place)
    found[-1].update(other)
    return found


def _one_kind_is_loose() -> Rows:
    """Three kinds near their bound, and one far away: 1.75 on average."""
    return Rows({**row, "product": value, "focus": value} for row in _bounded()
                for value in [row["product"] + (4.0 if row["kind"] == "random" else -0.9)])  # fmt: skip


def _perturbed(falls: float, own: Callable[[int], float] = lambda n: n) -> Rows:
    """Models of PARITY, and the share of their average sensitivity that perturbations leave."""
    return Rows(
        {"kind": "trained", "function": "parity", "length": n, "gap": 0.1, "sharpness": 0.5, "as": own(n)}
        | {"as_perturbed": own(n) * (0.9 - falls * (n - 4) + 0.01 * float(np.sin(3 * seed + n)))}
        for n in (4, 6, 8, 10)
        for seed in range(4)
    )


def _explains(short: float, long: float) -> Rows:
    """Models of PARITY of which the gap explains so much at 4 bits, and so much at 10."""
    shares = {4: short, 10: long}
    return Rows(
        {"kind": "trained", "function": "parity", "length": n, "as": n, "as_perturbed": n / 2, "sharpness": 0.5}
        | {"gap": 0.5 * (shares[n] + 0.01 * (-1) ** seed)}
        for n in shares
        for seed in range(8)
    )


BLOWUP_BOUND = [
    *(
        Trap("blowup-bound", f"{source}: never exceeded", what, table, expected)  # type: ignore[arg-type]
        for form, (source, _) in FORMS.items()
        for what, table, expected in (
            ("one model of a hundred is above its bound", partial(_bounded, **{form: -0.01}), "contradicted"),
            ("five models, none of them above", partial(_bounded, 5), "undecided"),
        )
    ),
    *(
        Trap(
            "blowup-bound",
            f"the bound is close, {form}",
            "close on average, and loose by 10^5 for random models",
            _one_kind_is_loose,
            "contradicted",
        )
        for form in ("product", "focus")
    ),
    Trap(
        "blowup-bound",
        "perturbed models of PARITY lose their sensitivity",
        "perturbations take nothing away, longer PARITY is learned less well",
        partial(_perturbed, 0.0, lambda n: n * (1.2 - n / 20)),
        "undecided",
    ),
    Trap(
        "blowup-bound",
        "perturbed models of PARITY lose their sensitivity",
        "perturbations change nothing at all",
        lambda: Rows({**row, "as_perturbed": row["as"]} for row in _perturbed(0.0)),
        "undecided",
    ),
    Trap(
        "blowup-bound",
        "perturbed models of PARITY lose their sensitivity",
        "they keep more of it the longer the strings: a limit theorem is not contradicted",
        partial(_perturbed, -0.02),
        "undecided",
    ),
    Trap(
        "blowup-bound",
        "sharpness is never below the Fourier gap",
        "one model of a hundred is flatter",
        partial(_bounded, gap=0.7),
        "contradicted",
    ),
    Trap(
        "blowup-bound",
        "the gap explains PARITY's sharpness",
        "it does at short strings, and not at the longest",
        partial(_explains, 0.9, 0.2),
        "contradicted",
    ),
]


# ---------------------------------------------------------------- random-sensitivity


def _starts(ratio: Callable[[int], float], sign: Callable[[int], float], variance: float = 1.0) -> Rows:
    """Twenty models for each length and place of the norm: as / Var and as of the answers."""
    return Rows(
        random_sensitivity.STUDY.row(
            Start(norm, n, seed, 16, 0),
            {"real": variance * (ratio(n) + 0.01 * (seed % 3)), "variance": variance}
            | {"sign": sign(n) * (1 + 0.01 * (seed % 3))},
        )
        for norm in NORMS
        for n in (4, 8, 16, 32)
        for seed in range(20)
    )


RANDOM = [
    Trap(
        "random-sensitivity",
        "random transformers are nearly linear",
        "random functions",
        partial(_starts, lambda n: n / 2, lambda n: n / 2),
        "contradicted",
    ),
    Trap(
        "random-sensitivity",
        "their answers are far below a random function",
        "constant models, which are insensitive without a reason",
        partial(_starts, lambda n: 1.0, lambda n: 0.0, variance=0.0),
        "undecided",
    ),
    Trap(
        "random-sensitivity",
        "their answers are far below a random function",
        "random functions",
        partial(_starts, lambda n: n / 2, lambda n: n / 2),
        "contradicted",
    ),
    Trap(
        "random-sensitivity",
        "sensitivity grows far slower than that of a random function",
        "linear growth above an intercept, whose exponent is 0.4",
        partial(_starts, lambda n: 5 + 0.2 * n, lambda n: 1.0),
        "contradicted",
    ),
]


# ---------------------------------------------------------------- length-generalization


def _longer(accuracy: list[float], kept: bool = True) -> Rows:
    """Models of every task, trained on 4 to 12 bits, with these accuracies at 24 bits."""
    lengths, found = [*range(4, 13), 16, 24, 32], Rows()
    for task, positions in sorted(
        {(trial.task, trial.positions) for trial in length_generalization.STUDY.trials("smoke")}
    ):
        for seed, share in enumerate(accuracy):
            right = [round(1_000 * (share if n == 24 else 1.0)) for n in lengths]
            about = {"task": task, "positions": positions, "seed": seed, "shortest": 4, "longest": 12, "kept": kept}
            found.append({**about, "lengths": lengths, "right": right, "asked": [1_000] * len(lengths)})
    return found


FAILING = [claim.name for claim in length_generalization.STUDY.claims if " fails " in claim.name]
LASTING = [claim.name for claim in length_generalization.STUDY.claims if " does not fail " in claim.name]
LENGTHS = [
    *(
        Trap("length-generalization", claim, what, table, expected)  # type: ignore[arg-type]
        for claim in FAILING
        for what, table, expected in (
            ("models that did not learn their own lengths either", partial(_longer, [0.5] * 6, False), "undecided"),
            ("one of six fails", partial(_longer, [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]), "undecided"),
            ("none fails", partial(_longer, [1.0] * 6), "contradicted"),
        )
    ),
    *(
        Trap("length-generalization", claim, what, table, expected)  # type: ignore[arg-type]
        for claim in LASTING
        for what, table, expected in (
            ("constant answers to longer strings", partial(_longer, [0.5] * 6), "contradicted"),
            ("one lucky model", partial(_longer, [1.0]), "undecided"),
        )
    ),
]

TRAPS: list[Trap] = [
    *REDUCED,
    *SCRATCHPAD,
    *NORM_ESSENTIAL,
    *SHARPNESS,
    *DYNAMICS,
    *NORM_BLOWUP,
    *BLOWUP_BOUND,
    *RANDOM,
    *LENGTHS,
]


def good(study: str, claim: Claim) -> Rows:
    """A table on which the claim is reproduced."""
    tables: dict[str, Callable[[], Rows]] = {
        "reduced-sensitivity": partial(_learned, _reduced),
        "scratchpad": _written,
        "norm-essential": partial(_norms, ALL, LARGER, {"large eps": 0.2, "none": 0.2}),
        "sharpness-by-length": partial(_near_thirty, 1.0) if "30" in claim.name else partial(_sharp, 0.04, 0.0),
        "parity-dynamics": partial(_training, _jump),
        "norm-blowup": partial(_searched, 0.05, 0.0),
        "blowup-bound": partial(_perturbed, 0.03) if "perturbed" in claim.name else _bounded,
        "random-sensitivity": partial(_starts, lambda n: 1.02, lambda n: 1.1),
        "length-generalization": partial(_longer, [0.5 if claim.name in FAILING else 1.0] * 6),
    }
    return tables[study]()
