"""What a runner costs: seconds per trial that does nothing, with and without the store, and how well two workers share.

  overhead    trials that return at once: in this process, on a pool of two workers, on a Dask LocalCluster of two,
              there against Dask alone with as many calls of a function under way
  efficiency  trials of two seconds of pure computing on a pool of two workers: the time that one worker needs for
              its half, alone on the machine, against the time both need for all
  results     what it takes to look at a store of many rows: seconds of computing and memory of `flipscope results`,
              and how many times as long as reading the same rows from a JSON file

Run with: python benchmarks/runner.py [--quick] [--part overhead|efficiency|results]. The efficiency needs two idle
cores.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flipscope.basics.limits import cores
from flipscope.basics.progress import Progress
from flipscope.lab.rows import Rows
from flipscope.lab.run.cluster import AHEAD, Cluster
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.events import Failed, Finished
from flipscope.lab.run.runner import InProcess, Job, Pool, Runner
from flipscope.lab.store.store import Store
from flipscope.lab.study import Outcome, Result, Scale, Study, Trial

WORKERS = 2
GOAL = 0.9  # of the time of two workers that goes into trials
POOL_GOAL_MS = 0.5  # per trial, without the store
CLUSTER_GOAL = 1.5  # of what Dask itself takes for a function that does nothing, without the store
RESULTS_GOAL_SECONDS, RESULTS_GOAL_MB = 10.0, 200.0  # for a hundred thousand rows


@dataclass(frozen=True)
class Spin(Trial):
    """A trial that computes for so many rounds."""

    number: int
    rounds: int = 0

    def measure(self, progress: Progress) -> Outcome:
        return {"value": spin(self.rounds)}


class Spins(Study):
    """Trials of nothing but computing."""

    name = "spins"
    paper = "none"
    title = "Trials that compute"
    scales = {"smoke": Scale(1.0, {}, "as many as asked for")}
    claims = ()

    def __init__(self, count: int, rounds: int = 0) -> None:
        self.count, self.rounds = count, rounds

    def trials(self, scale: str) -> Sequence[Spin]:
        return [Spin(number, self.rounds) for number in range(self.count)]

    def summarise(self, results: Sequence[Result]) -> Rows:
        return Rows({"value": result.outcome["value"]} for result in results)


def spin(rounds: int) -> int:
    """Compute, without memory to speak of."""
    value = 1
    for _ in range(rounds):
        value = value * 6364136223846793005 % 18446744073709551557
    return value


def jobs(study: Spins) -> list[Job]:
    return [Job(str(number), study, trial) for number, trial in enumerate(study.trials("smoke"))]


def steady_seconds(runner: Runner, study: Spins) -> float:
    """Seconds per trial, from the tenth of them on: workers take their time to start, but only once."""
    ends = []
    for event in runner.run(jobs(study)):
        if isinstance(event, Failed):
            raise RuntimeError(event.traceback)
        if isinstance(event, Finished):
            ends.append(time.perf_counter())
    return steady(ends)


def steady(ends: Sequence[float]) -> float:
    """Seconds from one end to the next, without the first tenth."""
    first = len(ends) // 10
    return (ends[-1] - ends[first]) / (len(ends) - 1 - first)


class Stamped:
    """A runner whose results carry the time at which they were stored."""

    def __init__(self, runner: Runner) -> None:
        self.name = runner.name
        self._runner = runner
        self.ends: list[float] = []

    def run(self, jobs: Sequence[Job]) -> Iterator[object]:
        with contextlib.closing(self._runner.run(jobs)) as events:
            for event in events:
                yield event
                if isinstance(event, Finished):  # the driver asks for the next when it has stored this one
                    self.ends.append(time.perf_counter())


def stored_seconds(runner: Runner, study: Spins) -> float:
    """The same with each result stored."""
    stamped = Stamped(runner)
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        run_study(study, "smoke", store, stamped)  # type: ignore[arg-type]
    return steady(stamped.ends)


@contextlib.contextmanager
def local_cluster() -> Iterator[str]:
    """The address of a Dask cluster of this machine."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
    ) as local:
        yield local.scheduler_address


def dask_seconds(address: str, count: int) -> float:
    """Seconds per call that Dask itself takes, each result fetched as it comes and the next call handed in."""
    from distributed import Client, as_completed

    ends: list[float] = []
    with Client(address) as client:
        calls = as_completed([client.submit(spin, 0, pure=False) for _ in range(AHEAD * WORKERS)])
        for submitted, call in enumerate(calls, AHEAD * WORKERS):
            call.result()
            ends.append(time.perf_counter())
            if submitted < count:
                calls.add(client.submit(spin, 0, pure=False))
    return steady(ends)


