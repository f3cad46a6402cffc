"""The image models that `vision`, `robustness` and `flatness` share: data sets, noise, levels, and their recipes.

A recipe is the same in all three studies, so that a model is trained once. On scikit-learn's digits, which need no
files, everything runs as well; results name the set.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from flipscope import lab
from flipscope.data.finding import split_reference
from flipscope.data.image_data import ImageData, image_data
from flipscope.data.images import load_images
from flipscope.models.baselines.presets import ImageShape
from flipscope.models.config import TransformerConfig
from flipscope.studies.low_sensitivity.shared import end_columns, watched
from flipscope.training.named import LossTerm, loss_term
from flipscope.training.protocol import Optimiser
from flipscope.training.recipe import Recipe, Trained
from flipscope.training.recipes.low_sensitivity import PAPER_RATES, image_recipe
from flipscope.training.token_measures import Disturbances, chosen_examples

SUBSTITUTE = "digits"
Treatment = Literal["none", "penalty", "augmentation"]


@dataclass(frozen=True)
class ImageSetting:
    """How sensitivity is measured on a data set; the paper's variances, pixels being between -1 and 1."""

    title: str
    levels: tuple[float, ...]  # of training accuracy; with the start and the end these are six checkpoints
    variance: float  # of the noise on a patch
    whole_variance: float = 0.025  # of the noise on the whole image (App. A.2)
    replace: bool = False  # whether patches are also replaced by those of other images, as the paper does on MNIST

    @property
    def variances(self) -> tuple[float, ...]:
        """A quarter, one and four times the variance."""
        return (self.variance / 4, self.variance, 4 * self.variance)


SETTINGS: Mapping[str, ImageSetting] = {
    "fashion-mnist": ImageSetting("Fashion-MNIST", (0.80, 0.85, 0.90, 0.95), 5.0),
    "cifar-10": ImageSetting("CIFAR-10", (0.30, 0.40, 0.50, 0.60), 1.0),
    "svhn": ImageSetting("SVHN", (0.40, 0.60, 0.80, 0.90), 1.0),
    "mnist": ImageSetting("MNIST", (0.85, 0.90, 0.95, 0.98), 1.0, replace=True),
    SUBSTITUTE: ImageSetting("digits (scikit-learn)", (0.30, 0.50, 0.70, 0.90), 1.0),
}
# Names of models that differ in size only.
FAMILIES: Mapping[str, str] = {
    "vit-small": "ViT", "vit-tiny": "ViT", "vit-simple": "ViT-simple", "vit-simple-small": "ViT-simple",
    "cnn": "CNN", "cnn-small": "CNN", "mlp": "MLP", "mlp-small": "MLP", "mlp-sigmoid": "sigmoid MLP",
    "mlp-sigmoid-small": "sigmoid MLP", "convmixer": "ConvMixer", "convmixer-small": "ConvMixer",
    "resnet-18": "ResNet", "resnet-small": "ResNet", "densenet-121": "DenseNet", "densenet-small": "DenseNet",
}  # fmt: skip
ORDER = ("ViT", "ViT-simple", "ConvMixer", "CNN", "ResNet", "DenseNet", "MLP", "sigmoid MLP")
# Learning rates of SGD: of models and sets that the paper does not have, and of its two treatments (App. D).
OTHER_RATE = 0.05
TREATED_RATES: Mapping[Treatment, float] = {"penalty": 0.16, "augmentation": 0.2}
STRENGTH, PENALTY_VARIANCE, AUGMENTATION_VARIANCE = 0.25, 1.0, 0.1  # § 7.1
KINDS = (ORDER[0], "ViT + penalty", "ViT + augmentation", *ORDER[1:])  # of models, with treatments
# How models are trained and measured at each scale. Seeds from 1000 on were used by no earlier run.
TRAININGS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"first_seed": 0, "train": 300, "epochs": 10, "every": 1, "inputs": 60, "tokens": 1, "draws": 1,
              "optimiser": "adam", "layers": 1, "heads": 1},
    "laptop": {"first_seed": 1_000, "train": 5_000, "epochs": 20, "every": 25, "inputs": 1_000, "tokens": 1, "draws": 1,
               "optimiser": "adam", "layers": 2, "heads": 4},
    "paper": {"first_seed": 1_000, "train": 60_000, "epochs": 50, "every": 100, "inputs": 15_000, "tokens": None,
              "draws": 5, "optimiser": "sgd", "layers": None, "heads": None},
}  # fmt: skip
COMMON = tuple(name for name in TRAININGS["paper"] if name != "first_seed")  # fields of every trial
# Models on the digits, where no data are at hand.
ON_DIGITS: Mapping[str, tuple[str, ...]] = {
    "laptop": ("vit-tiny", "cnn-small", "mlp-small", "convmixer-small"),
    "paper": ("vit-small", "cnn", "mlp", "convmixer"),
}
TREATED = {"none": "", "penalty": " + penalty", "augmentation": " + augmentation"}


