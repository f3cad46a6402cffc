"""A tour of a few minutes: functions, a random transformer, two studies at their smallest scale, and the report."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flipscope import cli
from flipscope.cube.expression import parse
from flipscope.cube.portrait import exact_portrait
from flipscope.report.terminal import number, page_console

FUNCTIONS = ("parity(21)", "majority(21)", "first(21)", "maj(x1..x5) ^ (x6 & x7)")
RESULTS = Path("results") / "demo"
PICTURE = RESULTS / "functions.svg"
REPORT = RESULTS / "report.html"
MODEL = ("random-model", "--init", "uniform", "--count", "2", "--width", "64", "--layers", "2", "--heads", "4")
STUDIES = ("random-init", "trained-profiles")
NEXT = (
    'flipscope function "maj(x1..x5) ^ (x6 & x7)"',
    'flipscope verdict "parity(100)" --width 64 --layers 2',
    "flipscope studies",
    "flipscope run random-init",
)


def main() -> int:
    """Show everything once, write the report, and say what to try next."""
    console = page_console()
    RESULTS.mkdir(parents=True, exist_ok=True)
    _head(console, "1 of 5. Four Boolean functions, exactly")
    _functions(console)
    _head(console, "2 of 5. Two transformers with random weights: how often does a flipped bit change the answer?")
    cli.main([*MODEL, "--strings", "20"])
    for place, study in enumerate(STUDIES):
        _head(console, f"{3 + place} of 5. The study {study}, at its smallest scale: too little data to decide much")
        # A contradicted claim is exit code 1, and worth showing; only bad input would end the tour.
        if (code := cli.main(["run", study, "--scale", "smoke", "--results", str(RESULTS)])) not in (0, 1):
            return code
    _head(console, "5 of 5. The report")
    if code := cli.main(["report", *STUDIES, "--results", str(RESULTS), "-o", str(REPORT)]):
        return code
    console.print(f"\nOpen {REPORT} in a browser: every claim with its verdict, figures, tables, settings.")
    console.print(f"The picture of the four functions is {PICTURE}.")
    console.print("Next, with .venv/bin on your PATH:\n")
    for line in NEXT:
        console.print(f"  {line}", style="cyan")
    return 0


def _head(console: Console, text: str) -> None:
    console.print(f"\n{text}\n", style="bold")
    sys.stdout.flush()


def _functions(console: Console) -> None:
    """The numbers of the four functions, and their picture."""
    from flipscope.report.drawing import save_figure
    from flipscope.report.figures import function_figure

    portraits = [exact_portrait(parse(text), text) for text in FUNCTIONS]
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("function", no_wrap=True)
    for heading in ("average\nsensitivity", "max", "min", "strings with\ns(x) = 0", "degree", "sparsity"):
        table.add_column(heading, justify="right")
    for found in portraits:
        shown = (
            found.average_sensitivity,
            found.max_sensitivity,
            found.min_sensitivity,
            found.profile[0],
            found.degree,
            found.sparsity,
        )
        table.add_row(found.name, *map(number, shown))
    console.print(table)
    save_figure(function_figure(portraits), PICTURE)


if __name__ == "__main__":
    sys.exit(main())
