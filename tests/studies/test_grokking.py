from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from studies.harness import smoke_run
from studies.traps.low_sensitivity import grokking_run

from flipscope.models.addition_network import AdditionNetwork
from flipscope.studies.low_sensitivity.grokking import CURVES, STUDY, crossing, phases, sensitivities


def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
    assert list(figures) == []  # nothing groks in 60 steps
    for row in table:
        assert row["step"] == list(range(0, 61, 10))
        assert all(len(row[name]) == 7 for name in CURVES)
        assert row["mirrored"][0] == pytest.approx(row["train"][0], abs=1)
    assert STUDY.provenance(table) == ["0 of 2 runs grokked: what follows is of these"]


def test_noise_on_both_numbers_and_on_one() -> None:
    model = AdditionNetwork(5, width=8, heads=2, hidden=16, seed=1)
    pairs = torch.cartesian_prod(torch.arange(5), torch.arange(5))
    still = torch.zeros(2, 25, 2, 8)
    with torch.no_grad():
        model.symbol *= 5  # so that answers differ
        assert sensitivities(model, pairs, still) == (0.0, 0.0)
        # Noise that turns each a into the next number changes the answers as the next number does.
        moved, following = still.clone(), torch.stack([(pairs[:, 0] + 1) % 5, pairs[:, 1]], dim=1)
        moved[:, :, 0] = model.symbol[following[:, 0]] - model.symbol[pairs[:, 0]]
        share = float((model(pairs).argmax(dim=1) != model(following).argmax(dim=1)).float().mean())
        assert share > 0
        assert sensitivities(model, pairs, moved) == pytest.approx((share, share / 2))


def test_a_crossing_does_not_favour_early_points() -> None:
    """Noise makes a falling curve cross earlier and later; on average it crosses where it does without noise."""
    stream, steps = np.random.default_rng(0), np.arange(201.0)
    found = [crossing(steps, 1 - steps / 200 + 0.1 * stream.normal(size=201), 0.5) for _ in range(200)]
    assert np.mean(found) == pytest.approx(100, abs=1.5)
    assert np.isnan(crossing(steps, np.ones(201), 0.5))


def _found(**change: Any) -> dict[str, Any]:
    return phases(grokking_run(0, **change))


def test_what_a_run_tells() -> None:
    found = _found(fall=2_500, rise=3_500)
    assert (found["memorised"], found["grokked"]) == (200, 4_000)
    assert found["lead"] == pytest.approx((3_500 - 2_500) / 4_000, abs=0.03)
    assert found["lead_new"] == pytest.approx(found["lead"], abs=0.03)
    assert found["lead_token"] == pytest.approx(found["lead"], abs=0.03)
    assert found["delay"] > 0.15  # half of 51 %, less what the shape of the curve makes of it
    assert found["apart"] == pytest.approx(1, abs=0.02)
    late = _found(fall=3_500, rise=2_500)
    assert late["lead"] == pytest.approx(-0.25, abs=0.05)


def test_a_curve_that_does_not_fall_has_no_lead() -> None:
    found = _found(low=0.05)
    assert "lead" not in found
    assert found["cleaned"] < 1 / 3


def test_a_run_that_does_not_grok_tells_nothing() -> None:
    assert _found(rise=9_999_999) == {"memorised": None, "grokked": None}


def test_figures() -> None:
    table = STUDY.summarise([])
    assert list(STUDY.draw(table)) == []
    rows = type(table)({**grokking_run(seed), **phases(grokking_run(seed))} for seed in range(2))
    curves, smoothed = STUDY.draw(rows)
    assert len(curves.panels) == 8
    assert [panel.title for panel in smoothed.panels] == ["raw", "averaged as in Fig 8"]
    raw, averaged = (panel.series[0].y for panel in smoothed.panels)
    assert np.mean(np.array(raw) > 0.75) > np.mean(np.array(averaged) > 0.75) + 0.1  # test accuracy comes later
