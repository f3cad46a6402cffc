from __future__ import annotations

import pytest
from studies.harness import smoke_run
from studies.trained import CLAIMS, check_learned, check_rows, check_spectrum, models, row, verdict

from flipscope.lab import Rows
from flipscope.studies.geometry.trained_profiles import STUDY


@pytest.mark.parametrize(("name", "language"), [("First is learned", "first"), ("Majority is learned", "majority")])
def test_learned(name: str, language: str) -> None:
    check_learned(name, language)


@pytest.mark.parametrize(("accuracy", "expected"), [(0.5, "reproduced"), (0.6, "undecided"), (0.7, "contradicted")])
def test_not_learned(accuracy: float, expected: str) -> None:
    bad = [row("parity", 0.5, {0: 1}, seed=seed) for seed in (1, 2)]
    first = row("first", 1.0, {1: 1.0})
    assert verdict("Parity is not learned", first, *bad, row("parity", accuracy, {0: 1})) == expected


def test_where_nothing_is_learned_parity_is_not_either() -> None:
    untrained = [row(language, 0.5, {0: 1}, seed=seed) for language in ("first", "parity") for seed in range(3)]
    for name in ("Parity is not learned", "Parity: a wrong profile"):
        found = CLAIMS[name].judged(Rows(untrained))
        assert (found.verdict, found.note) == (
            "undecided",
            "none of 3 models trained in the same way learns First or Majority",
        )


def test_every_model_learns() -> None:
    name = "every model learns First or Majority"
    good = [row(language, 1.0, {0: 1}, seed=seed) for language in ("first", "majority") for seed in range(3)]
    for accuracy, expected in ((1.0, "reproduced"), (0.99, "undecided"), (0.97, "contradicted")):
        assert verdict(name, *good, row("first", accuracy, {0: 1}, seed=3)) == expected
    assert verdict(name, *good[:3]) == verdict(name, *good[:5]) == "undecided"  # two models say little of every model
    assert verdict(name, *good[:3], row("majority", 0.5, {0: 1})) == "contradicted"


def test_spectrum() -> None:
    check_spectrum("First: spectrum at 1", "first", 0, {1: 1.0})
    check_spectrum("Majority: spectrum at 0 and N/2", "majority", 0, {0: 0.84, 45: 0.08, 60: 0.08})


def test_strings_above_0_must_be_there_in_number() -> None:
    name = "Majority: spectrum at 0 and N/2"
    good = [row("majority", 1.0, {0: 0.84, 50: 0.16}, seed=seed) for seed in (1, 2)]
    for spectrum, expected in (
        ({0: 1.0}, "contradicted"),  # all at 0
        ({0: 0.99, 50: 0.01}, "contradicted"),  # all that are above 0 are where they belong, but few are
        ({0: 0.92, 50: 0.08}, "undecided"),
        ({0: 0.01, 50: 0.99}, "contradicted"),  # no string at 0
        ({0: 0.84, 20: 0.16}, "contradicted"),  # all of them elsewhere, though 0.84 are at 0
        ({0: 0.84, 20: 0.03, 50: 0.13}, "undecided"),
    ):
        judged = CLAIMS[name].judge(Rows([*good, row("majority", 1.0, spectrum)]))
        assert judged.verdict == expected, spectrum
        assert len(judged.parts) == (11 if spectrum == {0: 1.0} else 12)  # where none is above 0, none can be elsewhere


@pytest.mark.parametrize(
    ("spectrum", "expected"),
    [
        ({50: 1.0}, "reproduced"),
        ({0: 1.0}, "reproduced"),
        ({100: 0.8, 50: 0.2}, "undecided"),
        ({99: 1.0}, "contradicted"),
    ],
)
def test_parity_has_a_wrong_profile(spectrum: dict[int, float], expected: str) -> None:
    good = [*models("parity", {50: 0.999}, count=2), row("first", 1.0, {1: 1.0})]
    assert verdict("Parity: a wrong profile", *good, row("parity", 0.5, spectrum, seed=3)) == expected
    assert verdict("Parity: a wrong profile", *good) == "undecided"


def test_parity_has_strings_of_higher_sensitivity() -> None:
    name = "Parity: strings of higher sensitivity"
    others = models("first", {1: 1}) + models("majority", {0: 0.84, 51: 0.16})
    assert verdict(name, *models("parity", {60: 0.9, 80: 0.1}), *others) == "reproduced"
    assert verdict(name, *models("parity", {0: 1.0}), *others) == "contradicted"
    assert verdict(name, *models("parity", {0: 0.9, 40: 0.1}), *others) == "contradicted"  # higher than First only
    assert verdict(name, *models("parity", {51: 1.0}), *others) == "undecided"
    assert verdict(name, *models("parity", {60: 1.0}, count=1), *others) == "undecided"
    assert verdict(name, *others) == verdict(name, *models("parity", {60: 1.0})) == "undecided"


def test_shapes_are_shown_where_they_differ() -> None:
    table = Rows([*models("parity", {50: 0.999}), row("first", 1.0, {1: 1.0})])
    assert [figure.name for figure in STUDY.draw(table)] == ["trained-spectra", "trained-averages"]
    wide = Rows({**each, "heads": 2, "width": 32} for each in table)
    shapes = STUDY.draw(Rows([*table, *wide]))[-1]
    assert shapes.name == "trained-by-shape"
    assert [panel.x_label for panel in shapes.panels] == ["width"]  # nothing else differs
    assert [series.label for series in shapes.panels[0].series] == ["parity"]  # First fixes its own


@pytest.mark.slow
def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    check_rows(table)
    assert table.column("language") == ["first", "majority", "parity"]
    assert table[0]["accuracy"] == 1.0  # First, at 16 bits
    assert table[0]["profile"][1] == 200
    assert len(judgements) == len(STUDY.claims)
    assert [len(figure.panels) for figure in figures] == [3, 1]
    assert "parity" in STUDY.provenance(table)[-1]
