"""flipscope train --dataset: a model of images or texts, from the same checkpoints and with the same output files.

`cli.train` has the arguments and the parts that both kinds of training share.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.cli.common import data_folder_option
from flipscope.cli.hours import baseline_seconds, check_hours
from flipscope.data.finding import data_folder
from flipscope.data.images import IMAGE_SETS
from flipscope.data.texts import TEXT_SETS

if TYPE_CHECKING:
    from flipscope.training.fit import Accuracy, Epoch
    from flipscope.training.recipe import Recipe, Trained

SETS = (*IMAGE_SETS, *TEXT_SETS)
EPOCHS = 20
SHOWN = 12  # epochs in the live table
# Options that belong to the training on a function, and those that belong to the training on a data set.
OF_FUNCTIONS = (
    "preset", "width", "layers", "heads", "ffn_width", "dropout", "steps", "init", "labels", "decay_on", "keep", "loss",
    "clip", "constant_rate",
)  # fmt: skip
OF_SETS = ("model", "data", "epochs", "momentum", "decay_every", "crop", "flip", "test_inputs", "vocabulary")


def dataset_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a training on a data set."""
    group = parser.add_argument_group("data sets (in place of EXPR)")
    group.add_argument(
        "--dataset",
        metavar="NAME",
        help=f"train on this set: {', '.join(SETS)}; digits and the synthetic set need no files",
    )
    group.add_argument(
        "--model",
        metavar="NAME",
        help="a model by name, such as vit-small, cnn-small or lstm-small (docs/baselines.md)",
    )
    data_folder_option(group)
    group.add_argument("--epochs", type=int, metavar="E", help=f"passes over the training set (default {EPOCHS})")
    group.add_argument("--momentum", type=float, metavar="X", help="momentum of --optimiser sgd (default 0)")
    group.add_argument(
        "--decay-every", type=int, metavar="E", help="halve the learning rate every E epochs (default: constant)"
    )
    group.add_argument("--crop", type=int, metavar="P", help="move training images by up to P pixels (default 0)")
    group.add_argument("--flip", action="store_true", default=None, help="mirror half of the training images")
    group.add_argument("--test-inputs", type=int, metavar="M", help="evaluate on M test images or pairs (default: all)")
    group.add_argument("--vocabulary", type=int, metavar="V", help="tokens trained on the texts (default 2,000)")


def check_options(arguments: argparse.Namespace) -> None:
    """Raise InputError unless the options belong together: either EXPR and its options, or --dataset and its own."""
    if arguments.dataset is None and arguments.data in SETS:
        raise InputError(f"--data is the folder of data sets: name the set with --dataset {arguments.data}")
    if (arguments.expression is None) == (arguments.dataset is None):
        raise InputError("give either EXPR, a function to train on, or --dataset NAME")
    on_function = arguments.dataset is None
    for name in OF_SETS if on_function else OF_FUNCTIONS:
        if getattr(arguments, name) not in (None, False):
            where = "--dataset" if on_function else "a function"
            raise InputError(f"--{name.replace('_', '-')} is for a training on {where}: leave it out")
    if on_function:
        return
    if arguments.dataset not in SETS:
        raise InputError(f"--dataset {arguments.dataset} is not one of {', '.join(SETS)}")
    if arguments.model is None:
        usual = "cnn-small" if arguments.dataset in IMAGE_SETS else "lstm-small"
        raise InputError(f"give the model to train with --model, such as --model {usual}")
    of_texts = arguments.dataset in TEXT_SETS
    for name in ("crop", "flip") if of_texts else ("vocabulary", "length"):
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name} is for {'images' if of_texts else 'texts'}: leave it out")
    data_folder(arguments.data)


def dataset_recipe(arguments: argparse.Namespace) -> Recipe:
    """The recipe that the options describe; InputError if it would take too long."""
    from flipscope.data.image_data import image_data
    from flipscope.data.text_data import text_data
    from flipscope.training.named import measurement
    from flipscope.training.recipes.low_sensitivity import image_recipe, text_recipe

    sizes = _given(arguments, train="train_strings", test="test_inputs")
    choices: dict[str, Any] = {
        **_given(arguments, "optimiser", "learning_rate", "batch", "goal", "momentum", "weight_decay", "decay_every"),
        "epochs": EPOCHS if arguments.epochs is None else check_count("epochs", arguments.epochs),
        "log": [measurement(name, arguments.log_every) for name in arguments.log],
    }
    recipe: Recipe
    if arguments.dataset in IMAGE_SETS:
        images = image_data(arguments.dataset, **sizes, **_given(arguments, "crop", "flip"), seed=arguments.seed)
        recipe = image_recipe(images, arguments.model, arguments.seed, **choices)
    else:
        texts = text_data(arguments.dataset, **sizes, **_given(arguments, "length", "vocabulary"), seed=arguments.seed)
        recipe = text_recipe(texts, arguments.model, arguments.seed, **choices)
    steps = recipe.protocol.most_steps(recipe.data.train) or 0
    seconds = baseline_seconds(recipe.model, recipe.data.length, recipe.batch, steps)
    check_hours(arguments, seconds, f"{steps:,} steps of {recipe.batch:,} inputs", ("--epochs", "--train-strings"))
    return recipe


def _given(arguments: argparse.Namespace, *names: str, **renamed: str) -> dict[str, Any]:
    """The options that were given, under their own names or under others."""
    wanted = {name: name for name in names} | renamed
    return {to: value for to, name in wanted.items() if (value := getattr(arguments, name)) is not None}


def title_of(arguments: argparse.Namespace) -> str:
    """What is trained on what, in a few words."""
    return f"{arguments.model} on {arguments.dataset}"


def tested_on_set(trained: Trained, arguments: argparse.Namespace) -> Accuracy:
    """The accuracy on the test set."""
    from flipscope.data.image_data import ImageData
    from flipscope.data.text_data import TextData
    from flipscope.training.fit import evaluate

    assert trained.recipe is not None
    data = trained.recipe.data
    assert isinstance(data, ImageData | TextData)
    return evaluate(
        trained.model,
        data.test_set(),
        loss="ce",
        inputs=data.inputs,
        device=arguments.device,
        confidence=arguments.confidence,
    )


def next_command(arguments: argparse.Namespace, target: Path) -> str:
    """The command that measures the model."""
    folder = [] if arguments.data is None else ["--data", arguments.data]
    how = [] if arguments.dataset in IMAGE_SETS else ["--how", "replace"]
    return shlex.join(["flipscope", "tokens", str(target), "--test-set", *folder, *how, "--count", "100"])


def epochs_table(history: list[Epoch], bar: RenderableType) -> RenderableType:
    """The bar of progress above the loss and accuracy of the last epochs."""
    if not history:
        return bar
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for heading in ("epoch", "loss", "test loss", "test accuracy", "rate", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in history[-SHOWN:]:
        table.add_row(*epoch_cells(line).values())
    return Group(bar, table)


def epoch_cells(line: Epoch) -> Mapping[str, str]:
    """An epoch as texts by name."""
    return {
        "epoch": str(line.number),
        "loss": f"{line.train_loss:.4f}",
        "test loss": f"{line.validation_loss:.4f}",
        "test accuracy": f"{line.validation_accuracy:.4f}",
        "rate": f"{line.learning_rate:.2g}",
        "seconds": f"{line.seconds:.0f}",
    }
