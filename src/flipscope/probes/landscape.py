"""Slices of the loss around a model: along random directions, or on the plane of two.

Directions are normalised by filter (Li et al., "Visualizing the loss landscape of neural nets", 2018): in every matrix
the part of each row, the weights into one output unit or the vector of one symbol, gets the length of the row itself.
Offset 1 then moves every unit by its own size, so slices of different models can be compared. Parameters without rows
(biases, gains of norms) stay fixed, as in that paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float32, Float64
from torch import Tensor, nn

from flipscope.adapters.inputs import Inputs
from flipscope.adapters.movable_parameters import MovableParameters
from flipscope.adapters.parameters import Choice, chosen
from flipscope.adapters.settled import as_settled
from flipscope.adapters.subject import Model
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, check_positive
from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_memory
from flipscope.basics.progress import Progress
from flipscope.basics.seeds import Seed, seed_number
from flipscope.basics.wording import count_text
from flipscope.figures import Figure, Panel, Rule, Series
from flipscope.figures.results import Result
from flipscope.probes.asking import Loss, as_loss, asked

_CAPTION = (
    "Loss at offsets along random directions, normalised by filter: at offset 1 every unit has moved by its own size."
)


@dataclass(frozen=True, eq=False, repr=False)
class Landscape(Result):
    """Losses around a model; `losses` is [direction, point] for lines and [first, second] for a plane.

    A loss that is NaN or infinite is NaN. The model itself is at offset 0, which is always one of the points.
    """

    dimensions: Literal[1, 2]
    offsets: Float64[np.ndarray, " point"]
    losses: Float64[np.ndarray, "row point"]
    loss: float  # of the model itself
    parameters: int  # number of moving parameters
    strings: int

    def summary(self) -> dict[str, object]:
        """The main numbers by label."""
        finite = self.losses[np.isfinite(self.losses)]
        kind = "a plane" if self.dimensions == 2 else count_text(len(self.losses), "line")
        return {
            "loss": f"{self.loss:.4g}, on {count_text(self.strings, 'string')}",
            "around it": f"{finite.min():.4g} to {finite.max():.4g}" if finite.size else "no number",
            "slice": f"{kind}, offsets to {self.offsets[-1]:g}, {self.parameters:,} parameters move",
        }

    def plot(self, title: str = "Loss around a model", loss: str = "loss") -> Figure:
        """Lines for slices of one dimension, a heatmap for a plane.

        >>> flat = Landscape(1, np.array([-1.0, 0.0, 1.0]), np.array([[4.0, 0.0, 4.0]]), 0.0, 1, 1)
        >>> flat.plot(loss="mse").panels[0].y_label
        'mse'
        """
        panel = _plane(self, loss) if self.dimensions == 2 else _lines(self, loss)
        return Figure("landscape", title, _CAPTION, [panel], columns=1)

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object; null is a loss that is not a number."""
        return {
            "dimensions": self.dimensions,
            "offsets": self.offsets.tolist(),
            "losses": [[each if math.isfinite(each) else None for each in row] for row in self.losses.tolist()],
            "loss": self.loss,
            "parameters": self.parameters,
            "strings": self.strings,
        }


