"""Sensitivity of transformers and LSTMs to the tokens of a text (§ 6, A.4, Table 4; Figs 5, 6, 19-22).

Models of equal depth learn from scratch whether two sentences mean the same (MRPC, QQP): RoBERTa's kind with softmax
and with ReLU attention, GPT-2's kind, and an LSTM. Their sensitivity is the share of texts whose answer changes when
Gaussian noise is added to the vector of one token. The paper finds the LSTM most sensitive, already before training,
and most to late tokens; transformers are evenly sensitive to all tokens but the first, <s>, where RoBERTa is read.

**Where the noise enters.** The paper adds it to *normalised* embeddings. Its released code adds it to RoBERTa's word
vectors, so that position and layer norm follow and the norm scales the noisy token down again, and to the LSTM's
vectors as they are. Here every model is measured at both places: `after` the norm of its embeddings, and `before` it.
GPT-2's kind has no norm there; its noise is in units of the root mean square of each token.

Models are compared at equal training accuracy, and paired by seed: a sample is a pair of models, not a text. Models of
one seed are trained on the same pairs of sentences and measured on the same texts, tokens and noise.

docs/low-sensitivity.md says what the laptop's plan follows from, and what six seeds can tell.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float64
from torch import nn

import flipscope.lab as lab
from flipscope.basics.errors import InputError
from flipscope.data.batches import Examples
from flipscope.data.finding import split_reference
from flipscope.data.text_data import Encoder, TextData, text_data
from flipscope.figures import AnyPanel, TextPanel
from flipscope.lab import quantities
from flipscope.models.baselines.config import LSTMConfig
from flipscope.probes.token_results import aligned
from flipscope.probes.tokens import token_sensitivity
from flipscope.studies.low_sensitivity.shared import (
    COLUMNS,
    FEWEST,
    NEAR,
    checkpoint_columns,
    checkpoint_rows,
    end_columns,
    end_gap,
    gap,
    gap_change,
    if_present,
    joined,
    over_seeds,
    paired_ends,
    seed_pairs,
    sensitivity_map,
    watched,
)
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.low_sensitivity import text_recipe
from flipscope.training.token_measures import Disturbances, chosen_examples

SETS, SYNTHETIC = ("mrpc", "qqp"), "synthetic-paraphrases"
NAMES = {
    "lstm": "LSTM",
    "gpt2": "GPT-2's kind",
    "roberta": "RoBERTa's kind, softmax",
    "roberta-relu": "RoBERTa's kind, ReLU",
}
PLACES = {"after": "embedding", "before": "embedding.symbol"}  # the norm of the embeddings, where a model has one
WITHOUT_NORM = ("gpt2",)  # models that have none: their noise is in units of each token's size
SMALL = 600  # tokens suffice for the synthetic sentences
PAPER_WIDTH = 256  # narrower models start as PyTorch's modules do, and have fewer heads
SMALL_HEADS, PAPER_HEADS = 4, 8  # of all transformers
DROPOUT = 0.1  # of all models, as in the paper; the small presets of transformers have none
MAIN = 15.0  # the variance of the paper's figures
PRINTED = {  # sensitivities at the end of training (§ 6); the MRPC value of the LSTM may be a misprint of .015
    ("mrpc", "lstm"): 0.15, ("mrpc", "roberta"): 0.002, ("mrpc", "roberta-relu"): 0.001,
    ("qqp", "lstm"): 0.09, ("qqp", "roberta"): 0.03, ("qqp", "roberta-relu"): 0.02,
}  # fmt: skip
EVEN = (
    1 / 3
)  # largest difference over the sum of two sensitivities that are called even: one is then at most twice the other
SIMILAR = 0.03  # half of the gap of Table 4, .06: gaps that differ by less are called similar
SPACE = "Ġ"  # begins tokens that follow a space, in the alphabet of byte-level BPE
DRAWS_SHOWN = 8  # of noise on each token of a text that is shown as a strip of words

ModelName = Literal["roberta", "roberta-relu", "gpt2", "lstm"]


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Reader(lab.TrainedTrial):
    """A model, its training, and how its sensitivity is measured."""

    data: str  # the reference of the text set
    model: ModelName
    layers: int
    width: int
    train: int | None  # pairs of sentences; None is all of the set
    test: int | None
    length: int  # tokens of a pair
    vocabulary: int
    encoder: Encoder
    lr: float
    batch: int
    epochs: int
    decay: bool  # learning rate times 0.9 after each epoch, as the released code has it for transformers
    trained: Literal["all", "recurrent"]  # of the LSTM
    levels: tuple[float, ...]  # training accuracies at which sensitivity is measured
    every: int  # steps between measurements of training accuracy
    inputs: int  # texts, one random token of each
    variances: tuple[float, ...]
    whole_variance: float
    texts: int  # of which every token is disturbed once, for the sensitivity by position
    shown: int  # texts whose tokens are kept for pictures
    seed: int
    sweep: bool = False  # whether the depth is another than that of the main comparison

    def texts_of(self) -> TextData:
        """The pairs of sentences, the same for all models of a seed."""
        return text_data(
            self.data, length=self.length, vocabulary=self.vocabulary, encoder=self.encoder, train=self.train,
            test=self.test, seed=self.seed,
        )  # fmt: skip

    @property
    def places(self) -> tuple[str, ...]:
        """The modules whose outputs get the noise."""
        return tuple(PLACES.values())

    @property
    def normalise(self) -> bool:
        """Whether noise is in units of each token's size, for want of a norm."""
        return self.model in WITHOUT_NORM

    @property
    def recipe(self) -> Recipe:
        """The training, with the measurement at levels of training accuracy."""
        small = self.width < PAPER_WIDTH
        made = text_recipe(
            self.texts_of(),
            f"{self.model}-small" if small else self.model,
            self.seed,
            learning_rate=self.lr,
            batch=self.batch,
            epochs=self.epochs,
            decay_every=1 if self.decay and self.model != "lstm" else None,
            decay_factor=0.9,
            log=[
                watched(
                    self.levels, self.every, variances=self.variances, whole_variances=(self.whole_variance,),
                    places=self.places, inputs=self.inputs, seed=self.seed, normalise=self.normalise,
                )
            ],
        )  # fmt: skip
        sizes: dict[str, Any] = {"width": self.width, "layers": self.layers, "dropout": DROPOUT}
        if isinstance(made.model, LSTMConfig):
            sizes["trained"] = self.trained
        else:
            sizes["heads"] = SMALL_HEADS if small else PAPER_HEADS
        return replace(made, model=replace(made.model, **sizes))

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Sensitivity at the start, at levels of training accuracy and at the end, by position, and of some texts."""
        done = lab.trained(self.recipe, progress)
        texts, steps = self.texts_of(), done.fitted.steps
        disturbances = Disturbances(
            self.variances, (self.whole_variance,), self.places, normalise=self.normalise
        )  # fmt: skip
        training, _ = chosen_examples(texts.training_set(), self.inputs, self.seed)
        validation, rows = chosen_examples(texts.test_set(), self.inputs, self.seed)
        ends = [
            end_columns(done.model, part, disturbances, step=steps, seed=self.seed) for part in (training, validation)
        ]
        curve = joined(checkpoint_columns(done.fitted.log), ends[0])
        outcome: dict[str, Any] = {"steps": steps, "test_accuracy": done.accuracy, **curve}
        seen = pairs_seen(self.recipe, texts, steps)
        outcome |= {
            "seen": [seen[step] for step in curve["step"]],
            "cut": texts.cut_share("train"),
            "validation_cut": texts.cut_share("test"),
        }
        outcome |= {f"validation_{name}": values for name, values in ends[1].items()}
        outcome |= by_position(self, done.model, training)
        outcome |= {f"rms_{place}": root_mean_square(self, done.model, training, at) for place, at in PLACES.items()}
        some = validation.bits[: self.shown]
        shares = sensitivity_map(
            done.model, some, at=PLACES["after"], variance=_main(self), draws=DRAWS_SHOWN, seed=self.seed,
            normalise=self.normalise,
        )  # fmt: skip
        shown = texts.chosen_rows("test")[rows[: self.shown]]  # rows of the set
        return outcome | {"shown_rows": shown, "shown_shares": np.nan_to_num(shares, nan=-1.0)}


def pairs_seen(recipe: Recipe, texts: TextData, steps: int) -> list[int]:
    """The number of training pairs seen before each step and after the last; one batch of an epoch may be smaller."""
    source = texts.source(recipe.batch, recipe.protocol.epoch_steps, recipe.seed)  # as in the training
    batches = itertools.islice(itertools.chain.from_iterable(itertools.repeat(source)), steps)
    return list(itertools.accumulate((len(labels) for _, labels in batches), initial=0))


def _main(trial: Reader) -> float:
    """The variance of the figures: 15, or the largest where that is not measured."""
    return MAIN if MAIN in trial.variances else max(trial.variances)


def by_position(trial: Reader, model: nn.Module, examples: Examples) -> dict[str, Any]:
    """Sensitivity to each position, texts aligned at their ends, and to <s>, early and late tokens."""
    found = token_sensitivity(
        model, examples.bits[: trial.texts], at=PLACES["after"], variance=_main(trial), whole_variance=0.0,
        normalise=trial.normalise, seed=trial.seed,
    )  # fmt: skip
    shares = aligned(found.changed, found.valid, "right")
    counts = (~np.isnan(shares)).sum(axis=0)
    means = np.nansum(shares, axis=0) / np.maximum(counts, 1)
    return {"positions": means, "position_counts": counts, **ends_of_texts(found.changed, found.valid)}


def ends_of_texts(
    changed: Float64[np.ndarray, "text token"], valid: Bool[np.ndarray, "text token"]
) -> dict[str, float]:
    """The sensitivity to the first token <s>, and to the first and the last quarter of all others."""
    first, early, late, others = [], [], [], []
    for shares, counted in zip(changed, valid, strict=True):
        own = shares[counted]
        quarter = max(1, (len(own) - 1) // 4)
        first.append(own[0])
        early.append(own[1 : 1 + quarter].mean())
        late.append(own[-quarter:].mean())
        others.append(own[1:].mean())
    sides = {"first": first, "early": early, "late": late, "others": others}
    return {name: float(np.mean(values)) for name, values in sides.items()}


def noise_size(rows: lab.Rows) -> str:
    """How large noise of variance 15 is beside a token's numbers, at both places, in words."""
    std = math.sqrt(MAIN)
    if rows[0]["model"] in WITHOUT_NORM:
        return f"noise of variance 15 is in units of each token's size: {std:.2g} times that, at both places"
    sizes = [f"{std / np.mean(rows.column(f'rms_{place}')):.2g} times {place}" for place in PLACES]
    return f"noise of variance 15 over the size of a token's numbers after training: {' and '.join(sizes)} the norm"


