"""What the tests of the cluster and of Slurm share: jobs of a study, and how their trials ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flipscope.lab.keys import trial_key
from flipscope.lab.run.events import Event, Failed, Finished
from flipscope.lab.run.runner import Job
from flipscope.lab.study import Study


def jobs_of(study: Study) -> list[Job]:
    return [Job(trial_key(study, trial), study, trial) for trial in study.trials("smoke")]


def ends(events: Sequence[Event]) -> list[Any]:
    """How each trial ended, those that failed first."""
    found = [event for event in events if isinstance(event, Finished | Failed)]
    assert len({event.key for event in found}) == len(found)
    return sorted(found, key=lambda event: isinstance(event, Finished))
