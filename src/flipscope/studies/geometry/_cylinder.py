"""The cylinder of Fig 2: the biases that leave a variance small, as points to count and, for D = 3, as a picture."""

from __future__ import annotations

import itertools
import math

import numpy as np
from jaxtyping import Float64

import flipscope.lab as lab

TURN, TILT = math.radians(-60), math.radians(20)  # where the picture is seen from: square to the cylinder's axis


def in_cylinder(
    stream: np.random.Generator, count: int, centre: Float64[np.ndarray, " width"], kappa: float, rho: float
) -> Float64[np.ndarray, "count width"]:
    """Points z = v + s (1, ..., 1), uniform where ||P(z + centre)|| < kappa and the mean s is in [-rho, rho].

    The part T of the cylinder (Eq 60) that the cube [-rho, rho]^D can meet: |s|, the mean of a point, is at most its
    largest coordinate. It has length 2 rho sqrt(D) and volume 2 rho sqrt(D) V_(D-1) kappa^(D-1), so that

        P(variance(centre + Z) < kappa^2 / D) = (volume of T / (2 rho)^D) P(a point of T is in the cube),

    the first factor being the corrected bound of Lem E.2: a count of points, however rare the event.
    """
    width = len(centre)
    normal = stream.standard_normal((count, width))
    normal -= normal.mean(axis=1, keepdims=True)
    radius = kappa * stream.random((count, 1)) ** (1 / (width - 1))
    ball: Float64[np.ndarray, "count width"] = radius * normal / np.linalg.norm(normal, axis=1, keepdims=True)
    return ball - (centre - centre.mean()) + stream.uniform(-rho, rho, (count, 1))  # type: ignore[no-any-return]


def picture(rows: lab.Rows, at: str) -> lab.Figure:
    """The figure of rows with points of the cylinder, each of a centre and a size."""
    names = {"zero": "y = 0", "random": "y at random"}
    panels = [_panel(names[row["centre"]], np.array(row["points"]), row["size"]) for row in rows]
    caption = "Biases of small variance are a cylinder along (1, 1, 1); its part in the cube is their probability."
    return lab.Figure("cylinder", f"Where the variance is small: {at}", caption, panels, where="Fig 2")


def _panel(title: str, points: Float64[np.ndarray, "point 3"], rho: float) -> lab.Panel:
    """The cube and points of the cylinder, those in the cube apart."""
    corners = rho * np.array(list(itertools.product((-1.0, 1.0), repeat=3)))
    edges = [pair for pair in itertools.combinations(corners, 2) if np.count_nonzero(pair[0] != pair[1]) == 1]
    x, y = _seen(np.concatenate([np.stack((*pair, pair[1])) for pair in edges]))
    gaps = [None if place % 3 == 2 else float(value) for place, value in enumerate(y)]
    series = [lab.Series("cube of biases", x.tolist(), gaps)]
    inside = (np.abs(points) <= rho).all(axis=1)
    for label, chosen in (("small variance, in the cube", inside), ("cylinder outside the cube", ~inside)):
        across, up = _seen(points[chosen])
        series.append(lab.Series(label, across.tolist(), up.tolist(), "points"))
    end = 2.0 * rho
    return lab.Panel(title, "", "", series, x_range=(-end, end), y_range=(-end, end))


def _seen(points: Float64[np.ndarray, "point 3"]) -> Float64[np.ndarray, "2 point"]:
    """Points of three dimensions on the plane of the picture."""
    right = np.array([-math.sin(TURN), math.cos(TURN), 0.0])
    up = np.array([-math.sin(TILT) * math.cos(TURN), -math.sin(TILT) * math.sin(TURN), math.cos(TILT)])
    return np.stack((points @ right, points @ up))
