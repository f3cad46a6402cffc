"""flipscope blowup: how much the layer norms of a model amplify a change."""

from __future__ import annotations

import argparse
import math

import numpy as np

from flipscope.basics.estimates import Floats
from flipscope.cli.common import print_json
from flipscope.cli.model_options import drawn_strings_options, model_argument
from flipscope.cli.opening import Work, open_model

EXAMPLES = """
  flipscope blowup model.safetensors
  flipscope blowup model.safetensors --length 40 --strings 500 --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    model_argument(parser)
    drawn_strings_options(parser, 100, "random strings")


def run(arguments: argparse.Namespace) -> int:
    """Measure the blowup of a model on random strings."""
    opened = open_model(arguments, work=Work(1))

    from flipscope.adapters.parameters import weight_norm
    from flipscope.probes.blowup import blowup

    module = opened.module("the blowup is measured inside")
    found = blowup(opened.model, opened.strings(arguments))
    document = {
        "length": opened.length,
        "strings": found.strings,
        "norms": [
            {"name": name, "eps": eps, "tau": _spread(found.tau[:, column])}
            for column, (name, eps) in enumerate(zip(found.names, found.eps, strict=True))
        ],
        "beta": _spread(found.beta),
        "mean_beta": _spread(found.mean_beta),
        "weight_norm": {
            "without_positions": weight_norm(module),
            "with_positions": weight_norm(module, positions=True),
        },
        "bound": _finite(found.bound),
        "infinite": found.infinite,
        **opened.as_json(),
    }
    if arguments.json:
        print_json(document)
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.blowup_page(arguments.model, document, opened.notes))
    return 0


def _spread(values: Floats) -> dict[str, float | None]:
    """Smallest, median and largest value over the strings; None stands for infinity, which JSON does not have."""
    return {
        "smallest": _finite(float(values.min())),
        "median": _finite(float(np.quantile(values, 0.5, method="lower"))),
        "largest": _finite(float(values.max())),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
