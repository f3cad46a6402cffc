"""What the commands on saved transformers share: the model, the length of its strings, refusals before any work."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from flipscope.basics.bits import Bits
from flipscope.basics.checks import check_confidence, check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import mean_from_samples
from flipscope.basics.limits import check_work
from flipscope.basics.seeds import check_strings_fit, generators, random_strings
from flipscope.models.config import TransformerConfig
from flipscope.models.header import peek
from flipscope.models.size import check_attention, multiplications

# PyTorch and the compiled loops are loaded after the sizes have been checked: what is too large is refused at once.
if TYPE_CHECKING:
    from flipscope.models.transformer import Transformer
    from flipscope.probes.sensitivity import Options

DEFAULT_LENGTH = 100  # that of the geometry paper's experiments
MAX_STRINGS = 100_000  # that are asked for a precision
FEWER = "give fewer or shorter strings"


def engine(parser: argparse.ArgumentParser) -> None:
    """How flips are computed."""
    parser.add_argument(
        "--path", choices=("auto", "general", "fast"), default="auto", help="how to compute the flips (default auto)"
    )
    parser.add_argument("--float64", action="store_true", help="float64 throughout, not only near the threshold")
    parser.add_argument(
        "--heuristic", action="store_true", help="skip flips that are unlikely to matter, and audit the skipping"
    )


def model_file(parser: argparse.ArgumentParser) -> None:
    """A saved model, and the length of its strings."""
    parser.add_argument("model", metavar="MODEL.safetensors", help="written by flipscope.models.save")
    parser.add_argument("--length", type=int, metavar="N", help="of the strings (default: the model's longest, or 100)")


def strings_to_draw(parser: argparse.ArgumentParser, default: int, what: str) -> None:
    """How many random strings, and their seed."""
    parser.add_argument("--strings", type=int, default=default, metavar="M", help=f"{what} (default {default})")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the strings (default 0)")


def drawn_strings(arguments: argparse.Namespace, length: int) -> Bits:
    """So many random strings of this length."""
    (stream,) = generators(arguments.seed, 1)
    return random_strings(stream, check_count("strings", arguments.strings), length)


def loaded(arguments: argparse.Namespace) -> tuple[Transformer, int]:
    """The model of a file, and the length of the strings it is to be asked; what is too much is refused before."""
    config = peek(arguments.model)
    if config is not None:
        _checked_length(config, arguments)

    from flipscope.models.checkpoint import load

    model = load(arguments.model)
    return model, _checked_length(model.config, arguments)


def _checked_length(config: TransformerConfig, arguments: argparse.Namespace) -> int:
    """The length of the strings that the model is to be asked, after making sure that they can be."""
    if config.inputs == "patches":
        raise InputError(f"{arguments.model} reads patches of images, which have no bits to flip")
    length = arguments.length
    if length is None:
        length = config.max_length or DEFAULT_LENGTH
    length = check_count("length", length)
    if config.layers > 1:  # a single layer may need no more than the row that is read
        check_attention(config, length, length)
    if arguments.strings is not None:
        strings = check_count("strings", arguments.strings)
        check_strings_fit(strings, length)
        check_work(strings * flip_work(config, length), f"{strings:,} strings", FEWER)
    if getattr(arguments, "precision", None) is not None:
        _check_precision(arguments.precision, length, check_confidence(arguments.confidence))
    return length


def flip_work(config: TransformerConfig, length: int) -> int:
    """Multiplications for a string and all its flips, without the fast path."""
    return (length + 1) * multiplications(config, length)


def _check_precision(precision: float, length: int, confidence: float) -> None:
    """Raise InputError if no outcome of as many strings as are drawn at most would be known that precisely."""
    most = MAX_STRINGS
    # The narrowest interval is that of strings without any flip that matters.
    least = mean_from_samples(np.zeros(most), 0, length, confidence, "anytime").half_width
    if 0 < precision < least:
        enough = f"{1.06 * least:.2g}"  # and not less, by rounding
        raise InputError(
            f"precision {precision:g} cannot be reached with {most:,} strings of {length:,} bits: give {enough} or more"
        )


def how(arguments: argparse.Namespace) -> Options:
    """The keywords of a measurement."""
    return {
        "path": arguments.path,
        "precision": "float64" if arguments.float64 else "auto",
        "heuristic": arguments.heuristic,
    }
