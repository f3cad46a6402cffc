"""Are vision transformers less sensitive to patches than CNNs, ConvMixers and MLPs? (§ 5, App. A.1–A.3, Figs 4, 10–16)

Every model is measured when its accuracy on some training images first reaches each of four levels, before its first
step and at the end: one random patch of each image gets Gaussian noise, and the share of images whose class changes is
the sensitivity. Two kinds of models are compared at the same levels; a sample is a pair of models with one seed, which
saw the same images, patches and noise. The paper compares its models at the end of training, where accuracies are
similar: that is drawn and judged beside it.

Noise of a smaller variance on whole images is measured at the same checkpoints (Table 4), and a quarter of the variance
and four times it (Fig 14). Depth, heads and optimiser (Figs 11, 12), the other sets and the larger models are settings
that are off at laptop scale: the claims about them are decided at paper scale, or with --set.

docs/low-sensitivity.md says what the laptop's plan follows from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

import flipscope.lab as lab
from flipscope.adapters.disturbing import patches
from flipscope.data.images import load_images
from flipscope.figures import AnyPanel, ImagePanel
from flipscope.lab.quantities import Criterion
from flipscope.studies.low_sensitivity.image_models import (
    FAMILIES,
    ON_DIGITS,
    ORDER,
    SETTINGS,
    TRAININGS,
    ImageTrial,
    end_of,
    planned,
)
from flipscope.studies.low_sensitivity.shared import (
    checkpoint_columns,
    checkpoint_rows,
    end_gap,
    gap,
    gap_change,
    if_present,
    joined,
    paired,
    sensitivity_map,
)

SAME = 0.02  # largest difference of sensitivities that the paper would call none
NO_VARIANTS: Mapping[str, tuple[Any, ...]] = {"depth": (), "heads": (), "optimiser": ()}
MAP_DRAWS = 16  # of noise on each patch of a heat map
# Sensitivities at the end of training in the paper (§ 5, App. A.3), by set and kind of model; Table 4 has noise on all.
PAPER_ENDS: Mapping[tuple[str, str], float] = {
    ("cifar-10", "DenseNet"): 0.3673, ("cifar-10", "ResNet"): 0.0827, ("cifar-10", "ConvMixer"): 0.0829,
    ("cifar-10", "ViT"): 0.0050, ("cifar-10", "ViT-simple"): 0.0014,
    ("fashion-mnist", "MLP"): 0.0559, ("fashion-mnist", "sigmoid MLP"): 0.0505, ("fashion-mnist", "CNN"): 0.0453,
    ("fashion-mnist", "ViT"): 0.0098, ("svhn", "ResNet"): 0.0516, ("svhn", "ViT"): 0.0147,
}  # fmt: skip
PAPER_WHOLE: Mapping[tuple[str, str], float] = {("cifar-10", "ResNet"): 0.0172, ("cifar-10", "ViT"): 0.0082}


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Vision(ImageTrial):
    """One model; `variant` says what is varied beside the main comparison, and `maps` images get a heat map."""

    variant: Literal["base", "depth", "heads", "optimiser"] = "base"
    maps: int = 0

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        trained = lab.trained(self.recipe, progress)
        end = end_of(self, trained, self.disturbances)
        outcome: dict[str, Any] = joined(checkpoint_columns(trained.fitted.log), end)
        outcome["test_accuracy"] = trained.history[-1].validation_accuracy
        if self.maps:
            outcome["map"] = heat_maps(self, trained.model)
        return outcome


def heat_maps(trial: Vision, model: torch.nn.Module) -> np.ndarray:
    """How often noise on each patch changes the class of the first test images: [image, patch]."""
    pixels = np.moveaxis(load_images(trial.data).x_test[: trial.maps], -1, 1).copy()
    images = trial.images.scaled(torch.from_numpy(pixels))
    found: np.ndarray = sensitivity_map(
        model, images, variance=trial.setting.variance, draws=MAP_DRAWS, seed=trial.seed,
        feature_mask=patches(trial.patch),
    )  # fmt: skip
    return found


# ---------------------------------------------------------------- claims


def kind(family: str, name: str, *, of: str = "noise", times: float = 1.0, **more: Any) -> dict[str, Any]:
    """The columns of a kind of model on a set under a disturbance: noise of so many times the set's variance."""
    setting = SETTINGS[name]
    variance = {"noise": times * setting.variance, "whole": setting.whole_variance, "replace": None}[of]
    return {"set": name, "family": family, "kind": of, "variance": variance, "variant": "base", **more}


