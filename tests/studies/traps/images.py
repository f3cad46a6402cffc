"""Traps for the studies of paper 004 on images: tables of trained models, some of which follow other laws."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from studies.traps.trap import Trap

from flipscope.lab import Rows
from flipscope.studies.low_sensitivity.image_models import SETTINGS

SEEDS = 6
FAMILIES = {
    "fashion-mnist": ("ViT", "CNN", "MLP", "sigmoid MLP"),
    "cifar-10": ("ViT", "ViT-simple", "ResNet", "ConvMixer", "DenseNet"),
    "svhn": ("ViT", "ResNet"),
    "mnist": ("ViT", "MLP"),
    "digits": ("ViT", "CNN", "MLP"),
}
LOW, HIGH = 0.05, 0.15  # sensitivities


def _noise(*parts: object) -> float:
    """A number of standard deviation 1 that belongs to these values."""
    return float(np.random.default_rng([ord(letter) for letter in "/".join(map(str, parts))]).normal())


# ---------------------------------------------------------------- vision


def _of_family(family: str, *, vit: float = LOW, other: float = HIGH) -> float:
    return vit if family.startswith("ViT") else other


@cache
def _vision(
    *,
    vit: float = LOW,
    other: float = HIGH,
    whole: tuple[float, float] = (0.04, 0.06),
    slopes: tuple[float, float] = (0.3, 0.6),
    varied: float = -0.008,
    scatter: float = 0.004,
    moments: tuple[str, ...] = ("level", "end"),
    seeds: int = SEEDS,
) -> Rows:
    """Models of every kind; `slopes` say how sensitivity grows with the variance, of a ViT and of others.

    `whole` is the sensitivity to noise on all patches, and `varied` what another depth adds.
    """
    found = Rows()
    for name, families in FAMILIES.items():
        setting = SETTINGS[name]
        for family in families:
            variants = [("base", None, None, "adam")]
            if (name, family) == ("cifar-10", "ViT"):
                variants += [("depth", 4, None, "adam"), ("heads", None, 8, "adam"), ("optimiser", None, None, "sgd")]
            for variant, layers, heads, optimiser in variants:
                level = _of_family(family, vit=vit, other=other) + (varied if variant != "base" else 0.0)
                slope = _of_family(family, vit=slopes[0], other=slopes[1])
                whole_level = _of_family(family, vit=whole[0], other=whole[1])
                kinds: list[tuple[str, float | None, float]] = [
                    ("noise", times * setting.variance, level * times**slope) for times in (0.25, 1.0, 4.0)
                ]
                kinds += [("whole", setting.whole_variance, whole_level), ("replace", None, level)]
                for seed in range(seeds):
                    for moment in moments:
                        for at in setting.levels if moment == "level" else (None,):
                            for kind, variance, value in kinds:
                                noise = scatter * _noise(name, family, variant, seed, moment, at, kind, variance)
                                found.append({
                                    "set": name, "family": family, "variant": variant, "layers": layers, "heads": heads,
                                    "optimiser": optimiser, "seed": seed, "moment": moment, "level": at,
                                    "accuracy": (at or 0.99) + 0.005, "kind": kind, "variance": variance,
                                    "main": kind == "noise" and variance == setting.variance,
                                    "sensitivity": value + noise,
                                })  # fmt: skip
    return found


def _apart(table: Rows) -> Rows:
    """The same models, the ViTs at other training accuracies."""
    return Rows({**row, "accuracy": row["accuracy"] - 0.2 * (row["family"] == "ViT")} for row in table)


RESNET, CONVMIXER = "a ViT is less sensitive than a ResNet", "a ViT is less sensitive than a ConvMixer"
FASHION, MLP = "a ViT is less sensitive than a CNN on Fashion-MNIST", "a ViT is less sensitive than an MLP"
SIGMOID, WHOLE = (
    "a ViT is less sensitive than a sigmoid MLP",
    ("the gap is larger with noise on a patch than on the whole image"),
)
RELATIVE, GROWS = "the relative gap is larger with noise on a patch, too", "the gap grows with the variance"
END, DIGITS = "at the end of training, too", "on scikit-learn's digits a ViT is less sensitive than CNN and MLP"
DENSENET, SIMPLE = "a ViT is less sensitive than a DenseNet", "ViT-simple is less sensitive than a ResNet"
SVHN, MNIST = (
    "a ViT is less sensitive than a ResNet on SVHN",
    "a ViT is less sensitive than an MLP to replaced patches",
)
DEPTH, HEADS, ADAM = (
    "the depth of a ViT does not matter",
    "the number of heads does not matter",
    "Adam is about as good as SGD",
)
MORE_ADAM = "a ViT trained with Adam is slightly more sensitive"
GAPS = (RESNET, CONVMIXER, FASHION, MLP, SIGMOID, DENSENET, SIMPLE, SVHN, MNIST, DIGITS)

VISION = [
    Trap("vision", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        *((claim, "the exactly opposite law", partial(_vision, vit=HIGH, other=LOW), "contradicted") for claim in GAPS),
        *((claim, "all models alike", partial(_vision, vit=LOW, other=LOW), "undecided") for claim in GAPS),
        *((claim, "untrained models", partial(_vision, moments=("start",)), "undecided") for claim in (*GAPS, GROWS)),
        *((claim, "two seeds", partial(_vision, seeds=2), "undecided") for claim in (*GAPS, END)),
        (RESNET, "models of other training accuracy", lambda: _apart(_vision()), "undecided"),
        (RESNET, "the end of training only", partial(_vision, moments=("end",)), "undecided"),
        (END, "the exactly opposite law", partial(_vision, vit=HIGH, other=LOW), "contradicted"),
        (
            END,
            "the MLP is less sensitive than the ViT",
            lambda: Rows(
                {**row, "sensitivity": row["sensitivity"] - 0.14 * (row["family"] == "MLP")} for row in _vision()
            ),
            "contradicted",
        ),
        (MORE_ADAM, "it is less sensitive", partial(_vision, varied=0.02), "contradicted"),
        (MORE_ADAM, "alike", partial(_vision, varied=0.0), "undecided"),
        (MORE_ADAM, "one optimiser", lambda: _vision().where(variant="base"), "undecided"),
        (WHOLE, "noise on the image has the larger gap", partial(_vision, whole=(0.05, 0.3)), "contradicted"),
        (WHOLE, "all models alike", partial(_vision, vit=LOW, other=LOW, whole=(0.05, 0.05)), "undecided"),
        (RELATIVE, "the same share of either", partial(_vision, whole=(0.005, 0.015), scatter=1e-3), "undecided"),
        (RELATIVE, "noise on the image has the larger share", partial(_vision, whole=(0.01, 0.1)), "contradicted"),
        (GROWS, "it falls", partial(_vision, slopes=(0.9, 0.1)), "contradicted"),
        (GROWS, "the same at each", partial(_vision, slopes=(0.0, 0.0)), "undecided"),
        *(
            (claim, "a ViT of another kind is twice as sensitive", partial(_vision, varied=0.05), "contradicted")
            for claim in (DEPTH, HEADS, ADAM)
        ),
        (DEPTH, "no other depth", lambda: _vision().where(variant="base"), "undecided"),
        (DEPTH, "too much scatter to call it none", partial(_vision, scatter=0.08), "undecided"),
    )
]


# ---------------------------------------------------------------- robustness

PLAIN, PENALTY, NOISY, RESNET_KIND, CNN_KIND = "ViT", "ViT + penalty", "ViT + augmentation", "ResNet", "CNN"
SIMPLE_KIND, DENSE_KIND = "ViT-simple", "DenseNet"
# The models in the order of their sensitivity.
ROBUST_FIRST = (PENALTY, NOISY, PLAIN, SIMPLE_KIND, CNN_KIND, RESNET_KIND, DENSE_KIND)
CATEGORIES = ("noise", "blur", "weather", "digital")


@cache
def _corrupted(
    *,
    order: tuple[str, ...] = ROBUST_FIRST,
    sensitivities: tuple[str, ...] = ROBUST_FIRST,
    step: float = 0.05,
    unlike: tuple[float, float] = (1.0, 0.5),
    clean_alone: bool = False,
    scatter: float = 0.004,
    seeds: int = 6,
    apart: float = 0.0,
    shaken: float = 0.012,
) -> Rows:
    """Models whose corrupted accuracy falls by a `step` from one of the `order` to the next.

    `unlike`: the part of the step on noise and blur, and on weather and digital faults. With `clean_alone` all models
    keep the same share of their accuracy on clean images. `apart`: how far the treated ViTs are behind in training
    accuracy when they are measured at a level. Sensitivities are `shaken`, so that their order is not always the same.
    """
    found = Rows()
    for name in ("cifar-10", "digits"):
        for seed in range(seeds):
            for which in order:
                sensitivity = 0.05 + 0.03 * sensitivities.index(which) + shaken * _noise(name, seed, which)
                about = {"set": name, "seed": seed, "kind_of_model": which, "family": which.partition(" ")[0],
                         "moment": "end", "level": None, "sensitivity": sensitivity, "train_accuracy": 0.9}  # fmt: skip
                for level in SETTINGS[name].levels:
                    found.append({
                        **about, "moment": "level", "level": level, "accuracy": level - apart * ("+" in which),
                        "severity": None, "category": None, "corruption": None,
                    })  # fmt: skip
                for severity in (1, 2):
                    means = []
                    for category in CATEGORIES:
                        part = unlike[category in ("weather", "digital")]
                        value = 0.8 - step * part * order.index(which) - 0.1 * (severity - 1)
                        value += scatter * _noise(name, seed, which, severity, category)
                        kept = 0.8 + scatter * _noise("kept", name, seed, which, severity, category)
                        clean = value / kept if clean_alone else 0.85
                        row = {**about, "severity": severity, "category": category, "accuracy": value, "clean": clean,
                               "kept": value / clean}  # fmt: skip
                        means.append(row)
                        found.append({**row, "corruption": None})
                        # Single corruptions, which no claim may count as models.
                        found += [{**row, "corruption": f"{category} fault {number}"} for number in range(3)]
                    average = {
                        key: float(np.mean([row[key] for row in means])) for key in ("accuracy", "clean", "kept")
                    }
                    found.append({**about, "severity": severity, "category": "all", "corruption": None, **average})
    return found


def _opposite(number: str) -> Rows:
    """Single corruptions of this number, with the opposite order of models."""
    return Rows({**row, "accuracy": 1 - row["accuracy"]} for row in _corrupted()
                if row["corruption"] is not None and row["corruption"][-1] == number)  # fmt: skip


REVERSED = ROBUST_FIRST[::-1]
ROBUST, UNLIKE = "ViTs are more robust than CNNs", "also against weather and digital faults"
PENALISED, AUGMENTED = "the penalty lowers the sensitivity", "augmentation lowers the sensitivity"
HELPS, NOISE_HELPS = "the penalty improves robustness", "augmentation improves robustness"
MOSTLY, GOES = "both help mostly against noise and blur", "less sensitive models are more robust"
CATEGORY = "less sensitive models are more robust in every category"
KEPT = "less sensitive models keep more of their accuracy"
ON_DIGITS = "on scikit-learn's digits the penalty lowers the sensitivity"
ALMOST, DENSE, SIMPLER = (
    "on almost all corruptions",
    "ViTs are more robust than a DenseNet",
    "ViT-simple is more robust than CNNs",
)
ACCURACY = (ROBUST, UNLIKE, HELPS, NOISE_HELPS, DENSE, SIMPLER)
RANKS = (GOES, CATEGORY, KEPT)

ROBUSTNESS = [
    Trap("robustness", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        *((claim, "the exactly opposite order", partial(_corrupted, order=REVERSED), "contradicted")
          for claim in (*ACCURACY, *RANKS, ALMOST)),
        *((claim, "all models alike", partial(_corrupted, step=0.0, scatter=0.01, seeds=4), "undecided")
          for claim in (ROBUST, UNLIKE, HELPS, NOISE_HELPS, MOSTLY)),
        *((claim, "two seeds", partial(_corrupted, seeds=2), "undecided")
          for claim in (*ACCURACY, *RANKS, PENALISED, ALMOST)),
        *((claim, "three seeds with the same order", partial(_corrupted, seeds=3, shaken=0.0), "undecided")
          for claim in RANKS),
        *((claim, "treated models of other training accuracy", partial(_corrupted, apart=0.2), "undecided")
          for claim in (PENALISED, AUGMENTED)),
        (ALMOST, "on two of three corruptions",
         lambda: Rows([*_corrupted().where(lambda row: row["corruption"] is None or row["corruption"][-1] != "2"),
                       *_opposite("2")]), "contradicted"),
        *((claim, "it is raised", partial(_corrupted, sensitivities=REVERSED), "contradicted")
          for claim in (PENALISED, AUGMENTED, ON_DIGITS)),
        (MOSTLY, "they help against the others", partial(_corrupted, unlike=(0.5, 1.0)), "contradicted"),
        (MOSTLY, "they help against all alike", partial(_corrupted, unlike=(1.0, 1.0), scatter=0.01), "undecided"),
        (ROBUST, "at severity 1 alone",
         lambda: Rows(row if row["severity"] == 1 else {**row, "accuracy": 1 - row["accuracy"]}
                      for row in _corrupted()), "contradicted"),
        (UNLIKE, "on weather alone",
         lambda: Rows({**row, "accuracy": 1 - row["accuracy"]} if row["category"] == "digital" else row
                      for row in _corrupted()), "contradicted"),
        (KEPT, "all keep the same share, of better and worse clean accuracy", partial(_corrupted, clean_alone=True),
         "contradicted"),
        (CATEGORY, "in three of four categories",
         lambda: Rows({**row, "accuracy": 1 - row["accuracy"]} if row["category"] == "blur" else row
                      for row in _corrupted()), "contradicted"),
        (GOES, "three models", lambda: _corrupted().where(lambda row: row["family"] == "ViT"), "undecided"),
    )
]  # fmt: skip


# ---------------------------------------------------------------- flatness


@cache
def _flat(
    *,
    order: tuple[str, ...] = ROBUST_FIRST,
    factor: float = 0.5,
    relative: float = 0.5,
    gap_order: tuple[str, ...] = ROBUST_FIRST,
    test_order: tuple[str, ...] = ROBUST_FIRST,
    scatter: float = 0.03,
    seeds: int = 6,
    shaken: float = 0.012,
) -> Rows:
    """Models whose sharpness is multiplied by a `factor` for the penalty, and by its root for augmentation."""
    found = Rows()
    for name in ("cifar-10", "digits"):
        for seed in range(seeds):
            for which in ROBUST_FIRST:
                power = {PENALTY: 1.0, NOISY: 0.5}.get(which, 0.0)

                def sharp(column: str, base: float, by: float, place: tuple[Any, ...], power: float = power) -> float:
                    return base * by**power * (1 + scatter * _noise(column, *place))

                place = (name, seed, which)
                row: dict[str, Any] = {
                    "set": name, "seed": seed, "kind_of_model": which, "family": which.partition(" ")[0],
                    "moment": "end", "train_accuracy": 0.9, "output_size": 20.0,
                    "test_accuracy": 0.7 - 0.05 * test_order.index(which) + 0.002 * _noise("test", *place),
                    "sensitivity": 0.05 + 0.03 * order.index(which) + shaken * _noise(*place),
                    "test_gap": 0.1 + 0.05 * gap_order.index(which) + 0.002 * _noise("gap", *place),
                }  # fmt: skip
                for column in ("shop", "shpred", "shop_code", "shpred_code", "loss_increase"):
                    row[column] = sharp(column, 0.4, factor, place)
                for column in ("relative_shop", "adaptive_shpred"):
                    row[column] = sharp(column, 0.4, relative, place)
                found.append(row)
    return found


SHOP, SHPRED, GENERALISES = (
    "the penalty lowers ShOp",
    "the penalty lowers ShPred",
    "less sensitive models generalise better",
)
CODE, RELATIVE_SHOP = "with the noise of the released code, too", "outputs change less for their size"
LOSS, ADAPTIVE = "the loss increases less", "flatter for noise in proportion to the weights"
FLATTER, FLAT_DIGITS = "augmentation lowers ShPred", "on scikit-learn's digits the penalty lowers ShOp"
BETTER = "less sensitive models are better on test images"
SHARP = (SHOP, SHPRED, CODE, LOSS, FLAT_DIGITS, FLATTER)

FLATNESS = [
    Trap("flatness", claim, what, table, expected)  # type: ignore[arg-type]
    for claim, what, table, expected in (
        *((claim, "sharper with the penalty", partial(_flat, factor=2.0), "contradicted") for claim in SHARP),
        *((claim, "all models alike", partial(_flat, factor=1.0, relative=1.0), "undecided")
          for claim in (*SHARP, RELATIVE_SHOP, ADAPTIVE)),
        *((claim, "two seeds", partial(_flat, seeds=2), "undecided") for claim in (*SHARP, GENERALISES)),
        *((claim, "only outputs are smaller", partial(_flat, relative=2.0), "contradicted")
          for claim in (RELATIVE_SHOP, ADAPTIVE)),
        (GENERALISES, "the exactly opposite order", partial(_flat, gap_order=REVERSED), "contradicted"),
        (GENERALISES, "three models", lambda: _flat().where(lambda row: row["family"] == "ViT"), "undecided"),
        (BETTER, "only the gap is smaller", partial(_flat, test_order=REVERSED), "contradicted"),
        *((claim, "three seeds with the same order", partial(_flat, seeds=3, shaken=0.0), "undecided")
          for claim in (GENERALISES, BETTER)),
    )
]  # fmt: skip
GOOD: dict[str, Callable[[], Rows]] = {"vision": _vision, "robustness": _corrupted, "flatness": _flat}
