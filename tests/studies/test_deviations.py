"""Where a scale is not the paper's, it says so: nothing is run that differs from the paper scale and is not listed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from flipscope.lab import registry
from flipscope.lab.study import Study

NAMES = registry.names()
# Fields of trials that follow from a setting of another name.
FOLLOWS = {
    "blowup-bound": {"width": "trained", "steps": "trained", "batch": "trained"},  # models of other studies, same scale
    "generalization-gap": {"arm": "long"},
    "majority-volume": {"max_steps": "steps"},
    "median-threshold": {"count": "piece"},
    "random-init": {"count": "piece"},
    "sparse-and": {"length": "starts"},
}


def _leaves(settings: Any, name: str = "") -> dict[str, Any]:
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        settings = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    if not isinstance(settings, Mapping):
        return {name: settings}
    parts = [_leaves(value, f"{name}.{key}" if name else str(key)) for key, value in settings.items()]
    return {key: value for part in parts for key, value in part.items()}


def _outside(study: Study, scale: str) -> set[str]:
    """The fields of trials that have values at this scale which no trial of the paper scale has."""
    there: dict[str, set[str]] = {}
    for trial in study.trials("paper"):
        for name, value in trial.content().items():
            there.setdefault(name, set()).add(repr(value))
    return {
        name
        for trial in study.trials(scale)
        for name, value in trial.content().items()
        if repr(value) not in there.get(name, set())
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_that_differs_from_the_papers_is_listed(name: str) -> None:
    study = registry.find(name)
    theirs = _leaves(study.scales["paper"].settings)
    assert study.differences("paper") == []
    for scale in study.scales:
        ours = _leaves(study.scales[scale].settings)
        differ = {key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key)}
        assert {setting for setting, _, _ in study.differences(scale)} == differ


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_a_laptop_runs_differs_unlisted(name: str) -> None:
    study = registry.find(name)
    listed = " ".join(setting for setting, _, _ in study.differences("laptop"))
    listed += " ".join(f" {each.what} {each.paper} {each.ours}" for each in study.deviations)
    for field in _outside(study, "laptop"):
        said = FOLLOWS.get(name, {}).get(field, field)
        assert said in listed or said.removesuffix("s") in listed, field
