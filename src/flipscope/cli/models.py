"""flipscope models: the trained models of a results folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError, printable
from flipscope.cli.common import print_json, results_folder
from flipscope.lab.context import DATABASE
from flipscope.lab.store.artefacts import Listed, listed

EXAMPLES = """
  flipscope models
  flipscope models --results ./results --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    results_folder(parser)


def run(arguments: argparse.Namespace) -> int:
    """List the trained models, finished or not."""
    results = Path(arguments.results)
    if not (results / DATABASE).is_file():
        raise InputError(f"{results} is not a results folder: give --results, or run a study that trains")
    found, trouble = listed(results)
    for sentence in trouble:
        print(f"flipscope: {printable(sentence)}; it is not listed.", file=sys.stderr)
    rows = [_row(model) for model in found]
    if arguments.json:
        print_json(rows)
        return 0
    from flipscope.report.terminal import show
    from flipscope.report.training import models_page

    show(models_page(rows, str(results)))
    return 0


def _row(model: Listed) -> dict[str, Any]:
    """A model as a JSON object."""
    recipe = model.recipe
    return {
        "function": recipe.data.function,
        "length": recipe.data.length,
        "model": recipe.model.as_dict(),
        "init": recipe.init,
        "seed": recipe.seed,
        "accuracy": model.accuracy,
        "steps": model.steps,
        "stopped": model.stopped,
        "finished": model.finished,
        "seconds": model.seconds,
        "size": model.size,
        "current": model.current,
        "digest": recipe.digest,
        "path": str(model.path),
    }
