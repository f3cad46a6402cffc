"""What ``make demo`` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flipscope import demo


def test_the_demo_prints_four_functions_and_draws_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / demo.PICTURE.parent).mkdir()  # as a run before this one left it
    monkeypatch.setenv("COLUMNS", "80")
    assert demo.main() == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    rows = {name: line for line in out.splitlines() for name in demo.FUNCTIONS if line.startswith(f"{name} ")}
    assert set(rows) == set(demo.FUNCTIONS)
    assert rows["majority(21)"].split() == ["majority(21)", "3.70014", "11", "0", "1,391,720", "21", "1,048,576"]
    assert rows["parity(21)"].split() == ["parity(21)", "21", "21", "21", "0", "21", "1"]
    picture = tmp_path / demo.PICTURE
    text = picture.read_text(encoding="utf-8")
    for name in demo.FUNCTIONS:
        assert name.replace("&", "&amp;") in text
    assert str(demo.PICTURE) in out
    assert list(picture.parent.iterdir()) == [picture]