def root_mean_square(trial: Reader, model: nn.Module, examples: Examples, at: str) -> float:
    """The root mean square of the numbers of tokens, for the relative size of the noise."""
    found = token_sensitivity(model, examples.bits[:32], at=at, tokens=1, whole_variance=0.0, seed=trial.seed)
    assert found.disturbance.rms is not None  # vectors are numbers
    return found.disturbance.rms


# ---------------------------------------------------------------- claims

ANY_DEPTH: dict[str, Any] = {"part": "training", "kind": "noise", "variance": MAIN, "place": "after"}
AFTER: dict[str, Any] = {**ANY_DEPTH, "sweep": False}
LSTM, ROBERTA, RELU, GPT2 = ({"model": name} for name in ("lstm", "roberta", "roberta-relu", "gpt2"))
Which = Mapping[str, Any]
END_ACCURACY = "end_accuracy"  # the column with the training accuracy at the end of training


def of(model: Which, **other: Any) -> dict[str, Any]:
    """The columns of one kind of model under noise of variance 15 after the norm, unless others are given."""
    return {**AFTER, **model, **other}


def on_sets(quantity: lab.Quantity, sets: Sequence[str] = SETS) -> lab.Quantity:
    """The quantity for each real data set; the synthetic one says nothing about them."""
    return quantity.each("set", sets, what="data sets")


