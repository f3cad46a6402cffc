from __future__ import annotations

import pytest
from studies.hardness_rows import rows
from studies.harness import smoke_run

from flipscope.cube.expression import parse
from flipscope.data.lengths import prefix_values
from flipscope.lab import Rows
from flipscope.studies.hardness.shared import FUNCTIONS, OTHERS, strings_of
from flipscope.studies.hardness.sharpness_by_length import FLAT, LONG, LONG_FLAT, STUDY

ABOVE, RISES, FLAT_OTHERS, ONE, LONG_ONES = STUDY.claims


def table(parity: float, others: float, noise: float = 0.02) -> Rows:
    """Sharpness 0.4 and 0.2 at n = 4, with these slopes per bit."""
    return rows(
        "sharpness", lambda f, n: 0.4 + parity * (n - 4) if f == "parity" else 0.2 + others * (n - 4), noise=noise
    )


def test_as_the_paper_has_it() -> None:
    found = table(0.04, 0.0)
    assert [claim.judge(found).verdict for claim in (ABOVE, RISES, FLAT_OTHERS)] == ["reproduced"] * 3
    assert ABOVE.judge(found).quantity.endswith("n = 12")
    assert FLAT_OTHERS.judge(found).note.startswith("n from 4 to 12") or "3 of 3" in FLAT_OTHERS.judge(found).note


def test_the_opposite() -> None:
    found = table(-0.04, 0.06)
    assert [claim.judge(found).verdict for claim in (ABOVE, RISES, FLAT_OTHERS)] == ["contradicted"] * 3
    one_rises = Rows(
        {**row, "sharpness": row["sharpness"] + (0.04 * row["length"] if row["function"] == "first" else 0)}
        for row in table(0.04, 0.0)
    )
    assert FLAT_OTHERS.judge(one_rises).verdict == "contradicted"


def test_noise_decides_nothing() -> None:
    found = table(FLAT, FLAT, noise=0.5)
    assert [claim.judge(found).verdict for claim in (ABOVE, FLAT_OTHERS)] == ["undecided"] * 2
    assert RISES.judge(table(FLAT, 0.0)).verdict == "undecided"
    assert FLAT_OTHERS.judge(table(0.04, FLAT)).verdict == "undecided"


def test_only_kept_models_count() -> None:
    found = table(0.04, 0.0)
    lost = Rows({**row, "kept": row["length"] < 12 or row["function"] != "parity"} for row in found)
    assert ABOVE.judge(lost).quantity.endswith("n = 10")
    assert "parity n = 12: 3 of 3" in STUDY.provenance(lost)[1]
    none = Rows({**row, "kept": row["function"] != "parity"} for row in found)
    assert {ABOVE.judge(none).verdict, RISES.judge(none).verdict} == {"undecided"}
    labels = [series.label for series in STUDY.draw(lost)[0].panels[0].series]
    assert labels == [*FUNCTIONS, "not kept"]


def test_near_one() -> None:
    assert ONE.judge(table(0.04, 0.0)).verdict == "undecided"
    for level, expected in (
        (1.0, "reproduced"),
        (0.6, "contradicted"),
        (0.9, "undecided"),
        (1.1, "undecided"),
        (5.0, "contradicted"),  # far above the bound is not at it
    ):
        near = rows("sharpness", lambda *_, level=level: level, lengths=(28, 30), functions=["parity"])
        assert ONE.judge(near).verdict == expected


def test_long_strings() -> None:
    for drift, expected in ((0.0, "reproduced"), (4 * LONG_FLAT, "contradicted"), (LONG_FLAT, "undecided")):
        far = rows("sharpness", lambda _, n, d=drift: 0.2 + d * n, lengths=LONG, functions=OTHERS, width=4)
        assert LONG_ONES.judge(far).verdict == expected
        assert FLAT_OTHERS.judge(far).verdict == "undecided"  # models of E1b are no models of E1


@pytest.mark.parametrize("function", ["parity", "majority", "first"])
def test_labels_are_those_of_the_training(function: str) -> None:
    bits = strings_of(6, 64, 0)
    assert (prefix_values(function, bits)[:, -1] == parse(f"{function}(6)")(bits)).all()


def test_recipes() -> None:
    assert strings_of(12, 1024, 0).shape == (1024, 12)
    assert LONG == (4, 31, 57, 84, 111, 138, 164, 191, 218, 245, 271, 298, 325, 352, 378, 405, 432, 459, 485, 512)
    assert len(STUDY.trials("paper")) == 27 * 4 * 10 + 20 * 3 * 10
    assert len(STUDY.checked_trials("laptop")) == 3 * 5 * 3 + 5 * 6 + 18
    recipes = [trial.recipe.digest for trial in STUDY.trials("laptop")[:10]]
    assert len(set(recipes)) == 10
    seeds = [trial.seed for trial in STUDY.trials("laptop")]
    assert seeds == list(range(1_000, 1_000 + len(seeds))), "one for each model, that no earlier run has looked at"
    usual = STUDY.trials("paper")[0].recipe
    assert (usual.protocol.learning_rate, usual.protocol.weight_decay, usual.protocol.batch) == (3e-4, 0.1, 1024)


def test_smoke() -> None:
    found, judgements, figures = smoke_run(STUDY)
    assert {judged.verdict for _, judged in judgements} == {"undecided"}
    assert [figure.name for figure in figures] == ["sharpness-by-length", "blowup-by-length", "sharpness-long"]
    for row in found:
        assert row["sharpness_low"] <= row["sharpness"] <= row["sharpness_high"]
        assert row["norm"] < row["norm_with_positions"]
        assert row["token_mean_blowup"] <= row["blowup"]
        assert row["kept"] == (row["error"] < row["limit"])
