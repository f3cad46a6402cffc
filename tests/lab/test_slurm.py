"""Jobs of Slurm: what they are asked for, and what happens when they are refused or end."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lab.cluster_events import ends, jobs_of
from lab.example_studies import Deed, Deeds, Numbers, environment
from lab.processes import listening, members
from lab.shadows import plant_shadows
from waiting import waited_for

from flipscope.basics.errors import InputError
from flipscope.lab import registry
from flipscope.lab.run import slurm as module
from flipscope.lab.run.cluster import Cluster
from flipscope.lab.run.events import Event, Finished, Idle, Started
from flipscope.lab.run.runner import InProcess, open_runner
from flipscope.lab.run.slurm import Slurm, SlurmJobs, slurm_cluster

pytest.importorskip("dask_jobqueue", reason="needs the extra cluster")
pytest.importorskip("cryptography", reason="needs the extra cluster")

# Dask leaves sockets and loops to the sweep of memory.
pytestmark = [pytest.mark.filterwarnings("default::ResourceWarning"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A current folder of their own: the credentials of a run are written there."""
    monkeypatch.chdir(tmp_path)
    yield
    gc.collect()  # what Dask has left, while it is forgiven


def test_jobs_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Slurm(jobs=3, queue="long", account="lab", walltime="02:00:00", memory="6GiB", cores=2)
    with slurm_cluster(options) as cluster:
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
    wrong = pytest.raises(InputError, match="memory must be a size such as 4GiB, not 'nonsense'")
    with wrong, slurm_cluster(Slurm(memory="nonsense")):
        pass
    with pytest.raises(InputError, match="give one of --cluster, --slurm"):
        Cluster("tcp://127.0.0.1:1", options)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="its command sbatch is not here"), open_runner(slurm={"jobs": 2}):
        pass


def test_files_of_dask_add_to_the_jobs_of_slurm_but_open_no_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dask = pytest.importorskip("dask")
    (tmp_path / "shared").mkdir()
    written = {
        "jobqueue.slurm.job-script-prologue": ["module load python"],
        "jobqueue.slurm.scheduler-options": {
            "port": 0,
            "host": "127.0.0.1",
            "protocol": "tcp://",
            "security": None,
            "dashboard_address": ":0",
        },
        "jobqueue.slurm.worker-extra-args": ["--resources", "a=1", "--dashboard-address", ":0"],
        "jobqueue.slurm.python": "python3",
        "jobqueue.slurm.shared-temp-directory": "$FOLDER/shared",
    }
    monkeypatch.setenv("FOLDER", str(tmp_path))
    before = listening([os.getpid()])
    with dask.config.set(written), slurm_cluster(Slurm()) as cluster:
        script = cluster.job_script()
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
        assert {host for host, _ in listening([os.getpid()]) - before} == {"127.0.0.1"}
        assert len(list((tmp_path / "shared").glob(".flipscope-*"))) == 1
    assert not list((tmp_path / "shared").iterdir())
    assert "module load python" in script
    assert "export OMP_NUM_THREADS=1" in script
    assert "python3 -P -m distributed" in script
    assert "--resources a=1" in script
    assert script.rindex("--dashboard-address 127.0.0.1:0") > script.rindex("--dashboard-address :0")


def test_credentials_that_cannot_be_made_are_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dask = pytest.importorskip("dask")
    nowhere = pytest.raises(
        InputError, match=r"the certificate of the run cannot be written to .*nowhere: No such file"
    )
    with (
        nowhere,
        dask.config.set({"jobqueue.slurm.shared-temp-directory": str(tmp_path / "nowhere")}),
        slurm_cluster(Slurm()),
    ):
        pass
    monkeypatch.setitem(sys.modules, "cryptography", None)
    lacking = pytest.raises(InputError, match=r"needs the package cryptography: pip install 'flipscope\[cluster\]'")
    with lacking, slurm_cluster(Slurm()):
        pass


def test_ctrl_c_means_the_same_with_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "dask_jobqueue"]:
        monkeypatch.delitem(sys.modules, name)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with slurm_cluster(Slurm()):
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


# ---------------------------------------------------------------- a Slurm of three scripts

