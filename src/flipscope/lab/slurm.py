"""Jobs of Slurm with Dask's workers in them, through dask-jobqueue."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from flipscope.cube.intervals import check_count
from flipscope.errors import InputError
from flipscope.lab.resources import ENVIRONMENT

FETCH_SECONDS = 30
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


def slurm_cluster(options: Slurm) -> Any:
    """Dask's cluster of Slurm jobs; none is started yet."""
    jobqueue = imported("dask_jobqueue")
    configured = imported("dask").config.get("jobqueue.slurm")
    given = {name: getattr(options, name) for name in ("queue", "account", "walltime")}
    try:
        imported("dask.utils").parse_bytes(options.memory)
    except ValueError:
        raise InputError(f"memory must be a size such as 4GiB, not {options.memory!r}") from None
    return jobqueue.SLURMCluster(
        job_cls=_job_class(),
        cores=options.cores,
        processes=options.cores,
        memory=options.memory,
        # Dask's own default, to trim, doubles torch's time; what stands in the environment goes before it.
        job_script_prologue=[
            *(f"export {name}={value}" for name, value in ENVIRONMENT.items()),
            *(configured.get("job-script-prologue") or ()),
        ],
        # Any port: the usual one may be another's, on a machine that many share.
        scheduler_options={"dashboard_address": ":0", **(configured.get("scheduler-options") or {})},
        **{name: value for name, value in given.items() if value is not None},
    )


def _job_class() -> Any:
    """Dask's job of Slurm, which keeps why sbatch refused it: Dask prints a traceback and waits for it for ever."""
    base = imported("dask_jobqueue").slurm.SLURMJob
    status = imported("distributed").Status

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

    return type("SlurmJob", (base,), {"start": start, "close": close, "refusal": None})


class SlurmJobs:
    """Looks after the jobs of a cluster: Dask replaces neither those of several workers, nor those that never began."""

    def __init__(self, cluster: Any, threads: int) -> None:
        self._cluster = cluster
        self._wanted = threads
        self._looked = time.monotonic()
        self._worked = False  # whether a worker has called since all jobs were replaced
        self._told = False

    def check(self, threads: int) -> None:
        """Replace the jobs that have ended; raise if no worker works and none will come."""
        jobs = dict(self._cluster.workers)
        refusals = [job.refusal for job in jobs.values() if job.refusal is not None]
        if refusals and not threads and len(refusals) == len(jobs):
            raise InputError(f"Slurm refuses the jobs: {refusals[0]}")
        if refusals and not self._told:
            logging.getLogger("flipscope").warning(
                "Slurm refused %d of %d jobs (%s); going on with the others", len(refusals), len(jobs), refusals[0]
            )
            self._told = True
        self._worked |= threads > 0
        if threads >= self._wanted:
            self._looked = time.monotonic()
        elif time.monotonic() - self._looked > LOST_SECONDS:
            self._replace(jobs, threads)
            self._looked = time.monotonic()

    def _replace(self, jobs: dict[str, Any], threads: int) -> None:
        queued = _queued()
        if queued is None:
            return
        ended = {name: job for name, job in jobs.items() if job.job_id not in queued}
        if ended and not threads and len(ended) == len(jobs):
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


def imported(package: str) -> Any:
    """A package of the extra `cluster`."""
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InputError("a cluster needs Dask: pip install 'flipscope[cluster]'") from None
    finally:
        # dask_jobqueue lets Ctrl-C end the process with code 0.
        if signal.getsignal(signal.SIGINT) is not interrupted:
            signal.signal(signal.SIGINT, interrupted)
