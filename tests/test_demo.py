"""What ``make demo`` shows: its story with a study that takes no time, and that its scale is large enough to decide."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from report.pages import claim
from report.tiny import STUDY as TINY
from rich.console import Console, RenderableType

from flipscope import demo
from flipscope.basics.estimates import mean_from_samples
from flipscope.lab import registry
from flipscope.lab.judges import share
from flipscope.lab.looks import confidence as of_each
from flipscope.lab.rows import Rows
from flipscope.lab.run.driver import Run
from flipscope.lab.verdict import Judgement
from flipscope.studies.geometry import random_functions, random_init, trained_models, trained_profiles

GOOD = Judgement("reproduced", "share", 0.93, 0.9, 0.955, limit="≥ 0.9")
BAD = Judgement("contradicted", "share", 0.3, 0.2, 0.4, "at D = 2", "≥ 0.9")
OPEN = Judgement("undecided", "share", 0.9, 0.8, 1.0, limit="≥ 0.9", remedy="about 40 more models")


def shown(drawn: RenderableType, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(drawn)
    return out.getvalue()


def run_of(*found: Judgement, failed: int = 0) -> Run:
    judgements = [(claim(f"claim {place}"), each) for place, each in enumerate(found)]
    return Run(TINY, "smoke", 5, 5 - failed, failed, 0, 1.0, Rows([{"number": 1}]), judgements)


def test_the_tour_shows_everything_once_and_counts_what_was_decided(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert demo.tour([demo.Stop("report.tiny:STUDY", "Squares?", "They grow.")], "laptop", workers=0) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    rows = {name: line for line in out.splitlines() for name in demo.FUNCTIONS if line.startswith(f"{name} ")}
    assert rows["majority(21)"].split()[1:] == ["3.70014", "11", "1,391,720", "no"]
    assert rows["parity(21)"].split()[1:] == ["21", "21", "0", "yes"]
    picture = (tmp_path / demo.PICTURE).read_text("utf-8")
    for name in demo.FUNCTIONS:
        assert name.replace("&", "&amp;") in picture
    order = ["1 of 3. Four", "2 of 3. Squares?", "They grow.", "✗  large", "✓  small", "3 of 3. What was decided"]
    assert sorted(order, key=out.index) == order
    assert "2 of 2 claims are decided by data made here" in out
    assert ": 1 reproduced, 1 contradicted." in " ".join(out.split())
    report = (tmp_path / demo.REPORT).read_text("utf-8")
    assert "flipscope run report.tiny:STUDY --scale laptop" in report
    assert str(demo.REPORT) in out


def test_a_study_shows_what_it_decided_and_names_the_rest() -> None:
    said = shown(demo.stop_page(run_of(OPEN, GOOD, BAD, failed=1)))
    assert said.index("✓  claim 1") < said.index("✗  claim 2") < said.index("at D = 2") < said.index("open: claim 0.")
    assert "flipscope run report.tiny:STUDY --scale laptop (about 6.0 s)" in " ".join(said.split())
    assert "4 of 5 trials, 1 failed, 1.0 s." in said
    assert "open" not in shown(demo.stop_page(run_of(GOOD)))


def test_the_last_screen_counts_the_verdicts_of_all_studies() -> None:
    said = shown(demo.last_page([run_of(GOOD, BAD), run_of(GOOD, OPEN)], 130.0), 100)
    assert "3 of 4 claims are decided by data made here, in 2 min 10 s: 2 reproduced, 1 contradicted." in said
    assert [line.split() for line in said.splitlines() if line.startswith("tiny")] == [
        ["tiny", "1", "1", "·"],
        ["tiny", "1", "·", "1"],
    ]
    assert "✗  claim 1" in said


@pytest.mark.parametrize("width", [60, 80])
def test_a_step_is_one_screen(width: int) -> None:
    named = [(each, GOOD) for stop in demo.TOUR for each in registry.find(stop.study).claims]
    for stop in demo.TOUR:
        study = registry.find(stop.study)
        run = Run(study, "demo", 5, 5, 0, 0, 1.0, Rows([{"number": 1}]), [(each, BAD) for each in study.claims])
        lines = shown(demo.stop_page(run), width).splitlines()
        assert len(lines) + 5 <= 35, stop.study  # with its heading
        assert max(map(len, lines)) <= width
    whole = Run(TINY, "smoke", 5, 5, 0, 0, 1.0, Rows([{"number": 1}]), named)
    last = shown(demo.last_page([whole] * len(demo.TOUR), 180.0), width).splitlines()
    assert len(last) <= 30
    assert max(map(len, last)) <= width


def test_the_demo_scale_is_large_enough_to_decide_whichever_way_it_falls() -> None:
    for stop in demo.TOUR:
        study = registry.find(stop.study)
        assert list(study.scales)[:3] == ["smoke", "demo", "laptop"]
        assert study.checked_trials("demo")
    models = random_init.STUDY.scales["demo"].settings.models
    none, every = (mean_from_samples([end] * models, 0, 1, of_each(len(random_init.INITS))) for end in (0, 1))
    assert none.high < random_init.FAR / 2
    assert none.high < random_init.MOST < every.low
    plan = trained_profiles.STUDY.scales["demo"].settings
    assert (plan["models"], plan["training"]["max_epochs"]) == (6, 20)  # as the tour says
    assert share(plan["models"], plan["models"]).low > 0.5  # so many are most, if all of them learn
    tested, confidence = plan["training"]["test"], of_each(2 * plan["models"])  # First and Majority together
    assert plan["models"] >= trained_models.FEWEST  # of a claim on every model
    assert share(round(0.995 * tested), tested, confidence).low > trained_models.LEARNED
    assert share(round(0.98 * tested), tested, confidence).high < trained_models.LEARNED
    assert share(tested // 2, tested, confidence).high < trained_profiles.CHANCE
    functions = random_functions.STUDY.scales["demo"].settings["functions"]
    found = share(round((1 - random_functions.POISSON[0]) * functions), functions)
    assert found.high - found.low < random_functions.TOLERANCE  # wherever the value lies in it, it is near enough


def test_a_folder_that_cannot_be_made_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").write_text("a file")
    assert demo.main() == 2
    assert capsys.readouterr().err == "flipscope: results/demo cannot be used: Not a directory.\n"
