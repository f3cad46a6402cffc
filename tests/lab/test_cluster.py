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
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from lab.cluster_events import ends, jobs_of
from lab.example_studies import Blinks, Deed, Deeds, Numbers, environment
from lab.stores import flat, record
from lab.stores import results as stored_results
from waiting import waited_for

from flipscope.basics.errors import InputError
from flipscope.lab.keys import trial_key
from flipscope.lab.run import cluster as module
from flipscope.lab.run.cluster import Cluster
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.events import Advanced, Event, Failed, Finished, Retried, Started
from flipscope.lab.run.runner import InProcess, Job, Pool, open_runner
from flipscope.lab.run.tls import warn_of_strangers
from flipscope.lab.run.worker import REPORT_SECONDS
from flipscope.lab.store.store import Store

dask = pytest.importorskip("dask", reason="needs the extra cluster")
distributed = pytest.importorskip("distributed", reason="needs the extra cluster")
pytest.importorskip("cryptography", reason="needs the extra cluster")

# Dask leaves sockets and loops to the sweep of memory.
pytestmark = [pytest.mark.filterwarnings("default::ResourceWarning"), pytest.mark.slow]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    # Dask's own cluster gives a killed worker up for good that has not begun again within 15 seconds, and on a busy
    # machine that takes longer.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            memory_limit="2GiB",
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as local,
    ):
        yield local.scheduler_address
    gc.collect()  # what Dask has left, while it is forgiven


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
                runs.append(stored_results(store, study, study.trials("smoke")))
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
        assert sorted(row["key"] for row in flat(store, "deeds")) == sorted(keys) == sorted(measured)
        found = record(store, keys[0])
        assert found is not None
        assert found.attempts == 2
        assert [found.outcome["pid"]] != victims
        assert found.machine["flipscope"]


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


@pytest.mark.parametrize("changed", ["source_digest", "sources_digest"])
def test_another_version_of_the_code_is_not_trusted(
    changed: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, changed, lambda of: "0" * 64)
    (event,) = ends(events_of(address, Deed("nothing")))
    assert isinstance(event, Failed)
    assert "has other code of flipscope or of deeds: install it anew" in event.traceback


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


