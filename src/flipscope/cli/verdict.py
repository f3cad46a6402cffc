"""flipscope verdict: what the theorems say of a function's family."""

from __future__ import annotations

import argparse

from flipscope.basics.errors import InputError
from flipscope.cli.common import SIZE_HELP, print_json
from flipscope.cube.expression import parse

EXAMPLES = """
  flipscope verdict "parity(100)" --width 64 --layers 2
  flipscope verdict "majority(101)" --width 64 --layers 2 --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parser.add_argument("expression", metavar="EXPR")
    parser.add_argument("-n", type=int, metavar="N", help=SIZE_HELP)
    parser.add_argument("--width", type=int, required=True, metavar="D", help="width of the transformer")
    parser.add_argument("--layers", type=int, required=True, metavar="L", help="number of layers")


def run(arguments: argparse.Namespace) -> int:
    """What the theorems say of a function's family."""
    from flipscope.bounds.geometry import verdict
    from flipscope.cube.languages import language_of

    f = parse(arguments.expression, arguments.n)
    if f.n < 2:
        raise InputError("a verdict needs a function of at least 2 bits; add bits with -n N.")
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
