"""Sensitivity, accuracy, loss and weight norm while a transformer groks addition modulo p (§ 7.3, A.5; Figs 8, 23).

A network learns its training pairs by heart, and long after that the rule. The paper finds that its sensitivity, to
noise on the vectors of the two numbers, goes down long before the accuracy on other pairs goes up, while the loss and
the weight norm stay, and tells four phases apart: memorisation (sensitivity falls), circuit formation (it rises, the
norm falls), clean-up (it falls), and after grokking noise reduction (up and down again).

The paper's curves are averaged over the last 50 entries of their logs, which delays sensitivity by up to 50 epochs and
test accuracy, logged every 100 epochs, by up to 5,000. Here curves are raw. Levels are means over stretches of the time
between memorisation and grokking: its first and last tenth, and the fifth in which sensitivity is largest, the turn.
The largest of noisy means is above the others even where nothing rises or falls, so that a rise to the turn and a fall
from it count from a third of its level on. A curve is halfway where it crosses the middle of two levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import flipscope.lab as lab
from flipscope.adapters.parameters import length as norm_of
from flipscope.data.batches import Drawn
from flipscope.data.modular import ModularPairs, modular_addition
from flipscope.lab import quantities
from flipscope.models.addition_network import AdditionNetwork
from flipscope.training.fit import Epoch, answered, fit
from flipscope.training.logs import Log, series
from flipscope.training.targets import Aim

MEMORISED, GROKKED = 0.99, 0.95  # accuracy on the training pairs; on all test pairs
# Stretches of the time from memorisation (0) to grokking (1); in Fig 8 these are epochs 500 and 9,800.
EARLY, LATE = (0.0, 0.1), (0.9, 1.0)
TURN = 0.2  # length of the stretch in which sensitivity is largest
CHANGED = 1 / 3  # of the level at the turn: least rise and fall that count
AFTER, END = (1.05, 1.3), (1.4, 1.6)  # in multiples of the step of grokking
LONGEST = 1.6  # in the same multiples: a training ends there
SMOOTHED = {"test": 5_000 / 9_800, "sensitivity": 50 / 9_800}  # windows of Fig 8, over its step of grokking
HALVED, LOW_NORM = 0.5, 0.8
FLAT = 0.05  # relative change of a norm that is called flat
SAME_LOSS = math.log10(2)  # most change of a loss that is called none, in powers of ten
BELOW = 0.9  # test accuracy when the training pairs are memorised
APART = 0.5  # least difference of accuracies of test pairs whose mirror image is trained on, and others
FEWEST = 5  # runs that an interval needs
CURVES = ("train_loss", "train", "test", "mirrored", "new", "sensitivity", "token_sensitivity", "norm", "rms")


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Addition(lab.Trial):
    """One training, and how its sensitivity is measured."""

    modulus: int
    share: float
    seed: int
    width: int
    heads: int
    hidden: int
    steps: int
    every: int
    draws: int
    std: float = 0.1
    lr: float = 1e-3
    weight_decay: float = 1.0

    @property
    def cost(self) -> float:
        return float(self.steps * self.share * self.modulus**2 * self.width * self.hidden)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """The curves of a training that ends some time after it has grokked, or runs out of steps."""
        pairs = modular_addition(self.modulus, self.share, self.seed)
        model = AdditionNetwork(self.modulus, width=self.width, heads=self.heads, hidden=self.hidden, seed=self.seed)
        last = [math.inf]

        def finished(line: Epoch) -> bool:
            progress(line.steps, self.steps)
            if line.validation_accuracy >= GROKKED:
                last[0] = min(last[0], LONGEST * line.steps)
            return line.steps >= last[0]

        fitted = fit(
            model,
            Drawn(
                lambda stream: (pairs.train.bits, pairs.train.labels), self.every, self.seed
            ),  # all pairs in each step
            pairs.test,
            seed=self.seed,
            inputs="tokens",
            loss="ce",
            optimiser="adamw",
            learning_rate=self.lr,
            weight_decay=self.weight_decay,
            decay_after=None,
            stop_after=None,
            max_epochs=None,
            max_steps=self.steps,
            restore="last",
            until=finished,
            log=[measured(self, pairs)],
        )
        steps, _ = series(fitted.log, "curves.train")
        curves = {name: np.array(series(fitted.log, f"curves.{name}")[1]) for name in CURVES}
        return {"step": np.array(steps), **curves, "mirror_share": float(pairs.mirrored.mean())}


def sensitivities(model: AdditionNetwork, pairs: Tensor, noise: Tensor) -> tuple[float, float]:
    """The share of pairs whose answer changes with noise [draw, pair, 2, width] on both numbers, and on one of them."""
    vectors = model.vectors(pairs)
    before = model.read(vectors).argmax(dim=1)

    def changed(tokens: Sequence[int]) -> float:
        shares = []
        for draw in noise:
            moved = vectors.clone()
            for token in tokens:
                moved[:, token] += draw[:, token]
            shares.append(float((model.read(moved).argmax(dim=1) != before).float().mean()))
        return sum(shares) / len(shares)

    return changed([0, 1]), (changed([0]) + changed([1])) / 2


def measured(trial: Addition, pairs: ModularPairs) -> Log:
    """What is logged on the way, with the same noise every time."""
    aim, count = Aim("ce"), len(pairs.train.bits)
    train, test = ((torch.from_numpy(each.bits), torch.from_numpy(each.labels)) for each in (pairs.train, pairs.test))
    drawn = np.random.default_rng([trial.seed, 1]).standard_normal((trial.draws, count, 2, trial.width))
    noise = torch.from_numpy(trial.std * drawn).float()

    def measure(model: nn.Module) -> dict[str, float]:
        assert isinstance(model, AdditionNetwork)
        with torch.no_grad():
            loss, accuracy = answered(model, [train], aim)
            right = aim.right(model(test[0]), test[1]).numpy()
            both, one = sensitivities(model, train[0], noise)
        found = (loss, accuracy, right.mean(), right[pairs.mirrored].mean(), right[~pairs.mirrored].mean(), both, one)
        weights = norm_of(model.parameters())
        size = float(model.symbol[:-1].detach().square().mean().sqrt())
        return dict(zip(CURVES, (*map(float, found), weights, size), strict=True))

    return Log("curves", measure, trial.every)


# ---------------------------------------------------------------- what a run says

Curve = NDArray[np.float64]


def crossing(steps: Curve, values: Curve, level: float) -> float:
    """The step at which a curve that begins above the level comes below it.

    A noisy curve crosses several times: this is the middle between the first point below and the last above.

    >>> crossing(np.arange(6.0), np.array([9.0, 8.0, 3.0, 8.0, 2.0, 1.0]), 5.0)
    2.5
    """
    below, above = np.flatnonzero(values < level), np.flatnonzero(values >= level)
    if not len(below) or not len(above):
        return math.nan
    first = below[0] - 0.5 if below[0] else 0.0
    last = above[-1] + 0.5 if above[-1] + 1 < len(values) else float(len(values) - 1)
    return float(np.interp((first + last) / 2, np.arange(len(values)), steps))


def trailing(steps: Curve, values: Curve, window: float) -> Curve:
    """Means over the last `window` steps, as the paper's figures show curves.

    >>> trailing(np.array([0.0, 10.0, 20.0]), np.array([0.0, 2.0, 4.0]), 15.0).tolist()
    [0.0, 1.0, 3.0]
    """
    return np.array([values[(steps > at - window) & (steps <= at)].mean() for at in steps])


def largest(steps: Curve, values: Curve, begin: float, end: float) -> tuple[float, float]:
    """The middle and the level of the stretch between two steps in which a curve is largest, after its first tenth.

    >>> largest(np.arange(11.0), np.array([9.0, 1, 2, 3, 6, 6, 6, 2, 1, 1, 1]), 0.0, 10.0)
    (5.0, 6.0)
    """
    half = TURN * (end - begin) / 2
    first = begin + EARLY[1] * (end - begin) + half
    middles = [at for at in steps if first <= at <= end - half] or [(begin + end) / 2]
    levels = [float(values[np.abs(steps - at) <= half].mean()) for at in middles]
    place = int(np.argmax(levels))
    return float(middles[place]), levels[place]


def phases(curves: lab.Row) -> lab.Row:
    """When a run memorised and grokked, levels in between, and how far turning points lie apart, over the second.

    A run that did not grok lacks all, and one whose sensitivity does not fall from its turn lacks the leads.
    """
    data = {name: np.array(curves[name], np.float64) for name in ("step", *CURVES)}
    steps, sensitivity, test = data["step"], data["sensitivity"], data["test"]
    memorised, grokked = (np.flatnonzero(values >= limit) for values, limit in
                          ((data["train"], MEMORISED), (test, GROKKED)))  # fmt: skip
    row: lab.Row = {"memorised": None, "grokked": None}
    if not len(memorised) or not len(grokked) or steps[grokked[0]] <= steps[memorised[0]]:
        return row
    begin, end = float(steps[memorised[0]]), float(steps[grokked[0]])
    row |= {"memorised": int(begin), "grokked": int(end)}

    def level(values: Curve, stretch: tuple[float, float], *, multiples: bool = False) -> float:
        low, high = (end * at if multiples else begin + at * (end - begin) for at in stretch)
        chosen = values[(low <= steps) & (steps <= high)]
        return float(chosen.mean()) if len(chosen) else math.nan

    def at(values: Curve, step: float) -> float:
        return float(np.interp(step, steps, values))

    between = (begin <= steps) & (steps <= end)
    turned, middle = largest(steps, sensitivity, begin, end)
    early, late = (level(sensitivity, stretch) for stretch in (EARLY, LATE))
    row |= {
        "turn": turned,
        "kept": float(early / sensitivity[0]) if sensitivity[0] else math.nan,
        "test_memorised": at(test, begin),
        "apart": at(data["mirrored"], begin) - at(data["new"], begin),
        "formed": 1 - early / middle if middle else 0.0,
        "norm_left": at(data["norm"], turned) / at(data["norm"], begin),
        "cleaned": 1 - late / middle if middle else 0.0,
    }
    if steps[-1] >= END[0] * end:
        after, final = level(sensitivity, AFTER, multiples=True), level(sensitivity, END, multiples=True)
        row |= {"bump": after - late, "reduced": after - final}

    def rise(values: Curve) -> float:
        """Where an accuracy passes the middle between its level after memorisation and 1."""
        return crossing(steps[between], -values[between], -(level(values, EARLY) + 1) / 2)

    risen, new = rise(test), rise(data["new"])
    row |= {"risen": risen, "loss_change": _log_change(data["train_loss"], steps, turned, risen)}
    row["norm_change"] = at(data["norm"], risen) / at(data["norm"], turned) - 1
    later = between & (steps >= turned)
    if row["cleaned"] >= CHANGED:
        fallen = crossing(steps[later], sensitivity[later], (middle + late) / 2)
        norm_levels = [level(data["norm"], stretch) for stretch in (EARLY, LATE)]
        norm = crossing(steps[between], data["norm"][between], sum(norm_levels) / 2)
        row |= {"fallen": fallen, "lead": (risen - fallen) / end, "lead_new": (new - fallen) / end}
        row["lead_norm"] = (norm - fallen) / end
    tokens = data["token_sensitivity"]
    top, high = largest(steps, tokens, begin, end)
    low, later = level(tokens, LATE), between & (steps >= top)
    if low <= (1 - CHANGED) * high and high:
        row["lead_token"] = (risen - crossing(steps[later], tokens[later], (high + low) / 2)) / end
    longer = steps >= begin
    smooth = trailing(steps, test, SMOOTHED["test"] * end)
    row["delay"] = (crossing(steps[longer], -smooth[longer], -(level(test, EARLY) + 1) / 2) - risen) / end
    row["delay"] -= SMOOTHED["sensitivity"] / 2
    return row


def _log_change(values: Curve, steps: Curve, first: float, second: float) -> float:
    """By how many powers of ten a positive curve grows between two steps."""
    with np.errstate(divide="ignore"):
        logs = np.log10(values)
    return float(np.interp(second, steps, logs) - np.interp(first, steps, logs))


# ---------------------------------------------------------------- claims


def mean(column: str, words: str) -> lab.Quantity:
    """The mean of a column over the runs that grok and have it."""
    averaged = quantities.mean(lab.Column(words, lambda row: row[column]), fewest=FEWEST, unit="runs that grok")
    return averaged.where("runs that grok", lambda row: row.get(column) is not None and not math.isnan(row[column]))


LEAD = mean("lead", "step at which test accuracy is halfway up less that at which sensitivity is halfway down, over "
            "the step of grokking")  # fmt: skip
LEAD_NEW = mean("lead_new", "the same with the accuracy of pairs whose mirror image is not trained on")
CLAIMS = (
    lab.claim(
        "test accuracy rises long after training accuracy",
        "Fig 8",
        "the training pairs are memorised long before the test pairs are right",
        quantities.share(
            "share of runs that memorise in less than half of the steps to grokking",
            lambda row: row["grokked"] is not None and row["memorised"] <= row["grokked"] / 2,
            fewest=FEWEST,
            unit="runs",
        )
        >= 0.5,
    ),
    lab.claim(
        "memorisation: sensitivity drops, test accuracy stays below",
        "App. A.5",
        "while the training pairs are memorised sensitivity falls, and test accuracy does not reach its end",
        (mean("kept", "sensitivity after memorisation over that at the start") <= HALVED)
        & (mean("test_memorised", "test accuracy at memorisation") <= BELOW),
    ),
    lab.claim(
        "circuit formation: sensitivity rises again",
        "App. A.5",
        "after memorisation sensitivity goes up again while test accuracy is low",
        mean("formed", "part of the sensitivity at its turn that was gained since memorisation") >= CHANGED,
    ),
    lab.claim(
        "circuit formation: the weight norm falls",
        "App. A.5",
        "the weight norm falls much while circuits form",
        mean("norm_left", "weight norm at the turn over that at memorisation") <= LOW_NORM,
    ),
    lab.claim(
        "clean-up: sensitivity decreases before grokking",
        "App. A.5",
        "sensitivity goes down from the turn to grokking",
        mean("cleaned", "part of the sensitivity at its turn that is lost before grokking") >= CHANGED,
    ),
    lab.claim(
        "sensitivity falls before test accuracy rises",
        "Fig 8",
        "sensitivity shows progress that test accuracy does not show yet",
        (LEAD > 0) & (LEAD_NEW > 0),
    ),
    lab.claim(
        "the training loss does not fall meanwhile",
        "§ 7.3",
        "the loss does not change while sensitivity falls",
        mean("loss_change", "log10 of the training loss when test accuracy is halfway up over that at the turn")
        .between(-SAME_LOSS, SAME_LOSS),
    ),
    lab.claim(
        "the weight norm is flat meanwhile",
        "Fig 8",
        "the weight norm has the flat curve of test accuracy while sensitivity falls",
        mean("norm_change", "relative change of the weight norm from the turn to when test accuracy is halfway up")
        .between(-FLAT, FLAT),
    ),
    lab.claim(
        "sensitivity falls before the weight norm",
        "§ 7.3",
        "sensitivity measures progress earlier than the weight norm",
        mean("lead_norm", "step at which the weight norm is halfway down less that at which sensitivity is, over the "
             "step of grokking") > 0,
    ),
    lab.claim(
        "noise reduction: sensitivity goes up and down after grokking",
        "App. A.5",
        "after grokking sensitivity rises and then falls again",
        (mean("bump", "sensitivity after grokking less that shortly before") > 0)
        & (mean("reduced", "sensitivity after grokking less that at the end") > 0),
    ),
    lab.claim(
        "early test accuracy is that of mirror images",
        "beyond Fig 8",
        "at memorisation test pairs are right whose mirror image is trained on, and few others",
        mean("apart", "accuracy at memorisation of test pairs with a trained mirror image less that of others")
        >= APART,
        exploratory=True,
    ),
    lab.claim(
        "noise on one number at a time leads as well",
        "Def 4.1",
        "sensitivity token by token falls before test accuracy rises",
        mean("lead_token", "step at which test accuracy is halfway up less that at which sensitivity to one token is "
             "halfway down, over the step of grokking") > 0,
        exploratory=True,
    ),
    lab.claim(
        "the figure's smoothing delays test accuracy by more than the lead",
        "beyond Fig 8",
        "most of the lead that Fig 8 shows comes from the longer mean of test accuracy",
        mean("beyond_lead", "delay of test accuracy by the figure's averages less the lead on raw curves, both over "
             "the step of grokking") > 0,
        exploratory=True,
    ),
)  # fmt: skip


# ---------------------------------------------------------------- figures

SHOWN = {
    "train": "training accuracy",
    "test": "test accuracy",
    "new": "test accuracy without mirror images",
    "train_loss": "training loss",
    "sensitivity": "sensitivity, both numbers",
    "token_sensitivity": "sensitivity, one number",
    "norm": "weight norm",
    "rms": "size of an entry of a number's vector",
}


def curve(row: lab.Row, column: str, label: str, colour: int, window: float = 0.0, **look: Any) -> lab.Series:
    """A curve of a run against the step over that of grokking, as it is or averaged over the last steps."""
    steps, values = np.array(row["step"], np.float64), np.array(row[column], np.float64)
    shown = trailing(steps, values, window * row["grokked"]) if window else values
    return lab.Series(label, (steps / row["grokked"]).tolist(), shown.tolist(), colour=colour, **look)


def after_memorising(row: lab.Row, column: str) -> float:
    """The largest value of a curve since the training pairs are memorised; before, sensitivity is many times larger."""
    return max(value for step, value in zip(row["step"], row[column], strict=True) if step >= row["memorised"]) or 1.0


def panels(runs: lab.Rows) -> list[lab.Panel]:
    """A panel for each kind of curve, a line for each run."""
    return [
        lab.Panel(
            "",
            "step over that of grokking",
            words,
            [curve(row, column, f"seed {row['seed']}", place) for place, row in enumerate(runs)],
            y_log=column == "train_loss",
            y_range=(0, 1.1 * max(after_memorising(row, column) for row in runs)) if "sensitivity" in column else None,
            rules=[lab.Rule(1.0, "grokked", axis="x")],
        )
        for column, words in SHOWN.items()
    ]


def smoothing(row: lab.Row) -> list[lab.Panel]:
    """One run: its raw curves, and averaged as in Fig 8."""
    shown = []
    for title, windows in (("raw", {}), ("averaged as in Fig 8", SMOOTHED)):
        top = after_memorising(row, "sensitivity")
        scaled = {**row, "sensitivity": [value / top for value in row["sensitivity"]]}
        lines = [
            curve(scaled, column, words, place, windows.get(column, 0.0))
            for place, (column, words) in enumerate(
                {"test": "test accuracy", "sensitivity": "sensitivity over its largest after memorisation"}.items()
            )
        ]
        shown.append(lab.Panel(title, "step over that of grokking", "", lines, y_range=(0, 1.05)))
    return shown


class Grokking(lab.Study):
    """Whether sensitivity shows progress before the accuracy on new pairs does."""

    name, paper, figures = "grokking", "004", ("Fig 8", "Fig 23")
    title = "Sensitivity, accuracy and weight norm while a transformer groks modular addition"
    scales = lab.scales(
        "{seeds} trainings on {share:.0%} of all pairs modulo {modulus}, width {width}, at most {steps} steps; every "
        "{every} steps {draws} draws of the noise for each training pair",
        smoke=(0.1, {"modulus": 7, "share": 0.6, "seeds": 2, "first_seed": 0, "width": 16, "heads": 2, "hidden": 32}
               | {"steps": 60, "every": 10, "draws": 2}),
        # Sizes, stretches and their limits were chosen with seeds 100 and 101, which are not among these.
        laptop=(10, {"modulus": 53, "share": 0.5, "seeds": 6, "first_seed": 1_000, "width": 64, "heads": 4}
                | {"hidden": 256, "steps": 12_000, "every": 50, "draws": 2}),
        paper=(240, {"modulus": 113, "share": 0.3, "seeds": 3, "first_seed": 42, "width": 128, "heads": 4}
               | {"hidden": 512, "steps": 30_000, "every": 100, "draws": 1}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("modulus, share (laptop)", "113, 30 % of the pairs", "53, 50 %", "groks within minutes on a CPU"),
        ("steps", "from 9,800 on", f"to {LONGEST:g} times the step of grokking, or the scale's limit", "time"),
        ("seeds", "three", "laptop: 6, from 1000 on; smoke: 2", "seeds not used by any earlier run"),
        ("every, draws", "every epoch; one draw", "laptop: every 50 steps, 2 draws; the same noise every time",
         "time, and less noise"),
        ("network", "one layer", "no residual, norm or mask, positions start at 0, read at =",
         "as in the authors' code"),
        ("noise", "on the number embeddings", "on both numbers at once; one at a time beside it",
         "the first is the authors' code, the second Def 4.1"),
        ("curves", "averaged over the last 50 entries", "raw; a figure shows the averages", "averages shift curves"),
        ("optimiser", "silent", "AdamW, 1e-3, weight decay 1, all pairs in every step", "as in the authors' code"),
        (
            "when and how much",
            "read off the figure",
            f"levels over stretches; halfway points; {HALVED:g}, {LOW_NORM:g}, {CHANGED:.2g}, {FLAT:g}, a factor of 2",
            "chosen before the laptop run",
        ),
        ("width, heads, hidden", "128, 4, 512", "laptop: 64, 4, 256; smoke: 16, 2, 32", "time"),
    )  # fmt: skip
    claims = CLAIMS

    def trials(self, scale: str) -> list[Addition]:
        plan = dict(self.scales[scale].settings)
        first, seeds = plan.pop("first_seed"), plan.pop("seeds")
        return [Addition(seed=seed, **plan) for seed in range(first, first + seeds)]

    def row(self, trial: Addition, outcome: lab.Outcome) -> lab.Row:
        row = super().row(trial, outcome)
        row |= phases(row)
        if row.get("lead") is not None:
            row["beyond_lead"] = row["delay"] - row["lead"]
        return row

    def provenance(self, table: lab.Rows) -> list[str]:
        runs = table.having("grokked")
        sentences = [f"{len(runs)} of {len(table)} runs grokked: what follows is of these"]
        for row in runs:
            size = row["rms"][-1]
            lead = f"{row['lead']:.3f}" if row.get("lead") is not None else "none, since sensitivity does not fall"
            sentences.append(
                f"seed {row['seed']}: memorised at step {row['memorised']}, grokked at {row['grokked']}; lead {lead}; "
                f"standard deviation of the noise over the size of an entry {row['std'] / size:.2g} in the end"
            )
        return sentences

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        runs = table.having("grokked")
        if not runs:
            return []
        caption = "One line per run, against the step over that at which test accuracy reaches 0.95. Raw curves."
        averages = (
            "One run, raw and with means over the last 51 % of the steps to grokking (test accuracy) and the last "
            "0.5 % (sensitivity): the windows of the paper's figure."
        )
        return [
            lab.Figure("grokking", self.title, caption, panels(runs), 2, where="Figs 8, 23"),
            lab.Figure("grokking-smoothed", "What averaging does", averages, smoothing(runs[0]), 2, where="Fig 8"),
        ]


STUDY = Grokking()
