"""The driver: what is stored and when, what is tried again, and how a run ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from lab.example_studies import Blinks, Deed, Deeds, environment
from lab.stores import record
from lab.stores import results as stored_results
from waiting import LIMIT, waited_for

from flipscope.basics.errors import InputError, RunError
from flipscope.figures import Figure, Panel, Series
from flipscope.lab.findings import Findings, Judgements, findings
from flipscope.lab.keys import trial_key
from flipscope.lab.rows import Rows
from flipscope.lab.run import driver
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.events import Event, Failed, Finished, Idle, Started
from flipscope.lab.run.runner import InProcess, Job, Pool
from flipscope.lab.store.store import Store
from flipscope.lab.study import Result, Study


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results") as opened:
        yield opened


class Notes:
    """Looks on, and asks the store whether what it hears of is there."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.heard: list[Event] = []
        self.verdicts: list[list[str]] = []
        self.began: tuple[Any, ...] = ()
        self.ended: Findings | None = None

    def begin(self, study: Study, scale: str, total: int, reused: int, costs: Mapping[str, float]) -> None:
        self.began = (study.name, scale, total, reused, dict(costs))

    def event(self, event: Event) -> None:
        self.heard.append(event)
        if isinstance(event, Finished):
            assert record(self.store, event.key) is not None
        elif isinstance(event, Failed):
            assert [failure.traceback for failure in self.store.failures(keys=[event.key])] == [event.traceback]

    def judged(self, judgements: Judgements) -> None:
        self.verdicts.append([judgement.note for _, judgement in judgements])

    def finished(self, run: Findings) -> None:
        self.ended = run


