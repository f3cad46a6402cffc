"""Slurm jobs that run Dask workers, through dask-jobqueue."""

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
LOST_SECONDS = 60.0  # time without workers until Slurm is queried about their jobs; Dask itself waits 15


@dataclass(frozen=True)
class Slurm:
    """Options of the Slurm jobs, whose workers have one core each; missing ones come from Dask's files."""

    jobs: int = 1
    queue: str | None = None
    account: str | None = None
    walltime: str | None = None
    memory: str = "4GiB"  # memory of a job
    cores: int = 1  # cores and workers of a job

    def __post_init__(self) -> None:
        check_count("jobs", self.jobs)
        check_count("cores", self.cores)


@contextlib.contextmanager
def slurm_cluster(options: Slurm) -> Iterator[Any]:
    """Dask's cluster of Slurm jobs, which accepts only the credentials of this run; no job is started yet."""
    jobqueue = imported("dask_jobqueue")
    configured = imported("dask").config.get("jobqueue.slurm")
    given = {name: getattr(options, name) for name in ("queue", "account", "walltime")}
    try:
        imported("dask.utils").parse_bytes(options.memory)
    except ValueError:
        raise InputError(f"memory must be a size such as 4GiB, not {options.memory!r}") from None
    # Also the folder in which jobs start, unless Dask's files name another shared folder.
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
            # With -P, a file in the job's folder cannot shadow a standard module such as pickle.
            python=f"{configured.get('python') or shlex.quote(sys.executable)} -P",
            # Dask's default of trimming memory doubles torch's time; the environment takes precedence.
            job_script_prologue=[
                *(f"export {name}={value}" for name, value in ENVIRONMENT.items()),
                *(configured.get("job-script-prologue") or ()),
            ],
            # Dask's web pages have no authentication, so they are served on the machine itself only.
            worker_extra_args=[*(configured.get("worker-extra-args") or ()), "--dashboard-address", f"{LOOPBACK}:0"],
            scheduler_options={
                **chosen,
                "protocol": "tls://",
                "security": security,
                # Any port if none is chosen: on a shared machine the usual one may be taken.
                "dashboard_address": f"{LOOPBACK}:{str(chosen.get('dashboard_address', 0)).rpartition(':')[2]}",
            },
            **{name: value for name, value in given.items() if value is not None},
        ) as cluster,
    ):
        yield cluster


def _job_class() -> Any:
    """Dask's Slurm job that records why sbatch rejected it; Dask would print a traceback and wait forever."""
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
        self.status = status.closed  # Dask asserts this status of every remaining job, but never sets it

    return type("SlurmJob", (base,), {"__init__": make, "start": start, "close": close, "refusal": None})


def _quoted(security: Any) -> Any:
    """The worker's files quoted for a shell script, since Dask inserts them unquoted."""
    made = copy.copy(security)
    for field in ("tls_ca_file", "tls_worker_cert", "tls_worker_key"):
        setattr(made, field, shlex.quote(getattr(security, field)))
    return made


class SlurmJobs:
    """Replaces ended jobs of a cluster: Dask replaces neither jobs of several workers nor those that never started."""

    def __init__(self, cluster: Any, options: Slurm) -> None:
        self._cluster = cluster
        self._jobs = options.jobs  # requested jobs: Dask may know fewer while it submits them
        self._threads = options.jobs * options.cores
        self._looked = time.monotonic()
        self._worked = False  # whether a worker has connected since all jobs were replaced
        self._told = False

    def check(self, threads: int) -> None:
        """Replace ended jobs; raise if no worker is active and none will come."""
        jobs = dict(self._cluster.workers)
        refusals = [job.refusal for job in jobs.values() if job.refusal is not None]
        if not threads and len(refusals) >= self._jobs:
            raise InputError(f"Slurm refuses the jobs: {refusals[0]}")
        if refusals and not self._told:
            logging.getLogger("flipscope").warning(
                "Slurm refused %d of %d jobs (%s); continuing with the others", len(refusals), self._jobs, refusals[0]
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
                    "the Slurm jobs ended before a worker connected: they were cancelled, or their output says why "
                    f"(slurm-{number}.out here, unless Dask's files name another folder)"
                )
            self._worked = False
        for name, job in ended.items():
            self._cluster.loop.add_callback(self._forget, name, job)

    async def _forget(self, name: str, job: Any) -> None:
        """Remove a job from Dask's list, in Dask's thread, so that it submits another."""
        if self._cluster.workers.get(name) is job:
            del self._cluster.workers[name]
            await job.close()


def _queued() -> set[str] | None:
    """The ids of our waiting and running jobs; None if Slurm does not answer."""
    command = ["squeue", "--noheader", "--format=%A", f"--user={os.getuid()}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=FETCH_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return set(answer.stdout.split())
