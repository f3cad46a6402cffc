"""Are minima flatter with a penalty on sensitivity, and do less sensitive models generalise better? (§ 7.2, Table 2)

Gaussian noise on all weights of a trained ViT changes its outputs (ShOp, the sum over the ten logits of the absolute
change, averaged over training images) and its answers (ShPred, the share of images whose class changes). The paper
compares a ViT trained with the penalty with a plain one. The models are those of `vision` and `robustness`.

The penalty makes outputs smaller, and smaller outputs change less under any noise: ShOp over the size of the outputs,
the increase of the loss, and noise in proportion to each weight are judged beside it. Over all models of a seed, lower
sensitivity is compared with the gap of training and test accuracy. That gap is small for any model that has learned
little, and models are compared at the end of the same number of epochs, not at one accuracy: whether the less sensitive
ones are also better on test images is judged beside it.

Three seeds give an interval of the mean of 2.5 times the scatter to either side, and of 3.6 times for a pair of
comparisons; rank correlations of six models that are the same in all three seeds remain undecided.

Measured in evaluation mode, whereas the released code keeps dropout on in its perturbed copy and takes a standard
deviation of 0.05 by default; the paper says 0.005. Both are measured. Table 2's values are of another model, and stand
in the table beside the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

import flipscope.lab as lab
from flipscope.lab import quantities
from flipscope.lab.quantities import Criterion
from flipscope.probes.sharpness import sharpnesses
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
from flipscope.studies.low_sensitivity.shared import FEWEST, end_gap
from flipscope.training.fit import evaluate
from flipscope.training.token_measures import chosen_examples

STD, CODE_STD, ADAPTIVE_STD = 0.005, 0.05, 0.05  # of noise on weights: the paper's, the released code's, per weight
CLEAR = 0.5  # rank correlation from which one goes with the other
POINTS = 4  # models of a seed that a rank correlation needs
TABLE_2: Mapping[str, tuple[float, float]] = {"ViT": (39.166, 0.5346), "ViT + penalty": (9.025, 0.3982)}
# Columns of a row, and what they say.
MEASURES: Mapping[str, str] = {
    "shop": "ShOp",
    "shpred": "ShPred",
    "shop_code": "ShOp with noise of 0.05",
    "shpred_code": "ShPred with noise of 0.05",
    "relative_shop": "ShOp over the size of the outputs",
    "loss_increase": "increase of the loss",
    "adaptive_shpred": "ShPred with noise in proportion to each weight",
}


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Flat(ImageTrial):
    """A model, and how its flatness is measured: on so many training images, with so many draws of noise on weights."""

    strings: int = 500
    perturbations: int = 20

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        trained = lab.trained(self.recipe, progress)
        end = end_of(self, trained)
        training = self.images.training_set()
        fitted, tested = (
            evaluate(trained.model, each, loss="ce", inputs="numbers") for each in (training, self.images.test_set())
        )
        some, _ = chosen_examples(training, self.strings, self.seed)
        return {
            "sensitivity": end["sensitivity"][0],
            "half_width": end["half_width"][0],
            "train_accuracy": fitted.accuracy.value,
            "test_accuracy": tested.accuracy.value,
            "train_loss": fitted.loss,
            "test_loss": tested.loss,
            **flat(self, trained.model, some.bits, some.labels),
        }


def flat(trial: Flat, model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """The measures of flatness of a model."""

    def measured(std: float, *, adaptive: bool = False) -> dict[str, float]:
        found = sharpnesses(
            model, images, labels, measures=("ShOp", "ShPred", "loss"), std=std, adaptive=adaptive, parameters="*",
            draws=trial.perturbations, seed=trial.seed, loss="cross_entropy", over_outputs="sum",
        )  # fmt: skip
        return {str(name): each.value.value for name, each in found.items()}

    paper, code, adaptive = measured(STD), measured(CODE_STD), measured(ADAPTIVE_STD, adaptive=True)
    with torch.no_grad():
        outputs = torch.cat([model(part) for part in images.split(100)])
    size = float((outputs - outputs.mean(dim=1, keepdim=True)).abs().sum(dim=1).mean())
    return {
        "shop": paper["ShOp"],
        "shpred": paper["ShPred"],
        "shop_code": code["ShOp"],
        "shpred_code": code["ShPred"],
        "relative_shop": paper["ShOp"] / size if size else 0.0,
        "loss_increase": code["loss"],
        "adaptive_shpred": adaptive["ShPred"],
        "output_size": size,
    }


# ---------------------------------------------------------------- claims


def lower(column: str, treatment: str = "penalty", name: str = "cifar-10") -> Criterion:
    """The measure is lower with the treatment."""
    words = f"{MEASURES[column]} of ViT less that of ViT + {treatment}"
    plain, treated = {"kind_of_model": "ViT"}, {"kind_of_model": f"ViT + {treatment}"}
    return end_gap(words, plain, treated, column=column).where(SETTINGS[name].title, set=name) > 0


def goes_with(column: str, words: str) -> quantities.Quantity:
    """The rank correlation of sensitivity with a column, over the models of each seed."""
    x = lab.Column("sensitivity", lambda row: row["sensitivity"])
    y = lab.Column(words, lambda row: row[column])
    return quantities.order(x, y, per="seed", fewest=FEWEST, points=POINTS).where("CIFAR-10", set="cifar-10")


CLAIMS = (
    lab.claim(
        "the penalty lowers ShOp",
        "Table 2",
        "outputs of a ViT trained with the penalty change less when noise is added to its weights",
        lower("shop"),
    ),
    lab.claim(
        "the penalty lowers ShPred",
        "Table 2",
        "fewer of its answers change",
        lower("shpred"),
    ),
    lab.claim(
        "less sensitive models generalise better",
        "§ 7.2",
        "lower sensitivity goes with a smaller gap of training and test accuracy",
        goes_with("test_gap", "training less test accuracy") >= CLEAR,
    ),
    lab.claim(
        "with the noise of the released code, too",
        "beyond Table 2",
        "both are lower with a standard deviation of 0.05 as well",
        lower("shop_code") & lower("shpred_code"),
        exploratory=True,
    ),
    lab.claim(
        "outputs change less for their size",
        "beyond Table 2",
        "ShOp over the size of the outputs is lower: it is not only that the penalty makes outputs small",
        lower("relative_shop"),
        exploratory=True,
    ),
    lab.claim(
        "the loss increases less",
        "beyond Table 2",
        "the loss of a ViT with the penalty increases less when noise is added to its weights",
        lower("loss_increase"),
        exploratory=True,
    ),
    lab.claim(
        "flatter for noise in proportion to the weights",
        "beyond Table 2",
        "fewer answers change when each weight gets noise in proportion to its size",
        lower("adaptive_shpred"),
        exploratory=True,
    ),
    lab.claim(
        "less sensitive models are better on test images",
        "beyond § 7.2",
        "lower sensitivity goes with a better test accuracy, which a model that has learned little does not have",
        goes_with("test_accuracy", "test accuracy") <= -CLEAR,
        exploratory=True,
    ),
    lab.claim(
        "augmentation lowers ShPred",
        "beyond Table 2",
        "fewer answers of a ViT that was trained on images with noise change when noise is added to its weights",
        lower("shpred_code", "augmentation"),
        exploratory=True,
    ),
    lab.claim(
        "on scikit-learn's digits the penalty lowers ShOp",
        "beyond the paper",
        "the same on the digits that take the place of CIFAR-10 where no data are at hand",
        lower("shop", name="digits"),
        exploratory=True,
        decided_from="",
    ),
)


# ---------------------------------------------------------------- figures


def measures(table: lab.Rows) -> list[lab.Panel]:
    """A panel for each measure: a point for each ViT, with Table 2's values where it has some."""
    panels = []
    for name, own in table.where(family="ViT").by("set"):
        kinds = [each for each in KINDS if own.where(kind_of_model=each)]
        for column, words in MEASURES.items():
            places = [kinds.index(row["kind_of_model"]) for row in own]
            drawn = [lab.Series("measured", places, own.column(column), "points")]
            known = [(place, row[f"paper_{column}"]) for place, row in zip(places, own, strict=True)
                     if row.get(f"paper_{column}") is not None]  # fmt: skip
            if known:
                once = list(dict.fromkeys(known))
                drawn.append(
                    lab.Series("Table 2", [place for place, _ in once], [value for _, value in once], "points")
                )
            panels.append(lab.Panel(SETTINGS[name].title, " ", words, drawn, categories=kinds))
    return panels