def at_end(words: str, first: Which, second: Which) -> lab.Quantity:
    """How much more sensitive one kind of model is than another at the end, paired by seed and training accuracy."""
    return end_gap(f"{words}, at the end", first, second, accuracy=END_ACCURACY)


def at_start(words: str, first: Which, second: Which) -> lab.Quantity:
    """The same before training, paired by seed."""

    def pairs(rows: lab.Rows) -> lab.Rows:
        ours, theirs = (rows.where(moment="start", **which) for which in (first, second))
        return lab.Rows({"gap": one["sensitivity"] - two["sensitivity"]} for one, two in
                        lab.matched(ours, theirs, "seed"))  # fmt: skip

    return over_seeds(f"{words}, before training", pairs, pairs="paired by seed")


def of_positions(words: str, value: Callable[[lab.Row], float], model: Which) -> lab.Quantity:
    """The mean over models of a number that says how sensitivity depends on the position."""
    averaged = quantities.mean(lab.Column(words, value), fewest=FEWEST, unit="models")
    return averaged.where(f"models of {NAMES[model['model']]}", moment="positions", sweep=False, **model)


def later(model: Which) -> lab.Quantity:
    """How much more sensitive a kind of model is to the end of a text than to its beginning."""
    words = "sensitivity to the last quarter of a text less that to the first"
    return of_positions(words, lambda row: row["late"] - row["early"], model)


def lean_of(row: lab.Row) -> float:
    """The same in relation to both, between -1 and 1; only where either matters, since 0 and 0 are no finding."""
    return float((row["late"] - row["early"]) / (row["late"] + row["early"]))


def either_matters(row: lab.Row) -> bool:
    """Whether a model's answers depend on the beginning or the end of a text."""
    return bool(row["late"] + row["early"] > 0)


LEAN = "sensitivity to the last quarter of a text less that to the first, over their sum"


def lean(model: Which) -> lab.Quantity:
    """The mean lean of a kind of model to late tokens."""
    return of_positions(LEAN, lean_of, model).where("that change some answer", either_matters)


def first_token(model: Which) -> lab.Quantity:
    """How much more sensitive a kind of model is to <s> than to other tokens."""
    words = "sensitivity to <s> less that to other tokens"
    return of_positions(words, lambda row: row["first"] - row["others"], model)


def position_gap(
    words: str, value: Callable[[lab.Row], float], first: Which, second: Which, test: quantities.Test | None = None
) -> lab.Quantity:
    """How two kinds of models differ in such a number, paired by seed and training accuracy."""

    def pairs(rows: lab.Rows) -> lab.Rows:
        ours, theirs = (rows.where(test, moment="positions", sweep=False, **which) for which in (first, second))
        found = seed_pairs(ours, theirs, END_ACCURACY)
        return lab.Rows({"gap": value(one) - value(other)} for one, other in found)

    names = " less ".join(NAMES[which["model"]] for which in (first, second))
    return over_seeds(f"{words}, {names}", pairs)


def lean_gap(first: Which, second: Which) -> lab.Quantity:
    """How much more one kind of model leans to late tokens than another."""
    return position_gap(LEAN, lean_of, first, second, either_matters)