def overhead(quick: bool) -> None:
    count = 300 if quick else 3000
    print(f"milliseconds per trial that does nothing, {count} trials, {WORKERS} workers")
    print(f"{'runner':<14}{'alone':>10}{'stored':>10}")

    def line(name: str, runner: Runner) -> float:
        alone, stored = 1e3 * steady_seconds(runner, Spins(count)), 1e3 * stored_seconds(runner, Spins(count))
        print(f"{name:<14}{alone:>10.3f}{stored:>10.3f}", end="  ", flush=True)
        return alone

    line("in-process", InProcess())
    print()
    alone = line("pool", Pool(WORKERS))
    print(f"goal alone {POOL_GOAL_MS:g}: {'met' if alone <= POOL_GOAL_MS else 'MISSED'}")
    if importlib.util.find_spec("distributed") is None:
        return
    with local_cluster() as address:
        plain = 1e3 * dask_seconds(address, count)
        print(f"{'Dask, no lab':<14}{plain:>10.3f}")
        with Cluster(address) as cluster:
            ratio = line("Dask", cluster) / plain
        print(f"{ratio:.2f} of Dask, goal {CLUSTER_GOAL:g}: {'met' if ratio <= CLUSTER_GOAL else 'MISSED'}")


def rounds_for(seconds: float) -> int:
    """How many rounds take so long."""
    rounds = 1_000_000
    start = time.perf_counter()
    spin(rounds)
    return round(rounds * seconds / (time.perf_counter() - start))


def computing_seconds(workers: int, study: Spins) -> float:
    """Seconds from the first start of a trial to the last result."""
    first = last = None
    for event in Pool(workers).run(jobs(study)):
        now = time.perf_counter()
        first = now if first is None else first
        last = now if isinstance(event, Finished) else last
    assert first is not None
    assert last is not None
    return last - first


def efficiency(quick: bool) -> None:
    seconds, count = (0.5, 8) if quick else (2.0, 16)
    rounds = rounds_for(seconds)
    print(f"\n{count} trials of about {seconds:g} s of computing, {cores()} cores")
    alone = computing_seconds(1, Spins(count // WORKERS, rounds))
    together = computing_seconds(WORKERS, Spins(count, rounds))
    share = alone / together
    print(f"one worker, half of them  {alone:8.2f} s\n{WORKERS} workers, all of them  {together:8.2f} s")
    print(f"efficiency {100 * share:.1f} %, goal {100 * GOAL:.0f} %: {'met' if share >= GOAL else 'MISSED'}")


def many_rows(folder: str, count: int) -> None:
    """A store of so many results, written at once."""
    trial = '{"number":%d,"width":64,"layers":2,"init":"gaussian","rate":0.1,"shape":[1,2]}'
    outcome = '{"mean":%r,"low":0.25,"high":0.75,"count":%d,"note":"a text","list":[1,2],"flag":true}'
    row = {"study": "many", "revision": 1, "source": "", "seconds": 1.5, "attempts": 1, "arrays": None}
    with Store(folder) as store, store.writing():
        row["machine"] = store.insert_content(b"{}")
        for number in range(count):
            row["key"] = hashlib.sha256(str(number).encode()).hexdigest()
            row["finished"] = f"2024-01-01T00:00:00.{number:06}+00:00"
            row |= {"trial": trial % number, "outcome": outcome % (number / 7, number)}
            store.insert("results", row)


def child(*command: str) -> tuple[float, float]:
    """Seconds of computing and megabytes that a process takes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    scale = 1 if sys.platform == "darwin" else 1024
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * scale / 1e6


def results(quick: bool) -> None:
    count = 10_000 if quick else 100_000
    print(f"\nflipscope results of {count:,} rows; the goals are for 100,000")
    print(f"{'as':<10}{'seconds':>9}{'MB':>8}{'of JSON':>9}")
    with tempfile.TemporaryDirectory() as folder:
        many_rows(folder, count)
        command = (sys.executable, "-m", "flipscope.cli", "results", "many", "--results", folder)
        rows = Path(folder) / "rows.json"  # not by way of this process: a child begins with the memory of its parent
        with rows.open("wb") as file:
            subprocess.run([*command, "--json"], stdout=file, check=True)
        plain, _ = child(sys.executable, "-c", "import json, sys; json.load(open(sys.argv[1]))", str(rows))
        kinds = {"page": [], "JSON": ["--json"], "CSV": ["--export", f"{folder}/rows.csv"]}
        if importlib.util.find_spec("pyarrow") is not None:
            kinds["Parquet"] = ["--export", f"{folder}/rows.parquet"]
        for name, options in kinds.items():
            seconds, size = child(*command, *options)
            good = seconds <= RESULTS_GOAL_SECONDS and size <= RESULTS_GOAL_MB
            print(
                f"{name:<10}{seconds:>9.2f}{size:>8.0f}{seconds / plain:>8.1f}x  {'met' if good else 'MISSED'}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter trials")
    parser.add_argument("--part", choices=("overhead", "efficiency", "results"))
    arguments = parser.parse_args()
    if arguments.part in (None, "overhead"):
        overhead(arguments.quick)
    if arguments.part in (None, "efficiency"):
        efficiency(arguments.quick)
    if arguments.part in (None, "results"):
        results(arguments.quick)


if __name__ == "__main__":
    import runner  # the workers must be able to import the study by its module's name

    runner.main()