def above_vit(other: str, name: str, of: str = "noise", *, vit: str = "ViT") -> Criterion:
    """The other kind of model is more sensitive at equal training accuracy."""
    words = f"sensitivity of {other} less that of {vit} on {SETTINGS[name].title}"
    return gap(words, kind(other, name, of=of), kind(vit, name, of=of)) > 0


def above_at_the_end(other: str, name: str) -> Criterion:
    """The other kind of model is more sensitive at the end of training, whatever the accuracies are."""
    words = f"sensitivity of {other} less that of ViT at the end, {SETTINGS[name].title}"
    return end_gap(words, kind(other, name), kind("ViT", name)) > 0


def grows(other: str) -> Criterion:
    """The gap to the ViT grows with the variance."""
    words = f"gap of {other} and ViT with four times the variance less that with a quarter"
    sides = [{"variance": times * SETTINGS["cifar-10"].variance} for times in (4.0, 0.25)]
    return gap_change(words, kind(other, "cifar-10"), kind("ViT", "cifar-10"), *sides) > 0


def token_or_whole(part: str, words: str) -> Criterion:
    """The gap of ResNet and ViT is larger with noise on a patch than with noise on the image."""
    sides = [{"kind": of, "variance": kind("ViT", "cifar-10", of=of)["variance"]} for of in ("noise", "whole")]
    return gap_change(words, kind("ResNet", "cifar-10"), kind("ViT", "cifar-10"), *sides, part=part) > 0


def varied(variant: str, column: str, words: str) -> Criterion:
    """A ViT of another size, or trained by another optimiser, is as sensitive as the main one."""

    def groups(rows: lab.Rows) -> list[tuple[Any, lab.Rows]]:
        values = rows.where(variant=variant).values(column)
        base = rows.where(variant="base")
        return [(f"{words} {value}", lab.Rows([*rows.where(variant=variant, **{column: value}), *base]))
                for value in values]  # fmt: skip

    base = kind("ViT", "cifar-10")
    difference = gap("sensitivity of the varied ViT less that of the main one", base | {"variant": variant}, base)
    return difference.grouped(f"for each {words}", groups, what=words).between(-SAME, SAME)


def more_with_adam() -> Criterion:
    """A ViT trained with Adam is more sensitive than one trained with SGD, wherever one of the two is the main one."""

    def trained_with(optimiser: str) -> dict[str, Any]:
        columns = kind("ViT", "cifar-10", optimiser=optimiser)
        return {name: value for name, value in columns.items() if name != "variant"}

    words = "sensitivity of the ViT trained with Adam less that of the one trained with SGD"
    found = gap(words, trained_with("adam"), trained_with("sgd"))
    return found.where("ViTs of one size", lambda row: row["variant"] in ("base", "optimiser")) > 0


def paper_only(*arguments: Any) -> lab.Claim:
    """A claim that the laptop's plan leaves undecided."""
    return lab.claim(*arguments, decided_from="paper")


