"""flipscope zoo: the named functions."""

from __future__ import annotations

import argparse

from flipscope.cli.common import print_json
from flipscope.cube.expression import parse
from flipscope.cube.portrait import exact_portrait

EXAMPLES = """
  flipscope zoo
  flipscope zoo --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""


def run(arguments: argparse.Namespace) -> int:
    """List the named functions with an example each."""
    from flipscope.cube.zoo import ZOO

    rows = []
    for entry in ZOO:
        found = exact_portrait(parse(entry.example), entry.example)
        rows.append(
            {
                "name": entry.name,
                "usage": entry.usage,
                "meaning": entry.meaning,
                "example": entry.example,
                "average_sensitivity": found.average_sensitivity,
                "zero_strings": found.profile[0],
                "degree": found.degree,
            }
        )
    if arguments.json:
        print_json(rows)
        return 0
    from flipscope.report import terminal

    terminal.show(terminal.zoo_page(rows))
    return 0
