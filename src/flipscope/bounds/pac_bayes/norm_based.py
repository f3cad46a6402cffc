"""Covering-number bounds for the Fourier construction's norms, as in paper 003, with which E.3 compares.

The paper converts each Frobenius bound of Thm 10 by ||A||_{2,1} <= sqrt(columns) ||A||_F and puts them into a bound
that falls like sqrt(log / m). Its formula (12) is lost; what is left of it is its value, about 1.01 for T = 20, D = 2,
omega = 10 and 10^6 samples. `edelman_template` has the shape of such bounds with constant 1, which is not the published
constant; `edelman_cover` is a theorem, with all constants, for networks of this shape.
"""

from __future__ import annotations

import math

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_positive, check_probability
from flipscope.bounds.covering import Cover, MatrixNorms, chained_bound, input_factor
from flipscope.bounds.covering.attention import SOFTMAX
from flipscope.bounds.covering.covers import Map
from flipscope.bounds.pac_bayes.construction import check_class, norm_blocks
from flipscope.bounds.pac_bayes.inequalities import check_samples

PRINTED = 1.01  # what the paper has for (13)


def template_norms(sparsity: int, degree: int, length: int) -> dict[str, float]:
    """||A||_{2,1} of each parameter, from its Frobenius norm (E.3.2).

    >>> round(template_norms(10, 2, 20)["down"], 6)
    48.0
    """
    check_class(sparsity, degree, length)
    width, neurons = length + 2, 4 * (degree + 1)
    columns = {"down": neurons, "bias": 1, "read_value": 1}
    blocks = norm_blocks(sparsity, degree, length)
    return {name: math.sqrt(columns.get(name, width) * square) for name, square in blocks.items()}


@checked_arguments
def edelman_template(sparsity: int, degree: int, length: int, samples: int, constant: float = 1.0) -> float:
    """constant sqrt((sum_i beta_i^(2/3))^3 log(m T d) / m), beta_i the (2,1) norms: not the published constant.

    >>> round(edelman_template(10, 2, 20, 1_000_000), 4)
    2.7183
    """
    check_samples(samples)
    check_positive("constant", constant)
    total = math.fsum(each ** (2 / 3) for each in template_norms(sparsity, degree, length).values()) ** 3
    return constant * math.sqrt(total * math.log(samples * length * (length + 2)) / samples)


def printed_constant() -> float:
    """The constant with which the template has the paper's value of (13): 1.01 at T = 20, D = 2, omega = 10, m = 10^6.

    >>> round(printed_constant(), 3)
    0.372
    """
    return PRINTED / edelman_template(10, 2, 20, 1_000_000)


@checked_arguments
def edelman_cover(sparsity: int, degree: int, length: int) -> Cover:
    """A cover of all networks of the construction's shape and at most its norms, cut back to the ball of sqrt(2).

    The inputs of each attention layer have norm at most sqrt(2), as in the construction (Thm 11): those of the first
    layer by themselves, and the MLP's outputs by projection onto that ball, as in paper 003.
    """
    check_class(sparsity, degree, length)
    size = {name: math.sqrt(square) for name, square in norm_blocks(sparsity, degree, length).items()}
    width, neurons = length + 2, 4 * (degree + 1)
    inner = math.hypot(size["up"], size["bias"])  # of [U b], applied to (a, 1)
    radius = math.sqrt(2)
    brought = size["value"] * radius  # |a|
    seen = math.hypot(brought, 1.0)
    read = input_factor(size["read_value"], size["read_query_key"], radius=radius)  # from M to the output
    carried = read * size["down"] * size["up"]  # from a to the output
    score, reading = (SOFTMAX * size[name] * radius**2 for name in ("value", "read_value"))

    def one(what: str, norm: float, outputs: int, radius: float, weight: float, once: bool = False) -> Map:
        norms = MatrixNorms(outputs, norm, norm, math.sqrt(outputs) * norm)
        return Map(what, norms, math.log(radius), math.log(weight), once)

    maps = (
        one("W_1", size["query_key"], width, radius, carried * score),
        one("V_1", size["value"], width, radius, carried),
        one("[U b]", inner, neurons, seen, read * size["down"]),
        one("F", size["down"], width, inner * seen, read),
        one("W_2", size["read_query_key"], width, radius, reading),
        one("v", size["read_value"], 1, radius, 1.0, once=True),
    )
    return Cover(maps, math.log(size["read_value"] * radius))


@checked_arguments
def edelman_bound(sparsity: int, degree: int, length: int, samples: int, delta: float = 0.05) -> float:
    """An upper bound on the gap of the squared error for the networks of `edelman_cover`, by A.2 and A.4 of paper 003.

    Targets of the class lie in [0, sqrt(omega)].

    >>> edelman_bound(10, 2, 20, 1_000_000) > 1_000  # all constants counted it says nothing for a long time
    True
    """
    check_samples(samples)
    cover = edelman_cover(sparsity, degree, length)
    most = cover.largest + math.sqrt(sparsity)  # |f - y|
    log_samples = math.log(samples)
    return chained_bound(
        lambda log_eps: cover.log_size(log_eps, log_samples, length),
        log_samples,
        largest=cover.largest,
        loss_range=most**2,
        lipschitz=2 * most,
        log_failures=-math.log(check_probability("delta", delta)),
    )
