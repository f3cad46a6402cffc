"""Traps for the studies of paper 004 on images: tables of trained models, some of which follow other laws."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

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
    varied: float = 0.0,
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
GOOD: dict[str, Callable[[], Rows]] = {"vision": _vision}
