"""Slices of the loss: a closed form, what filter normalisation does, and bad input."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from flipscope.adapters.movable_parameters import MovableParameters
from flipscope.adapters.parameters import chosen
from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.bounds.pac_bayes import posterior_bound
from flipscope.models import Transformer, hardness, initialise
from flipscope.probes.landscape import Landscape, _direction, landscape
from flipscope.probes.sharpness import sharpness
from flipscope.report.drawing import render

CUBE = index_bits(0, 16, 4)


def network(seed: int = 0) -> nn.Sequential:
    return initialise(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)), "gaussian", seed)


def test_a_linear_map_has_a_parabola() -> None:
    model = initialise(nn.Linear(4, 1), "gaussian", 1).double()
    targets = model(torch.tensor(CUBE).double()).detach()
    found = landscape(model, CUBE, targets, points=11, reach=0.5, directions=4)
    assert found.losses.shape == (4, 11)
    assert found.offsets.tolist() == pytest.approx(np.linspace(-0.5, 0.5, 11).tolist())
    curvature = found.losses[:, -1] / 0.25
    assert found.losses == pytest.approx(curvature[:, None] * found.offsets**2, rel=1e-5, abs=1e-12)
    assert found.losses[:, 5] == pytest.approx(np.full(4, found.loss), abs=1e-15)
    assert len(set(curvature)) == 4


def test_rows_have_the_length_of_the_weights_and_vectors_stay() -> None:
    model = network()
    moving = MovableParameters(chosen(model))
    parts = _direction(moving, "filter", 3, 0).split([each.numel() for each in moving.parameters])
    for name, part, parameter in zip(moving.names, parts, moving.parameters, strict=True):
        if name.endswith("bias"):
            assert not part.any()
        else:
            rows: Tensor = part.view_as(parameter)
            assert rows.norm(dim=1).tolist() == pytest.approx(parameter.detach().norm(dim=1).tolist(), rel=1e-5)
    assert float(_direction(moving, "none", 3, 0).norm()) == pytest.approx(1)


def test_slices_do_not_see_how_relu_layers_share_their_scale() -> None:
    model = network().double()
    scaled = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in scaled.named_parameters():
            parameter *= 4 if name.startswith("0") else 1 / 4 if name == "2.weight" else 1
    first, second = (landscape(each, CUBE, np.zeros(16), points=5) for each in (model, scaled))
    assert second.losses == pytest.approx(first.losses, rel=1e-4)
    plain, other = (landscape(each, CUBE, np.zeros(16), points=5, normalise="none") for each in (model, scaled))
    assert other.losses != pytest.approx(plain.losses, rel=1e-2)


def test_the_axes_of_a_plane_are_the_first_two_lines() -> None:
    model = Transformer(hardness(4, width=16), seed=1)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    lines = landscape(model, CUBE, np.zeros(16), points=7, directions=2, seed=5)
    plane = landscape(model, CUBE, np.zeros(16), points=7, dimensions=2, seed=5)
    assert plane.losses[:, 3] == pytest.approx(lines.losses[0], rel=1e-4)
    assert plane.losses[3] == pytest.approx(lines.losses[1], rel=1e-4)
    assert lines.parameters == model.count_parameters(positions=False)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


def test_lines_are_drawn_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A landscape of very many lines begins at once, and holds one of them at a time."""
    drawn: list[int] = []
    real = _direction

    def count(moving: MovableParameters, normalise: str, seed: int, number: int) -> Tensor:
        drawn.append(number)
        return real(moving, normalise, seed, number)

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("flipscope.probes.landscape._direction", count)
    with pytest.raises(KeyboardInterrupt):
        landscape(nn.Linear(2, 1), index_bits(0, 4, 2), np.ones(4), directions=50, points=3, progress=stop)
    assert drawn == [0, 1]


def test_losses_and_draws_that_no_machine_holds_are_refused() -> None:
    model, strings = nn.Linear(2, 1), index_bits(0, 4, 2)
    with pytest.raises(InputError, match=r"^the losses at .* points would take .* of memory"):
        landscape(model, strings, np.ones(4), directions=10**15, points=3)
    with pytest.raises(InputError, match=r"^what 1,000,000,000,000,000 draws do would take .* of memory"):
        sharpness(model, strings, std=0.1, draws=10**15)
    with pytest.raises(InputError, match=r"^the losses of 1,000,000,000,000,000 draws would take .* of memory"):
        posterior_bound(model, strings, np.ones(4), draws=10**15)


def test_figures_can_be_drawn_and_a_loss_that_is_no_number_is_left_out() -> None:
    model = network()
    lines = landscape(model, CUBE, np.zeros(16), points=3)
    plane = landscape(model, CUBE, np.zeros(16), points=3, dimensions=2)
    assert [each.kind for each in lines.plot(loss="mse").panels[0].series] == ["line"] * 3
    assert plane.plot(loss="mse").panels[0].series[0].values == pytest.approx(
        plane.losses.ravel(), abs=1e-3 * plane.losses.max()
    )
    for found in (lines, plane):
        assert b"<svg" in render(found.plot(loss="mse"), "svg")
    far = landscape(model, CUBE, np.zeros(16), points=3, reach=1e38)
    assert np.isnan(far.losses[:, [0, 2]]).all()
    assert far.as_json()["losses"][0] == [None, pytest.approx(far.loss), None]
    assert b"<svg" in render(far.plot(loss="mse"), "svg")
    assert isinstance(far, Landscape)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dimensions": 3}, "dimensions=3 is not one of 1, 2"),
        ({"points": 4}, "points=4 must be odd"),
        ({"points": 1}, "points must be a whole number of at least 3"),
        ({"reach": 0}, "reach=0 must be"),
        ({"reach": math.inf}, "reach=inf must be"),
        ({"directions": 0}, "directions must be"),
        ({"normalise": "layer"}, "normalise='layer'"),
        ({"parameters": "*.bias"}, "only biases and gains"),
        ({"parameters": "no"}, "matches none"),
        ({"targets": np.zeros(3)}, "targets of shape"),
        ({"targets": None}, "targets must be a torch tensor"),
    ],
)
def test_bad_input_is_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    options: dict[str, Any] = {"targets": np.zeros(16), **changes}
    with pytest.raises(InputError, match=sentence):
        landscape(network(), CUBE, **options)
