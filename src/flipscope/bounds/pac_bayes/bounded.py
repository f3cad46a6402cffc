"""PAC-Bayes bounds for losses in [0, largest], beside Alquier's: McAllester's, as Maurer has it, and Catoni's."""

from __future__ import annotations

import math

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_not_negative, check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.pac_bayes.checks import check_delta, check_samples


@checked_arguments
def mcallester_bound(loss: float, divergence: float, samples: int, delta: float = 0.05, largest: float = 1.0) -> float:
    """E L <= E L^ + largest sqrt((KL + log(2 sqrt(m) / delta)) / 2m), for all posteriors at once.

    >>> round(mcallester_bound(0.0, 10.0, 10_000), 4)
    0.0302
    """
    check_samples(samples)
    root = math.sqrt(
        (check_not_negative("divergence", divergence) + math.log(2 * math.sqrt(samples) / check_delta(delta)))
        / (2 * samples)
    )
    return _checked_loss(loss, largest) + largest * root


@checked_arguments
def catoni_bound(
    loss: float, divergence: float, samples: int, beta: float, delta: float = 0.05, largest: float = 1.0
) -> float:
    """E L <= largest (1 - exp(-beta E L^ / largest - (KL + log 1/delta) / m)) / (1 - exp(-beta)), beta chosen before.

    >>> round(catoni_bound(0.0, 10.0, 10_000, 0.05), 4)
    0.0266
    """
    check_samples(samples)
    check_positive("beta", beta)
    share = _checked_loss(loss, largest) / largest
    cost = (check_not_negative("divergence", divergence) + math.log(1 / check_delta(delta))) / samples
    return largest * math.expm1(-beta * share - cost) / math.expm1(-beta)


def _checked_loss(loss: float, largest: float) -> float:
    check_positive("largest", largest)
    if not 0 <= loss <= largest:
        raise InputError(f"loss={loss} must lie between 0 and largest={largest}")
    return loss