CLAIMS = (
    lab.claim(
        "a ViT is less sensitive than a ResNet",
        "Fig 4",
        "at similar training accuracy a ViT has a lower sensitivity than a CNN on CIFAR-10",
        above_vit("ResNet", "cifar-10"),
    ),
    lab.claim(
        "a ViT is less sensitive than a ConvMixer",
        "Fig 4",
        "so does a ViT compared with a ConvMixer: that it reads patches does not explain it",
        above_vit("ConvMixer", "cifar-10"),
    ),
    lab.claim(
        "a ViT is less sensitive than a CNN on Fashion-MNIST",
        "§ 5, Fig 15",
        "on Fashion-MNIST a ViT has a lower sensitivity than a small CNN",
        above_vit("CNN", "fashion-mnist"),
    ),
    lab.claim(
        "a ViT is less sensitive than an MLP",
        "§ 5, Fig 15",
        "on Fashion-MNIST a ViT has a lower sensitivity than an MLP with LeakyReLU",
        above_vit("MLP", "fashion-mnist"),
    ),
    lab.claim(
        "a ViT is less sensitive than a sigmoid MLP",
        "§ 5, Fig 15",
        "on Fashion-MNIST a ViT has a lower sensitivity than an MLP with sigmoid",
        above_vit("sigmoid MLP", "fashion-mnist"),
    ),
    lab.claim(
        "the gap is larger with noise on a patch than on the whole image",
        "Table 4",
        "noise on whole images tells ResNet and ViT apart less than noise on patches",
        token_or_whole("gap", "gap of ResNet and ViT with noise on a patch less that with noise on the image"),
    ),
    lab.claim(
        "the gap grows with the variance",
        "Fig 14",
        "the larger the variance of the noise, the larger is the difference to the ViT",
        grows("ResNet") & grows("ConvMixer"),
    ),
    lab.claim(
        "at the end of training, too",
        "Figs 4, 15",
        "the ViT has the lowest sensitivity at the end of training",
        above_at_the_end("ResNet", "cifar-10") & above_at_the_end("ConvMixer", "cifar-10")
        & above_at_the_end("CNN", "fashion-mnist") & above_at_the_end("MLP", "fashion-mnist")
        & above_at_the_end("sigmoid MLP", "fashion-mnist"),
    ),
    paper_only(
        "a ViT is less sensitive than a DenseNet",
        "Fig 4",
        "a ViT has a lower sensitivity than DenseNet-121 on CIFAR-10",
        above_vit("DenseNet", "cifar-10"),
    ),
    paper_only(
        "ViT-simple is less sensitive than a ResNet",
        "Fig 4",
        "another ViT has a low sensitivity as well",
        above_vit("ResNet", "cifar-10", vit="ViT-simple"),
    ),
    paper_only(
        "a ViT is less sensitive than a ResNet on SVHN",
        "Fig 16",
        "the same on SVHN",
        above_vit("ResNet", "svhn"),
    ),
    paper_only(
        "a ViT is less sensitive than an MLP to replaced patches",
        "Fig 10",
        "on MNIST a ViT is less sensitive than an MLP when a patch is replaced",
        above_vit("MLP", "mnist", "replace"),
    ),
    paper_only(
        "the depth of a ViT does not matter",
        "Fig 12",
        "ViTs of other depths are as sensitive at the same training accuracy",
        varied("depth", "layers", "depth"),
    ),
    paper_only(
        "the number of heads does not matter",
        "Fig 12",
        "ViTs with other numbers of heads are as sensitive at the same training accuracy",
        varied("heads", "heads", "number of heads"),
    ),
    paper_only(
        "Adam is about as good as SGD",
        "Fig 11",
        "a ViT trained with Adam has nearly the same sensitivity as one trained with SGD",
        varied("optimiser", "optimiser", "optimiser"),
    ),
    paper_only(
        "a ViT trained with Adam is slightly more sensitive",
        "Fig 11",
        "with Adam the sensitivity is slightly higher than with SGD",
        more_with_adam(),
    ),
    lab.claim(
        "the relative gap is larger with noise on a patch, too",
        "beyond Table 4",
        "the same for the gap over the sum of both sensitivities, which does not depend on how strong the noise is",
        token_or_whole("relative", "relative gap of ResNet and ViT with noise on a patch less that on the image"),
        exploratory=True,
    ),
    lab.claim(
        "on scikit-learn's digits a ViT is less sensitive than CNN and MLP",
        "beyond the paper",
        "the same on the digits that take the place of the sets where no data are at hand",
        above_vit("CNN", "digits") & above_vit("MLP", "digits"),
        exploratory=True,
        decided_from="",
    ),
)  # fmt: skip


