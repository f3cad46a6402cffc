"""flipscope construct: a network constructed for a function of few bits or a sum of parities, with error and norms."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipscope.basics import npz
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.files import check_target
from flipscope.cli import construct_fourier
from flipscope.cli.common import length_option, output_option, print_json, seed_option
from flipscope.cube.expression import parse

if TYPE_CHECKING:
    from flipscope.cube.functions import BooleanFunction

EXAMPLES = """
  flipscope construct "x3 & x7 & x11" --length 64 --check
  flipscope construct "x3 & x7 & x11" --length 1000 --mapping bag --json
  flipscope construct "x1 ^ (x2 & x5)" --length 16 --heads 3 --basis random --seed 1 --check
  flipscope construct "maj(x1..x3)" --length 40 --positions 3,17,25 -o majority.safetensors
  flipscope construct --fourier "0.6*x1x2x3 + 0.64*x3x4x5" --length 8 --check
  flipscope construct --fourier "x1x2 - 0.5*x2x3x4" --length 8 --mask 0 --json
  flipscope construct --parity-steps --length 12 --check
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("expression", nargs="?", metavar="EXPR", help='a function of few bits, such as "x3 & x7 & x11"')
    length_option(parser)
    parser.add_argument("--positions", metavar="I", help="put the expression's bits at these positions, such as 3,7,11")
    parser.add_argument(
        "--mapping",
        choices=("deterministic", "trainable", "bag"),
        default="deterministic",
        help="how bits become vectors (default deterministic)",
    )
    parser.add_argument(
        "--heads", default="1", metavar="H", help="number of heads: 1, or s for one per relevant bit (default 1)"
    )
    parser.add_argument(
        "--gamma", type=float, metavar="G", help="the error of the heads is at most G/4 (default: by lemma)"
    )
    parser.add_argument(
        "--basis",
        default="orthonormal",
        metavar="B",
        help="basis: orthonormal, random, or a .npy or text file of unit vectors",
    )
    parser.add_argument(
        "--width", type=int, metavar="D", help="width of the vectors (default: the smallest that the lemma allows)"
    )
    seed_option(parser)
    parser.add_argument("--general", action="store_true", help="treat a symmetric function like any other")
    parser.add_argument(
        "--as-printed", action="store_true", help="use the paper's formulas as printed, with their errors"
    )
    parser.add_argument(
        "--check", action="store_true", help="check all strings of up to 16 bits; exit with 1 if inexact"
    )
    output_option(parser, "write the model here, for the measuring commands")
    construct_fourier.arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Construct a network and report its certified error and norms."""
    if arguments.length is not None:
        check_count("length", arguments.length)
    if arguments.output is not None:
        check_target(Path(arguments.output), "model")
    if arguments.fourier is not None or arguments.parity_steps:
        return construct_fourier.run(arguments)
    if arguments.expression is None:
        raise InputError("give an expression of few bits, or --fourier or --parity-steps for those of paper 002")
    construct_fourier.refuse_settings(arguments)
    if arguments.gamma is not None and not 0 < arguments.gamma <= 1:
        raise InputError(f"gamma={arguments.gamma:g} must be above 0 and at most 1")
    f = _function(arguments)
    basis = _basis(arguments.basis)

    from flipscope.constructions.sparse_variables.build import EXACT, MOST_CHECKED, construct
    from flipscope.constructions.sparse_variables.functions import sparse_function

    sparse = sparse_function(f)
    built = construct(
        sparse,
        arguments.mapping,
        heads=_heads(arguments.heads, sparse.sparsity),
        gamma=arguments.gamma,
        basis=basis,
        width=arguments.width,
        seed=arguments.seed,
        general=True if arguments.general else None,
        as_printed=arguments.as_printed,
    )
    document: dict[str, Any] = {"function": arguments.expression, **built.as_json()}
    passed = True
    if arguments.check:
        check: dict[str, Any] = {"strings": None, "error": None, "difference": None, "answer_error": None}
        if sparse.length <= MOST_CHECKED:
            all_of = built.enumerate()
            difference = abs(all_of.error - built.error)
            check = {
                "strings": all_of.strings,
                "error": all_of.error,
                "difference": difference,
                "answer_error": all_of.answer_error,
            }
        document["check"] = check
        if check["strings"] is None:
            passed = bool(document["exact"])
        else:  # the comparison is written so that NaN fails
            passed = check["answer_error"] <= EXACT and check["error"] <= built.error + EXACT
    if arguments.output is not None:
        from flipscope.models.checkpoint import save

        save(built.model, arguments.output, {"construction": f"{arguments.expression}, {built.lemma}"})
        document["model"] = arguments.output
    if arguments.json:
        print_json(document)
        return int(not passed)
    from flipscope.report.constructions import construction_page
    from flipscope.report.terminal import show

    show(construction_page(arguments.expression, document, passed))
    return int(not passed)


def _function(arguments: argparse.Namespace) -> BooleanFunction:
    """The function on strings of the given length, with its bits at the given positions."""
    if arguments.positions is None:
        return parse(arguments.expression, arguments.length)
    inner = parse(arguments.expression)
    length = check_count("length", inner.n if arguments.length is None else arguments.length)
    try:
        given = [int(place) for place in arguments.positions.split(",")]
    except ValueError:
        raise InputError(f"positions={arguments.positions!r} must be numbers from 1, such as 3,7,11") from None
    if len(given) != inner.n or inner.n > length:
        raise InputError(f"the expression has {inner.n} bits: give as many positions, in a length of at least that")
    if len(set(given)) != len(given) or not all(1 <= place <= length for place in given):
        raise InputError(f"positions={arguments.positions} must be different numbers from 1 to {length}")
    return inner.extend(length, [place - 1 for place in given])


def _heads(text: str, sparsity: int) -> int:
    if text == "s":
        return sparsity
    if not text.isdigit():
        raise InputError(f"heads={text!r} must be 1, s or {sparsity}")
    return int(text)


def _basis(text: str) -> str | NDArray[np.float64]:
    """The name of a basis, or the matrix in a file."""
    if text in ("orthonormal", "random"):
        return text
    path = Path(text)
    if not path.is_file():
        raise InputError(f"basis={text!r} is neither orthonormal, random nor a file")
    try:
        found = np.load(path, allow_pickle=False) if path.suffix == ".npy" else np.loadtxt(path, ndmin=2)
        return np.asarray(found, np.float64)
    except npz.DAMAGE as error:
        raise InputError(f"{path} cannot be read as a matrix: {error}") from error
