"""Which of two features a self-attention layer learns when both give the label (§ 4.1, App. A.1; Figs 2, 3, 9).

In the data of Defs 4.2 and 4.3 sparse tokens give the label, and the majority of frequent tokens does. The paper
chooses settings in which one of the two predictors has a lower sensitivity, and finds that the model of Eq 3 learns
that one. Which one it learned shows in test sequences whose sparse tokens are those of the other label.

The sensitivities of both predictors are exact (`flipscope.data.token_sets`). Two further settings are beyond the paper:
there the less sensitive feature is the weaker signal, so that they tell a preference for low sensitivity from one for
strong signals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

import flipscope.lab as lab
from flipscope.data.batches import Examples
from flipscope.data.token_sets import FEATURES, GROUPS, Feature, TokenSets
from flipscope.lab import quantities
from flipscope.models.token_attention import TokenAttention
from flipscope.probes.tokens import token_sensitivity
from flipscope.training.fit import answered, fit
from flipscope.training.logs import Log, series
from flipscope.training.targets import Aim

# (n_s, n_f, n_d, m, M): M is not stated; 59 and 69 are what the printed values need, 75 is the least for m = 36.
SPARSE_FIRST = ((3, 3, 1, 6, 59), (3, 5, 1, 16, 59), (3, 7, 1, 28, 59))
FREQUENT_FIRST = ((1, 7, 7, 10, 69), (1, 17, 7, 20, 69), (1, 32, 7, 36, 75))
DECISIVE = ((1, 5, 3, 20, 69), (1, 9, 3, 30, 69))  # frequent tokens are less sensitive and the weaker signal
REPAIRED = (1, 32, 7, 33, 69)  # the last setting with m = 33, which the printed sensitivity needs
PRINTED = {  # Tables 1 and 3: with sparse tokens, with frequent ones
    **{setting: (0.0, value) for setting, value in zip(SPARSE_FIRST, (0.1315, 0.2878, 0.4502), strict=True)},
    **dict.fromkeys((*FREQUENT_FIRST, REPAIRED), (0.0339, 0.0)),
}
DIGITS = 5e-5  # half a unit of the last printed digit
USES, NEAR = 0.1, 0.9  # accuracy with opposed sparse tokens; cosine that is close to 1
STRONGER = 2.0  # quotient of two signals from which on one of them is the stronger
FEWEST = 5  # runs that an interval needs
PLACES = ("sparse", "frequent", "surplus", "words", "vocabulary")
Setting = tuple[int, int, int, int, int]


# ---------------------------------------------------------------- trials


@dataclass(frozen=True)
class Predictors(lab.Trial):
    """The two predictors of a setting, and one sequence of it (Fig 2)."""

    tag = "predictors"
    sparse: int
    frequent: int
    surplus: int
    words: int
    vocabulary: int
    length: int

    @property
    def sets(self) -> TokenSets:
        """The sequences of the setting."""
        return TokenSets(self.sparse, self.frequent, self.surplus, self.words, self.vocabulary, self.length)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Exact sensitivities, and what each token of a sequence stands for: 2, 1 for its label, -1 against it, 0."""
        sets = self.sets
        one = sets.draw(1, np.random.default_rng([0, *(getattr(self, name) for name in PLACES)]))
        sign = 1 if one.labels[0] else -1
        sparse, frequent, _ = sign * sets.directions()[:, one.bits[0]]
        return {
            "exact": [float(sets.sensitivity(feature)) for feature in FEATURES],
            "sample": (2 * sparse + frequent).astype(int).tolist(),
        }