# ---------------------------------------------------------------- figures


def families_of(table: lab.Rows) -> list[str]:
    """The kinds of models of a table, which have the same colours in all of its figures."""
    return [family for family in ORDER if table.where(family=family)]


def at_accuracy(table: lab.Rows) -> list[lab.Panel]:
    """A panel for each set: sensitivity against the level of training accuracy."""
    main = table.where(moment="level", variant="base", main=True)
    titles = {name: SETTINGS[name].title for name in SETTINGS}
    return lab.charts(
        main, "level", "sensitivity", "family", facet="set", titles=titles, order=families_of(table),
        x_label="training accuracy", y_label="sensitivity",
    )  # fmt: skip


def against_paper(table: lab.Rows) -> list[lab.Panel]:
    """A panel for each set: sensitivity at the end, with the paper's values as crosses."""
    panels = []
    for name, own in table.where(moment="end", variant="base", main=True).by("set"):
        families = families_of(own)
        drawn = []
        for label, column in (("measured", "sensitivity"), ("in the paper", "paper_end")):
            known = [(place, row[column]) for place, family in enumerate(families) for row in own.where(family=family)
                     if row[column] is not None]  # fmt: skip
            if known:
                unique = list(dict.fromkeys(known))
                drawn.append(
                    lab.Series(label, [place for place, _ in unique], [value for _, value in unique], "points")
                )
        panels.append(lab.Panel(SETTINGS[name].title, "", "sensitivity at the end", drawn, categories=families))
    return panels


def by_variance(table: lab.Rows) -> list[lab.Panel]:
    """A panel for each set: sensitivity at the highest level that the ViT reaches, against the variance."""
    panels = []
    for name, own in table.where(moment="level", variant="base", kind="noise").by("set"):
        levels = own.where(family="ViT").values("level")
        if levels:
            shown = own.where(level=levels[-1])
            panels.append(lab.chart(
                shown, "variance", "sensitivity", "family", order=families_of(table), x_log=True, x_label="variance",
                y_label="sensitivity", title=f"{SETTINGS[name].title}, training accuracy {levels[-1]:g}",
            ))  # fmt: skip
    return panels


def token_and_whole(table: lab.Rows) -> list[lab.Panel]:
    """A panel for each set: noise on a patch against noise on the image, a point for each checkpoint."""
    panels = []
    for name, own in table.where(moment="level", variant="base").by("set"):
        joint = lab.Rows()
        for (family, seed, level), some in own.by("family", "seed", "level"):
            token, whole = some.where(main=True), some.where(kind="whole")
            if token and whole:
                joint.append({"family": family, "seed": seed, "level": level, "token": token[0]["sensitivity"],
                              "whole": whole[0]["sensitivity"]})  # fmt: skip
        if joint:
            shown = lab.points(joint, "whole", "token", "family", lambda row: f"seed {row['seed']}, {row['level']:g}",
                               {family: family for family in families_of(table)})  # fmt: skip
            panels.append(lab.Panel(SETTINGS[name].title, "noise on the whole image", "noise on a patch", shown))
    return panels


def pictures(table: lab.Rows) -> list[AnyPanel]:
    """Test images under the sensitivity to their patches, where the data set is on this machine."""
    panels: list[AnyPanel] = []
    for data, own in table.where(moment="map").by("data"):
        found = if_present(lambda data=data: load_images(data))  # type: ignore[misc]
        if found is None:
            continue
        for family in families_of(own):
            for row in own.where(family=family)[:1]:
                for number, shares in enumerate(row["map"]):
                    side = round(len(shares) ** 0.5)
                    panels.append(ImagePanel(
                        f"{family}, test image {number}", found.x_test[number],
                        np.reshape(np.array(shares, np.float64), (side, side)), "changed", value_range=(0, 1),
                    ))  # fmt: skip
    return panels


