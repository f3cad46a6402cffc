"""Radii up to which half of the perturbations of a model still recognise its language: Majority's against others'."""

from __future__ import annotations

from functools import partial

import numpy as np

import flipscope.lab as lab
from flipscope.studies.geometry._shared import mean_at_least

FEWEST = 3  # models of both languages


def _quotients(table: lab.Rows, other: str) -> lab.Rows:
    """log of Majority's half radius over the other language's, of each length and seed that has both."""
    return lab.Rows(
        {"length": n, "seed": a["seed"], "log": float(np.log(a["half_radius"])) - float(np.log(b["half_radius"]))}
        for n, own in table.having("half_radius").by("length")
        for a, b in lab.matched(own.where(language="majority"), own.where(language=other), "seed")
    )


def judge_larger(table: lab.Rows, other: str) -> lab.Judgement:
    """Whether the radius of Majority is larger, at the longest length that enough models of both learned."""
    for length, rows in reversed(list(_quotients(table, other).by("length"))):
        if len(rows) >= FEWEST:
            name = f"log of the quotient of half radii, Majority over {other.capitalize()}, N = {length}"
            return mean_at_least(rows.column("log"), 0.0, name, fewest=FEWEST, unit="pairs of models")
    return lab.Judgement.without("too few models of both languages", f"at least {FEWEST} seeds that learn both")


def judge_slower(table: lab.Rows, other: str) -> lab.Judgement:
    """Whether the radius of Majority falls more slowly with N than that of the other language."""
    name = f"slope against N of log(half radius of Majority / that of {other.capitalize()})"
    judge = partial(lab.mean_slope, fewest=FEWEST, unit="seeds that learn both")
    return judge(_quotients(table, other), "length", "log", lab.at_least, 0.0, name)
