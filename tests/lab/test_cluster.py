"""The cluster: the same numbers as anywhere, whatever happens to workers and scheduler."""

from __future__ import annotations

import contextlib
import gc
import importlib
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
from lab.cluster_events import ends, jobs_of
from lab.example_studies import Blinks, Deed, Deeds, Numbers, environment
from waiting import waited_for

from flipscope.errors import InputError
from flipscope.lab import cluster as module
from flipscope.lab.cluster import Cluster
from flipscope.lab.driver import run_study
from flipscope.lab.events import Advanced, Event, Failed, Finished, Retried, Started
from flipscope.lab.runner import InProcess, Job, Pool, open_runner
from flipscope.lab.store import Store
from flipscope.lab.version import trial_key
from flipscope.lab.worker import REPORT_SECONDS

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


def events_of(address: str, *deeds: Deed) -> list[Event]:
    with Cluster(address) as runner:
        return list(runner.run(jobs_of(Deeds(*deeds))))


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
                    waited_for(lambda: not Path(f"/proc/{victims[0]}").exists())  # at once where there is no /proc
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
    assert 1 <= len(shares) <= found[4].seconds / REPORT_SECONDS
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
    real = importlib.import_module

    def absent(name: str) -> Any:
        if name in ("distributed", "dask_jobqueue"):
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(InputError, match=r"pip install 'flipscope\[cluster\]'"), Cluster("tcp://127.0.0.1:1"):
        pass
