"""`flipscope report`: from a store to one file, whatever is in the store."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from report.tiny import STUDY, Tiny

from flipscope.basics.errors import InputError
from flipscope.cli.report import run as run_report
from flipscope.figures import Figure, Panel, Series
from flipscope.lab import registry
from flipscope.lab.keys import trial_key
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.runner import InProcess
from flipscope.lab.store.store import Store
from flipscope.lab.study import Study
from flipscope.report import drawing


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for results, and a registry that knows the tiny study only."""

    def find(name: str) -> Study:
        if name != "tiny":
            raise InputError(f"no study is called {name!r}; there are tiny.")
        return STUDY

    monkeypatch.setattr(registry, "find", find)
    monkeypatch.setattr(registry, "names", lambda: ["tiny"])
    return tmp_path / "results"


def measure(folder: Path, scale: str = "laptop", limit: int | None = None) -> None:
    with Store(folder) as store:
        run_study(STUDY, scale, store, InProcess(), limit=limit, command=f"flipscope run tiny --scale {scale}")


def report(folder: Path, *studies: str, **options: Any) -> int:
    usual = {
        "scale": None,
        "packs": None,
        "data": None,
        "output": str(folder.parent / "report.html"),
        "figures": None,
        "format": None,
        "json": False,
    }
    return run_report(argparse.Namespace(study=list(studies), results=str(folder), **{**usual, **options}))


def text(folder: Path) -> str:
    return (folder.parent / "report.html").read_text("utf-8")


