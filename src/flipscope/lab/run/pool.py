"""Tasks in several processes of one thread each: faster on a CPU than one process of several threads.

The pool of the standard library gives up when a worker dies; here the worker's task goes to a new one. Each worker has
its own pipe, so that a worker killed in the middle of a message does not garble those of others.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeVar

from flipscope.basics.errors import InputError
from flipscope.basics.limits import said_bytes
from flipscope.basics.progress import Progress
from flipscope.lab.run.events import Advanced, Event, Failed, Finished, Idle, Retried, Started
from flipscope.lab.run.resources import ENVIRONMENT, environment, memory_limit
from flipscope.lab.run.worker import SAFE_PATH, main

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

ATTEMPTS = 3  # attempts for a task whose worker dies
STARTS = 20  # consecutive workers that may be killed while starting
PATIENCE = 8  # tasks that may overtake one that waits for memory
IDLE_SECONDS = 1.0
_CONTEXT = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads in an unknown state


class WorkerError(RuntimeError):
    """A task failed because its worker died at every attempt."""


@dataclass(frozen=True)
class Task:
    """A call function(argument, progress) for a worker; the longest start first."""

    key: str
    function: Callable[[Any, Progress], Any]
    argument: Any
    cost: float = 1.0
    memory: int = 0
    attempts: int = 0


class Queue:
    """The waiting tasks. One that fits into the free memory may overtake a longer one a limited number of times."""

    def __init__(self, tasks: Sequence[Task], patience: int) -> None:
        self._patience = patience
        self._overtaken = 0  # how often the first in line was overtaken
        # One heap for each size of memory: the next of a size is found at once, and the sizes are few.
        self._sizes: dict[int, list[tuple[float, int, Task]]] = {}
        self._count = itertools.count()
        for task in tasks:
            self.put(task)

    def __len__(self) -> int:
        return sum(map(len, self._sizes.values()))

    def put(self, task: Task) -> None:
        """Add a task at its place."""
        heapq.heappush(self._sizes.setdefault(task.memory, []), (-task.cost, next(self._count), task))

    def take(self, free: int) -> Task | None:
        """The next task that fits into this memory, or None if there is none or the first has waited enough."""
        waiting = [heap for heap in self._sizes.values() if heap]
        fitting = [heap for heap in waiting if heap[0][2].memory <= free]
        if not fitting:
            return None
        first, chosen = min(waiting), min(fitting)
        if chosen is first:
            self._overtaken = 0
        elif self._overtaken >= self._patience:
            return None
        else:
            self._overtaken += 1
        return heapq.heappop(chosen)[2]


@dataclass(eq=False)
class Seat:
    """A worker and its current task."""

    process: SpawnProcess
    pipe: Connection
    ready: bool = False
    task: Task | None = None
    since: float = 0.0

    @property
    def name(self) -> str:
        """The name of the worker in events."""
        return f"process {self.process.pid}"

    def end(self) -> None:
        """Kill the worker."""
        if self.process.pid is not None:
            self.process.kill()
            self.process.join()
            self.process.close()
        self.pipe.close()


def work(tasks: Sequence[Task], workers: int, limit: int | None = None) -> Generator[Event, None, None]:
    """Run the tasks in several processes and yield events; closing the generator ends the processes."""
    limit = memory_limit() if limit is None else limit
    fitting = [task for task in tasks if task.memory <= limit]
    for task in tasks:
        if task.memory > limit:
            yield Failed(task.key, too_large(task.memory, limit), 0.0, 1)
    if fitting:
        with contextlib.closing(_Pool(fitting, min(workers, len(fitting)), limit)) as pool:
            yield from pool.events()


def too_large(memory: int, limit: int, where: str = "on this machine") -> str:
    """The error message for a trial that fits no worker."""
    return (
        f"the trial needs {said_bytes(memory)} of memory, and {where} it may use {said_bytes(limit)}: "
        "run it where there is more, or make it smaller."
    )


class _Pool:
    """Workers and the tasks they do."""

    def __init__(self, tasks: Sequence[Task], workers: int, limit: int) -> None:
        self._queue = Queue(tasks, PATIENCE * workers)
        self._left = len(tasks)
        self._limit = limit
        self._workers = workers
        self._seats: list[Seat] = []
        self._stillborn: Counter[bool] = Counter()  # workers that ended or were killed before they were ready

    def events(self) -> Iterator[Event]:
        """The events until every task has finished or failed."""
        while self._left:
            self._fill()
            yield from self._hand_out()
            yield from self._hear()

    def close(self) -> None:
        """End all workers."""
        for seat in self._seats:
            seat.end()
        self._seats.clear()

    def _fill(self) -> None:
        """Start workers if there is work for them."""
        wanted = min(self._workers, self._left)
        while len(self._seats) < wanted:
            here, there = _CONTEXT.Pipe()
            bound = threading.current_thread() is threading.main_thread()
            kept = os.environ.get(SAFE_PATH)
            process = _CONTEXT.Process(target=main, args=(there, os.getpid(), bound, kept), daemon=True)
            with there, environment({**ENVIRONMENT, SAFE_PATH: "1"}), _deaf():
                self._seats.append(Seat(process, here))  # registered first, so that it is ended in any case
                try:
                    process.start()
                except OSError as error:
                    raise InputError(
                        f"no worker process can be started: {error.strerror}; try fewer workers"
                    ) from error

    def _hand_out(self) -> Iterator[Event]:
        """Give idle workers their next tasks."""
        for seat in self._seats:
            if not seat.ready or seat.task is not None:
                continue
            used = sum(other.task.memory for other in self._seats if other.task is not None)
            task = self._queue.take(self._limit - used)
            if task is None:
                return
            seat.task = task = replace(task, attempts=task.attempts + 1)
            seat.since = time.perf_counter()
            packed = _packed(task)
            yield Started(task.key, seat.name)
            with contextlib.suppress(OSError):  # it has died, which its sentinel reports
                seat.pipe.send_bytes(packed)

    def _hear(self) -> Iterator[Event]:
        """Wait for messages of workers, or for the end of one."""
        found = wait([seat.pipe for seat in self._seats], IDLE_SECONDS)
        if not found:
            yield Idle()
        # The end of a pipe means the end of its worker, unless a child of it holds the pipe too: so check each one.
        ended = [seat for seat in self._seats if seat.process.exitcode is not None]
        for seat in [seat for seat in self._seats if seat.pipe in found or seat in ended]:
            try:
                while seat.pipe.poll():  # one that has ended may have left a result
                    yield from self._answer(seat, *seat.pipe.recv())
            except (EOFError, OSError):
                if seat not in ended:
                    ended.append(seat)
        for seat in ended:
            yield from self._bury(seat)

    def _answer(self, seat: Seat, kind: str, content: Any) -> Iterator[Event]:
        """The events of a worker's message."""
        if kind == "ready":
            seat.ready = True
            self._stillborn.clear()
            return
        task = seat.task
        assert task is not None, "only a worker with a task has something to say"
        if kind == "unloadable":
            raise InputError(_unloadable(content))
        if kind == "share":
            yield Advanced(task.key, content)
            return
        event: Event
        if kind == "failed":
            text, seconds = content
            event = Failed(task.key, text, seconds, task.attempts)
        else:
            packed, seconds = content
            try:
                event = Finished(task.key, ForkingPickler.loads(packed), seconds, task.attempts)
            except Exception:  # unpickling may run arbitrary code of its class
                event = Failed(task.key, traceback.format_exc(), seconds, task.attempts)
        seat.task = None
        self._left -= 1
        yield event

    def _bury(self, seat: Seat) -> Iterator[Event]:
        """Handle the task of a worker that has died."""
        if seat.process.exitcode is None:  # it is about to end, or has only closed its pipe and is useless
            seat.process.join(IDLE_SECONDS)
            seat.process.kill()
            seat.process.join()
        code = seat.process.exitcode or 0
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        self._seats.remove(seat)
        seat.end()
        if not seat.ready:
            self._count_stillborn(code < 0, how)
        task = seat.task
        if task is None:
            return
        if task.attempts < ATTEMPTS:
            # Perhaps it ran out of memory beside the others: reserve more next time.
            self._queue.put(replace(task, memory=min(2 * task.memory, self._limit)))
            yield Retried(task.key, f"its worker died {how}")
            return
        self._left -= 1
        yield Failed(task.key, died(task.attempts, how), time.perf_counter() - seat.since, task.attempts)

    def _count_stillborn(self, killed: bool, how: str) -> None:
        """Give up if no worker ever becomes ready; killed ones may have had bad luck and get more attempts."""
        self._stillborn[killed] += 1
        if self._stillborn[killed] < (STARTS if killed else ATTEMPTS):
            return
        if any(other.ready for other in self._seats):
            self._workers = len(self._seats)  # continue with those that did
        elif killed:
            raise InputError(
                f"the worker processes are killed while they start, {STARTS} times in a row, the last {how}: "
                "perhaps for want of memory; try fewer workers"
            )
        else:
            raise InputError(
                f"the worker processes do not start: they end {how}, and say why above; "
                "a script that runs studies must do so under if __name__ == '__main__'"
            )


