from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from flipscope.data.token_sets import TokenSets
from flipscope.models.token_attention import TokenAttention
from flipscope.probes.tokens import token_sensitivity

TOKENS = torch.tensor([[0, 3, 3, 5], [1, 6, 2, 0]])


def test_it_is_equation_3() -> None:
    model = TokenAttention(vocabulary=7, length=4, width=3, std=1.0, seed=3)
    for tokens, logit in zip(TOKENS, model(TOKENS), strict=True):
        x = one_hot(tokens, 7).float()
        weights = torch.softmax(x @ model.query.weight @ model.key.weight.T @ x.T, dim=1)
        torch.testing.assert_close(logit, (model.head * (weights @ x @ model.value.weight)).sum())


def test_alignment_is_the_mean_cosine_of_rows() -> None:
    sets = TokenSets(1, 3, 1, 2, 8, length=6)
    directions = torch.from_numpy(sets.directions()).float()
    model = TokenAttention(vocabulary=8, length=6, width=8, seed=1)
    with torch.no_grad():
        model.value.weight.copy_(torch.eye(8))
        model.head.copy_(directions[1].expand(6, 8))
        torch.testing.assert_close(model.alignment(directions), torch.tensor([0.0, 1.0, 0.0]))
        model.head[:3] *= -2.0  # half of the rows point the other way
        torch.testing.assert_close(model.alignment(directions), torch.zeros(3))


def test_numbers_at_the_start() -> None:
    model = TokenAttention(vocabulary=60, length=50, width=64, std=0.1, seed=1)
    for parameter in model.parameters():
        assert 0.09 < float(parameter.detach().std()) < 0.11
    assert not torch.equal(model.head, TokenAttention(vocabulary=60, length=50, width=64, std=0.1, seed=2).head)


def test_a_linear_predictor_has_the_sensitivity_that_counting_gives() -> None:
    """With even attention the logit is a mean over tokens; every token of some sequences is replaced by every other."""
    sets = TokenSets(1, 5, 3, 4, 14, length=10)
    model = TokenAttention(vocabulary=14, length=10, width=14, seed=0)
    sparse, frequent, _ = sets.directions()
    gains = frequent - 1.5 * sparse
    with torch.no_grad():
        model.query.weight.zero_()
        model.value.weight.copy_(torch.eye(14))
        model.head.copy_(torch.from_numpy(gains).float().expand(10, 14))
    tokens = sets.draw(300, np.random.default_rng(0)).bits
    logits = gains[tokens].sum(axis=1)
    replaced = logits[:, None, None] - gains[tokens][..., None] + gains  # [string, position, new token]
    wanted = (np.sign(replaced) != np.sign(logits)[:, None, None]).mean()
    found = token_sensitivity(model, torch.from_numpy(tokens), how="replace", vocabulary=14, draws=10)
    assert 0.1 < wanted < 0.2
    assert found.definition.value == pytest.approx(wanted, abs=0.006)
