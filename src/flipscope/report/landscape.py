"""The terminal page of ``flipscope landscape``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from flipscope.probes.landscape import Landscape
from flipscope.report.models import facts, note, panel
from flipscope.report.terminal import MAX_ROWS, histogram


def landscape_page(found: Landscape, name: str, function: str, loss: str, notes: Sequence[str] = ()) -> RenderableType:
    """The page of ``flipscope landscape``."""
    finite = found.losses[np.isfinite(found.losses)]
    ends = f"{finite.min():.4g}, {finite.max():.4g}" if finite.size else "none is finite"
    kind = "a plane" if found.dimensions == 2 else f"{len(found.losses)} lines"
    rows = [
        (loss, f"{found.loss:.4g} on {function}, at the model itself"),
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
    """Distances from the model, and the mean loss at each over both sides of all lines or of the plane's axes."""
    half = len(found.offsets) // 2
    lines = found.losses if found.dimensions == 1 else np.stack([found.losses[half], found.losses[:, half]])
    both = np.stack([lines[:, half:], lines[:, half::-1]])  # [side, line, distance]
    kept = [(float(a), both[..., k]) for k, a in enumerate(found.offsets[half:])]
    numbers = [(a, values[np.isfinite(values)]) for a, values in kept]
    told = [(a, float(values.mean())) for a, values in numbers if values.size]
    return [a for a, _ in told], [mean for _, mean in told]
