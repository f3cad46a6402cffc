"""Golden numbers of trainings: losses and weights after a few steps of every kind of recipe, in `golden.json`.

A stored model is kept when the training code is edited; this file notices an edit that gives other models.

    python -m tests.training.golden             write the trainings that are new
    python -m tests.training.golden --numbers   write all numbers anew, without a new revision

Numbers may change where `flipscope.training.recipe.REVISION` was raised, and with --numbers; else the command refuses.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flipscope.adapters.parameters import weight_norm
from flipscope.data.image_data import image_data
from flipscope.data.steps import StepsData
from flipscope.data.strings import StringData
from flipscope.data.tables import TableData, random_table
from flipscope.data.text_data import text_data
from flipscope.lab.run.resources import one_thread
from flipscope.models.config import TransformerConfig
from flipscope.models.presets import encoder, hardness, recognizer
from flipscope.training.named import measurement
from flipscope.training.recipe import REVISION, Recipe, TrainingProtocol
from flipscope.training.recipes.hardness import (
    hardness_protocol,
    hardness_recipe,
    lengths_recipe,
    scratchpad_recipe,
    table_recipe,
)
from flipscope.training.recipes.low_sensitivity import image_recipe, text_recipe
from flipscope.training.recipes.sharper import fourier_recipe
from flipscope.training.recipes.sparse_variables import sparse_recipe

FILE = Path(__file__).with_name("golden.json")
RELATIVE = 0.002  # of all numbers: few steps, so that processors do not differ by more
CHANGED = "the numbers of trainings changed: find the bug, or raise REVISION of flipscope.training.recipe"


def _geometry() -> Recipe:
    return Recipe(
        data=StringData(function="majority(9)", length=9, train=200, validation=100, seed=3),
        model=encoder(width=16, layers=2, heads=2, ffn_width=32),
        protocol=TrainingProtocol(batch=20, learning_rate=0.01, max_epochs=3),
        init="xavier_uniform",
        seed=4,
    )


def _recognizer() -> Recipe:
    return Recipe(
        data=StringData(function="first(8)", length=8, train=None, validation=100, seed=1),
        model=recognizer(width=16, layers=2, eps=1e-3),
        protocol=TrainingProtocol(batch=32, learning_rate=3e-3, stop_after=None, max_epochs=2, epoch_steps=15),
        seed=2,
    )


def _steps() -> Recipe:
    model = dataclasses.replace(
        hardness(8, 16), inputs="tokens", vocabulary=3, causal=True, positions="cyclic", period=4, position_width=8,
        readout="every",
    )  # fmt: skip
    protocol = hardness_protocol(batch=32, steps=20, lr=1e-3, epoch_steps=10)
    return Recipe(data=StepsData(length=4, way="steps", seed=1), model=model, protocol=protocol, seed=1)


def _logged() -> Recipe:
    log = [
        measurement("validation", 10),
        measurement("sharpness", 10, strings=32, draws=4),
        measurement("blowup", 10, strings=32),
    ]
    return hardness_recipe("parity", 6, 1, width=16, batch=32, steps=20, log=log)


def _images() -> Recipe:
    data = image_data("digits", train=200, test=50, crop=1, flip=True)
    return image_recipe(
        data, "cnn-small", 2, batch=20, epochs=3, optimiser="sgd", learning_rate=0.05, momentum=0.9, decay_every=1
    )


def _texts() -> Recipe:
    # So few pairs that they are learned by heart: at chance a loss hardly depends on the model.
    data = text_data("synthetic-paraphrases", length=32, vocabulary=600, train=60, test=20)
    recipe = text_recipe(data, "roberta-small", 2, batch=20, epochs=9, learning_rate=3e-3)
    assert isinstance(recipe.model, TransformerConfig)
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, dropout=0.1))


RECIPES: Mapping[str, Callable[[], Recipe]] = {
    "geometry, fixed strings": _geometry,
    "geometry, fresh strings": _recognizer,
    "hardness": lambda: hardness_recipe("majority", 6, 0, width=16, batch=32, steps=30),
    # At a larger rate, so that weight decay shows within few steps.
    "hardness, mean": lambda: hardness_recipe("mean", 6, 0, width=16, batch=32, steps=30, lr=3e-3),
    "hardness, logged": _logged,
    "table": lambda: table_recipe(
        TableData(table=random_table(6, 0), length=6, subset=32, seed=0), 0, width=16, batch=16, steps=30
    ),
    "scratchpad": lambda: scratchpad_recipe(4, 0, width=16, batch=16, steps=15),
    "lengths": lambda: lengths_recipe("majority", 6, 0, width=16, batch=16, steps=20),
    "steps": _steps,
    "fourier": lambda: fourier_recipe(2, 2, 0, length=8, samples=256, batch=32, steps=24),
    "fourier, trace": lambda: fourier_recipe(2, 2, 0, length=8, samples=256, batch=32, steps=24, penalty=0.01),
    # At a larger rate, so that attention, which begins with weights of 0.02, has a say within few steps.
    "sparse, fixed strings": lambda: sparse_recipe(
        "and", 8, 0, samples=64, validation=200, steps=30, width=16, heads=4, lr=3e-2, stop=False
    ),
    "sparse, fresh strings": lambda: sparse_recipe(
        "parity", 10, 0, batch=64, validation=200, steps=30, width=16, heads=4
    ),
    "images": _images,
    "texts": _texts,
}


def measured(name: str) -> dict[str, float]:
    """The losses of every epoch, the norm of the weights, and all that was logged."""
    with one_thread():
        trained = RECIPES[name]().train()
    found = {"norm": weight_norm(trained.model)}
    for line in trained.history:
        found |= {f"loss {line.number}": line.train_loss, f"validation {line.number}": line.validation_loss}
    for line in trained.fitted.log:
        found |= {f"{name} at {line['step']}": float(value) for name, value in line.items() if name != "step"}
    return found


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """A line for each number that is not what it was."""
    return [
        f"{name} was {before.get(name)} and is {after.get(name)}"
        for name in dict.fromkeys([*before, *after])
        if name not in before or name not in after or not math.isclose(before[name], after[name], rel_tol=RELATIVE)
    ]


def main(arguments: Sequence[str]) -> None:
    """Write the golden file anew."""
    parser = argparse.ArgumentParser(prog="python -m tests.training.golden", description=main.__doc__)
    parser.add_argument("--numbers", action="store_true", help="also where numbers changed without a new revision")
    options = parser.parse_args(arguments)
    before = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {"revision": REVISION, "trainings": {}}
    found, changed = {}, []
    for name in RECIPES:
        now, then = measured(name), before["trainings"].get(name)
        lines = [] if then is None else differences(then, now)
        changed += [f"{name}: {line}" for line in lines]
        found[name] = now if then is None or lines else then
    if changed and not options.numbers and before["revision"] == REVISION:
        raise SystemExit("\n".join([f"{CHANGED}; --numbers writes them all the same", *changed]))
    FILE.write_text(json.dumps({"revision": REVISION, "trainings": found}, indent=1) + "\n", "utf-8")
    print(f"{len(found)} trainings, {len(changed)} changed numbers")


if __name__ == "__main__":
    main(sys.argv[1:])
