from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from studies.harness import smoke_run

from flipscope.basics.bits import index_bits
from flipscope.cube.fourier_sums import FourierSum
from flipscope.lab import Rows
from flipscope.models.readable_network import ReadableNetwork, ReadableNetworkConfig
from flipscope.studies.sharper.read_the_weights import (
    STUDY,
    Readable,
    coefficients_of,
    curve_of,
    read_weights,
    target_of,
    turning_points,
)

MOST, RARE, OSCILLATES, CHANCE, SMALLEST = STUDY.claims


def _row(seed: int, found: tuple[bool, ...], *, loss: float = 0.01, turns: int = 3, **other: Any) -> dict[str, Any]:
    outcome = {
        "train_loss": loss,
        "coefficients": [0.8, 0.5, 0.3],
        "learned": [0.8, 0.5, 0.3],
        "rows": [[1] if each else [] for each in found],
        "ranks": [0.001 if each else 0.5 for each in found],
        "chance": 0.0174,
        "by_attention": list(found),
        "turns": turns,
        "turns_at_start": 0,
    }
    return STUDY.row(Readable(seed, 20, 3, 3, 8_192, 100), {**outcome, **other})


def _rows(count: int, *found: bool, **other: Any) -> list[dict[str, Any]]:
    return [_row(seed, found, **other) for seed in range(count)]


ALL, TWO, ONE, NONE = (True, True, True), (True, True, False), (True, False, False), (False, False, False)


def test_most_or_rare() -> None:
    for rows, most, rare in (
        (_rows(20, *TWO), "reproduced", "contradicted"),
        (_rows(20, *NONE), "contradicted", "reproduced"),
        (_rows(40, *ONE) + _rows(20, *ALL), "contradicted", "undecided"),
        (_rows(12, *NONE) + _rows(8, *ALL), "undecided", "undecided"),
        (_rows(60, *NONE) + _rows(40, *ALL), "undecided", "contradicted"),
        (_rows(2, *ALL), "undecided", "undecided"),
    ):
        assert (MOST.judge(Rows(rows)).verdict, RARE.judge(Rows(rows)).verdict) == (most, rare)


def test_networks_that_did_not_learn_are_counted_and_say_nothing() -> None:
    table = Rows(_rows(20, *ALL) + _rows(30, *NONE, loss=0.2))
    assert MOST.judge(table).verdict == "reproduced"
    failed = Rows(_rows(20, *ALL, loss=0.2))
    assert {claim.judge(failed).verdict for claim in STUDY.claims} == {"undecided"}
    assert "20 of 50" in STUDY.provenance(table)[0]


def test_a_parity_that_was_not_learned_is_not_asked_for() -> None:
    row = _row(0, ONE, learned=[0.8, 0.1, 0.1])
    assert (row["has"], row["share"], row["shown"]) == ([True, False, False], 1.0, True)
    none = _row(0, NONE, learned=[0.0, 0.0, 0.0])
    assert (none["share"], none["shown"]) == (0.0, False)


def test_oscillation() -> None:
    assert OSCILLATES.judge(Rows(_rows(20, *NONE, turns=2))).verdict == "reproduced"
    assert OSCILLATES.judge(Rows(_rows(20, *ALL, turns=1))).verdict == "contradicted"
    assert OSCILLATES.judge(Rows(_rows(5, *ALL, turns=1) + _rows(5, *ALL, turns=2))).verdict == "undecided"
    before = Rows(_rows(20, *ALL, turns_at_start=3))
    assert OSCILLATES.judge(before).verdict == "undecided"  # networks that were not trained do it, too
    mixed = Rows(_rows(20, *ALL, turns_at_start=3) + _rows(12, *ALL))
    assert OSCILLATES.judge(mixed).verdict == "reproduced"


def test_chance() -> None:
    assert CHANCE.judge(Rows(_rows(20, *ONE))).verdict == "reproduced"
    assert CHANCE.judge(Rows(_rows(20, *NONE))).verdict == "undecided"
    assert CHANCE.judge(Rows(_rows(400, *NONE))).verdict == "contradicted"


def test_the_smallest_coefficient() -> None:
    last = (False, False, True)
    assert SMALLEST.judge(Rows(_rows(20, *ONE) + _rows(2, *last))).verdict == "reproduced"
    assert SMALLEST.judge(Rows(_rows(2, *ONE) + _rows(20, *last))).verdict == "contradicted"
    assert SMALLEST.judge(Rows(_rows(20, *ALL))).verdict == "undecided"


@pytest.mark.parametrize(
    ("curve", "turns"),
    [([0, 1, 2], 0), ([0, 1, 0], 1), ([1, 0, 1, 0.97, 1.2], 1), ([0, 3, 1, 2, 0, 3], 4), ([2, 2, 1, 1, 2, 2], 1)],
)
def test_turning_points(curve: list[float], turns: int) -> None:
    assert turning_points(curve) == turning_points(curve[::-1]) == turning_points([-y for y in curve]) == turns


def _by_hand() -> tuple[ReadableNetwork, FourierSum]:
    """x1 + x2 mod 2 by a network whose first position attends to the first two: z = 0, 1/2, 1."""
    network = ReadableNetwork(ReadableNetworkConfig(length=4, hidden=3)).double()
    with torch.no_grad():
        for each in network.parameters():
            each.zero_()
        network.query.weight.copy_(torch.eye(6))
        network.key.weight[0, :2] = 40.0
        network.value.weight[0, 5] = 1.0
        network.up.weight[:, 0] = 1.0
        network.up.bias.copy_(torch.tensor([0.0, -0.5, 0.0]))
        network.down.weight[0].copy_(torch.tensor([-2.0, 4.0, 0.0]))
        network.down.bias.fill_(1.0)
        network.readout.weight[0, 0] = 0.8
    return network, FourierSum(4, ((0, 1), (2, 3)), (0.8, 0.6))


def test_weights_written_down_are_read() -> None:
    network, f = _by_hand()
    bits = index_bits(0, 16, 4)
    np.testing.assert_allclose(network(torch.from_numpy(bits)).detach(), 0.8 * f.indicators(bits)[:, 0], atol=1e-6)
    found = read_weights(network, f, bits)
    assert found["rows"] == [[0], []]
    np.testing.assert_allclose(found["learned"], [0.8, 0.0], atol=1e-6)
    assert found["turns"] == 1
    assert found["by_attention"] == [True, False]
    assert coefficients_of(network, [(0, 1, 2)], bits) == pytest.approx([0.0], abs=1e-6)
    few = bits[[0, 1, 3, 5, 6, 10, 12, 15]]  # no mean of these is that of all strings
    np.testing.assert_allclose(coefficients_of(network, f.sets, few), [0.8, 0.0], atol=1e-6)
    z, _ = curve_of(network, bits)
    assert (z[0], z[-1]) == pytest.approx((0.0, 1.0), abs=1e-6)


def test_smoke() -> None:
    table, judged, figures = smoke_run(STUDY)
    assert len(table) == 2
    assert {judgement.verdict for _, judgement in judged} == {"undecided"}
    assert len(figures) == 2
    assert len(STUDY.provenance(table)) == 3
    assert target_of(STUDY.trials("laptop")[0]).degree == 3
    assert len(STUDY.checked_trials("paper")) == 100
