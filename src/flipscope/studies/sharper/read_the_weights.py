"""A small network trained on a sum of three parities: does its attention show them, and does its MLP oscillate?

The paper shows a few such networks (Figs 5-7): rows of the query-key matrix whose brightest columns are a parity of the
learned function, and the MLP as a curve. Here many are trained, and what their weights show is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import flipscope.lab as lab
from flipscope.basics.seeds import generators, random_strings
from flipscope.cube.fourier_sums import FourierSum, named, random_sum
from flipscope.data.batches import Examples
from flipscope.lab import quantities
from flipscope.models.readable_network import ReadableNetwork, ReadableNetworkConfig
from flipscope.probes.components import chance, find_components, found_by_chance
from flipscope.training.fit import Epoch, Moment, fit

GOAL = 0.02  # of the mean loss in an epoch: a training ends below it, as in the paper
LEARNED = 0.5  # a parity is learned if the network has at least this part of its coefficient
PROMINENT = 0.05  # part of the curve's range below which a bend is no turning point
POINTS = 201  # of the curve
DRAWS = 200  # of permuted rows
ATTENDED = 1_000  # strings over which attention is averaged
MATTERS = 0.1  # a position matters if its contribution varies by at least this part of the largest
_STRINGS = 0x72656164  # separates the stream of strings from that of the function, which has the same seed
MOST = 1 / 2  # share of networks that counts as "most cases"
RARE = 1 / 4  # share of networks up to which they are "rare"


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Readable(lab.Trial):
    """One training on a random function of the seed."""

    seed: int
    length: int
    degree: int
    sparsity: int
    samples: int
    epochs: int
    batch: int = 256
    lr: float = 4e-3
    weight_decay: float = 1e-4
    hidden: int = 32

    @property
    def steps(self) -> int:
        """The most steps that a training takes."""
        return self.epochs * -(-self.samples // self.batch)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """How the training went, the components that its matrix shows, and the MLP as a curve."""
        f = target_of(self)
        model = ReadableNetwork(ReadableNetworkConfig(length=self.length, hidden=self.hidden), seed=self.seed)
        streams = generators(np.random.default_rng([self.seed, _STRINGS]), 2)
        strings, fresh = (random_strings(stream, self.samples, self.length) for stream in streams)
        start = most_turns(model, fresh)
        fitted = fit(
            model,
            Examples(strings, f(strings).astype(np.float32)),
            Examples(fresh, f(fresh).astype(np.float32)),
            learning_rate=self.lr,
            batch=self.batch,
            seed=self.seed,
            optimiser="adamw",
            weight_decay=self.weight_decay,
            loss="mse",
            decay_after=None,
            stop_after=None,
            max_epochs=self.epochs,
            restore="last",
            callback=lambda moment: _report(moment, self, progress),
            until=_learned,
        )
        last = fitted.history[-1] if fitted.history else None
        return {
            "train_loss": None if last is None else last.train_loss,
            "loss": None if last is None else last.validation_loss,
            "steps": fitted.steps,
            "stopped": fitted.stopped,
            **read_weights(model, f, fresh, self.seed),
            "turns_at_start": start,
        }


def target_of(trial: Readable) -> FourierSum:
    """The function: sets of one size, coefficients |N(0, 1)| of norm 1."""
    return random_sum(trial.length, trial.sparsity, trial.degree, seed=trial.seed)


def _report(moment: Moment, trial: Readable, progress: lab.Progress) -> None:
    progress(moment.step, trial.steps)


def _learned(line: Epoch) -> bool:
    return line.train_loss < GOAL


@torch.no_grad()
def read_weights(model: ReadableNetwork, f: FourierSum, strings: NDArray[np.uint8], seed: int = 0) -> dict[str, Any]:
    """What the weights show of the function, its parities in the order of their coefficients."""
    order = np.argsort(-np.array(f.coefficients), kind="stable")
    sets = [f.sets[place] for place in order]
    matrix = model.query_key().double().numpy()
    components = find_components(matrix, sets)
    attention = model.attention(torch.from_numpy(strings[:ATTENDED])).mean(dim=0).double().numpy()
    z, y = curve_of(model, strings)
    rows = len(matrix)
    return {
        "coefficients": [f.coefficients[place] for place in order],
        "learned": coefficients_of(model, sets, strings),
        "sets": [list(each) for each in sets],
        "rows": [list(each.rows) for each in components],
        "ranks": [each.rank for each in components],
        "by_attention": [each.found for each in find_components(attention, sets)],
        "chance": chance(rows, f.length, f.degree),
        "by_chance": found_by_chance(rows, f.length, sets, draws=DRAWS, seed=seed),
        "matrix": matrix,
        "z": z,
        "y": y,
        "turns": most_turns(model, strings),
    }


@torch.no_grad()
def coefficients_of(model: ReadableNetwork, sets: Sequence[tuple[int, ...]], strings: NDArray[np.uint8]) -> list[float]:
    """The network's own coefficient of each parity's indicator: least squares on these strings, with a constant.

    A mean of answers times signs would contain the noise of the constant and of the other parities.
    """
    answers = model(torch.from_numpy(strings)).double().numpy()
    signs = [1.0 - 2.0 * (strings[:, list(each)].sum(axis=1, dtype=np.int64) % 2) for each in sets]
    design = np.column_stack([np.ones(len(strings)), *((1 + sign) / 2 for sign in signs)])
    fitted = np.linalg.lstsq(design, answers, rcond=None)[0]
    return [float(each) for each in fitted[1:]]


@torch.no_grad()
def curve_of(
    model: ReadableNetwork, strings: NDArray[np.uint8]
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """The MLP over the range of its inputs at the positions that matter."""
    ranges = _ranges(model, strings)
    z = torch.linspace(min(low for low, _ in ranges), max(high for _, high in ranges), POINTS)
    z = z.to(model.up.weight)
    return z.numpy(), model.curve(z).numpy()


@torch.no_grad()
def most_turns(model: ReadableNetwork, strings: NDArray[np.uint8]) -> int:
    """How often the MLP turns over the input range of one position, the largest number among those that matter."""
    most = 0
    for low, high in _ranges(model, strings):
        y = model.curve(torch.linspace(low, high, POINTS).to(model.up.weight))
        most = max(most, turning_points(y.numpy()))
    return most


@torch.no_grad()
def _ranges(model: ReadableNetwork, strings: NDArray[np.uint8]) -> list[tuple[float, float]]:
    """The MLP's inputs at each position that matters, whose contribution varies at least a tenth as much as any."""
    z = model.attended(torch.from_numpy(strings))  # [string, position]
    spread = (model.readout.weight[0] * model.curve(z)).std(dim=0)
    matter = torch.nonzero(spread >= MATTERS * spread.max()).flatten().tolist()
    return [(float(z[:, place].min()), float(z[:, place].max())) for place in matter]


