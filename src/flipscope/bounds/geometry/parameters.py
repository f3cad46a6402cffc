"""Paper 000 on recognisers whose parameters are close: Lem 3.1 and Prop 3.5.

The paper proves that C_Lip exists; its value is derived here. Move the parameters along a straight line, so that the
constants must hold on the convex hull of Theta (`Constants.over`, `Constants.cube`), and let a dot be the derivative.
With ||y_w'|| (dotted) <= delta at every position, the head's output (Eq 8c) changes by the mean of V y and by the
covariance, under the attention weights, of V y with the change of the logits, whose spread and that of y bound it:

    ||c'|| <= v (1 + 2 k R^2) delta + R ||V'|| + s v R^3 (||Q|| ||K'|| + ||K|| ||Q'||),      s the logit scale.

No length enters. (The paper goes by the Euclidean Lipschitz constant of softmax, which is 1/2 and not 1/4, and which a
change of all N logits meets with a factor sqrt(N); the covariance does without.) The MLP (Eq 10) adds ||W2|| ||W1||
times that, and ||W2|| (||W1'|| V R + ||phi1'||) + ||W2'|| (||W1|| V R + ||phi1||) + ||phi2'|| with V = sum_heads v; the
layer norm (Eq 13) multiplies by no more than 1/sqrt(eps), and the read-out (Eq 14) by ||w||.
"""

from __future__ import annotations

import math

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, check_not_negative, check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.geometry.constants import Constants, LayerConstants


@checked_arguments
def lipschitz_bound(constants: Constants) -> float:
    """Lem 3.1: C_Lip with |T(theta, x) - T(theta', x)| <= C_Lip ||theta - theta'||, for all strings of all lengths.

    Infinite if eps is 0. Both parameter vectors must be in the set that the constants are for.
    """
    if not constants.eps:
        return math.inf
    norm = constants.norm_lipschitz
    behind = constants.readout * norm  # the largest change of T per change of d in this layer
    total = constants.radii[-1] ** 2 + 1  # of w and omega
    for layer, radius in zip(reversed(constants.layers), reversed(constants.radii[:-1]), strict=True):
        total += (behind * _weights(layer, radius, constants.scale)) ** 2
        behind *= norm * (1 + layer.mlp * _carried(layer, radius))
    return math.sqrt(total)


@checked_arguments
def log2_function_count(lipschitz: float, diameter: float, margin: float, parameters: int) -> float:
    """Prop 3.5: log2 of (1 + C_Lip diam(Theta) / margin)^M, which |F_N| cannot exceed at any length.

    The formula is the paper's. It says something only where 2^N, log2 of the number of all functions, is larger.
    """
    if not lipschitz >= 0:
        raise InputError(f"lipschitz={lipschitz} must be at least 0")
    check_not_negative("diameter", diameter)
    check_count("parameters", parameters)
    return parameters * math.log1p(lipschitz * diameter / check_positive("margin", margin)) / math.log(2)


@checked_arguments
def cube_diameter(radius: float, parameters: int) -> float:
    """diam(Theta) of Eq 26 for Theta = [-radius, radius]^M: 2 radius sqrt(M)."""
    return 2 * check_positive("radius", radius) * math.sqrt(check_count("parameters", parameters))


def _carried(layer: LayerConstants, radius: float) -> float:
    """How much heads multiply a change of all their inputs."""
    return sum(v * (1 + 2 * k * radius**2) for v, k in zip(layer.value, layer.score, strict=True))


def _weights(layer: LayerConstants, radius: float, scale: float) -> float:
    """How much d changes at most when the layer's parameters move by a unit vector (Cauchy and Schwarz)."""
    mixed = sum(layer.value) * radius  # a bound on the heads' outputs
    squares = 1 + layer.down**2 * (1 + mixed**2) + (layer.up * mixed + layer.up_bias) ** 2  # phi2, phi1 and W1, W2
    for key, query, value in zip(layer.key, layer.query, layer.value, strict=True):
        squares += (layer.mlp * radius) ** 2 * (1 + (scale * value * radius**2) ** 2 * (query**2 + key**2))
    return math.sqrt(squares)
