"""The example that trains a small ViT with and without the penalty: its parts, on a fraction of the data."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from flipscope.basics.estimates import Estimate

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "low_sensitivity_digits.py"
    spec = importlib.util.spec_from_file_location("low_sensitivity_digits", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_pairs_start_alike_and_only_the_loss_differs(example: ModuleType) -> None:
    digits = example.Digits.load(1_700)  # 97 to train on
    assert tuple(digits.train[0].shape) == (97, 1, 8, 8)
    assert (digits.train[0].min(), digits.train[0].max()) == (-1, 1)
    tiny = replace(example.QUICK, width=8, max_epochs=1)
    weights = {}
    for name, plan, penalised in (
        ("plain", tiny, False),
        ("penalised", tiny, True),
        ("without strength", replace(tiny, strength=0.0), True),
    ):
        model, epochs = example.trained(plan, digits, 100, penalised)
        assert epochs == 1
        weights[name] = torch.cat([each.detach().flatten() for each in model.parameters()])
    assert torch.equal(weights["without strength"], weights["plain"])
    assert not torch.equal(weights["penalised"], weights["plain"])


def test_training_stops_at_the_goal(example: ModuleType) -> None:
    digits = example.Digits.load(1_700)
    plan = replace(example.QUICK, width=8, goal=0.0, max_epochs=5)
    assert example.trained(plan, digits, 100, True)[1] == 1
    found = example.outcome(replace(plan, goal=1.0, max_epochs=2), digits, 100, False)
    assert (found.epochs, found.penalised) == (2, False)
    assert 0 <= found.sensitivity.low <= found.sensitivity.high <= 1


def test_differences_are_paired_by_seed(example: ModuleType) -> None:
    values = {(0, False): 0.5, (0, True): 0.3, (1, False): 0.9, (1, True): 0.6, (2, False): 0.1, (2, True): 0.0}
    outcomes = [
        example.Outcome(seed, penalised, 1, 1.0, 1.0, Estimate(value, 0.0, 1.0, 0.95, 1), 0.0)
        for (seed, penalised), value in values.items()
    ]
    found = example.paired(outcomes, "sensitivity")
    assert found.value == pytest.approx(-0.2)
    assert found.high - found.value == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-5)  # Student's, two degrees