def died(times: int, how: str) -> str:
    """The error message for a task whose workers died."""
    return f"the worker died {times} times, the last time {how}: perhaps for want of memory."


def _packed(task: Task) -> Any:
    """The pickled task."""
    try:
        return ForkingPickler.dumps((task.function, task.argument))
    except Exception as error:
        raise InputError(
            f"the task cannot be sent to a worker process ({error}): "
            "a study and its trials must stand at the top of a module that can be imported"
        ) from error


def _unloadable(text: str) -> str:
    reason = text.strip().rpartition("\n")[2]
    return (
        f"a worker process cannot load its task ({reason}): "
        "a study and its trials must stand at the top of a module that can be imported"
    )


def run_tasks(
    function: Callable[[Asked, Progress], Answer],
    tasks: Sequence[Asked],
    *,
    workers: int,
    costs: Sequence[float],
    progress: Progress,
) -> list[Answer]:
    """The results of function(task, progress), in the order of the tasks; the most expensive ones start first.

    An exception of a task is raised here; WorkerError, if its worker dies at every attempt.
    """
    calls = [
        Task(str(number), _caught, (function, task), cost)
        for number, (task, cost) in enumerate(zip(tasks, costs, strict=True))
    ]
    shares, answers = [0.0] * len(tasks), dict[int, Answer]()
    with contextlib.closing(work(calls, workers)) as events:
        for event in events:
            if isinstance(event, Finished):
                answer, error = event.outcome
                if error is not None:
                    raise error
                answers[int(event.key)] = answer
                shares[int(event.key)] = 1.0
            elif isinstance(event, Failed):
                raise WorkerError(event.traceback)
            elif isinstance(event, Advanced):
                shares[int(event.key)] = event.share
            done = sum(cost * share for cost, share in zip(costs, shares, strict=True))
            progress(round(1000 * done / sum(costs)), 1000)
    return [answers[number] for number in range(len(tasks))]


def _caught(call: tuple[Callable[[Any, Progress], Any], Any], progress: Progress) -> tuple[Any, Exception | None]:
    """The result of a function, or its exception."""
    function, argument = call
    try:
        return function(argument, progress), None
    except Exception as error:
        return None, error


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Processes started within this context receive no interrupt: the parent ends them itself.

    The signal is blocked, not ignored: children inherit the block, and the parent still receives pending signals
    afterwards. Another thread may receive it anyway, and the main thread would then abandon a half-started process. So
    the signal is only recorded, and raised once the process exists and can be ended. multiprocessing's own helper is
    started first: started with the first worker inside this context, it would lift the block for that worker.
    """
    resource_tracker.ensure_running()
    noted: list[int] = []
    handler = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if handler is not None:
        signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if noted:
            signal.raise_signal(signal.SIGINT)
