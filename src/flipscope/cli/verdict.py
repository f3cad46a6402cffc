"""flipscope verdict: what the theorems say about a family of functions."""

from __future__ import annotations

import argparse

from flipscope.basics.errors import InputError
from flipscope.cli.common import length_option, print_json
from flipscope.cube.expression import parse

EXAMPLES = """
  flipscope verdict "parity(100)" --width 64 --layers 2
  flipscope verdict "majority(101)" --width 64 --layers 2 --json
  flipscope verdict --zeros "N^2 + 1" --width 64 --layers 2
  flipscope verdict --family "thr(2, x1..x{n})" --lengths 5,9,13 --width 64 --layers 2
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("expression", metavar="EXPR", nargs="?", help="a member of the family")
    length_option(parser)
    parser.add_argument("--zeros", metavar="K0", help='the family by its K_0(N), as in "2^(N-1)" or "N^2 + 1"')
    parser.add_argument("--family", metavar="EXPR", help='the family by members, {n} being the length: "majority({n})"')
    parser.add_argument("--lengths", metavar="N,N,...", help="lengths of these members, as in 11,21,41")
    parser.add_argument("--width", type=int, required=True, metavar="D", help="width of the transformer")
    parser.add_argument("--layers", type=int, required=True, metavar="L", help="number of layers")


def run(arguments: argparse.Namespace) -> int:
    """Apply the theorems to a family given by a member, by its K_0(N) or by members at several lengths."""
    if sum(given is not None for given in (arguments.expression, arguments.zeros, arguments.family)) != 1:
        raise InputError("a family is given by a member EXPR, by --zeros or by --family: give one of these")
    if (arguments.family is None) != (arguments.lengths is None):
        raise InputError("--family and --lengths go together: give both")
    if arguments.length is not None and arguments.expression is None:
        raise InputError("--length says how many bits EXPR has: leave it out")
    return _of_member(arguments) if arguments.expression is not None else _of_family(arguments)


def _of_member(arguments: argparse.Namespace) -> int:
    from flipscope.bounds.geometry import verdict
    from flipscope.cube.languages import language_of

    f = parse(arguments.expression, arguments.length)
    if f.n < 2:
        raise InputError("a verdict needs a function of at least 2 bits; add bits with --length N.")
    found = verdict(
        f,
        language_of(arguments.expression, f),
        arguments.expression,
        width=arguments.width,
        layers=arguments.layers,
    )
    if arguments.json:
        print_json(found.as_json())
    else:
        from flipscope.report import terminal

        terminal.show(terminal.verdict_page(found))
    return 0


def _of_family(arguments: argparse.Namespace) -> int:
    from flipscope.bounds.geometry import examples_verdict, zeros_verdict

    if arguments.zeros is not None:
        found = zeros_verdict(arguments.zeros, width=arguments.width, layers=arguments.layers)
    else:
        lengths = _lengths(arguments.lengths)
        found = examples_verdict(arguments.family, lengths, width=arguments.width, layers=arguments.layers)
    if arguments.json:
        print_json(found.as_json())
    else:
        from flipscope.report import terminal

        terminal.show(terminal.family_page(found))
    return 0


def _lengths(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--lengths {text} is not a list of whole numbers: write for example 11,21,41") from None
