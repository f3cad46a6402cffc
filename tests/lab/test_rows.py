from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from flipscope.lab.rows import Rows, matched
from flipscope.lab.study import Result, Scale, Study, Trial, scales

TABLE = Rows(
    [
        {"n": 8, "seed": 1, "y": 2.0, "all": [1, 2]},
        {"n": 4, "seed": 0, "y": None, "all": []},
        {"n": 4, "seed": 1, "y": 3.0, "all": [3]},
        {"n": 16, "seed": 2},
    ]
)


def test_of_keeps_rows_and_copies_others() -> None:
    assert Rows.of(TABLE) is TABLE
    row = {"n": 1}
    made = Rows.of([row])
    assert made == [row]
    assert made[0] is not row


def test_where_takes_values_and_a_test() -> None:
    assert TABLE.where(n=4).column("seed") == [0, 1]
    assert TABLE.where(n=4, seed=1) == [TABLE[2]]
    assert TABLE.where(lambda row: row["n"] > 4, seed=1) == [TABLE[0]]
    assert TABLE.where(y=None) == [TABLE[1]]  # a row without the column has no value there, not even None
    assert TABLE.where(colour="red") == []


def test_having_is_for_columns_that_only_some_rows_have() -> None:
    assert TABLE.having("y").column("y") == [2.0, 3.0]
    assert TABLE.having("colour") == []


def test_groups_are_in_order_and_keep_the_order_of_their_rows() -> None:
    assert [(n, own.column("seed")) for n, own in TABLE.by("n")] == [(4, [0, 1]), (8, [1]), (16, [2])]
    assert [key for key, _ in TABLE.by("seed", "n")] == [(0, 4), (1, 4), (1, 8), (2, 16)]
    with pytest.raises(KeyError):
        list(TABLE.by("y"))


def test_each_takes_the_order_it_is_given_and_leaves_no_value_out() -> None:
    assert [(n, len(own)) for n, own in TABLE.each("n", (16, 5, 4))] == [(16, 1), (5, 0), (4, 2)]


def test_columns() -> None:
    assert TABLE.values("n") == [4, 8, 16]
    assert TABLE.total("y") == 5.0
    assert TABLE.total("colour") == 0
    assert TABLE.having("all").pooled("all") == [1, 2, 3]


def test_rows_are_matched_by_a_column() -> None:
    long, short = TABLE.where(n=8), TABLE.where(n=4)
    assert matched(long, short, "seed") == [(TABLE[0], TABLE[2])]
    both = matched(Rows({"seed": k} for k in (3, 1, 2)), Rows({"seed": k, "b": 1} for k in (2, 3)), "seed")
    assert [first["seed"] for first, _ in both] == [2, 3]


# ---------------------------------------------------------------- the table of a study


@dataclass(frozen=True)
class Left(Trial):
    seed: int


@dataclass(frozen=True)
class Right(Trial):
    seed: int
    width: int


class Both(Study):
    name, paper, title, claims = "both", "000", "Two kinds of trials", ()
    scales = scales("{models} models, N in {lengths}", smoke=(0.1, {"models": 3, "lengths": (4, 8)}), laptop=(2, {}))

    def trials(self, scale: str) -> list[Trial]:
        return []


def test_the_table_has_all_columns_in_every_row_and_plain_values() -> None:
    results = [Result(Right(0, 2), {"values": np.array([1, 2])}, 1.0), Result(Left(1), {"value": np.float64(3)}, 1.0)]
    table = Both().summarise(results)
    assert table == [
        {"seed": 0, "width": 2, "values": [1, 2], "value": None},
        {"seed": 1, "width": None, "values": None, "value": 3.0},
    ]
    assert type(table[1]["value"]) is float


def test_scales_differ_in_their_settings() -> None:
    assert Both.scales["smoke"] == Scale(0.1, {"models": 3, "lengths": (4, 8)}, "{models} models, N in {lengths}")
    assert Both.scales["smoke"].note == "3 models, N in 4, 8"
    assert list(Both.scales) == ["smoke", "laptop"]