def turning_points(y: Sequence[float] | NDArray[np.floating[Any]], prominent: float = PROMINENT) -> int:
    """How often a curve turns, not counting bends of less than this part of its range.

    >>> turning_points([0, 1, 0, 1]), turning_points([0, 0.5, 0.49, 1]), turning_points([1, 1])
    (2, 0, 0)
    """
    heights = [float(each) for each in y]
    least = prominent * (max(heights) - min(heights))
    turns, way, low, high = 0, 0, heights[0], heights[0]
    for height in heights:
        if way != -1:
            high = max(high, height)
            if high - height > least:  # below the highest point since it began to rise
                turns, way, low = turns + (way == 1), -1, height
        if way != 1:
            low = min(low, height)
            if height - low > least:
                turns, way, high = turns + (way == -1), 1, height
    return turns


def counted_columns(outcome: lab.Outcome, degree: int) -> lab.Row:
    """The columns of a network's row that judges use."""
    has_row = [bool(rows) for rows in outcome["rows"]]
    pairs = zip(outcome["learned"], outcome["coefficients"], strict=True)
    learned = [coefficient >= LEARNED * wanted for coefficient, wanted in pairs]
    shown = [each for each, has in zip(has_row, learned, strict=True) if has]
    loss = outcome["train_loss"]
    return {
        "converged": loss is not None and loss < GOAL,
        "found": has_row,
        "has": learned,
        "share": float(np.mean(shown)) if shown else 0.0,
        "shown": sum(shown) > len(shown) / 2,
        "largest_only": int(has_row[0] and not has_row[-1]),
        "smallest_only": int(has_row[-1] and not has_row[0]),
        "oscillates": outcome["turns"] >= degree - 1,
        "oscillates_now_only": int(outcome["turns"] >= degree - 1 > outcome["turns_at_start"]),
        "oscillated_at_start_only": int(outcome["turns_at_start"] >= degree - 1 > outcome["turns"]),
    }


