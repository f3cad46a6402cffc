"""The worker's side of the pool: a process that runs one task after the other and reports progress.

It loads little, and torch only if the task does, so that a dead worker is quickly replaced.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import TextIO, cast

from flipscope.basics.progress import Progress
from flipscope.basics.streams import Outlet, stand_in_for_closed
from flipscope.lab.run.resources import keep_one_thread

REPORT_SECONDS = 0.2  # least time between two reports of a task's progress
# If set, Python does not search the current folder for modules, where a file may be called pickle.py.
SAFE_PATH = "PYTHONSAFEPATH"
_PR_SET_PDEATHSIG = 1  # of prctl(2)

# What a worker sends: ("ready", None), ("share", share), ("unloadable", traceback), ("failed", (traceback, seconds)),
# ("done", (pickled result, seconds)).


def main(pipe: Connection, parent: int, bound: bool, safe_path: str | None) -> None:
    """Run the tasks from the pipe until it or the parent ends."""
    _die_with_parent(parent, bound)
    _keep_from_children(pipe)
    if safe_path is None:  # set for this process only, not for programs that a task starts
        os.environ.pop(SAFE_PATH, None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers itself
    stand_in_for_closed()
    os.dup2(2, 1)  # output of a trial must not mix with the JSON document on standard output
    sys.stdout = sys.stderr = cast(TextIO, Outlet(sys.stderr))  # a missing reader is not an error of the trial
    try:
        pipe.send(("ready", None))
        while True:
            _do(pipe, pipe.recv_bytes())
    except (EOFError, OSError):  # the parent has closed the pipe
        return


def _keep_from_children(pipe: Connection) -> None:
    """What a task starts does not get the pipe: if this process is killed, the pipe must end, too.

    A child that comes back from the task, as a fork may, then ends here instead of answering in our place.
    """
    os.set_inheritable(pipe.fileno(), False)
    os.register_at_fork(after_in_child=pipe.close)


def _do(pipe: Connection, task: bytes) -> None:
    """Run one task and send its result."""
    try:
        function, argument = ForkingPickler.loads(task)
    except BaseException:
        pipe.send(("unloadable", traceback.format_exc()))
        return
    keep_one_thread()
    start = time.perf_counter()
    try:
        result = function(argument, reporter(lambda share: pipe.send(("share", share))))
        seconds = time.perf_counter() - start
        packed = bytes(ForkingPickler.dumps(result))
    except BaseException:  # SystemExit too: it should end the task, not the worker
        pipe.send(("failed", (traceback.format_exc(), time.perf_counter() - start)))
        return
    pipe.send(("done", (packed, seconds)))


def reporter(send: Callable[[float], object]) -> Progress:
    """A callback (done, total) that sends the finished share, at a limited rate."""
    last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if total > 0 and now - last >= REPORT_SECONDS:
            last = now
            send(min(max(done / total, 0.0), 1.0))

    return report


def _die_with_parent(parent: int, bound: bool) -> None:
    """End this process when the parent ends, even if it is killed.

    Linux does this at once, but already when the thread that started this process ends, so it is used only if that is
    the main thread (`bound`). In all cases a thread waits for the end of the parent.
    """
    if bound and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the line above
            os._exit(1)
    alive = multiprocessing.parent_process()
    if alive is not None:
        sentinel = alive.sentinel

        def watch() -> None:
            wait([sentinel])
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
