"""What spectra of random transformers say of the claims of section 6 and App. F.1, by initialisation and by setting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flipscope.lab as lab
from flipscope.basics.estimates import mean_from_samples
from flipscope.studies.geometry._shared import screen_error
from flipscope.studies.geometry.random_models import INITS, NEAR, mixed

VAST, MOST = 9 / 10, 1 / 2  # share of strings, or of models, that is the vast majority, or most of them
CLUSTER = 1.0  # averages below this are in the cluster at 0
TAIL, THIN = 1 / 10, 1 / 10  # of N: averages in the tail; share of all models that a thin tail may hold
FAR = 1 / 2  # of the N/2 of a random function
SETTINGS = {"layers": "L", "width": "D", "ffn_multiple": "FFN multiple"}
Judge = Callable[[lab.Rows], lab.Judgement]
Part = Callable[[Any, lab.Rows, float], lab.Judgement]


def near(
    group: str, rows: lab.Rows, confidence: float, column: str = "near_share", least: float = VAST
) -> lab.Judgement:
    """The mean over models of the share of strings whose sensitivity is near 0."""
    found = mean_from_samples(rows.column(column), 0, 1, confidence)
    judged = lab.at_least(
        found, least, f"share of strings with sensitivity at most N/{1 / NEAR:g}, {group}", unit="models"
    )
    return lab.with_fewest(judged, found, 1 - least, "models in each group")


def averages(init: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
    """The share of models whose average sensitivity is in the cluster at 0."""
    found = lab.share_of(rows, lambda row: row["average_sensitivity"] < CLUSTER, confidence)
    judged = lab.at_least(
        found, VAST, f"share of models with average sensitivity below {CLUSTER:g}, {init}", unit="models"
    )
    return lab.with_fewest(judged, found, 1 - VAST, "models in each group")


def mean(group: str, rows: lab.Rows, confidence: float, column: str = "average_sensitivity") -> lab.Judgement:
    """The mean average sensitivity, in units of that of a random function."""
    found = mean_from_samples(rows.column(column), 0, length := rows[0]["length"], confidence)
    judged = lab.at_most(
        found.scaled(2 / length), FAR, f"mean average sensitivity in units of N/2, {group}", unit="models"
    )
    return lab.with_fewest(judged, found, FAR / 2, "models in each group")


def thin(table: lab.Rows) -> lab.Judgement:
    """The share of all models in the tail."""
    # The models of one initialisation are not distributed like those of another, but the binomial interval of
    # equally many of each is then too wide rather than too narrow (Hoeffding 1956).
    found = lab.share_of(table, lambda row: row["average_sensitivity"] >= TAIL * row["length"], 1 - 0.05 / 5)
    judged = lab.at_most(
        found, THIN, f"share of all models with average sensitivity of at least N/{1 / TAIL:g}", unit="models"
    )
    return lab.with_fewest(judged, found, THIN, "models")


def by_init(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    """The models of each initialisation."""
    return table.each("init", INITS)


def by_setting(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    """The models of each depth, of each width, and of each FFN multiple."""
    return [(f"{name} = {value}", own) for column, name in SETTINGS.items() for value, own in mixed(table).by(column)]


def varied(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    """The models that are not constant as far as was seen, all together."""
    return [("models that are not constant", mixed(table.where(constant=False)))]


def centred(table: lab.Rows) -> list[tuple[str, lab.Rows]]:
    """The models of each initialisation that were asked with the threshold at their median logit."""
    return [(f"{init}, threshold at the median", own.having("centred_strings")) for init, own in by_init(table)]


def judge_of(groups: Callable[[lab.Rows], list[tuple[str, lab.Rows]]], one: Part, *whole: Judge, **of: Any) -> Judge:
    """A judge of each group and of the whole, undecided where the screen has not been audited enough."""

    def judge(table: lab.Rows) -> lab.Judgement:
        each = lab.for_each(
            groups(table), partial(one, **of), missing="no model is done", besides=len(whole), sort=True
        )
        judged, hidden = lab.all_of([each, *(part(table) for part in whole)]), screen_error(table)[1]
        if hidden <= CLUSTER or groups is centred:  # with the median threshold nothing is screened
            return judged
        return judged.left_open(f"the screen could hide {hidden:.3g} of an average", "a larger audit of the screen")

    return judge
