"""A small network is trained on a sum of few parities, and its weights are read: one training, and what they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import flipscope.lab as lab
from flipscope.basics.seeds import generators, random_strings
from flipscope.cube.fourier_sums import FourierSum, random_sum
from flipscope.data.batches import Examples
from flipscope.models.readable_network import ReadableNetwork, ReadableNetworkConfig
from flipscope.probes.components import chance, find_components, found_by_chance
from flipscope.training.fit import Epoch, Moment, fit

GOAL = 0.02  # of the mean loss in an epoch: a training ends below it, as in the paper
LEARNED = 0.5  # of its coefficient: a parity that the network has at least so much of, it has learned
PROMINENT = 0.05  # of the curve's range: a smaller bend is no turning point
POINTS = 201  # of the curve
DRAWS = 200  # of permuted rows
ATTENDED = 1_000  # strings over which attention is averaged
MATTERS = 0.1  # of the largest spread of a position's part of the answer
_STRINGS = 0x72656164  # sets the strings apart from the function, which comes from the same seed


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
        """At most."""
        return self.epochs * -(-self.samples // self.batch)


def target_of(trial: Readable) -> FourierSum:
    """The function: sets of one size, coefficients |N(0, 1)| of norm 1."""
    return random_sum(trial.length, trial.sparsity, trial.degree, seed=trial.seed)


def measured(trial: Readable, progress: lab.Progress) -> lab.Outcome:
    """The training, the components that its matrix shows, and the MLP as a curve."""
    f = target_of(trial)
    model = ReadableNetwork(ReadableNetworkConfig(length=trial.length, hidden=trial.hidden), seed=trial.seed)
    streams = generators(np.random.default_rng([trial.seed, _STRINGS]), 2)
    strings, fresh = (random_strings(stream, trial.samples, trial.length) for stream in streams)
    start = most_turns(model, fresh)
    fitted = fit(
        model,
        Examples(strings, f(strings).astype(np.float32)),
        Examples(fresh, f(fresh).astype(np.float32)),
        learning_rate=trial.lr,
        batch=trial.batch,
        seed=trial.seed,
        optimiser="adamw",
        weight_decay=trial.weight_decay,
        loss="mse",
        decay_after=None,
        stop_after=None,
        max_epochs=trial.epochs,
        restore="last",
        callback=lambda moment: _tell(moment, trial, progress),
        until=_good,
    )
    last = fitted.history[-1] if fitted.history else None
    return {
        "train_loss": None if last is None else last.train_loss,
        "loss": None if last is None else last.validation_loss,
        "steps": fitted.steps,
        "stopped": fitted.stopped,
        **seen(model, f, fresh, trial.seed),
        "turns_at_start": start,
    }


def _tell(moment: Moment, trial: Readable, progress: lab.Progress) -> None:
    progress(moment.step, trial.steps)


def _good(line: Epoch) -> bool:
    return line.train_loss < GOAL


@torch.no_grad()
def seen(model: ReadableNetwork, f: FourierSum, strings: NDArray[np.uint8], seed: int = 0) -> dict[str, Any]:
    """What the weights show of the function, its parities in the order of their coefficients."""
    order = np.argsort(-np.array(f.coefficients), kind="stable")
    sets = [f.sets[place] for place in order]
    matrix = model.query_key().double().numpy()
    found = find_components(matrix, sets)
    asked = torch.from_numpy(strings[:ATTENDED])
    attention = model.attention(asked).mean(dim=0).double().numpy()
    z, y = curve_of(model, strings)
    rows = len(matrix)
    return {
        "coefficients": [f.coefficients[place] for place in order],
        "learned": coefficients_of(model, sets, strings),
        "sets": [list(each) for each in sets],
        "rows": [list(each.rows) for each in found],
        "ranks": [each.rank for each in found],
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

    A mean of answers times signs would have the noise of the constant and of the other parities in it.
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
    """The MLP over the range of what attention brings to the positions that matter."""
    ranges = _ranges(model, strings)
    z = torch.linspace(min(low for low, _ in ranges), max(high for _, high in ranges), POINTS)
    z = z.to(model.up.weight)
    return z.numpy(), model.curve(z).numpy()


@torch.no_grad()
def most_turns(model: ReadableNetwork, strings: NDArray[np.uint8]) -> int:
    """How often the MLP turns over the range of one position, the one of most turns among those that matter."""
    found = 0
    for low, high in _ranges(model, strings):
        y = model.curve(torch.linspace(low, high, POINTS).to(model.up.weight))
        found = max(found, turning_points(y.numpy()))
    return found


@torch.no_grad()
def _ranges(model: ReadableNetwork, strings: NDArray[np.uint8]) -> list[tuple[float, float]]:
    """What the MLP is given at each position that matters: whose part of the answer varies a tenth as much as any."""
    z = model.attended(torch.from_numpy(strings))  # [string, position]
    spread = (model.readout.weight[0] * model.curve(z)).std(dim=0)
    matter = torch.nonzero(spread >= MATTERS * spread.max()).flatten().tolist()
    return [(float(z[:, place].min()), float(z[:, place].max())) for place in matter]


def turning_points(y: Sequence[float] | NDArray[np.floating[Any]], prominent: float = PROMINENT) -> int:
    """How often a curve turns, bends of less than this part of its range not counted.

    >>> turning_points([0, 1, 0, 1]), turning_points([0, 0.5, 0.49, 1]), turning_points([1, 1])
    (2, 0, 0)
    """
    heights = [float(each) for each in y]
    least = prominent * (max(heights) - min(heights))
    turns, way, low, high = 0, 0, heights[0], heights[0]
    for height in heights:
        if way != -1:
            high = max(high, height)
            if high - height > least:  # so much below the highest since it began to rise
                turns, way, low = turns + (way == 1), -1, height
        if way != 1:
            low = min(low, height)
            if height - low > least:
                turns, way, high = turns + (way == -1), 1, height
    return turns
