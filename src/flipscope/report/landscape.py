"""The loss around a model: its picture, and its page on the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from flipscope.lab.figures import Figure, Panel, Rule, Series
from flipscope.probes.landscape import Landscape
from flipscope.report.models import facts, note, panel
from flipscope.report.terminal import MAX_ROWS, histogram

_CAPTION = (
    "Loss at offsets along random directions, normalised by filter: at offset 1 every unit has moved by its own size."
)


def landscape_figure(found: Landscape, function: str, loss: str) -> Figure:
    """Lines for slices of one dimension, a heatmap for a plane.

    >>> flat = Landscape(1, np.array([-1.0, 0.0, 1.0]), np.array([[4.0, 0.0, 4.0]]), 0.0, 1, 1)
    >>> landscape_figure(flat, "x1", "mse").panels[0].y_label
    'mse'
    """
    title = f"Loss around a model of {function}"
    return Figure(
        "landscape", title, _CAPTION, [_plane(found, loss) if found.dimensions == 2 else _lines(found, loss)], 1
    )


def landscape_page(found: Landscape, name: str, function: str, loss: str, notes: Sequence[str] = ()) -> RenderableType:
    """The page of ``flipscope landscape``."""
    finite = found.losses[np.isfinite(found.losses)]
    ends = f"{finite.min():.4g}, {finite.max():.4g}" if finite.size else "none is a number"
    kind = "a plane" if found.dimensions == 2 else f"{len(found.losses)} lines"
    rows = [
        (loss, f"{found.loss:.4g} on {function}, unmoved"),
        ("smallest, largest", f"{ends} on {kind}, offsets to {found.offsets[-1]:g}"),
        ("parameters", f"{found.parameters:,}"),
        ("strings", f"{found.strings:,}"),
    ]
    distance, means = _by_distance(found)
    step = math.ceil(len(distance) / MAX_ROWS)
    table = [(f"{a:.3g}", f"{m:.4g}", m) for a, m in zip(distance[::step], means[::step], strict=True)]
    told = note("Mean loss at each distance from the model, in units of the weights' own size.")
    return panel(
        name, [facts(rows), Text(), histogram("offset", f"mean {loss}", table), Text(), told, *map(note, notes)]
    )


def _by_distance(found: Landscape) -> tuple[list[float], list[float]]:
    """The mean loss on both sides of all lines, or on the axes of the plane, by distance from the model."""
    half = len(found.offsets) // 2
    lines = found.losses if found.dimensions == 1 else np.stack([found.losses[half], found.losses[:, half]])
    both = np.stack([lines[:, half:], lines[:, half::-1]])  # [side, line, distance]
    kept = [(float(a), both[..., k]) for k, a in enumerate(found.offsets[half:])]
    numbers = [(a, values[np.isfinite(values)]) for a, values in kept]
    told = [(a, float(values.mean())) for a, values in numbers if values.size]
    return [a for a, _ in told], [mean for _, mean in told]


def _lines(found: Landscape, loss: str) -> Panel:
    series = [
        Series(f"direction {number + 1}", found.offsets.tolist(), _numbers(row))
        for number, row in enumerate(found.losses)
    ]
    return Panel("", "offset", loss, series, rules=[Rule(0.0, "the model", "x")])


def _plane(found: Landscape, loss: str) -> Panel:
    first, second = np.meshgrid(found.offsets, found.offsets, indexing="ij")
    values = _numbers(found.losses.ravel())
    finite = [each for each in values if each is not None]
    # A basin with steep walls is clear on a linear scale; powers are for losses of different sizes everywhere.
    log = bool(finite) and min(finite) > 0 and max(finite) > 100 * float(np.quantile(finite, 0.1))
    if finite and not log:
        # Four digits of the largest: the least loss is 0 to the eye, and should be in the legend.
        digits = 3 - math.floor(math.log10(max(finite) or 1.0))
        values = [None if each is None else round(each, digits) for each in values]
    cells = Series("", first.ravel().tolist(), second.ravel().tolist(), "cells", values=values)
    return Panel("", "offset, direction 1", "offset, direction 2", [cells], value_label=loss, value_log=log)


def _numbers(values: np.ndarray) -> list[float | None]:
    return [float(each) if math.isfinite(each) else None for each in values]
