"""Settings that a user changes: read, checked, named, run as looks of their own or as the next look, and reported."""

from __future__ import annotations

import contextlib
import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.basics.progress import Progress
from flipscope.cli import main
from flipscope.lab import registry
from flipscope.lab.findings import Findings, findings
from flipscope.lab.keys import trial_key
from flipscope.lab.registry import repeat_command
from flipscope.lab.rows import Rows
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.runner import InProcess
from flipscope.lab.settings import changed, fitted, leaves, read, value_text
from flipscope.lab.store.store import Store
from flipscope.lab.study import Claim, Outcome, Scale, Study, Trial
from flipscope.lab.verdict import Judgement
from flipscope.studies.geometry import random_init
from flipscope.studies.geometry.random_models import Draw


@dataclass(frozen=True)
class Toss(Trial):
    size: int
    seed: int
    rate: float
    kind: str

    def measure(self, progress: Progress) -> Outcome:
        return {"value": self.size + self.seed / 10}


@dataclass(frozen=True)
class Fit:
    rate: float
    pair: tuple[int, int] = (1, 2)


def _mean(table: Rows) -> Judgement:
    mean = sum(table.column("value")) / len(table)
    return Judgement("reproduced", "mean value", mean, mean, mean, limit="≥ 0")


class Tosses(Study):
    """A study with settings of every kind."""

    name, paper, title = "tosses", "000", "Tosses"
    words = "{seeds} seeds"
    scales = {
        "smoke": Scale(
            0.1,
            {"sizes": (2, 4), "seeds": 2, "first_seed": 5, "fit": Fit(0.5), "kind": "a", "more": None, "said": "words"},
            words,
        ),
        "paper": Scale(
            9.0,
            {"sizes": (2, 4, 8), "seeds": 9, "first_seed": 5, "fit": Fit(0.5), "kind": "a", "more": 3, "shift": 1},
            words,
        ),
    }
    claims = (Claim("mean", "Fig 1", "the mean is positive", "the mean value", _mean),)

    def trials(self, scale: str) -> list[Toss]:
        plan = self.scales[scale].settings
        seeds = range(plan["first_seed"], plan["first_seed"] + plan["seeds"])
        extra = (plan["more"],) if plan["more"] is not None else ()
        sizes = [size + plan.get("shift", 0) for size in (*plan["sizes"], *extra)]
        return [Toss(size, seed, plan["fit"].rate, plan["kind"]) for size in sizes for seed in seeds]


STUDY = Tosses()


def _scale(**settings: str) -> str:
    return STUDY.scale_name("smoke", {name.replace("__", "."): text for name, text in settings.items()}, from_text=True)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("text", "like", "value"),
    [
        ("14", [3], 14),
        ("1_000", [3], 1000),
        ("2", [0.5], 2.0),
        ("1e-05", [0.5], 1e-5),
        ("none", [3, None], None),
        ("0..3", [(0,)], (0, 1, 2, 3)),
        ("0..2,7,9..10", [(0,)], (0, 1, 2, 7, 9, 10)),
        ("5", [(1,)], (5,)),
        ("[4, 6]", [(1,)], (4, 6)),
        ("()", [(1,)], ()),
        ("(3,1),(4,2)", [((1, 1), (2, 2))], ((3, 1), (4, 2))),
        ("(3,1)", [((1, 1),)], ((3, 1),)),
        ("(60,(0.1,))", [((20, (0.5, 0.1)),)], ((60, (0.1,)),)),
        ("gaussian", ["uniform"], "gaussian"),
        ("a, b", [("c",)], ("a", "b")),
        ("true", [False], True),
    ],
)
def test_texts_become_values_of_the_type_that_the_scale_has(text: str, like: list[Any], value: Any) -> None:
    found = fitted(read(text, like), like)
    assert found == value
    assert type(found) is type(value)


plain = st.one_of(
    st.integers(0, 10**6),
    st.floats(0, 1e300),
    st.text(min_size=1).filter(lambda text: text.lower() not in ("none", "true", "false")),
    st.lists(st.integers(0, 30), min_size=1).map(tuple),
    st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1e9)), min_size=2).map(tuple),
)


@given(plain)
def test_what_a_name_says_is_read_as_the_same_value(value: Any) -> None:
    text = value_text(value)
    assert "+" not in text
    assert fitted(read(text, [value]), [value]) == value


