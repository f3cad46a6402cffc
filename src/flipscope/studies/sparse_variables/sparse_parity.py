"""How a transformer learns the parity of three hidden bits from fresh strings, and when (C.2; Fig 3).

Each training is followed until it has learned its parity or runs out of steps. The study measures the online loss, the
accuracy on other strings, and the attention that the marker pays to the hidden bits. Trainings that end before they
have learned are censored: it is only known that they take longer than they lasted.
"""

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
from flipscope.lab import quantities
from flipscope.training.logs import series
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.sparse_variables import SUCCESS, on_hidden_bits, sparse_recipe

CHANCE, NEARLY = 0.6, 0.9  # accuracies between which the transition takes place
ABRUPT = 0.25  # largest part of the steps until then
BUDGET = 10_000  # steps of the paper
LONG = 50  # the paper learned no parity of longer strings
FEWEST, FEWEST_LONG = 3, 10  # trainings
RELEVANT = 3


@dataclass(frozen=True)
class Online(lab.TrainedTrial):
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
    def recipe(self) -> Recipe:
        """The training of C.2 with the attention to the hidden bits in its log; it ends when the parity is learned."""
        names = ("relevant", "noise", "dropout", "validation", "width", "heads", "steps", "batch")
        settings = {name: getattr(self, name) for name in names}
        plain = sparse_recipe(self.gate, self.length, self.seed, **settings)
        return dataclasses.replace(plain, log=(on_hidden_bits(plain),))

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """The curves of a training: online loss, accuracy on fresh strings, attention to the hidden bits."""
        fitted = lab.trained(self.recipe, progress).fitted
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


def transition(outcome: lab.Outcome) -> lab.Row:
    """When the parity was learned, and the duration of the transition as part of the steps until it was nearly learned.

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
        # SciPy warns where no event is left, which is handled below.
        warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)
        ends = curve.confidence_interval(method="log-log") if any(seen) else None
    x, y = [0.0, *curve.quantiles.tolist()], [1.0, *curve.probabilities.tolist()]
    low, high = (
        [1.0, *(y[1:] if ends is None else getattr(ends, side).probabilities.tolist())] for side in ("low", "high")
    )
    # The interval is undefined where no event or every event has happened.
    low = [value if math.isnan(end) else end for value, end in zip(y, low, strict=True)]
    high = [value if math.isnan(end) else end for value, end in zip(y, high, strict=True)]
    return x, y, low, high


def stairs(values: Sequence[Sequence[float]]) -> list[list[float]]:
    """The corners of a step function, given by its places and the values from each on.

    >>> stairs([[0, 5], [1.0, 0.5]])
    [[0, 5, 5], [1.0, 1.0, 0.5]]
    """
    x, *others = values
    return [[x[0], *(each for each in x[1:] for _ in range(2))], *([*np.repeat(y, 2).tolist()][:-1] for y in others)]


def trend(times: ArrayLike, seen: ArrayLike, covariate: ArrayLike) -> float | None:
    """The log-rank statistic, in standard errors, for any number of groups: positive if larger covariates come later.

    At each event the covariate is compared with its mean among all that are still at risk (the score of Cox's model at
    0). None where no event can be compared.

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


def can_learn(row: lab.Row) -> bool:
    """Whether the strings are of a length at which the paper learned parities."""
    return bool(row["length"] <= LONG)


ABRUPTNESS = quantities.mean(
    quantities.Column(
        f"part of the steps in which accuracy goes from {CHANCE:g} to {NEARLY:g}", lambda row: row["transition"]
    ),
    fewest=FEWEST,
    unit="trainings that learn",
).where(f"trainings that learn, T up to {LONG}", lambda row: can_learn(row) and row["transition"] is not None)


def judge_later(table: lab.Rows) -> lab.Judgement:
    """Longer strings take more steps."""
    rows = table.where(can_learn)
    lengths = rows.values("length") if rows else []
    columns = rows.column("taken"), [row["learned"] is not None for row in rows], np.log(rows.column("length") or [1.0])
    statistic = trend(*columns) if len(lengths) > 1 else None
    if statistic is None:
        return lab.Judgement.without("no parity was learned while others of another length were not", "more trainings")
    confidence = lab.confidence()
    reach = float(stats.norm.ppf((1 + confidence) / 2))
    estimate = Estimate(statistic, statistic - reach, statistic + reach, confidence, len(rows))
    note = f"{sum(columns[1])} of {len(rows)} trainings learned, the others are censored"
    return lab.at_least(estimate, 0.0, "log-rank statistic of the steps, by ln T", note, "trainings")


def judge_long(table: lab.Rows) -> lab.Judgement:
    """No parity of more than 50 bits is learned within the paper's steps."""
    rows = table.where(lambda row: row["length"] > LONG and row["steps"] >= BUDGET)
    if not rows:
        need = f"{FEWEST_LONG} trainings of {BUDGET:,} steps at T above {LONG}"
        return lab.Judgement.without(f"no training had more than {LONG} bits and the paper's steps", need)
    name = f"share of parities learned at T above {LONG}"
    judged = lab.never(len(rows.having("learned")), len(rows), name)
    return lab.unless_few(judged, len(rows), FEWEST_LONG, f"trainings at T above {LONG}")


class SparseParity(lab.Study):
    """Whether parities are learned all at once, and later when strings are longer."""

    name, paper, figures = "sparse-parity", "003", ("Fig 3",)
    title = "A transformer learns the parity of three hidden bits"
    scales = lab.scales(
        "{seeds} trainings each at T in {lengths}, at most {steps} steps of {batch} fresh strings",
        smoke=(0.1, {"lengths": (4, 5), "seeds": 2, "steps": 20, "batch": 32, "width": 8, "heads": 2}),
        # Seeds that no earlier run used: "later for larger T" had three looks at seeds from 0 on.
        laptop=(20, {"lengths": (10, 15, 20), "seeds": 8, "first_seed": 1_000, "steps": 3_000, "batch": 2_048}
                | {"width": 64, "heads": 16}),
        paper=(500, {"lengths": (10, 15, 20, 60), "seeds": 10, "steps": BUDGET, "batch": 2_048}
               | {"width": 64, "heads": 16}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("T (laptop)", "10, 15, 20; none learned above 50", "10, 15, 20", "20 minutes"),
        ("steps (laptop)", "10,000", "3,000", "the same; what is not learned by then counts as censored"),
        ("trainings (laptop)", "10 curves", "8 at each T", "the same"),
        ("stop", "after 10,000 steps", "at the first accuracy above 0.99", "the parity is learned then"),
        ("accuracy", "of the online batches", "on 2,000 strings drawn once, without dropout", "less noise"),
        ("T above 50 (paper)", "does not say which", "60", "one length, ten trainings"),
        ("abrupt", "seen in the figure", f"from {CHANCE:g} to {NEARLY:g} in {ABRUPT:g} of the steps", "not stated"),
        ("weight decay, clipping", "1e-4; not stated", "decoupled, on matrices; norm at most 1", "minGPT's defaults"),
    )
    revision = 2  # revision 1 had other dropout masks
    claims = (
        lab.claim(
            "parity is learned abruptly",
            "Fig 3",
            "accuracy stays at chance for a long time and then jumps to perfect",
            ABRUPTNESS <= ABRUPT,
        ),
        lab.Claim(
            "longer strings take more steps",
            "Fig 3",
            "the transition comes later if there are more bits to choose from",
            "log-rank statistic of the steps until learned, for growing T, those that did not censored: above 0",
            judge_later,
        ),
        lab.Claim(
            f"no parity is learned above T = {LONG}",
            "C.2",
            f"within {BUDGET:,} steps no parity of longer strings was ever learned",
            f"trainings of {BUDGET:,} steps at T above {LONG} that learn: none",
            judge_long,
            decided_from="paper",
        ),
    )

    def trials(self, scale: str) -> list[Online]:
        plan = self.scales[scale].settings
        shape = {name: plan[name] for name in ("steps", "batch", "width", "heads")}
        first = plan.get("first_seed", 0)
        seeds = range(first, first + plan["seeds"])
        return [Online(length=length, seed=seed, **shape) for length in plan["lengths"] for seed in seeds]

    def row(self, trial: Online, outcome: lab.Outcome) -> lab.Row:
        return {**super().row(trial, outcome), **transition(outcome)}

    def provenance(self, table: lab.Rows) -> list[str]:
        return [
            f"T = {length}: {len(done)} of {len(rows)} learned"
            + (f", at step {', '.join(map(str, sorted(done.column('learned'))))}" if done else "")
            for length, rows in table.by("length")
            for done in [rows.having("learned")]
        ]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        losses, attention, waiting = [], [], []
        for colour, (length, rows) in enumerate(table.by("length")):
            curves = [
                lab.Series(f"seed {row['seed']}", row["step"], row["loss"], colour=place)
                for place, row in enumerate(rows)
            ]
            rule = [lab.Rule(0.6931, "chance, ln 2")]
            losses.append(lab.Panel(f"T = {length}", "steps", "online loss", curves, rules=rule))
            paid = [
                lab.Series(f"seed {row['seed']}", row["attention_step"], row["attention_most"], colour=place)
                for place, row in enumerate(rows)
            ]
            even = [lab.Rule(RELEVANT / (length + 1), "evenly spread")]
            attention.append(lab.Panel(f"T = {length}", "steps", "attention to hidden bits", paid, rules=even))
            x, y, low, high = stairs(kaplan_meier(rows.column("taken"), [row["learned"] is not None for row in rows]))
            waiting.append(lab.Series(f"T = {length}", x, y, "line", low, high, colour=colour))
        caption = "One line per training, up to the step at which it has learned its parity."
        heads = "Of the head that pays most to them, averaged over strings; the rule: attention spread evenly."
        censored = (
            "Kaplan and Meier's estimate with 95 % intervals: trainings that end before count as long as they last."
        )
        panel = lab.Panel("", "steps", "share that have not learned", waiting, y_range=(0, 1))
        return [
            lab.Figure("sparse-parity-loss", self.title, caption, losses, 3, where="Fig 3", same_axes=True),
            lab.Figure("sparse-parity-attention", "Attention while it learns", heads, attention, 3, same_axes=True),
            lab.Figure("sparse-parity-waiting", "Steps until the parity is learned", censored, [panel], 1),
        ]


STUDY = SparseParity()
