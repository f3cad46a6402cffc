"""Deep networks of § 4.3: Thm A.17 and its simple form, Thm 4.6, with the errors going the way they go.

An error of layer i passes the layers after it, each of which makes it larger by Lambda_j at most, and then w:

    Lambda_j = sum over heads of L_sigma B_C B_V (1 + 2 C r_j^2 B_QK),      alpha_i = product of Lambda_j, j > i
    eps = B_w sum_i alpha_i sum over heads of (x_C + L_sigma B_C (C r_i^2 B_V x_QK + x_V)) + x_w

r_1 is B_X, r_i is 1 after a projection on the unit ball, and inputs of W_C have norm L_sigma. With C = 2, B_X = 1 and
one head the order is

    B_w^2 (1 + sum_i alpha_i^(2/3) [(d L B_C^inf)^(2/3) + (2 d L B_C B_V B_QK^inf)^(2/3) + (k L B_C B_V^inf)^(2/3)])^3

where L is L_sigma. The print has the product over j < i, B_w at the first term only, and inputs of W_C of norm 1. So
Lambda is 5 where all norms are 1, and the bound grows as 25^L: norms of at most 1 do not avoid that.

Beyond the paper: without projections r_i grows from layer to layer, the class being cut off at what its functions never
exceed; an MLP before w is one more sequence of maps, of [W b] on (x, 1); and T positions that are trained are covered
one by one, which costs T d ln(1 + 2 B_P / x_P).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, check_positive
from flipscope.bounds.covering.changes import SOFTMAX, input_factor, log_amplifications
from flipscope.bounds.covering.covers import Cover, Map, Net, log
from flipscope.bounds.covering.linear import expm
from flipscope.bounds.covering.norms import HeadNorms, MatrixNorms, NetworkNorms


@checked_arguments
def network_cover(norms: NetworkNorms, *, softmax: float = SOFTMAX, as_printed: bool = False) -> Cover:
    """Thm A.17: the cover of all networks of at most these norms; ``as_printed`` is that of the print.

    >>> unit = [network_cover(NetworkNorms.uniform(layers, 64)).log_order() for layers in (1, 2, 3, 4)]
    >>> [round(math.exp(order - unit[0])) for order in unit]
    [1, 58, 1851, 50037]
    """
    radii = [1.0] * (len(norms.layers) + 1) if as_printed else _radii(norms)
    factors = [
        log(layer_factor(heads, norms.lipschitz, radius, softmax))
        for heads, radius in zip(norms.layers, radii, strict=False)
    ]
    alphas = log_amplifications(factors, as_printed=as_printed)
    after, reads = _mlp(norms, radii[-1])  # ln of what follows the last layer, and the maps there
    weight = 0.0 if as_printed else log(norms.readout) + after
    maps = []
    for number, (heads, radius, alpha) in enumerate(zip(norms.layers, radii, alphas, strict=False), 1):
        for place, head in enumerate(heads, 1):
            name = f"layer {number}, head {place}: "
            mix = 1.0 if head.mix is None else head.mix.spectral
            passed = weight + float(alpha) + log(norms.lipschitz) + log(mix)
            score = passed + log(softmax) + log(head.value.spectral) + 2 * log(radius)
            if head.mix is not None:
                inner = 1.0 if norms.normalised or as_printed else head.value.spectral * radius
                seen = inner * (1.0 if as_printed else norms.lipschitz)
                maps.append(Map(f"{name}W_C", head.mix, log(seen), weight + float(alpha)))
            maps.append(Map(f"{name}W_Q W_K'", head.score, log(radius), score))
            maps.append(Map(f"{name}W_V", head.value, log(radius), passed))
    net = None
    if norms.trained_positions is not None and not as_printed:
        net = Net(*norms.trained_positions, weight + float(alphas[0]) + factors[0])
    return Cover((*maps, *reads), reads[-1].log_radius + log(norms.readout), net)


@checked_arguments
def layer_factor(
    heads: Sequence[HeadNorms], lipschitz: float = 1.0, radius: float = 1.0, softmax: float = SOFTMAX
) -> float:
    """Lambda: by how much a layer makes an error of its input larger at most.

    >>> layer_factor(NetworkNorms.uniform(1, 8).layers[0])
    5.0
    """
    return lipschitz * sum(
        (1.0 if head.mix is None else head.mix.spectral)
        * input_factor(head.value.spectral, head.score.spectral, radius=radius, softmax=softmax)
        for head in heads
    )


@checked_arguments
def simple_capacity(
    layers: int,
    width: int,
    eps: float,
    count: int,
    *,
    spectral: float = 1.0,
    largest: float = 1.0,
    readout: float = 1.0,
    radius: float = 1.0,
    lipschitz: float = 1.0,
    as_printed: bool = False,
) -> float:
    """Thm 4.6: the order of Thm A.17 where all spectral norms are C_2 and all rows have norm C_inf.

    ``as_printed`` is (C_2 L_sigma)^(2 L) (d B_X B_w C_inf / eps)^2 ln N, with 2 L for the exponent O(L).

    >>> simple_capacity(4, 64, 1.0, 10_100, as_printed=True) == simple_capacity(1, 64, 1.0, 10_100, as_printed=True)
    True
    """
    check_count("layers", layers)
    if as_printed:
        power = 2 * layers * (log(spectral) + log(lipschitz))
        factor = (width * radius * readout * largest / check_positive("eps", eps)) ** 2 * math.log(count)
        return expm(power + log(factor))
    norms = NetworkNorms.uniform(
        layers, width, spectral=spectral, largest=largest, readout=readout, radius=radius, lipschitz=lipschitz
    )
    return network_cover(norms).order(eps, count)


def _radii(norms: NetworkNorms) -> list[float]:
    """The largest norm of a row before each layer and after the last."""
    radii = [norms.radius]
    for heads in norms.layers:
        most = norms.lipschitz * sum(
            (1.0 if head.mix is None else head.mix.spectral) * head.value.spectral * radii[-1] for head in heads
        )
        radii.append(1.0 if norms.normalised else most)
    return radii


def _mlp(norms: NetworkNorms, radius: float) -> tuple[float, list[Map]]:
    """ln of the product of the MLP's spectral norms, and its maps with that of w, which comes last."""
    later = np.cumsum([log(each.spectral) for each in norms.mlp][::-1])[::-1]
    maps = []
    for number, each in enumerate(norms.mlp):
        rest = float(later[number + 1]) if number + 1 < len(norms.mlp) else 0.0
        seen = math.hypot(radius, 1.0)
        maps.append(Map(f"MLP layer {number + 1}", each, log(seen), log(norms.readout) + rest, once=True))
        radius = each.spectral * seen
    readout = MatrixNorms(1, norms.readout, norms.readout, norms.readout)
    return (float(later[0]) if norms.mlp else 0.0), [*maps, Map("w", readout, log(radius), 0.0, once=True)]
