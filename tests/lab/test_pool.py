"""The pool: what goes wrong with a task or its worker, the order of tasks, and their memory."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing.util import spawnv_passfds
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lab.example_studies import (
    DEATHS,
    Deed,
    Deeds,
    Numbers,
    die,
    double,
    echo,
    environment,
    riddle,
    stillborn,
    strange,
)
from waiting import LIMIT, waited_for

from flipscope.basics.errors import InputError
from flipscope.lab.run import pool, resources
from flipscope.lab.run.events import Advanced, Event, Failed, Finished, Idle, Retried, Started
from flipscope.lab.run.pool import Queue, Task, WorkerError, run_tasks, work
from flipscope.lab.run.runner import InProcess, Job, Pool, Runner, open_runner
from flipscope.lab.run.worker import REPORT_SECONDS
from flipscope.lab.study import Study


def jobs_of(study: Study) -> list[Job]:
    return [Job(str(number), study, trial) for number, trial in enumerate(study.trials("smoke"))]


def events_of(runner: Runner, *deeds: Deed) -> list[Event]:
    return list(runner.run(jobs_of(Deeds(*deeds))))


def ends(events: Sequence[Event]) -> dict[str, Finished | Failed]:
    """How each trial ended, after making sure that each ended once."""
    found = [event for event in events if isinstance(event, Finished | Failed)]
    assert len({event.key for event in found}) == len(found)
    return {event.key: event for event in found}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


# ---------------------------------------------------------------- what goes wrong with a trial

FAILURES = {
    "fail": "ValueError: this trial is meant to fail",
    "leave": "SystemExit: 3",
    "recurse": "RecursionError",
    "exhaust": "MemoryError",
    "mute": "lab.example_studies.Mute",
    "lock": "which cannot be stored",
    "broken": "cannot be stored",
}


def test_failures_are_told_and_stop_nobody() -> None:
    deeds = [Deed(what) for what in FAILURES]
    others = [Deed("nothing", number) for number in range(4)]
    events = events_of(Pool(2), *deeds, *others)
    found = ends(events)
    for number, sentence in enumerate(FAILURES.values()):
        event = found[str(number)]
        assert isinstance(event, Failed), event
        assert sentence in event.traceback
        assert event.attempts == 1
    pids = set()
    for number in range(len(deeds), len(deeds) + len(others)):
        event = found[str(number)]
        assert isinstance(event, Finished), event
        pids.add(event.outcome["pid"])
    assert os.getpid() not in pids
    assert "Traceback" in found["0"].traceback  # type: ignore[union-attr]
    assert not any(isinstance(event, Retried) for event in events)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("what", list(FAILURES))
def test_failures_in_this_process_are_the_same(what: str) -> None:
    found = ends(events_of(InProcess(), Deed(what), Deed("nothing")))
    assert isinstance(found["0"], Failed)
    assert FAILURES[what] in found["0"].traceback
    assert isinstance(found["1"], Finished)


def test_results_that_do_not_fit_through_a_pipe() -> None:
    large = np.arange(1_000_000)
    tasks = [Task("lambda", strange, None), Task("riddle", riddle, None), Task("large", echo, large)]
    found = ends(list(work(tasks, 1)))
    assert isinstance(found["lambda"], Failed)
    assert "pickle" in found["lambda"].traceback
    assert isinstance(found["riddle"], Failed)
    assert "invalid literal" in found["riddle"].traceback
    assert isinstance(found["large"], Finished)
    assert np.array_equal(found["large"].outcome, large)


def test_what_cannot_be_sent_or_loaded_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="must stand at the top of a module"):
        list(work([Task("0", lambda argument, progress: None, None)], 1))
    (tmp_path / "fleeting.py").write_text("def work(argument, progress): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import fleeting  # type: ignore[import-not-found]

    (tmp_path / "fleeting.py").unlink()
    for cached in tmp_path.rglob("*.pyc"):
        cached.unlink()
    with pytest.raises(InputError, match=r"cannot load its task .*fleeting.*must stand"):
        list(work([Task("0", fleeting.work, None)], 2))
    assert not multiprocessing.active_children()


def test_a_trial_that_prints_does_not_disturb_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert isinstance(ends(events_of(Pool(1), Deed("chatter")))["0"], Finished)
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "words on standard output\nmore of them\n"


def test_progress_streams_back() -> None:
    events = events_of(Pool(1), Deed("report"))
    shares = [event.share for event in events if isinstance(event, Advanced)]
    took = ends(events)["0"].seconds
    assert 2 <= len(shares) <= took / REPORT_SECONDS  # of the eight that the trial makes in 0.8 seconds or more
    assert shares == sorted(set(shares))
    assert all(0 < share <= 1 for share in shares)


# ---------------------------------------------------------------- what goes wrong with a worker


def test_a_killed_worker_has_its_trial_retried(tmp_path: Path) -> None:
    deeds = [Deed("die_once", number, str(tmp_path / str(number))) for number in range(3)]
    events = events_of(Pool(2), *deeds, *(Deed("nothing", number) for number in range(5)))
    found = ends(events)
    assert len(found) == 8
    for number in range(3):
        event = found[str(number)]
        assert isinstance(event, Finished)
        assert event.attempts == 2
        assert event.outcome["pid"] != int(Path(deeds[number].where).read_text())
    assert [event.reason for event in events if isinstance(event, Retried)] == ["its worker died by signal 9"] * 3
    assert sum(isinstance(event, Started) for event in events) == 11


@pytest.mark.parametrize(("what", "how"), [("die", "by signal 9"), ("vanish", "with exit code 7")])
def test_a_trial_that_kills_its_workers_fails_in_the_end(what: str, how: str) -> None:
    events = events_of(Pool(1), Deed(what), Deed("nothing"))
    found = ends(events)
    assert isinstance(found["0"], Failed)
    assert found["0"].attempts == 3
    assert f"the worker died 3 times, the last time {how}: perhaps for want of memory" in found["0"].traceback
    assert isinstance(found["1"], Finished)
    assert sum(isinstance(event, Retried) for event in events) == 2


def test_a_worker_killed_from_outside(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    with contextlib.closing(Pool(1).run(jobs_of(Deeds(Deed("wait", where=str(mark)))))) as events:
        while not mark.exists():
            assert isinstance(next(events), Started | Idle)
        worker = int(waited_for(mark.read_text))
        os.kill(worker, signal.SIGKILL)
        waited_for(lambda: not alive(worker))
        Path(f"{mark}.go").touch()
        assert [type(event) for event in events if not isinstance(event, Idle)] == [Retried, Started, Finished]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["fork", "program", "word"])
def test_a_worker_killed_while_a_child_of_it_lives(tmp_path: Path, how: str) -> None:
    mark = tmp_path / how
    events = events_of(Pool(1), Deed("leave_a_child", where=str(mark)), Deed("nothing"))
    child = int(mark.read_text())
    lived = alive(child)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    assert lived  # nobody waited for its end
    found = ends(events)
    assert [type(event) for event in found.values()] == [Finished] * 2
    assert [event.reason for event in events if isinstance(event, Retried)] == ["its worker died by signal 9"]
    assert found["0"].attempts == 2


def test_multiprocessing_in_a_trial_is_refused(tmp_path: Path) -> None:
    found = ends(events_of(Pool(1), Deed("multiply"), Deed("nothing")))
    assert isinstance(found["0"], Failed)
    assert "daemonic processes are not allowed to have children" in found["0"].traceback
    assert isinstance(found["1"], Finished)
    guide = Path(__file__).parents[2] / "docs" / "add-a-study.md"
    assert "daemonic processes are not allowed to have children" in guide.read_text("utf-8").replace("\n  ", " ")


def test_workers_killed_as_they_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "main", stillborn)
    for deaths in (pool.ATTEMPTS, 99):
        (tmp_path / str(deaths)).mkdir()
    monkeypatch.setenv(DEATHS, str(tmp_path / str(pool.ATTEMPTS)))
    assert isinstance(ends(events_of(Pool(1), Deed("nothing")))["0"], Finished)
    monkeypatch.setattr(pool, "STARTS", 4)
    monkeypatch.setenv(DEATHS, str(tmp_path / "99"))
    with pytest.raises(InputError, match="killed while they start, 4 times in a row, the last by signal 9") as raised:
        events_of(Pool(1), Deed("nothing"))
    assert "__main__" not in str(raised.value)
    assert not multiprocessing.active_children()


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_ctrl_c_while_a_worker_starts(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The signal may be heard by another thread than the one that starts the worker and will not hear it."""
    pids: list[int] = []
    real, over = spawnv_passfds, threading.Event()

    def interrupted(path: bytes, arguments: list[str], passed: list[int]) -> int:
        pid = real(path, arguments, passed)
        if "--multiprocessing-fork" in arguments:
            pids.append(pid)
            os.kill(os.getpid(), signal.SIGINT)
        return pid

    other = threading.Thread(target=over.wait)
    other.start()
    monkeypatch.setattr("multiprocessing.util.spawnv_passfds", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            events_of(Pool(1), Deed("nothing"))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        over.set()
        other.join()
    assert len(pids) == 1
    waited_for(lambda: not alive(pids[0]))
    assert capfd.readouterr().err == ""
    assert not multiprocessing.active_children()


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_closing_ends_the_workers(tmp_path: Path) -> None:
    marks = [tmp_path / str(number) for number in range(2)]
    with contextlib.closing(Pool(2).run(jobs_of(Deeds(*(Deed("hang", where=str(mark)) for mark in marks))))) as events:
        seen = [next(events)]
        while not all(mark.exists() for mark in marks):
            seen.append(next(events))
        assert set(map(type, seen)) <= {Started, Idle}
        pids = [int(waited_for(mark.read_text)) for mark in marks]
        assert all(map(alive, pids))
    assert not any(map(alive, pids))
    assert not multiprocessing.active_children()


def run_script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text)
    return subprocess.run(
        [sys.executable, str(script)], env=environment(), capture_output=True, text=True, timeout=LIMIT, check=False
    )


