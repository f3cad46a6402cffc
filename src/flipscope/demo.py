"""A first look: four functions on a terminal page each line of which is exact, and a picture of all four."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.table import Table

from flipscope.cube.expression import parse
from flipscope.cube.portrait import exact_portrait
from flipscope.report.figures import function_figure, save_figure
from flipscope.report.terminal import number, page_console

FUNCTIONS = ("parity(21)", "majority(21)", "first(21)", "maj(x1..x5) ^ (x6 & x7)")
PICTURE = Path("results") / "demo.svg"


def main() -> int:
    """Analyse the four functions, print the numbers, draw the picture, and say what to try next."""
    console = page_console()
    portraits = [exact_portrait(parse(text), text) for text in FUNCTIONS]
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("function", no_wrap=True)
    for heading in (
        "average\nsensitivity",
        "max",
        "min",
        "strings with\ns(x) = 0",
        "degree",
        "sparsity",
    ):
        table.add_column(heading, justify="right")
    for found in portraits:
        table.add_row(
            found.name,
            *map(
                number,
                (
                    found.average_sensitivity,
                    found.max_sensitivity,
                    found.min_sensitivity,
                    found.profile[0],
                    found.degree,
                    found.sparsity,
                ),
            ),
        )
    console.print("\nFour Boolean functions, exactly:\n", style="bold")
    console.print(table)
    PICTURE.parent.mkdir(exist_ok=True)
    save_figure(function_figure(portraits), PICTURE)
    console.print(f"\nThe picture is in {PICTURE}: profile, spectrum, influences, stability.")
    console.print("Next, with .venv/bin on your PATH:\n")
    for line in (
        'flipscope function "maj(x1..x5) ^ (x6 & x7)"',
        'flipscope verdict "parity(100)" --width 64 --layers 2',
        "flipscope zoo",
    ):
        console.print(f"  {line}", style="cyan")
    return 0


if __name__ == "__main__":
    sys.exit(main())
