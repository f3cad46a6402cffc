"""Settings that hold for every test."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator

import pytest
import typechecking  # before flipscope is loaded, whose functions it wraps
from commands import Called, Run
from hypothesis import HealthCheck, settings
from repetitions import PROFILE

# No deadlines and no "too slow": the first call of a compiled kernel pays for its compilation.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", _COMMON)
settings.register_profile("ci", _COMMON, derandomize=True, database=None, print_blob=True, max_examples=40)
settings.load_profile(PROFILE)

# The path of a measurement must not depend on what is in the cache of compiled code (flips/test_choice.py).
os.environ.setdefault("FLIPSCOPE_COMPILE", "always")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(typechecking)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """PyTorch on one thread, where it is loaded: the suite runs its workers side by side."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """What one call of the command line returned and printed: its exit code, standard output and standard error.

    However slow the machine is, it shows no progress, except in tests that set these seconds themselves.
    """
    for name in ("cli.progress.LINE_SECONDS", "cli.live.LINE_SECONDS", "cli.train.LINE_SECONDS"):
        monkeypatch.setattr(f"flipscope.{name}", math.inf)

    def call(*arguments: str) -> Called:
        from flipscope.cli import main

        try:
            code: object = main(arguments)
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