def test_no_scheduler_is_a_sentence(unused_tcp_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_SECONDS", 1)
    for wrong in (unused_tcp_address, "tcp://", "tcp://127.0.0.1"):
        silent = pytest.raises(InputError, match=f"no Dask scheduler answers at {wrong}: start one")
        with silent, open_runner(cluster=wrong):
            pass
        # One that is collected later, while the next connects, would hang both.
        left = [thing for thing in gc.get_objects() if issubclass(type(thing), distributed.Client)]
        assert [client.status for client in left if client.status != "closed"] == []


# ---------------------------------------------------------------- who may speak with whom


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Certificates and keys: those of two runs, and what is none."""
    folder = tmp_path_factory.mktemp("tls")
    texts = {"nonsense": "no certificate\n"}
    for whose in ("our", "other"):
        made = distributed.Security.temporary()
        texts |= {f"{whose} cert": made.tls_client_cert, f"{whose} key": made.tls_client_key}
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(texts["our key"].encode(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    texts["locked key"] = key.private_bytes(*form).decode()
    for name, text in texts.items():
        (folder / name).write_text(text)
    os.mkfifo(folder / "pipe")
    return {path.name: str(path) for path in folder.iterdir()} | {"missing": str(folder / "missing")}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is refused is refused at once; on a busy machine that may take a while."""
    monkeypatch.setattr(module, "CONNECT_SECONDS", 60)


@pytest.fixture(scope="module")
def safe_address(files: dict[str, str]) -> Iterator[str]:
    fields = {
        f"tls_{role}_{part}": files[f"our {part}"]
        for role in ("client", "scheduler", "worker")
        for part in ("cert", "key")
    }
    security = distributed.Security(tls_ca_file=files["our cert"], require_encryption=True, **fields)
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tls://",
        host="127.0.0.1",
        security=security,
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as local:
        yield local.scheduler_address
    gc.collect()


@pytest.mark.usefixtures("patient")
def test_a_scheduler_that_wants_certificates(safe_address: str, files: dict[str, str]) -> None:
    tls = {"ca": files["our cert"], "cert": files["our cert"], "key": files["our key"]}
    with open_runner(cluster=safe_address, tls=tls) as runner:
        assert [type(event) for event in ends(list(runner.run(jobs_of(Deeds(Deed("nothing"))))))] == [Finished]
    written = {"ca-file": tls["ca"], "client.cert": tls["cert"], "client.key": tls["key"]}
    with (
        dask.config.set({f"distributed.comm.tls.{name}": path for name, path in written.items()}),
        open_runner(cluster=safe_address),
    ):
        pass


@pytest.mark.parametrize(
    ("ca", "cert", "key", "sentence"),
    [
        (None, None, None, "needs --tls-ca, --tls-cert and --tls-key: --tls-ca is missing"),
        ("our cert", None, None, "needs --tls-ca, --tls-cert and --tls-key: --tls-cert is missing"),
        ("our cert", "our cert", None, "are not a certificate and its key in PEM format"),
        ("missing", "our cert", "our key", "--tls-ca .*missing cannot be read: No such file"),
        ("our cert", "pipe", "our key", "--tls-cert .*pipe is not a file"),
        ("nonsense", "our cert", "our key", "--tls-ca .*nonsense holds no certificate"),
        ("our cert", "our cert", "nonsense", "are not a certificate and its key in PEM format"),
        ("our cert", "our cert", "other key", "--tls-key .*other key does not belong to the certificate"),
        ("our cert", "our cert", "locked key", "--tls-key .*locked key is locked by a passphrase"),
        ("other cert", "our cert", "our key", "answers with these certificates .* give with --tls-ca"),
        ("our cert", "other cert", "other key", "answers with these certificates .* give with --tls-ca"),
    ],
)
@pytest.mark.usefixtures("patient")
def test_wrong_certificates_are_a_sentence(
    safe_address: str, files: dict[str, str], ca: str | None, cert: str | None, key: str | None, sentence: str
) -> None:
    tls = {name: files[file] for name, file in {"ca": ca, "cert": cert, "key": key}.items() if file is not None}
    with pytest.raises(InputError, match=sentence) as raised, open_runner(cluster=safe_address, tls=tls):
        pass
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_key_is_a_sentence(safe_address: str, files: dict[str, str], tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch(0o000)
    tls = {"ca": files["our cert"], "cert": files["our cert"], "key": str(key)}
    with pytest.raises(InputError, match=r"--tls-key .*key cannot be read"), open_runner(cluster=safe_address, tls=tls):
        pass


@pytest.mark.usefixtures("patient")
def test_wrong_addresses_are_a_sentence(address: str, safe_address: str, files: dict[str, str]) -> None:
    tls = {"ca": files["our cert"], "cert": files["our cert"], "key": files["our key"]}
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        cases: list[tuple[str, dict[str, str], str]] = [
            (f"tcp://127.0.0.1:{other.getsockname()[1]}", {}, "is not a Dask scheduler, or requires tls://"),
            (safe_address.replace("tls", "tcp"), {}, "is not a Dask scheduler, or requires tls://"),
            ("tls://127.0.0.1", tls, "no Dask scheduler at tls://127.0.0.1 answers .* start one"),
            (address.replace("tcp", "tls"), tls, "answers with these certificates .* correct --cluster"),
            (address, tls, "--tls-ca is for an address tls://..., and --cluster is tcp://"),
            ("http://127.0.0.1:8787", {}, "--cluster http://127.0.0.1:8787 must begin with tls:// or tcp://"),
            ("nonsense://x", tls, "--cluster nonsense://x must begin with tls:// or tcp://"),
        ]
        for wrong, given, sentence in cases:
            with pytest.raises(InputError, match=sentence), open_runner(cluster=wrong, tls=given):
                pass
        thread.join()
    with pytest.raises(InputError, match="add --cluster tls://"), open_runner(tls=tls):
        pass
    with pytest.raises(InputError, match="leave --tls-"), open_runner(slurm={}, tls=tls):
        pass
    with (
        pytest.raises(InputError, match="require encryption: --cluster must be tls://"),
        dask.config.set({"distributed.comm.require-encryption": True}),
        open_runner(cluster=address),
    ):
        pass


def test_who_uses_an_open_scheduler_is_told(address: str, caplog: pytest.LogCaptureFixture) -> None:
    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "flipscope"]

    with open_runner(cluster=address):
        assert not said()
    for loopback in ("tcp://localhost:1", "tcp://[::1]:1", "127.0.0.1:1"):
        warn_of_strangers(loopback)
    assert not said()
    for wide in ("tcp://192.0.2.7:8786", "192.0.2.7:8786", "tcp://[2001:db8::1]:8786"):
        warn_of_strangers(wide)
        assert said()[-1].startswith(f"the scheduler at {wide} lets in anybody who can reach it")
    assert len(said()) == 3


# ---------------------------------------------------------------- a scheduler that goes away


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

        class Observer:
            def begin(self, *_: Any) -> None: ...
            def judged(self, _: Any) -> None: ...
            def finished(self, _: Any) -> None: ...
            def event(self, event: Event) -> None:
                if isinstance(event, (Started, Finished)):
                    seen.add((type(event), event.key))
                if seen >= expected:  # the results may be heard of later than the next start
                    process.kill()

        with Store(tmp_path / "results") as store:
            lost = pytest.raises(InputError, match="the Dask scheduler was lost; finished trials are stored")
            with Cluster(address) as runner, lost:
                run_study(study, "smoke", store, runner, observer=Observer())
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
