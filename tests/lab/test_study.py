from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.lab.rows import Rows
from flipscope.lab.study import Claim, Scale, Study, Trial, digest
from flipscope.lab.verdict import Judgement


@dataclass(frozen=True)
class Setting(Trial):
    init: Literal["uniform", "gaussian"]
    seed: int
    rate: float = 0.5
    name: str = "x"
    on: bool = False
    width: int | None = None
    sizes: tuple[int, ...] = ()
    pair: tuple[int, str] = (1, "a")

    def check(self) -> None:
        if self.seed < 0:
            raise InputError(f"seed={self.seed} must not be negative")

    def measure(self, progress: Any) -> dict[str, Any]:
        return {"value": self.seed}


@dataclass(frozen=True)
class Other(Trial):
    tag = "other"
    init: Literal["uniform", "gaussian"]
    seed: int

    def measure(self, progress: Any) -> dict[str, Any]:
        return {"value": -self.seed}


class Toy(Study):
    name = "toy"
    paper = "000"
    title = "a toy"
    scales = {"smoke": Scale(0.1, {}, "two"), "twice": Scale(0.1, {}, "the same trial twice")}
    claims = (Claim("positive", "Fig 1", "it is positive", "mean > 0", lambda table: table[0]["judgement"]),)

    def trials(self, scale: str) -> list[Trial]:
        seeds = (0, 1) if scale == "smoke" else (0, 0)
        return [Setting("uniform", seed) for seed in seeds]

    def summarise(self, results: Any) -> list[dict[str, Any]]:
        return [dict(result.outcome) for result in results]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("init", "normal"),
        ("seed", 1.0),
        ("seed", True),
        ("seed", None),
        ("rate", math.nan),
        ("rate", math.inf),
        ("rate", "0.5"),
        ("rate", True),
        ("name", 3),
        ("on", 1),
        ("width", 1.5),
        ("sizes", [1, 2]),
        ("sizes", (1, "2")),
        ("pair", (1,)),
        ("pair", ("a", 1)),
    ],
)
def test_a_value_of_another_type_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"Setting\.{field}="):
        Setting(**{"init": "uniform", "seed": 0, field: value})  # type: ignore[arg-type]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="seed=-1"):
        Setting("uniform", -1)


def test_a_field_that_cannot_be_written_down_is_refused() -> None:
    @dataclass(frozen=True)
    class Loose(Trial):
        options: dict[str, int]

    with pytest.raises(InputError, match="cannot hold a field of type"):
        Loose({})


def test_the_hash_is_the_same_on_every_machine() -> None:
    assert Setting("uniform", 3).hash == "43d292f79b6af1d398f87a75710d6c2b8309ed12ff90260462c1b2edc1aaadd9"


def test_equal_numbers_are_written_alike() -> None:
    assert Setting("uniform", 3, rate=1).hash == Setting("uniform", 3, rate=1.0).hash
    assert Setting("uniform", 3, rate=-0.0).hash == Setting("uniform", 3, rate=0.0).hash


def test_classes_of_trials_differ_by_their_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Renamed(Trial):
        tag = "other"
        init: Literal["uniform", "gaussian"]
        seed: int

    trial = Other("uniform", 0)
    assert trial.hash == Renamed("uniform", 0).hash
    assert trial.content() == {"init": "uniform", "seed": 0}
    monkeypatch.setattr(Renamed, "tag", "")
    assert trial.hash != Renamed("uniform", 0).hash


def test_trials_that_do_not_measure_themselves_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "trials", lambda self, scale: [Other("uniform", 0)])
    assert len(Toy().checked_trials("smoke")) == 1
    monkeypatch.delattr(Other, "measure")
    with pytest.raises(InputError, match=r"^the study toy: the trials Other do not say .*: define Other\.measure\("):
        Toy().checked_trials("smoke")


def test_two_classes_with_the_same_tag_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [Setting("uniform", 0), Other("uniform", 0), Other("uniform", 1)]
    monkeypatch.setattr(Toy, "trials", lambda self, scale: trials)
    assert Toy().checked_trials("smoke") == trials
    monkeypatch.setattr(Other, "tag", "")
    with pytest.raises(InputError, match=r"Setting and Other of the study toy have the same tag ''.*tag = 'other'"):
        Toy().checked_trials("smoke")


@given(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.booleans(),
    st.none() | st.integers(),
    st.lists(st.integers()).map(tuple),
)
def test_equal_content_equal_hash_and_every_field_counts(seed, rate, name, on, width, sizes) -> None:
    made = Setting("uniform", abs(seed), rate, name, on, width, sizes)
    assert made.hash == dataclasses.replace(made).hash
    changed = {
        "init": "gaussian",
        "seed": abs(seed) + 1,
        "rate": rate + 1 if rate + 1 != rate else rate / 2,
        "name": name + "x",
        "on": not on,
        "width": 1 if width is None else None,
        "sizes": (*sizes, 0),
        "pair": (2, "a"),
    }
    for field, value in changed.items():
        assert dataclasses.replace(made, **{field: value}).hash != made.hash


def test_an_unknown_scale_names_the_scales() -> None:
    with pytest.raises(InputError, match="no scale 'big'; it has smoke, twice"):
        Toy().checked_trials("big")


def test_the_same_trial_twice_is_refused() -> None:
    assert len(Toy().checked_trials("smoke")) == 2
    with pytest.raises(InputError, match="the same trial twice at scale twice"):
        Toy().checked_trials("twice")


@pytest.mark.parametrize("name", ["Toy", "a b", "-a", "a--b", "a_b", ""])
def test_a_name_that_no_command_line_likes_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="study name"):
        type("Bad", (Toy,), {"name": name})


def test_without_data_every_claim_is_undecided() -> None:
    ((claim, judgement),) = Toy().judge(Rows())
    assert claim.name == "positive"
    assert judgement.verdict == "undecided"


def test_the_judge_sees_the_table() -> None:
    judgement = Judgement("reproduced", "mean", 1.0, 0.5, 1.5)
    assert Toy().judge(Rows([{"judgement": judgement}]))[0][1] is judgement


def test_digest_ignores_order_and_refuses_nan() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    with pytest.raises(ValueError, match="JSON"):
        digest({"a": math.nan})
