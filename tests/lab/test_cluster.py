"""The cluster: the same numbers as anywhere, whatever happens to workers and scheduler."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from lab.example_studies import Blinks, Deed, Deeds, Numbers, environment
from waiting import waited_for

from flipscope.errors import InputError
from flipscope.lab import cluster as module
from flipscope.lab.cluster import Cluster, Slurm
from flipscope.lab.driver import run_study
from flipscope.lab.events import Advanced, Event, Failed, Finished, Idle, Retried, Started
from flipscope.lab.runner import InProcess, Job, Pool, open_runner
from flipscope.lab.store import Store
from flipscope.lab.study import Study
from flipscope.lab.version import trial_key

distributed = pytest.importorskip("distributed", reason="needs the extra cluster")

# Dask leaves sockets and loops to the sweep of memory.
pytestmark = [pytest.mark.filterwarnings("default::ResourceWarning"), pytest.mark.slow]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        memory_limit="2GiB",
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    ) as local:
        yield local.scheduler_address


@pytest.fixture
def unused_tcp_address() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{taken.getsockname()[1]}"


def jobs_of(study: Study) -> list[Job]:
    return [Job(trial_key(study, trial), study, trial) for trial in study.trials("smoke")]


def events_of(address: str, *deeds: Deed) -> list[Event]:
    with Cluster(address) as runner:
        return list(runner.run(jobs_of(Deeds(*deeds))))


def ends(events: Sequence[Event]) -> list[Any]:
    """How each trial ended, those that failed first."""
    found = [event for event in events if isinstance(event, Finished | Failed)]
    assert len({event.key for event in found}) == len(found)
    return sorted(found, key=lambda event: isinstance(event, Finished))


def test_the_same_numbers_everywhere_to_the_last_bit(address: str, tmp_path: Path) -> None:
    study = Numbers()
    runs = []
    with Cluster(address) as cluster:
        for name, runner in {"here": InProcess(), "pool": Pool(2), "cluster": cluster}.items():
            with Store(tmp_path / name) as store:
                assert run_study(study, "smoke", store, runner).complete
                runs.append(store.results(study, study.trials("smoke")))
    assert len(runs[0]) == 5
    for here, *others in zip(*runs, strict=True):
        assert here.outcome["threads"] == 1
        for other in others:
            outcome = dict(other.outcome)
            assert outcome.pop("product").tobytes() == here.outcome["product"].tobytes()
            assert outcome == {name: value for name, value in here.outcome.items() if name != "product"}


def test_a_worker_killed_in_the_middle_of_a_trial(address: str, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    killed = Deed("wait", where=str(mark), weight=9.0)
    study = Deeds(killed, *(Deed("nothing", number, seconds=0.02) for number in range(40)))
    keys = [trial_key(study, trial) for trial in study.chosen]
    measured: list[str] = []
    victims: list[int] = []

    class Killing:
        """Kills the worker while it measures, and counts what comes back."""

        name = "a cluster with an enemy"

        def run(self, jobs: Sequence[Job]) -> Any:
            begun = False  # word of a start may die with its worker: the enemy waits until it is heard
            for event in cluster.run(jobs):
                begun |= isinstance(event, Started) and event.key == keys[0]
                if begun and mark.exists() and mark.read_text() and not victims:
                    victims.append(int(mark.read_text()))
                    os.kill(victims[0], signal.SIGKILL)
                    Path(f"{mark}.go").touch()
                if isinstance(event, Finished):
                    measured.append(event.key)
                yield event

    with open_runner(cluster=address) as cluster, Store(tmp_path / "results") as store:
        run = run_study(study, "smoke", store, Killing())
        assert (run.done, run.failed) == (41, 0)
        assert sorted(row["key"] for row in store.rows("deeds")) == sorted(keys) == sorted(measured)
        record = store.get(keys[0])
        assert record is not None
        assert record.attempts == 2
        assert [record.outcome["pid"]] != victims
        assert record.machine["flipscope"]


def test_finished_trials_are_released(address: str) -> None:
    with Cluster(address) as runner:
        jobs = jobs_of(Blinks())[:30]
        most = 0
        for event in runner.run(jobs):
            if isinstance(event, Finished):
                most = max(most, len(runner._client.futures))
        assert len(runner._client.futures) == 0
        assert most <= module.AHEAD * 2 + 2  # never many more than its workers will soon ask for


def test_failures_and_progress(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    events = events_of(address, Deed("fail"), Deed("leave"), Deed("recurse"), Deed("lock"), Deed("report"))
    found = ends(events)
    texts = "".join(event.traceback for event in found[:4])
    for sentence in ("ValueError: this trial is meant to fail", "SystemExit: 3", "RecursionError", "cannot be stored"):
        assert sentence in texts
    assert isinstance(found[4], Finished)
    shares = [event.share for event in events if isinstance(event, Advanced)]
    assert 1 <= len(shares) <= 7
    assert shares == sorted(shares)
    assert len({event.key for event in events if isinstance(event, Started)}) == 5
    assert not any(isinstance(event, Retried) for event in events)


def test_a_trial_that_kills_its_workers_fails_and_the_others_do_not(address: str) -> None:
    events = events_of(
        address, Deed("die", seconds=0.05), *(Deed("nothing", number, seconds=0.1) for number in range(8))
    )
    found = ends(events)
    assert isinstance(found[0], Failed)
    assert "the worker died" in found[0].traceback
    assert "for want of memory" in found[0].traceback
    assert found[0].attempts >= 3
    assert [type(event) for event in found[1:]] == [Finished] * 8
    assert any(isinstance(event, Retried) for event in events)


def test_memory_of_the_workers(address: str) -> None:
    found = ends(events_of(address, Deed("nothing", need=3 << 30), Deed("nothing", need=1 << 30)))
    assert [type(event) for event in found] == [Failed, Finished]
    assert "the trial needs 3 GiB of memory, and on the worker tcp://" in found[0].traceback
    assert "it may use 2 GiB" in found[0].traceback


def test_trials_of_one_worker_share_its_memory() -> None:
    with distributed.LocalCluster(
        # A worker in this process, which Dask pauses near the limit: far more than the tests before may have left here.
        n_workers=1,
        threads_per_worker=3,
        processes=False,
        memory_limit="8GiB",
        dashboard_address=":0",
    ) as local:
        found = ends(events_of(local.scheduler_address, *(Deed("when", number, need=5 << 30) for number in range(4))))
    times = sorted((event.outcome["start"], event.outcome["end"]) for event in found)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(times))


def test_another_version_of_the_code_is_not_trusted(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "code_version", lambda study: "0" * 64)
    (event,) = ends(events_of(address, Deed("nothing")))
    assert isinstance(event, Failed)
    assert "has another version of the study deeds: update flipscope there" in event.traceback


def test_a_study_that_the_workers_do_not_have(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "homely.py").write_text(
        "from lab.example_studies import Deed, Deeds\nclass Homely(Deeds):\n    name = 'homely'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import homely  # type: ignore[import-not-found]

    study = homely.Homely(Deed("nothing"))
    with (
        Cluster(address) as runner,
        pytest.raises(InputError, match=r"cannot load the study .*homely.*install it there"),
    ):
        list(runner.run(jobs_of(study)))


def test_a_study_that_cannot_travel(address: str) -> None:
    class Local(Deeds):
        name = "local"

    for study in (Local(), type("Script", (Deeds,), {"name": "script", "__module__": "__main__"})()):
        stuck = pytest.raises(InputError, match=f"the study {study.name} cannot be sent to a cluster")
        with Cluster(address) as runner, stuck:
            list(runner.run([Job("0", study, Deed("nothing"))]))


def test_closing_takes_the_trials_back(address: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    deeds = [Deed("wait", where=str(mark)), *(Deed("nothing", number, seconds=0.1) for number in range(9))]
    with Cluster(address) as runner:
        with contextlib.closing(runner.run(jobs_of(Deeds(*deeds)))) as events:
            for _ in events:
                if mark.exists():
                    break
        Path(f"{mark}.go").touch()
        assert [type(event) for event in ends(list(runner.run(jobs_of(Deeds(Deed("nothing", 99))))))] == [Finished]


def test_no_scheduler_is_a_sentence(unused_tcp_address: str) -> None:
    for wrong in (unused_tcp_address, "nonsense://x", "tcp://"):
        silent = pytest.raises(InputError, match=f"no Dask scheduler answers at {wrong}: start one")
        with silent, open_runner(cluster=wrong):
            pass
        # One that is collected later, while the next connects, would hang both.
        left = [thing for thing in gc.get_objects() if issubclass(type(thing), distributed.Client)]
        assert [client.status for client in left if client.status != "closed"] == []


def test_a_lost_scheduler_is_a_sentence_and_no_loss(tmp_path: Path) -> None:
    study = Deeds(*(Deed("nothing", number, weight=2.0) for number in range(5)), Deed("hang"))
    code = """