SCRIPT = """
from flipscope.lab.run.runner import Job, Pool
from lab.example_studies import Deed, Deeds
"""
CALL = "print([type(event).__name__ for event in Pool(1).run([Job('0', Deeds(), Deed('nothing'))])][-1])\n"


def test_a_script_without_a_guard_gets_a_sentence(tmp_path: Path) -> None:
    done = run_script(tmp_path, SCRIPT + CALL)
    assert done.returncode == 1
    assert "InputError: the worker processes do not start: they end with exit code 1" in done.stderr
    assert "under if __name__ == '__main__'" in done.stderr.rstrip().rpartition("\n")[2]
    guarded = run_script(tmp_path, SCRIPT + "if __name__ == '__main__':\n    " + CALL)
    assert (guarded.returncode, guarded.stdout) == (0, "Finished\n")


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("threaded", [False, True])
def test_workers_die_with_a_killed_driver(tmp_path: Path, threaded: bool) -> None:
    run = (
        f"list(Pool(2).run([Job(str(n), Deeds(), Deed('hang', where={str(tmp_path)!r} + f'/{{n}}')) for n in (0, 1)]))"
    )
    call = f"import threading; threading.Thread(target=lambda: {run}).start()" if threaded else run
    (tmp_path / "script.py").write_text(SCRIPT + f"if __name__ == '__main__':\n    {call}\n")
    driver = subprocess.Popen([sys.executable, str(tmp_path / "script.py")], env=environment())
    try:
        marks = [tmp_path / "0", tmp_path / "1"]
        pids = [int(waited_for(lambda mark=mark: mark.exists() and mark.read_text())) for mark in marks]
        assert all(map(alive, pids))
    finally:
        driver.kill()
        driver.wait()
    waited_for(lambda: not any(map(alive, pids)))


