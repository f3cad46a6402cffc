"""Acceptance with a margin under flips (Eq 15): against a plain loop, at the margin itself, and near it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from flipscope.adapters.subject import Subject
from flipscope.basics.errors import InputError
from flipscope.models import Transformer, encoder
from flipscope.probes.sensitivity import acceptance_flips, sensitivity

Bits = NDArray[np.uint8]


def strings(count: int, length: int, seed: int = 0) -> Bits:
    return np.random.default_rng(seed).integers(0, 2, (count, length)).astype(np.uint8)


@pytest.mark.parametrize("path", ["general", "fast"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_acceptance_flips_equal_a_plain_loop(path: str, dtype: torch.dtype) -> None:
    model = Transformer(encoder(8, 2, 2, ffn_width=16), scheme="gaussian", seed=4, dtype=dtype)
    some, wide = strings(20, 7), copy.deepcopy(model).double().eval()

    @torch.no_grad()
    def logit(string: Bits) -> float:
        return float(wide(torch.from_numpy(string[None])))

    margin = 1.001 * float(np.median(np.abs([logit(string) for string in some])))

    def accepted(string: Bits) -> int:
        return 1 if logit(string) >= margin else 0 if logit(string) <= -margin else -1

    found = acceptance_flips(model, some, margin, path=path)  # type: ignore[arg-type]
    seen = set()
    for row, string in enumerate(some):
        own, flips = accepted(string), [accepted(flip) for flip in string ^ np.eye(7, dtype=np.uint8)]
        assert found.answers[row] == own
        assert found.undefined[row] == flips.count(-1)
        assert found.changed[row] == sum(flip != own for flip in flips)
        assert found.crossed[row] == sum(flip != own and -1 not in (flip, own) for flip in flips)
        assert found.decided[row] == (-1 not in (own, *flips))
        seen.add(own)
    assert len(seen) > 1
    assert found.near_ties == 0
    assert (found.crossed <= found.changed).all()
    tiny = acceptance_flips(model, some, 1e-12)
    assert tiny.decided.all()
    assert (tiny.changed == sensitivity(model, some)).all()  # a margin that nothing is within
    assert (tiny.changed == tiny.crossed).all()


def test_acceptance_counts_the_margin_itself_and_near_ties() -> None:
    whole = acceptance_flips(
        Subject(lambda bits: 2.0 * bits.sum(dim=1) - 2, output="logit"), [[0, 0], [1, 0]], margin=2
    )
    assert (whole.answers.tolist(), whole.changed.tolist(), whole.crossed.tolist()) == ([0, -1], [2, 2], [0, 0])

    class Near(nn.Module):
        """Logits as near to 1 as rounding gets."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64))

        def forward(self, bits: torch.Tensor) -> torch.Tensor:
            return bits.to(self.weight.dtype) @ self.weight

    assert acceptance_flips(Near(), [[1, 1, 1]], margin=1).near_ties >= 1
    with pytest.raises(InputError, match="margin=0 must be a positive number"):
        acceptance_flips(Near(), [[1, 1, 1]], margin=0)
    with pytest.raises(InputError, match="heuristic has no meaning"):
        acceptance_flips(Near(), [[1, 1, 1]], margin=1, heuristic=True)
    with pytest.raises(InputError, match="threshold must be a number"):
        sensitivity(Subject(Near(), threshold=(0.0, 1.0)), [[1, 1, 1]])  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    weights=st.lists(st.floats(-3, 3), min_size=1, max_size=6),
    bias=st.floats(-3, 3),
    margin=st.floats(0.01, 4),
    seed=st.integers(0, 99),
)
def test_a_change_below_twice_the_margin_never_crosses(
    weights: list[float], bias: float, margin: float, seed: int
) -> None:
    some = strings(8, len(weights), seed)
    row = torch.tensor(weights, dtype=torch.float64)
    found = acceptance_flips(lambda bits: bits.double() @ row + bias, some, margin)
    near = np.abs(weights) < 2 * margin * (1 - 1e-12)
    assert (found.crossed <= np.count_nonzero(~near)).all()  # what the proof of Thm 4.5 may use
    if near.all():
        assert not found.crossed.any()
        assert (found.changed[found.decided] == 0).all()


def test_a_change_below_twice_the_margin_may_lead_to_undefined() -> None:
    # The proof's step from |T(x) - T(x')| < 2 xi to equal acceptance: 0.9 < 2, and yet 1 becomes undefined.
    found = acceptance_flips(Subject(lambda bits: 1.0 - 0.9 * bits[:, 0], output="logit"), [[0]], margin=1)
    assert (found.answers.tolist(), found.changed.tolist(), found.crossed.tolist()) == ([1], [1], [0])