def extra_gap_on_validation(rows: lab.Rows) -> lab.Rows:
    """For each seed, the gap of softmax and ReLU attention on validation texts less that on training texts."""
    validation, training = (
        paired_ends(rows, of(ROBERTA, part=part), of(RELU, part=part), accuracy=END_ACCURACY)
        for part in ("validation", "training")
    )
    pairs = lab.matched(validation, training, "seed")
    return lab.Rows({"gap": one["gap"] - two["gap"]} for one, two in pairs)


def depth_change(model: Which) -> lab.Quantity:
    """How much more sensitive deeper models of a kind are than the shallowest at the end, over the sum of both."""

    def changes(rows: lab.Rows) -> lab.Rows:
        own = rows.where(moment="end", **ANY_DEPTH, **model)
        depths, found = sorted(own.values("layers")), lab.Rows()
        pairs = [pair for deep in depths[1:] for pair in
                 seed_pairs(own.where(layers=deep), own.where(layers=depths[0]), END_ACCURACY)]  # fmt: skip
        for seed in sorted({one["seed"] for one, _ in pairs}):
            same = [(one["sensitivity"], other["sensitivity"]) for one, other in pairs if one["seed"] == seed]
            deep, shallow = float(np.mean([one for one, _ in same])), same[0][1]
            if deep + shallow > 0:
                found.append({"gap": (deep - shallow) / (deep + shallow)})
        return found

    words = f"sensitivity of deeper models of {NAMES[model['model']]} less that of the shallowest, over their sum"
    return over_seeds(f"{words}, at the end", changes)


def gap_at_depth(rows: lab.Rows) -> lab.Rows:
    """The gap of LSTM and RoBERTa's kind at the end for each seed; `rows` are those of one depth."""
    return paired_ends(rows, {**ANY_DEPTH, **LSTM}, {**ANY_DEPTH, **ROBERTA}, accuracy=END_ACCURACY)


GAP_AT_DEPTH = over_seeds("sensitivity of the LSTM less that of RoBERTa's kind, at the end", gap_at_depth)

