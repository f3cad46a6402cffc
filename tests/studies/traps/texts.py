"""Traps for the studies of paper 004 on texts and on pretrained models, and tables on which their claims come out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from studies.traps.trap import Trap

from flipscope.lab import Rows
from flipscope.lab.rows import Row
from flipscope.lab.verdict import Verdict
from flipscope.studies.low_sensitivity import language, pretrained

Law = Callable[[Row], float]
SEEDS = 5

# ---------------------------------------------------------------- language

LEVEL = {"lstm": 0.2, "gpt2": 0.12, "roberta": 0.06, "roberta-relu": 0.03}
SIDES = {  # sensitivity to the first token, to the first and the last quarter, and to all others
    "lstm": (0.02, 0.05, 0.3, 0.15),
    "gpt2": (0.2, 0.05, 0.15, 0.1),
    "roberta": (0.4, 0.05, 0.055, 0.05),
    "roberta-relu": (0.1, 0.03, 0.03, 0.03),
}


def papers(row: Row) -> float:
    """Sensitivities as the paper describes them; with noise before the norm half as large."""
    value = LEVEL[row["model"]]
    if row["place"] == "before":
        value /= 2
    if row["part"] == "validation" and row["model"] == "roberta":
        value += 0.03
    if row["model"] == "roberta":
        value += 0.005 * (row["layers"] - 2)
    return value


def readers(
    law: Law = papers, sides: dict[str, tuple[float, ...]] = SIDES, *, seeds: int = SEEDS, moments: str = "all",
    sets: tuple[str, ...] = ("mrpc", "qqp"), learned: Law = lambda about: 1.0,
) -> Rows:  # fmt: skip
    """Trained models of all kinds on both sets, and of two kinds at another depth, with these sensitivities.

    `learned` is a model's training accuracy at the end.
    """
    found = Rows()
    for name in sets:
        for model in LEVEL:
            for layers in (2, 4) if name == "qqp" and model in ("lstm", "roberta") else (2,):
                for seed in range(seeds):
                    about: Row = {"set": name, "model": model, "layers": layers, "sweep": layers != 2, "seed": seed}
                    about["end_accuracy"] = learned(about)
                    found.extend(_checkpoints(about, law, moments))
                    if moments == "all":
                        numbers = [value + (0.002 * (seed - 2) if value else 0.0) for value in sides[model]]
                        ends = dict(zip(("first", "early", "late", "others"), numbers, strict=True))
                        found.append({**about, "moment": "positions", **ends})
    return found


def _checkpoints(about: Row, law: Law, moments: str) -> list[Row]:
    found = []
    places = [("start", None, 0.5, "training"), ("level", 0.8, 0.8, "training"), ("level", 0.9, 0.9, "training"),
              ("end", None, about["end_accuracy"], "training"), ("end", None, 0.7, "validation")]  # fmt: skip
    for moment, level, accuracy, part in places:
        if moments not in ("all", moment):
            continue
        for kind, variance in (("noise", 4.0), ("noise", 15.0), ("whole", 0.5)):
            for place in ("after", "before"):
                row = {**about, "moment": moment, "level": level, "accuracy": accuracy, "part": part, "kind": kind}
                row |= {"variance": variance, "place": place}
                jitter = 0.001 * ((7 * about["seed"] + len(about["model"])) % 3 - 1)
                found.append({**row, "sensitivity": law(row) + jitter})
    return found


def opposite(row: Row) -> float:
    """The order of the models reversed, and everything else too."""
    return 0.3 - papers(row) * (1.0 if row["place"] == "after" else 2.5)


def equal(row: Row) -> float:
    """No model, place or noise is more sensitive than another."""
    return 0.1


def with_whole(row: Row) -> float:
    """Noise on the whole text shows a gap many times as large."""
    return papers(row) * (4 if row["kind"] == "whole" else 1)


def deep(row: Row) -> float:
    """LSTMs lose their sensitivity with depth, and fall below the transformer; that one has less as well."""
    return papers(row) if row["layers"] == 2 else {"lstm": 0.01, "roberta": 0.03}[row["model"]]


def deep_lstm(row: Row) -> float:
    """LSTMs become much more sensitive with depth."""
    return papers(row) + (0.6 if row["model"] == "lstm" and row["layers"] > 2 else 0.0)


def relu_high(row: Row) -> float:
    """The model with ReLU attention is more sensitive than the LSTM at the end, on both kinds of texts."""
    return papers(row) + (0.5 if row["model"] == "roberta-relu" and row["moment"] == "end" else 0.0)


def norm_only(row: Row) -> float:
    """The gap rests on where the noise enters: before the norm the order is reversed."""
    return papers(row) if row["place"] == "after" else 0.25 - papers(row)


REVERSED = {model: (other[3], other[2], other[1], other[0]) for model, other in SIDES.items()}
CONSTANT = dict.fromkeys(SIDES, (0.0, 0.0, 0.0, 0.0))
LEANING = SIDES | {"roberta": (0.4, 0.02, 0.3, 0.1)}
RELU_LEANING = SIDES | {"roberta-relu": (0.1, 0.02, 0.3, 0.1)}
_untrained = partial(readers, moments="start")
_few = partial(readers, seeds=2)
_opposite = partial(readers, opposite)
_equal = partial(readers, equal)
_reversed = partial(readers, sides=REVERSED)
_unequal = partial(readers, learned=lambda about: {"lstm": 0.99, "gpt2": 0.93}.get(
    about["model"], 0.87 if about["model"] == "roberta" else 0.8))  # fmt: skip
_deep_fails = partial(readers, learned=lambda about: 1.0 if about["layers"] == 2 else 0.6)
_one_deep_fails = partial(
    readers, learned=lambda about: 1.0 if about["layers"] == 2 or about["model"] == "lstm" else 0.6
)
_synthetic = partial(readers, sets=("synthetic-paraphrases",))


def _language(name: str, *traps: tuple[str, Callable[[], Rows], Verdict]) -> list[Trap]:
    """The traps of a claim: its own, too few seeds, and models on synthetic sentences only."""
    common: list[tuple[str, Callable[[], Rows], Verdict]] = [
        ("two seeds with many texts each", _few, "undecided"),
        ("synthetic sentences", _synthetic, "undecided"),
    ]
    return [Trap("language", name, *trap) for trap in (*traps, *common)]


OPPOSITE = ("the order reversed", _opposite, "contradicted")
EQUAL = ("all models alike", _equal, "undecided")
UNTRAINED = ("untrained models", _untrained, "undecided")
UNEQUAL = ("models that have learned their texts to different accuracies", _unequal, "undecided")
RELU_HIGH = ("more than with softmax, but not with ReLU", partial(readers, relu_high), "contradicted")
_BOTH: tuple[Any, ...] = (OPPOSITE, EQUAL, UNTRAINED)
LANGUAGE = [
    *_language("LSTMs are more sensitive than RoBERTa's kind", *_BOTH, UNEQUAL, RELU_HIGH),
    *_language("LSTMs are more sensitive before training", OPPOSITE, EQUAL,
               ("no untrained models", partial(readers, moments="level"), "undecided")),
    *_language("ReLU attention is less sensitive than softmax", *_BOTH, UNEQUAL),
    *_language("the same with less noise", *_BOTH),
    *_language("the same on validation texts", *_BOTH, UNEQUAL, RELU_HIGH),
    *_language("softmax and ReLU differ more on validation texts", *_BOTH, UNEQUAL),
    *_language("GPT-2's kind lies between", *_BOTH),
    *_language("LSTMs are most sensitive to late tokens", ("early tokens", _reversed, "contradicted"), UNTRAINED),
    *_language("RoBERTa's kind is evenly sensitive", ("late tokens", partial(readers, sides=LEANING), "contradicted"),
               ("models that always give one answer", partial(readers, sides=CONSTANT), "undecided"), UNTRAINED),
    *_language("GPT-2's kind leans to recent tokens", ("early tokens", _reversed, "contradicted"), UNTRAINED, UNEQUAL,
               ("softmax leans more", partial(readers, sides=LEANING), "contradicted"),
               ("ReLU leans more", partial(readers, sides=RELU_LEANING), "contradicted"),
               ("all lean alike", partial(readers, sides=dict.fromkeys(SIDES, (0.2, 0.05, 0.15, 0.1))), "undecided"),
               ("models that always give one answer", partial(readers, sides=CONSTANT), "undecided")),
    *_language("softmax attention is sensitive to <s>", ("less than to others", _reversed, "contradicted"), UNTRAINED),
    *_language("ReLU attention is less sensitive to <s>",
               ("more", partial(readers, sides={**SIDES, "roberta-relu": (0.8, 0.03, 0.03, 0.03)}), "contradicted"),
               UNTRAINED, UNEQUAL),
    *_language("GPT-2's kind is sensitive to some <s>", ("less than to others", partial(
        readers, sides={**SIDES, "gpt2": (0.01, 0.05, 0.15, 0.1)}), "contradicted"), UNTRAINED),
    *_language("noise on the whole text gives a similar gap",
               ("a gap many times as large", partial(readers, with_whole), "contradicted"),
               ("no gap under either noise", _equal, "undecided"), UNTRAINED),
    *_language("RoBERTa's kind is less sensitive at every depth",
               ("only when shallow", partial(readers, deep), "contradicted"), EQUAL, UNTRAINED,
               ("a deep transformer that has not learned", _one_deep_fails, "undecided")),
    *_language("deeper transformers are slightly more sensitive", ("less", partial(readers, deep), "contradicted"),
               EQUAL, UNTRAINED, ("deep models that have not learned", _deep_fails, "undecided")),
    *_language("depth does not matter to the LSTM", ("less sensitive", partial(readers, deep), "contradicted"),
               ("more sensitive", partial(readers, deep_lstm), "contradicted"), UNTRAINED,
               ("deep models that have not learned", _deep_fails, "undecided")),
    *_language("the gap is there before the norm, too", ("reversed there", partial(readers, norm_only), "contradicted"),
               EQUAL, UNTRAINED),
    *_language("the released code's place makes RoBERTa's kind look less sensitive",
               ("more before the norm", partial(readers, norm_only), "contradicted"), EQUAL, UNTRAINED),
    *_language("with the released code's places the LSTM is more sensitive", OPPOSITE, EQUAL, UNTRAINED),
]  # fmt: skip


# ---------------------------------------------------------------- pretrained


def classifiers(cnn: float, transformer: float, *, models: int = 4, variance: float = 15.0) -> Rows:
    """Networks of both families on photographs; under weaker noise the order is reversed."""
    pairs = (("cnn", cnn, transformer), ("transformer", transformer, cnn))
    return Rows(
        {"kind": "images", "set": "imagenet-sample", "family": family, "model": f"{family} {number}",
         "variance": noise, "sensitivity": value + 0.001 * number}
        for family, strong, weak in pairs
        for number in range(models)
        for noise, value in ((1.0, weak), (variance, strong))
    )  # fmt: skip


def encoders(
    average: float, more: float, fewer: float, *, before: float = 0.05, pairs: int = 400, right: float = 0.7
) -> Rows:
    """MiniLM and its average: for each the share of pairs whose answers change; `before` is MiniLM's at its best.

    `right` is the accuracy of MiniLM with fewer duplicates; all others have .7.
    """

    def shares(share: float) -> list[float]:
        return [float(place < share * pairs) for place in range(pairs)]

    found = Rows()
    for place, best in (("after", more), ("before", before)):
        columns = {"average": average, "best": best, "more": more, "fewer": fewer}
        row = {"kind": "questions", "model": pretrained.ENCODER, "place": place}
        row |= {f"accuracy_{name}": right if name == "fewer" else 0.7 for name in columns}
        found.append({**row, **{f"shares_{name}": shares(value) for name, value in columns.items()}})
    return found


KINDS_OF_MODELS, AVERAGE, NORM = (claim.name for claim in pretrained.CLAIMS)
PRETRAINED = [
    Trap("pretrained", KINDS_OF_MODELS, "transformers are more sensitive", lambda: classifiers(0.02, 0.05),
         "contradicted"),
    Trap("pretrained", KINDS_OF_MODELS, "one model of each kind on many images", lambda: classifiers(
        0.05, 0.02, models=1), "undecided"),
    Trap("pretrained", KINDS_OF_MODELS, "no transformer", lambda: classifiers(0.05, 0.02).where(family="cnn"),
         "undecided"),
    Trap("pretrained", KINDS_OF_MODELS, "one model of each kind, measured four times", lambda: Rows(
        {**row, "model": row["family"]} for row in classifiers(0.05, 0.02)), "undecided"),
    Trap("pretrained", KINDS_OF_MODELS, "less sensitive under another noise only", lambda: classifiers(
        0.05, 0.02, variance=4.0), "undecided"),
    Trap("pretrained", KINDS_OF_MODELS, "models of unknown families", lambda: Rows(
        {**row, "family": ""} for row in classifiers(0.05, 0.02)), "undecided"),
    Trap("pretrained", AVERAGE, "less sensitive, but not as accurate", lambda: encoders(0.5, 0.2, 0.15, right=0.6),
         "undecided"),
    Trap("pretrained", AVERAGE, "more sensitive", lambda: encoders(0.1, 0.3, 0.3), "contradicted"),
    Trap("pretrained", AVERAGE, "less only because few pairs are called duplicates", lambda: encoders(0.2, 0.5, 0.02),
         "contradicted"),
    Trap("pretrained", AVERAGE, "alike", lambda: encoders(0.2, 0.2, 0.2), "undecided"),
    Trap("pretrained", AVERAGE, "an encoder with random weights", lambda: Rows(
        {**row, "model": pretrained.ENCODER_STAND_IN} for row in encoders(0.4, 0.1, 0.1)), "undecided"),
    Trap("pretrained", NORM, "the norm makes it worse", lambda: encoders(0.3, 0.1, 0.1, before=0.6), "contradicted"),
    Trap("pretrained", NORM, "alike", lambda: encoders(0.3, 0.1, 0.1, before=0.1), "undecided"),
    Trap("pretrained", NORM, "one place only", lambda: encoders(0.3, 0.1, 0.1).where(place="after"), "undecided"),
]  # fmt: skip


def good(study: str, claim: str) -> Rows:
    """A table on which the claim is reproduced."""
    if study == "language":
        return readers()
    return classifiers(0.05, 0.02) if claim == KINDS_OF_MODELS else encoders(0.5, 0.2, 0.15)


STUDIES = (language.STUDY, pretrained.STUDY)
