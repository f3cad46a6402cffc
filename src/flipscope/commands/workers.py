"""Work for several processes of one thread each, with progress: faster on a CPU than one process of several threads."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from multiprocessing.queues import SimpleQueue
from typing import TypeVar

from flipscope.cube.blocks import Progress

Task = TypeVar("Task")
Result = TypeVar("Result")
Post = tuple[int, float]  # number of a task, and the share of it that is done

POLL_SECONDS = 0.2
# Memory that goes back to the system after each operation is fetched again for the next: a third of the time.
_KEEP = str(1 << 40)
ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": _KEEP,
    "MALLOC_MMAP_THRESHOLD_": _KEEP,
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

_posts: SimpleQueue[Post] | None = None  # in a worker: where its progress goes


def run_tasks(
    function: Callable[[Task, Progress], Result],
    tasks: Sequence[Task],
    *,
    workers: int,
    costs: Sequence[float],
    progress: Progress,
) -> list[Result]:
    """The results of function(task, progress), in the order of the tasks; the most expensive ones start first."""
    context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads in an unknown state
    posts: SimpleQueue[Post] = context.SimpleQueue()
    shares = [0.0] * len(tasks)
    children = set(multiprocessing.active_children())
    with _environment(ENVIRONMENT):
        pool = ProcessPoolExecutor(min(workers, len(tasks)), context, _start, (posts,))
        try:
            order = sorted(range(len(tasks)), key=lambda number: -costs[number])
            with _deaf():
                futures = {number: pool.submit(_work, function, number, tasks[number]) for number in order}
            for _ in _waiting(list(futures.values())):
                while not posts.empty():
                    number, share = posts.get()
                    shares[number] = share
                done = sum(cost * share for cost, share in zip(costs, shares, strict=True))
                progress(round(1000 * done / sum(costs)), 1000)
            return [futures[number].result() for number in range(len(tasks))]
        except BaseException:
            for child in set(multiprocessing.active_children()) - children:
                child.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _waiting(futures: list[Future[Result]]) -> Iterator[None]:
    """Once every now and then until all are done, or one has failed."""
    while True:
        done, running = wait(futures, POLL_SECONDS, FIRST_EXCEPTION)
        yield
        if not running or any(future.exception() is not None for future in done):
            return


def _start(posts: SimpleQueue[Post]) -> None:
    """Prepare a worker."""
    import torch

    global _posts
    _posts = posts
    torch.set_num_threads(1)


def _work(function: Callable[[Task, Progress], Result], number: int, task: Task) -> Result:
    """Do one task in a worker."""

    def report(done: int, total: int) -> None:
        if _posts is not None:
            _posts.put((number, done / total))

    return function(task, report)


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started meanwhile do not hear an interrupt: the parent ends them itself, and says why.

    The signal is blocked, not ignored: children inherit the block, and the parent still gets what came meanwhile.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """These environment variables, for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
