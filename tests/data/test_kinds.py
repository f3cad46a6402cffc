"""Kinds of data: what is drawn, what it is labelled with, and that a recipe holds it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch

from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.cube.expression import parse
from flipscope.data.batches import Drawn, Examples
from flipscope.data.lengths import FAMILIES, START, LengthsData, prefix_values
from flipscope.data.real import RealData
from flipscope.data.real_functions import RealFunction
from flipscope.data.tables import TableData, completed_table, random_table, table_text
from flipscope.models import TransformerConfig, hardness
from flipscope.models.seq2seq_config import Seq2SeqConfig
from flipscope.training.protocol import TrainingProtocol
from flipscope.training.recipe import Recipe

PROTOCOL = TrainingProtocol(
    batch=16,
    learning_rate=0.01,
    loss="mse",
    labels="bits",
    max_steps=4,
    epoch_steps=2,
    stop_after=None,
    max_epochs=None,
)
CUBE = index_bits(0, 64, 6)
EVERY = TransformerConfig(width=8, layers=1, heads=1, marker="none", readout="every", causal=True)

CASES: list[tuple[Any, Any]] = [
    (RealData(function="mean", length=6, validation=20), hardness(6, 8)),
    (RealData(function="0.6 * (x1 ^ x2) + 0.8 * x3", length=6, train=30, validation=20), hardness(6, 8)),
    (TableData(table=random_table(6, 3), length=6), hardness(6, 8)),
    (TableData(table=random_table(6, 3), length=6, subset=20, order="shuffled"), hardness(6, 8)),
    (LengthsData(function="majority", length=6, shortest=2), hardness(6, 8)),
    (LengthsData(function="parity", length=6, answer="prefixes"), EVERY),
    (LengthsData(function="parity", length=6, shortest=3, answer="scratchpad"), Seq2SeqConfig(length=6, width=8)),
]


@pytest.mark.parametrize(("data", "model"), CASES)
def test_every_kind_is_json_and_trains_the_same_again(data: Any, model: Any) -> None:
    recipe = Recipe(data=data, model=model, protocol=PROTOCOL, seed=1)
    again = Recipe.from_json(json.loads(json.dumps(recipe.as_json())))
    assert again == recipe
    assert again.digest == recipe.digest
    assert {again, recipe} == {recipe}
    assert dataclasses.replace(recipe, seed=2).digest != recipe.digest
    one, two = recipe.train(), again.train()
    assert one.fitted.steps == 4
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(a, b)
    for each, other in zip(one.history, two.history, strict=True):
        assert dataclasses.replace(each, seconds=0) == dataclasses.replace(other, seconds=0)


def test_kinds_have_digests_of_their_own() -> None:
    recipes = [Recipe(data=data, model=model, protocol=PROTOCOL) for data, model in CASES]
    assert len({recipe.digest for recipe in recipes}) == len(CASES)


# ---------------------------------------------------------------- real-valued functions


def test_real_functions() -> None:
    assert np.allclose(RealFunction("mean", 6)(CUBE), CUBE.mean(axis=1))
    f = RealFunction("0.5 * maj(x1, x2, x3) + -2e-1 * (x4 ^ x5) + 1e+1 * x6", 6)
    wanted = 0.5 * (CUBE[:, :3].sum(axis=1) > 1) - 0.2 * (CUBE[:, 3] ^ CUBE[:, 4]) + 10.0 * CUBE[:, 5]
    assert np.allclose(f(CUBE), wanted, atol=1e-6)
    assert f(CUBE).dtype == np.float32


def test_real_data_is_labelled_by_its_function() -> None:
    data = RealData(function="mean", length=12, train=40, validation=10, seed=5)
    train, [validation] = data.source(16, 2, 0), data.validation_sets()
    assert isinstance(train, Examples)
    assert (len(train.bits), len(validation.bits)) == (40, 10)
    assert np.allclose(train.labels, train.bits.mean(axis=1))
    assert not {row.tobytes() for row in train.bits} & {row.tobytes() for row in validation.bits}
    fresh = dataclasses.replace(data, train=None).source(16, 2, 0)
    batches = list(fresh)  # type: ignore[call-overload]
    assert [bits.shape for bits, _ in batches] == [(16, 12)] * 2
    assert all(np.allclose(labels, bits.mean(axis=1)) for bits, labels in batches)


# ---------------------------------------------------------------- tables


def test_a_table_is_what_it_was_made_of() -> None:
    f = parse("maj(x1..x3) ^ x6", 6)
    data = TableData(table=table_text(f), length=6)
    assert np.array_equal(data.values(), f(CUBE))
    known = data.strings()
    assert np.array_equal(known.bits, CUBE)
    assert np.array_equal(known.labels, f(CUBE))
    assert data.table == table_text(f.table())
    assert TableData(table=table_text([0, 1]), length=1).values().tolist() == [0, 1]


def test_a_subset_is_drawn_once() -> None:
    data = TableData(table=random_table(6, 0), length=6, subset=500, replacement=True, seed=2)
    rows = data.rows()
    assert np.array_equal(rows, data.rows())
    assert len(set(rows.tolist())) <= 64 < len(rows)  # with replacement: some come twice
    other = TableData(table=data.table, length=6, subset=50, seed=2)
    assert len(set(other.rows().tolist())) == 50, "distinct unless said otherwise"
    assert np.array_equal(other.strings().labels, other.values()[other.rows()])
    assert data.validation_sets()[0].bits.shape == (500, 6)
    assert not np.array_equal(dataclasses.replace(data, seed=3).rows(), rows)
    small = dataclasses.replace(data, subset=3)
    [(bits, labels), _] = list(small.source(40, 2, 1))  # type: ignore[call-overload]
    chosen = {row.tobytes() for row in small.strings().bits}
    assert bits.shape == (40, 6)
    assert {row.tobytes() for row in bits} <= chosen
    index = bits.astype(int) @ (1 << np.arange(6))
    assert np.array_equal(labels, small.values()[index])


def test_a_random_completion_keeps_the_labels_that_were_trained_on() -> None:
    data = TableData(table=random_table(8, 0), length=8, subset=60, seed=2)
    other = dataclasses.replace(data, table=completed_table(data, 5))
    rows = data.rows()
    assert np.array_equal(other.values()[rows], data.values()[rows])
    rest = np.setdiff1d(np.arange(256), rows)
    assert 0.3 < (other.values()[rest] != data.values()[rest]).mean() < 0.7
    assert completed_table(data, 6) != other.table


# ---------------------------------------------------------------- lengths and positions


@pytest.mark.parametrize("name", FAMILIES)
def test_prefixes_are_the_function_of_each_prefix(name: str) -> None:
    found = prefix_values(name, CUBE)
    for n in range(1, 7):
        wanted = CUBE[:, :n].mean(axis=1) if name == "mean" else parse(f"{name}({n})", n)(CUBE[:, :n])
        assert np.allclose(found[:, n - 1], wanted)


def test_every_length_comes_and_a_batch_has_one() -> None:
    data = LengthsData(function="parity", length=7, shortest=4, validation=40)
    source = data.source(8, 200, 3)
    assert isinstance(source, Drawn)
    lengths = [bits.shape[1] for bits, _ in source]
    counts = [lengths.count(n) for n in (4, 5, 6, 7)]
    assert sum(counts) == 200
    assert min(counts) > 25
    assert [each.bits.shape for each in data.validation_sets()] == [(10, n) for n in (4, 5, 6, 7)]
    assert all(np.array_equal(each.labels, each.bits.sum(axis=1) % 2) for each in data.validation_sets())


def test_a_scratchpad_shows_what_was_to_be_written_before() -> None:
    data = LengthsData(function="parity", length=5, answer="scratchpad")
    bits = CUBE[:, :5]
    found = data.examples(bits)
    assert np.array_equal(found.labels, np.cumsum(bits, axis=1) % 2)
    assert np.array_equal(found.bits[:, :5], bits)
    assert (found.bits[:, 5] == START).all()
    assert np.array_equal(found.bits[:, 6:], found.labels[:, :-1])


def test_a_source_goes_on_where_it_was() -> None:
    data = LengthsData(function="majority", length=9, shortest=3)
    straight, first, second = (data.source(8, 4, 3) for _ in range(3))
    assert isinstance(straight, Drawn)
    assert isinstance(first, Drawn)
    assert isinstance(second, Drawn)
    whole = [*straight, *straight]
    pass_ = iter(first)
    seen = [next(pass_) for _ in range(3)]
    second.resume(json.loads(json.dumps(first.state())))
    rest = [*second, *second]
    for (a, _), (b, _) in zip(whole, [*seen, *rest], strict=True):
        assert np.array_equal(a, b)
    assert straight.fingerprint() == first.fingerprint()
    other = dataclasses.replace(data, function="parity").source(8, 4, 3)
    assert isinstance(other, Drawn)
    assert other.fingerprint() != straight.fingerprint()


# ---------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RealData(function="median", length=4), "is no real-valued function"),
        (lambda: RealData(function="0.5 * x1 + x2", length=4), "is no real-valued function"),
        (lambda: RealData(function="mean", length=4, train=0), "train must be"),
        (lambda: TableData(table="zz", length=3), "hexadecimal"),
        (lambda: TableData(table="ff", length=4), "1 bytes, and 4 bits have 16 labels"),
        (lambda: TableData(table="ff", length=3, subset=9), "do not exist"),
        (lambda: TableData(table="ff", length=3, order="none"), "order='none'"),  # type: ignore[arg-type]
        (lambda: table_text([0, 1, 1]), "2\\^n values"),
        (lambda: random_table(30, 0), "at most 20 bits"),
        (lambda: LengthsData(function="tribes", length=4), "not one of parity, majority"),
        (lambda: LengthsData(function="parity", length=4, shortest=5), "shortest=5"),
        (lambda: LengthsData(function="mean", length=4, answer="scratchpad"), "the mean is no bit"),
        (
            lambda: Recipe(data=CASES[4][0], model=hardness(5, 8), protocol=PROTOCOL),
            "6 bits, and the model positions for 5",
        ),
        (lambda: Recipe(data=CASES[5][0], model=hardness(6, 8), protocol=PROTOCOL), "for each position"),
        (lambda: Recipe(data=CASES[6][0], model=hardness(6, 8), protocol=PROTOCOL), "the model reads bits, not tokens"),
        (lambda: Recipe(data=CASES[0][0], model=Seq2SeqConfig(length=6), protocol=PROTOCOL), "writes a scratchpad"),
        (lambda: Recipe(data=CASES[6][0], model=Seq2SeqConfig(length=5), protocol=PROTOCOL), "positions for 5"),
        (lambda: Recipe.from_json({"data": {"kind": "other"}, "protocol": {}}), "no kind of data"),
    ],
)
def test_bad_kinds_are_one_sentence(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