class Counted(InProcess):
    """Runs trials here, and remembers which."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def run(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        self.jobs += jobs
        yield from super().run(jobs)


def keys(study: Study) -> list[str]:
    return [trial_key(study, trial) for trial in study.trials("smoke")]


def test_a_run_from_start_to_end(store: Store) -> None:
    study = Deeds(*(Deed("nothing", number, weight=float(number + 1)) for number in range(5)))
    notes = Notes(store)
    run = run_study(study, "smoke", store, InProcess(), observer=notes, command="flipscope run deeds")
    assert (run.trials, run.done, run.failed, run.reused, run.missing, run.complete) == (5, 5, 0, 0, 0, True)
    assert [row["number"] for row in run.table] == [0, 1, 2, 3, 4]
    assert [judgement.verdict for _, judgement in run.judgements] == ["reproduced"]
    assert notes.began == ("deeds", "smoke", 5, 0, dict(zip(keys(study), [1.0, 2.0, 3.0, 4.0, 5.0], strict=True)))
    assert notes.ended is run
    assert sum(isinstance(event, Finished) for event in notes.heard) == 5
    assert store.done(keys(study)) == set(keys(study))
    (state,) = store.runs("deeds")
    assert (state.state, state.total, state.done, state.failed, state.command) == (
        "done",
        5,
        5,
        0,
        "flipscope run deeds",
    )
    assert (state.revision, state.scale, state.running) == (1, "smoke", [])
    assert state.verdicts == [{"claim": "mean", "verdict": "reproduced", "standing": "look"}]
    found = record(store, keys(study)[0])
    assert found is not None
    assert (found.study, found.trial, found.attempts) == ("deeds", study.chosen[0].content(), 1)


def test_json(store: Store) -> None:
    run = run_study(Deeds(*(Deed("nothing", number) for number in range(60))), "smoke", store, InProcess())
    document = json.loads(json.dumps(run.as_json()))
    assert list(document)[:6] == ["study", "scale", "trials", "failed", "seconds", "claims"]
    assert (document["study"], document["scale"], document["trials"], document["failed"]) == ("deeds", "smoke", 60, 0)
    (claim,) = document["claims"]
    assert list(claim)[:6] == ["claim", "statement", "measured", "low", "high", "verdict"]
    assert (claim["claim"], claim["statement"], claim["verdict"]) == ("mean", "values are large", "reproduced")
    assert claim["low"] <= claim["measured"] == 0.5 <= claim["high"]
    assert (document["reused"], document["complete"], claim["source"]) == (0, True, "Fig 0")


def test_what_is_done_is_not_done_again(store: Store) -> None:
    few = Deeds(*(Deed("nothing", number) for number in range(3)))
    many = Deeds(*(Deed("nothing", number) for number in range(5)))
    run_study(few, "smoke", store, InProcess())
    runner = Counted()
    run = run_study(many, "smoke", store, runner)
    assert [job.trial.number for job in runner.jobs] == [3, 4]  # type: ignore[attr-defined]
    assert (run.reused, run.done) == (3, 5)
    runner = Counted()
    again = run_study(many, "smoke", store, runner)
    assert runner.jobs == []
    assert (again.reused, again.table) == (5, run.table)


def test_a_limit_is_a_beginning(store: Store) -> None:
    study = Deeds(*(Deed("nothing", number) for number in range(5)))
    run = run_study(study, "smoke", store, InProcess(), limit=2)
    assert (run.done, run.missing, run.complete) == (2, 3, False)
    assert store.runs("deeds")[0].state == "incomplete"
    assert run_study(study, "smoke", store, InProcess()).complete
    with pytest.raises(InputError, match="limit must be"):
        run_study(study, "smoke", store, InProcess(), limit=0)


def test_failures_are_stored_and_tried_again(store: Store, tmp_path: Path) -> None:
    study = Deeds(Deed("fail_once", where=str(tmp_path / "mark")), Deed("fail"), Deed("nothing"))
    run = run_study(study, "smoke", store, InProcess(), observer=Notes(store))
    assert (run.done, run.failed, run.complete) == (1, 2, False)
    assert store.runs("deeds")[0].state == "incomplete"
    texts = [failure.traceback for failure in store.failures("deeds")]
    assert all(text.startswith("Traceback") for text in texts)
    assert "ValueError: only the first time" in texts[0]
    runner = Counted()
    left = run_study(study, "smoke", store, runner, retry_failed=False)
    assert (runner.jobs, left.failed, left.done) == ([], 2, 1)
    again = run_study(study, "smoke", store, InProcess())
    assert (again.done, again.failed) == (2, 1)
    assert [failure.key for failure in store.failures("deeds")] == [keys(study)[1]]


def test_damaged_trials_are_measured_again(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    study = Blinks()
    first = run_study(study, "smoke", store, Pool(2), limit=4)
    first_key, second_key, *_ = sorted(store.done(keys(study)))
    with store.writing() as connection:
        lost = "digest = (SELECT arrays FROM results WHERE key = ?)"
        connection.execute(f"DELETE FROM contents WHERE {lost}", (first_key,))
        connection.execute(f"UPDATE contents SET content = x'00' WHERE {lost}", (second_key,))
    assert findings(study, "smoke", store).done == 2
    runner = Counted()
    run = run_study(study, "smoke", store, runner, limit=2)
    assert (len(runner.jobs), run.reused, run.done) == (2, 2, 4)
    assert "2 stored trials of blinks are damaged, and are measured again" in caplog.text
    assert run.table == first.table
    assert findings(study, "smoke", store).done == 4


def test_what_is_stored_is_judged_alone(store: Store) -> None:
    study = Deeds(*(Deed("nothing", number) for number in range(60)))
    empty = findings(study, "smoke", store)
    assert (empty.done, empty.missing, empty.table, empty.complete) == (0, 60, [], False)
    assert empty.judgements[0][1].quantity == "no trial is done"
    run = run_study(study, "smoke", store, InProcess())
    found = findings(study, "smoke", store)
    assert (found.table, found.done, found.complete) == (run.table, 60, True)
    assert found.judgements == run.judgements
    assert found.seconds == sum(result.seconds for result in stored_results(store, study, study.chosen))
    assert len(store.runs("deeds", latest=False)) == 1


class Whole(Deeds):
    """Makes sense of all its trials only, and not even then if told so."""

    name = "whole"
    wrong = False

    def summarise(self, results: Sequence[Result]) -> Rows:
        if self.wrong or len(results) < len(self.chosen):
            raise KeyError("the others")
        return super().summarise(results)


def test_a_part_that_makes_no_sense_is_undecided(store: Store) -> None:
    study = Whole(*(Deed("nothing", number) for number in range(3)))
    run = run_study(study, "smoke", store, InProcess(), limit=2)
    assert run.table == []
    assert run.judgements[0][1].verdict == "undecided"
    assert "2 of 3 trials do not suffice (KeyError: 'the others')" in run.judgements[0][1].quantity
    assert len(run_study(study, "smoke", store, InProcess()).table) == 3
    study.wrong = True
    run = run_study(study, "smoke", store, InProcess())
    assert [judgement.verdict for _, judgement in run.judgements] == ["undecided"]
    (error,) = run.errors
    assert re.fullmatch(r"the table cannot be made: KeyError: 'the others' \(test_driver\.py, line \d+\)", error)


class Drawn(Deeds):
    """Draws its table, but not a part of it."""

    def draw(self, table: Rows) -> list[Figure]:
        if len(table) < 3:
            raise KeyError("the others")
        series = Series("", [row["number"] for row in table], [row["number"] for row in table])
        return [Figure("numbers", "Numbers", "As they are.", [Panel("", "number", "number", [series])])]


def test_a_run_has_the_figures_of_its_table_and_a_short_repr(store: Store) -> None:
    study = Drawn(*(Deed("nothing", number) for number in range(3)))
    part = run_study(study, "smoke", store, InProcess(), limit=2)
    assert part.figures == []
    assert repr(part) == f"Findings({study.name}, smoke: 2 of 3 trials; claims: 1 undecided)"
    (figure,) = run_study(study, "smoke", store, InProcess()).figures
    assert figure.panels[0].series[0].x == [0, 1, 2]


class Scripted:
    """A runner that does as it is told."""

    name = "a script"

    def __init__(self, *steps: Any) -> None:
        self.steps = steps
        self.closed = False

    def run(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        try:
            waiting = list(jobs)
            for step in self.steps:
                if isinstance(step, BaseException):
                    raise step
                if step == "finish":
                    job = waiting.pop(0)
                    yield Started(job.key, "here")
                    yield Finished(job.key, {"value": 1.0}, 0.5, 1, {"host": "elsewhere"})
                else:
                    step()
                    yield Idle()
        finally:
            self.closed = True


def test_an_interrupt_stops_and_the_next_call_resumes(store: Store) -> None:
    study = Deeds(*(Deed("nothing", number) for number in range(4)))
    runner = Scripted("finish", "finish", KeyboardInterrupt())
    notes = Notes(store)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, "smoke", store, runner, observer=notes)
    assert runner.closed
    assert notes.ended is None
    (state,) = store.runs("deeds")
    assert (state.state, state.done, state.total) == ("stopped", 2, 4)
    run = run_study(study, "smoke", store, InProcess())
    assert (run.reused, run.done, run.complete) == (2, 4, True)
    found = record(store, keys(study)[0])
    assert found is not None
    assert found.machine == {"host": "elsewhere"}


def test_a_full_disk_stops_the_run_with_its_sentence(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Deeds(*(Deed("nothing", number) for number in range(4)))
    put, beat, room = Store.put, Store.beat, [2]

    def full(*arguments: Any, **options: Any) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise InputError("the disk is full")
        put(*arguments, **options)

    def beaten(*arguments: Any, **options: Any) -> None:
        if room[0] < 0:
            raise InputError("the disk is full")
        beat(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", full)
        patch.setattr(Store, "beat", beaten)
        runner = Scripted(*["finish"] * 4)
        with pytest.raises(InputError, match="the disk is full") as caught:
            run_study(study, "smoke", store, runner)
        assert runner.closed  # at once, although the traceback still holds the generator
        assert caught.tb is not None
    assert len(store.done(keys(study))) == 2
    run = run_study(study, "smoke", store, InProcess())
    assert (run.reused, run.complete) == (2, True)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("something else")])
def test_whatever_ends_a_run_it_is_told_that_the_folder_is_gone(store: Store, error: BaseException) -> None:
    study = Deeds(*(Deed("nothing", number) for number in range(4)))
    runner = Scripted("finish", lambda: shutil.rmtree(store.folder), error)
    with pytest.raises(RunError, match="was deleted or moved while this process used it") as caught:
        run_study(study, "smoke", store, runner)
    assert caught.value.__cause__ is error
    assert runner.closed


class Clock:
    """Goes on by a millisecond whenever it is looked at, and as it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.001
        return self.now

    def pause(self) -> None:
        self.now += 0.3


