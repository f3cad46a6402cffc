"""How loops are compiled: when called, from today's sources, and a user at a terminal is told what takes so long."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flipscope

SENTENCE = "compiling one_more and other loops, up to half a minute, once on this machine"
CODE = """
import time
from numba import int64
from flipscope.native import compiled as compiling
from flipscope.native.compiled import compiled

compiling.QUIET_SECONDS = {seconds}

@compiled(int64(int64))
def one_more(x):
    return x + 1

@compiled(int64(int64))
def two_more(x):
    return x + 2

assert (one_more(1), two_more(1)) == (2, 3)
"""


def said(folder: Path, terminal: bool, seconds: float = 0.0) -> str:
    """What a script that compiles says on standard error, where more than so many seconds of it are worth a word."""
    script = folder / "script.py"
    script.write_text(CODE.format(seconds=seconds))
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
    assert "compiling" not in again.replace(SENTENCE, "")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
def test_a_terminal_is_not_told_of_what_is_soon_done(tmp_path: Path) -> None:
    assert "compiling" not in said(tmp_path, terminal=True, seconds=600)


def test_a_file_is_not(tmp_path: Path) -> None:
    assert said(tmp_path, terminal=False) == ""


HELPER = """
from numba.extending import register_jitable

@register_jitable
def step(x):
    return x + 1
"""
LOOP = """
from numba import int64
from flipscope.native.compiled import compiled
from flipscope.native.helper import step

@compiled(int64(int64))
def stepped(x):
    return step(x)
"""
ASK = """
from flipscope.native.compiled import loops
from flipscope.native.loop import stepped
print(stepped(1), *(sum(loop().stats.cache_hits.values()) for loop in loops))
"""


LAZY = """
from numba import float32, int64
from flipscope.native.cache import is_kept
from flipscope.native.compiled import compiled, compiled_by, loops

@compiled(int64(int64))
def unused(x):
    return x

@compiled_by(type, {int: int64(int64), float: float32(float32)})
def half(x):
    return x / 2

kept = [is_kept(f"__main__.{name}") or is_kept(f"script.{name}") for name in ("half", "unused")]
print(*kept, half(7), *(loop.cache_info().currsize for loop in loops))
print(half(7.0), *(loop.cache_info().currsize for loop in loops))
try:
    unused("text")
except TypeError:
    print("refused")
"""


def test_a_loop_is_compiled_when_it_is_called_and_for_its_own_types_only(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(LAZY)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for kept in ("False False", "True True"):
        done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == [f"{kept} 3 0 1 0", "3.5 0 1 1", "refused"]


def test_processes_that_compile_at_once_compile_once(house: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(house), "NUMBA_CACHE_DIR": str(house / "cache")}
    started = [
        subprocess.Popen([sys.executable, "-c", ASK], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert sorted(process.communicate()[0] for process in started) == ["2 0\n", "2 1\n", "2 1\n"]


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of what compiling needs, with a loop whose helper is in another file."""
    source = Path(flipscope.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    for room in ("basics", "native"):
        shutil.copytree(source / room, tmp_path / "flipscope" / room, ignore=ignored)
    shutil.copy(source / "__init__.py", tmp_path / "flipscope")
    (tmp_path / "flipscope/native/helper.py").write_text(HELPER)
    (tmp_path / "flipscope/native/loop.py").write_text(LOOP)
    return tmp_path


def asked(house: Path, **environment: str) -> str:
    """What the loop of the copy answers, and how often it came from the cache."""
    return answered(house, **environment)[0]


def answered(house: Path, code: str = ASK, **environment: str) -> tuple[str, list[str]]:
    """The same, and the lines on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(house), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.splitlines()


@pytest.mark.parametrize("chosen", [False, True], ids=["beside the sources", "NUMBA_CACHE_DIR"])
def test_a_changed_helper_of_another_file_is_compiled_anew(house: Path, chosen: bool) -> None:
    environment = {"NUMBA_CACHE_DIR": str(house / "cache") if chosen else ""}
    assert asked(house, **environment) == "2 0"
    helper = house / "flipscope/native/helper.py"
    helper.write_text(HELPER.replace("x + 1", "x + 5"))  # the file of the loop itself stays as it is
    assert asked(house, **environment) == "6 0"
    helper.write_text(HELPER)
    assert asked(house, **environment) == "2 1"  # what was compiled before is still there


def test_machine_code_of_old_sources_is_removed(house: Path) -> None:
    kept = house / "flipscope/native/__pycache__"
    for name, age in (("flipscope-old", 30), ("flipscope-recent", 1), ("another", 30)):
        (kept / name).mkdir(parents=True)
        long_ago = (kept / name).stat().st_mtime - age * 86_400
        os.utime(kept / name, (long_ago, long_ago))
    asked(house, NUMBA_CACHE_DIR="")
    assert not (kept / "flipscope-old").exists()
    assert (kept / "flipscope-recent").exists()
    assert (kept / "another").exists()


def test_without_a_place_for_machine_code_it_is_compiled_all_the_same(house: Path) -> None:
    closed = house / "closed"
    closed.touch()
    found, said = answered(house, NUMBA_CACHE_DIR=str(closed))
    assert found == "2 0"
    (sentence,) = said
    assert f"no file can be written to {closed}: every process compiles its loops again" in sentence
    (house / "flipscope/native/__pycache__").touch()
    for homes in ({"HOME": str(closed), "XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": str(closed)}):
        found, said = answered(house, NUMBA_CACHE_DIR="", **homes)
        assert (found, len(said)) == ("2 0", 1)
    code = "import pathlib\ndef home():\n    raise RuntimeError('no home')\npathlib.Path.home = home\n"
    found, said = answered(house, code + ASK, NUMBA_CACHE_DIR="", XDG_CACHE_HOME="")
    assert (found, len(said)) == ("2 0", 1)


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files")
def test_machine_code_that_cannot_be_written_is_used_all_the_same(house: Path) -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    assert answered(house, code + ASK, NUMBA_CACHE_DIR=str(house / "cache")) == ("2 0", [])
    assert answered(house, NUMBA_CACHE_DIR=str(house / "cache")) == ("2 0", [])