# ---------------------------------------------------------------- threads and environment


def test_workers_compute_with_one_thread_and_keep_their_memory() -> None:
    before = dict(os.environ)
    found = ends(events_of(Pool(1), Deed("threads"), Deed("threads", 1)))
    assert dict(os.environ) == before
    for event in found.values():
        assert isinstance(event, Finished)
        assert event.outcome["threads"] == 1  # the second time, too, although the first trial changed it
        assert int(event.outcome["MALLOC_TRIM_THRESHOLD_"]) >= 1 << 30
        assert int(event.outcome["MALLOC_MMAP_THRESHOLD_"]) >= 1 << 30
        assert event.outcome["OMP_NUM_THREADS"] == event.outcome["NUMBA_NUM_THREADS"] == "1"


def test_a_run_in_this_process_gives_the_threads_back() -> None:
    threads = torch.get_num_threads()
    before = dict(os.environ)
    torch.set_num_threads(3)
    try:
        found = ends(events_of(InProcess(), Deed("threads"), Deed("threads", 1)))
        assert [event.outcome["threads"] for event in found.values() if isinstance(event, Finished)] == [1, 1]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert dict(os.environ) == before


def test_this_process_and_the_pool_agree_to_the_last_bit() -> None:
    jobs = jobs_of(Numbers())
    threads = torch.get_num_threads()
    torch.set_num_threads(4)  # the runs must not depend on it
    try:
        runs = [ends(list(runner.run(jobs))) for runner in (InProcess(), Pool(2))]
    finally:
        torch.set_num_threads(threads)
    for key in runs[0]:
        outcomes = [found[key].outcome for found in runs]  # type: ignore[union-attr]
        for outcome in outcomes[1:]:
            assert outcome.pop("product").tobytes() == outcomes[0]["product"].tobytes()
            assert outcome == {name: value for name, value in outcomes[0].items() if name != "product"}


