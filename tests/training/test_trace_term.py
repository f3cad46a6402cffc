"""The trace penalty of the low-sharpness learner: unbiased, differentiable, and it flattens what is trained."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from flipscope.basics.errors import InputError
from flipscope.models import Transformer, hardness
from flipscope.probes.curvature import curvature
from flipscope.training.fit import fit
from flipscope.training.named import Around
from flipscope.training.targets import Aim
from flipscope.training.terms import trace

BITS = np.random.default_rng(0).integers(0, 2, (24, 5), np.uint8)
LABELS = (BITS.sum(axis=1) % 2).astype(np.uint8)


@dataclasses.dataclass
class Data:
    bits: np.ndarray
    labels: np.ndarray


def around() -> Around:
    return Around(Aim("mse"), "bits", 5, [], lambda count, stream: None)


def batch(model: nn.Module) -> tuple[tuple[Tensor, Tensor], Tensor]:
    inputs = torch.from_numpy(BITS)
    return (inputs, torch.from_numpy(2.0 * LABELS - 1)), model(inputs)


def exact(model: nn.Module, of: str) -> float:
    name = "trace" if of == "hessian" else "gauss_newton"
    found = getattr(curvature(model, "mse", (BITS, 2.0 * LABELS - 1), what=name, method="exact"), name)  # type: ignore[arg-type]
    return float(found.value.value)


@pytest.mark.parametrize("of", ["hessian", "gauss_newton"])
def test_the_term_is_the_trace_on_average(of: str) -> None:
    model = Transformer(hardness(5, width=4, heads=2), seed=1, dtype=torch.float64)
    term = trace(around(), of=of, probes=4)
    torch.manual_seed(0)
    found = [float(term(model, *batch(model)).detach()) for _ in range(36)]
    reach = 4.5 * float(np.std(found)) / 6
    assert abs(float(np.mean(found)) - exact(model, of)) < reach


@pytest.mark.parametrize("of", ["hessian", "gauss_newton"])
def test_its_gradient_is_that_of_the_same_signs(of: str) -> None:
    model = Transformer(hardness(5, width=4, heads=2), seed=1, dtype=torch.float64)
    term, weight = trace(around(), of=of), model.get_parameter("blocks.0.mlp.up.weight")

    def value() -> Tensor:
        torch.manual_seed(3)
        return term(model, *batch(model))

    slope = torch.autograd.grad(value(), weight)[0]
    direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    step, sides = 1e-5, []
    for side in (1, -1):
        weight.data += side * step * direction
        sides.append(float(value().detach()))
        weight.data -= side * step * direction
    assert float((slope * direction).sum()) == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-5, abs=1e-7)


def test_a_training_with_the_term_ends_flatter() -> None:
    ends = []
    for strength in (0.0, 0.02):
        model = Transformer(hardness(5, width=8), seed=1)
        term = trace(around(), of="gauss_newton")
        terms = [lambda *given, s=strength, t=term: s * t(*given)] if strength else []
        fit(
            model, Data(BITS, LABELS), Data(BITS, LABELS), learning_rate=3e-3, batch=24, loss="mse", terms=terms,
            max_steps=60, max_epochs=None, decay_after=None, stop_after=None, restore="last",
        )  # fmt: skip
        ends.append(exact(model, "gauss_newton"))
    assert ends[1] < 0.7 * ends[0]


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="of='fisher'"):
        trace(around(), of="fisher")
    with pytest.raises(InputError, match="probes must be"):
        trace(around(), probes=0)


def test_sam_of_another_package_trains_our_models() -> None:
    optimisers = pytest.importorskip("pytorch_optimizer", reason="the extra optim is not installed")
    model = Transformer(hardness(5, width=8), seed=1)
    inputs, targets = torch.from_numpy(BITS), torch.from_numpy(2.0 * LABELS - 1).float()
    stepper = optimisers.SAM(model.parameters(), torch.optim.AdamW, rho=0.05, lr=3e-3)
    losses = []
    for _ in range(30):
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        stepper.first_step(zero_grad=True)
        nn.functional.mse_loss(model(inputs), targets).backward()
        stepper.second_step(zero_grad=True)
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]
