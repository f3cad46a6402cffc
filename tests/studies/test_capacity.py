from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from studies.harness import smoke_run

from flipscope.lab import Rows
from flipscope.studies.sparse_variables import capacity
from flipscope.studies.sparse_variables.capacity import (
    FEWEST_MODELS,
    MAPPINGS,
    RESULTS,
    STUDY,
    Formula,
    Limit,
    Perturbed,
    built_head,
    constructed_head,
)

CLAIMS = {claim.name: claim for claim in STUDY.claims}
LENGTHS = (16, 256, 4096)


def _ignore(done: int, total: int) -> None:
    pass


def verdict(name: str, rows: Any) -> str:
    return CLAIMS[name].judge(Rows.of(rows)).verdict


def lengths(size, results=RESULTS, over=LENGTHS) -> list[dict[str, Any]]:
    common = {"kind": "formula", "layers": 1}
    return [
        {**common, "result": result, "length": length, "log_size": math.log(size(length))}
        for result in results
        for length in over
    ]


def test_growth_with_the_length() -> None:
    name = "log T at fixed norms"
    assert verdict(name, lengths(lambda length: 1e6 * math.log(1e3 * length))) == "reproduced"
    for power in (0.5, 0.14):  # a small power of T passes for a logarithm at few lengths only
        assert verdict(name, lengths(lambda length, power=power: length**power)) == "contradicted"
    odd = [*lengths(math.log, RESULTS[1:]), *lengths(lambda length: length, RESULTS[:1])]
    assert verdict(name, odd) == "contradicted"
    assert verdict(name, lengths(lambda length: 1e6 * math.log(1e3 * length), over=LENGTHS[:2])) == "undecided"
    assert verdict(name, lengths(lambda length: 1e6 * math.log(1e3 * length), RESULTS[1:])) == "undecided"


def made(size, relevant=(2, 3, 4), mappings=MAPPINGS) -> list[dict[str, Any]]:
    return [
        {"kind": "constructed", "mapping": mapping, "length": length, "relevant": bits}
        | {name: math.log(size(length, bits)) for name in ("log_sums", "log_rows")}
        for mapping in mappings
        for length in LENGTHS
        for bits in relevant
    ]


def test_growth_of_the_constructions() -> None:
    once, kept = (next(n for n in CLAIMS if n.startswith(start)) for start in ("log T for", "Lem 4.5 as"))
    by_log, by_cube = made(lambda length, _: math.log(length) ** 0.9), made(lambda length, s: s * math.log(length) ** 3)
    wild, unsure = made(lambda length, _: length**2.0), made(lambda length, s: math.log(length) ** (s / 2.5))
    assert [verdict(once, rows) for rows in (by_log, by_cube, unsure)] == ["reproduced", "contradicted", "undecided"]
    unsure = made(lambda length, s: length ** (s / 5))
    assert [verdict(kept, rows) for rows in (by_log, wild, unsure)] == ["reproduced", "contradicted", "undecided"]
    for name in (once, kept):
        assert verdict(name, made(lambda length, _: length, relevant=(2,))) == "undecided"
        assert verdict(name, made(lambda length, _: math.log(length) ** 0.9, mappings=MAPPINGS[:1])) == "undecided"
        assert verdict(name, [{"kind": "formula"}]) == "undecided"


def test_growth_in_the_limit() -> None:
    name = "ln^3 T for the constructions"

    def rows(*powers: float) -> list[dict[str, Any]]:
        own = {"kind": "limit", "power_of_order": 3.0}
        return [{**own, "mapping": mapping, "power": power} for mapping in MAPPINGS for power in powers]

    assert verdict(name, rows(2.95, 3.0, 3.05)) == "reproduced"
    assert verdict(name, rows(1.0, 1.1, 1.0)) == verdict(name, rows(3.3, 3.2, 3.4)) == "contradicted"
    assert verdict(name, rows(2.8, 3.0, 3.0)) == verdict(name, rows(3.0, 3.0)) == "undecided"
    assert verdict(name, [{"kind": "formula"}]) == "undecided"
    ours = [
        {"kind": "limit", "mapping": each, **Limit(each, bits).measure(_ignore)}
        for each in MAPPINGS
        for bits in (2, 3, 4)
    ]
    assert [row["power_of_order"] for row in ours] == pytest.approx([3] * 6, abs=0.1)
    # With its constants ln N has 2 d_2 ln 2, of the order of T: twice the logarithm is T times as much.
    assert [row["power"] for row in ours] == pytest.approx([256] * 6, rel=0.01)
    assert verdict(name, ours) == "contradicted"


def test_growth_with_depth() -> None:
    name = "norms of at most 1 avoid exponential depth"

    def deep(order, most=5):
        own = {"kind": "formula", "result": "Thm A.17", "length": 16}
        return [{**own, "layers": layers, "log_order": order(layers)} for layers in range(1, most + 1)]

    assert verdict(name, deep(lambda layers: 2 * math.log(layers))) == "reproduced"
    assert verdict(name, deep(lambda layers: layers * math.log(25))) == "contradicted"
    assert verdict(name, deep(lambda layers: layers * math.log(1.6), most=6)) == "contradicted"
    assert verdict(name, deep(lambda layers: 3 * math.log(1 + layers), most=6)) == "reproduced"
    assert verdict(name, deep(lambda layers: layers * math.log(25), most=2)) == "undecided"
    ours = [
        {"kind": "formula", **t.content(), **t.measure(_ignore)}
        for t in (Formula("Thm A.17", 16, n) for n in (1, 2, 3, 4))
    ]
    judged = CLAIMS[name].judge(Rows(ours))
    assert judged.verdict == "contradicted"
    assert judged.note == "ratios to L = 1: 1, 58, 1,851, 50,037"