_SBATCH = """
import contextlib, itertools, os, subprocess, sys, pathlib
folder = pathlib.Path(__file__).parent
for calls in itertools.count():  # Dask sends its jobs at once: each call takes a number that no other has
    with contextlib.suppress(FileExistsError):
        (folder / f"call{calls}").touch(exist_ok=False)
        break
if str(calls) in os.environ["REFUSED"].split():
    sys.exit("sbatch: error: invalid partition specified: nowhere\\nsbatch: error: Batch job submission failed")
if os.environ["REFUSED"] != "none begins":
    with open(folder / f"{calls}.out", "w") as output:
        text = pathlib.Path(sys.argv[1]).read_text()
        job = subprocess.Popen(["bash", "-c", text], stdout=output, stderr=output, start_new_session=True)
    (folder / f"new{calls}").write_text(str(job.pid))
    (folder / f"new{calls}").rename(folder / f"job{calls}")  # squeue finds it whole
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
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, code in {"sbatch": _SBATCH, "scancel": _SCANCEL, "squeue": _SQUEUE}.items():
        (folder / f"{name}.py").write_text(code)
        # Through a shell, since a first line with #! cannot hold the path of a Python in a folder with a space.
        command = shlex.join([sys.executable, str(folder / f"{name}.py")])
        (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
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


def test_jobs_find_a_study_of_the_folder_and_no_shadow_of_a_module(
    slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "homestead.py").write_text(
        "import flipscope.lab.study\nfrom lab.example_studies import Deed, Deeds\n"
        "class Homestead(Deeds):\n    name = 'homestead'\nSTUDY = Homestead(Deed('nothing'))\n"
    )
    plant_shadows(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    study = registry.find("homestead:STUDY")
    with open_runner(slurm={"jobs": 1, "memory": "1GiB"}) as runner:
        events = list(runner.run(jobs_of(study)))
    assert [type(event) for event in ends(events)] == [Finished]
    assert not list(tmp_path.glob("ran *"))
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


def test_a_refused_job_ends_nothing_while_others_are_still_to_be_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LOST_SECONDS", -1.0)
    monkeypatch.setattr(module, "_queued", set)
    forgotten: list[Any] = []
    refused = SimpleNamespace(refusal="too many jobs", job_id=None)
    dask = SimpleNamespace(workers={"first": refused}, worker_spec={"first": {}})
    dask.loop = SimpleNamespace(add_callback=lambda _, *job: forgotten.append(job))
    jobs = SlurmJobs(dask, Slurm(jobs=2))
    jobs.check(0)
    assert forgotten == [("first", refused)]  # it is sent again
    assert "Slurm refused 1 of 2 jobs (too many jobs)" in caplog.text
    dask.workers["second"] = refused
    with pytest.raises(InputError, match="Slurm refuses the jobs: too many jobs"):
        jobs.check(0)


def test_jobs_of_slurm_that_end_at_once(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFUSED", "none begins")
    ended = pytest.raises(InputError, match=r"ended before a worker connected: .* \(slurm-0\.out here")
    with ended, open_runner(slurm={"jobs": 1}) as runner:
        list(runner.run(jobs_of(Deeds(Deed("nothing")))))


# ---------------------------------------------------------------- who may connect


def comm_to(address: str, security: Any) -> None:
    """Speak with whatever of Dask listens there, far enough to be let in."""
    from distributed.comm import connect

    async def speak() -> None:
        comm = await connect(address, timeout=PATIENCE, **security.get_connection_args("client"))
        await comm.close()

    asyncio.run(speak())


def client_of(address: str, security: Any) -> None:
    from distributed import Client

    with Client(address, timeout=PATIENCE, security=security, set_as_default=False) as client:
        client.run_on_scheduler(os.getpid)


PATIENCE = 60  # seconds, for those who must be let in: the others are refused at once


@pytest.mark.skipif(sys.platform != "linux", reason="looks for ports in /proc")
def test_nobody_without_the_credentials_of_the_run_is_let_in(
    slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Security

    shared = tmp_path / "a folder of one's own"  # it stands in the job's script
    shared.mkdir()
    monkeypatch.chdir(shared)
    before = listening([os.getpid()])
    found: list[Event] = []
    reached = []
    with open_runner(slurm={"jobs": 1, "cores": 1, "memory": "2GiB"}) as runner:
        for event in runner.run(jobs_of(Numbers())):
            found.append(event)
            if not isinstance(event, Started) or reached:
                continue
            ports = listening([os.getpid()]) - before | listening(members(int((slurm / "job0").read_text())))
            wide = {(host, port) for host, port in ports if not ipaddress.ip_address(host).is_loopback}
            reached = [(runner._client.scheduler.address, client_of)]  # type: ignore[attr-defined]
            for host, port in sorted(wide):
                reached.append(
                    (f"tls://{'127.0.0.1' if ipaddress.ip_address(host).is_unspecified else host}:{port}", comm_to)
                )
            for address, enter in reached:
                for scheme, foreign in (("tcp", Security()), ("tls", Security.temporary())):
                    with pytest.raises(OSError, match=r"^(?!Timed out)"):
                        enter(address.replace("tls", scheme), foreign)
            (folder,) = shared.glob(".flipscope-*")
            assert folder.stat().st_mode & 0o777 == 0o700
            assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
            ca, cert, key = (str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem"))
            ours = Security(tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True)
            for address, enter in reached:
                enter(address, ours)
    assert len({address for address, _ in reached}) >= 3  # of the scheduler, the worker and who looks after the worker
    assert not list(shared.glob(".flipscope-*"))
    expected = {event.key: event for event in InProcess().run(jobs_of(Numbers())) if isinstance(event, Finished)}
    for event in ends(found):
        outcome, other = dict(event.outcome), dict(expected.pop(event.key).outcome)
        assert outcome.pop("product").tobytes() == other.pop("product").tobytes()
        assert outcome == other
    assert not expected
    waited_for(lambda: not alive(slurm))