@dataclass(frozen=True)
class Learned(Predictors):
    """One training of the model of Eq 3."""

    tag = "trained"
    seed: int
    width: int
    std: float
    lr: float
    batch: int
    steps: int
    every: int
    train: int
    test: int
    asked: int  # test sequences whose sensitivity is measured

    @property
    def cost(self) -> float:
        return float(self.steps * self.batch * self.length**2)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Accuracies, alignment and attention on the way, and the sensitivity of the trained model."""
        sets, stream = self.sets, np.random.default_rng([self.seed, 1])
        train, test = sets.draw(self.train, stream), sets.draw(self.test, stream)
        opposed = sets.draw(self.test, stream, opposed=True)
        model = TokenAttention(
            vocabulary=self.vocabulary, length=self.length, width=self.width, std=self.std, seed=self.seed
        )
        fitted = fit(
            model,
            train,
            test,
            seed=self.seed,
            inputs="tokens",
            optimiser="sgd",
            learning_rate=self.lr,
            batch=self.batch,
            decay_after=None,
            stop_after=None,
            max_epochs=None,
            max_steps=self.steps,
            restore="last",
            progress=lambda epoch: progress(epoch.steps, self.steps),
            log=[Log("curves", curves(sets, train, test, opposed), self.every)],
        )
        steps, _ = series(fitted.log, "curves.train")
        names = (
            "train",
            "test",
            "opposed",
            *(f"{kind}_{group}" for kind in ("alignment", "attention") for group in GROUPS),
        )
        found = {name: np.array(series(fitted.log, f"curves.{name}")[1]) for name in names}
        tokens = torch.from_numpy(test.bits[: self.asked])
        changed = token_sensitivity(model, tokens, how="replace", vocabulary=self.vocabulary, seed=self.seed)
        return {"step": np.array(steps), **found, "sensitivity": changed.definition.value}


# ---------------------------------------------------------------- measurements


def curves(
    sets: TokenSets, train: Examples, test: Examples, opposed: Examples
) -> Callable[[torch.nn.Module], dict[str, float]]:
    """What is measured of a model on the way."""
    aim, directions = Aim("bce"), torch.from_numpy(sets.directions()).float()
    asked = {
        name: (torch.from_numpy(each.bits), aim.targets(torch.from_numpy(each.labels), name))
        for name, each in (("train", train), ("test", test), ("opposed", opposed))
    }
    tokens = asked["test"][0]
    groups = torch.from_numpy(sets.groups())[tokens]  # [string, position]

    def measure(model: torch.nn.Module) -> dict[str, float]:
        assert isinstance(model, TokenAttention)
        with torch.no_grad():
            found = {name: answered(model, [each], aim)[1] for name, each in asked.items()}
            aligned, paid = model.alignment(directions), model.attention(tokens).mean(dim=1)  # [string, position]
        for place, group in enumerate(GROUPS):
            found[f"alignment_{group}"] = float(aligned[place])
            found[f"attention_{group}"] = float((paid * (groups == place)).sum(dim=1).mean())
        return found

    return measure


# ---------------------------------------------------------------- claims


def setting_of(row: lab.Row) -> Setting:
    """The numbers (n_s, n_f, n_d, m, M) of a row."""
    n_s, n_f, n_d, m, size = (row[name] for name in PLACES)
    return n_s, n_f, n_d, m, size


def label(setting: Sequence[int]) -> str:
    """A setting as the paper writes it."""
    return f"({', '.join(map(str, setting[:4]))})"


def each_of(settings: Sequence[Setting]) -> Callable[[lab.Rows], list[tuple[str, lab.Rows]]]:
    """The runs of each of these settings, also of those that have none."""
    return lambda rows: [(label(setting), rows.where(within([setting]))) for setting in settings]


def within(settings: Sequence[Setting]) -> Callable[[lab.Row], bool]:
    """Whether a row is of one of the settings."""
    return lambda row: setting_of(row) in settings


def last(column: str, words: str, settings: Sequence[Setting]) -> lab.Quantity:
    """The mean over runs of the last point of a curve, for each of the settings."""
    averaged = quantities.mean(lab.Column(words, lambda row: float(row[column][-1])), fewest=FEWEST, unit="runs")
    return averaged.where("trained models", source="trained").grouped(
        f"for each setting of {', '.join(map(label, settings))}",
        each_of(settings),
        what="settings",
        weakest_first=False,
    )


OPPOSED = "accuracy when the sparse tokens are those of the other label"


def strongest(row: lab.Row) -> str | None:
    """The feature with the larger signal, n_s^2 or the squared surplus over m; None where they are alike."""
    sets = TokenSets(*setting_of(row), row["length"])
    sparse, frequent = sets.sparse**2, (sets.own - sets.opposing) ** 2 / sets.words
    if max(sparse, frequent) < STRONGER * min(sparse, frequent):
        return None
    return "sparse" if sparse > frequent else "frequent"


def used(row: lab.Row) -> str | None:
    """The feature that a trained model relies on, None if it relies on both."""
    accuracy = row["opposed"][-1]
    return "sparse" if accuracy <= USES else "frequent" if accuracy >= 1 - USES else None


def most_attended(group: str, *, each: bool = False) -> Callable[[lab.Row], bool]:
    """Whether a group has the largest attention, in sum or, with `each`, for one of its tokens."""

    def test(row: lab.Row) -> bool:
        counts = (row["sparse"], row["frequent"], row["length"] - row["sparse"] - row["frequent"])
        paid = {
            name: row[f"attention_{name}"][-1] / (count if each else 1)
            for name, count in zip(GROUPS, counts, strict=True)
        }
        return max(paid, key=lambda name: paid[name]) == group

    return test


def attended(words: str, *, each: bool = False) -> quantities.Criterion:
    """The group that the less sensitive predictor uses has the largest attention in most runs."""
    parts = [
        quantities.share(
            f"share of runs in which {words} of {group} tokens is the largest",
            most_attended(group, each=each),
            fewest=FEWEST,
            unit="runs",
        )
        .where("trained models", source="trained")
        .where(f"{group} tokens less sensitive", within(settings))
        >= 0.5
        for group, settings in (("sparse", SPARSE_FIRST), ("frequent", FREQUENT_FIRST))
    ]
    return parts[0] & parts[1]


CLAIMS = (
    lab.claim(
        "the predictors have the printed sensitivities",
        "Tables 1, 3",
        "exact sensitivities of the predictors by sparse and by frequent tokens",
        quantities.all_models(
            "share of printed values that a tie counted as a change gives to all digits",
            lambda row: abs(row["exact"] - row["printed"]) <= DIGITS,
            rows=lambda row: row["source"] == "predictors" and setting_of(row) in (*SPARSE_FIRST, *FREQUENT_FIRST),
            unit="values",
        ),
    ),
    lab.claim(
        "it relies on sparse tokens where these are less sensitive",
        "Figs 3, 9",
        "accuracy drops to 0 when the sparse tokens are those of the other label",
        last("opposed", OPPOSED, SPARSE_FIRST) <= USES,
    ),
    lab.claim(
        "it relies on frequent tokens where these are less sensitive",
        "Figs 3, 9",
        "accuracy stays high when the sparse tokens are those of the other label",
        last("opposed", OPPOSED, FREQUENT_FIRST) >= 1 - USES,
    ),
    lab.claim(
        "the head is aligned with the less sensitive feature",
        "Figs 3, 9",
        "rows of U W_V' have a cosine close to 1 with the vector of the less sensitive feature",
        (last("alignment_sparse", "cosine with v_sp", SPARSE_FIRST) >= NEAR)
        & (last("alignment_frequent", "cosine with v_freq", FREQUENT_FIRST) >= NEAR),
    ),
    lab.claim(
        "attention is largest on the less sensitive feature",
        "Figs 3, 9",
        "the sum of attention weights is largest for the tokens of the less sensitive feature",
        attended("the sum of attention weights"),
    ),
    lab.claim(
        "with 33 words the last printed value is right",
        "Table 3",
        "the sensitivity printed for (32, 36) is that of (32, 33)",
        quantities.all_models(
            "share of values printed for (1, 32, 7, 36) that (1, 32, 7, 33) has",
            lambda row: abs(row["exact"] - row["printed"]) <= DIGITS,
            rows=lambda row: row["source"] == "predictors" and setting_of(row) == REPAIRED,
            unit="values",
        ),
        exploratory=True,
    ),
    lab.claim(
        "a token of the less sensitive feature gets the most attention",
        "beyond Fig 3",
        "the attention weight of a single token is largest for the less sensitive feature",
        attended("the attention weight of one token", each=True),
        exploratory=True,
    ),
    lab.claim(
        "it relies on the less sensitive feature where that is the weaker signal",
        "beyond Fig 3",
        "the preference is one for low sensitivity, also against the strength of signals",
        last("opposed", OPPOSED, DECISIVE) >= 1 - USES,
        exploratory=True,
    ),
    lab.claim(
        "it relies on the stronger signal",
        "beyond Fig 3",
        f"of n_s^2 and the squared surplus over m the larger decides, where it is {STRONGER:g} times the other",
        quantities.all_models(
            "share of runs that rely on the feature with the stronger signal",
            lambda row: used(row) == strongest(row),
            rows=lambda row: row["source"] == "trained" and strongest(row) is not None,
            unit="runs",
        ),
        exploratory=True,
    ),
    lab.claim(
        "the trained model is as little sensitive as the better predictor",
        "beyond Fig 3",
        "the model's own sensitivity is nearer to the lower of the two predictors' than to the higher",
        quantities.mean(
            lab.Column(
                "sensitivity of the model, 0 being the less and 1 the more sensitive predictor's",
                lambda row: (row["sensitivity"] - min(row["both"])) / (max(row["both"]) - min(row["both"])),
            ),
            fewest=FEWEST,
            unit="runs",
        )
        .where("trained models", source="trained")
        .grouped("for each printed setting", each_of((*SPARSE_FIRST, *FREQUENT_FIRST)), what="settings")
        <= 0.5,
        exploratory=True,
    ),
)


# ---------------------------------------------------------------- figures


def dynamics(rows: lab.Rows, title: str) -> list[lab.Panel]:
    """Accuracies, alignment and attention against the step: means over runs with their range."""
    columns = {
        "accuracy": {"train": "training", "test": "test", "opposed": "opposed sparse tokens"},
        "alignment": {f"alignment_{group}": group for group in GROUPS},
        "attention": {f"attention_{group}": group for group in GROUPS},
    }
    shown = []
    for words, names in columns.items():
        lines, first = [], 0 if words == "accuracy" else len(GROUPS)  # groups have colours of their own
        for place, (column, said) in enumerate(names.items(), start=first):
            points = lab.Rows(
                {"step": step, "value": value}
                for row in rows
                for step, value in zip(row["step"], row[column], strict=True)
            )
            lines.append(lab.line(points, "step", "value", said, "mean", colour=place))
        shown.append(lab.Panel(title, "step", words, lines))
    return shown


class SparseOrFrequent(lab.Study):
    """Whether a self-attention layer prefers the feature that makes its function less sensitive."""

    name, paper, figures = "sparse-or-frequent", "004", ("Fig 2", "Fig 3", "Fig 9", "Table 1", "Table 3")
    title = "Which of two features a self-attention layer learns, and their sensitivities"
    scales = lab.scales(
        "{seeds} trainings of each of {settings} settings, {steps} steps of {batch} of {train} sequences; width "
        "{width}",
        smoke=(0.1, {"settings": 2, "seeds": 2, "first_seed": 0, "length": 50, "width": 8, "std": 0.1, "lr": 0.3}
               | {"batch": 50, "steps": 20, "every": 10, "train": 100, "test": 50, "asked": 10}),
        # Width, rate and number of steps were chosen with seed 100, for the training loss to come near 0.
        laptop=(4, {"settings": 8, "seeds": 5, "first_seed": 1_000, "length": 50, "width": 32, "std": 0.1, "lr": 0.3}
                | {"batch": 100, "steps": 600, "every": 30, "train": 1_000, "test": 500, "asked": 200}),
        paper=(60, {"settings": 8, "seeds": 20, "first_seed": 0, "length": 50, "width": 64, "std": 0.1, "lr": 0.3}
               | {"batch": 100, "steps": 2_000, "every": 50, "train": 1_000, "test": 500, "asked": 500}),
    )  # fmt: skip
    sample_sizes = ("asked",)
    deviations = lab.deviations(
        ("M (vocabulary)", "silent", "59 and 69, which the printed sensitivities need; 75 for m = 36",
         "the least that holds all words"),
        ("settings", "six, one of them twice", "the six, and (1, 5, 3, 20) and (1, 9, 3, 30)",
         "these tell low sensitivity from strong signals"),
        ("(3, 3, 1, 6)", "n_s < n_f", "n_s = n_f, as in Table 3", "Table 3 breaks Def 4.2"),
        ("(1, 32, 7, .)", "surplus n_d = 7", "19 against 13 tokens, a difference of 6", "n_f + n_d is odd"),
        ("U", "square", "a row for each position", "the product of Eq 3 needs it"),
        ("tie", "silent", "counts as a change", "the printed sensitivities need it"),
        ("width, std, lr, steps, loss", "silent", "laptop: 32, 0.1, 0.3, 600, logistic; paper: width 64, 2,000 steps",
         "small numbers at the start, and a training loss near 0"),
        ("seeds", "silent: one run in each figure", "laptop: 5, from 1000 on; paper: 20", "intervals"),
        ("every, asked", "silent", "laptop: every 30 steps, sensitivity of 200 test sequences", "time"),
        ("limits of the claims", "drops to 0, remains high, close to 1", f"{USES:g}, {1 - USES:g}, {NEAR:g}",
         "chosen before the laptop run"),
    )  # fmt: skip
    claims = CLAIMS

    def trials(self, scale: str) -> list[Predictors]:
        plan = dict(self.scales[scale].settings)
        count, first, seeds = (plan.pop(name) for name in ("settings", "first_seed", "seeds"))
        # Alternately of both kinds, so that the first two are one of each.
        pairs = [each for two in zip(SPARSE_FIRST, FREQUENT_FIRST, strict=True) for each in two]
        trained = [*pairs, *DECISIVE][:count]
        return [
            *(Predictors(*setting, plan["length"]) for setting in (*PRINTED, *DECISIVE)),
            *(
                Learned(**dict(zip(PLACES, setting, strict=True)), seed=seed, **plan)
                for setting in trained
                for seed in range(first, first + seeds)
            ),
        ]

    def rows(self, trial: Predictors, outcome: lab.Outcome) -> Iterable[lab.Row]:
        """A row for each training, and one for each predictor of a setting."""
        row = {"source": trial.tag, **self.row(trial, outcome)}
        both = [float(trial.sets.sensitivity(feature)) for feature in FEATURES]
        if isinstance(trial, Learned):
            return [{**row, "both": both}]
        printed = PRINTED.get(setting_of(row))
        places: Sequence[tuple[int, Feature]] = list(enumerate(FEATURES))
        return [
            {**row, "feature": feature, "exact": outcome["exact"][place], "printed": printed and printed[place]}
            for place, feature in places
        ]

    def provenance(self, table: lab.Rows) -> list[str]:
        sentences = []
        for setting, rows in each_of((*SPARSE_FIRST, *FREQUENT_FIRST, *DECISIVE))(table.where(source="trained")):
            if rows:
                relied = [used(row) or "both" for row in rows]
                counts = ", ".join(f"{relied.count(name)} on {name}" for name in dict.fromkeys(relied))
                sentences.append(f"{setting}: of {len(rows)} models {counts}")
        return sentences

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        drawn = table.where(source="predictors", feature="sparse")
        cells = [
            (position, place, value) for place, row in enumerate(drawn) for position, value in enumerate(row["sample"])
        ]
        x, y, values = (list(each) for each in zip(*cells, strict=True))
        names = "; ".join(f"{place}: {label(setting_of(row))}" for place, row in enumerate(drawn))
        sample = lab.Panel("", "position", "setting", [lab.Series("", x, y, "cells", values=values)],
                           value_label="2 sparse, 1 frequent, -1 against the label")  # fmt: skip
        panels = [
            panel
            for setting, rows in each_of((*SPARSE_FIRST, *FREQUENT_FIRST, *DECISIVE))(table.where(source="trained"))
            if rows
            for panel in dynamics(rows, setting)
        ]
        caption = (
            "Means over runs, bands from the least to the largest. Accuracy with opposed sparse tokens near 0: the "
            "model relies on sparse tokens; near 1: on frequent ones."
        )
        return [
            lab.Figure("token-sets", "One sequence of each setting", f"Settings {names}.", [sample], 1, where="Fig 2"),
            lab.Figure("sparse-or-frequent", self.title, caption, panels, 3, where="Figs 3, 9"),
        ]


STUDY = SparseOrFrequent()