def refused(folder: Path, *studies: str, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        report(folder, *studies, **options)
    assert not (folder.parent / "report.html").is_file()
    return str(caught.value)


def test_all_that_is_stored_is_reported(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure(results)
    assert report(results, json=True) == 0  # although a claim is contradicted
    document = json.loads(capsys.readouterr().out)
    assert document["output"] == str(results.parent / "report.html")
    assert document["studies"] == ["tiny"]
    assert [(each["study"], each["claim"], each["verdict"]) for each in document["claims"]] == [
        ("tiny", "large", "contradicted"),
        ("tiny", "small", "reproduced"),
    ]
    assert (document["missing"], document["figures"]) == ([], [])
    page = text(results)
    for part in ("Squares of small numbers", "squares are large", "100 rows", "A parabola.", "<code>seed</code>: 7"):
        assert part in page
    assert "<code>flipscope run tiny --scale laptop</code>" in page
    assert "<code>number</code>: 0 to 99" in page
    assert "100 of 100 done, 0 failed" in page
    assert " UTC</dd>" in page


def test_the_latest_scale_is_shown_unless_another_is_asked_for(results: Path) -> None:
    measure(results)
    measure(results, "smoke")
    report(results)
    assert "Scale smoke: five numbers" in text(results)
    assert "<code>flipscope run tiny --scale smoke</code>" in text(results)
    report(results, "tiny", scale="laptop")
    assert "Scale laptop: a hundred numbers" in text(results)
    assert "<code>flipscope run tiny --scale laptop</code>" in text(results)


def test_every_machine_is_told_without_its_name(results: Path) -> None:
    measure(results, limit=60)
    with Store(results) as store:
        for trial in STUDY.trials("laptop")[60:]:
            machine = {"host": f"host-{trial.hash}", "cpu": "An abacus", "cores": 9}  # a name tells a reader nothing
            store.put(trial_key(STUDY, trial), "tiny", trial.content(), 1, {"square": 1}, 0.1, machine=machine)
    report(results)
    assert "(60 trials); An abacus, 9 cores (40 trials)<" in text(results)
    assert "host-" not in text(results)


def test_part_of_a_study_is_reported_as_a_part(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def draw(self: Tiny, table: Any) -> Any:
        raise KeyError("missing")

    monkeypatch.setattr(Tiny, "draw", draw)
    measure(results, limit=40)
    report(results)
    assert "60 of 100 trials have not been measured yet: verdicts are interim." in text(results)
    note = "The figures cannot be drawn from part of the trials (KeyError: 'missing')."
    assert note in text(results).replace("&#39;", "'")
    assert note in capsys.readouterr().err


def test_a_figure_that_cannot_be_drawn_does_not_hide_the_verdicts(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = Figure("bad", "Bad", "", [Panel("p", "x", "y", [Series("s", [1], [1])], x_range=(2, 1))])
    monkeypatch.setattr(Tiny, "draw", lambda self, table: [bad])
    measure(results)
    report(results)
    assert "The figures cannot be drawn (InputError: the panel" in text(results)
    assert "squares are large" in text(results)


PanicException = type("PanicException", (BaseException,), {})  # as Rust's bindings have one


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("Conversion failed:\nError: parse error"), "ValueError: Conversion failed: Error: parse error"),
        (PanicException("Too many open files"), "RuntimeError: Vega gave up: Too many open files"),
    ],
)
def test_a_figure_that_vega_refuses_does_not_take_the_report_with_it(
    error: BaseException,
    said: str,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise error

    measure(results)
    drawing._svg.cache_clear()
    monkeypatch.setattr("vl_convert.vegalite_to_svg", refuse)
    assert report(results, figures=str(results.parent / "figures")) == 0
    note = f"The figures cannot be drawn ({said})."
    assert note in text(results)
    assert capsys.readouterr().err.count(note) == 1
    assert "squares are large" in text(results)


def test_a_study_that_is_gone_is_named(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure(results)
    with Store(results) as store:
        store.put("k" * 64, "gone", {"n": 1}, 1, {"x": 1.0}, 0.1)
    report(results, json=True)
    output = capsys.readouterr()
    assert [each["study"] for each in json.loads(output.out)["missing"]] == ["gone"]
    assert "<li><code>gone</code>: no study is called" in text(results)
    assert "gone is not in the report: no study is called 'gone'; there are tiny; its results stay" in output.err
    assert "Squares of small numbers" in text(results)


def test_a_study_that_breaks_does_not_take_the_report_with_it(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(results)

    def summarise(self: Tiny, results: Any) -> Any:
        raise ZeroDivisionError("no rows")

    monkeypatch.setattr(Tiny, "summarise", summarise)
    assert report(results) == 0
    assert (
        "tiny: the table cannot be made: ZeroDivisionError: no rows (test_report_command.py" in capsys.readouterr().err
    )
    assert "The study&#39;s own code failed: the table cannot be made: ZeroDivisionError" in text(results)


def test_figures_are_written_beside_it(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure(results, "smoke")
    folder = results.parent / "new" / "figures"
    report(results, figures=str(folder), json=True)
    written = [folder / f"tiny-squares.{format}" for format in ("svg", "png", "pdf")]
    assert json.loads(capsys.readouterr().out)["figures"] == [str(path) for path in written]
    assert sorted(folder.iterdir()) == sorted(written)
    other = results.parent / "other"
    report(results, figures=str(other), format="PDF, svg,pdf")
    assert sorted(path.name for path in other.iterdir()) == ["tiny-squares.pdf", "tiny-squares.svg"]
    assert f"and 2 figure files in {other}" in capsys.readouterr().err


def test_nothing_measured_says_what_to_run(results: Path) -> None:
    with Store(results):
        pass
    assert "run a study first, such as flipscope run random-init --scale smoke --results" in refused(results)
    assert "run it first with flipscope run tiny" in refused(results, "tiny")
    assert str(results / "none") in refused(results / "none", output=str(results.parent / "report.html"))


def test_what_cannot_be_shown_is_said(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(results, "smoke")
    assert "no study is called 'other'" in refused(results, "other")
    found = refused(results, "tiny", scale="laptop")
    assert found == (
        "there are no results of tiny at scale laptop: none of its trials has been measured; "
        "run it with flipscope run tiny --scale laptop"
    )
    assert "no scale 'huge'; it has smoke, laptop" in refused(results, "tiny", scale="huge")
    monkeypatch.setattr(Tiny, "revision", 2)
    assert "the stored ones are of other revisions than 2" in refused(results, "tiny")


def test_options_are_checked_before_any_work(results: Path) -> None:
    for options, part in (
        ({"format": "svg"}, "add --figures DIR"),
        ({"format": "svg,gif", "figures": "f"}, "--format 'gif' is not one of svg, png, pdf"),
        ({"output": str(results.parent)}, "it is a folder"),
        ({"output": str(results.parent / "none" / "r.html")}, "the folder does not exist"),
    ):
        assert part in refused(results, **options)
    measure(results, "smoke")
    (results.parent / "file").touch()
    assert "the figures cannot be written to" in refused(results, figures=str(results.parent / "file"))