# ---------------------------------------------------------------- claims

CONVERGED = f"networks below a loss of {GOAL:g}"


def _share(column: str, words: str) -> lab.Quantity:
    """The share of networks with this column true, among those that were trained to the end."""
    return quantities.share(words, lambda row: row[column], unit="networks").where(CONVERGED, converged=True)


def _more_often(words: str, first: str, second: str) -> lab.Criterion:
    """One of two columns is true more often than the other, among networks that were trained to the end."""
    rows = (CONVERGED, lambda row: row["converged"])
    return quantities.more_often(words, first, second, rows=rows, unit="networks")


def judge_chance(table: lab.Rows) -> lab.Judgement:
    """Parities are found more often than in permuted rows."""
    converged = table.where(converged=True)
    if not converged:
        return lab.Judgement.without(f"no {CONVERGED}", "more epochs")
    by_chance = float(np.mean(converged.column("chance")))
    share = lab.bounded_mean(converged.column("share"), 0, 1)
    words = "share of a network's parities that have a row, mean"
    return lab.at_least(share, by_chance, words, f"in permuted rows {by_chance:.2g}", unit="networks")


SHOWN = _share("shown", "share of networks with rows for most of their parities")
CLAIMS = (
    lab.claim(
        "most networks have rows for their parities",
        "§ 2.4",
        "in most cases rows of the query-key matrix show the parities of the learned function",
        (SHOWN >= MOST).saying(f"share of {CONVERGED} in which most parities have a row: at least {MOST:g}"),
    ),
    lab.claim(
        "such matches are rare",
        "Fig 5, caption",
        "the caption of the same figure calls such matches rare",
        (SHOWN <= RARE).saying(f"the same share: at most {RARE:g}"),
    ),
    lab.claim(
        "the MLP oscillates",
        "§ 2.4, Figs 6, 7",
        "left open: the MLP in one dimension is shown; to compute a parity of counts it would oscillate",
        (
            (_share("oscillates", "share of networks whose MLP turns D - 1 times or more") >= MOST)
            & _more_often(
                "share that do so after the training only, of those that do so before or after, not both",
                "oscillates_now_only",
                "oscillated_at_start_only",
            )
        ).saying(
            f"share of {CONVERGED} whose MLP turns D - 1 times or more over what one position is given: at least "
            f"{MOST:g}; and more of them than before the training"
        ),
        exploratory=True,
    ),
    lab.Claim(
        "rows match parities by more than chance",
        "§ 2.4",
        "not stated: there is no null model",
        "share of a network's parities that have a row, averaged: at least that of permuted rows",
        judge_chance,
        exploratory=True,
    ),
    lab.claim(
        "the smallest coefficient is the least visible",
        "§ 2.4, of Fig 5",
        "the parity with the smallest coefficient is less identifiable (stated for one network)",
        _more_often(
            "share with a row for the largest only, of those with a row for one of both",
            "largest_only",
            "smallest_only",
        ).saying(
            f"of {CONVERGED} with a row for one of the largest and the smallest coefficient only: at least half for "
            "the largest"
        ),
        exploratory=True,
    ),
)


# ---------------------------------------------------------------- figures


def figure_of_attention(table: lab.Rows, title: str) -> lab.Figure:
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
                "position that attends",
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


def figure_of_curves(table: lab.Rows, title: str) -> lab.Figure:
    """The MLPs as functions of one variable, their turning points, and how many parities have a row."""
    converged = table.where(converged=True)
    curves = [
        lab.Series(f"seed {row['seed']}: {row['turns']} turning points", row["z"], row["y"]) for row in converged[:4]
    ]
    panels = [lab.Panel("", "what attention brings to a position", "output of the MLP", curves)]
    if converged:
        turns, start = converged.column("turns"), converged.column("turns_at_start")
        edges = np.arange(-0.5, max(turns + start) + 1)
        after = lab.histogram("trained", turns, edges.tolist())
        before = lab.histogram("at the start", start, edges.tolist())
        panels.append(lab.Panel("", "turning points of the MLP", "share of networks", [before, after]))
        counts = [sum(has_row) for has_row in converged.column("found")]
        edges = np.arange(-0.5, len(converged[0]["found"]) + 1)
        trained = lab.histogram("trained", counts, edges.tolist())
        permuted = lab.histogram("permuted rows", converged.pooled("by_chance"), edges.tolist())
        panels.append(lab.Panel("", "parities that have a row", "share of networks", [permuted, trained]))
    return lab.Figure("curves", title, f"Networks below a loss of {GOAL:g}.", panels, columns=3, where="Figs 6, 7")


