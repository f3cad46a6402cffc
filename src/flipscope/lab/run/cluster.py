"""Trials on a cluster, by Dask: on an existing scheduler, or in Slurm jobs.

Dask distributes the trials and reassigns those of a dead worker. It gets a few at a time, so that the longest start
first, and each result is released as soon as it has arrived: Dask would measure it again if it were lost.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import logging
import os
import pickle
import queue
import shutil
import sys
import threading
import time
import traceback
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from flipscope.basics.errors import InputError
from flipscope.basics.extra import imported
from flipscope.lab import registry
from flipscope.lab.keys import source_digest, sources_digest
from flipscope.lab.machine import machine
from flipscope.lab.run.events import Advanced, Event, Failed, Finished, Idle, Retried, Started
from flipscope.lab.run.pool import ATTEMPTS, IDLE_SECONDS, too_large
from flipscope.lab.run.resources import stay_with_one_thread
from flipscope.lab.run.runner import Job, measured
from flipscope.lab.run.slurm import FETCH_SECONDS, Slurm, SlurmJobs, slurm_cluster
from flipscope.lab.run.tls import Tls, security_for, warn_of_strangers, why_refused
from flipscope.lab.run.worker import reporter
from flipscope.lab.study import Study

CONNECT_SECONDS = 5
AHEAD = 2  # trials that Dask holds for each thread of its workers


class Cluster:
    """Runs trials on the cluster of a Dask scheduler's address, or on jobs of Slurm; a context manager."""

    def __init__(self, address: str | None = None, slurm: Slurm | None = None, tls: Tls | None = None) -> None:
        if (address is None) == (slurm is None):
            raise InputError(
                "a cluster is either a scheduler's address or jobs of Slurm: give one of --cluster, --slurm"
            )
        self._address, self._slurm, self._tls = address, slurm, tls or Tls()
        if slurm is not None and self._tls.given():
            raise InputError("--slurm makes certificates of its own for each run: leave --tls-... out")
        self._open = contextlib.ExitStack()
        self._client: Any = None
        self._check: Callable[[int], None] = lambda threads: None
        self.name = f"the cluster {address}" if slurm is None else f"{slurm.jobs} Slurm jobs"

    def __enter__(self) -> Cluster:
        with contextlib.ExitStack() as opened:  # on any error, even Ctrl-C, no job and no key is left behind
            client = self._connect_to_slurm(opened) if self._address is None else self._connect(self._address)
            self._client = opened.enter_context(client)
            self._open = opened.pop_all()
        return self

    def _connect_to_slurm(self, opened: contextlib.ExitStack) -> Any:
        assert self._slurm is not None
        if shutil.which("sbatch") is None:
            raise InputError("--slurm needs Slurm, and its command sbatch is not here: run it where jobs are sent from")
        cluster = opened.enter_context(slurm_cluster(self._slurm))
        self._check = SlurmJobs(cluster, self._slurm).check
        cluster.adapt(minimum_jobs=self._slurm.jobs, maximum_jobs=self._slurm.jobs)  # those that end are replaced
        return _connected(cluster, cluster.scheduler_address, cluster.security)

    def _connect(self, address: str) -> Any:
        security = security_for(address, self._tls)
        client = _connected(address, address, security)
        if security is None:
            warn_of_strangers(address)
        return client

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client = None
        self._open.close()

    def run(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        if self._client is None:
            raise InputError("the cluster is not connected: use it in a with statement")
        workers = self._slurm.jobs * self._slurm.cores if self._slurm is not None else 1
        with contextlib.closing(_Flight(self._client, jobs, AHEAD * workers, self._check)) as flight:
            yield from flight.events()


def _connected(target: Any, address: str, security: Any) -> Any:
    """A client of the scheduler.

    Dask leaves a client that found no scheduler to the garbage collector. If that closes it while the next client is
    being created, the two deadlock, so it is collected now.
    """
    distributed = imported("distributed")
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # the error below says the same in one sentence
    try:
        return distributed.Client(target, timeout=CONNECT_SECONDS, security=security, set_as_default=False)
    except (OSError, ValueError, MemoryError, concurrent.futures.TimeoutError) as error:
        said = why_refused(address, security, error)
    gc.collect()
    raise InputError(said)


class _Flight:
    """The waiting trials of a run, and those submitted to Dask."""

    def __init__(self, client: Any, jobs: Sequence[Job], least: int, check: Callable[[int], None]) -> None:
        self._client = client
        self._check = check  # whether workers will come
        self._least = least  # trials to submit while there are no workers yet
        self._waiting = deque(sorted(jobs, key=lambda job: -job.trial.cost))
        self._flying: dict[str, tuple[Job, Any]] = {}
        self._starts: Counter[str] = Counter()
        self._killed: Counter[str] = Counter()
        self._submitted = 0
        self._inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._topic = f"flipscope-{uuid.uuid4()}"
        self._looked = -IDLE_SECONDS
        self._memory: dict[str, int] = {}  # memory limits of the workers that have one
        self._threads = 0
        self._folder = _folder(jobs[0].study) if jobs else None
        client.subscribe_topic(self._topic, lambda event: self._inbox.put(event[1]))

    def events(self) -> Iterator[Event]:
        """The events until every trial has finished or failed."""
        start, told = time.monotonic(), False
        while self._waiting or self._flying:
            self._look()
            self._submit()
            try:
                message = self._inbox.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._threads == 0 and not told and time.monotonic() - start > 10 * IDLE_SECONDS:
                    logging.getLogger("flipscope").warning("the cluster has no workers; waiting for them")
                    told = True
                yield Idle()
                continue
            yield from self._heard(message)

    def close(self) -> None:
        """Cancel unfinished trials; later messages of running ones are ignored."""
        with contextlib.suppress(Exception):  # the scheduler may be gone
            self._client.unsubscribe_topic(self._topic)
            self._client.cancel([future for _, future in self._flying.values()], force=True)
        self._flying.clear()

    def _look(self) -> None:
        """Update the list of workers from time to time."""
        if time.monotonic() - self._looked < IDLE_SECONDS:
            return
        if self._client.status != "running":
            raise _lost()
        try:
            workers = self._client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, concurrent.futures.TimeoutError) as error:
            raise _lost() from error
        self._looked = time.monotonic()
        self._threads = sum(worker["nthreads"] for worker in workers.values())
        self._memory = {address: worker["memory_limit"] for address, worker in workers.items()}
        self._check(self._threads)

    def _submit(self) -> None:
        """Submit as many trials as the workers will soon need."""
        while self._waiting and len(self._flying) < max(AHEAD * self._threads, self._least):
            job = self._waiting.popleft()
            need = job.trial.memory
            large = [address for address, limit in self._memory.items() if not limit or limit >= need]
            some = bool(large) and len(large) < len(self._memory)
            key, again = job.key, self._killed[job.key]
            future = self._client.submit(
                _measure,
                _packed(job),
                _code(job.study),
                self._topic,
                self._folder,
                key=f"{key}-{again}" if again else key,
                pure=False,
                priority=-self._submitted,
                # If all large workers die, Dask may choose another, which reports that it is too small.
                workers=large if some else None,
                allow_other_workers=some,
            )
            self._submitted += 1
            self._flying[key] = (job, future)
            self._await(key, future)

    def _await(self, key: str, future: Any) -> None:
        future.add_done_callback(lambda _: self._inbox.put({"key": key, "landed": True}))

    def _heard(self, message: dict[str, Any]) -> Iterator[Event]:
        """The events of a message; late messages of finished trials are ignored."""
        key = message["key"]
        if key not in self._flying:
            return
        if "share" in message:
            yield Advanced(key, message["share"])
        elif "worker" in message:
            self._starts[key] += 1
            if self._starts[key] > 1:
                yield Retried(key, "its worker was lost")
            yield Started(key, message["worker"])
        else:
            yield from self._landed(key)

    def _landed(self, key: str) -> Iterator[Event]:
        """Fetch the result of a trial."""
        job, future = self._flying[key]
        try:
            reply = future.result(timeout=FETCH_SECONDS)
        except concurrent.futures.TimeoutError:  # its worker died with the result: Dask measures it again
            self._await(key, future)
            return
        except imported("distributed").KilledWorker as error:
            yield self._after_death(job, error)
            return
        except (concurrent.futures.CancelledError, OSError) as error:  # OSError: the connection broke
            raise _lost() from error
        except Exception as error:
            raise InputError(
                f"the cluster cannot run trials ({type(error).__name__}: {str(error).strip()}): "
                "the scheduler and the workers need the same flipscope and the study installed"
            ) from error
        del self._flying[key]
        future.release()
        yield _event(job, reply, max(1, self._starts[key]))

    def _after_death(self, job: Job, error: BaseException) -> Event:
        """Decide whether to retry a trial whose workers died; trials that only waited there are not counted."""
        _, future = self._flying.pop(job.key)
        future.release()
        self._killed[job.key] += 1
        times = max(self._starts[job.key], self._killed[job.key])
        if times < ATTEMPTS:
            self._waiting.appendleft(job)
            return Retried(job.key, "the workers that held it died")
        why = "perhaps for want of memory, or of its job's time"
        return Failed(job.key, f"the worker died {times} times, {why}: {error}", 0.0, times)


