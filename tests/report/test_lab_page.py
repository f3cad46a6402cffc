"""The terminal pages of the laboratory: a line per claim, at any width, and everything when asked for."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from report.pages import claim, page
from report.tiny import STUDY
from rich.console import Console, RenderableType

from flipscope.lab.findings import Findings
from flipscope.lab.rows import Rows
from flipscope.lab.study import Deviation
from flipscope.lab.summaries import summary_of
from flipscope.lab.verdict import Judgement, all_of
from flipscope.report.html import html_report
from flipscope.report.lab import run_page
from flipscope.report.lists import study_page

GOOD = Judgement("reproduced", "share of strings", 0.93, 0.9, 0.955, "8000 strings", "≥ 0.9")
OPEN = Judgement("undecided", "mean slope", -0.9, -1.1, -0.7, "lengths up to 32", "≤ −0.85", "about 40 more models")
BAD = Judgement("contradicted", "largest mean", 31.25, 27.5, 35.0, "at D = 2", "≤ 25")


def shown(drawn: RenderableType, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(drawn)
    return out.getvalue()


def run_of(*found: Judgement) -> Findings:
    judgements = [(claim(f"claim {place}"), each) for place, each in enumerate(found)]
    return Findings(STUDY, "smoke", 5, 5, 0, 0, 1.0, Rows([{"number": 1}]), judgements)


def test_a_claim_is_one_line_with_its_number_against_its_limit() -> None:
    lines = shown(run_page(run_of(GOOD, OPEN, BAD), "r")).splitlines()
    assert [line.split() for line in lines if "claim" in line] == [
        ["✓", "claim", "0", "0.93", "[0.9,", "0.955]", "≥", "0.9"],
        ["✗", "claim", "2", "31.2", "[27.5,", "35]", "≤", "25"],
        ["?", "claim", "1", "−0.9", "[−1.1,", "−0.7]", "≤", "−0.85"],  # decided ones come first
    ]


def test_an_undecided_claim_says_what_would_decide_it_and_a_contradicted_one_where() -> None:
    said = shown(run_page(run_of(GOOD, OPEN, BAD), "r"), 200)
    assert "to decide it: about 40 more models: flipscope run report.tiny:STUDY --scale laptop" in said
    assert "at D = 2" in said
    assert "8000 strings" not in said
    unfinished = replace(run_of(Judgement.without("no trial is done")), done=0)
    assert "no trial is done; to decide it: flipscope run report.tiny:STUDY --scale smoke" in shown(
        run_page(unfinished, "r"), 200
    )


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    for verbose in (False, True):
        parts = all_of([OPEN, GOOD])
        lines = shown(run_page(run_of(parts, BAD), "results", verbose), width).splitlines()
        assert max(map(len, lines)) <= width


def test_verbose_shows_every_number() -> None:
    said = shown(run_page(run_of(all_of([OPEN, GOOD])), "r", verbose=True), 200)
    for text in ("mean slope", "share of strings", "most strings have sensitivity 0 (Fig 3)", "lengths up to 32"):
        assert text in said


def test_a_study_is_told_whole() -> None:
    departure = {"what": "models", "paper": "50", "ours": "24", "why": "they take 20 minutes"}
    entry = replace(summary_of(STUDY), deviations=(departure,))
    said = " ".join(shown(study_page(entry, "not run"), 200).split())
    assert "five numbers" in said
    assert "squares are large (Fig 1); judged by: mean at least 9000" in said
    assert "models paper: 50; here: 24; they take 20 minutes" in said


def test_the_report_has_the_parts_and_the_deviations() -> None:
    made = page([(claim(), all_of([OPEN, GOOD]))])
    type(made.run.study).deviations = (Deviation("models", "50", "24", "they take 20 minutes"),)
    text = html_report([made])
    assert "The 2 numbers behind the verdict" in text
    assert "To decide it" in text
    assert "<td>they take 20 minutes</td>" in text


def test_a_study_that_cannot_tell_of_a_part_of_its_trials_loses_no_verdict() -> None:
    class Puzzled(type(STUDY)):  # type: ignore[misc]
        def provenance(self, table: Rows) -> list[str]:
            raise KeyError("the others")

    whole = replace(run_of(GOOD), study=Puzzled())
    part = replace(whole, done=3)
    assert part.as_json()["provenance"] == []
    assert "claim 0" in shown(run_page(part, "r", verbose=True))
    with pytest.raises(KeyError):
        whole.as_json()