CLAIMS = (
    lab.claim(
        "LSTMs are more sensitive than RoBERTa's kind",
        "Fig 5",
        "at equal training accuracy and at the end the LSTM is more sensitive than transformers with either attention",
        (on_sets(gap("LSTM less softmax attention", of(LSTM), of(ROBERTA))) > 0)
        & (on_sets(gap("LSTM less ReLU attention", of(LSTM), of(RELU))) > 0)
        & (on_sets(at_end("LSTM less softmax attention", of(LSTM), of(ROBERTA))) > 0)
        & (on_sets(at_end("LSTM less ReLU attention", of(LSTM), of(RELU))) > 0),
    ),
    lab.claim(
        "LSTMs are more sensitive before training",
        "Fig 5",
        "also at initialisation the LSTM is more sensitive than transformers with either attention",
        (on_sets(at_start("LSTM less softmax attention", of(LSTM), of(ROBERTA))) > 0)
        & (on_sets(at_start("LSTM less ReLU attention", of(LSTM), of(RELU))) > 0),
        decided_from="paper",  # narrow transformers start from other weights than the paper's, see the deviations
    ),
    lab.claim(
        "ReLU attention is less sensitive than softmax",
        "Fig 5",
        "late in training the model with ReLU attention is less sensitive than that with softmax",
        on_sets(at_end("softmax less ReLU attention", of(ROBERTA), of(RELU))) > 0,
        decided_from="",  # printed differences are .001 and .01, less than the texts of any scale resolve
    ),
    lab.claim(
        "the same with less noise",
        "Fig 19",
        "on QQP with variance 4 the LSTM is more sensitive than both transformers",
        (on_sets(gap("LSTM less softmax attention, variance 4", of(LSTM, variance=4.0), of(ROBERTA, variance=4.0)),
                 SETS[1:]) > 0)
        & (on_sets(gap("LSTM less ReLU attention, variance 4", of(LSTM, variance=4.0), of(RELU, variance=4.0)),
                   SETS[1:]) > 0),
    ),
    lab.claim(
        "the same on validation texts",
        "Fig 20",
        "on texts that the models were not trained on the LSTM is more sensitive than both transformers, too",
        (on_sets(at_end("LSTM less softmax attention on validation texts", of(LSTM, part="validation"),
                        of(ROBERTA, part="validation"))) > 0)
        & (on_sets(at_end("LSTM less ReLU attention on validation texts", of(LSTM, part="validation"),
                          of(RELU, part="validation"))) > 0),
    ),
    lab.claim(
        "softmax and ReLU differ more on validation texts",
        "Fig 20",
        "the difference of softmax and ReLU attention is less marginal on validation texts than on training texts",
        on_sets(over_seeds("softmax less ReLU attention on validation texts, less the same on training texts",
                           extra_gap_on_validation)) > 0,
        decided_from="",  # for the same reason
    ),
    lab.claim(
        "GPT-2's kind lies between",
        "Fig 21",
        "on QQP the causal transformer is less sensitive than the LSTM and more than RoBERTa's kind",
        (on_sets(gap("LSTM less GPT-2's kind", of(LSTM), of(GPT2)), SETS[1:]) > 0)
        & (on_sets(gap("GPT-2's kind less softmax attention", of(GPT2), of(ROBERTA)), SETS[1:]) > 0)
        & (on_sets(gap("GPT-2's kind less ReLU attention", of(GPT2), of(RELU)), SETS[1:]) > 0),
    ),
    lab.claim(
        "LSTMs are most sensitive to late tokens",
        "Fig 6",
        "the LSTM's sensitivity is larger at the end of a text than at its beginning",
        on_sets(later(LSTM)) > 0,
    ),
    lab.claim(
        "RoBERTa's kind is evenly sensitive",
        "Fig 6",
        "apart from <s>, sensitivity of transformers with either attention is about uniform over positions",
        on_sets(lean(ROBERTA)).between(-EVEN, EVEN)
        & on_sets(lean(RELU)).between(-EVEN, EVEN),
    ),
    lab.claim(
        "GPT-2's kind leans to recent tokens",
        "Fig 21",
        "on QQP the causal transformer is more sensitive to late tokens than to early ones, and leans to them "
        "more than RoBERTa's kind with either attention",
        (on_sets(later(GPT2), SETS[1:]) > 0)
        & (on_sets(lean_gap(GPT2, ROBERTA), SETS[1:]) > 0)
        & (on_sets(lean_gap(GPT2, RELU), SETS[1:]) > 0),
    ),
    lab.claim(
        "softmax attention is sensitive to <s>",
        "Fig 6",
        "noise on the token at which it is read changes the answer of the model with softmax attention more often",
        on_sets(first_token(ROBERTA)) > 0,
    ),
    lab.claim(
        "ReLU attention is less sensitive to <s>",
        "Fig 6",
        "the model with ReLU attention depends less on that token",
        on_sets(position_gap("sensitivity to <s>", lambda row: row["first"], ROBERTA, RELU)) > 0,
    ),
    lab.claim(
        "GPT-2's kind is sensitive to some <s>",
        "Fig 21",
        "the causal transformer has bumps of sensitivity at the first token",
        on_sets(first_token(GPT2), SETS[1:]) > 0,
    ),
    lab.claim(
        "noise on the whole text gives a similar gap",
        "Table 4",
        "on QQP the LSTM and RoBERTa's kind differ about as much under weak noise on all tokens at once",
        (on_sets(gap("LSTM less softmax attention", of(LSTM), of(ROBERTA)), SETS[1:]) > 0)  # two gaps of 0 are none
        & on_sets(gap_change("gap of LSTM and softmax attention under noise on one token less that under noise on all",
                             LSTM, ROBERTA, AFTER, {**AFTER, "kind": "whole", "variance": 0.5}), SETS[1:])
        .between(-SIMILAR, SIMILAR),
        decided_from="",  # the texts of any scale leave both gaps too uncertain, see the module
    ),
    lab.claim(
        "RoBERTa's kind is less sensitive at every depth",
        "Fig 22",
        "the LSTM is more sensitive than the transformer of equal depth, whatever the depth",
        GAP_AT_DEPTH.where("models on QQP", set="qqp").each("layers", fewest=2, words="depth", what="depths") > 0,
        decided_from="paper",
    ),
    lab.claim(
        "deeper transformers are slightly more sensitive",
        "Fig 22",
        "RoBERTa's kind with 4 layers is less sensitive than with 8 or 12",
        depth_change(ROBERTA).where("models on QQP", set="qqp") > 0,
        decided_from="paper",
    ),
    lab.claim(
        "depth does not matter to the LSTM",
        "Fig 22",
        "LSTMs of all depths have the same sensitivity",
        depth_change(LSTM).where("models on QQP", set="qqp").between(-EVEN, EVEN),
        decided_from="paper",
    ),
    lab.claim(
        "the gap is there before the norm, too",
        "beyond Fig 5",
        "with noise in front of the norm of both models the LSTM is still more sensitive",
        on_sets(gap("LSTM less softmax attention, noise before the norm", of(LSTM, place="before"),
                    of(ROBERTA, place="before"))) > 0,
        exploratory=True,
    ),
    lab.claim(
        "the released code's place makes RoBERTa's kind look less sensitive",
        "beyond Fig 5",
        "noise in front of the norm, which scales it down, changes fewer answers than noise behind it",
        on_sets(gap("softmax attention with noise after the norm less before it", of(ROBERTA),
                    of(ROBERTA, place="before"))) > 0,
        exploratory=True,
    ),
    lab.claim(
        "with the released code's places the LSTM is more sensitive",
        "beyond Fig 5",
        "the LSTM with noise behind its norm is more sensitive than RoBERTa's kind with noise in front of the norm",
        on_sets(gap("LSTM after the norm less softmax attention before it", of(LSTM), of(ROBERTA, place="before")))
        > 0,
        exploratory=True,
    ),
)  # fmt: skip


# ---------------------------------------------------------------- figures


def examples_seen(runs: lab.Rows, title: str) -> lab.Panel:
    """Sensitivity against the number of training pairs seen, a line for each training."""
    lines = []
    for place, (name, words) in enumerate(NAMES.items()):
        for number, (_, own) in enumerate(runs.where(model=name).by("seed")):
            points = sorted(own, key=lambda row: row["step"])
            seen = [row["seen"] for row in points]
            half = [row["half_width"] for row in points]
            values = [row["sensitivity"] for row in points]
            lines.append(
                lab.Series(
                    words if number == 0 else "", seen, values, colour=place,
                    hover=[f"{words}, training accuracy {row['accuracy']:.2f}, ±{width:.3f} over texts"
                           for row, width in zip(points, half, strict=True)],
                )
            )  # fmt: skip
    return lab.Panel(title, "pairs of sentences seen", "sensitivity", lines)


