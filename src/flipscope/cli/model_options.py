"""Options that the measuring commands share: the model, its strings, the function it is compared with, the engine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from flipscope.cli.common import length_option, seed_option
from flipscope.cli.hours import anyway

if TYPE_CHECKING:
    from flipscope.probes.sensitivity import Options

MOST_BITS = 20  # longest strings for --exhaustive
MODEL_HELP = "a flipscope file, a Python object package.module:factory, or an .onnx file"
LENGTH_HELP = "bits of each string (default: the file's, else the model's own, else 100)"


def model_argument(parser: argparse.ArgumentParser) -> None:
    """Add the model, its input and output conventions, and the length of its strings."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    length_option(parser, LENGTH_HELP)
    subject_options(parser)
    anyway(parser)


def subject_options(parser: argparse.ArgumentParser) -> None:
    """Add how bits become the model's input, how its outputs become a decision, and the device."""
    parser.add_argument(
        "--encoding",
        default="auto",
        metavar="E",
        help="how bits become the input: auto, bits, floats, signs, two token ids such as 5,6, or a function "
        "package.module:name of the bits (default auto)",
    )
    decision_options(parser)


def decision_options(parser: argparse.ArgumentParser) -> None:
    """Add how the model's outputs become a decision, and the device."""
    parser.add_argument(
        "--decision",
        default="auto",
        metavar="D",
        help="how outputs become a decision (output= in Python): auto, logit, logits, probability, probabilities, "
        "labels, or a function package.module:name of the output (default auto)",
    )
    parser.add_argument("--device", metavar="D", help="where to compute: cpu, cuda, mps (default: where the model is)")


def drawn_strings_options(parser: argparse.ArgumentParser, default: int, what: str) -> None:
    """Add the number of random strings, and the seed."""
    parser.add_argument("--strings", type=int, default=default, metavar="M", help=f"{what} (default {default})")
    seed_option(parser)


def all_or_drawn_strings_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice between random strings and all of them."""
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--strings", type=int, default=1000, metavar="M", help="random strings (default 1000)")
    amount.add_argument("--exhaustive", action="store_true", help=f"all strings instead (at most {MOST_BITS} bits)")


def function_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the function that a model is compared with, and the loss of that comparison."""
    parser.add_argument("--function", metavar="EXPR", help=f"{what} (default: the file's)")
    parser.add_argument(
        "--loss", choices=("mse", "bce"), help="loss of outputs and labels (default: the file's, else mse)"
    )
    parser.add_argument(
        "--labels",
        choices=("signs", "bits"),
        help="for mse: labels are -1 and +1, or 0 and 1 (default: the file's, else signs)",
    )


def parameters_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the choice of parameters by shell patterns."""
    parser.add_argument(
        "--parameters",
        action="append",
        metavar="PATTERN",
        help=f'{what}, by a shell pattern such as "blocks.*"; repeatable (default: all but learned positions)',
    )


def engine_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for computing flips."""
    parser.add_argument(
        "--path", choices=("auto", "general", "fast"), default="auto", help="how to compute the flips (default auto)"
    )
    parser.add_argument("--float64", action="store_true", help="float64 throughout, not only near the threshold")
    parser.add_argument(
        "--heuristic", action="store_true", help="skip flips that are unlikely to matter, and audit a sample of them"
    )


def engine_keywords(arguments: argparse.Namespace) -> Options:
    """The keyword arguments of a measurement for these options."""
    return {
        "path": arguments.path,
        "heuristic": arguments.heuristic,
    }