@checked_arguments
def landscape(
    model: Model,
    inputs: Inputs,
    targets: Tensor | np.ndarray,
    *,
    dimensions: Literal[1, 2] = 1,
    directions: int = 3,
    points: int | None = None,
    reach: float = 1.0,
    normalise: Literal["filter", "none"] = "filter",
    parameters: Choice = None,
    seed: Seed = 0,
    loss: Loss = "mse",
    forward: Callable[..., Any] | None = None,
    progress: Progress | None = None,
) -> Landscape:
    """The loss at offsets from -reach to reach along random directions, or on the plane of two of them.

    `points` per axis is odd (default 41 on a line, 21 on a plane). normalise="none" uses Gaussian directions of length
    1 for all parameters, including vectors. `parameters`, `loss` and the following arguments are as in
    `flipscope.sharpness`.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> model.weight.data[:] = 2.0
    >>> landscape(model, np.array([[1]]), np.array([2.0]), points=3, directions=1).losses.tolist()  # (2 +- 2 - 2)^2
    [[4.0, 0.0, 4.0]]
    """
    if dimensions not in (1, 2):
        raise InputError(f"dimensions={dimensions!r} must be 1 or 2")
    if normalise not in ("filter", "none"):
        raise InputError(f"normalise={normalise!r} is not one of filter, none")
    check_positive("reach", reach)
    count = check_count("points", (41 if dimensions == 1 else 21) if points is None else points, 3)
    if count % 2 == 0:
        raise InputError(f"points={count} must be odd, for the model itself to be one of them")
    settled = as_settled(model, native=forward is not None)
    moving = MovableParameters(chosen(settled.needed_module("a landscape is of the parameters of"), parameters))
    moving.check_size("reach", float(reach))
    number = seed_number(seed)
    many = 2 if dimensions == 2 else check_count("directions", directions)
    rows = many if dimensions == 1 else count
    check_memory(8 * (rows + 1) * count, f"the losses at {rows * count:,} points", "give fewer")
    axes = [_direction(moving, normalise, number, k) for k in range(dimensions)]  # on lines, those after when needed
    half = count // 2
    offsets = np.arange(-half, half + 1) * (float(reach) / half)
    losses = np.empty((rows, count))
    with asked(settled, inputs, forward) as (asking, before), moving:
        scorer = as_loss(loss, targets, before)
        own = float(scorer(before))
        for place in range(losses.size):
            row, column = divmod(place, count)
            if dimensions == 1:
                if row and not column:
                    moving.to(None)  # directions are scaled by the model's own rows
                    axes = [_direction(moving, normalise, number, row)]
                moving.to(axes[0], float(offsets[column]))
            else:
                moving.to(axes[0] * float(offsets[row]) + axes[1] * float(offsets[column]))
            if place == 0:
                moving.check_moved("reach", float(reach))
            found = float(scorer(asking.outputs()))
            losses[row, column] = found if math.isfinite(found) else math.nan
            if progress is not None:
                progress(place + 1, losses.size)
    return Landscape(dimensions, offsets, losses, own, moving.count, asking.strings)


def _direction(moving: MovableParameters, normalise: str, seed: int, number: int) -> Float32[Tensor, " number"]:
    """A random direction in the order of the moving parameters."""
    stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
    normals = torch.from_numpy(stream.standard_normal(moving.count, dtype=np.float32))
    if normalise == "none":
        return normals / float(normals.norm())
    parts = normals.split([parameter.numel() for parameter in moving.parameters])
    if all(parameter.ndim < 2 for parameter in moving.parameters):
        raise InputError("only biases and gains were chosen, which filter normalisation leaves alone: choose matrices")
    return torch.cat([_by_filter(part, each) for part, each in zip(parts, moving.parameters, strict=True)])


def _by_filter(part: Float32[Tensor, " number"], parameter: nn.Parameter) -> Float32[Tensor, " number"]:
    """The direction of one parameter, each row as long as the parameter's own; 0 if it has no rows."""
    if parameter.ndim < 2 or not parameter.numel():
        return torch.zeros_like(part)
    rows = part.view(len(parameter), -1)
    own = parameter.detach().float().cpu().reshape(len(parameter), -1)
    lengths: Tensor = own.norm(dim=1) / rows.norm(dim=1)
    return (rows * lengths[:, None]).flatten()


# ---------------------------------------------------------------- the picture


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
    # A linear scale shows a basin with steep walls well; a logarithmic one is for losses of very different sizes.
    log = bool(finite) and min(finite) > 0 and max(finite) > 100 * float(np.quantile(finite, 0.1))
    if finite and not log:
        # Four digits of the largest: the least loss is 0 to the eye, and should be in the legend.
        digits = 3 - math.floor(math.log10(max(finite) or 1.0))
        values = [None if each is None else round(each, digits) for each in values]
    cells = Series("", first.ravel().tolist(), second.ravel().tolist(), "cells", values=values)
    return Panel("", "offset, direction 1", "offset, direction 2", [cells], value_label=loss, value_log=log)


def _numbers(values: np.ndarray) -> list[float | None]:
    return [float(each) if math.isfinite(each) else None for each in values]
