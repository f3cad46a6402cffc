"""A study that trains, for the tests of shared models; worker processes import it by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.example_studies import Example

import flipscope.lab as lab
from flipscope.basics.progress import Progress
from flipscope.data.strings import StringData
from flipscope.lab.study import Outcome, Trial
from flipscope.models.presets import encoder
from flipscope.models.seal import fingerprint
from flipscope.training import checkpoints
from flipscope.training.protocol import TrainingProtocol
from flipscope.training.recipe import Recipe


def recipe(seed: int = 0) -> Recipe:
    return Recipe(
        data=StringData(function="majority(5)", length=5, train=20, validation=10),
        model=encoder(4, 1, 1, ffn_width=4),
        protocol=TrainingProtocol(batch=5, learning_rate=0.01, max_epochs=10, stop_after=None),
        seed=seed,
    )


@dataclass(frozen=True)
class Wanted(Trial):
    """A trial that wants a model; its worker is killed at a step, the first time that it is reached."""

    number: int
    log: str
    death: int = 0

    def measure(self, progress: Progress) -> Outcome:
        checkpoints.SECONDS = 0.0  # a checkpoint after every step

        def step(done: int, total: int) -> None:
            progress(done, total)
            with Path(self.log).open("a") as file:
                file.write(f"{os.getpid()} {done}\n")
            if done == self.death and not Path(self.log + ".died").exists():
                Path(self.log + ".died").touch()
                os.kill(os.getpid(), signal.SIGKILL)

        found = lab.trained(recipe(), step)
        return {"value": found.accuracy, "weights": fingerprint(found.model.state_dict().values())}


class Trainings(Example):
    """Every trial wants the same model."""

    name = "trainings"

    def __init__(self, *trials: Wanted) -> None:
        self.chosen = trials

    def trials(self, scale: str) -> Sequence[Wanted]:
        return self.chosen