def test_changes_leave_the_settings_of_the_study_alone() -> None:
    own = STUDY.scales["smoke"].settings
    found = changed(own, {"fit.rate": 0.25, "seeds": 3})
    assert (found["fit"], found["seeds"], found["sizes"]) == (Fit(0.25), 3, (2, 4))
    assert leaves(own)["fit.rate"] == 0.5


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sises": "3"}, r"has no setting 'sises'; did you mean sizes or seeds\?"),
        ({"rate": "3"}, r"has no setting 'rate'; did you mean fit\.rate or more\?"),
        ({"seeds": "many"}, r"seeds of tosses is a whole number of at least 1 \(at scale smoke it is 2\), not 'many'"),
        ({"seeds": "2.5"}, "a whole number of at least 1"),
        ({"seeds": "0"}, "a whole number of at least 1"),
        ({"sizes": "4,-1"}, "several values such as 2,4, each a whole number of at least 1"),
        ({"sizes": "10,000"}, "several values"),
        ({"fit.rate": "-0.5"}, "a number above 0"),
        ({"fit.rate": "inf"}, "a number above 0"),
        ({"fit.pair": "1,2,3"}, "2 values such as 1,2"),
        ({"sizes": "9..1"}, r"9\.\.1 is not a range"),
        ({"sizes": "2,2"}, "the same trial twice"),
        ({"sizes": "()"}, "has no trial to measure"),
        ({"said": "other"}, "measures the same with and without said=other"),
        ({"fit.pair": "3,4"}, "measures the same with and without fit.pair=3,4"),
        ({"seeds": "3..4", "kind": "none"}, "kind of tosses is a text"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(settings: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        STUDY.checked_trials(STUDY.scale_name("smoke", settings, from_text=True))


def test_in_python_values_have_their_types() -> None:
    assert STUDY.scale_name("smoke", {"sizes": range(3, 6), "fit.rate": 1}) == "smoke+sizes=3..5+fit.rate=1.0"
    with pytest.raises(InputError, match="a whole number"):
        STUDY.scale_name("smoke", {"seeds": "3"})


# ---------------------------------------------------------------- names and trials


def test_a_name_says_what_differs_in_the_order_of_the_settings() -> None:
    assert _scale(seeds="2") == "smoke"  # as it is
    name = _scale(fit__rate="0.25", sizes="3")
    assert name == _scale(sizes="3", fit__rate="0.25") == STUDY.scale_name(name) == "smoke+sizes=3+fit.rate=0.25"
    assert STUDY.scale_name(name, {"sizes": (2, 4)}) == "smoke+fit.rate=0.25"
    assert STUDY.changes(name) == {"sizes": ((2, 4), (3,)), "fit.rate": (0.5, 0.25)}
    assert repeat_command(STUDY, name).endswith("--scale smoke --set sizes=3 --set fit.rate=0.25")


def test_a_setting_that_another_scale_has_can_be_set_too() -> None:
    assert [trial.size for trial in STUDY.checked_trials("smoke+shift=3")[::2]] == [5, 7]
    assert _scale(more="7") == "smoke+more=7"


def test_unchanged_trials_keep_their_keys() -> None:
    before = {trial_key(STUDY, trial) for trial in STUDY.checked_trials("smoke")}
    after = {trial_key(STUDY, trial) for trial in STUDY.checked_trials("smoke+seeds=3")}
    assert before < after
    assert len(after) == 6


def test_seeds_are_a_number_or_a_range_and_begin_where_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _scale(seeds="0..3") == "smoke+seeds=4+first_seed=0"
    assert STUDY.scale_name("smoke", seed=7) == "smoke+first_seed=7"
    assert {trial.seed for trial in STUDY.checked_trials("smoke+first_seed=7")} == {7, 8}
    with pytest.raises(InputError, match="blowup-bound has no setting for its first seed"):
        registry.find("blowup-bound").scale_name("smoke", seed=3)
    monkeypatch.setattr(Tosses, "base_seed", "none")
    with pytest.raises(InputError, match="numbered from 0: say seeds=3"):
        _scale(seeds="3..5")


def test_differences_are_those_of_what_was_run() -> None:
    assert ("sizes", (2, 4, 8), (3,)) in STUDY.differences("smoke+sizes=3")
    assert "seeds" not in [name for name, *_ in STUDY.differences("smoke+seeds=9")]


# ---------------------------------------------------------------- looks


def _run(folder: Path, scale: str) -> Findings:
    with Store(folder) as store:
        return run_study(STUDY, scale, store, InProcess())


def _seen(run: Findings) -> tuple[str, int]:
    seen = run.judgements[0][1].seen
    assert seen is not None
    return seen.standing, seen.number


def test_a_larger_sample_is_the_next_look_and_other_settings_have_looks_of_their_own(tmp_path: Path) -> None:
    assert STUDY.look_scale("smoke+sizes=3+seeds=3") == "smoke+sizes=3"
    assert _seen(_run(tmp_path, "smoke")) == ("look", 1)
    more = _run(tmp_path, "smoke+seeds=3")
    assert (_seen(more), more.reused, more.done) == (("look", 2), 4, 6)
    assert [look.number for look in more.looks] == [1, 2]
    assert _seen(_run(tmp_path, "smoke+first_seed=100")) == ("look", 3)
    assert _seen(_run(tmp_path, "smoke+seeds=1"))[0] == "exploratory"  # some trials of look 1 are left out
    assert _seen(_run(tmp_path, "smoke")) == ("look", 1)
    assert _seen(_run(tmp_path, "smoke+sizes=3")) == ("look", 1)
    assert _seen(_run(tmp_path, "smoke+sizes=3+seeds=3")) == ("look", 2)


def test_sample_sizes_that_studies_declare_are_settings_of_theirs() -> None:
    for name in registry.names():
        study = registry.find(name)
        known = {setting for scale in study.scales.values() for setting in leaves(scale.settings)}
        assert set(study.sample_sizes) <= known, name


@pytest.mark.parametrize("name", registry.names())
def test_every_setting_of_every_study_can_be_changed_or_is_refused_in_a_sentence(name: str) -> None:
    study = registry.find(name)
    made = 0
    for setting, value in leaves(study.scales["smoke"].settings).items():
        other = value + 1 if isinstance(value, int) else 2 * value if isinstance(value, float) else None
        for new in [value[:1], ()] if isinstance(value, tuple) else [other]:
            with contextlib.suppress(InputError):
                scale = study.scale_name("smoke", {setting: new})
                assert study.scale_name(scale) == scale
                made += bool(study.checked_trials(scale))
    assert made


# ---------------------------------------------------------------- errors of a study's own code


class Broken(Tosses):
    """One of its judges raises."""

    name = "broken"

    @staticmethod
    def _raise(table: Rows) -> Judgement:
        raise ZeroDivisionError("no rows\nat all")

    claims = (Claim("bad", "Fig 2", "s", "c", _raise), *Tosses.claims)


def test_a_judge_that_raises_leaves_the_others_alone(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        run = run_study(Broken(), "smoke", store, InProcess())
        assert len(store.looks("broken")) == 1
    assert [judgement.verdict for _, judgement in run.judgements] == ["undecided", "reproduced"]
    (error,) = run.errors
    assert error.startswith("the judge of 'bad' raised ZeroDivisionError: no rows at all (test_settings.py, line ")


@dataclass(frozen=True)
class Lost(Toss):
    """A toss that cannot be measured."""

    def measure(self, progress: Progress) -> Outcome:
        raise ValueError(f"no toss of size {self.size}")


class Failing(Tosses):
    """Nothing can be measured."""

    name = "failing"

    def trials(self, scale: str) -> list[Toss]:
        return [Lost(**each.content()) for each in super().trials(scale)]


def test_a_run_whose_trials_all_fail_shows_the_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _install(monkeypatch, Failing())
    assert main(["run", "failing", "--scale", "smoke", "--workers", "0"]) == 1
    assert "The first error: ValueError: no toss of size 2" in capsys.readouterr().out


# ---------------------------------------------------------------- commands


def _install(monkeypatch: pytest.MonkeyPatch, *studies: Study) -> None:
    known = {study.name: study for study in studies}
    monkeypatch.setattr(registry, "names", lambda: sorted(known))
    monkeypatch.setattr(registry, "find", lambda name: known[name])


def _document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_contradicted_claim_is_a_result_unless_it_must_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    against = Judgement("contradicted", "q", 1.0, 0.5, 2.0)
    monkeypatch.setattr(Tosses, "claims", (Claim("c", "w", "s", "j", lambda table: against),))
    _install(monkeypatch, STUDY)
    call = ("run", "tosses", "--scale", "smoke", "--workers", "0")
    assert _document(capsys, *call)["claims"][0]["verdict"] == "contradicted"
    assert _document(capsys, *call, "--strict", code=1)["claims"][0]["verdict"] == "contradicted"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "lenght=14"], "did you mean length?"),
        (["--set", "length"], "write NAME=VALUE"),
        (["--set", "length=4", "--set", "length=5"], "--set gives length twice"),
        (["--set", "strings=60,20"], "in this order"),
        (["--set", "widest=3"], "room for the least width, 16"),
    ],
)
def test_bad_settings_are_told_before_anything_starts(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "random-init", "--scale", "smoke", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "results").exists()