def test_beats_and_verdicts_on_the_way(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(driver, "time", clock)
    monkeypatch.setattr(driver, "BEAT_SECONDS", 0.0)  # at every event
    study = Deeds(*(Deed("nothing", number) for number in range(30)))
    beats: list[dict[str, Any]] = []
    beat = Store.beat

    def noted(self: Store, run: int, **options: Any) -> None:
        beats.append(options)
        beat(self, run, **options)

    monkeypatch.setattr(Store, "beat", noted)
    notes = Notes(store)
    with pytest.raises(KeyboardInterrupt):
        run_study(
            study,
            "smoke",
            store,
            Scripted("finish", clock.pause, *["finish"] * 28, clock.pause, KeyboardInterrupt()),
            observer=notes,
        )
    assert not any(isinstance(event, Idle) for event in notes.heard)
    assert notes.verdicts[0] == ["1 of 30 trials"]
    assert notes.verdicts[-1] == ["29 of 30 trials, reproduced so far"]
    assert len(notes.verdicts) < 29  # judging takes no more than its share of the time
    assert {beat["done"] for beat in beats} >= {0, 1, 29}
    running = [trial for beat in beats for trial in beat.get("running", ())]
    assert {trial["trial"]["what"] for trial in running} == {"nothing"}
    assert store.runs("deeds")[0].verdicts == [{"claim": "mean", "verdict": "undecided", "standing": "interim"}]


def test_one_driver_at_a_time(store: Store, tmp_path: Path) -> None:
    study = Deeds(Deed("nothing"))
    busy = pytest.raises(InputError, match="deeds is being run")
    with Store(tmp_path / "results") as other, other.driving("deeds"), busy:
        run_study(study, "smoke", store, InProcess())
    assert run_study(study, "smoke", store, InProcess()).complete


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_ctrl_c_ends_the_workers_and_the_next_call_resumes(tmp_path: Path) -> None:
    mark, folder = tmp_path / "mark", tmp_path / "results"
    study = Deeds(Deed("nothing", weight=9.0), Deed("hang", where=str(mark)))
    code = (
        "from lab.example_studies import *; "
        f"drive(Deeds(Deed('nothing', weight=9.0), Deed('hang', where={str(mark)!r})), {str(folder)!r}, 1)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(),
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A job in the background of a script ignores interrupts, and would hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with contextlib.closing(process.stderr):  # type: ignore[arg-type]
        waited_for(lambda: mark.exists() and mark.read_text())
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=LIMIT)
    assert err.decode().rstrip().endswith("KeyboardInterrupt")
    assert "SpawnProcess" not in err.decode()  # no word from the workers
    assert not Path(f"/proc/{mark.read_text()}").exists()
    with Store(folder) as store:
        (state,) = store.runs("deeds")
        assert (state.state, state.done) == ("stopped", 1)
        assert store.done(keys(study)) == {keys(study)[0]}