import distributed, time
if __name__ == "__main__":
    with distributed.LocalCluster(
        1, processes=False, threads_per_worker=1, protocol="tcp://", dashboard_address=":0"
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        time.sleep(600)
"""
    script = tmp_path / "cluster.py"
    script.write_text(code)
    process = subprocess.Popen([sys.executable, str(script)], env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        *shorts, hanging = [trial_key(study, trial) for trial in study.chosen]
        expected = {(Started, hanging)} | {(Finished, key) for key in shorts}
        seen: set[tuple[type[Event], str]] = set()

        class Watch:
            def begin(self, *_: Any) -> None: ...
            def judged(self, _: Any) -> None: ...
            def end(self, _: Any) -> None: ...
            def event(self, event: Event) -> None:
                if isinstance(event, (Started, Finished)):
                    seen.add((type(event), event.key))
                if seen >= expected:  # the results may be heard of later than the next start
                    process.kill()

        with Store(tmp_path / "results") as store:
            lost = pytest.raises(InputError, match="the Dask scheduler was lost; what was measured is stored")
            with Cluster(address) as runner, lost:
                run_study(study, "smoke", store, runner, watch=Watch())
            assert store.runs("deeds")[0].state == "failed"
            assert len(store.done(trial_key(study, trial) for trial in study.chosen)) == 5
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_without_dask_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.importlib.import_module

    def absent(name: str) -> Any:
        if name in ("distributed", "dask_jobqueue"):
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(module.importlib, "import_module", absent)
    with pytest.raises(InputError, match=r"pip install 'flipscope\[cluster\]'"), Cluster("tcp://127.0.0.1:1"):
        pass


def test_jobs_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_jobqueue", reason="needs the extra cluster")
    options = Slurm(jobs=3, queue="long", account="lab", walltime="02:00:00", memory="6GiB", cores=2)
    with module.slurm_cluster(options) as cluster:
        script = cluster.job_script()
    for line in ("#SBATCH -p long", "#SBATCH -A lab", "#SBATCH -t 02:00:00", "#SBATCH --cpus-per-task=2"):
        assert line in script
    assert "export MALLOC_TRIM_THRESHOLD_=1099511627776" in script
    assert "export OMP_NUM_THREADS=1" in script
    assert "--nthreads 1" in script
    assert "--nworkers 2" in script
    assert "--memory-limit 3.00GiB" in script
    with pytest.raises(InputError, match="jobs must be"):
        Slurm(jobs=0)
    with pytest.raises(InputError, match="memory must be a size such as 4GiB, not 'nonsense'"):
        module.slurm_cluster(Slurm(memory="nonsense"))
    with pytest.raises(InputError, match="give one of --cluster, --slurm"):
        Cluster("tcp://127.0.0.1:1", options)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="its command sbatch is not here"), open_runner(slurm={"jobs": 2}):
        pass


def test_files_of_dask_add_to_the_jobs_of_slurm() -> None:
    dask = pytest.importorskip("dask")
    pytest.importorskip("dask_jobqueue", reason="needs the extra cluster")
    written = {
        "jobqueue.slurm.job-script-prologue": ["module load python"],
        "jobqueue.slurm.scheduler-options": {"port": 0, "host": "127.0.0.1"},
    }
    with dask.config.set(written), module.slurm_cluster(Slurm()) as cluster:
        script = cluster.job_script()
        assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")
    assert "module load python" in script
    assert "export OMP_NUM_THREADS=1" in script


def test_ctrl_c_means_the_same_with_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_jobqueue", reason="needs the extra cluster")
    for name in [name for name in sys.modules if name.partition(".")[0] == "dask_jobqueue"]:
        monkeypatch.delitem(sys.modules, name)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with module.slurm_cluster(Slurm()):
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


# ---------------------------------------------------------------- a Slurm of three scripts

_SBATCH = """
import os, subprocess, sys, pathlib
folder = pathlib.Path(__file__).parent
calls = len(list(folder.glob("call*")))
(folder / f"call{calls}").touch()
if str(calls) in os.environ["REFUSED"].split():
    sys.exit("sbatch: error: invalid partition specified: nowhere\\nsbatch: error: Batch job submission failed")
if os.environ["REFUSED"] != "none begins":
    with open(folder / f"{calls}.out", "w") as output:
        text = pathlib.Path(sys.argv[1]).read_text()
        job = subprocess.Popen(["bash", "-c", text], stdout=output, stderr=output, start_new_session=True)
    (folder / f"job{calls}").write_text(str(job.pid))
print("Submitted batch job", calls)
"""
_SCANCEL = """
import os, pathlib, signal, sys
os.killpg(int((pathlib.Path(__file__).parent / f"job{sys.argv[1]}").read_text()), signal.SIGKILL)
"""
_SQUEUE = """
import os, pathlib
for job in pathlib.Path(__file__).parent.glob("job*"):
    try:
        os.killpg(int(job.read_text()), 0)
        print(job.name[3:])
    except ProcessLookupError:
        pass
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with Slurm's commands; REFUSED has the calls of sbatch that are refused."""
    pytest.importorskip("dask_jobqueue", reason="needs the extra cluster")
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, code in {"sbatch": _SBATCH, "scancel": _SCANCEL, "squeue": _SQUEUE}.items():
        (folder / name).write_text(f"#!{sys.executable}\n{code}")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("REFUSED", "")
    monkeypatch.setattr(module, "LOST_SECONDS", 2.0)
    return folder


def alive(slurm: Path) -> list[str]:
    return subprocess.run([slurm / "squeue"], capture_output=True, text=True, check=True).stdout.split()


def test_a_job_of_several_workers_that_ends_is_replaced(slurm: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    deeds = [Deed("wait", where=str(mark), weight=9.0), *(Deed("nothing", number) for number in range(5))]
    found: list[Event] = []
    quiet = 0  # seconds in which the job has worked and was looked at
    with open_runner(slurm={"jobs": 1, "cores": 2, "memory": "2GiB"}) as runner:
        for event in runner.run(jobs_of(Deeds(*deeds))):
            found.append(event)
            quiet += mark.exists() and isinstance(event, Idle)
            if quiet == 2 and not Path(f"{mark}.go").exists():
                subprocess.run([slurm / "scancel", "0"], check=True)
                Path(f"{mark}.go").touch()
    assert [type(event) for event in ends(found)] == [Finished] * 6
    assert (slurm / "job1").exists()
    waited_for(lambda: not alive(slurm))


def test_slurm_refuses_all_jobs(
    slurm: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REFUSED", "0 1")
    refused = pytest.raises(InputError, match="Slurm refuses the jobs: invalid partition specified: nowhere; Batch job")
    with refused, open_runner(slurm={"jobs": 2}) as runner:
        list(runner.run(jobs_of(Deeds(Deed("nothing")))))
    assert "Traceback" not in capfd.readouterr().err


def test_slurm_refuses_a_job(
    slurm: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("REFUSED", "0")
    mark = tmp_path / "mark"
    with open_runner(slurm={"jobs": 2, "memory": "1GiB"}) as runner:
        events = []
        for event in runner.run(jobs_of(Deeds(Deed("wait", where=str(mark)), Deed("nothing")))):
            events.append(event)
            if len(alive(slurm)) == 2:  # it was asked again
                Path(f"{mark}.go").touch()
    assert [type(event) for event in ends(events)] == [Finished] * 2
    assert "Slurm refused 1 of 2 jobs (invalid partition" in caplog.text
    waited_for(lambda: not alive(slurm))


def test_jobs_of_slurm_that_end_at_once(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFUSED", "none begins")
    ended = pytest.raises(InputError, match=r"ended before their workers called: .* \(slurm-0\.out here")
    with ended, open_runner(slurm={"jobs": 1}) as runner:
        list(runner.run(jobs_of(Deeds(Deed("nothing")))))