# ---------------------------------------------------------------- the study


class ReadTheWeights(lab.Study):
    """Whether parities can be read from the weights of networks that learned them."""

    name, paper, figures = "read-the-weights", "002", ("Fig 5", "Figs 6, 7")
    title = "Parities read off the weights of small networks"
    scales = lab.scales(
        "{networks} networks of {hidden} neurons, T = {length}, {sparsity} parities of degree {degree}, {samples} "
        "strings, at most {epochs} epochs",
        common={"first_seed": 0},
        smoke=(0.1, {"networks": 2, "length": 5, "degree": 2, "sparsity": 2, "samples": 64, "epochs": 2, "hidden": 8}),
        laptop=(8, {"networks": 48, "length": 20, "degree": 3, "sparsity": 3, "samples": 8_192, "epochs": 150}
                | {"hidden": 32}),
        paper=(100, {"networks": 100, "length": 20, "degree": 3, "sparsity": 3, "samples": 8_192, "epochs": 1_000}
               | {"hidden": 32}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("functions", "a few, chosen to be shown", "all of the first seeds, of one class", "to count them"),
        ("a row shows a parity", "bright spots, by eye", "its D largest entries are the set", "no numbers are given"),
        ("matrix", "query-key product", "the same, averaged over the bits of both positions", "bits have channels"),
        ("most, rare", "both are said, § 2.4 and Fig 5", f"share at least {MOST:g}, at most {RARE:g}", "not stated"),
        (
            "parities of its function",
            "of the learned one",
            f"those for which it has {LEARNED:g} of the coefficient",
            "not stated",
        ),
        (
            "oscillates",
            "seen in the figure",
            f"D - 1 turns, each over {PROMINENT:g} of the range, at one position",
            "as parities do",
        ),
        ("query and key", "just over 1000 parameters", "a matrix each, and one vector of values: 1108", "not stated"),
        (
            "learning rate",
            "lost",
            "4e-3, AdamW, weight decay 1e-4, batch 256",
            "of the authors' other runs; 2e-3 did not learn in 60 epochs, 5e-3 and 1e-2 were tried",
        ),
        ("training", "until the loss is below 0.02", "the same, or so many epochs: counted", "computing time"),
        ("networks, epochs (laptop)", "not stated; 100, 1,000 (paper scale)", "48, 150", "to take minutes"),
    )
    claims = CLAIMS

    def trials(self, scale: str) -> list[Readable]:
        plan = dict(self.scales[scale].settings)
        first, networks = plan.pop("first_seed"), plan.pop("networks")
        return [Readable(seed, **plan) for seed in range(first, first + networks)]

    def row(self, trial: Readable, outcome: lab.Outcome) -> lab.Row:
        return {**super().row(trial, outcome), **counted_columns(outcome, trial.degree)}

    def provenance(self, table: lab.Rows) -> list[str]:
        done = table.where(converged=True)
        has, with_row = (sum(map(sum, done.column(name))) for name in ("has", "found"))
        both = sum(sum(map(min, row["has"], row["found"])) for row in done)
        total = sum(map(len, done.column("found")))
        ranks = [rank for row in done for rank in row["ranks"]]
        return [
            f"{len(done)} of {len(table)} networks came below a loss of {GOAL:g}; the others are in no share",
            f"of their {total} parities {has} were learned, {with_row} have a row, {both} both; "
            f"{sum(rank <= 0.05 for rank in ranks)} are seen better than 95 % of all sets",
            f"by attention averaged over strings, in place of the matrix, {sum(map(sum, done.column('by_attention')))} "
            "have a row",
        ]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return [figure_of_attention(table, self.title), figure_of_curves(table, self.title)]


STUDY = ReadTheWeights()
