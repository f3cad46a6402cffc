"""What App. F.2 claims of trained transformers, and how each claim is judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flipscope.cube.intervals import Estimate, proportions
from flipscope.lab.study import Claim, Table
from flipscope.lab.verdict import Judgement, all_of, at_least, at_most

LEARNED = 0.99  # accuracy from which on a language counts as learned
CHANCE = 0.6  # accuracy up to which it counts as not learned at all
GATHERED = 0.8  # share of the strings that must lie where the spectrum is said to cluster
FEWEST = 3  # models that a claim on every model needs
NEAR_ZERO = 0.1  # of N: average sensitivity up to which that of a model that failed is near 0


def rows_of(table: Table, *languages: str) -> Table:
    return [row for row in table if row["language"] in languages]


def named(row: dict[str, Any]) -> str:
    """A trained model in words."""
    sparse = f" of {row['relevant']} bits" if row["relevant"] else ""
    return f"{row['language'].replace('_', ' ')}{sparse}, width {row['heads'] * row['head_size']}, seed {row['seed']}"


def _each(rows: Table, judge: Callable[[dict[str, Any], float], Judgement], what: str) -> Judgement:
    """All models must pass; their intervals hold together."""
    if not rows:
        return Judgement.without(what)
    confidence = 1 - 0.05 / len(rows)
    parts = [judge(row, confidence) for row in rows]
    found = all_of(parts)
    passed = sum(part.verdict == "reproduced" for part in parts)
    note = f"so for {passed} of {len(rows)} models; shown is the one that decides"
    verdict = found.verdict
    if verdict == "reproduced" and len(rows) < FEWEST:
        verdict, note = "undecided", f"{note}; of every model, fewer than {FEWEST} tell nothing"
    return Judgement(verdict, found.quantity, found.measured, found.low, found.high, note)


def _judge_accuracy(
    compared: Callable[[Estimate, float, str], Judgement], limit: float, language: str
) -> Callable[[Table], Judgement]:
    """Whether the test accuracy of every model, compared with the limit, is as claimed."""

    def judge(table: Table) -> Judgement:
        def one(row: dict[str, Any], confidence: float) -> Judgement:
            found = proportions([row["correct"]], row["tested"], confidence)[0]
            return compared(found, limit, f"accuracy on {named(row)}")

        return _each(rows_of(table, language), one, "no model was trained on it")

    return judge


def _gathered(row: dict[str, Any]) -> int:
    """Strings whose sensitivity is where that of the language is: 1, or 0 and about half the bits that count."""
    counts = np.arange(len(row["profile"]))
    if row["language"] == "first":
        there = counts == 1
    else:
        half, reach = (row["relevant"] or row["length"]) / 2, max(1.0, (row["relevant"] or row["length"]) / 10)
        there = (counts == 0) | (np.abs(counts - half) <= reach)
    return int(np.array(row["profile"])[there].sum())


def _judge_spectrum(*languages: str) -> Callable[[Table], Judgement]:
    def judge(table: Table) -> Judgement:
        learned = [row for row in rows_of(table, *languages) if row["correct"] / row["tested"] > LEARNED]

        def one(row: dict[str, Any], confidence: float) -> Judgement:
            found = proportions([_gathered(row)], row["strings"], confidence)[0]
            return at_least(found, GATHERED, f"share of strings at the language's own sensitivities, {named(row)}")

        return _each(learned, one, "no model learned it")

    return judge


def _judge_failures(table: Table) -> Judgement:
    failed = [row for row in table if row["correct"] / row["tested"] <= LEARNED]
    if not failed:
        return Judgement.without("no model failed")
    near = sum(row["average_sensitivity"] <= NEAR_ZERO * row["length"] for row in failed)
    found = proportions([near], len(failed))[0]
    parts = {
        name: [row["average_sensitivity"] for row in rows_of(failed, name)]
        for name in sorted({row["language"] for row in failed})
    }
    said = ", ".join(f"{name.replace('_', ' ')} {np.mean(values):.3g}" for name, values in parts.items())
    note = f"mean average sensitivity by language: {said}"
    return at_least(found, 0.5, f"share of the {len(failed)} models that failed with average sensitivity near 0", note)


_SPECTRUM = f"share of the strings at these sensitivities, at least {GATHERED} in every model that learned it"


CLAIMS = (
    Claim(
        "First is learned",
        "Fig 5",
        "every model trained on First learns it",
        f"test accuracy above {LEARNED} in every model",
        _judge_accuracy(at_least, LEARNED, "first"),
    ),
    Claim("First sits at 1", "Fig 5", "its sensitivities cluster at 1", _SPECTRUM, _judge_spectrum("first")),
    Claim(
        "Majority is learned",
        "Fig 5",
        "every model trained on Majority learns it",
        f"test accuracy above {LEARNED} in every model",
        _judge_accuracy(at_least, LEARNED, "majority"),
    ),
    Claim(
        "Majority sits at 0 and N/2",
        "Fig 5",
        "its sensitivities cluster at 0 and at half the length",
        _SPECTRUM + ", N/2 within N/10",
        _judge_spectrum("majority"),
    ),
    Claim(
        "Parity is not learned",
        "Fig 5",
        "models trained on Parity do not reach it",
        f"test accuracy at most {CHANCE} in every model",
        _judge_accuracy(at_most, CHANCE, "parity"),
    ),
    Claim(
        "sparse majorities are learned",
        "Figs 6, 7",
        "sparse majorities mirror Majority",
        f"test accuracy above {LEARNED} in every model",
        _judge_accuracy(at_least, LEARNED, "sparse_majority"),
    ),
    Claim(
        "and sit at 0 and m/2",
        "Figs 6, 7",
        "their sensitivities cluster at 0 and at half the relevant bits",
        _SPECTRUM + ", m/2 within max(1, m/10)",
        _judge_spectrum("sparse_majority"),
    ),
    Claim(
        "sparse parities are not learned",
        "Figs 6, 7",
        "sparse parities mirror Parity",
        f"test accuracy at most {CHANCE} in every model",
        _judge_accuracy(at_most, CHANCE, "sparse_parity"),
    ),
    Claim(
        "failures sit at 0",
        "Fig 3 right, App. F.2",
        "sensitivities of models that fail to learn cluster around 0",
        f"share of the models with accuracy up to {LEARNED} whose average sensitivity is at most {NEAR_ZERO} N: "
        "more than half",
        _judge_failures,
    ),
)
