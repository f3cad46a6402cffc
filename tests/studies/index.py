"""Writes the table of figures in the docs.

python -m tests.studies.index
"""

from __future__ import annotations

import re
from pathlib import Path

from flipscope.lab.summaries import Summary, summaries

TABLE = Path(__file__).parents[2] / "docs" / "figures.md"
HEAD = """# Which study shows which figure

Written by `python -m tests.studies.index` from the studies' own lists of figures. `flipscope studies --paper 001
--figure 5` finds the same; `--figure "Thm 4"` finds a theorem.

"""


def table() -> str:
    """The document that says which study shows which figure."""
    found = [(study.paper or "", figure, study) for study in summaries() for figure in study.figures]
    lines = ["| paper | figure or theorem | study | what it shows |", "|---|---|---|---|"]
    lines += [
        f"| {paper} | {figure} | `{study.name}` | {study.title} |" for paper, figure, study in sorted(found, key=_order)
    ]
    return HEAD + "\n".join(lines) + "\n"


def _order(row: tuple[str, str, Summary]) -> tuple[str, bool, list[int], str]:
    paper, figure, study = row
    return paper, not figure.startswith("Fig"), list(map(int, re.findall(r"\d+", figure))), study.name


if __name__ == "__main__":
    TABLE.write_text(table(), "utf-8")
    print(f"wrote {TABLE}")
