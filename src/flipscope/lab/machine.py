"""Descriptions of this machine and identification of its processes."""

from __future__ import annotations

import functools
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from flipscope import __version__
from flipscope.basics.limits import cores


def machine() -> dict[str, Any]:
    """Host name, versions, processor and cores; nothing else of the machine or its user."""
    return {**_fixed(), "cores": cores()}


def born(pid: int) -> str | None:
    """The start time of a process of this machine ("" if unknown); None if there is no such process.

    Process ids are reused, but a pair of id and start time is not.
    """
    try:
        # The name in brackets may hold anything; the fields after it are state … and, 22nd of all, the start time.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return None if fields[0] in "ZX" else f"{boot} {fields[19]}"
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""


@functools.cache
def _fixed() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _processor(),
        "python": platform.python_version(),
        "flipscope": __version__,
        "torch": _version("torch"),
        "numpy": _version("numpy"),
    }


def _version(package: str) -> str | None:
    """The version of an installed package, read without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """The processor's model, if the system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