# ---------------------------------------------------------------- the study


class VisionStudy(lab.Study):
    """Sensitivity of vision transformers and other image models at matched training accuracy."""

    name, paper = "vision", "004"
    figures = ("Fig 4", "Fig 10", "Fig 11", "Fig 12", "Fig 13", "Fig 14", "Fig 15", "Fig 16", "Table 4")
    title = "Sensitivity to patches of vision transformers, CNNs, ConvMixers and MLPs at matched training accuracy"
    scales = lab.scales(
        "{seeds} seeds of each model of the sets at hand, {train} training images at most, {epochs} epochs with "
        "{optimiser}; sensitivity on {inputs} training images",
        smoke=(0.2, {"fashion-mnist": (), "cifar-10": (), "svhn": (), "mnist": (),
                     "digits": ("vit-tiny", "cnn-small", "mlp-small"), "seeds": 2, **TRAININGS["smoke"], "maps": 1,
                     "variants": NO_VARIANTS}),
        laptop=(70, {"fashion-mnist": ("vit-tiny", "cnn-small", "mlp", "mlp-sigmoid"),
                     "cifar-10": ("vit-tiny", "resnet-small", "convmixer-small", "cnn-small"), "svhn": (), "mnist": (),
                     "digits": ON_DIGITS["laptop"], "seeds": 6, **TRAININGS["laptop"], "maps": 2,
                     "variants": NO_VARIANTS}),
        paper=(60_000, {"fashion-mnist": ("vit-small", "cnn", "mlp", "mlp-sigmoid"),
                        "cifar-10": ("vit-small", "vit-simple", "resnet-18", "densenet-121", "convmixer"),
                        "svhn": ("vit-small", "resnet-18"), "mnist": ("vit-small", "mlp"),
                        "digits": ON_DIGITS["paper"], "seeds": 3, **TRAININGS["paper"], "maps": 2,
                        "variants": {"depth": (4, 6), "heads": (8, 16), "optimiser": ("adam",)}}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("data (laptop)", "complete sets", "at most 5,000 training images of the sets at hand; without any, the digits "
         "of scikit-learn, under their name", "time"),
        ("model (laptop)", "ViT-small of depth 8 with 32 heads, ResNet-18, ConvMixer of depth 6, width 128",
         "ViT of 2 layers with 4 heads and an MLP of 128 units, ResNet of a quarter of the width, ConvMixer of depth "
         "3, width 64, CNN of 16 filters and 64 units", "time"),
        ("train (laptop)", "all images", "the same 5,000 for all seeds: intervals are over initial weights, order "
         "and noise, not over the choice of images", "time"),
        ("optimiser (laptop)", "SGD, other rates for each model", "Adam, 1e-3 for all",
         "with the paper's rates ViTs fit little in minutes"),
        ("compared at", "the end of training, where accuracies are similar", "four levels of training accuracy; the "
         "end beside it", "models learn at different speeds"),
        ("inputs, tokens, draws (laptop)", "30 % of the training images, every patch, 5 draws",
         "1,000 images, one random patch each, one draw", "the narrowest interval for the time"),
        ("noise", "the released code scatters it over 16 pixels and takes the variance for a standard deviation",
         "on a patch of the grid, as the paper says; a variance is a variance", "definition"),
        ("variance", "Fig 14: several, not stated", "a quarter of the set's, one and four times it", "the paper is "
         "silent"),
        ("MNIST", "labels below 5 or not", "ten classes", "the same data as everywhere"),
        ("MNIST's replacement", "silent where patches come from", "patches of the measured training images",
         "the paper is silent"),
        ("seeds", "silent", "laptop: 6; smoke: 2", "as many as a gap of 0.01 needs, by a pilot with other seeds"),
        ("variants", "depth, heads, optimiser", "off at laptop scale: --set variants.depth=4,6", "time"),
        ("epochs", "silent; 50 in the released code", "laptop: 20", "time"),
        ("Adam's rate", "0.002, halved every 8 epochs (Fig 11)", "1e-3, constant", "the same wherever Adam is used"),
        ("SVHN", "60,000 training images", "73,257 in the published set; paper scale takes 60,000", "a slip"),
    )  # fmt: skip
    claims = CLAIMS

    def trials(self, scale: str) -> list[Vision]:
        plan = self.scales[scale].settings
        found = []
        for trial in planned(Vision, plan):
            found.append(replace(trial, maps=plan["maps"] if trial.seed == plan["first_seed"] else 0))
            if trial.set == "cifar-10" and FAMILIES[trial.model] == "ViT":
                found += _variants(trial, plan["variants"])
        return found

    def rows(self, trial: Vision, outcome: lab.Outcome) -> Iterable[lab.Row]:
        about = {**trial.content(), **trial.about, "test_accuracy": outcome["test_accuracy"]}
        for row in checkpoint_rows(outcome, about):
            place = (trial.set, row["family"])
            row["main"] = row["kind"] == "noise" and row["variance"] == trial.setting.variance
            printed = PAPER_ENDS if row["main"] else PAPER_WHOLE if row["kind"] == "whole" else {}
            row["paper_end"] = printed.get(place) if row["moment"] == "end" and trial.variant == "base" else None
            yield row
        if "map" in outcome:
            yield {**about, "moment": "map", "map": np.asarray(outcome["map"]).tolist()}

    def provenance(self, table: lab.Rows) -> list[str]:
        sentences = []
        for (name, family), own in table.where(moment="level", variant="base", main=True).by("set", "family"):
            reached = {level: len(rows) for level, rows in own.by("level")}
            said = ", ".join(f"{level:g} by {count}" for level, count in reached.items())
            sentences.append(f"{SETTINGS[name].title}, {family}: training accuracy {said} of the models")
        for name, own in table.where(variant="base", main=True).by("set"):
            for family in ORDER[1:]:
                columns = [{"set": name, "family": each, "main": True, "variant": "base"} for each in (family, "ViT")]
                pairs = paired(own, *columns)
                if pairs:
                    ahead = np.mean(pairs.column("accuracy_gap"))
                    sentences.append(
                        f"{SETTINGS[name].title}, {family}: training accuracy where it is compared with the ViT larger "
                        f"by {ahead:.3f}"
                    )
                elif own.where(family=family):
                    sentences.append(f"{SETTINGS[name].title}: {family} and ViT have no level in common")
        return sentences

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        matched = (
            "Lines: means over seeds when the training accuracy first reaches a level; bands: smallest to largest."
        )
        ends = "A point for each model, and the paper's values, which are of other models, data and training."
        variances = "Means over seeds at one level of training accuracy; bands: smallest to largest."
        both = "A point for each model and level. Points above the others: noise on a patch tells these models apart."
        maps = f"How often noise on a patch changes the class, in {MAP_DRAWS} draws: images of the test set by number."
        found = [
            lab.Figure("vision", self.title, matched, at_accuracy(table), 2, where="Figs 4, 13, 15, 16"),
            lab.Figure("vision-end", "Sensitivity at the end of training", ends, against_paper(table), 2, where="§ 5"),
            lab.Figure("vision-variance", "Sensitivity by variance", variances, by_variance(table), 2, where="Fig 14"),
            lab.Figure("vision-whole", "Noise on a patch and on the image", both, token_and_whole(table), 2,
                       where="Table 4"),
            lab.Figure("vision-maps", "Which patches matter", maps, pictures(table), 4, where="Fig 1"),
        ]  # fmt: skip
        return [figure for figure in found if figure.panels]


def _variants(base: Vision, values: Mapping[str, Iterable[Any]]) -> list[Vision]:
    """The same training with another depth, number of heads or optimiser."""
    found = [replace(base, variant="depth", layers=layers) for layers in values["depth"]]
    found += [replace(base, variant="heads", heads=heads) for heads in values["heads"]]
    return found + [replace(base, variant="optimiser", optimiser=each) for each in values["optimiser"]]


STUDY = VisionStudy()
