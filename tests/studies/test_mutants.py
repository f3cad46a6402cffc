"""Every mutant is noticed by the golden numbers of the studies and trainings that use what it breaks."""

from __future__ import annotations

import json

import pytest
from studies.golden import Golden, differences
from studies.mutants import MUTANTS, Mutant
from training import golden as trainings

from flipscope.lab import registry


@pytest.mark.parametrize(("mutant", "study"), [(mutant, study) for mutant in MUTANTS for study in mutant.studies])
def test_studies_notice(mutant: Mutant, study: str) -> None:
    with mutant.fault():
        found = differences(registry.find(study), Golden.read(study), stop=True)
    assert any(" was " in line for line in found), f"the golden of {study} does not notice: {mutant.name}"


@pytest.mark.parametrize(("mutant", "name"), [(mutant, name) for mutant in MUTANTS for name in mutant.trainings])
def test_trainings_notice(mutant: Mutant, name: str) -> None:
    golden = json.loads(trainings.FILE.read_text("utf-8"))["trainings"][name]
    with mutant.fault():
        assert trainings.differences(golden, trainings.measured(name)), f"{name} does not notice: {mutant.name}"
