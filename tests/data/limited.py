"""Runs a reader of files in a process of its own with little memory and time, and says what came of it.

`Limited` is for tests. This module is also the program that it starts: for each line on standard input, the name of a
reader and a path, it forks a child that reads, and prints one line of JSON. Importing once makes a child cheap.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from flipscope.basics.errors import InputError

MEMORY = 1 << 30  # bytes that a reader may take on top of the program
SECONDS = 20  # of computing


def token_inputs(**given: Any) -> Any:
    """The inputs of `flipscope tokens` with these options."""
    from flipscope.cli.token_inputs import read_inputs

    options = ("images", "texts", "inputs", "data", "count", "tokenizer", "size", "at")
    plain = {"test_set": False, "patch": None, "grey": False, "mean": 0.0, "std": 1.0, "model": "model"}
    arguments = argparse.Namespace(**{**dict.fromkeys(options), **plain, **given})
    return read_inputs(arguments, lambda ids: ids).inputs


def _archive(folder: Path) -> Any:
    from flipscope.data.image_files import cifar_forms

    return cifar_forms(folder)[0].read()


def _batch(path: Path) -> Any:
    from flipscope.data.image_files import read_cifar_python

    return read_cifar_python(path.read_bytes(), str(path))


def _idx(path: Path) -> Any:
    from flipscope.data.image_files import read_idx

    return read_idx(path)


def _mat(path: Path) -> Any:
    from flipscope.data.image_files import read_svhn

    return read_svhn(path)


def _npz(path: Path) -> Any:
    from flipscope.data.image_files import read_npz

    return read_npz(path)


def _pairs(path: Path) -> Any:
    from flipscope.data.text_files import MRPC, PLAIN, QQP, read_pairs

    return read_pairs(path, (QQP, MRPC, PLAIN), leave_out=True)


def _photos(folder: Path) -> Any:
    from flipscope.data.photos import load_photos

    return load_photos(folder=folder).images


READERS: dict[str, Callable[[Path], Any]] = {
    "archive": _archive,
    "batch": _batch,
    "idx": _idx,
    "mat": _mat,
    "npz": _npz,
    "pairs": _pairs,
    "photos": _photos,
    "images": lambda folder: token_inputs(images=str(folder), patch=1),
    "images of 20,000": lambda folder: token_inputs(images=str(folder), patch=1, size=20_000),
    "arrays": lambda path: token_inputs(inputs=str(path)),
    "tokenizer": lambda path: token_inputs(texts=str(path.parent / "texts.txt"), tokenizer=str(path)),
}


def outcome(read: Callable[[Path], Any], path: Path) -> str:
    """ "read", or the error in words; those that are not for users begin with "raw"."""
    try:
        read(path)
    except InputError as error:
        return f"refused: {error}"
    except BaseException as error:  # panics of Rust are no Exception
        return f"raw {type(error).__name__}: {error}"
    return "read"


def limit() -> None:
    """Little memory and time for this process from here on."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + 2 * MEMORY  # beyond this the process ends
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(10 * SECONDS)  # for what waits


def in_child(work: Callable[[], str]) -> str:
    """What the work says in a forked child with limits, or the signal that ended it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        limit()
        before = _peak()
        said = work()
        taken = _peak() - before
        said = said if taken <= MEMORY else f"raw use of {taken / MEMORY:.1f} of the memory, then {said}"
        os.write(writing, said.encode(errors="replace")[:4_000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return said if status == 0 else f"raw end by {signal.Signals(-status).name if status < 0 else status}"


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Limited:
    """A context in which files are read by a process with limits."""

    def __enter__(self) -> Limited:
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate(timeout=60)

    def __call__(self, reader: str, path: Path) -> str:
        """What came of reading: "read", "refused: ..." in one sentence, or "raw ..."."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([reader, str(path)]) + "\n")
        self._process.stdin.flush()
        said: str = json.loads(self._process.stdout.readline())
        return said


def main() -> None:
    """Answer the lines of standard input."""
    for module in ("PIL.Image", "flipscope.cli.token_inputs", "flipscope.data.checking"):
        importlib.import_module(module)
    for line in sys.stdin:
        reader, path = json.loads(line)
        print(json.dumps(in_child(lambda read=READERS[reader], at=Path(path): outcome(read, at))), flush=True)


if __name__ == "__main__":
    main()
