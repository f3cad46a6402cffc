"""What ``make demo`` shows: its story with a study that takes no time, and a scale that is large enough to decide."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from report.pages import claim
from report.tiny import STUDY as TINY
from rich.console import Console, RenderableType

from flipscope import demo
from flipscope.basics.estimates import mean_from_samples
from flipscope.cube.expression import parse
from flipscope.cube.portrait import exact_portrait
from flipscope.lab import registry
from flipscope.lab.findings import Findings
from flipscope.lab.judges import share
from flipscope.lab.looks import confidence as of_each
from flipscope.lab.rows import Rows
from flipscope.lab.verdict import Judgement
from flipscope.studies.geometry import low_variance, random_init, trained_models, trained_profiles

GOOD = Judgement("reproduced", "share", 0.93, 0.9, 0.955, limit="≥ 0.9")
BAD = Judgement("contradicted", "share", 0.3, 0.2, 0.4, "at D = 2", "≥ 0.9")
OPEN = Judgement("undecided", "share", 0.9, 0.8, 1.0, limit="≥ 0.9", remedy="about 40 more models")


def shown(drawn: RenderableType, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(drawn)
    return out.getvalue()


def run_of(*found: Judgement, failed: int = 0) -> Findings:
    judgements = [(claim(f"claim {place}"), each) for place, each in enumerate(found)]
    return Findings(TINY, "smoke", 5, 5 - failed, failed, 0, 1.0, Rows([{"number": 1}]), judgements)


def tiny_stop(*claims: str) -> demo.Stop:
    return demo.Stop("report.tiny:STUDY", "Squares?", "They grow.", claims, lambda table: f"{len(table)} squares")


def test_the_tour_shows_everything_once_and_counts_what_was_decided(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert demo.tour([tiny_stop("large")], "laptop", workers=0) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    rows = {name: line for line in out.splitlines() for name in demo.FUNCTIONS if line.startswith(f"{name} ")}
    assert rows["majority(21)"].split()[1:4] == ["3.70014", "0", "1,391,720"]
    assert rows["parity(21)"].split()[1:4] == ["21", "21", "2,097,152"]
    picture = (tmp_path / demo.PICTURE).read_text("utf-8")
    for name in demo.FUNCTIONS:
        assert name.replace("&", "&amp;") in picture
    order = ["1 of 4. What", "2 of 4. Squares?", "They grow.", "✗  contradicted  no part", "100 squares"]
    order += ["✗  contradicted  large", "1 more claim in the report: 1 reproduced."]
    order += ["3 of 4. Your", "flipscope.sensitivity(model, strings)", "4 of 4. What was decided"]
    assert sorted(order, key=out.index) == order
    assert all(f" {word} " in out.partition("100 squares")[0] for word in demo.MEANINGS)
    assert "2 of 2 claims were decided by data measured here" in out
    assert ": 1 reproduced, 1 contradicted." in " ".join(out.split())
    report = (tmp_path / demo.REPORT).read_text("utf-8")
    assert "flipscope run report.tiny:STUDY --scale laptop" in report
    assert str(demo.REPORT) in out
    assert demo.tour([tiny_stop("large")], "laptop", workers=0) == 0
    assert "100 of 100 trials, 100 of them measured earlier" in " ".join(capsys.readouterr().out.split())


def test_a_study_shows_the_claims_of_the_story_and_counts_the_rest() -> None:
    stop = tiny_stop("claim 2", "claim 0", "claim 1")
    said = shown(demo.stop_page(stop, run_of(OPEN, GOOD, BAD, OPEN, failed=1)))
    order = ["1 squares", "✗  contradicted  claim 2", "at D = 2", "?  undecided  claim 0", "✓  reproduced  claim 1"]
    assert sorted(order, key=said.index) == order
    assert "to decide it: about 40 more models: flipscope run report.tiny:STUDY --scale smoke" in " ".join(said.split())
    assert "4 of 5 trials, 1 failed, 1.0 s. 1 more claim in the report: 1 undecided." in said
    assert "more claim" not in shown(demo.stop_page(tiny_stop("claim 0"), run_of(GOOD)))


def test_the_model_that_is_shown_is_the_one_that_was_measured() -> None:
    said = shown(demo.model_page(), 100)
    for line in ("model = torch.nn.Sequential(torch.nn.Linear(20, 16)", "flipscope.sensitivity(model, strings)"):
        assert line in said
    assert "return" not in said
    assert str(demo.measured_model().tolist()) in said


def test_the_last_screen_counts_the_verdicts_of_all_studies() -> None:
    said = shown(demo.last_page([run_of(GOOD, BAD), run_of(GOOD, OPEN)], 130.0), 100)
    assert "3 of 4 claims were decided by data measured here, in 2 min 10 s: 2 reproduced, 1 contradicted." in said
    assert [line.split() for line in said.splitlines() if line.startswith("tiny")] == [
        ["tiny", "1", "1", "·"],
        ["tiny", "1", "·", "1"],
    ]
    assert "✗  claim 1" in said


TABLES = {
    "random-init": Rows(
        {"init": init, "length": 100, "average_sensitivity": 0.1, "constant": True} for init in random_init.INITS
    ),
    "trained-profiles": Rows(
        {"language": name, "length": 20, "accuracy": 0.995, "learned": True, "average_sensitivity": 3.0}
        for name, _ in trained_profiles.LANGUAGES
    ),
    "low-variance": Rows(
        {"width": width, "hits": 30, "samples": 100, "printed": 0.2, "corrected": None if width < 4 else 0.4}
        for width in low_variance.STUDY.scales["demo"].settings["widths"]
    ),
}


@pytest.mark.parametrize("width", [80, 100])
def test_a_step_is_one_screen(width: int) -> None:
    for place, stop in enumerate(demo.TOUR):
        study = registry.find(stop.study)
        assert set(stop.claims) <= {each.name for each in study.claims}
        run = Findings(study, "demo", 5, 5, 0, 0, 1.0, TABLES[stop.study], [(each, BAD) for each in study.claims])
        lines = shown(demo.stop_page(stop, run), width).splitlines()
        lines += [] if place else shown(demo.meanings_page(), width).splitlines()
        assert len(lines) + 5 <= 30, stop.study  # with its heading
        assert max(map(len, lines)) <= width
    functions = [exact_portrait(parse(text), text) for text in demo.FUNCTIONS]
    whole = Findings(TINY, "smoke", 5, 5, 0, 0, 1.0, Rows([{"number": 1}]), [(claim(), BAD)])
    pages = demo.functions_page(functions), demo.model_page(), demo.last_page([whole] * len(demo.TOUR), 180.0)
    for page in pages:
        lines = shown(page, width).splitlines()
        assert len(lines) <= 26
        assert max(map(len, lines)) <= width


def test_the_pictures_show_the_tables() -> None:
    said = {stop.study: shown(stop.picture(TABLES[stop.study]), 100) for stop in demo.TOUR}
    assert said["random-init"].splitlines()[1].split() == ["gaussian", "1", "1", "0.10", "▏"]
    assert "█" * 36 in said["random-init"].splitlines()[-1]
    assert "Majority" in said["trained-profiles"]
    assert "1 of 1 models  0.995 to 0.995          3.00" in said["trained-profiles"]
    rows = [line.split() for line in said["low-variance"].splitlines()]
    assert [row[1:3] for row in rows if row[0] in ("2", "8", "limit")] == [
        ["1.50", "-"],
        ["1.50", "0.75"],
        ["1.00", "1.00"],
    ]


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
    assert (plan["models"], plan["training"]["max_epochs"]) == (6, 12)  # as the tour says
    assert share(plan["models"], plan["models"]).low > 0.5  # so many are most, if all of them learn
    tested, confidence = plan["training"]["test"], of_each(2 * plan["models"])  # First and Majority together
    assert plan["models"] >= trained_models.FEWEST  # of a claim on every model
    assert share(round(0.995 * tested), tested, confidence).low > trained_models.LEARNED
    assert share(round(0.98 * tested), tested, confidence).high < trained_models.LEARNED
    assert share(tested // 2, tested, confidence).high < trained_profiles.CHANCE


def test_a_folder_that_cannot_be_made_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").write_text("a file")
    assert demo.main() == 2
    assert capsys.readouterr().err == "flipscope: results/demo cannot be used: Not a directory.\n"