@dataclass(frozen=True)
class ImageTrial(lab.TrainedTrial):
    """A model on an image set: `layers` and `heads` are those of a ViT if they differ from the named model's."""

    data: str  # the reference of the set
    model: str
    seed: int
    train: int  # images at most
    epochs: int
    every: int  # steps after which training accuracy is measured
    inputs: int  # training images on which sensitivity is measured
    tokens: int | None  # random patches of each, None for all
    draws: int  # of noise on each of them
    optimiser: Optimiser = "adam"
    layers: int | None = None
    heads: int | None = None
    treatment: Treatment = "none"

    @property
    def set(self) -> str:
        """The name of the data set."""
        return split_reference(self.data)[0]

    @property
    def setting(self) -> ImageSetting:
        """How sensitivity is measured on this set."""
        return SETTINGS[self.set]

    @functools.cached_property
    def images(self) -> ImageData:
        """The data of the recipe: so many training images of the set, and all test images."""
        return image_data(self.data, train=min(self.train, len(load_images(self.data).x_train)))

    @property
    def patch(self) -> int:
        """Pixels at a side of a patch."""
        return ImageShape(self.set, self.images.image_size, self.images.channels).patch_size

    @property
    def disturbances(self) -> Disturbances:
        """What is done to the patches of an image."""
        wholes = (self.setting.whole_variance,)
        return Disturbances(self.setting.variances, wholes, replace=self.setting.replace, patch=self.patch)

    @property
    def recipe(self) -> Recipe:
        done = self.disturbances
        log = watched(
            self.setting.levels, self.every, variances=done.variances, whole_variances=done.whole_variances,
            replace=done.replace, patch=done.patch, inputs=self.inputs, tokens=self.tokens, draws=self.draws,
            seed=self.seed,
        )  # fmt: skip
        recipe = image_recipe(
            self.images, self.model, self.seed, optimiser=self.optimiser, learning_rate=self._rate(),
            epochs=self.epochs, terms=self._terms(), log=[log],
        )  # fmt: skip
        return dataclasses.replace(recipe, model=sized(recipe.model, self.layers, self.heads))

    def _rate(self) -> float | None:
        """The learning rate; None is Adam's default."""
        if self.optimiser != "sgd":
            return None
        return TREATED_RATES.get(self.treatment) or PAPER_RATES.get((self.set, self.model), OTHER_RATE)

    def _terms(self) -> list[LossTerm]:
        if self.treatment == "penalty":
            return [loss_term("sensitivity", STRENGTH, variance=PENALTY_VARIANCE, patch=self.patch)]
        if self.treatment == "augmentation":
            return [loss_term("augmentation", 1.0, variance=AUGMENTATION_VARIANCE)]
        return []

    @property
    def about(self) -> dict[str, Any]:
        """The columns that tell models apart, beside the trial's own."""
        family = FAMILIES[self.model]
        return {"set": self.set, "family": family, "kind_of_model": family + TREATED[self.treatment]}


Planned = TypeVar("Planned", bound=ImageTrial)


def sized(config: Any, layers: int | None, heads: int | None) -> Any:
    """A ViT of another depth or number of heads; other models as they are."""
    if not isinstance(config, TransformerConfig):
        return config
    return dataclasses.replace(config, layers=layers or config.layers, heads=heads or config.heads)


def end_of(trial: ImageTrial, trained: Trained, disturbances: Disturbances | None = None) -> dict[str, list[Any]]:
    """The columns of a trained model at its end, on its training images; by default with the set's noise on patches."""
    known, _ = chosen_examples(trial.images.training_set(), trial.inputs, trial.seed)
    return end_columns(
        trained.model,
        known,
        disturbances or Disturbances((trial.setting.variance,), patch=trial.patch),
        step=trained.fitted.steps,
        seed=trial.seed,
        tokens="all" if trial.tokens is None else trial.tokens,
        draws=trial.draws,
    )


def sets_here(plan: Mapping[str, Any]) -> list[tuple[str, Sequence[str]]]:
    """The references of the sets of a plan, each with the models to train on it.

    A plan has the models of each set under its name, "none" being no model. Without a folder of data sets they are
    those of the digits.
    """
    models = {name: [each for each in plan[name] if each != "none"] for name in SETTINGS}
    wanted = [name for name in SETTINGS if name != SUBSTITUTE and models[name]]
    found = lab.available_sets(wanted, SUBSTITUTE) if wanted else [lab.data_set(SUBSTITUTE)]
    return [(reference, models[split_reference(reference)[0]]) for reference in found]


def planned(kind: type[Planned], plan: Mapping[str, Any], *own: str) -> list[Planned]:
    """The trials of a plan: each model of each set with each seed, and ViTs also with the treatments of the plan.

    `own` are settings of the plan that are fields of this kind of trial only.
    """
    common = {name: plan[name] for name in (*COMMON, *own)}
    found = []
    for reference, models in sets_here(plan):
        for model in models:
            for seed in range(plan["first_seed"], plan["first_seed"] + plan["seeds"]):
                plain = kind(reference, model, seed, **common)
                treatments = plan.get("treatments", ()) if FAMILIES[model] == "ViT" else ()
                found += [plain, *(dataclasses.replace(plain, treatment=each) for each in treatments)]
    return found


def averages(table: lab.Rows, columns: Mapping[str, str]) -> list[str]:
    """A sentence for each kind of model on each set, with the means of these columns under the words given for them."""
    sentences = []
    for (name, which), own in table.by("set", "kind_of_model"):
        means = ", ".join(f"{words} {np.mean(own.column(column)):.3g}" for column, words in columns.items())
        sentences.append(f"{SETTINGS[name].title}, {which}: {means} (models: {len(own)})")
    return sentences
