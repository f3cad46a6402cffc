"""Trained models in the results folder: a model is trained at the first request and loaded at later ones.

    results/models/3f9c….safetensors              the model, with its recipe and training history
    results/models/3f9c….safetensors.checkpoint   of a running or interrupted training

A model's name is derived from its recipe, the revision of the training code, and the files of definitions outside
flipscope that the recipe names as "module:name". The file contains all of these, so a file under the name of another is
recognised.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from flipscope.basics.errors import InputError
from flipscope.basics.progress import Progress
from flipscope.lab.context import CHECKPOINT, LOCK, MODELS, results_folder
from flipscope.lab.keys import file_digest
from flipscope.lab.machine import machine
from flipscope.lab.store import locks
from flipscope.lab.study import digest
from flipscope.models.seal import NotWhole
from flipscope.training import artefact, checkpoints
from flipscope.training.checkpoints import Keeper, difference
from flipscope.training.recipe import REVISION, Recipe, Trained

LETTERS = 32  # length of a name: 128 bits
SUFFIX = ".safetensors"
CODE = ("revision", "named")  # notes in a file that, with its recipe, determine its name

_log = logging.getLogger("flipscope")


def trained(recipe: Recipe, progress: Progress | None = None) -> Trained:
    """The model of a recipe: loaded from the results folder of the current trial, or trained now and stored there.

    If several processes request the same model at once, one trains it and the others wait; if that one is killed, the
    next continues from its checkpoint. Without a results folder the model is simply trained.
    """
    folder = results_folder()
    return recipe.train(progress=progress) if folder is None else Models(folder).get(recipe, progress)


class Models:
    """The trained models of a results folder."""

    def __init__(self, results: Path) -> None:
        self.folder = results / MODELS

    def path(self, recipe: Recipe) -> Path:
        """The path of the model of a recipe."""
        return self._path(recipe, _code(recipe))

    def name_of(self, stored: Trained, notes: Mapping[str, str]) -> str:
        """The name of the file of a trained model, by its recipe and the notes in the file."""
        assert stored.recipe is not None
        return self._path(stored.recipe, {name: notes[name] for name in CODE if name in notes}).name

    def _path(self, recipe: Recipe, code: Mapping[str, str]) -> Path:
        return self.folder / (digest({"recipe": recipe.digest, **code})[:LETTERS] + SUFFIX)

    def get(self, recipe: Recipe, progress: Progress | None = None) -> Trained:
        """Load the stored model, or train and store it."""
        path = self.path(recipe)
        with contextlib.suppress(FileNotFoundError, NotWhole):  # reported below, under the lock
            return self._stored(path, recipe)
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder} cannot be written: {error.strerror}") from error
        with locks.alone(_lock(path)):
            return self._if_whole(path, recipe) or _trained(recipe, path, progress)

    def _stored(self, path: Path, recipe: Recipe) -> Trained:
        """The model in a file; FileNotFoundError, or NotWhole if it is damaged or another model."""
        stored, notes = artefact.read_with_notes(path)
        assert stored.recipe is not None
        if self.name_of(stored, notes) != path.name:
            reason = difference(stored.recipe.as_json(), recipe.as_json())
            how = "by other code" if reason is None else f"with other settings ({reason})"
            raise NotWhole(f"{path} holds a model that was trained {how}")
        return stored

    def _if_whole(self, path: Path, recipe: Recipe) -> Trained | None:
        """The model in a file; None if there is none, and with a warning if it is damaged or another one."""
        try:
            return self._stored(path, recipe)
        except FileNotFoundError:
            return None
        except NotWhole as error:
            _log.warning("%s, and the model is trained again", error)
            return None

    def paths(self) -> Iterator[Path]:
        """The files of all models, finished or not."""
        if self.folder.is_dir():
            for path in sorted(self.folder.iterdir()):
                if path.name.endswith((SUFFIX, SUFFIX + CHECKPOINT)) and not path.name.startswith("."):
                    yield path


def _code(recipe: Recipe) -> dict[str, str]:
    """The revision of the training code, and a digest of the user's definitions that the recipe names."""
    notes = {"revision": str(REVISION)}
    if names := sorted(_own_definitions(recipe)):
        notes["named"] = digest({name: file_digest(name.partition(":")[0]) for name in names})
    return notes


def _own_definitions(recipe: Recipe) -> set[str]:
    """The names "module:definition" in a recipe from outside flipscope, whose code has no revision."""
    document = recipe.as_json()
    parts = [document["data"], document["model"]]
    named = [*document["protocol"].get("terms", ()), *document.get("log", ())]
    names = [part.get("kind", "") for part in parts] + [each["name"] for each in named]
    return {name for name in names if ":" in name and not name.startswith("flipscope.")}


def _lock(path: Path) -> Path:
    return path.with_name(path.name + LOCK)


def _trained(recipe: Recipe, path: Path, progress: Progress | None) -> Trained:
    """Train a model, from its checkpoint if there is one, and store it."""
    keeper = Keeper(path.with_name(path.name + CHECKPOINT), recipe.as_json(), lenient=True)
    result = recipe.train(keeper=keeper, progress=progress)
    try:
        artefact.write(path, result, {**_code(recipe), "machine": machine()})
    except InputError as error:
        # The trial still gets its model; storing the trial's own result will report the same problem.
        _log.warning("%s; the model is not kept", error)
        return result
    keeper.clear()
    checkpoints.sweep(path)
    return result


@dataclass(frozen=True)
class Listed:
    """A listed model; `finished` and `accuracy` are None while its training is not finished."""

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
    """The models of a results folder, and a sentence for each invalid file."""
    listing, trouble = [], []
    models = Models(results)
    for path in models.paths():
        with contextlib.suppress(FileNotFoundError):  # it was finished in this moment
            try:
                listing.append(_listed(path, models))
            except InputError as error:
                trouble.append(str(error))
    return listing, trouble


def _listed(path: Path, models: Models) -> Listed:
    size = path.stat().st_size
    if path.name.endswith(CHECKPOINT):
        about, values = checkpoints.about(path)
        try:
            recipe = Recipe.from_json({name: about[name] for name in about if name in Recipe.__dataclass_fields__})
        except InputError as error:
            raise NotWhole(f"{path} cannot be listed: {error}") from error
        current = models.path(recipe).name + CHECKPOINT == path.name
        return Listed(path, recipe, values["steps"], None, None, None, values["seconds"], size, current)
    told = artefact.describe(path)
    accuracies = [line.validation_accuracy for line in told.fitted.history if line.number == told.fitted.kept_epoch]
    return Listed(
        path,
        told.recipe,
        told.fitted.steps,
        accuracies[0] if accuracies else None,
        told.fitted.stopped,
        told.finished,
        told.fitted.seconds,
        size,
        models.path(told.recipe).name == path.name,
    )
