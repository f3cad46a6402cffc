"""Names of definitions that stored files refer to."""

from __future__ import annotations

import fractions
from collections.abc import Callable
from typing import Any

import pytest

from flipscope.basics.registry import Registry, UnknownName


def double(x: float) -> float:
    return 2 * x


def half(x: float) -> float:
    return x / 2


OWN: Registry[Callable[..., Any]] = Registry("map", {"double": double}, former={"twice": "double"}, extensible=True)
CLOSED: Registry[Callable[..., Any]] = Registry("map", {"double": double})


@pytest.mark.parametrize("name", ["double", "twice", f"{__name__}:double"])
def test_registered_and_former_names_and_places_mean_the_same(name: str) -> None:
    assert OWN.get(name) is double
    assert OWN.canonical(name) == "double"


def test_definitions_of_others_have_their_place_for_a_name() -> None:
    assert OWN.name_of(double) == "double"
    assert OWN.name_of(half) == f"{__name__}:half"
    name = "fractions:Fraction.from_float"
    assert OWN.canonical(name) == name
    assert OWN.get(name)(0.5) == fractions.Fraction(1, 2)


@pytest.mark.parametrize(
    ("registry", "name", "message"),
    [
        (OWN, "triple", "'triple' is no map that this flipscope knows: known are double, or give package"),
        (CLOSED, "fractions:Fraction", "is no map that this flipscope knows: known are double$"),
        (OWN, "no_such_module:thing", "the map 'no_such_module:thing' cannot be imported: No module"),
        (OWN, "fractions:Nothing", "cannot be imported: .*no attribute 'Nothing'"),
        (OWN, ":thing", "cannot be imported"),
        (OWN, ["double"], "is no map"),
    ],
)
def test_unknown_names_are_one_sentence(registry: Registry[Any], name: Any, message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        registry.get(name)