def test_blas_is_found_and_limited() -> None:
    before = {name: library.count() for name, library in resources._libraries().items()}
    assert "torch" in before
    assert any("openblas" in name for name in before) or sys.platform != "linux"
    with resources.one_thread():
        assert {library.count() for library in resources._libraries().values()} == {1}
    assert {name: library.count() for name, library in resources._libraries().items()} == before


# ---------------------------------------------------------------- order and memory


def drained(queue: Queue, limit: int) -> list[str]:
    """The order in which one worker would do them."""
    order = []
    while (task := queue.take(limit)) is not None:
        order.append(task.key)
    return order


def test_the_longest_start_first() -> None:
    tasks = [Task(str(cost), echo, None, cost) for cost in (1.0, 5.0, 3.0, 4.0, 2.0)]
    assert drained(Queue(tasks, 8), 0) == ["5.0", "4.0", "3.0", "2.0", "1.0"]
    events = list(work(tasks, 1))
    assert [event.key for event in events if isinstance(event, Started)] == ["5.0", "4.0", "3.0", "2.0", "1.0"]
    same = [Task(str(number), echo, None) for number in range(9)]
    assert drained(Queue(same, 8), 0) == [str(number) for number in range(9)]


def test_a_large_one_is_overtaken_but_not_for_ever() -> None:
    large = Task("large", echo, None, cost=9.0, memory=10)
    queue = Queue([large, *(Task(str(number), echo, None, memory=1) for number in range(9))], patience=3)
    assert drained(queue, 5) == ["0", "1", "2"]
    assert queue.take(9) is None
    assert queue.take(10) is large
    assert len(queue) == 6
    assert drained(queue, 5) == ["3", "4", "5", "6", "7", "8"]


