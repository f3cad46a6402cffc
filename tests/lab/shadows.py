"""Files that would like to be taken for modules."""

from __future__ import annotations

from pathlib import Path

SHADOWS = ("multiprocessing", "numpy", "pickle", "runpy", "signal", "socket", "struct", "threading", "torch")


def plant_shadows(folder: Path) -> None:
    """Files with the names of modules, which leave a mark where they are run."""
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(
            f"open({str(folder / ('ran ' + name))!r}, 'w').close()\nimport no_such_module\n"
        )
