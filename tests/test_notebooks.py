"""Notebooks of the docs run from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert [path.name for path in NOTEBOOKS] == ["your-model.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    for package in ("onnx", "onnxruntime", "sklearn", "transformers"):
        pytest.importorskip(package)
    cells = json.loads(path.read_text("utf-8"))["cells"]
    names: dict[str, object] = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}[{number}]", "exec"), names)
    same = names["same"]
    assert same.all()  # type: ignore[attr-defined]  # the session and the network it was made from