def by_level(rows: lab.Rows, title: str) -> lab.Panel:
    """Sensitivity at equal training accuracy, averaged over seeds."""
    return lab.chart(
        rows.where(moment="level"), "level", "sensitivity", by="model", labels=NAMES, title=title,
        x_label="training accuracy",
    )  # fmt: skip


def positions_panel(rows: lab.Rows, title: str) -> lab.Panel:
    """Sensitivity by position from the end of the texts, averaged over seeds."""
    lines = []
    for place, (name, words) in enumerate(NAMES.items()):
        own = rows.where(model=name)
        if not own:
            continue
        longest = max(len(row["positions"]) for row in own)
        hits, counts = np.zeros(longest), np.zeros(longest)
        for row in own:
            size = len(row["positions"])
            hits[longest - size :] += np.array(row["positions"]) * np.array(row["position_counts"])
            counts[longest - size :] += np.array(row["position_counts"])
        means = [hit / count if count else None for hit, count in zip(hits, counts, strict=True)]
        lines.append(lab.Series(words, list(range(-longest, 0)), means, colour=place))
    return lab.Panel(title, "position from the end", "sensitivity", lines)


def end_values(rows: lab.Rows, name: str) -> lab.Panel:
    """Sensitivity at the end of training: on training and validation texts, after and before the norm, and printed."""
    kinds = [("training", "after"), ("training", "before"), ("validation", "after")]
    series = []
    for place, (part, where) in enumerate(kinds):
        own = rows.where(moment="end", part=part, place=where, kind="noise", variance=MAIN)
        points = [(list(NAMES).index(row["model"]), row["sensitivity"]) for row in own]
        series.append(
            lab.Series(f"{part} texts, {where} the norm", [x + (place - 1) * 0.15 for x, _ in points],
                       [y for _, y in points], "points", colour=place)
        )  # fmt: skip
    printed = [(list(NAMES).index(model), value) for (own_set, model), value in PRINTED.items() if own_set == name]
    if printed:
        series.append(lab.Series("paper", [x for x, _ in printed], [y for _, y in printed], "points", colour=3))
    return lab.Panel(name, "model", "sensitivity at the end", series, categories=list(NAMES.values()))


def strips(rows: lab.Rows) -> list[AnyPanel]:
    """Validation texts, words coloured by how often noise on them changes the answer; none without the data."""
    shown: list[AnyPanel] = []
    for row in rows:
        texts = if_present(lambda own=row: _shown_texts(own))  # type: ignore[misc]  # bound now
        for words, shares, number in texts or ():
            title = f"{NAMES[row['model']]}: {row['set']}, held-out pair {number}"
            shown.append(TextPanel(title, words, shares, "changed", value_range=(0, 1)))
    return shown


def _shown_texts(row: lab.Row) -> list[tuple[list[str], list[float], int]]:
    """Words and shares of the texts of a row, and their rows among the held-out pairs of the set, counted from 0."""
    content: dict[str, Any] = {each.name: row[each.name] for each in fields(Reader)}
    content |= {name: tuple(content[name]) for name in ("levels", "variances")}  # lists, where the table was in a file
    trial = Reader(**content)
    texts = trial.texts_of()
    ids, tokenizer, found = texts.test_set().bits, texts.bpe().tokenizer, []
    places = np.searchsorted(texts.chosen_rows("test"), np.array(row["shown_rows"]))  # among those that were chosen
    for number, place, shares in zip(row["shown_rows"], places, row["shown_shares"], strict=True):
        own = [each for each in ids[place].tolist() if each != texts.padding]
        words = [str(tokenizer.id_to_token(each)).lstrip(SPACE) or "·" for each in own]
        found.append((words, list(shares[: len(own)]), int(number)))
    return found


# ---------------------------------------------------------------- the study


