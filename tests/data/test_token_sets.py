from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from flipscope.basics.errors import InputError
from flipscope.data.token_sets import FEATURES, Feature, TokenSets

SETTINGS = [
    (3, 3, 1, 6, 59),
    (3, 5, 1, 16, 59),
    (1, 7, 7, 10, 69),
    (1, 32, 7, 36, 75),
    (2, 4, 2, 5, 13),
    (1, 2, 2, 3, 9),
]


def _brute_force(sets: TokenSets, feature: Feature) -> Fraction:
    """Def 4.1 of the counting predictor: every position of some sequences replaced by every token."""
    signs = sets.directions()[FEATURES.index(feature)]
    found = sets.draw(3, np.random.default_rng(1))
    changed = 0
    for tokens, label in zip(found.bits, found.labels, strict=True):
        wanted = 1 if label else -1
        assert np.sign(signs[tokens].sum()) == wanted
        for position in range(sets.length):
            for new in range(sets.vocabulary):
                other = tokens.copy()
                other[position] = new
                changed += np.sign(signs[other].sum()) != wanted
    return Fraction(changed, 3 * sets.length * sets.vocabulary)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("feature", FEATURES)
def test_the_formula_is_the_definition(setting: tuple[int, int, int, int, int], feature: Feature) -> None:
    sets = TokenSets(*setting, length=50 if setting[1] > 20 else 14)
    assert sets.sensitivity(feature) == _brute_force(sets, feature)


def test_printed_values() -> None:
    """Tables 1 and 3, with the sizes of vocabulary that they need."""
    top = [TokenSets(3, n_f, 1, m, 59).sensitivity("frequent") for n_f, m in ((3, 6), (5, 16), (7, 28))]
    assert top == [Fraction(194, 1475), Fraction(849, 2950), Fraction(664, 1475)]
    assert [TokenSets(3, 5, 1, 16, 59).sensitivity("sparse"), TokenSets(1, 17, 7, 20, 69).sensitivity("frequent")] == [
        0,
        0,
    ]
    assert TokenSets(1, 17, 7, 20, 69).sensitivity("sparse") == Fraction(39, 1150)
    # m = 36 needs 75 tokens, and no vocabulary of that size or larger has the printed value.
    assert max(TokenSets(1, 32, 7, 36, size).sensitivity("sparse") for size in range(75, 500)) < Fraction(339, 10_000)
    with pytest.raises(InputError, match="vocabulary=74 must be at least 75"):
        TokenSets(1, 32, 7, 36, 74)


@pytest.mark.parametrize("opposed", [False, True])
def test_sequences_are_those_of_the_definition(opposed: bool) -> None:
    sets = TokenSets(2, 7, 3, 5, 20, length=12)
    found = sets.draw(200, np.random.default_rng(3), opposed=opposed)
    assert found.bits.shape == (200, 12)
    assert 60 < found.labels.sum() < 140
    groups = sets.groups()[found.bits]
    for place, count in enumerate((2, 7, 3)):
        assert ((groups == place).sum(axis=1) == count).all()
    sparse, frequent, _ = sets.directions()[:, found.bits].sum(axis=2)
    signs = np.where(found.labels, 1, -1)
    assert np.array_equal(sparse, 2 * signs * (-1 if opposed else 1))
    assert np.array_equal(frequent, 3 * signs)
    assert len(set(np.argmax(groups == 0, axis=1))) > 3  # sparse tokens are anywhere


def test_directions() -> None:
    sparse, frequent, irrelevant = TokenSets(1, 3, 1, 2, 8, length=6).directions().tolist()
    assert sparse == [1, -1, 0, 0, 0, 0, 0, 0]
    assert frequent == [0, 0, 1, -1, 1, -1, 0, 0]
    assert irrelevant == [0, 0, 0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ((1, 3, 5, 4, 20), "surplus=5 must be at most frequent=3"),
        ((10, 40, 1, 4, 20), "leave no irrelevant one in length=50"),
        ((1, 4, 1, 4, 20), "leaves no majority among 4 frequent tokens"),
        ((0, 4, 2, 4, 20), "sparse must be a whole number"),
    ],
)
def test_impossible_settings(setting: tuple[int, int, int, int, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        TokenSets(*setting)
