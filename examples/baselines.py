"""Trains every small baseline towards 0.95 test accuracy, kills the training half-way, and resumes it bit for bit.

Models of images are trained on scikit-learn's digits, models of texts on the synthetic paraphrases. For each model:

  1. it is trained until its accuracy on the test set reaches 0.95, for at most 60 epochs;
  2. another process does the same training and is killed, as by kill -9, after half of the steps;
  3. the training is resumed from the checkpoint of the killed process, and its weights are compared with those of 1.

Run with: python examples/baselines.py [MODEL ...]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from flipscope.data.text_data import text_data
from flipscope.models.baselines.presets import IMAGE_MODELS
from flipscope.training.checkpoints import Keeper
from flipscope.training.fit import Moment
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.low_sensitivity import image_recipe, text_recipe

GOAL = 0.95
SECONDS = 0.5  # between two checkpoints
# What differs from Adam at a rate of 1e-3.
CHOICES: dict[str, dict[str, Any]] = {
    "mlp-small": {},
    "mlp-sigmoid-small": {"learning_rate": 1e-2},
    "cnn-small": {},
    "convmixer-small": {},
    "resnet-small": {},
    "densenet-small": {},
    "vit-tiny": {},
    "vit-simple-small": {},
    "lstm-small": {"learning_rate": 3e-3, "batch": 64},
    "roberta-small": {"batch": 64},
    "roberta-relu-small": {"learning_rate": 5e-4, "batch": 64},
    "gpt2-small": {"batch": 64},
}


def recipe_of(name: str) -> Recipe:
    """The training of a model, for at most 60 epochs."""
    options = {"epochs": 60, "goal": GOAL, **CHOICES[name]}
    if name in IMAGE_MODELS:
        return image_recipe("digits", name, **options)
    return text_recipe(text_data("synthetic-paraphrases", length=32, vocabulary=600), name, **options)


def killed_at(step: int, document: str, path: str) -> None:
    """Train until this step and die."""
    torch.set_num_threads(1)
    recipe = Recipe.from_json(json.loads(document))

    def after(moment: Moment) -> None:
        if moment.step == step:
            os.kill(os.getpid(), signal.SIGKILL)

    recipe.train(keeper=Keeper(path, recipe.as_json(), seconds=SECONDS), step=after)


def row(name: str, folder: Path) -> str:
    """Train, kill and resume; a line of the table."""
    recipe, start = recipe_of(name), time.process_time()
    whole = recipe.train()
    seconds = time.process_time() - start
    print(f"{name}: {whole.accuracy:.4f} after {len(whole.history)} epochs; now killed and resumed", file=sys.stderr)
    path = folder / f"{name}.checkpoint"
    arguments = (max(1, whole.fitted.steps // 2), json.dumps(recipe.as_json()), str(path))
    process = multiprocessing.get_context("spawn").Process(target=killed_at, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    keeper = Keeper(path, recipe.as_json())
    resumed = recipe.train(keeper=keeper)
    pairs = zip(whole.model.state_dict().values(), resumed.model.state_dict().values(), strict=True)
    equal = all(torch.equal(first, second) for first, second in pairs)
    parameters = sum(each.numel() for each in whole.model.parameters())
    return (
        f"{name:>18} {parameters:>10,} {whole.accuracy:>9.4f} {len(whole.history):>6} {whole.fitted.steps:>6} "
        f"{seconds:>8.1f} {arguments[0]:>7} {keeper.resumed_at or 0:>8} {'yes' if equal else 'NO':>6}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(CHOICES)} (default all)")
    chosen = parser.parse_args().models or list(CHOICES)
    if unknown := [name for name in chosen if name not in CHOICES]:
        parser.error(f"{unknown[0]} is not one of {', '.join(CHOICES)}")
    torch.set_num_threads(1)
    print(f"{'model':>18} {'parameters':>10} {'accuracy':>9} epochs  steps  CPU sec  killed  resumed  equal")
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            print(row(name, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
