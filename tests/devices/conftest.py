"""The test modules of this folder run together in one other process: the twin stays registered with PyTorch for good.

With FLIPSCOPE_TWIN=1 in the environment they run in the present process, so that single tests can be chosen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from devices import twin

HERE = "FLIPSCOPE_TWIN"
if HERE in os.environ:
    twin.install()  # before flipscope is loaded, which takes note of the methods that modules have


MODULES = pytest.StashKey[list[Path]]()


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.File | None:
    if HERE in os.environ:
        return None
    parent.config.stash.setdefault(MODULES, []).append(module_path)
    return _Elsewhere.from_parent(parent, path=module_path)


class _Elsewhere(pytest.File):
    """A test module of this folder; the first one that is collected stands for all of them."""

    def collect(self) -> Iterator[pytest.Item]:
        if self.path == self.config.stash[MODULES][0]:
            yield _Process.from_parent(self, name="in a process of its own")


class _Process(pytest.Item):
    """All collected modules of this folder as one test: each process spends ten seconds on imports."""

    def runtest(self) -> None:
        plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
        modules = map(str, dict.fromkeys(self.config.stash[MODULES]))
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", *plugins, *modules]
        found = subprocess.run(command, env={**os.environ, HERE: "1"}, capture_output=True, text=True, check=False)
        if found.returncode:
            raise _Failed(found.stdout + found.stderr)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


class _Failed(Exception):
    """What the process of the test modules printed."""


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The twin."""
    return twin.install()
