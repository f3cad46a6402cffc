"""Randomly changed files of every kind are read or refused, within little time and memory; see fuzz.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("limits of memory are those of Linux", allow_module_level=True)
pytest.importorskip("PIL")
pytest.importorskip("tokenizers")

CODE = """
import sys
from itertools import count, islice
from pathlib import Path
from data.fuzz import failures, good_files
from data.limited import READERS, outcome

for number, (name, good) in enumerate(good_files().items()):
    folder = Path(sys.argv[1], str(number))
    folder.mkdir()
    (folder / "texts.txt").write_text("ab")
    if (said := outcome(READERS[good.reader], good.write(folder))) != "read":
        print(name, said)
    for seed, said in failures(good, islice(((number, k) for k in count()), 60), folder):
        print(name, seed, said)
"""


def test_changed_files_are_read_or_refused(tmp_path: Path) -> None:
    # In a process of its own, which has no threads that forks would lack.
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path}\n{CODE}", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr
