"""Steps until a parity is learned, where some trainings end before: one training, its transition, censored times."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
from flipscope.training.logs import series
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.sparse_variables import SUCCESS, on_hidden_bits, sparse_recipe

CHANCE, NEARLY = 0.6, 0.9  # accuracies between which the transition takes place
ABRUPT = 0.25  # of the steps until then, at most
BUDGET = 10_000  # steps of the paper
LONG = 50  # the paper learned no parity of longer strings
FEWEST, FEWEST_LONG = 3, 10  # trainings
RELEVANT = 3


@dataclass(frozen=True)
class Online(lab.Trial):
    """One training on fresh strings."""

    length: int
    seed: int
    steps: int
    batch: int = 2_048
    gate: str = "parity"
    relevant: int = RELEVANT
    noise: float = 0.0
    dropout: float = 0.1
    validation: int = 2_000
    width: int = 64
    heads: int = 16

    @property
    def cost(self) -> float:
        """Positions of all strings."""
        return float(self.steps * self.batch * self.length)


def recipe_of(trial: Online) -> Recipe:
    """The training of C.2, with the attention to the hidden bits in its log; it ends when the parity is learned."""
    names = ("relevant", "noise", "dropout", "validation", "width", "heads", "steps", "batch")
    settings = {name: getattr(trial, name) for name in names}
    plain = sparse_recipe(trial.gate, trial.length, trial.seed, **settings)
    return dataclasses.replace(plain, log=(on_hidden_bits(plain),))


def watch(trial: Online, progress: lab.Progress) -> lab.Outcome:
    """The curves of a training: online loss, accuracy on fresh strings, attention to the hidden bits."""
    fitted = lab.trained(recipe_of(trial), progress).fitted
    steps, mean = series(fitted.log, "hidden_attention.mean")
    _, most = series(fitted.log, "hidden_attention.most")
    return {
        "step": np.array([line.steps for line in fitted.history]),
        "loss": np.array([line.train_loss for line in fitted.history]),
        "accuracy": np.array([line.validation_accuracy for line in fitted.history]),
        "attention_step": np.array(steps),
        "attention_mean": np.array(mean),
        "attention_most": np.array(most),
    }


def told(outcome: lab.Outcome) -> lab.Row:
    """When the parity was learned, and what part of the steps until it was nearly so the transition took.

    `learned` is the first step with an accuracy above 0.99, None if there is none; `taken` that step or the last.
    """
    steps, accuracy = np.array(outcome["step"]), np.array(outcome["accuracy"])
    above = np.flatnonzero(accuracy > SUCCESS)
    if not len(above):
        return {"learned": None, "taken": int(steps[-1]), "transition": None}
    nearly = int(np.flatnonzero(accuracy >= NEARLY)[0])
    low = np.flatnonzero(accuracy[:nearly] <= CHANCE)
    start = float(steps[low[-1]]) if len(low) else 0.0
    learned = int(steps[above[0]])
    return {"learned": learned, "taken": learned, "transition": (float(steps[nearly]) - start) / float(steps[nearly])}


# ---------------------------------------------------------------- censored times


def kaplan_meier(
    times: Sequence[float], seen: Sequence[bool]
) -> tuple[list[float], list[float], list[float], list[float]]:
    """Steps and shares of trainings that have not learned by then, with 95 % intervals; from 1 at step 0."""
    data = stats.CensoredData(
        uncensored=[time for time, event in zip(times, seen, strict=True) if event],
        right=[time for time, event in zip(times, seen, strict=True) if not event],
    )
    curve = stats.ecdf(data).sf
    with warnings.catch_warnings():
        # SciPy warns where nothing is left to be seen; that is dealt with below.
        warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)
        ends = curve.confidence_interval(method="log-log") if any(seen) else None
    x, y = [0.0, *curve.quantiles.tolist()], [1.0, *curve.probabilities.tolist()]
    low, high = (
        [1.0, *(y[1:] if ends is None else getattr(ends, side).probabilities.tolist())] for side in ("low", "high")
    )
    # Where nothing or everything has been seen the interval is not defined.
    low = [value if math.isnan(end) else end for value, end in zip(y, low, strict=True)]
    high = [value if math.isnan(end) else end for value, end in zip(y, high, strict=True)]
    return x, y, low, high


def stairs(values: Sequence[Sequence[float]]) -> list[list[float]]:
    """Places and what holds from each of them on, as the corners of a line.

    >>> stairs([[0, 5], [1.0, 0.5]])
    [[0, 5, 5], [1.0, 1.0, 0.5]]
    """
    x, *others = values
    return [[x[0], *(each for each in x[1:] for _ in range(2))], *([*np.repeat(y, 2).tolist()][:-1] for y in others)]


def trend(times: ArrayLike, seen: ArrayLike, covariate: ArrayLike) -> float | None:
    """How many standard errors later those with a larger covariate are: the log-rank test, for any number of groups.

    At each event the covariate is compared with its mean among all that were still waiting (the score of Cox's model at
    0). None where no event has anything to compare with.

    >>> round(trend([1, 2, 3, 4, 5, 6], [True] * 6, [0, 0, 0, 1, 1, 1]), 3)
    2.248
    """
    t, event, x = np.asarray(times, float), np.asarray(seen, bool), np.asarray(covariate, float)
    score = variance = 0.0
    for moment in np.unique(t[event]):
        waiting, now = x[t >= moment], x[(t == moment) & event]
        count, events = len(waiting), len(now)
        score += float(now.sum()) - events * float(waiting.mean())
        if count > 1:
            variance += events * (count - events) / (count - 1) * float(waiting.var())
    return None if variance == 0 else -score / math.sqrt(variance)


# ---------------------------------------------------------------- judges


def judge_abrupt(table: lab.Rows) -> lab.Judgement:
    """The transition takes a small part of the steps until then."""
    learned = table.where(lambda row: row["length"] <= LONG).having("transition")
    if len(learned) < FEWEST:
        return lab.Judgement.without(f"{len(learned)} trainings learned their parity", f"at least {FEWEST} that do")
    name = f"part of the steps in which accuracy goes from {CHANCE:g} to {NEARLY:g}"
    found = lab.student_mean(learned.column("transition"))
    return lab.at_most(found, ABRUPT, name, f"{len(learned)} of {len(table)} trainings learned", "trainings that learn")


def judge_later(table: lab.Rows) -> lab.Judgement:
    """Longer strings take more steps."""
    rows = table.where(lambda row: row["length"] <= LONG)
    lengths = rows.values("length") if rows else []
    columns = rows.column("taken"), [row["learned"] is not None for row in rows], np.log(rows.column("length") or [1.0])
    statistic = trend(*columns) if len(lengths) > 1 else None
    if statistic is None:
        return lab.Judgement.without("no parity was learned while others of another length were not", "more trainings")
    confidence = lab.confidence()
    reach = float(stats.norm.ppf((1 + confidence) / 2))
    found = Estimate(statistic, statistic - reach, statistic + reach, confidence, len(rows))
    note = f"{sum(columns[1])} of {len(rows)} trainings learned, the others are censored"
    return lab.at_least(found, 0.0, "log-rank statistic of the steps, by ln T", note, "trainings")


def judge_long(table: lab.Rows) -> lab.Judgement:
    """No parity of more than 50 bits is learned within the paper's steps."""
    rows = table.where(lambda row: row["length"] > LONG and row["steps"] >= BUDGET)
    if not rows:
        need = f"{FEWEST_LONG} trainings of {BUDGET:,} steps at T above {LONG}"
        return lab.Judgement.without(f"no training had more than {LONG} bits and the paper's steps", need)
    name = f"share of parities learned at T above {LONG}"
    judged = lab.never(len(rows.having("learned")), len(rows), name)
    return lab.unless_few(judged, len(rows), FEWEST_LONG, f"trainings at T above {LONG}")
