"""Drivers and their workers killed at random moments: nothing is lost, doubled or spoiled."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from lab.example_studies import HOLD, Blinks, environment
from lab.processes import members
from lab.stores import flat
from lab.stores import results as stored_results
from repetitions import repeated
from waiting import LIMIT, waited_for

from flipscope.lab.findings import findings
from flipscope.lab.keys import trial_key
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.runner import InProcess
from flipscope.lab.store.store import Store

KILLS = repeated(57, 9)  # a multiple of three more than once: there are three ways to be killed


def start(folder: Path, hold: Path) -> subprocess.Popen[bytes]:
    """A driver in a session of its own, so that its workers are found whatever becomes of it."""
    code = f"from lab.example_studies import Blinks, drive; drive(Blinks(), {str(folder)!r})"
    variables = {**environment(), HOLD: str(hold)}
    return subprocess.Popen([sys.executable, "-c", code], env=variables, start_new_session=True)


def stored(store: Store, study: Blinks) -> int:
    return len(store.done(trial_key(study, trial) for trial in study.trials("smoke")))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_chaos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, folder, chance = Blinks(), tmp_path / "chaos", random.Random(20)
    sessions, counts = [], []
    hold = tmp_path / "hold"
    hold.touch()  # however slowly this process kills, none of the drivers is done before
    with Store(folder) as store:
        for kill in range(KILLS):
            process = start(folder, hold)
            sessions.append(process.pid)
            # At any moment: most often while trials run, now and then before the workers are there.
            wanted = (counts[-1] if counts else 0) + chance.choice([0, 1, 2, 5, 9, 12])
            deadline = time.monotonic() + LIMIT
            while stored(store, study) < min(wanted, 190):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.06))
            victims = members(process.pid)
            order = chance.sample(victims, len(victims))
            if kill % 3 == 0:  # the workers must then end by themselves
                order = [process.pid]
            elif kill % 3 == 1:  # the driver has a moment to see that something is wrong
                order = [*(victim for victim in order if victim != process.pid), process.pid]
            for victim in order:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                if kill % 3 == 1:
                    time.sleep(chance.uniform(0, 0.03))
            assert process.wait(LIMIT) == -signal.SIGKILL
            counts.append(stored(store, study))
        assert counts == sorted(counts)  # nothing that was stored is gone
        assert 0 < counts[KILLS // 2] < 200
        hold.unlink()
        last = start(folder, hold)
        assert last.wait(LIMIT) == 0
        waited_for(lambda: not any(map(members, [*sessions, last.pid])))  # no worker outlives its driver

        keys = [trial_key(study, trial) for trial in study.trials("smoke")]
        rows = flat(store, "blinks")
        assert sorted(row["key"] for row in rows) == sorted(keys)
        assert store.records(keys)[1] == set()
        assert store.failures("blinks") == []
        states = store.runs("blinks", latest=False)
        assert states[-1].state == "done"
        assert {state.state for state in states[:-1]} <= {"interrupted"}
        for trial, result in zip(
            study.trials("smoke"), stored_results(store, study, study.trials("smoke")), strict=True
        ):
            stream = np.random.default_rng(trial.number)
            assert result.outcome["value"] == stream.random()
            assert result.outcome["many"].tobytes() == stream.random(1000).tobytes()
        disturbed = findings(study, "smoke", store)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the pauses of the trials have no say in what they give
    with Store(tmp_path / "calm") as calm:
        run = run_study(study, "smoke", calm, InProcess())
    assert disturbed.table == run.table
    assert disturbed.judgements == run.judgements
