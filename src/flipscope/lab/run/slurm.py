"""Jobs of Slurm with Dask's workers in them, through dask-jobqueue."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.extra import imported
from flipscope.lab.run.resources import ENVIRONMENT
from flipscope.lab.run.tls import credentials

FETCH_SECONDS = 30
LOOPBACK = "127.0.0.1"
LOST_SECONDS = 60.0  # that workers are missing, until Slurm is asked for their jobs; Dask itself waits 15


@dataclass(frozen=True)
class Slurm:
    """What Slurm is asked for: so many jobs, each of some workers of one core; what is left out, Dask's files say."""

    jobs: int = 1
    queue: str | None = None
    account: str | None = None
    walltime: str | None = None
    memory: str = "4GiB"  # of a job
    cores: int = 1  # of a job: as many workers

    def __post_init__(self) -> None:
        check_count("jobs", self.jobs)
        check_count("cores", self.cores)


@contextlib.contextmanager
def slurm_cluster(options: Slurm) -> Iterator[Any]:
    """Dask's cluster of Slurm jobs, which lets in only who has the credentials of this run; none is started yet."""
    jobqueue = imported("dask_jobqueue")
    configured = imported("dask").config.get("jobqueue.slurm")
    given = {name: getattr(options, name) for name in ("queue", "account", "walltime")}
    try:
        imported("dask.utils").parse_bytes(options.memory)
    except ValueError:
        raise InputError(f"memory must be a size such as 4GiB, not {options.memory!r}") from None
    # The folder where the jobs begin, too, unless Dask's files name another that all machines share.
    shared = Path(os.path.expandvars(configured.get("shared-temp-directory") or ".")).expanduser().absolute()
    chosen = configured.get("scheduler-options") or {}
    with (
        credentials(shared) as security,
        jobqueue.SLURMCluster(
            job_cls=_job_class(),
            cores=options.cores,
            processes=options.cores,
            memory=options.memory,
            security=security,
            # With -P, a file in the folder of the job is not taken for a module of Python, such as pickle.
            python=f"{configured.get('python') or shlex.quote(sys.executable)} -P",
            # Dask's own default, to trim, doubles torch's time; what stands in the environment goes before it.
            job_script_prologue=[
                *(f"export {name}={value}" for name, value in ENVIRONMENT.items()),
                *(configured.get("job-script-prologue") or ()),
            ],
            # Dask's pages ask nobody who he is: they are shown on the machine itself only.
            worker_extra_args=[*(configured.get("worker-extra-args") or ()), "--dashboard-address", f"{LOOPBACK}:0"],
            scheduler_options={
                **chosen,
                "protocol": "tls://",
                "security": security,
                # Any port, if none is chosen: the usual one may be another's, on a machine that many share.
                "dashboard_address": f"{LOOPBACK}:{str(chosen.get('dashboard_address', 0)).rpartition(':')[2]}",
            },
            **{name: value for name, value in given.items() if value is not None},
        ) as cluster,
    ):
        yield cluster


def _job_class() -> Any:
    """Dask's job of Slurm, which keeps why sbatch refused it: Dask prints a traceback and waits for it for ever."""
    base = imported("dask_jobqueue").slurm.SLURMJob
    status = imported("distributed").Status

    def make(self: Any, *arguments: Any, security: Any, **options: Any) -> None:
        base.__init__(self, *arguments, security=_quoted(security), **options)

    async def start(self: Any) -> None:
        try:
            await base.start(self)
        except RuntimeError as error:
            lines = str(error).rpartition("stderr:")[2].strip().splitlines()
            self.refusal = "; ".join(line.removeprefix("sbatch: error: ") for line in lines) or "sbatch failed"
            self.status = status.running  # as far as Dask is concerned

    async def close(self: Any) -> None:
        await base.close(self)
        self.status = status.closed  # Dask asserts it of every job that somebody still knows, and never says it

    return type("SlurmJob", (base,), {"__init__": make, "start": start, "close": close, "refusal": None})


def _quoted(security: Any) -> Any:
    """The files of the worker as they stand in a script: Dask writes them there as they are, blanks and all."""
    made = copy.copy(security)
    for field in ("tls_ca_file", "tls_worker_cert", "tls_worker_key"):
        setattr(made, field, shlex.quote(getattr(security, field)))
    return made


class SlurmJobs:
    """Looks after the jobs of a cluster: Dask replaces neither those of several workers, nor those that never began."""

    def __init__(self, cluster: Any, options: Slurm) -> None:
        self._cluster = cluster
        self._jobs = options.jobs  # that are wanted: Dask may know of fewer, while it sends them
        self._threads = options.jobs * options.cores
        self._looked = time.monotonic()
        self._worked = False  # whether a worker has called since all jobs were replaced
        self._told = False

    def check(self, threads: int) -> None:
        """Replace the jobs that have ended; raise if no worker works and none will come."""
        jobs = dict(self._cluster.workers)
        refusals = [job.refusal for job in jobs.values() if job.refusal is not None]
        if not threads and len(refusals) >= self._jobs:
            raise InputError(f"Slurm refuses the jobs: {refusals[0]}")
        if refusals and not self._told:
            logging.getLogger("flipscope").warning(
                "Slurm refused %d of %d jobs (%s); going on with the others", len(refusals), self._jobs, refusals[0]
            )
            self._told = True
        self._worked |= threads > 0
        if threads >= self._threads:
            self._looked = time.monotonic()
        elif time.monotonic() - self._looked > LOST_SECONDS:
            self._replace(jobs, threads)
            self._looked = time.monotonic()

    def _replace(self, jobs: dict[str, Any], threads: int) -> None:
        queued = _queued()
        if queued is None:
            return
        ended = {name: job for name, job in jobs.items() if job.job_id not in queued}
        if not threads and len(ended) >= self._jobs:
            if not self._worked:
                number = max(int(job.job_id) for job in jobs.values() if job.job_id is not None)
                raise InputError(
                    "the Slurm jobs ended before their workers called: they were cancelled, or their output says why "
                    f"(slurm-{number}.out here, unless Dask's files name another folder)"
                )
            self._worked = False
        for name, job in ended.items():
            self._cluster.loop.add_callback(self._forget, name, job)

    async def _forget(self, name: str, job: Any) -> None:
        """Let Dask, in its own thread, miss a job: it sends another."""
        if self._cluster.workers.get(name) is job:
            del self._cluster.workers[name]
            await job.close()


def _queued() -> set[str] | None:
    """The numbers of our jobs that wait or run; None if Slurm does not answer."""
    command = ["squeue", "--noheader", "--format=%A", f"--user={os.getuid()}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=FETCH_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return set(answer.stdout.split())
