"""Writes what is kept of the studies beside them: the index of the list, and the table of figures in the docs.

python -m tests.studies.index
"""

from __future__ import annotations

import re
from pathlib import Path

from flipscope.lab import catalogue
from flipscope.lab.catalogue import Entry

TABLE = Path(__file__).parents[2] / "docs" / "figures.md"
HEAD = """# Which study shows which figure

Written by `python -m tests.studies.index` from the studies' own lists of figures. `flipscope studies --paper 001
--figure 5` finds the same; `--figure "Thm 4"` finds a theorem.

"""


def table() -> str:
    """The document that says which study shows which figure."""
    found = [(entry.paper or "", figure, entry) for entry in catalogue.entries() for figure in entry.figures]
    lines = ["| paper | figure or theorem | study | what it shows |", "|---|---|---|---|"]
    lines += [
        f"| {paper} | {figure} | `{entry.name}` | {entry.title} |" for paper, figure, entry in sorted(found, key=_order)
    ]
    return HEAD + "\n".join(lines) + "\n"


def _order(row: tuple[str, str, Entry]) -> tuple[str, bool, list[int], str]:
    paper, figure, entry = row
    return paper, not figure.startswith("Fig"), list(map(int, re.findall(r"\d+", figure))), entry.name


if __name__ == "__main__":
    for file in catalogue.write_index():
        print(f"wrote {file}")
    TABLE.write_text(table(), "utf-8")
    print(f"wrote {TABLE}")
