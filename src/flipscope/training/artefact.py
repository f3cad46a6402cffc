"""A trained model as a file: an ordinary model file whose metadata hold its recipe and training history.

`flipscope.models.load` reads it like any other; `read` in this module returns the whole `Trained` and rejects a file
without a checksum.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from flipscope.basics.errors import InputError
from flipscope.basics.files import check_source
from flipscope.basics.registry import UnknownName
from flipscope.models.checkpoint import load_any, save
from flipscope.models.seal import SEAL, NotWhole
from flipscope.training.fit import Epoch, Fitted
from flipscope.training.recipe import Network, Recipe, Trained
from flipscope.training.task import KEY, VERSION


@dataclass(frozen=True)
class Description:
    """The metadata of a trained model's file."""

    recipe: Recipe
    fitted: Fitted
    finished: str  # ISO 8601, UTC
    notes: dict[str, Any]  # notes of the writer, such as the version of the code


def write(path: str | os.PathLike[str], trained: Trained, notes: Mapping[str, Any] | None = None) -> None:
    """Write a trained model atomically; InputError if that fails."""
    if trained.recipe is None:
        raise InputError(
            "a model of a function without a name cannot be stored with its recipe: use flipscope.models.save"
        )
    document = {
        "version": VERSION,
        "recipe": trained.recipe.as_json(),
        "fitted": dataclasses.asdict(trained.fitted),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "notes": dict(notes or {}),
    }
    save(trained.model, path, {KEY: json.dumps(document)})


def read(path: str | os.PathLike[str]) -> Trained:
    """The trained model in a file; FileNotFoundError, or NotWhole if it is damaged."""
    return read_with_notes(path)[0]


def read_with_notes(path: str | os.PathLike[str]) -> tuple[Trained, dict[str, Any]]:
    """The same, with the notes of the writer."""
    source = Path(path)
    text = _metadata(source)
    try:
        model = load_any(source)  # checks the checksum first, so the metadata read below are intact
    except NotWhole:
        raise
    except UnknownName as error:
        raise NotWhole(str(error)) from error
    except InputError as error:
        raise NotWhole(f"{source} is damaged: {error}") from error
    if not isinstance(model, Network):
        raise NotWhole(f"{source} is a {type(model).__name__}, which no recipe trains")
    described = _described(source, text)
    return Trained(model, described.fitted, described.recipe), described.notes


def describe(path: str | os.PathLike[str]) -> Description:
    """The metadata of a file for a list, without reading its tensors or checking its checksum."""
    source = Path(path)
    return _described(source, _metadata(source))


def _metadata(path: Path) -> str:
    """The training entry of a file's metadata; NotWhole if there is no checksum."""
    check_source(path)
    try:
        with safe_open(path, framework="pt") as file:
            found = file.metadata() or {}
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except SafetensorError as error:
        raise NotWhole(f"{path} does not say how its model was trained, or is damaged") from error
    if KEY not in found or SEAL not in found:
        raise NotWhole(f"{path} does not say how its model was trained, or is damaged")
    return str(found[KEY])


def _described(path: Path, text: str) -> Description:
    try:
        document = json.loads(text)
        if document["version"] != VERSION:
            raise NotWhole(f"{path} is of format {document['version']}, and this flipscope reads {VERSION}")
        fitted = document["fitted"]
        history = tuple(Epoch(**line) for line in fitted.pop("history"))
        fitted["log"] = tuple(fitted.get("log", ()))
        recipe = Recipe.from_json(document["recipe"])
        return Description(recipe, Fitted(history, **fitted), document["finished"], document["notes"])
    except NotWhole:
        raise
    except UnknownName as error:
        raise NotWhole(f"{path} says how its model was trained, but cannot be read here: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotWhole(f"{path} is damaged: it does not say how its model was trained") from error
