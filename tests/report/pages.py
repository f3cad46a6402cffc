"""Studies, runs and pages that were never measured, to be shown in reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flipscope.figures import Figure, Panel, Rule, Series
from flipscope.lab.findings import Findings
from flipscope.lab.rows import Rows
from flipscope.lab.study import Claim, Scale, Study
from flipscope.lab.verdict import Judgement
from flipscope.report.views import StudyPage

FIGURE = Figure(
    "spectra",
    "Spectra",
    "Most strings have sensitivity 0.",
    [
        Panel(
            "All",
            "sensitivity",
            "strings",
            [
                Series("uniform", [0, 1, 2], [10, 5, 1], "bars"),
                Series("gaussian", [0, 1, 2], [8, None, 2], low=[7, None, 1], high=[9, None, 3]),
            ],
            rules=[Rule(50, "N/2", "x")],
        )
    ],
    where="Fig 3",
)


def claim(
    name: str = "insensitive", statement: str = "most strings have sensitivity 0", exploratory: bool = False
) -> Claim:
    judge = lambda table: Judgement.without("-")  # noqa: E731
    return Claim(name, "Fig 3", statement, "the share is at least 0.5", judge, exploratory)


def study(name: str = "random-init", title: str = "Transformers at initialisation", paper: str = "000") -> Study:
    """A study that only has a face; each call makes a class of its own."""

    def unused(self: Any, *arguments: Any) -> Any:
        raise AssertionError("a report measures nothing")

    attributes = {
        "name": name,
        "title": title,
        "paper": paper,
        "figures": ("Fig 3 left",),
        "scales": {"laptop": Scale(30, {}, "20 models")},
        "claims": (),
        **dict.fromkeys(("trials", "measure", "summarise"), unused),
    }
    made: Study = type("Face", (Study,), attributes)()
    return made


def page(
    judgements: Sequence[tuple[Claim, Judgement]] = (),
    table: Rows | None = None,
    *,
    of: Study | None = None,
    trials: int = 80,
    done: int = 80,
    failed: int = 0,
    **options: Any,
) -> StudyPage:
    shown = study() if of is None else of
    run = Findings(shown, "laptop", trials, done, failed, done, 4000.0, Rows.of(table or []), list(judgements))
    made: dict[str, Any] = {
        "figures": [],
        "settings": {"layers": [2, 3], "model_seed": list(range(20))},
        "machines": ["a processor, 2 cores"],
        "revision": 1,
        "command": f"flipscope run {shown.name} --scale laptop",
        "finished": "2026-07-01 12:30 UTC",
    }
    return StudyPage(run, **{**made, **options})
