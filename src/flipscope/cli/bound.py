"""flipscope bound: bounds on the loss on new strings, for a model or for a class of functions."""

from __future__ import annotations

import argparse

from flipscope.basics.checks import check_count, check_probability
from flipscope.basics.errors import InputError
from flipscope.cli import bound_pac_bayes
from flipscope.cli.common import length_option, print_json, seed_option
from flipscope.cli.hours import anyway
from flipscope.cli.model_options import LENGTH_HELP, MODEL_HELP, subject_options
from flipscope.cli.opening import open_model

DEFAULT_TRAIN_STRINGS = 1000

EXAMPLES = """
  flipscope bound covering model.safetensors
  flipscope bound covering model.safetensors --train-strings 100000 --length 64 --delta 0.01 --json
  flipscope bound pac-bayes --sparsity 10 --degree 2 --length 20 --train-strings 1000000
  flipscope bound pac-bayes --sparsity 10 --degree 2 --length 20 --form semi-analytic --json
  flipscope bound pac-bayes model.safetensors --data train.npz --largest 1
  flipscope bound pac-bayes model.safetensors --test 0,2 --train-strings 8192

covering bounds the gap between the loss on new strings and on the training strings, pac-bayes the loss of a network
with noise on its weights. For bounds on sensitivity and on single flips see flipscope bounds, with an s.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "theory",
        choices=("covering", "pac-bayes"),
        metavar="THEORY",
        help="covering: covering numbers, from norms of the weights; pac-bayes: norm and sharpness",
    )
    parser.add_argument("model", nargs="?", metavar="MODEL", help=MODEL_HELP)
    length_option(parser, LENGTH_HELP)
    subject_options(parser)
    parser.add_argument(
        "--train-strings",
        type=int,
        metavar="M",
        help="strings of the training set (default: the file's, else 1000, with pac-bayes 8192)",
    )
    parser.add_argument(
        "--delta", type=float, default=0.05, metavar="P", help="probability that the bound may fail (default 0.05)"
    )
    anyway(parser)
    seed_option(parser)
    parser.set_defaults(strings=None)  # none are drawn
    bound_pac_bayes.arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Evaluate the bound, and say where it is vacuous."""
    check_probability("delta", arguments.delta)
    if arguments.train_strings is not None:
        check_count("train_strings", arguments.train_strings)
    return _covering(arguments) if arguments.theory == "covering" else bound_pac_bayes.run(arguments)


def _covering(arguments: argparse.Namespace) -> int:
    """Bound the gap; if the theorem does not cover the model, the number is a score, not a bound."""
    for name in ("sparsity", "degree", "subgaussian", "sigma", "perturbation", "data", "trace", "test", "fixed"):
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name} is for pac-bayes: leave it out")
    if arguments.model is None:
        raise InputError("a covering bound is for a model: give MODEL")
    opened = open_model(arguments)
    samples = opened.train_strings or DEFAULT_TRAIN_STRINGS

    from flipscope.bounds import covering
    from flipscope.models.attention_network import AttentionNetwork
    from flipscope.models.transformer import Transformer

    if not isinstance(opened.original, AttentionNetwork | Transformer):
        raise InputError(
            "a covering bound is for flipscope's attention networks and transformers: try flipscope bound pac-bayes"
        )
    found = covering.summary(opened.original, opened.length, samples, delta=arguments.delta)
    if arguments.json:
        print_json(found.as_json() | opened.as_json())
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.covering_page(arguments.model, found, opened.notes))
    return 0