def gaps(table: lab.Rows) -> list[lab.Panel]:
    """A panel for each set: training less test accuracy against sensitivity, a point for each model."""
    panels, labels = [], {each: each for each in KINDS if table.where(kind_of_model=each)}
    for name, own in table.by("set"):
        series = lab.points(own, "sensitivity", "test_gap", "kind_of_model", lambda row: f"seed {row['seed']}", labels)
        panels.append(lab.Panel(SETTINGS[name].title, "sensitivity", "training less test accuracy", series))
    return panels


# ---------------------------------------------------------------- the study


class Flatness(lab.Study):
    """Sharpness of ViTs with and without the penalty, and the generalisation of less sensitive models."""

    name, paper, figures = "flatness", "004", ("Table 2",)
    title = "Flatness of minima with and without the penalty on sensitivity"
    scales = lab.scales(
        "{seeds} seeds of the models of `vision` and `robustness`; {perturbations} draws of noise on the weights, "
        "{strings} training images",
        common={"svhn": (), "mnist": (), "fashion-mnist": ()},
        smoke=(0.2, {"cifar-10": (), "digits": ("vit-tiny", "mlp-small"), "treatments": ("penalty",), "seeds": 1,
                     **TRAININGS["smoke"], "strings": 40, "perturbations": 3}),
        laptop=(10, {"cifar-10": ("vit-tiny", "resnet-small", "convmixer-small", "cnn-small"),
                     "digits": ON_DIGITS["laptop"], "treatments": ("penalty", "augmentation"), "seeds": 3,
                     **TRAININGS["laptop"], "strings": 500, "perturbations": 20}),
        paper=(2_000, {"cifar-10": ("vit-small", "vit-simple", "resnet-18", "densenet-121"),
                       "digits": ON_DIGITS["paper"], "treatments": ("penalty", "augmentation"), "seeds": 3,
                       **TRAININGS["paper"], "strings": 50_000, "perturbations": 20}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("data, model, train, epochs, optimiser, every, inputs, tokens, draws, layers, heads", "complete CIFAR-10 and "
         "larger models", "as in `vision`, whose models these are", "time"),
        ("ShOp", "of one output", "the sum over the ten logits, as in the released code", "ten classes"),
        ("mode", "the released code keeps dropout on while weights are perturbed", "evaluation mode",
         "dropout alone changes outputs"),
        ("noise on weights", "0.005; 0.05 in the released code", "both", "the paper and its code differ"),
        ("penalty", "strength 0.25, anywhere", "mixed with the loss, on a patch of the grid", "as in `robustness`"),
        ("strings, perturbations", "the training set, 5 repeats", "laptop: 500 images, 20 draws", "time"),
        ("models", "DenseNet and ViT-simple beside ViT and ResNet", "laptop: ConvMixer and a CNN instead", "time"),
        ("seeds", "one", "laptop: 3", "intervals"),
    )  # fmt: skip
    claims = CLAIMS

    def trials(self, scale: str) -> list[Flat]:
        return planned(Flat, self.scales[scale].settings, "strings", "perturbations")

    def rows(self, trial: Flat, outcome: lab.Outcome) -> Iterable[lab.Row]:
        row = {**trial.content(), **trial.about, "moment": "end", **outcome}
        row["test_gap"] = row["train_accuracy"] - row["test_accuracy"]
        row["loss_gap"] = row["test_loss"] - row["train_loss"]
        printed = TABLE_2.get(row["kind_of_model"]) if trial.set == "cifar-10" else None
        row["paper_shop"], row["paper_shpred"] = printed or (None, None)
        return [row]

    def provenance(self, table: lab.Rows) -> list[str]:
        return averages(table, {"train_accuracy": "training accuracy", "test_accuracy": "test accuracy",
                                "sensitivity": "sensitivity", "output_size": "size of the outputs"})  # fmt: skip

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        each = "A point for each ViT. Table 2 is of another ViT, trained otherwise."
        both = "A point for each model at the end of its training."
        found = [
            lab.Figure("flatness", self.title, each, measures(table), 2, where="Table 2"),
            lab.Figure("flatness-gap", "Generalisation and sensitivity", both, gaps(table), 2, where="§ 7.2"),
        ]
        return [figure for figure in found if figure.panels]


STUDY = Flatness()
