"""Models asked on strings longer than those of their training: tasks, claims on them, panels."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal

import flipscope.lab as lab
from flipscope.studies.hardness._shared import FUNCTIONS, Name, kept
from flipscope.training.recipes.hardness import Positions, longer_lengths

Task = Name | Literal["scratchpad"]
TASKS: tuple[Task, ...] = (*FUNCTIONS, "scratchpad")
JUDGED = 2.0  # how much longer than any string of the training those are on which claims are judged
CHANCE, GENERAL = 0.6, 0.9  # accuracy up to which a function is lost, and from which on it is had


def judged_at(row: lab.Row) -> int:
    """Where the length at which a model is judged stands among those it was asked at."""
    return int(row["lengths"].index(longer_lengths(row["longest"], [JUDGED])[0]))


def accuracy_at(row: lab.Row) -> float:
    """The accuracy of a model on strings that are longer by the judged factor."""
    place = judged_at(row)
    return float(row["right"][place] / row["asked"][place])


def judge(table: lab.Rows, task: Task, positions: Positions, fails: bool) -> lab.Judgement:
    """Whether most kept models of a task fail, or do not, on strings that are longer by the judged factor."""
    own = table.where(task=task, positions=positions)
    if not kept(own):
        missing = f"{task}: none of {len(own)} models learned the lengths it was trained on"
        return lab.Judgement.without(missing, "more steps")

    def as_claimed(row: lab.Row) -> bool:
        return accuracy_at(row) <= CHANCE if fails else accuracy_at(row) >= GENERAL

    lengths = sorted({row["lengths"][judged_at(row)] for row in kept(own)})
    limit = f"at most {CHANCE}" if fails else f"at least {GENERAL}"
    name = f"share of models with accuracy {limit} at {', '.join(map(str, lengths))} bits, {positions} positions"
    judged = lab.of_models(kept(own), as_claimed, "most", name)
    found = sorted(map(accuracy_at, kept(own)))
    spread = f"accuracy from {found[0]:.2f} to {found[-1]:.2f}"
    return dataclasses.replace(judged, note=f"{judged.note}, {spread}")


def claim(task: Task, positions: Positions, fails: bool) -> lab.Claim:
    """That a task fails on longer strings, or does not."""
    name = task.upper() if task != "scratchpad" else "PARITY with a scratchpad"
    limit = f"at most {CHANCE}" if fails else f"at least {GENERAL}"
    plain = task in ("parity", "majority", "first")
    statement = "what is learned does not carry over" if fails else "what is learned carries over"
    return lab.Claim(
        f"{name} {'fails' if fails else 'does not fail'} on longer strings, {positions} positions",
        "abstract" if plain else "none: left open",
        statement,
        f"accuracy at {JUDGED:g} times the longest length of the training: {limit} in at least half of the kept models",
        functools.partial(judge, task=task, positions=positions, fails=fails),
        exploratory=not plain,
    )


def panels_of(table: lab.Rows, column: str, y: str, rules: Sequence[lab.Rule] = ()) -> list[lab.Panel]:
    """A column of lists against the length, a panel for each kind of positions, models that are not kept apart."""
    panels = []
    for positions, rows in table.by("positions"):
        spread = lab.Rows(
            {**row, "length": length, "value": value}
            for row in rows
            for length, value in zip(row["lengths"], row[column], strict=True)
            if value is not None
        )
        series = []
        for colour, task in enumerate(TASKS):
            own, apart = (spread.where(task=task, kept=kept) for kept in (True, False))
            if own:
                series.append(lab.line(own, "length", "value", task, "mean", colour=colour))
            if apart:
                places = (apart.column("length"), apart.column("value"))
                series.append(lab.Series(f"{task}, not kept", *places, "points", colour=colour, dashed=True))
        ends = [lab.Rule(length, "longest of the training", "x") for length in rows.values("longest")]
        title = f"{positions} positions"
        panels.append(lab.Panel(title, "length n", y, series, rules=[*rules, *ends], y_log=column == "relative"))
    return panels