@dataclass(frozen=True)
class Reply:
    """A worker's reply: the pickled outcome, or the reason why there is none."""

    kind: Literal["done", "failed", "unloadable"]
    content: Any
    seconds: float
    machine: dict[str, Any]


def _event(job: Job, reply: Reply, attempts: int) -> Event:
    if reply.kind == "unloadable":
        raise InputError(str(reply.content))
    if reply.kind == "failed":
        return Failed(job.key, reply.content, reply.seconds, attempts)
    try:
        return Finished(job.key, pickle.loads(reply.content), reply.seconds, attempts, reply.machine)
    except Exception:
        return Failed(job.key, traceback.format_exc(), reply.seconds, attempts)


def _packed(job: Job) -> bytes:
    """The pickled job."""
    try:
        if type(job.study).__module__ == "__main__":
            raise InputError("it is defined in the script that runs it")
        return pickle.dumps(job)
    except Exception as error:
        raise InputError(
            f"the study {job.study.name} cannot be sent to a cluster ({error}): "
            "it and its trials must stand at the top of a module that can be imported"
        ) from error


def _code(study: Study) -> tuple[str, ...]:
    """Digests of the study's code and of the sources of flipscope and the study's package, which workers must match."""
    own = type(study).__module__.partition(".")[0]
    return source_digest(study), *map(sources_digest, sorted({"flipscope", own}))


