from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.cube.few_bits import full_table
from flipscope.cube.functions import BooleanFunction, first, parity
from flipscope.models.presets import encoder, recognizer
from flipscope.probes import prior
from flipscope.probes.prior import drawn, realised, table_number

CONFIG = recognizer(4, 1, eps=0.1)


def test_counts_are_those_of_the_models_themselves() -> None:
    found = realised(CONFIG, 3, 300, seed=2, symbols=9, margin=0.2)
    strings, expected, wide = torch.from_numpy(index_bits(0, 8, 3)), [], []
    for number in range(300):
        with torch.no_grad():
            logits = drawn(CONFIG, number, 2, symbols=9)(strings).numpy()
        expected.append(sum(1 << place for place in range(8) if logits[place] > 0))
        wide.append(bool(np.abs(logits).min() >= 0.2))
    assert found.counts.sum() == found.draws == 300
    assert dict(zip(found.tables.tolist(), found.counts.tolist(), strict=True)) == {
        table: expected.count(table) for table in set(expected)
    }
    for table, recognised, start in zip(found.tables.tolist(), found.recognised, found.first, strict=True):
        assert recognised == sum(ok for ok, own in zip(wide, expected, strict=True) if own == table)
        assert start == expected.index(table)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = realised(CONFIG, 3, 2_000, seed=1)
    monkeypatch.setattr(prior, "_BLOCK", 37)
    pieces = realised(CONFIG, 3, 2_000, seed=1)
    for name in ("tables", "counts", "recognised", "first"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(pieces, name))


def test_functions_and_complements_are_as_probable() -> None:
    found = realised(CONFIG, 2, 100_000, seed=4)
    for table in range(8):
        one, other = found.count(table), found.count(table ^ int(full_table(2)))
        assert abs(one - other) <= 5 * np.sqrt(one + other + 1)


def test_a_witness_computes_its_function() -> None:
    found = realised(recognizer(8, 2), 4, 5_000)
    for table in found.tables[[0, 5, -1]].tolist():
        f = BooleanFunction.from_table(table, 4)
        with torch.no_grad():
            logits = found.witness(f)(torch.from_numpy(index_bits(0, 16, 4)))
        assert (logits > 0).int().tolist() == f(index_bits(0, 16, 4)).tolist()


def test_what_the_loop_gives_up_is_asked_of_the_model() -> None:
    found = realised(recognizer(4, 1), 3, 200, radius=50.0)
    assert found.asked_again > 0
    for table, start in zip(found.tables.tolist(), found.first.tolist(), strict=True):
        with torch.no_grad():
            logits = drawn(recognizer(4, 1), start, radius=50.0)(torch.from_numpy(index_bits(0, 8, 3)))
        assert sum(1 << place for place in range(8) if logits[place] > 0) == table


def test_probabilities_have_intervals_also_at_zero() -> None:
    found = realised(CONFIG, 3, 1_000)
    never = found.probability(parity(3))
    assert (never.value, never.low) == (0.0, 0.0)
    assert 0 < never.high < 0.01
    constant = found.probability(0)
    assert constant.low < found.count(0) / 1_000 < constant.high
    with pytest.raises(InputError, match="none of 1,000 draws"):
        found.witness(parity(3))
    with pytest.raises(InputError, match="has 4 bits"):
        found.count(first(4))


def test_unseen_functions_are_estimated() -> None:
    few, many = (realised(recognizer(8, 2), 3, draws) for draws in (500, 50_000))
    assert few.unseen > 0
    assert len(few.tables) + few.unseen <= 256
    assert len(many.tables) > len(few.tables)


def test_table_numbers() -> None:
    assert table_number(parity(2)) == table_number(BooleanFunction.from_table(table_number(parity(2)), 2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"config": encoder(8, 1, 1)}, "it differs in"),
        ({"config": dataclasses.replace(recognizer(8), causal=True)}, "it differs in causal"),
        ({"config": recognizer(128)}, "width=128 must be from 2 to 64"),
        ({"length": 7}, "length=7 is too long"),
        ({"draws": 0}, "draws must be a whole number of at least 1"),
        ({"radius": 0.0}, "radius=0.0 must be a positive number"),
        ({"margin": -1.0}, "margin=-1.0 must be"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        realised(**{"config": CONFIG, "length": 2, "draws": 10, **settings})  # type: ignore[arg-type]
