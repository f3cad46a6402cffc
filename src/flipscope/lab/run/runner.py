"""Runners that measure trials: this process, a pool of processes, or a cluster, with one small interface."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from flipscope.basics.checks import check_count
from flipscope.basics.compiling import compile_always
from flipscope.basics.errors import InputError
from flipscope.basics.limits import cores
from flipscope.basics.progress import Progress
from flipscope.data.finding import data_in
from flipscope.lab.context import kept_in
from flipscope.lab.run.events import Event, Failed, Finished, Started
from flipscope.lab.run.pool import Task, too_large, work
from flipscope.lab.run.resources import keep_one_thread, memory_limit, one_thread
from flipscope.lab.store.outcomes import split
from flipscope.lab.study import Outcome, Study, Trial


@dataclass(frozen=True)
class Job:
    """A trial to measure, the key of its events, the results folder, where trained models are stored, and the folder
    of data sets."""

    key: str
    study: Study
    trial: Trial
    folder: str | None = None
    data: str | None = None


@runtime_checkable
class Runner(Protocol):
    """Measures trials."""

    name: str

    def run(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        """Measure the trials in any order and yield events; closing the generator stops the run."""


def measured(job: Job, progress: Progress) -> Outcome:
    """The outcome of a job's trial."""
    # Trials share machine code, and outcomes do not depend on the cache.
    with kept_in(job.folder), data_in(job.data), compile_always():
        outcome = job.trial.measure(progress)
    split(outcome)  # raises here, as an error of the trial, if the outcome cannot be stored
    return outcome


class InProcess:
    """Measures one trial after the other in this process, for tests and debuggers."""

    name = "this process"

    def run(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        limit = memory_limit()
        with one_thread():
            for job in sorted(jobs, key=lambda job: -job.trial.cost):
                yield Started(job.key, f"process {os.getpid()}")
                if job.trial.memory > limit:
                    yield Failed(job.key, too_large(job.trial.memory, limit), 0.0, 1)
                else:
                    yield _tried(job)


def _tried(job: Job) -> Event:
    """Measure one trial and return the event of its end."""
    keep_one_thread()
    start = time.perf_counter()
    try:
        outcome = measured(job, lambda done, total: None)
    except (Exception, SystemExit):
        return Failed(job.key, traceback.format_exc(), time.perf_counter() - start, 1)
    return Finished(job.key, outcome, time.perf_counter() - start, 1)


class Pool:
    """Processes of one thread on this machine; by default one per core, with the free memory."""

    def __init__(self, workers: int | None = None, memory_limit: int | None = None) -> None:
        self.workers = cores() if workers is None else check_count("workers", workers)
        self.memory_limit = None if memory_limit is None else check_count("memory_limit", memory_limit)
        self.name = f"{self.workers} processes" if self.workers > 1 else "1 process"

    def run(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        tasks = [Task(job.key, measured, job, job.trial.cost, job.trial.memory) for job in jobs]
        yield from work(tasks, self.workers, self.memory_limit)


@contextlib.contextmanager
def open_runner(
    workers: int | None = None,
    cluster: str | None = None,
    slurm: Mapping[str, Any] | None = None,
    tls: Mapping[str, str] | None = None,
) -> Iterator[Runner]:
    """The requested runner, as a context manager.

    A cluster by its address (and certificates: `lab.run.tls`), jobs of Slurm (`lab.run.slurm` has the options), or
    this machine; 0 workers: this process.
    """
    if cluster is None and slurm is None:
        if tls:
            raise InputError(f"--tls-{next(iter(tls))} is for the scheduler of a cluster: add --cluster tls://...")
        yield InProcess() if workers == 0 else Pool(workers)
        return
    if workers is not None:
        raise InputError("workers are processes of this machine: with a cluster, leave --workers out")
    from flipscope.lab.run.cluster import Cluster
    from flipscope.lab.run.slurm import Slurm
    from flipscope.lab.run.tls import Tls

    with Cluster(cluster, None if slurm is None else Slurm(**slurm), Tls(**(tls or {}))) as runner:
        yield runner
