"""What the weights of small networks show of their functions, over many trainings: judges and figures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import flipscope.lab as lab
from flipscope.cube.fourier_sums import named
from flipscope.studies.sharper._readable import GOAL, LEARNED

MOST = 1 / 2  # share of networks: "most cases"
RARE = 1 / 4  # share of networks: no more are "rare"
_NONE = f"no network came below a loss of {GOAL:g}"
_MORE = "more epochs"


def added(outcome: lab.Outcome, degree: int) -> lab.Row:
    """Columns of a network's row that judges count."""
    found = [bool(rows) for rows in outcome["rows"]]
    pairs = zip(outcome["learned"], outcome["coefficients"], strict=True)
    learned = [own >= LEARNED * wanted for own, wanted in pairs]
    own = [each for each, has in zip(found, learned, strict=True) if has]
    loss = outcome["train_loss"]
    return {
        "converged": loss is not None and loss < GOAL,
        "found": found,
        "has": learned,
        "share": float(np.mean(own)) if own else 0.0,
        "shown": sum(own) > len(own) / 2,
        "largest_only": int(found[0] and not found[-1]),
        "smallest_only": int(found[-1] and not found[0]),
        "oscillates": outcome["turns"] >= degree - 1,
        "oscillates_now_only": int(outcome["turns"] >= degree - 1 > outcome["turns_at_start"]),
        "oscillated_at_start_only": int(outcome["turns_at_start"] >= degree - 1 > outcome["turns"]),
    }


def share_judge(
    column: str, says: Callable[..., lab.Judgement], limit: float, quantity: str, intervals: int = 1
) -> Callable[[lab.Rows], lab.Judgement]:
    """A judge: the share of networks with this column true, among those that were trained to the end."""

    def judge(table: lab.Rows) -> lab.Judgement:
        done = table.where(converged=True)
        if not done:
            return lab.Judgement.without(_NONE, _MORE)
        found = lab.share_of(done, lambda row: row[column], lab.confidence(intervals))
        note = f"{len(done)} of {len(table)} networks came below a loss of {GOAL:g}"
        judged = says(found, limit, quantity, note, unit="networks")
        return lab.with_fewest(judged, found, 1 - limit if says is lab.at_least else limit, "networks")

    return judge


def judge_oscillation(table: lab.Rows) -> lab.Judgement:
    """Most MLPs turn often enough, and more of them than before the training."""
    said = "share of networks whose MLP turns D - 1 times or more"
    often = share_judge("oscillates", lab.at_least, MOST, said, intervals=2)(table)
    columns = ("oscillates_now_only", "oscillated_at_start_only")
    change = lab.more_often(*columns, "share that do so now only", unit="networks")
    groups = [("of those that do so now or did before the training, not both", table.where(converged=True))]
    return lab.all_of([often, lab.for_each(groups, change, missing=_NONE, besides=1)])


def judge_chance(table: lab.Rows) -> lab.Judgement:
    """Parities are found more often than in permuted rows."""
    done = table.where(converged=True)
    if not done:
        return lab.Judgement.without(_NONE, _MORE)
    chance = float(np.mean(done.column("chance")))
    found = lab.bounded_mean(done.column("share"), 0, 1)
    said = "share of a network's parities that have a row, mean"
    return lab.at_least(found, chance, said, f"in permuted rows {chance:.2g}", unit="networks")


def judge_smallest(table: lab.Rows) -> lab.Judgement:
    """Where one of the parities of largest and smallest coefficient has a row, it is the largest."""
    judge = lab.more_often("largest_only", "smallest_only", "share with a row for the largest only", unit="networks")
    groups = [("of those with a row for one of both", table.where(converged=True))]
    return lab.for_each(groups, judge, missing=_NONE)


# ---------------------------------------------------------------- figures


def matrices(table: lab.Rows, title: str) -> lab.Figure:
    """The attention of the first networks that were trained to the end, rows of parities named."""
    panels = []
    for row in table.where(converged=True)[:2]:
        matrix = np.array(row["matrix"])
        weights = np.exp(matrix - matrix.max(axis=1, keepdims=True))
        attention = weights / weights.sum(axis=1, keepdims=True)
        size = len(attention)
        places = [(j + 1, t + 1) for t in range(size) for j in range(size)]
        cells = lab.Series(
            "attention", [x for x, _ in places], [y for _, y in places], "cells", values=attention.ravel().tolist()
        )
        letters = [chr(ord("A") + place) for place in range(len(row["sets"]))]
        marks = [
            lab.Series(f"row of {letter}", [size + 1.2] * len(rows), [t + 1 for t in rows], "points", colour=colour)
            for colour, (letter, rows) in enumerate(zip(letters, row["rows"], strict=True))
            if rows
        ]
        terms = zip(letters, row["coefficients"], row["sets"], strict=True)
        parities = ", ".join(f"{letter} {weight:.2f} {named(positions)}" for letter, weight, positions in terms)
        panels.append(
            lab.Panel(
                f"seed {row['seed']}: {parities}",
                "position attended to",
                "position that asks",
                [cells, *marks],
                x_range=(0.5, size + 1.9),  # with room for the marks
                y_range=(0.5, size + 0.5),
                value_label="attention",
            )
        )
    caption = (
        "Softmax of the query-key matrix, averaged over bits, of the first two networks with a loss below "
        f"{GOAL:g}, whatever they show. Marked are rows whose brightest columns are a parity of the function."
    )
    return lab.Figure("attention", title, caption, panels, where="Fig 5")


def curves(table: lab.Rows, title: str) -> lab.Figure:
    """The MLPs as functions of one variable, their turning points, and how many parities have a row."""
    done = table.where(converged=True)
    drawn = [lab.Series(f"seed {row['seed']}: {row['turns']} turning points", row["z"], row["y"]) for row in done[:4]]
    panels = [lab.Panel("", "what attention brings to a position", "output of the MLP", drawn)]
    if done:
        turns, start = done.column("turns"), done.column("turns_at_start")
        edges = np.arange(-0.5, max(turns + start) + 1)
        after = lab.histogram("trained", turns, edges.tolist())
        before = lab.histogram("at the start", start, edges.tolist())
        panels.append(lab.Panel("", "turning points of the MLP", "share of networks", [before, after]))
        counts = [sum(found) for found in done.column("found")]
        edges = np.arange(-0.5, len(done[0]["found"]) + 1)
        ours = lab.histogram("trained", counts, edges.tolist())
        null = lab.histogram("permuted rows", done.pooled("by_chance"), edges.tolist())
        panels.append(lab.Panel("", "parities that have a row", "share of networks", [null, ours]))
    return lab.Figure("curves", title, f"Networks below a loss of {GOAL:g}.", panels, columns=3, where="Figs 6, 7")