@given(
    st.lists(st.tuples(st.floats(0, 10), st.integers(0, 100)), max_size=40),
    st.integers(1, 5),
    st.integers(0, 10),
    st.randoms(use_true_random=False),
)
def test_every_task_gets_its_turn_and_memory_is_kept(
    sizes: list[tuple[float, int]], workers: int, patience: int, chance: Any
) -> None:
    tasks = [Task(str(number), echo, None, cost, memory) for number, (cost, memory) in enumerate(sizes)]
    queue, running, done = Queue(tasks, patience), [], []
    while len(done) < len(tasks):
        while len(running) < workers and (task := queue.take(100 - sum(one.memory for one in running))) is not None:
            running.append(task)
        assert running, "nobody works although there is work"
        assert sum(one.memory for one in running) <= 100
        done.append(running.pop(chance.randrange(len(running))).key)
    assert sorted(done) == sorted(task.key for task in tasks)


def test_trials_that_need_much_memory_run_alone() -> None:
    deeds = [Deed("when", number, need=6 << 20) for number in range(3)]
    found = ends(events_of(Pool(2, memory_limit=10 << 20), *deeds))
    times = sorted((event.outcome["start"], event.outcome["end"]) for event in found.values())  # type: ignore[union-attr]
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(times))


@pytest.mark.parametrize("runner", [Pool(2, memory_limit=1 << 40), InProcess()])
def test_a_trial_larger_than_the_machine_fails_with_a_sentence(runner: Runner) -> None:
    found = ends(events_of(runner, Deed("nothing", need=1 << 50), Deed("nothing")))
    assert isinstance(found["0"], Failed)
    assert "the trial needs 1 PiB or more of memory" in found["0"].traceback
    assert isinstance(found["1"], Finished)


def test_a_trial_that_died_gets_more_room() -> None:
    seats = pool._Pool([Task("0", die, None, memory=6)], 1, 10)
    with contextlib.closing(seats):
        assert any(isinstance(event, Retried) for event in seats.events())
        assert seats._queue.take(9) is None
        again = seats._queue.take(10)
        assert again is not None
        assert (again.key, again.attempts, again.memory) == ("0", 1, 10)


def test_the_memory_that_trials_may_use() -> None:
    assert 0 < resources.memory_limit() < 1 << 50


# ---------------------------------------------------------------- run_tasks, open_runner


def test_run_tasks() -> None:
    told: list[tuple[int, int]] = []
    found = run_tasks(
        double, [3, 1, 2], workers=2, costs=[1.0, 3.0, 2.0], progress=lambda done, total: told.append((done, total))
    )
    assert found == [6, 2, 4]
    assert told[-1] == (1000, 1000)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    with pytest.raises(InputError, match="-1 is negative"):
        run_tasks(double, [1, -1], workers=1, costs=[1, 1], progress=lambda done, total: None)
    with pytest.raises(WorkerError, match="the worker died 3 times, the last time with exit code 1"):
        run_tasks(double, [99], workers=1, costs=[1], progress=lambda done, total: None)
    assert not multiprocessing.active_children()


def test_open_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipscope.lab.run.runner.cores", lambda: 3)
    with open_runner() as runner:
        assert isinstance(runner, Pool)
        assert (runner.workers, runner.name) == (3, "3 processes")
    with open_runner(0) as runner:
        assert isinstance(runner, InProcess)
    with pytest.raises(InputError, match="workers must be"), open_runner(-1):
        pass
    with pytest.raises(InputError, match="leave --workers out"), open_runner(1, "tcp://127.0.0.1:1"):
        pass


def test_no_jobs_no_workers() -> None:
    assert events_of(Pool(2)) == []
    assert events_of(InProcess()) == []
    assert pool.ATTEMPTS == 3


DEAF = """
import signal
from flipscope.lab.run.pool import run_tasks

def deaf(task, progress):
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())

if __name__ == "__main__":
    print(run_tasks(deaf, [0, 1], workers=2, costs=[1, 1], progress=lambda done, total: None))
"""


def test_every_worker_starts_deaf_to_interrupts(tmp_path: Path) -> None:
    """The first one too, with which multiprocessing starts a helper of its own that lifts the block."""
    (script := tmp_path / "deaf.py").write_text(DEAF)
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert found.stdout == "[True, True]\n"
