"""What ``make demo`` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flipscope import demo


@pytest.mark.slow
def test_the_demo_shows_everything_once_and_writes_the_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert demo.main() == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    rows = {name: line for line in out.splitlines() for name in demo.FUNCTIONS if line.startswith(f"{name} ")}
    assert rows["majority(21)"].split() == ["majority(21)", "3.70014", "11", "0", "1,391,720", "21", "1,048,576"]
    assert rows["parity(21)"].split() == ["parity(21)", "21", "21", "21", "0", "21", "1"]
    picture = (tmp_path / demo.PICTURE).read_text("utf-8")
    for name in demo.FUNCTIONS:
        assert name.replace("&", "&amp;") in picture
    report = (tmp_path / demo.REPORT).read_text("utf-8")
    for study in demo.STUDIES:
        assert f"flipscope run {study} --scale smoke" in report
        assert f"{study}  paper 000, scale smoke" in out
    assert "<svg" in report
    assert str(demo.REPORT) in out
