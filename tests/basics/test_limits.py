"""What is refused before it is tried, and what is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flipscope.basics import limits
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import random_strings


def test_memory_limits_of_control_groups(tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    groups.write_text("4:cpu:/a\n3:memory:/a/b\n0::/c/d\n")
    for name in ("memory/a/b", "c/d"):
        (tmp_path / name).mkdir(parents=True)
    assert limits.allowed_memory(groups, tmp_path) == float("inf")
    (tmp_path / "memory/a/b/memory.limit_in_bytes").write_text("9223372036854771712\n")
    (tmp_path / "memory/a/memory.limit_in_bytes").write_text("5000\n")
    (tmp_path / "c/d/memory.max").write_text("max\n")
    assert limits.allowed_memory(groups, tmp_path) == 5000
    (tmp_path / "c/memory.max").write_text("4000\n")
    assert limits.allowed_memory(groups, tmp_path) == 4000


def test_this_machine_has_memory() -> None:
    assert 1 << 20 < limits.machine_memory() < 1 << 50


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (7, "7 bytes"),
        (1023, "0.999 KiB"),
        (3 << 30, "3 GiB"),
        (10**13, "9.09 TiB"),
        (10**18, "1 PiB or more"),
        (10**400, "1 PiB or more"),
    ],
)
def test_bytes_in_words(count: int, said: str) -> None:
    assert limits.said_bytes(count) == said


def test_the_limits_themselves_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "machine_memory", lambda: 1 << 30)
    limits.check_memory(1 << 30, "this", "take less")
    with pytest.raises(InputError, match=r"^this would take 1 GiB of memory, and this machine has 1 GiB: take less$"):
        limits.check_memory((1 << 30) + 1, "this", "take less")


@pytest.mark.parametrize(("count", "n"), [(99_999_999_999, 100), (1, 10**14), (10**400, 10**400), (2**63, 1)])
def test_strings_that_no_machine_holds(count: int, n: int) -> None:
    with pytest.raises(InputError, match=r"bits would take .* of memory"):
        random_strings(np.random.default_rng(0), count, n)
