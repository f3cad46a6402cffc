"""A study that takes no time, for reports of what is really stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flipscope.basics.estimates import mean_from_samples
from flipscope.basics.progress import Progress
from flipscope.figures import Figure, Panel, Series
from flipscope.lab.rows import Rows
from flipscope.lab.study import Claim, Outcome, Result, Scale, Study, Trial
from flipscope.lab.verdict import at_least, at_most


@dataclass(frozen=True)
class Square(Trial):
    number: int
    seed: int = 7

    def measure(self, progress: Progress) -> Outcome:
        return {"square": self.number**2}


def _mean(table: Rows) -> Any:
    return mean_from_samples([row["square"] for row in table], 0, 10_000)


class Tiny(Study):
    name = "tiny"
    paper = "000"
    title = "Squares of small numbers"
    figures = ("Fig 1",)
    scales = {"smoke": Scale(0.01, {}, "five numbers"), "laptop": Scale(0.1, {}, "a hundred numbers")}
    claims = (
        Claim("large", "Fig 1", "squares are large", "mean at least 9000", lambda t: at_least(_mean(t), 9000, "mean")),
        Claim("small", "Fig 1", "squares are small", "mean at most 9999", lambda t: at_most(_mean(t), 9999, "mean")),
    )

    def trials(self, scale: str) -> Sequence[Trial]:
        return [Square(n, seed=8) for n in range(5)] if scale == "smoke" else [Square(n) for n in range(100)]

    def summarise(self, results: Sequence[Result]) -> Rows:
        return [{"number": each.trial.content()["number"], **each.outcome} for each in results]

    def draw(self, table: Rows) -> Sequence[Figure]:
        series = Series("squares", [row["number"] for row in table], [row["square"] for row in table])
        return [Figure("squares", "Squares", "A parabola.", [Panel("", "number", "square", [series])])]


STUDY = Tiny()
