"""What App. F.1 claims of random transformers, and how each claim is judged. A model is one sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from flipscope.cube.intervals import Estimate, mean_from_samples, proportions
from flipscope.lab.study import Claim, Table
from flipscope.lab.verdict import Judgement, all_of, at_least, at_most

ERROR = 0.05  # of all intervals of a claim together
SCHEMES = ("uniform", "gaussian", "xavier_uniform", "xavier_normal")
NEAR = 1 / 20  # of N: up to this a string's sensitivity is near 0
MOST = 1 / 2
CLUSTER = 1.0  # averages below this are in the cluster at 0
TAIL = 1 / 10  # of N: averages from this on are in the tail
THIN = 1 / 10  # share of all models that a thin tail may hold
FAR = 1 / 2  # of the N/2 of a random function


def near_share(row: dict[str, Any]) -> float:
    """Share of the row's strings whose sensitivity is 0 or near 0."""
    return float(sum(row["profile"][: int(NEAR * row["length"]) + 1]) / row["strings"])


def _each(table: Table, judge: Callable[[str, Table, float], Judgement], error: float) -> list[Judgement]:
    """A judgement for each initialisation, those without a model undecided; the weakest first of equal verdicts."""
    parts = []
    for init in SCHEMES:
        rows = [row for row in table if row["init"] == init]
        if not rows:
            parts.append(Judgement.without(f"{init}: no model is done"))
        else:
            parts.append(judge(init.replace("_", " "), rows, 1 - error))
    return parts


def _judge_strings(table: Table) -> Judgement:
    def judge(init: str, rows: Table, confidence: float) -> Judgement:
        found = mean_from_samples([near_share(row) for row in rows], 0, 1, confidence)
        return at_least(found, MOST, f"share of strings with sensitivity at most N/{1 / NEAR:g}, {init}")

    error = ERROR / len(SCHEMES)
    zero = sum(row["zero_share"] for row in table) / len(table)
    # Even if every string of every model is near 0, n models leave (error/2)^(1/n) as the lower end.
    needed = math.ceil(math.log(error / 2) / math.log(0.9))
    said = f"{zero:.1%} at 0 exactly; to show nine strings in ten takes at least {needed} models an initialisation"
    return _told(sorted(_each(table, judge, error), key=lambda part: part.low or 0.0), table, said)


def _judge_averages(table: Table) -> Judgement:
    error = ERROR / (len(SCHEMES) + 1)

    def judge(init: str, rows: Table, confidence: float) -> Judgement:
        small = sum(row["average_sensitivity"] < CLUSTER for row in rows)
        found = proportions([small], len(rows), confidence)[0]
        return at_least(found, MOST, f"share of models with average sensitivity below {CLUSTER:g}, {init}")

    # The models of one initialisation are not distributed like those of another, but the binomial interval of
    # equally many of each is then too wide rather than too narrow (Hoeffding 1956).
    tail = sum(row["average_sensitivity"] >= TAIL * row["length"] for row in table)
    share = proportions([tail], len(table), 1 - error)[0]
    thin = at_most(share, THIN, f"share of all models with average sensitivity of at least N/{1 / TAIL:g}")
    largest = max(row["average_sensitivity"] for row in table)
    parts = sorted(_each(table, judge, error), key=lambda part: part.low or 0.0)
    return _told([*parts, thin], table, f"largest average sensitivity {largest:.3g}")


def _judge_mean(table: Table) -> Judgement:
    def judge(init: str, rows: Table, confidence: float) -> Judgement:
        length = rows[0]["length"]
        found = mean_from_samples([row["average_sensitivity"] for row in rows], 0, length, confidence)
        return at_most(found.scaled(2 / length), FAR, f"mean average sensitivity in units of N/2, {init}")

    error = ERROR / len(SCHEMES)
    # n models of average 0 leave N (1 - (error/2)^(1/n)) as the upper end.
    needed = math.ceil(math.log(error / 2) / math.log(1 - 1 / 20))
    said = f"to show less than a tenth of N/2 takes at least {needed} models an initialisation"
    return _told(sorted(_each(table, judge, error), key=lambda part: -(part.high or math.inf)), table, said)


def _told(parts: Sequence[Judgement], table: Table, said: str) -> Judgement:
    """The parts together, with how they were measured; undecided where the screen has not been audited enough."""
    found = all_of(parts)
    rate, hidden = screen_error(table)
    notes = [found.note, said, _screen_said(table, rate)]
    verdict = found.verdict
    if hidden > CLUSTER:
        verdict = "undecided"
        notes.append(f"the audit allows for averages that are {hidden:.3g} larger, too much for a verdict")
    note = "; ".join(text for text in notes if text)
    return Judgement(verdict, found.quantity, found.measured, found.low, found.high, note)


def screen_error(table: Table) -> tuple[Estimate | None, float]:
    """The rate of wrong guesses of the screen, and by how much averages could be too small because of them."""
    skipped = sum(row["skipped"] for row in table)
    if skipped == 0:
        return None, 0.0
    rate = proportions([sum(row["wrong"] for row in table)], sum(row["audited"] for row in table), 1 - ERROR)[0]
    flips = sum(row["strings"] * row["length"] for row in table if row["screened"])
    return rate, table[0]["length"] * rate.high * skipped / flips


def _screen_said(table: Table, rate: Estimate | None) -> str:
    screened = [row for row in table if row["screened"]]
    rechecked, ties = sum(row["rechecked"] for row in table), sum(row["near_ties"] for row in table)
    checked = f"{rechecked} signs computed again in float64, {ties} too close to call"
    if rate is None:
        return f"{len(table)} models, no flip skipped; {checked}"
    skipped, wrong = sum(row["skipped"] for row in screened), sum(row["wrong"] for row in screened)
    share = skipped / sum(row["strings"] * row["length"] for row in screened)
    return (
        f"{len(screened)} of {len(table)} models screened, where {share:.0%} of the flips were guessed; of "
        f"{rate.samples} audited guesses {wrong} were wrong (at most {rate.high:.2g} of all), which could hide "
        f"{screen_error(table)[1]:.2g} of an average; {checked}"
    )


CLAIMS = (
    Claim(
        "most strings are insensitive",
        "Figs 3 and 4, top",
        "under every initialisation the vast majority of strings have sensitivity 0 or close to 0",
        f"share of strings with sensitivity at most N/{1 / NEAR:g}, averaged over models: more than {MOST:g} under "
        "each initialisation",
        _judge_strings,
    ),
    Claim(
        "averages cluster at 0",
        "Figs 3 and 4, bottom",
        "average sensitivities cluster tightly near 0, with a thin tail",
        f"share of models with average sensitivity below {CLUSTER:g}: more than {MOST:g} under each initialisation; "
        f"share of all models with N/{1 / TAIL:g} or more: less than {THIN:g}",
        _judge_averages,
    ),
    Claim(
        "far below a random function",
        "Figs 3 and 4, bottom",
        "random transformers are far less sensitive than the N/2 of a random function",
        f"mean average sensitivity over models: less than {FAR:g} of N/2 under each initialisation",
        _judge_mean,
    ),
)
