"""Functions of few bits that were learned from some of their rows: how sensitive, of what degree, how sharp; judges.

Differences are taken within a target and seed, of the means over repeated second steps. Seeds of one target share its
table and are alike: their differences are averaged, and a target counts once.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import flipscope.lab as lab
from flipscope.studies.hardness._shared import above

FEWEST = 3  # targets that both sides of a comparison have


def values(rows: lab.Rows, column: str) -> dict[Any, float]:
    """A column for each target and seed."""
    return {key: float(np.mean(own.column(column))) for key, own in rows.having(column).by("target", "seed")}


def lower(first: lab.Rows, second: lab.Rows, column: str, quantity: str, confidence: float) -> lab.Judgement:
    """Whether a column is lower in the first rows than in the second, seed by seed, averaged over each target."""
    ours, theirs = values(first, column), values(second, column)
    pairs = sorted(ours.keys() & theirs.keys())
    targets = sorted({target for target, _ in pairs})
    if len(targets) < FEWEST:
        said = f"{quantity}: {len(targets)} targets with a pair that fits"
        return lab.Judgement.without(said, f"at least {FEWEST} targets, or more steps")
    differences = [
        float(np.mean([theirs[pair] - ours[pair] for pair in pairs if pair[0] == target])) for target in targets
    ]
    note = f"{len(pairs)} pairs of {len(targets)} targets"
    return above(lab.student_mean(differences, confidence), 0.0, quantity, note, "targets")


def below_random(column: str, what: str, rule: str) -> lab.Judge:
    """A judge: a column is lower in learned functions than in random completions of the same rows."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.where(lambda row: row[rule])

        def one(size: int, own: lab.Rows, confidence: float) -> lab.Judgement:
            learned = rows.where(kind="learned", size=size)
            return lower(learned, own, column, f"{what}: random completion less learned, {size} rows", confidence)

        return lab.for_each(
            rows.where(kind="random").by("size"), one, missing="no random completion fits", what="sizes"
        )

    return judge


def below_target(table: lab.Rows) -> lab.Judgement:
    """Whether learned functions are less sensitive than the functions that their rows come from, for each size."""

    def one(size: int, own: lab.Rows, confidence: float) -> lab.Judgement:
        truth = lab.Rows({**row, "sensitivity": row["target_sensitivity"]} for row in own)
        return lower(own, truth, "sensitivity", f"sensitivity: function less learned, {size} rows", confidence)

    parts = table.where(kind="learned", fitted=True).by("size")
    return lab.for_each(parts, one, missing="no function was learned", what="sizes")


def falls_with_size(column: str, what: str, rule: str) -> lab.Judge:
    """A judge: a column is lower in functions learned from fewer rows, for each two neighbouring sizes."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = table.where(lambda row: row[rule], kind="learned")
        sizes = table.where(kind="learned").values("size")

        def one(pair: tuple[int, int], own: lab.Rows, confidence: float) -> lab.Judgement:
            name = f"{what}: {pair[1]} rows less {pair[0]} rows"
            return lower(own, rows.where(size=pair[1]), column, name, confidence)

        pairs = [((small, large), rows.where(size=small)) for small, large in itertools.pairwise(sizes)]
        return lab.for_each(pairs, one, missing="fewer than two sizes fit", what="pairs of sizes")

    return judge


def grouped(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    """The rows by what they come from: learned ones by size, then random completions."""
    return [(f"{kind}, {size} rows", own) for (kind, size), own in table.by("kind", "size")]


def scatter(table: lab.Rows, x: str, y: str, labels: tuple[str, str]) -> lab.Panel:
    """A point per model that fits its table, coloured by what its function comes from."""
    series = []
    for colour, (name, own) in enumerate(grouped(table)):
        rows = own.where(kept=True)
        hover = [f"target {row['target']}, seed {row['seed']}" for row in rows]
        series.append(lab.Series(name, rows.column(x), rows.column(y), "points", colour=colour, hover=hover))
    return lab.Panel("", *labels, series)


def spectra(table: lab.Rows) -> lab.Panel:
    """The mean Fourier weight at each degree."""
    series = []
    for colour, (name, own) in enumerate(grouped(table)):
        if found := own.where(fitted=True).column("weights"):
            heights = np.mean(found, axis=0).tolist()
            series.append(lab.Series(name, list(range(len(heights))), heights, colour=colour))
    return lab.Panel("", "degree", "Fourier weight", series)
