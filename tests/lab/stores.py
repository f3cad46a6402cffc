"""What the tests of the store share: a study, ways to fill and to ask a store, processes of their own."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from flipscope.basics.errors import InputError
from flipscope.lab.keys import trial_key
from flipscope.lab.store.store import Record, Store
from flipscope.lab.study import Result, Scale, Study, Trial

OUTCOME = {"mean": 0.5, "worst": math.inf, "count": 10**40, "names": ["é"], "weights": np.arange(12.0).reshape(3, 4)}


@dataclass(frozen=True)
class Toss(Trial):
    size: int
    kind: str = "a"

    def measure(self, progress: Any) -> dict[str, Any]:
        return {"size": self.size, "bits": np.arange(self.size)}


class Tosses(Study):
    name = "tosses"
    paper = "000"
    title = "Tosses"
    scales: ClassVar = {"smoke": Scale(0.1, {}, "a few")}
    claims = ()

    def trials(self, scale: str) -> list[Toss]:
        return [Toss(size) for size in range(4)]

    def summarise(self, results: Any) -> list[dict[str, Any]]:
        return []


STUDY = Tosses()


def put(to: Store, key: str = "k", outcome: Any = OUTCOME, **options: Any) -> None:
    to.put(key, "tosses", {"size": 3}, 1, outcome, 1.5, **options)


def record(store: Store, key: str) -> Record | None:
    """The stored trial of this key."""
    return store.records([key])[0].get(key)


def results(store: Store, study: Study, trials: Sequence[Trial]) -> list[Result]:
    """The trials that are done, in their order."""
    keys = {trial_key(study, trial): trial for trial in trials}
    records = store.records(keys)[0]
    return [Result(trial, records[key].outcome, records[key].seconds) for key, trial in keys.items() if key in records]


def flat(store: Store, study: str | None = None, where: Any = ()) -> list[Any]:
    """The rows of a table, all at once."""
    return list(store.table(study, where))


def refused(match: str, call: Any, *arguments: Any, **options: Any) -> str:
    """The one sentence with which a call is refused."""
    with pytest.raises(InputError, match=match) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def files(folder: Path) -> dict[str, bytes]:
    """Whatever is in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A process of its own that runs a script."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


WRITER = """
import sys
import numpy as np
from flipscope.lab.keys import trial_key
from flipscope.lab.store.store import Record, Store

folder, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with Store(folder) as store:
    print("ready", flush=True)
    for number in range(first, last):
        store.put(f"k{number}", "tosses", {"n": number}, 1, {"n": number, "x": np.arange(number)}, 1.0)
        print(number, flush=True)
print("end", flush=True)
"""
