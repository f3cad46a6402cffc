"""How loops are compiled: a user at a terminal is told why there is nothing to see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SENTENCE = "compiling its loops, up to a minute, once on this machine"
CODE = """
from numba import int64
from flipscope.cube.compiled import compiled

@compiled(int64(int64))
def one_more(x):
    return x + 1

@compiled(int64(int64))
def two_more(x):
    return x + 2

assert (one_more(1), two_more(1)) == (2, 3)
"""


def said(folder: Path, terminal: bool) -> str:
    """What a script that compiles says on standard error."""
    script = folder / "script.py"
    script.write_text(CODE)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")}
    if not terminal:
        done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
        return done.stderr
    ours, theirs = os.openpty()
    try:
        subprocess.run([sys.executable, script], env=environment, stderr=theirs, check=True)
        os.write(theirs, b"end\n")  # something to read, also where nothing was said
        return os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
def test_a_terminal_is_told_once(tmp_path: Path) -> None:
    first, again = said(tmp_path, terminal=True), said(tmp_path, terminal=True)
    assert first.count(SENTENCE) == 1
    assert SENTENCE not in again  # it is in the cache now


def test_a_file_is_not(tmp_path: Path) -> None:
    assert said(tmp_path, terminal=False) == ""
