"""Studies for the tests of the runners: some that behave, and one that does whatever it is told.

A module of its own, without pytest, because worker processes import it by name.
"""

from __future__ import annotations

import errno
import gc
import math
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from flipscope.basics.errors import InputError
from flipscope.basics.estimates import mean_from_samples
from flipscope.basics.progress import Progress
from flipscope.lab.rows import Rows
from flipscope.lab.run import worker
from flipscope.lab.study import Claim, Outcome, Result, Scale, Study, Trial
from flipscope.lab.verdict import Judgement, at_least


def judge_mean(table: Rows) -> Judgement:
    return at_least(mean_from_samples([row["value"] for row in table], 0, 1, 0.95), 0.2, "the mean value")


CLAIMS = (Claim("mean", "Fig 0", "values are large", "mean value against 0.2", judge_mean),)


class Example(Study):
    """What the studies below have in common."""

    paper = "000"
    title = "A study for tests"
    scales = {"smoke": Scale(0.1, {}, "all of it")}
    claims = CLAIMS

    def summarise(self, results: Sequence[Result]) -> Rows:
        return [{**result.trial.content(), "value": float(result.outcome["value"])} for result in results]


# ---------------------------------------------------------------- numbers that must be the same everywhere


@dataclass(frozen=True)
class Draw(Trial):
    seed: int

    @property
    def memory(self) -> int:
        return 1 << 28

    def measure(self, progress: Progress) -> Outcome:
        import torch

        stream = np.random.default_rng(self.seed)
        a, b = stream.standard_normal((2, 500_000))
        torch_stream = torch.Generator().manual_seed(self.seed)
        x, y = torch.randn((2, 300_000), generator=torch_stream)
        weights = torch.randn((96, 96), generator=torch_stream)
        hidden = torch.tanh(torch.randn((400, 96), generator=torch_stream) @ weights)
        return {
            "value": float(stream.random()),
            "dot": float(a @ b),
            "torch": float(x @ y),
            "sum": float(x.sum()),
            "product": (hidden.T @ hidden).numpy(),
            "threads": torch.get_num_threads(),
        }


class Numbers(Example):
    """Sums that depend, in their last bits, on how many threads add them up."""

    name = "numbers"

    def trials(self, scale: str) -> Sequence[Draw]:
        return [Draw(seed) for seed in range(5)]


# ---------------------------------------------------------------- many short trials


HOLD = "FLIPSCOPE_TEST_HOLD"  # names a file: while it is there, the last of the blinks does not end


@dataclass(frozen=True)
class Blink(Trial):
    number: int
    milliseconds: int = 20

    def measure(self, progress: Progress) -> Outcome:
        stream = np.random.default_rng(self.number)
        time.sleep(self.milliseconds / 1000)
        while self.number == 199 and HOLD in os.environ and Path(os.environ[HOLD]).exists():
            time.sleep(0.01)
        return {"value": float(stream.random()), "many": stream.random(1000), "name": f"trial {self.number}"}


class Blinks(Example):
    """Two hundred trials of a few milliseconds, each with an array."""

    name = "blinks"

    def trials(self, scale: str) -> Sequence[Blink]:
        return [Blink(number) for number in range(200)]


# ---------------------------------------------------------------- whatever can go wrong


class Unloadable:
    """Can be pickled, but not put together again."""

    def __reduce__(self) -> Any:
        return math.sqrt, (-1,)


class Mute(Exception):
    """An exception that cannot be pickled, nor even printed."""

    def __init__(self) -> None:
        self.door = lambda: None

    def __str__(self) -> str:
        raise RuntimeError("no words")


