"""Traps for the studies of paper 004, and beside them tables on which their claims do come out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from studies.traps import images, texts
from studies.traps.trap import Trap

from flipscope.lab import Claim, Rows
from flipscope.lab.rows import Row
from flipscope.studies.low_sensitivity import (
    flatness,
    grokking,
    kernel_spectrum,
    noise_stability,
    parity_progress,
    robustness,
    sparse_or_frequent,
    vision,
)
from flipscope.studies.low_sensitivity.kernel_spectrum import DEGREES, KINDS, READOUTS
from flipscope.studies.low_sensitivity.noise_stability import RHOS

STUDIES = (
    kernel_spectrum.STUDY,
    noise_stability.STUDY,
    sparse_or_frequent.STUDY,
    grokking.STUDY,
    parity_progress.STUDY,
    vision.STUDY,
    robustness.STUDY,
    flatness.STUDY,
    *texts.STUDIES,
)


def _changed(rows: Rows, test: Callable[[Row], bool], **values: Any) -> Rows:
    """The rows, with these values in those that pass the test."""
    return Rows({**row, **values} if test(row) else row for row in rows)


def _first(test: Callable[[Row], bool]) -> Callable[[Row], bool]:
    """The same test, passed only once."""
    met: list[Row] = []

    def once(row: Row) -> bool:
        if not met and test(row):
            met.append(row)
            return True
        return False

    return once


# ---------------------------------------------------------------- noise-stability


def _noise() -> Rows:
    """Functions of all sources that keep every bound."""
    fine = {"printed_broken": 0, "sharper_broken": 0, "degree_broken": 0}
    found = Rows()
    for rho in RHOS:
        found.append(
            {"source": "every", "bits": 4, "rho": rho, "cases": 65_536, "correlation": 0.8, "loose": 0.9, **fine}
        )
        for source, count in (("zoo", 12), ("trained", 9)):
            found += [{"source": source, "bits": None, "rho": rho, "cases": 1, **fine}] * count
        for bits in (6, 8):
            for seed in range(20):
                numbers = {"probability": 0.2 + 0.001 * np.sin(seed), "sharper": 0.21}
                found.append({"source": "random", "bits": bits, "rho": rho, "cases": 1, **numbers, **fine})
    return found


def _noise_with(test: Callable[[Row], bool], **values: Any) -> Rows:
    return _changed(_noise(), _first(test), **values)


NOISE = [
    Trap("noise-stability", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        (
            "Prop 3.2 holds",
            "one trained model of nine above the bound, at one rho",
            partial(_noise_with, lambda row: row["source"] == "trained", printed_broken=1),
            "contradicted",
        ),
        (
            "Prop 3.2 holds",
            "no trained model at all",
            lambda: _noise().where(lambda row: row["source"] != "trained"),
            "undecided",
        ),
        (
            "the degree is at most the square of the sensitivity",
            "one random function of too large a degree",
            lambda: _changed(_noise(), lambda row: row["source"] == "random" and row["bits"] == 6, degree_broken=1),
            "contradicted",
        ),
        (
            "less sensitive functions are more robust",
            "a weak correlation at one rho",
            partial(_noise_with, lambda row: row["source"] == "every", correlation=0.2),
            "contradicted",
        ),
        (
            "the average sensitivity bounds it as well",
            "one of 65,536 functions above the bound",
            partial(_noise_with, lambda row: row["source"] == "every", sharper_broken=1),
            "contradicted",
        ),
        (
            "Prop 3.2 is loose for most functions",
            "a third of the functions only, at rho = 0.9; more at another",
            lambda: _changed(_noise(), lambda row: row["rho"] == 0.9, loose=0.33),
            "contradicted",
        ),
        (
            "random functions nearly attain the bound by average sensitivity",
            "close at 6 bits, far off at 8",
            lambda: Rows(
                {**row, "sharper": 0.3} if row["bits"] == 8 and row["source"] == "random" else row for row in _noise()
            ),
            "contradicted",
        ),
        (
            "random functions nearly attain the bound by average sensitivity",
            "three functions, equal to the last digit",
            lambda: Rows({**row, "probability": 0.2} for row in _noise().where(source="random", rho=0.9)[:3]),
            "undecided",
        ),
    )
]


# ---------------------------------------------------------------- kernel-spectrum


def _kernels(*, exponent: float = -0.5, floor: float = 0.0) -> Rows:
    """Kernels that do what Prop 3.1 says, with whatever embedding; errors fall with this power of the width."""
    found = Rows()
    for kind in KINDS:
        for readout in READOUTS:
            for tokens in (0, 2, 3):
                exact = {"off_diagonal": 1e-16, "spread": 1e-16, "chain": True}
                found.append({"source": "pairs", "kind": kind, "readout": readout, "tokens": tokens, **exact})
            for depth in (1, 2, 4):
                chains = {"chain": True, "mlp_bits_chain": True, "mlp_slots_chain": True}
                tails = {"tail": 0.02, "mlp_slots_tail": 0.05}
                found.append({"source": "slots", "kind": kind, "readout": readout, "depth": depth, **chains, **tails})
        for seed in range(12):
            wiggle = 1 + 0.05 * np.sin(7 * seed)
            for degree in DEGREES:
                found.append({"source": "softmax", "kind": kind, "degree": degree, "gap": 0.5**degree * wiggle})
            for width in (16, 32, 64, 128):
                error = floor + wiggle * (1 + 0.1 * np.sin(seed * width)) * width**exponent
                found.append({"source": "finite", "kind": kind, "width": width, "seed": seed, "error": float(error)})
    return found


def _kernels_with(test: Callable[[Row], bool], **values: Any) -> Rows:
    return _changed(_kernels(), _first(test), **values)


def _cut(row: Row) -> bool:
    return bool(row["source"] == "pairs" and row["tokens"])


KERNELS = [
    Trap("kernel-spectrum", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        (
            "the monomials are eigenfunctions",
            "one of twelve kernels has a twentieth of its norm off the diagonal",
            partial(_kernels_with, _cut, off_diagonal=0.05),
            "contradicted",
        ),
        (
            "eigenvalues fall along even and along odd degrees",
            "one chain is broken, of a kernel whose monomials are eigenfunctions",
            partial(_kernels_with, _cut, chain=False),
            "contradicted",
        ),
        (
            "the eigenvalues of MLPs fall along even and along odd degrees",
            "they fall on bits, and not on slots",
            lambda: _changed(_kernels(), lambda row: row["source"] == "slots", mlp_slots_chain=False),
            "contradicted",
        ),
        (
            "networks approach the kernels of infinite width",
            "an error that no width makes smaller",
            partial(_kernels, exponent=-1.0, floor=2.0),
            "contradicted",
        ),
        (
            "networks approach the kernels of infinite width",
            "two widths have no slope",
            lambda: _kernels().where(lambda row: row["source"] == "finite" and row["width"] in (16, 32)),
            "undecided",
        ),
        (
            "with slots the monomials are eigenfunctions",
            "read at one position: eigenfunctions, but several eigenvalues in a degree",
            lambda: _changed(_kernels(), lambda row: row["source"] == "pairs" and not row["tokens"], spread=0.7),
            "contradicted",
        ),
        (
            "with slots the eigenvalues fall",
            "one depth breaks the chain",
            lambda: _changed(_kernels(), lambda row: row["source"] == "slots" and row["depth"] == 4, chain=False),
            "contradicted",
        ),
        (
            "softmax attention: eigenvalues fall at low degrees",
            "the NTK's third gap is negative, all others are large",
            lambda: Rows(
                {**row, "gap": -row["gap"]}
                if (row["source"], row["kind"], row.get("degree")) == ("softmax", "ntk", 2)
                else row
                for row in _kernels()
            ),
            "contradicted",
        ),
        (
            "attention has a stronger bias than an MLP",
            "stronger at depths 1 and 2 only",
            lambda: _changed(_kernels(), lambda row: row["source"] == "slots" and row["depth"] == 4, tail=0.06),
            "contradicted",
        ),
    )
]


# ---------------------------------------------------------------- sparse-or-frequent


def _tokens(*, trained: bool = True, decisive: str = "less sensitive") -> Rows:
    """Models that rely on the less sensitive feature in every printed setting, and on one of them in the others."""
    found = Rows()
    printed = sparse_or_frequent.PRINTED
    for setting in (*printed, *sparse_or_frequent.DECISIVE):
        places = dict(zip(sparse_or_frequent.PLACES, setting, strict=True))
        for place, feature in enumerate(("sparse", "frequent")):
            value = printed[setting][place] if setting in printed else None
            found.append({"source": "predictors", **places, "length": 50, "feature": feature, "exact": value,
                          "printed": value})  # fmt: skip
    for setting in (*sparse_or_frequent.SPARSE_FIRST, *sparse_or_frequent.FREQUENT_FIRST, *sparse_or_frequent.DECISIVE):
        sparse = setting in sparse_or_frequent.SPARSE_FIRST
        if setting in sparse_or_frequent.DECISIVE:
            sparse = decisive == "stronger"
        for seed in range(5):
            found.append(_token_model(setting, seed, "sparse" if sparse else "frequent", trained=trained))
    return found


def _token_model(setting: tuple[int, ...], seed: int, relies: str, *, trained: bool = True) -> Row:
    """A model that relies on a feature; an untrained one does nothing in particular."""
    wiggle = 0.01 * float(np.sin(3 * seed))
    opposed = {"sparse": 0.02, "frequent": 0.98}[relies] if trained else 0.5
    aligned = {group: (0.95 if group == relies else 0.05) if trained else 0.0 for group in ("sparse", "frequent")}
    counts = (setting[0], setting[1], 50 - setting[0] - setting[1])
    groups = ("sparse", "frequent", "irrelevant")
    paid = {group: (0.6 if group == relies else 0.2) if trained else count / 50
            for group, count in zip(groups, counts, strict=True)}  # fmt: skip
    return {
        "source": "trained",
        **dict(zip(sparse_or_frequent.PLACES, setting, strict=True)),
        "length": 50,
        "seed": seed,
        "opposed": [0.5, opposed + wiggle],
        **{f"alignment_{group}": [0.0, value + wiggle] for group, value in aligned.items()},
        **{f"attention_{group}": [0.3, value] for group, value in paid.items()},
        "both": [0.0, 0.3] if setting[0] == 3 else [0.03, 0.0],
        "sensitivity": (0.1 if trained else 0.9) * (0.3 if setting[0] == 3 else 0.03) * (1 + wiggle),
    }


def _other_feature() -> Rows:
    """Models that rely on the more sensitive feature."""
    found = Rows()
    for row in _tokens():
        if row["source"] == "trained":
            setting = sparse_or_frequent.setting_of(row)
            relies = "frequent" if setting in sparse_or_frequent.SPARSE_FIRST else "sparse"
            row = _token_model(setting, row["seed"], relies)
            row["sensitivity"] = max(row["both"]) * (1 + 0.01 * row["seed"])
        found.append(row)
    return found


def _one_other(setting: tuple[int, ...], relies: str) -> Rows:
    """One setting whose models rely on another feature than all others."""
    return Rows(
        _token_model(setting, row["seed"], relies)
        if row["source"] == "trained" and sparse_or_frequent.setting_of(row) == setting
        else row
        for row in _tokens()
    )


def _even_attention() -> Rows:
    """Models that rely on the less sensitive feature with attention spread evenly over positions."""
    return Rows(
        {**row, "attention_sparse": [row["sparse"] / 50], "attention_frequent": [row["frequent"] / 50],
         "attention_irrelevant": [1 - (row["sparse"] + row["frequent"]) / 50]}
        if row["source"] == "trained" else row
        for row in _tokens()
    )  # fmt: skip


def _each_token() -> Rows:
    """Models that pay a token of the less sensitive feature twice as much as any other."""

    def paid(row: Row, group: str, count: int) -> float:
        less = "sparse" if sparse_or_frequent.setting_of(row) in sparse_or_frequent.SPARSE_FIRST else "frequent"
        return count * (2 if group == less else 1) / 100

    return Rows(
        {**row, "attention_sparse": [paid(row, "sparse", row["sparse"])],
         "attention_frequent": [paid(row, "frequent", row["frequent"])],
         "attention_irrelevant": [paid(row, "irrelevant", 50 - row["sparse"] - row["frequent"])]}
        if row["source"] == "trained" else row
        for row in _tokens()
    )  # fmt: skip


RELIES_SPARSE = "it relies on sparse tokens where these are less sensitive"
RELIES_FREQUENT = "it relies on frequent tokens where these are less sensitive"
ALIGNED = "the head is aligned with the less sensitive feature"
ATTENDED = "attention is largest on the less sensitive feature"
ATTENDED_EACH = "a token of the less sensitive feature gets the most attention"
WEAKER = "it relies on the less sensitive feature where that is the weaker signal"
SIGNAL = "it relies on the stronger signal"
AS_LITTLE = "the trained model is as little sensitive as the better predictor"
PRINTED_VALUES = "the predictors have the printed sensitivities"
MISPRINT = "with 33 words the last printed value is right"
TOKENS = [
    Trap("sparse-or-frequent", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        *(
            (claim, "models that use the other feature", _other_feature, "contradicted")
            for claim in (RELIES_SPARSE, RELIES_FREQUENT, ALIGNED, ATTENDED, ATTENDED_EACH, AS_LITTLE, WEAKER)
        ),
        *(
            (claim, "untrained models", partial(_tokens, trained=False), "contradicted")
            for claim in (RELIES_SPARSE, RELIES_FREQUENT, ALIGNED, ATTENDED, SIGNAL, AS_LITTLE)
        ),
        (
            RELIES_FREQUENT,
            "one of three settings in which the models use sparse tokens",
            partial(_one_other, (1, 32, 7, 36, 75), "sparse"),
            "contradicted",
        ),
        (
            RELIES_SPARSE,
            "one setting was not trained",
            lambda: _tokens().where(
                lambda row: row["source"] != "trained" or sparse_or_frequent.setting_of(row) != (3, 3, 1, 6, 59)
            ),
            "undecided",
        ),
        (ATTENDED, "the irrelevant tokens are many, and have the largest sum", _even_attention, "contradicted"),
        (SIGNAL, "low sensitivity against the stronger signal", _tokens, "contradicted"),
        (WEAKER, "the stronger signal against low sensitivity", partial(_tokens, decisive="stronger"), "contradicted"),
        (
            PRINTED_VALUES,
            "one value differs in the fourth digit",
            lambda: _changed(_tokens(), lambda row: row.get("printed") == 0.2878, exact=0.2879),
            "contradicted",
        ),
        (
            MISPRINT,
            "the value of (32, 36) again",
            lambda: _changed(_tokens(), lambda row: row.get("printed") == 0.0339, exact=0.0328),
            "contradicted",
        ),
    )
]


# ---------------------------------------------------------------- grokking


def grokking_run(
    seed: int,
    *,
    fall: float = 2_500,
    rise: float = 3_500,
    first: float = 0.02,
    high: float = 0.05,
    low: float = 0.01,
    after: float = 0.02,
    end: float = 0.012,
    norm: tuple[float, float] = (0.5, 0.02),
    norm_fall: float = 2_900,
    loss: float = 1e-3,
    later_loss: float = 1e-3,
    mirrored: bool = True,
    noise: float = 0.0,
) -> Row:
    """The curves of a run that groks at step 4,000 unless it rises later: what the paper says, with these changes.

    Sensitivity drops to `first`, is `high` from step 1,500 to its `fall`, then `low`, `after` grokking, and its `end`.
    The norm loses so large a part at once and the rest by its own fall.
    """
    steps = np.arange(0, 6_401, 50.0)
    stream = np.random.default_rng(seed)
    wiggle = 1 + 0.02 * np.sin(seed)

    def sigmoid(at: float, width: float = 60.0) -> Any:
        return 1 / (1 + np.exp(np.clip(-(steps - at) / width, -60, 60)))

    grown = np.where(steps < 100, 0.0, 1.0)
    new = np.where(steps >= 4_000, 0.97, 0.9 * sigmoid(rise)) if rise < 6_400 else 0 * steps
    mirror = np.where(steps < 200, 0.5 * grown, 1.0) if mirrored else new
    shape = first + (high - first) * sigmoid(1_500) - (high - low) * sigmoid(fall)
    shape = shape + (after - low) * sigmoid(4_150, 20) - (after - end) * sigmoid(5_400, 20)
    sensitivity = np.where(steps < 200, 0.5, shape) * wiggle * (1 + noise * stream.normal(size=len(steps)))
    weights = 80 * (1 - norm[0] * sigmoid(700) - norm[1] * sigmoid(norm_fall)) * wiggle
    losses = np.where(steps < 200, 3.0, loss + (later_loss - loss) * sigmoid(2_600)) * wiggle
    train = np.where(steps < 200, 0.3, 1.0)
    curves = {
        "train_loss": losses, "train": train, "test": (mirror + new) / 2, "mirrored": mirror, "new": new,
        "sensitivity": sensitivity, "token_sensitivity": sensitivity / 2, "norm": weights, "rms": 0.5 + 0 * steps,
    }  # fmt: skip
    return {"seed": seed, "std": 0.1, "step": steps.tolist(), **{name: each.tolist() for name, each in curves.items()}}


def _groks(runs: int = 8, **change: Any) -> Rows:
    rows = Rows()
    for seed in range(runs):
        moved = {name: value + 20 * (seed % 3) if name in ("fall", "norm_fall") else value
                 for name, value in {"fall": 2_500, "norm_fall": 2_900, **change}.items()}  # fmt: skip
        row = grokking_run(seed, **moved)
        row |= grokking.phases(row)
        if row.get("lead") is not None:
            row["beyond_lead"] = row["delay"] - row["lead"]
        rows.append(row)
    return rows


FORMED, LEADS = "circuit formation: sensitivity rises again", "sensitivity falls before test accuracy rises"
CLEANED = "clean-up: sensitivity decreases before grokking"
MEMORISES = "memorisation: sensitivity drops, test accuracy stays below"
FLAT_NORM, FLAT_LOSS = "the weight norm is flat meanwhile", "the training loss does not fall meanwhile"
BEFORE_NORM = "sensitivity falls before the weight norm"
BUMP = "noise reduction: sensitivity goes up and down after grokking"
TOKENWISE = "noise on one number at a time leads as well"
SMOOTHING = "the figure's smoothing delays test accuracy by more than the lead"
LATE_TEST = "test accuracy rises long after training accuracy"
NORM_FALLS = "circuit formation: the weight norm falls"
MIRRORS = "early test accuracy is that of mirror images"
GROKKING = [
    Trap("grokking", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        (LEADS, "sensitivity falls with test accuracy's rise behind it", partial(_groks, fall=3_700), "contradicted"),
        (
            LEADS,
            "a curve of noise alone, which has a largest stretch too",
            partial(_groks, first=0.02, high=0.02, low=0.02, noise=0.3),
            "undecided",
        ),
        (LEADS, "runs that never grok", partial(_groks, rise=9e9), "undecided"),
        (LEADS, "four runs", partial(_groks, runs=4), "undecided"),
        (TOKENWISE, "it falls after test accuracy has risen", partial(_groks, fall=3_700), "contradicted"),
        (
            FORMED,
            "a curve of noise alone rises to the largest of its means",
            partial(_groks, first=0.02, high=0.02, low=0.02, noise=0.3),
            "contradicted",
        ),
        (CLEANED, "sensitivity stays up until grokking", partial(_groks, low=0.05), "contradicted"),
        (CLEANED, "noise about one level", partial(_groks, first=0.02, high=0.02, low=0.02, noise=0.3), "contradicted"),
        (MEMORISES, "sensitivity as at the start", partial(_groks, first=0.45, high=0.5), "contradicted"),
        (FLAT_NORM, "it falls by a fifth", partial(_groks, norm=(0.5, 0.1)), "contradicted"),
        (FLAT_LOSS, "the loss falls to a tenth", partial(_groks, later_loss=1e-4), "contradicted"),
        (BEFORE_NORM, "the norm falls at once", partial(_groks, norm=(0.5, 0.0)), "contradicted"),
        (BUMP, "sensitivity only falls", partial(_groks, after=0.008, end=0.004), "contradicted"),
        (BUMP, "it goes up and stays", partial(_groks, after=0.02, end=0.03), "contradicted"),
        (SMOOTHING, "a lead of most of the time", partial(_groks, fall=1_650, rise=3_700), "contradicted"),
        (
            LATE_TEST,
            "runs that never grok",
            partial(_groks, rise=9e9),
            "contradicted",
        ),
        (NORM_FALLS, "a norm that hardly falls", partial(_groks, norm=(0.05, 0.0)), "contradicted"),
        (MIRRORS, "mirror images are as hard as others", partial(_groks, mirrored=False), "contradicted"),
    )
]


def _good_groks(claim: Claim) -> Rows:
    """Runs on which the claim comes out: one norm cannot fall early, late and not at all."""
    if claim.name == SMOOTHING:
        return _groks(fall=3_400)
    if claim.name == BEFORE_NORM:
        return _groks(norm=(0.02, 0.3), norm_fall=3_300)
    return _groks()


# ---------------------------------------------------------------- parity-progress


def parity_run(
    seed: int,
    *,
    learns: bool = True,
    noise: float = 0.0,
    rise: float = 0.05,
    late: float = 0.0,
    end: float = 0.15,
    leaves: float = 1_450,
    erratic: float = 0.0,
) -> Row:
    """The curves of a run of at most 40 points that leaves chance at a step; sensitivity rises by `rise` until then.

    It reaches its `end` so much `late` after that, in parts of the time.
    """
    steps = np.arange(50.0, 2_001.0, 50.0)
    stream = np.random.default_rng(seed)
    at = leaves + 10 * (seed % 3)
    accuracy = np.where(steps < at, 0.5, np.where(steps < at + 100, 0.8, 1.0)) if learns else 0.5 + 0 * steps
    climb = 0.03 + rise * np.clip(steps / at, 0, 1) + 0.001 * np.sin(seed) * steps / at
    shape = climb * (1 + erratic * stream.normal(size=len(steps)))
    if learns:
        settled = (at + 100) * (1 + late)
        shape = np.where(steps >= settled, end * (1 + 0.002 * np.sin(seed)), np.minimum(shape, 0.8 * end))
        kept = steps <= max(at + 200, settled + 50)
    else:
        kept = steps > 0
    curves = {"step": steps, "accuracy": accuracy, "sensitivity": shape, "loss": 0.7 * (1 - accuracy)}
    own = {"length": 20, "relevant": 3, "samples": 50_000, "batch": 250, "width": 32, "lr": 1e-3, "noise": noise}
    return {**own, "seed": seed, "start": 0.03, **{name: each[kept].tolist() for name, each in curves.items()}}


def _parities(runs: int = 8, *, coins: float = 0.0, **change: Any) -> Rows:
    """Runs on the parity, and on coins with a rise of their own."""
    found = [parity_run(seed, **change) for seed in range(runs)]
    found += [parity_run(seed, learns=False, noise=0.49, rise=coins) for seed in range(runs)]
    return Rows({**row, **parity_progress.progress_of(row)} for row in found)


RISES, CONVERGES = "sensitivity increases while accuracy is at chance", "sensitivity converges to p / d"
COINCIDES, WAITS = "that coincides with learning", "accuracy is at chance for some time"
STEADY, COINS = "the rise is steady", "coins raise sensitivity less"
PARITY = [
    Trap("parity-progress", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        (RISES, "sensitivity falls until the parity is learned", partial(_parities, rise=-0.02), "contradicted"),
        (RISES, "a rise of runs that never learn", partial(_parities, learns=False), "undecided"),
        (RISES, "four runs", partial(_parities, 4), "undecided"),
        (RISES, "noise about one level", partial(_parities, rise=0.0, erratic=0.3), "undecided"),
        (CONVERGES, "models that learn end at a tenth more", partial(_parities, end=0.165), "contradicted"),
        (CONVERGES, "untrained models", partial(_parities, learns=False), "undecided"),
        (COINCIDES, "sensitivity gets there a fifth of the time later", partial(_parities, late=0.2), "contradicted"),
        (WAITS, "accuracy is above chance from the first point on", partial(_parities, leaves=10), "contradicted"),
        (STEADY, "noise about one level", partial(_parities, rise=0.0, erratic=0.3), "contradicted"),
        (COINS, "coins raise it as much and more", partial(_parities, coins=0.07), "contradicted"),
        (COINS, "no run on coins", lambda: _parities().where(noise=0.0), "undecided"),
    )
]

IMAGES = images.VISION + images.ROBUSTNESS + images.FLATNESS
TRAPS = NOISE + KERNELS + TOKENS + GROKKING + PARITY + IMAGES + texts.LANGUAGE + texts.PRETRAINED


def good(study: str, claim: Claim) -> Rows:
    """A table on which the claim is reproduced."""
    if study in {each.name for each in texts.STUDIES}:
        return texts.good(study, claim.name)
    if study == "grokking":
        return _good_groks(claim)
    if study in images.GOOD:
        return images.GOOD[study]()
    if study == "sparse-or-frequent":
        if claim.name == ATTENDED_EACH:
            return _each_token()
        return _tokens(decisive="stronger" if claim.name == SIGNAL else "less sensitive")
    return {"noise-stability": _noise, "kernel-spectrum": _kernels, "parity-progress": _parities}[study]()
