"""§ 7.2 of paper 004 on a linear model: a perturbed input is a perturbed weight vector, of one input at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from torch import nn

from flipscope.adapters.outputs import binary_logit

INPUTS = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.5, -0.5, 2.0]])


def _model(weights: np.ndarray) -> nn.Linear:
    model = nn.Linear(weights.size, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(weights)[None])
    return model


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_a_perturbed_input_is_a_perturbed_weight_vector(seed: int, width: int) -> None:
    weights, x, change = np.random.default_rng(seed).normal(size=(3, width))
    moved = weights + (weights @ change) / (x @ x) * x
    at_input, at_weights = (
        binary_logit(_model(each)(torch.from_numpy(where)[None])).item()
        for each, where in ((weights, x + change), (moved, x))
    )
    assert at_input == pytest.approx(at_weights, rel=1e-9, abs=1e-9)


def test_it_is_another_perturbation_for_every_input() -> None:
    """The weights that answer for one perturbed input do not answer for another one."""
    weights, change = np.array([1.0, 2.0, -1.0]), np.array([0.3, -0.2, 0.1])
    moved = weights + (weights @ change) / (INPUTS[0] @ INPUTS[0]) * INPUTS[0]
    wrong = np.abs((INPUTS + change) @ weights - INPUTS @ moved)
    assert wrong[0] == pytest.approx(0, abs=1e-12)
    assert wrong[2] > 0.05


def test_flatness_does_not_follow_from_low_sensitivity() -> None:
    """ShOp of a linear model has no weights in it, however sensitive the model is; ShPred and sensitivity have."""
    stream, std = np.random.default_rng(0), 0.5
    noise = std * stream.normal(size=(200_000, 3))
    for weights in (np.array([1.0, 2.0, -1.0]), np.array([0.1, 0.0, 0.05])):
        outputs = INPUTS @ weights
        shop = np.abs(noise @ INPUTS.T).mean()  # of weights + noise less that of weights
        assert shop == pytest.approx(std * math.sqrt(2 / math.pi) * np.linalg.norm(INPUTS, axis=1).mean(), rel=0.01)
        changed = np.sign(outputs + noise @ INPUTS.T) != np.sign(outputs)
        by_weights = norm.cdf(-np.abs(outputs) / (std * np.linalg.norm(INPUTS, axis=1)))
        assert changed.mean(axis=0) == pytest.approx(by_weights, abs=0.005)
        turned = np.sign((INPUTS[:, None] + noise[:10_000]) @ weights) != np.sign(outputs)[:, None]
        by_input = norm.cdf(-np.abs(outputs) / (std * np.linalg.norm(weights)))
        assert turned.mean(axis=1) == pytest.approx(by_input, abs=0.02)
    assert 0.5 * math.sqrt(2 / math.pi) * np.linalg.norm(INPUTS, axis=1).mean() == pytest.approx(0.645405, abs=5e-7)
