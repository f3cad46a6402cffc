from __future__ import annotations

import pytest
import torch

from flipscope.basics.errors import InputError
from flipscope.models.addition_network import AdditionNetwork

PAIRS = torch.tensor([[0, 3], [4, 1], [2, 2], [3, 0]])


def test_tables_give_what_the_vectors_give() -> None:
    model = AdditionNetwork(5, width=12, heads=3, hidden=20, seed=2)
    with torch.no_grad():
        model.position.normal_(generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(PAIRS), model.read(model.vectors(PAIRS)))


def test_attention_at_the_last_token_by_its_definition() -> None:
    model = AdditionNetwork(5, width=12, heads=3, hidden=20, seed=2)
    (vectors,) = model.vectors(PAIRS[:1])
    parts = []
    for head in range(3):
        rows = slice(4 * head, 4 * head + 4)
        query, key, value = (each.weight[rows] for each in (model.query, model.key, model.value))
        weights = ((vectors @ key.T) @ (query @ vectors[2]) / 2.0).softmax(dim=0)
        parts.append(weights @ (vectors @ value.T))
    hidden = torch.relu(model.up.weight @ (model.output.weight @ torch.cat(parts)) + model.up.bias)
    expected = model.head.weight @ (model.down.weight @ hidden + model.down.bias)
    torch.testing.assert_close(model(PAIRS[:1])[0], expected)


def test_it_starts_symmetric_in_both_numbers() -> None:
    """Positions start at 0, so that a pair and its mirror image have the same logits."""
    logits = AdditionNetwork(5, width=8, heads=2, hidden=16)(PAIRS)
    torch.testing.assert_close(logits[0], logits[3])


def test_the_seed_gives_the_weights() -> None:
    first, again, other = (AdditionNetwork(5, width=8, heads=2, hidden=16, seed=seed).symbol for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    wide = AdditionNetwork(50, width=64)
    assert 0.95 < float(wide.symbol.detach().std()) < 1.05
    assert not wide.position.any()


def test_heads_divide_the_width() -> None:
    with pytest.raises(InputError, match="width=10 must be a multiple of heads=4"):
        AdditionNetwork(5, width=10)