def _folder(study: Study) -> str | None:
    """The folder of a study that is not installed, or the current one if it is on the search path; workers that
    share it can import the study from it."""
    return registry.folder_of(study) or (os.getcwd() if os.getcwd() in sys.path else None)


def _lost() -> InputError:
    return InputError("the Dask scheduler was lost; finished trials are stored: run it again to continue")


# ---------------------------------------------------------------- on a worker


class _Room:
    """The memory of a worker, shared by the trials of its threads in the order of their requests."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: deque[object] = deque()
        self._used = 0

    @contextlib.contextmanager
    def taken(self, size: int, limit: int | None) -> Iterator[None]:
        """Wait until this amount is free, and reserve it."""
        me = object()
        with self._changed:
            self._line.append(me)
            self._changed.wait_for(lambda: self._line[0] is me and (not limit or self._used + size <= limit))
            self._line.popleft()
            self._used += size
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._used -= size
                self._changed.notify_all()


_room = _Room()


def _measure(packed: bytes, code: tuple[str, ...], topic: str, folder: str | None) -> Reply:
    """Measure one trial; returns its outcome or the reason for failure."""
    worker = imported("distributed").get_worker()
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)  # last, so that no file there shadows a module of Python or of a package
    try:
        job: Job = pickle.loads(packed)
        ours = _code(job.study)
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        said = f"the worker {worker.address} cannot load the study ({reason}): install it there too"
        return Reply("unloadable", said, 0.0, machine())
    if ours != code:
        said = f"the worker {worker.address} has other code of flipscope or of {job.study.name}: install it anew."
        return Reply("failed", said, 0.0, machine())
    limit = worker.memory_manager.memory_limit
    if limit and job.trial.memory > limit:
        said = too_large(job.trial.memory, limit, f"on the worker {worker.address}")
        return Reply("failed", said, 0.0, machine())
    with _room.taken(job.trial.memory, limit):
        worker.log_event(topic, {"key": job.key, "worker": worker.address})
        stay_with_one_thread()
        start = time.perf_counter()
        try:
            told = reporter(lambda share: worker.log_event(topic, {"key": job.key, "share": share}))
            outcome = measured(job, told)
            seconds = time.perf_counter() - start
            return Reply("done", pickle.dumps(outcome), seconds, machine())
        except BaseException:  # SystemExit too: it should end the trial, not the worker
            return Reply("failed", traceback.format_exc(), time.perf_counter() - start, machine())
