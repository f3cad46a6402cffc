"""Each test module of this folder runs in a process of its own, for the twin stays registered with PyTorch for good.

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


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.File | None:
    return None if HERE in os.environ else _Elsewhere.from_parent(parent, path=module_path)


class _Elsewhere(pytest.File):
    """A test module that is run as one test."""

    def collect(self) -> Iterator[pytest.Item]:
        yield _Process.from_parent(self, name="in a process of its own")


class _Process(pytest.Item):
    def runtest(self) -> None:
        plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", *plugins, str(self.path)]
        found = subprocess.run(command, env={**os.environ, HERE: "1"}, capture_output=True, text=True, check=False)
        if found.returncode:
            raise _Failed(found.stdout + found.stderr)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


class _Failed(Exception):
    """What the process of a test module printed."""


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The twin."""
    return twin.install()
