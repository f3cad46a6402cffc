"""Trained models in the results folder: whoever asks for a model first trains it, and all others have it from then on.

    results/models/3f9c….safetensors              the model, with its recipe and how its training went
    results/models/3f9c….safetensors.checkpoint   of a training that is under way, or was interrupted

A model's name is made of its recipe and of the versions of the code that training reaches, of what the recipe refers to
by name, and of the masks of dropout that it may be trained with.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flipscope.basics.errors import InputError
from flipscope.basics.progress import Progress
from flipscope.lab.context import CHECKPOINT, LOCK, results_folder
from flipscope.lab.machine import machine
from flipscope.lab.store import locks
from flipscope.lab.study import digest
from flipscope.lab.version import definition_version
from flipscope.models import TransformerConfig
from flipscope.native import MASKS_REVISION
from flipscope.training import artefact, checkpoints
from flipscope.training.checkpoints import Keeper, NotWhole
from flipscope.training.recipe import Recipe, Trained

LETTERS = 32  # of a name: 128 bits, and a path that fits on a line
FOLDER, SUFFIX = "models", ".safetensors"


def trained(recipe: Recipe, progress: Progress | None = None) -> Trained:
    """The model of a recipe: from the results folder of the trial that asks, or trained now and kept there.

    Of several processes that ask for the same model at once one trains it and the others wait; if that one is killed,
    the next goes on from its checkpoint. Where there is no results folder the model is trained.
    """
    folder = results_folder()
    return recipe.train(progress=progress) if folder is None else Models(folder).get(recipe, progress)


def training_code() -> str:
    """The version of the code that decides what a recipe's weights become."""
    return definition_version("flipscope.training.recipe", "Recipe")


class Models:
    """The trained models of a results folder."""

    def __init__(self, results: Path) -> None:
        self.folder = results / FOLDER

    def path(self, recipe: Recipe) -> Path:
        """Where the model of a recipe is, or would be."""
        about = {"recipe": recipe.digest, "code": training_code()}
        # What a recipe refers to by name is no part of the code that all of them reach.
        if named := recipe.definitions():
            about["named"] = digest({":".join(each): definition_version(*each) for each in named})
        if isinstance(recipe.model, TransformerConfig) and recipe.model.dropout and recipe.model.layers == 1:
            about["masks"] = str(MASKS_REVISION)
        return self.folder / (digest(about)[:LETTERS] + SUFFIX)

    def get(self, recipe: Recipe, progress: Progress | None = None) -> Trained:
        """The stored model, or a new one, which is stored."""
        path = self.path(recipe)
        if (found := _stored(path)) is not None:
            return found
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder} cannot be written: {error.strerror}") from error
        with locks.alone(path.with_name(path.name + LOCK)):
            if (found := _stored(path)) is not None:
                return found
            return _trained(recipe, path, progress)

    def paths(self) -> Iterator[Path]:
        """The files of all models, finished or not."""
        if self.folder.is_dir():
            for path in sorted(self.folder.iterdir()):
                if path.name.endswith((SUFFIX, SUFFIX + CHECKPOINT)) and not path.name.startswith("."):
                    yield path


def _stored(path: Path) -> Trained | None:
    """The model in a file, or None if there is none; one that is damaged is as good as none, and told of."""
    try:
        return artefact.read(path)
    except FileNotFoundError:
        return None
    except NotWhole as error:
        logging.getLogger("flipscope").warning("%s, and the model is trained again", error)
        return None


def _trained(recipe: Recipe, path: Path, progress: Progress | None) -> Trained:
    """Train a model, from its checkpoint if there is one, and store it."""
    keeper = Keeper(path.with_name(path.name + CHECKPOINT), recipe.as_json(), lenient=True)
    found = recipe.train(keeper=keeper, progress=progress)
    try:
        artefact.write(path, found, {"code": training_code(), "machine": machine()})
    except InputError as error:
        # The trial that wanted the model has it; its own result meets the same disk, and says so.
        logging.getLogger("flipscope").warning("%s; the model is not kept", error)
        return found
    keeper.clear()
    checkpoints.sweep(path)
    return found


@dataclass(frozen=True)
class Listed:
    """A model as it is listed; `finished` and `accuracy` are None while its training is not over."""

    path: Path
    recipe: Recipe
    steps: int
    accuracy: float | None  # on the validation set
    stopped: str | None
    finished: str | None
    seconds: float
    size: int  # bytes
    current: bool  # whether the present code would use it


def listed(results: Path) -> tuple[list[Listed], list[str]]:
    """The models of a results folder, and a sentence for each file that is not what it should be."""
    found, trouble = [], []
    models = Models(results)
    for path in models.paths():
        with contextlib.suppress(FileNotFoundError):  # it was finished in this moment
            try:
                found.append(_listed(path, models))
            except InputError as error:
                trouble.append(str(error))
    return found, trouble


def _listed(path: Path, models: Models) -> Listed:
    size = path.stat().st_size
    if path.name.endswith(CHECKPOINT):
        about, values = checkpoints.about(path)
        recipe = Recipe.from_json({name: about[name] for name in about if name in Recipe.__dataclass_fields__})
        current = models.path(recipe).name + CHECKPOINT == path.name
        return Listed(path, recipe, values["steps"], None, None, None, values["seconds"], size, current)
    told = artefact.describe(path)
    kept = [line.validation_accuracy for line in told.fitted.history if line.number == told.fitted.kept_epoch]
    return Listed(
        path,
        told.recipe,
        told.fitted.steps,
        kept[0] if kept else None,
        told.fitted.stopped,
        told.finished,
        told.fitted.seconds,
        size,
        models.path(told.recipe).name == path.name,
    )