SET = ("--scale", "smoke", "--set", "length=8", "--set", "strings=5,9", "--set", "data_sets=1")
SCALE = "smoke+data_sets=1+length=8+strings=5,9"


def test_changed_settings_from_the_run_to_the_report_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Interrupted, resumed, exported, packed, unpacked elsewhere, and reported."""
    monkeypatch.chdir(tmp_path)
    measured: list[Trial] = []
    real = Draw.measure

    def counted(trial: Draw, progress: Progress) -> Outcome:
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(trial)
        return real(trial, progress)

    run = ("run", "random-init", "--workers", "0", *SET)
    monkeypatch.setattr(Draw, "measure", counted)
    assert main(run) == 130
    assert "2 of 4 trials are stored" in capsys.readouterr().err
    (state,) = _document(capsys, "status")
    assert (state["scale"], state["state"], state["done"], state["total"]) == (SCALE, "stopped", 2, 4)
    monkeypatch.setattr(Draw, "measure", real)

    found = _document(capsys, *run)
    assert (found["scale"], found["done"], found["reused"]) == (SCALE, 4, 2)
    assert {"setting": "length", "scale": 40, "here": 8} in found["changes"]
    assert {"setting": "length", "paper": 100, "here": 8} in found["differences"]
    assert main([*run, "--verbose"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "length: 8, in the paper 100" in page
    assert "The settings are yours, not the study's: data_sets 1 instead of 3, length 8 instead of 40" in page

    for ending in ("csv", "json", "parquet"):
        assert main(["results", "random-init", "--export", f"table.{ending}"]) == 0
    rows = list(csv.DictReader(Path("table.csv").read_text().splitlines()))
    assert [row["init"] for row in rows] == ["uniform", "gaussian", "xavier_uniform", "xavier_normal"]
    whole = json.loads(Path("table.json").read_text())
    assert [float(row["average_sensitivity"]) for row in rows] == [row["average_sensitivity"] for row in whole]
    assert [sum(row["profile"]) for row in whole] == [row["strings"] for row in whole]
    assert main(["results", "random-init", "--raw", "--export", "raw.json"]) == 0
    assert "outcome.path" in json.loads(Path("raw.json").read_text())[0]
    capsys.readouterr()
    assert main(["results", "random-init"]) == 0
    assert "…" not in capsys.readouterr().out  # no column is cut where the output is not a terminal

    assert main(["results", "pack", "random-init", "--scale", SCALE, "-o", "x.flipscope"]) == 0
    there = str(tmp_path / "there")
    assert main(["results", "unpack", "x.flipscope", "--results", there]) == 0
    assert "4 new trials, 0 known, 5 new looks" in capsys.readouterr().out
    assert _document(capsys, "run", "random-init", "--workers", "0", *SET, "--results", there)["reused"] == 4
    with Store(there, create=False) as store:
        looks = [scale for scale, _ in store.looks("random-init")]
        assert set(looks) == {"smoke+length=8"}  # one look at each claim: the others are sample sizes
        assert len(looks) == len(random_init.STUDY.claims)
        assert findings(random_init.STUDY, SCALE, store).complete
    assert main(["report", "random-init", "--results", there, "-o", "report.html"]) == 0
    report = " ".join(Path("report.html").read_text().split())
    assert "The settings are the user&#39;s, not those of the scale smoke of this study: data_sets 1" in report
    assert "--set length=8" in report


def test_a_study_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    source = Path(__file__).read_text("utf-8")
    begin, end = source.index("@dataclass(frozen=True)\nclass Toss("), source.index("\n\ndef _scale(")
    head = source[source.index("from __future__") : begin]
    (folder / "tosses_in_a_file.py").write_text(head + source[begin:end] + "\n")
    assert _document(capsys, "run", "elsewhere/tosses_in_a_file.py", "--scale", "smoke", "--workers", "0")["done"] == 4
    address = "elsewhere/tosses_in_a_file.py:STUDY"
    assert _document(capsys, "run", address, "--scale", "smoke", "--workers", "2", "--set", "sizes=3")["done"] == 2
    (state,) = _document(capsys, "status")
    assert "elsewhere/tosses_in_a_file.py --scale smoke" in state["command"].replace(":STUDY", "")
    assert main(["report", address]) == 0
    assert main(["results", address, "--export", "table.csv"]) == 0
    assert len(Path("table.csv").read_text().splitlines()) == 3
    (folder / "empty.py").write_text("")
    assert main(["run", "elsewhere/empty.py"]) == 2
    assert "there is no study in elsewhere/empty.py" in capsys.readouterr().err
    assert main(["run", "elsewhere/missing.py"]) == 2
    assert "there is no file elsewhere/missing.py" in capsys.readouterr().err
