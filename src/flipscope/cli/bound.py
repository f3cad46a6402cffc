"""flipscope bound: what a theorem on generalization promises of a model or a class, and whether that says something."""

from __future__ import annotations

import argparse

from flipscope.basics.checks import check_count, check_probability
from flipscope.basics.errors import InputError
from flipscope.cli import bound_pac_bayes
from flipscope.cli.common import print_json
from flipscope.cli.hours import anyway
from flipscope.cli.model_files import loaded

EXAMPLES = """
  flipscope bound covering model.safetensors --samples 1000
  flipscope bound covering model.safetensors --samples 100000 --length 64 --delta 0.01 --json
  flipscope bound pac-bayes --sparsity 10 --degree 2 --length 20 --samples 1000000
  flipscope bound pac-bayes --sparsity 10 --degree 2 --length 20 --form semi-analytic --json
  flipscope bound pac-bayes model.safetensors --data train.npz --largest 1
  flipscope bound pac-bayes model.safetensors --test 0,2 --samples 8192

covering is on the gap between the loss on new strings and on the training strings, pac-bayes on the loss of a network
with noise on its weights. What weights say of sensitivity and of single flips is told by flipscope bounds, with an s.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parser.add_argument(
        "theory",
        choices=("covering", "pac-bayes"),
        metavar="THEORY",
        help="covering: covering numbers, from norms of the weights; pac-bayes: norm and sharpness",
    )
    parser.add_argument("model", nargs="?", metavar="MODEL.safetensors", help="written by flipscope.models.save")
    parser.add_argument("--length", type=int, metavar="N", help="of the strings (default: the model's longest, or 100)")
    parser.add_argument(
        "--samples", type=int, metavar="M", help="strings it was trained on (default 1000 for covering, else 8192)"
    )
    parser.add_argument(
        "--delta", type=float, default=0.05, metavar="P", help="probability that the bound may fail (default 0.05)"
    )
    anyway(parser)
    parser.set_defaults(strings=None)  # none are drawn
    bound_pac_bayes.arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Say what the theory bounds, and where it is vacuous."""
    check_probability("delta", arguments.delta)
    if arguments.samples is not None:
        check_count("samples", arguments.samples)
    return _covering(arguments) if arguments.theory == "covering" else bound_pac_bayes.run(arguments)


def _covering(arguments: argparse.Namespace) -> int:
    """Say what the gap cannot exceed, or that the number is a score and no bound."""
    for name in ("sparsity", "degree", "subgaussian", "sigma", "perturbation", "data", "trace", "test", "fixed"):
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name} is for pac-bayes: leave it out")
    if arguments.model is None:
        raise InputError("a covering bound is for a saved model: give MODEL.safetensors")
    samples = 1000 if arguments.samples is None else arguments.samples
    model, length = loaded(arguments)

    from flipscope.bounds import covering
    from flipscope.models.fourier_network import FourierNetwork

    if isinstance(model, FourierNetwork):
        raise InputError("a covering bound is for attention networks and transformers: try flipscope bound pac-bayes")
    found = covering.summary(model, length, samples, delta=arguments.delta)
    if arguments.json:
        print_json(found.as_json())
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.covering_page(arguments.model, found))
    return 0
