"""The table of flatness under a rescaling that leaves the function alone: which rows move, and which do not."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flipscope.basics.errors import InputError
from flipscope.models import Transformer, hardness
from flipscope.probes.flatness import Flatness, flatness, rescale

BITS = np.random.default_rng(0).integers(0, 2, (12, 5))
LABELS = 2.0 * (BITS.sum(axis=1) % 2) - 1


def numbers(rows: list[Flatness]) -> dict[str, float]:
    return {row.name: row.number for row in rows}


@pytest.mark.parametrize("factor", [0.3, 3.0])
@pytest.mark.parametrize("kind", ["mlp", "transformer"])
def test_a_rescaling_moves_just_the_rows_that_say_so(kind: str, factor: float) -> None:
    # Sharper paper, App. D: (U, b, F) -> (aU, ab, F/a).
    torch.manual_seed(0)
    if kind == "mlp":
        model: nn.Module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)).double()
        maps = ("0", "2")
    else:
        model, maps = (
            Transformer(hardness(5, width=8), seed=1, dtype=torch.float64),
            ("blocks.0.mlp.up", "blocks.0.mlp.down"),
        )
    same = copy.deepcopy(model)
    rescale(same.get_submodule(maps[0]), same.get_submodule(maps[1]), factor)
    options: dict[str, Any] = {"draws": 20, "adaptive_rho": 0.05, "probes": 12}
    before, after = (flatness(each, "mse", (BITS, LABELS), **options) for each in (model, same))
    assert [row.name for row in before] == [row.name for row in after]
    for row, moved in zip(before, after, strict=True):
        change = abs(moved.number / row.number - 1)
        assert (change > 1e-3) is row.rescaled, (row.name, change)
        assert change < 1e-4 or row.rescaled
        assert set(row.as_json()) == {"name", "value", "rescaled", "what"}


def test_a_function_of_ones_own_sees_the_outputs_as_they_are() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)).double()

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        assert outputs.shape == targets.shape == (12, 1)
        return F.mse_loss(outputs, targets)

    own = numbers(flatness(model, loss, (BITS, LABELS[:, None]), draws=5))
    named = numbers(flatness(model, "mse", (BITS, LABELS), draws=5))
    assert own == pytest.approx(named, rel=1e-6)


def test_bad_rescalings_and_data() -> None:
    one = nn.Linear(1, 1)
    for factor in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="factor="):
            rescale(one, one, factor)
    with pytest.raises(InputError, match="ReLU has no weight"):
        rescale(nn.ReLU(), one, 2.0)
    with pytest.raises(InputError, match="data must be 2 values"):
        flatness(one, "mse", [(BITS, LABELS)])  # type: ignore[arg-type]