@pytest.mark.parametrize(
    ("name", "column"),
    [("errors pass the layers before, as printed", "broken_printed"), ("errors pass the layers after", "broken")],
)
def test_perturbations(name: str, column: str) -> None:
    def rows(broken: int, pairs: int) -> list[dict[str, Any]]:
        counts = {"broken": 0, "broken_printed": 0, "worst": 0.5, "worst_printed": 2.0} | {column: broken}
        return [{"kind": "perturbed", "pairs": pairs, **counts}]

    assert verdict(name, rows(0, 4_000)) == "reproduced"
    assert verdict(name, rows(1, 4_000)) == "contradicted"
    assert verdict(name, rows(0, 100)) == "undecided"
    assert verdict(name, [{"kind": "formula"}]) == "undecided"


def models(count: int = 30, **odd: Any) -> list[dict[str, Any]]:
    usual = {"kind": "trained", "length": 50, "samples": 100, "width": 32, "layers": 1, "log10_needed": 16.0}
    return [{**usual, "seed": seed, "gap": 0.4, "bound": 0.9, "range": 2.0, **odd} for seed in range(count)]


def test_gaps_and_bounds() -> None:
    name = "no gap above its bound"
    assert verdict(name, models()) == "reproduced"
    assert verdict(name, [*models(), *models(1, gap=-1.0)]) == "contradicted"
    assert verdict(name, models(gap=1.0)) == "contradicted"
    assert verdict(name, models(FEWEST_MODELS - 1)) == "undecided"
    assert verdict(name, models(bound=90.0)) == "undecided"  # it says nothing
    assert verdict(name, [{"kind": "formula"}]) == "undecided"
    name = "the bound says something of trained networks"
    assert verdict(name, models()) == "reproduced"
    assert verdict(name, models(bound=90.0)) == "contradicted"
    assert verdict(name, models(2, bound=90.0)) == "undecided"
    assert verdict(name, [*models(), *models(bound=90.0)]) == "undecided"
    judged = CLAIMS[name].judge(Rows(models(bound=90.0)))
    assert "bound over gap 225" in judged.note
    assert "10^16" in judged.note


def test_the_gap_by_length() -> None:
    name = "the measured gap hardly grows with T"

    def by_length(power: float, spread: float = 0.0, seeds: int = 6) -> list[dict[str, Any]]:
        rng = np.random.default_rng(0)
        return [
            {**row, "length": length, "gap": 0.1 * length ** (power + spread * float(rng.normal()))}
            for length in (20, 50, 100, 200)
            for row in models(seeds)
        ]

    assert verdict(name, by_length(0.1)) == "reproduced"
    assert verdict(name, by_length(1.0)) == "contradicted"
    assert verdict(name, by_length(0.5, 0.3)) == "undecided"
    assert verdict(name, by_length(0.1, seeds=3)) == "undecided"


def test_perturbations_break_the_printed_product_only() -> None:
    found = [Perturbed(seed, 100).measure(_ignore) for seed in range(2)]
    assert sum(each["broken"] for each in found) == 0
    assert sum(each["broken_printed"] for each in found) > 0
    assert max(each["worst_printed"] for each in found) > 1 > max(each["worst"] for each in found)


def test_a_change_that_is_not_a_number_breaks_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = iter([(0.5, [1.0, 1.0], [0.0, 0.0]), (math.nan, [1.0, 1.0], [0.0, 0.0])])
    monkeypatch.setattr(capacity, "network_change", lambda *_: next(changes))
    found = Perturbed(0, 2).measure(_ignore)
    assert (found["broken"], found["broken_printed"]) == (1, 1)
    assert math.isnan(found["worst"])


@pytest.mark.parametrize("relevant", [2, 3, 5])
@pytest.mark.parametrize(("mapping", "more"), [("deterministic", 3), ("bag", 1)])
def test_norms_of_the_constructions_are_those_of_their_weights(mapping, more: int, relevant: int) -> None:
    known, radius = constructed_head(mapping, math.log(12), 12 + more, relevant)
    built, own = built_head(mapping, 12, relevant)
    assert radius == pytest.approx(own)
    assert dataclasses.astuple(known.score) == pytest.approx(dataclasses.astuple(built.score))
    assert dataclasses.astuple(known.value) == pytest.approx(dataclasses.astuple(built.value))


def test_smoke_run() -> None:
    table, judged, figures = smoke_run(STUDY)
    verdicts = {claim.name: judgement.verdict for claim, judgement in judged}
    assert verdicts["log T at fixed norms"] == "reproduced"
    assert verdicts["log T for the constructions"] == "contradicted"
    assert verdicts["ln^3 T for the constructions"] == "contradicted"  # 2 d_2 ln 2 grows like T
    assert verdicts["norms of at most 1 avoid exponential depth"] == "contradicted"
    assert verdicts["no gap above its bound"] == "undecided"
    trained = table.where(kind="trained")
    assert all(row["gap"] == pytest.approx(row["test_loss"] - row["train_loss"]) for row in trained)
    assert all(row["bound"] > row["range"] > 0 for row in trained)
    assert [figure.name for figure in figures] == [
        "capacity",
        "capacity-constructed",
        "capacity-gap",
        "capacity-needed",
    ]


def test_the_scales_share_their_trials() -> None:
    laptop, paper = STUDY.checked_trials("laptop"), STUDY.checked_trials("paper")
    assert len(paper) > 1_000
    assert {type(trial) for trial in laptop} == {type(trial) for trial in paper}
