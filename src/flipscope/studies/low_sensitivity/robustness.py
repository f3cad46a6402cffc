"""Are less sensitive image models more robust to corrupted images? (§ 7.1, Figs 7, 17, 18)

The models are those of `vision` at the end of their training, and two more ViTs: one trained with a penalty on its
sensitivity to patches, one on images with noise. Each is tested on corrupted test images, by kinds of corruption as in
CIFAR-10-C at severities 1 and 2; a model's number is the mean accuracy over the corruptions of a category, or over all.
Models of one seed are compared with each other, on the same corrupted images.

That less sensitive models are more robust is judged by rank correlations over the models of each seed, averaged over
seeds. A model with better accuracy on clean images is also better on corrupted ones, whatever its sensitivity: the same
is therefore judged for the share of the clean accuracy that is kept.

Whether a treatment lowers the sensitivity is judged at the end of training and at equal training accuracy.

Three seeds give an interval of the mean of 2.5 times the scatter to either side, of 3.6 times for a pair of comparisons
and of 5.1 times for four, so that differences of accuracy below two or three percent will remain undecided at laptop
scale; so will "in every category", and rank correlations that are the same in all three seeds. DenseNet and ViT-simple
are at paper scale only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import flipscope.lab as lab
from flipscope.basics.errors import InputError
from flipscope.data.batches import Examples
from flipscope.data.corruptions import CORRUPTIONS, corrupt
from flipscope.data.images import load_images
from flipscope.lab import quantities
from flipscope.lab.quantities import Criterion
from flipscope.studies.low_sensitivity.image_models import (
    KINDS,
    ON_DIGITS,
    SETTINGS,
    TRAININGS,
    ImageTrial,
    averages,
    end_of,
    planned,
)
from flipscope.studies.low_sensitivity.shared import (
    COLUMNS,
    FEWEST,
    checkpoint_columns,
    checkpoint_rows,
    end_gap,
    gap,
    paired_ends,
)
from flipscope.training.fit import evaluate

CATEGORIES = ("noise", "blur", "weather", "digital")
ALL = "all"
MOSTLY, LESS = ("noise", "blur"), ("weather", "digital")  # where the paper's treatments help most
CLEAR = 0.5  # rank correlation from which one goes with the other
POINTS = 4  # models of a seed that a rank correlation needs
ALMOST_ALL = 0.8  # share of the corruptions


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Corrupted(ImageTrial):
    """A model, and the images it is tested on: so many of the test set, with these corruptions and severities."""

    test: int = 500
    corruptions: tuple[str, ...] = tuple(CORRUPTIONS)
    severities: tuple[int, ...] = (1, 2)

    def check(self) -> None:
        for name in self.corruptions:
            if name not in CORRUPTIONS:
                raise InputError(f"corruptions has {name!r}, which is not one of {', '.join(CORRUPTIONS)}")

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        # Before the training, since it fails at once where a corruption lacks a package.
        clean, corrupted = clean_and_corrupted(self)
        trained = lab.trained(self.recipe, progress)
        end = end_of(self, trained)
        return {
            "train_accuracy": end["accuracy"][0],
            "sensitivity": end["sensitivity"][0],
            "half_width": end["half_width"][0],
            "clean": accuracy(trained.model, clean),
            "accuracy": np.array([[accuracy(trained.model, one) for one in each] for each in corrupted]),
            **{f"level_{name}": values for name, values in checkpoint_columns(trained.fitted.log).items()},
        }


def clean_and_corrupted(trial: Corrupted) -> tuple[Examples, list[list[Examples]]]:
    """The clean test images, and those of each corruption at each severity."""
    found = load_images(trial.data)
    pixels, labels = found.x_test[: trial.test], torch.from_numpy(found.y_test[: trial.test].copy())

    def examples(images: np.ndarray) -> Examples:
        return Examples(trial.images.scaled(torch.from_numpy(np.moveaxis(images, -1, 1).copy())), labels)

    corrupted = [
        [examples(corrupt(pixels, name, severity, seed=trial.seed)) for severity in trial.severities]
        for name in trial.corruptions
    ]
    return examples(pixels), corrupted


def accuracy(model: nn.Module, examples: Examples) -> float:
    """The share of images that the model gets right."""
    return evaluate(model, examples, loss="ce", inputs="numbers").accuracy.value


# ---------------------------------------------------------------- claims


def kind(name: str, **more: Any) -> dict[str, Any]:
    """The columns of a kind of model."""
    return {"kind_of_model": name, **more}


def better(first: str, second: str, name: str = "cifar-10") -> quantities.Quantity:
    """How much more accurate the first kind of model is on corrupted images, a mean over the corruptions."""
    words = f"accuracy on corrupted images of {first} less that of {second}"
    return end_gap(words, kind(first), kind(second), column="accuracy").where(
        SETTINGS[name].title, set=name, corruption=None
    )


def on_all(quantity: quantities.Quantity) -> quantities.Quantity:
    """The same over all corruptions, at each severity."""
    return quantity.where("all corruptions", category=ALL).each("severity", (1, 2))


def lowers(treatment: str, name: str = "cifar-10") -> Criterion:
    """The treatment makes a ViT less sensitive, at equal training accuracy and at the end."""
    words = f"sensitivity of ViT less that of ViT + {treatment}"
    sides = kind("ViT"), kind(f"ViT + {treatment}")
    at_levels = gap(words, *sides).where(SETTINGS[name].title, set=name)
    at_the_end = end_gap(f"{words} at the end", *sides).where(SETTINGS[name].title, set=name, category=ALL, severity=1)
    return (at_levels > 0) & (at_the_end > 0)


def almost_always(first: str, second: str) -> Criterion:
    """The first kind of model is better on almost all corruptions: the share of them for each seed."""

    def shares(rows: lab.Rows) -> lab.Rows:
        found = lab.Rows()
        for seed, own in rows.by("seed"):
            ours, theirs = (own.where(kind_of_model=each) for each in (first, second))
            wins = [one["accuracy"] > other["accuracy"] for one, other in lab.matched(ours, theirs, "corruption")]
            if wins:
                found.append({"seed": seed, "share": sum(wins) / len(wins)})
        return found

    words = f"share of the corruptions on which {first} is better than {second}"
    mean = quantities.mean(lab.Column(words, lambda row: row["share"]), fewest=FEWEST, unit="seeds")
    single = mean.where("CIFAR-10 at severity 2", lambda row: row["corruption"] is not None, set="cifar-10", severity=2)
    return single.counting("models paired by seed", shares) >= ALMOST_ALL


def mostly(treatment: str) -> Criterion:
    """The treatment helps more against noise and blur than against weather and digital faults."""

    def gained(rows: lab.Rows, category: str) -> lab.Rows:
        own = rows.where(category=category, corruption=None)
        return paired_ends(own, kind(f"ViT + {treatment}"), kind("ViT"), column="accuracy")

    def gains(rows: lab.Rows) -> lab.Rows:
        of = {category: {row["seed"]: row["gap"] for row in gained(rows, category)} for category in CATEGORIES}
        seeds = sorted(set.intersection(*(set(each) for each in of.values())))
        return lab.Rows(
            {"seed": seed, "gap": sum(of[one][seed] for one in MOSTLY) / 2 - sum(of[one][seed] for one in LESS) / 2}
            for seed in seeds
        )

    words = f"gain of ViT + {treatment} on noise and blur less that on weather and digital faults"
    mean = quantities.mean(lab.Column(words, lambda row: row["gap"]), fewest=FEWEST, unit="seeds")
    return mean.where("CIFAR-10 at severity 2", set="cifar-10", severity=2).counting("models paired by seed", gains) > 0


def correlation(column: str, words: str) -> quantities.Quantity:
    """The rank correlation of sensitivity with a column, over the models of each seed."""
    y = lab.Column(words, lambda row: row[column])
    x = lab.Column("sensitivity", lambda row: row["sensitivity"])
    found = quantities.order(x, y, per="seed", fewest=FEWEST, points=POINTS)
    return found.where("CIFAR-10 at severity 2", set="cifar-10", severity=2, corruption=None)


CLAIMS = (
    lab.claim(
        "ViTs are more robust than CNNs",
        "Figs 7, 17, 18",
        "a ViT has a better accuracy on corrupted images than a ResNet",
        on_all(better("ViT", "ResNet")) > 0,
    ),
    lab.claim(
        "also against weather and digital faults",
        "Fig 7",
        "the ViT is better on corruptions that are unlike noise, too",
        better("ViT", "ResNet").where("severity 2", severity=2).each("category", LESS) > 0,
    ),
    lab.claim(
        "on almost all corruptions",
        "Figs 7, 17",
        "the ViT is better than the ResNet on almost all corruptions",
        almost_always("ViT", "ResNet"),
    ),
    lab.claim(
        "ViTs are more robust than a DenseNet",
        "Figs 7, 17",
        "a ViT has a better accuracy on corrupted images than a DenseNet",
        on_all(better("ViT", "DenseNet")) > 0,
        decided_from="paper",
    ),
    lab.claim(
        "ViT-simple is more robust than CNNs",
        "Figs 7, 17",
        "ViT-simple has a better accuracy on corrupted images than a ResNet",
        on_all(better("ViT-simple", "ResNet")) > 0,
        decided_from="paper",
    ),
    lab.claim(
        "the penalty lowers the sensitivity",
        "§ 7.1",
        "a ViT trained with the penalty is less sensitive",
        lowers("penalty"),
    ),
    lab.claim(
        "augmentation lowers the sensitivity",
        "§ 7.1",
        "a ViT trained on images with noise is less sensitive",
        lowers("augmentation"),
    ),
    lab.claim(
        "the penalty improves robustness",
        "Figs 7, 17",
        "a ViT trained with the penalty is more accurate on corrupted images",
        on_all(better("ViT + penalty", "ViT")) > 0,
    ),
    lab.claim(
        "augmentation improves robustness",
        "Figs 7, 17, 18",
        "a ViT trained on images with noise is more accurate on corrupted images",
        on_all(better("ViT + augmentation", "ViT")) > 0,
    ),
    lab.claim(
        "both help mostly against noise and blur",
        "§ 7.1",
        "the gain is larger on noise and blur than on weather and digital faults",
        mostly("penalty") & mostly("augmentation"),
    ),
    lab.claim(
        "less sensitive models are more robust",
        "§ 7.1",
        "lower sensitivity goes with better accuracy on corrupted images",
        correlation("accuracy", "accuracy on corrupted images").where("all corruptions", category=ALL) <= -CLEAR,
    ),
    lab.claim(
        "less sensitive models are more robust in every category",
        "beyond the paper",
        "the same for each category of corruptions",
        correlation("accuracy", "accuracy on corrupted images").each("category", CATEGORIES) <= -CLEAR,
        exploratory=True,
    ),
    lab.claim(
        "less sensitive models keep more of their accuracy",
        "beyond the paper",
        "the same for accuracy on corrupted images over that on clean ones, which better models do not have for free",
        correlation("kept", "share of the clean accuracy that is kept").where("all corruptions", category=ALL)
        <= -CLEAR,
        exploratory=True,
    ),
    lab.claim(
        "on scikit-learn's digits the penalty lowers the sensitivity",
        "beyond the paper",
        "the same on the digits that take the place of CIFAR-10 where no data are at hand",
        lowers("penalty", "digits"),
        exploratory=True,
        decided_from="",
    ),
)


# ---------------------------------------------------------------- figures


def by_corruption(table: lab.Rows) -> list[lab.Panel]:
    """A panel for each severity: accuracy on each corruption, means over seeds for each kind of model."""
    panels, kinds = [], [each for each in KINDS if table.where(kind_of_model=each)]
    for (name, severity), own in table.where(lambda row: row["corruption"] is not None).by("set", "severity"):
        names = [each for each in CORRUPTIONS if own.where(corruption=each)]
        placed = lab.Rows({**row, "place": names.index(row["corruption"])} for row in own)
        panels.append(lab.chart(
            placed, "place", "accuracy", "kind_of_model", order=kinds, kind="points", categories=names, x_label=" ",
            y_label="accuracy", title=f"{SETTINGS[name].title}, severity {severity}",
        ))  # fmt: skip
    return panels


def against_sensitivity(table: lab.Rows) -> list[lab.Panel]:
    """A panel for each category at the largest severity: accuracy against sensitivity, a point for each model."""
    panels, labels = [], {each: each for each in KINDS if table.where(kind_of_model=each)}
    for (name, category), own in table.where(moment="end", corruption=None).by("set", "category"):
        severity = own.values("severity")[-1]
        shown = own.where(severity=severity)
        series = lab.points(
            shown, "sensitivity", "accuracy", "kind_of_model", lambda row: f"seed {row['seed']}", labels
        )
        title = f"{SETTINGS[name].title}, {category}, severity {severity}"
        panels.append(lab.Panel(title, "sensitivity", "accuracy", series))
    return panels


# ---------------------------------------------------------------- the study


class Robustness(lab.Study):
    """Accuracy on corrupted images of image models, against their sensitivity."""

    name, paper, figures = "robustness", "004", ("Fig 7", "Fig 17", "Fig 18")
    title = "Accuracy on corrupted images of more and less sensitive models"
    scales = lab.scales(
        "{seeds} seeds of the models of `vision` and of ViTs with penalty and augmentation; {test} test images, "
        "{corruptions}, severities {severities}",
        common={"svhn": (), "mnist": (), "fashion-mnist": ()},
        smoke=(0.2, {"cifar-10": (), "digits": ("vit-tiny", "mlp-small"), "treatments": ("penalty", "augmentation"),
                     "seeds": 1, **TRAININGS["smoke"], "test": 60,
                     "corruptions": ("gaussian_noise", "gaussian_blur", "brightness", "contrast"),
                     "severities": (1, 2)}),
        laptop=(38, {"cifar-10": ("vit-tiny", "resnet-small", "convmixer-small", "cnn-small"),
                     "digits": ON_DIGITS["laptop"], "treatments": ("penalty", "augmentation"), "seeds": 3,
                     **TRAININGS["laptop"], "test": 500, "corruptions": tuple(CORRUPTIONS), "severities": (1, 2)}),
        paper=(30_000, {"cifar-10": ("vit-small", "vit-simple", "resnet-18", "densenet-121"),
                        "digits": ON_DIGITS["paper"], "treatments": ("penalty", "augmentation"), "seeds": 3,
                        **TRAININGS["paper"], "test": 10_000, "corruptions": tuple(CORRUPTIONS),
                        "severities": (1, 2)}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("data, model, train, epochs, optimiser, every, inputs, tokens, draws, layers, heads", "complete CIFAR-10 and "
         "larger models", "as in `vision`, whose models these are", "time"),
        ("corruptions", "14 of CIFAR-10-C: with gaussian_blur for defocus_blur, without gaussian_noise",
         "15: both, without frost", "frost needs photographs that are not at hand; the paper's code drops a name"),
        ("corrupted images", "the files of CIFAR-10-C", "made with their constants and other random numbers",
         "the same distribution"),
        ("test (laptop)", "10,000 images", "the first 500 of the test set", "time"),
        ("severities", "2 in Figs 7 and 17, 1 in Fig 18", "both", "the caption of Fig 17 has them the wrong way round"),
        ("penalty", "strength 0.25; the code mixes it with the loss and puts noise at any pixel offset",
         "mixed, on a patch of the grid", "as patches are defined"),
        ("augmentation", "silent whether noisy images replace the others", "they replace them", "the paper is silent"),
        ("rates of treated ViTs", "0.16 and 0.2", "the same at paper scale; Adam at 1e-3 at laptop scale",
         "as in `vision`"),
        ("seeds", "silent", "laptop: 3", "time"),
        ("models", "DenseNet and ViT-simple beside ViT and ResNet", "laptop: ConvMixer and a CNN instead", "time"),
    )  # fmt: skip
    claims = CLAIMS

    def trials(self, scale: str) -> list[Corrupted]:
        return planned(Corrupted, self.scales[scale].settings, "test", "corruptions", "severities")

    def rows(self, trial: Corrupted, outcome: lab.Outcome) -> Iterable[lab.Row]:
        about = {**trial.content(), **trial.about}
        about = {name: value for name, value in about.items() if name not in ("corruptions", "severities")}
        yield from _levels(trial, outcome, about)
        found = np.asarray(outcome["accuracy"])
        names = ("train_accuracy", "sensitivity", "half_width", "clean")
        about |= {"moment": "end", "level": None, **{name: outcome[name] for name in names}}
        of: list[str] = [CORRUPTIONS[name].category for name in trial.corruptions]
        for number, severity in enumerate(trial.severities):
            for name, category, value in zip(trial.corruptions, of, found[:, number].tolist(), strict=True):
                yield {**about, "severity": severity, "corruption": name, "category": category, **_kept(value, outcome)}
            for category in (ALL, *dict.fromkeys(of)):
                chosen = [value for value, own in zip(found[:, number].tolist(), of, strict=True)
                          if category in (ALL, own)]  # fmt: skip
                mean = float(np.mean(chosen))
                yield {**about, "severity": severity, "corruption": None, "category": category, **_kept(mean, outcome)}

    def provenance(self, table: lab.Rows) -> list[str]:
        ends = table.where(moment="end", category=ALL)
        models = ends.where(severity=min(ends.column("severity"), default=1))
        return averages(models, {"train_accuracy": "training accuracy", "clean": "on clean test images",
                                 "sensitivity": "sensitivity"})  # fmt: skip

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        each = "Points: means over seeds; whiskers: smallest to largest."
        both = "A point for each model: the mean accuracy over the corruptions of a category against its sensitivity."
        found = [
            lab.Figure("robustness", self.title, each, by_corruption(table), 1, where="Figs 7, 17, 18"),
            lab.Figure("robustness-sensitivity", "Accuracy on corrupted images and sensitivity", both,
                       against_sensitivity(table), 2, where="§ 7.1"),
        ]  # fmt: skip
        return [figure for figure in found if figure.panels]


def _levels(trial: Corrupted, outcome: lab.Outcome, about: lab.Row) -> Iterable[lab.Row]:
    """The checkpoints with the set's noise on patches; their `accuracy` is that on training images."""
    found = {name: outcome[f"level_{name}"] for name in COLUMNS}
    for row in checkpoint_rows(found, {**about, "severity": None, "corruption": None, "category": None}):
        if row["kind"] == "noise" and row["variance"] == trial.setting.variance:
            yield row


def _kept(value: float, outcome: lab.Outcome) -> dict[str, float]:
    return {"accuracy": value, "kept": value / outcome["clean"] if outcome["clean"] else 0.0}


STUDY = Robustness()