class Language(lab.Study):
    """Whether transformers are less sensitive to the tokens of a text than LSTMs."""

    name, paper = "language", "004"
    figures = ("Fig 5", "Fig 6", "Fig 19", "Fig 20", "Fig 21", "Fig 22", "Table 4")
    title = "Sensitivity of transformers and LSTMs to the tokens of sentence pairs"
    scales = lab.scales(
        "{models} on {sets}, {train} training pairs, layers {layers}, width {width}, {epochs} epochs, {seeds} seeds; "
        "sensitivity at training accuracies {levels} from {inputs} texts, variances {variances}",
        {"variances": (4.0, MAIN), "whole_variance": 0.5, "batch": 32, "trained": "all"},
        smoke=(0.1, {"sets": (SYNTHETIC,), "models": ("lstm", "roberta", "roberta-relu", "gpt2"), "layers": (1,)}
               | {"width": 16, "train": 64, "test": 32, "length": 16, "mrpc_length": 16, "vocabulary": 300}
               | {"encoder": "trained", "lr": 3e-3, "epochs": 2, "decay": False, "levels": (0.55,), "every": 1}
               | {"inputs": 16, "texts": 6, "shown": 1, "seeds": 1, "first_seed": 0}),
        # Sizes and epochs were chosen with seed 100; see the module.
        laptop=(50, {"sets": SETS, "models": ("lstm", "roberta", "roberta-relu", "gpt2"), "layers": (2,)}
                | {"width": 64, "train": 1_000, "test": 1_000, "length": 64, "mrpc_length": 96, "vocabulary": 2_000}
                | {"encoder": "trained", "lr": 1e-3, "epochs": 20, "decay": False, "levels": (0.75, 0.85, 0.95)}
                | {"every": 16, "inputs": 600, "texts": 200, "shown": 3, "seeds": 6, "first_seed": 1_000}),
        paper=(600_000, {"sets": SETS, "models": ("lstm", "roberta", "roberta-relu", "gpt2"), "layers": (4, 8, 12)}
               | {"width": PAPER_WIDTH, "train": None, "test": None, "length": 128, "mrpc_length": 128}
               | {"vocabulary": 50_265, "encoder": "roberta", "lr": 1e-4, "epochs": 100, "decay": True}
               | {"levels": (0.75, 0.85, 0.95), "every": 100, "inputs": 640, "texts": 640, "shown": 6}
               | {"seeds": 3, "first_seed": 0}),
    )  # fmt: skip
    sample_sizes = ("inputs", "texts")
    deviations = lab.deviations(
        ("width, layers, heads (laptop)", "4 layers of width 256, 8 heads", "2 layers of width 64, 4 heads", "time"),
        ("MLP of transformers", "silent; 3,072 units in the released code", "4 times the width",
         "RoBERTa's and GPT-2's proportion"),
        ("dropout", "0.1", "0.1; in the LSTM between its layers only", "what PyTorch's LSTM offers"),
        ("train, test, epochs", "3,668 and 364,000 pairs, 100 epochs in the released code",
         "laptop: 1,000 random pairs for each seed, 20 epochs, which the models learn by heart", "time"),
        ("sets", "MRPC of 4,076 + 1,725 pairs, QQP", "GLUE's MRPC; smoke, and without data: synthetic sentences",
         "the common split; to run at all"),
        ("length, mrpc_length, vocabulary, encoder", "128 tokens of RoBERTa's vocabulary",
         "laptop: 64 tokens (96 on MRPC) of 2,000 that are trained on the set, which cut a tenth of QQP's pairs and a "
         "quarter of MRPC's; the shares are among the results", "time, and embeddings that few texts can train"),
        ("weights at the start (laptop)", "silent; RoBERTa's and GPT-2's are Gaussian, standard deviation 0.02",
         "as PyTorch's modules start, word vectors with standard deviation 1; the LSTM at any scale",
         "narrow models do not learn from the former. It decides the sensitivity before training, and how much noise "
         "before the norm is: 3.9 times the size of a word vector at the start, about 190 times with the paper's"),
        ("lr, decay", "AdamW, 1e-4; times 0.9 after each epoch for transformers in the released code",
         "laptop: 1e-3, constant", "fewer steps"),
        ("trained", "silent; the released code trains only the recurrent weights of the LSTM",
         "all; --set trained=recurrent for the other", "a fair comparison"),
        ("levels, every", "curves over examples seen, averaged over 100 and 200 evaluations",
         "at training accuracies .75, .85, .95, at the start and the end; raw",
         "models learn at different speeds"),
        ("inputs, texts", "408 and 640 texts, every token 3 times, pooled over tokens",
         "one random token of 600 texts, mean over texts; every token of 200 by position",
         "narrower for the same work"),
        ("place of the noise", "after the norm; in the released code before it for RoBERTa",
         "both for every model; in units of each token's size for GPT-2's kind, which has no norm",
         "what the gap rests on"),
        ("whole_variance", "0.5; in the released code 1 for the LSTM", "0.5 for all", "as printed"),
        ("accuracy", "compared at equal numbers of examples", "pairs of models whose training accuracies differ by at "
         f"most {NEAR:g}, at levels and at the end; other seeds are left out", "models learn at different speeds"),
        ("seeds", "silent", "laptop: 6, from 1000 on", "as many as the time allows; not used by any earlier run"),
        ("Fig 20", "the difference is 'less marginal' on validation texts", "read as: larger",
         "the sentence allows both"),
        ("EVEN, SIMILAR", "relatively uniform, similar", f"a lean within {EVEN:.2g}, gaps within {SIMILAR:g}; the lean "
         "is the difference of the last and the first quarter of a text over their sum",
         "chosen before the laptop run"),
        ("sparse attention", "softmax is more sensitive because its attention is sparse", "not judged",
         "a reason, not an observation"),
        ("shown", "none", "some texts, by their rows in the set", "pictures, drawn where the data are"),
    )  # fmt: skip
    claims = CLAIMS

    def trials(self, scale: str) -> list[Reader]:
        plan = dict(self.scales[scale].settings)
        sets, models, seeds, first = (plan.pop(name) for name in ("sets", "models", "seeds", "first_seed"))
        depths, mrpc_length = plan.pop("layers"), plan.pop("mrpc_length")
        unknown = [name for name in models if name not in NAMES]
        if unknown:
            raise InputError(f"there is no model {unknown[0]!r} in this study: give some of {', '.join(NAMES)}")
        found = []
        for reference in lab.available_sets(sets, SYNTHETIC):
            name = split_reference(reference)[0]
            small = {"encoder": "trained", "vocabulary": min(SMALL, plan["vocabulary"])}
            own = plan | (small if name == SYNTHETIC else {"length": mrpc_length} if name == "mrpc" else {})
            for seed, layers, model in itertools.product(range(first, first + seeds), depths, models):
                sweep = layers != depths[0]
                if sweep and (name == "mrpc" or model not in ("lstm", "roberta")):
                    continue  # the paper varies the depth of two models on QQP
                about = {"data": reference, "model": model, "layers": layers, "seed": seed, "sweep": sweep}
                found.append(Reader(**{**own, **about, "trained": own["trained"] if model == "lstm" else "all"}))
        return found

    def rows(self, trial: Reader, outcome: lab.Outcome) -> list[lab.Row]:
        plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in outcome.items()}
        names = {module: place for place, module in PLACES.items()}
        # Training accuracy at the end, beside every row: by it models are matched, also on validation texts.
        end = plain["accuracy"][plain["moment"].index("end")]
        about = {"set": split_reference(trial.data)[0], **trial.content(), END_ACCURACY: end}
        for own in ("levels", "variances"):
            about.pop(own)
        seen = dict(zip(plain["step"], plain.pop("seen"), strict=True))
        checkpoints: list[lab.Row] = []
        for part, start in (("training", ""), ("validation", "validation_")):
            columns = {name: plain[start + name] for name in COLUMNS}
            for row in checkpoint_rows(columns, {**about, "part": part}):
                checkpoints.append({**row, "place": names[row["place"]], "seen": seen[row["step"]]})
        rest = {name: value for name, value in plain.items() if name.removeprefix("validation_") not in COLUMNS}
        rest |= {"set": about["set"], END_ACCURACY: end, "moment": "positions"}
        return [*checkpoints, {**trial.content(), **rest}]

    def provenance(self, table: lab.Rows) -> list[str]:
        sentences = []
        if not table.where(lambda row: row["set"] in SETS):
            sentences.append("measured on synthetic sentences: the claims are about MRPC and QQP, and are left open")
        for (name, model), own in table.where(moment="positions", sweep=False).by("set", "model"):
            ends = table.where(set=name, moment="end", **of({"model": model})).column("sensitivity")
            printed = PRINTED.get((name, model))
            beside = f", printed {printed:g}" if printed is not None else ""
            accuracy = float(np.mean([row["test_accuracy"] for row in own]))
            sentences.append(
                f"{name}, {NAMES[model]}: sensitivity at the end {np.mean(ends):.3f}{beside}; accuracy on validation "
                f"texts {accuracy:.3f}, on training texts {np.mean(own.column(END_ACCURACY)):.3f}; {noise_size(own)}"
            )
        for name, own in table.where(moment="positions").by("set"):
            shares = [f"{np.mean(own.column(part)):.0%} of the {words}" for part, words in (
                ("cut", "training pairs"), ("validation_cut", "validation pairs"))]  # fmt: skip
            length = ", ".join(map(str, sorted(own.values("length"))))
            sentences.append(f"{name}: {' and '.join(shares)} have more than {length} tokens and are cut")
        return sentences

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        main = table.where(sweep=False)
        sets = [(name, main.where(set=name)) for name in (*SETS, SYNTHETIC) if main.where(set=name)]
        if not sets:
            return []
        noise: dict[str, Any] = {"part": "training", "kind": "noise", "place": "after"}
        curves = [examples_seen(own.where(variance=MAIN, **noise), name) for name, own in sets]
        levels = [by_level(own.where(variance=variance, **{**noise, "place": place}),
                           f"{name}, variance {variance:g}, {place} the norm")
                  for name, own in sets for place in PLACES for variance in (MAIN, 4.0)]  # fmt: skip
        places = [positions_panel(own.where(moment="positions"), name) for name, own in sets]
        figures = [
            lab.Figure("language", self.title, "Noise of variance 15 on one token, after the norm; a line for each "
                       "training: before it, at levels of training accuracy, and at the end.", curves, 2,
                       where="Fig 5"),
            lab.Figure("language-levels", "At equal training accuracy", "Means over seeds, bands from the smallest to "
                       "the largest; noise after the norm as in the paper, and before it.", levels, 4,
                       where="Figs 5, 19"),
            lab.Figure("language-positions", "By position", "Texts are aligned at their ends; noise of variance 15 on "
                       "each token once.", places, 2, where="Figs 6, 21"),
            lab.Figure("language-ends", "At the end of training", "A point for each training, and the paper's values.",
                       [end_values(own, name) for name, own in sets], 2, where="Figs 5, 20"),
        ]  # fmt: skip
        words = strips(main.where(lambda row: row["moment"] == "positions" and row["seed"] == min(main.values("seed"))))
        if words:
            caption = "How often noise on a token changes the answer; drawn where the texts are on this machine."
            if main.where(lambda row: row["set"] in SETS):
                caption += " MRPC and QQP may not be republished: a report without --data leaves their sentences out."
            figures.append(lab.Figure("language-words", "Which words", caption, words, 1, where="Fig 6"))
        return figures


STUDY = Language()
