"""What the commands on saved transformers share: the model, the length of its strings, refusals before any work."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.checks import check_confidence, check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import mean_from_samples
from flipscope.basics.seeds import check_strings_fit, generators, random_strings
from flipscope.cli.hours import anyway, asking_seconds, check_hours, flipping_seconds
from flipscope.models.config import TransformerConfig
from flipscope.models.header import read_header, string_config
from flipscope.models.kinds import StringConfig
from flipscope.models.size import check_attention

# PyTorch and the compiled loops are loaded after the sizes have been checked: what is too large is refused at once.
if TYPE_CHECKING:
    from torch import Tensor

    from flipscope.cube.functions import BooleanFunction
    from flipscope.models.checkpoint import StringModel
    from flipscope.models.transformer import Transformer
    from flipscope.probes.sensitivity import Options

DEFAULT_LENGTH = 100  # that of the geometry paper's experiments
MAX_STRINGS = 100_000  # that are asked for a precision
MOST_BITS = 20  # of which all strings are asked


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
    anyway(parser)


def strings_to_draw(parser: argparse.ArgumentParser, default: int, what: str) -> None:
    """How many random strings, and their seed."""
    parser.add_argument("--strings", type=int, default=default, metavar="M", help=f"{what} (default {default})")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the strings (default 0)")


def drawn_strings(arguments: argparse.Namespace, length: int) -> Bits:
    """So many random strings of this length."""
    (stream,) = generators(arguments.seed, 1)
    return random_strings(stream, check_count("strings", arguments.strings), length)


def strings_options(parser: argparse.ArgumentParser) -> None:
    """On which strings the model is asked."""
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--strings", type=int, default=1000, metavar="M", help="random strings (default 1000)")
    amount.add_argument("--exhaustive", action="store_true", help=f"all strings instead (at most {MOST_BITS} bits)")


def targets_options(parser: argparse.ArgumentParser, what: str, required: bool = False) -> None:
    """The function a model is to compute, and how far it is from that."""
    parser.add_argument("--function", metavar="EXPR", required=required, help=what)
    parser.add_argument("--loss", choices=("mse", "bce"), default="mse", help="of logits and labels (default mse)")
    parser.add_argument(
        "--labels",
        choices=("signs", "bits"),
        default="signs",
        help="for mse: -1 and +1, as flipscope trains, or 0 and 1 (default signs)",
    )


def function_of(arguments: argparse.Namespace) -> BooleanFunction | None:
    """The function that was named, on as many bits as it uses or --length says."""
    if arguments.function is None:
        return None
    from flipscope.cube.expression import parse

    return parse(arguments.function, arguments.length)


def answering(model: StringModel) -> Callable[[Tensor], Tensor] | None:
    """How to get one logit per string from a model that has two outputs; None where it has one anyway."""
    if not isinstance(model.config, TransformerConfig) or model.config.outputs != 2:
        return None
    from flipscope.models.fast_logits import logits_for
    from flipscope.models.outputs import binary_logit

    logits = logits_for(model)
    return lambda bits: binary_logit(logits(bits))


def model_strings(
    arguments: argparse.Namespace, length: int, f: BooleanFunction | None
) -> tuple[Bits, NDArray[np.float64] | None]:
    """The strings that were asked for, and the function's labels on them."""
    strings = index_bits(0, 1 << length, length) if arguments.exhaustive else drawn_strings(arguments, length)
    if f is None:
        return strings, None
    labels = f(strings).astype(np.float64)
    return strings, 2 * labels - 1 if arguments.loss == "mse" and arguments.labels == "signs" else labels


@dataclass(frozen=True)
class Asked:
    """How often a model is asked all its strings, in words too, and which options make it less.

    `distinct`: a string that is there several times is asked once, as `probes.asking` does.
    """

    times: int
    what: str = ""
    options: tuple[str, ...] = ("--strings", "--length")
    distinct: bool = False


def loaded(
    arguments: argparse.Namespace,
    *,
    asked: Asked | None = None,
    bits: int | None = None,
    strings: int | None = None,
) -> tuple[StringModel, int]:
    """The model of a file, and the length of the strings it is to be asked; what is too much is refused before.

    `asked`: how often each string is asked, where that is not once for it and each of its flips. `bits` are those of
    the function or the data that the model is compared with, whose strings are of this length unless --length says
    otherwise; `strings` is the number of strings where no option says it.
    """
    header = read_header(arguments.model)
    length = _checked_length(string_config(header), arguments, asked, bits, strings)

    from flipscope.models.checkpoint import load

    return load(header), length


def _checked_length(
    config: StringConfig, arguments: argparse.Namespace, asked: Asked | None, bits: int | None, strings: int | None
) -> int:
    """The length of the strings that the model is to be asked, after making sure that they can be."""
    if isinstance(config, TransformerConfig) and config.inputs == "patches":
        raise InputError(f"{arguments.model} reads patches of images, which have no bits to flip")
    length = bits if arguments.length is None else arguments.length
    if length is None:
        length = config.max_length or DEFAULT_LENGTH
    length = check_count("length", length)
    if (
        isinstance(config, TransformerConfig) and config.layers > 1
    ):  # a single layer may need no more than the row that is read
        check_attention(config, length, length)
    if asked is not None and getattr(arguments, "exhaustive", False):
        if length > MOST_BITS:
            raise InputError(f"all strings of {length} bits are too many: give --strings, or at most {MOST_BITS} bits")
        strings = 1 << length
    elif strings is None and arguments.strings is not None:
        strings = check_count("strings", arguments.strings)
    if strings is not None:
        check_strings_fit(strings, length)
        _check_hours(config, arguments, length, strings, asked)
    if getattr(arguments, "precision", None) is not None:
        _check_precision(arguments.precision, length, check_confidence(arguments.confidence))
    return length


def _check_hours(
    config: StringConfig, arguments: argparse.Namespace, length: int, strings: int, asked: Asked | None
) -> None:
    """Raise InputError if what is asked of the model takes too long."""
    options = ["--strings", "--length"]
    what = f"{strings:,} strings of {length:,} bits"
    if asked is None:
        what += " with all their flips"
        general, screened = getattr(arguments, "path", "auto") == "general", getattr(arguments, "heuristic", False)
        seconds = flipping_seconds(config, length, strings, general=general, screened=screened)
    else:
        exhaustive = getattr(arguments, "exhaustive", False)
        options = ["--length" if exhaustive and each == "--strings" else each for each in asked.options]
        what = f"{asked.what} on {what}" if asked.what else what
        seconds = asking_seconds(config, length, strings, asked.times, distinct=asked.distinct)
    check_hours(arguments, seconds, what, options)


def standard(model: StringModel, what: str) -> Transformer:
    """The model, after making sure that it is a standard transformer, of which alone something is known."""
    from flipscope.models.transformer import Transformer

    if not isinstance(model, Transformer):
        kind = model.config.as_dict()["kind"].replace("-", " ").replace("fourier", "Fourier")
        article = "an" if kind[0] in "aeiou" else "a"
        raise InputError(f"the file holds {article} {kind}, and {what}: give a standard transformer")
    return model


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