@dataclass(frozen=True)
class Deed(Trial):
    """A trial that does what it is told."""

    what: str
    number: int = 0
    where: str = ""
    seconds: float = 0.0
    need: int = 1 << 20
    weight: float = 1.0

    @property
    def memory(self) -> int:
        return self.need

    @property
    def cost(self) -> float:
        return self.weight

    def measure(self, progress: Progress) -> Outcome:
        time.sleep(self.seconds)
        return {"value": 0.5, "pid": os.getpid(), **(getattr(self, self.what)(progress) or {})}

    def nothing(self, progress: Progress) -> None:
        pass

    def when(self, progress: Progress) -> Outcome:
        start = time.monotonic()  # which all processes of a machine share
        time.sleep(0.1)
        return {"start": start, "end": time.monotonic()}

    def report(self, progress: Progress) -> None:
        for step in range(8):
            time.sleep(0.1)
            progress(step + 1, 8)

    def fail(self, progress: Progress) -> None:
        raise ValueError("this trial is meant to fail")

    def leave(self, progress: Progress) -> None:
        sys.exit(3)

    def recurse(self, progress: Progress) -> None:
        self.recurse(progress)

    def exhaust(self, progress: Progress) -> None:
        bytearray(1 << 60)

    def mute(self, progress: Progress) -> None:
        raise Mute

    def lock(self, progress: Progress) -> Outcome:
        return {"value": {1, 2}}

    def broken(self, progress: Progress) -> Outcome:
        return {"value": Unloadable()}

    def chatter(self, progress: Progress) -> None:
        print("words on standard output")
        os.write(1, b"more of them\n")

    def say(self, progress: Progress) -> None:
        print("words on standard output")

    def leak(self, progress: Progress) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def threads(self, progress: Progress) -> Outcome:
        import torch

        found = torch.get_num_threads()
        torch.set_num_threads(2)
        names = ("OMP_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "NUMBA_NUM_THREADS")
        return {"threads": found, **{name: os.environ.get(name) for name in names}}

    def die(self, progress: Progress) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def vanish(self, progress: Progress) -> None:
        os._exit(7)

    def die_once(self, progress: Progress) -> None:
        mark = Path(self.where)
        if not mark.exists():
            mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)

    def leave_a_child(self, progress: Progress) -> None:
        """Die the first time, perhaps in the middle of a word, and leave a child with all that is open here."""
        where = Path(self.where)
        if where.exists():
            return
        if where.name == "program":
            child = subprocess.Popen(["sleep", "60"], close_fds=False).pid
        else:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
        where.write_text(str(child))
        if where.name == "word":
            pipe = next(thing for thing in gc.get_objects() if isinstance(thing, Connection))
            os.write(pipe.fileno(), struct.pack("!i", 1000) + b"half a")
        os.kill(os.getpid(), signal.SIGKILL)

    def multiply(self, progress: Progress) -> None:
        child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0,))
        child.start()
        child.join()

    def fail_once(self, progress: Progress) -> None:
        mark = Path(self.where)
        if not mark.exists():
            mark.touch()
            raise ValueError("only the first time")

    def wait(self, progress: Progress) -> None:
        """Say who runs it, and go on until told to stop."""
        Path(self.where).write_text(str(os.getpid()))
        while not Path(self.where + ".go").exists():
            time.sleep(0.01)

    def hang(self, progress: Progress) -> None:
        if self.where:
            Path(self.where).write_text(str(os.getpid()))
        time.sleep(600)


class Deeds(Example):
    """Deeds as they are chosen."""

    name = "deeds"

    def __init__(self, *trials: Deed) -> None:
        self.chosen = trials

    def trials(self, scale: str) -> Sequence[Deed]:
        return self.chosen


class Blink1(Blinks):
    """One of them."""

    name = "blink"

    def trials(self, scale: str) -> Sequence[Blink]:
        return [Blink(0, 0)]


# Studies for whole processes, which find them by name.
MARK = "FLIPSCOPE_TEST_MARK"  # names a file that says who hangs
TALK = Deeds(Deed("say", 1), Deed("say", 2))
BLINK = Blink1()
HANG = Deeds(Deed("hang", where=os.environ.get(MARK, "")))


# ---------------------------------------------------------------- functions for the pool


def echo(argument: Any, progress: Progress) -> Any:
    return argument


def strange(argument: Any, progress: Progress) -> Any:
    return lambda: None


class Riddle:
    """Comes through the pipe, but cannot be put together on the other side."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def riddle(argument: Any, progress: Progress) -> Any:
    return Riddle()


def die(argument: Any, progress: Progress) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def double(argument: int, progress: Progress) -> int:
    progress(1, 2)
    if argument < 0:
        raise InputError(f"{argument} is negative")
    if argument == 99:
        os._exit(1)
    return 2 * argument


DEATHS = "FLIPSCOPE_TEST_DEATHS"  # names a folder; its name says how many workers die as they start


def stillborn(*arguments: Any) -> None:
    """A worker; the first of them are killed before they are ready."""
    folder = Path(os.environ[DEATHS])
    (folder / str(os.getpid())).touch()
    if len(list(folder.iterdir())) <= int(folder.name):
        os.kill(os.getpid(), signal.SIGKILL)
    worker.main(*arguments)


def environment() -> dict[str, str]:
    """For a process that is to find the same modules as this one."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def drive(study: Study, folder: str, workers: int = 2) -> None:
    """Run a study as the command line does; for drivers that the tests kill."""
    from flipscope.lab.run.driver import run_study
    from flipscope.lab.run.runner import Pool
    from flipscope.lab.store.store import Store

    with Store(folder) as store:
        run_study(study, "smoke", store, Pool(workers))
