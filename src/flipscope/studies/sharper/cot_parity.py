"""PARITY learned with a chain of thought and in one pass, by the length, and the bounds of both (§ 3, App. G).

A chain of thought writes the parity of the first bit, of the first two, and so on: each step has degree 2, whatever the
length T is, while the whole parity has degree T. One model is trained both ways, the network constructed in App. G is
tested on strings, and the bounds of Thms 7 and 8 are computed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import torch
from torch import Tensor

import flipscope.lab as lab
from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.estimates import Estimate
from flipscope.basics.seeds import random_strings
from flipscope.bounds.pac_bayes import parity_failure
from flipscope.constructions import chain_of_thought
from flipscope.data.steps import START, StepsData, Way, write_steps
from flipscope.lab import quantities
from flipscope.models.modes import eval_mode
from flipscope.models.transformer import Block, Transformer
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.sharper import parity_recipe

BOUNDS = (3, 4, 6, 8, 12, 16, 20, 32, 64)  # lengths: the bounds cost nothing
ALL = 12  # bits up to which the constructed network is tested on every string
ATTENDED = 256  # strings on which attention is measured
_FRESH = 0x70617269  # sets the strings of an evaluation apart from those of the training
SUBGAUSSIAN = 0.01  # Sigma of the bounds

RIGHT = 0.99  # share of right parities from which on it is learned
CHANCE = 0.55  # share of right parities up to which it is at chance
MODELS = 7  # fewest of each way at a length that counts: with fewer no interval distinguishes most from half
CHAINS = 3  # fewest chains that learned, for a mean of their attention
LENGTHS = 3
ROUNDING = 1e-9  # of numbers that are computed, not sampled
LOG_ROUNDING = 1e-6  # of exponents of increments, which are differences of logarithms
NAMES: dict[str, str] = {"steps": "chain of thought", "one-pass": "one pass"}
APART = 0.25  # bits between the marks of the two ways


# ---------------------------------------------------------------- measurements


@dataclass(frozen=True)
class Learned(lab.TrainedTrial):
    """One training, with a chain of thought or in one pass."""

    tag = "learned"

    way: Way
    length: int
    seed: int
    steps: int
    batch: int
    lr: float
    width: int = 64
    strings: int = 4_000

    @property
    def recipe(self) -> Recipe:
        return parity_recipe(
            self.way, self.length, self.seed, steps=self.steps, batch=self.batch, lr=self.lr, width=self.width
        )

    @property
    def cost(self) -> float:
        """A chain reads twice as many tokens."""
        return super().cost * (2 if self.way == "steps" else 1)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """How many parities of fresh strings are right, each step being written by the model itself."""
        trained = lab.trained(self.recipe, progress)
        model = trained.transformer
        bits = torch.from_numpy(_strings(self.length, self.strings, self.seed))
        wanted = bits.long().sum(dim=1) % 2
        of_chain: dict[str, float | list[float] | None] = {}
        if self.way == "steps":
            written = write_steps(model, bits)
            answers = written[:, -1]
            of_chain["step_errors"] = (written != bits.long().cumsum(dim=1) % 2).double().mean(dim=0).tolist()
            of_chain["attention"] = same_place_attention(model, bits[:ATTENDED])
        else:
            answers = (_outputs(model, bits) > 0.5).long()
        return {
            **of_chain,
            "right": int((answers == wanted).sum()),
            "asked": len(bits),
            "epochs": [line.steps for line in trained.history],
            "losses": [line.validation_loss for line in trained.history],
            "stopped": trained.fitted.stopped,
            "seconds": trained.fitted.seconds,
        }


@dataclass(frozen=True)
class Written(lab.Trial):
    """The network of App. G on all strings, or on random ones."""

    tag = "written"

    written: int  # bits
    strings: int = 4_000

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """How often the network of App. G is wrong, at the end and at any step."""
        length = self.written
        bits = index_bits(0, 1 << length, length) if length <= ALL else _strings(length, self.strings, 0)
        given = torch.from_numpy(bits)
        steps = chain_of_thought.write_steps(chain_of_thought.parity_steps(length), given)
        wrong = steps != given.long().cumsum(dim=1) % 2
        return {"wrong": int(wrong[:, -1].sum()), "wrong_anywhere": int(wrong.any(dim=1).sum()), "strings": len(bits)}


@dataclass(frozen=True)
class Bounded(lab.Trial):
    """The bounds of Thms 7 and 8."""

    tag = "bounded"

    bits: int
    samples: int

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Both bounds at the sigma that is best for the chain, and the samples from which each says something."""
        chain = parity_failure("steps", self.bits, self.samples)
        bounds = {
            "chain": chain,
            "pass": parity_failure("one-pass", self.bits, self.samples, sigma=chain.sigma),
            "network": parity_failure("steps", self.bits, self.samples, norm="construction"),
        }
        best = parity_failure("one-pass", self.bits, self.samples)
        m = self.samples
        return {
            "sigma": chain.sigma,
            **{f"log_{name}": each.log_probability for name, each in bounds.items()},
            "log_pass_best": best.log_probability,
            **{f"needed_{name}": each.samples_needed for name, each in bounds.items()},
            # The exponent without the common term -m / 8 Sigma^2 and without the prefactor.
            **{
                f"core_{name}": m * chain.sigma**2 * each.gradient_bound / (2 * SUBGAUSSIAN**2)
                + each.norm_bound / (2 * chain.sigma**2)
                for name, each in bounds.items()
            },
        }


@torch.no_grad()
def _outputs(model: Transformer, bits: Tensor) -> Tensor:
    """The model's outputs at START, after all bits."""
    with eval_mode(model):
        read = torch.cat([bits.long(), torch.full((len(bits), 1), START)], dim=1)
        return torch.cat([model(part) for part in read.split(512)])


def _strings(length: int, strings: int, seed: int) -> Bits:
    return random_strings(np.random.default_rng([seed, length, _FRESH]), strings, length)


@torch.no_grad()
def same_place_attention(model: Transformer, bits: Tensor) -> float:
    """The share of attention that a step pays to the tokens of its own place, bit i and step i - 1.

    It is averaged over steps and strings, in the layer and head where it is largest, with the correct steps as input.
    In the network of App. G it is nearly 1.
    """
    length = bits.shape[1]
    read = torch.from_numpy(StepsData(length=length, way="steps").examples(bits.numpy()).bits).long()
    rows = torch.arange(length)
    most = 0.0
    with eval_mode(model):
        for x, block in zip(model.states(read), model.blocks, strict=False):
            assert isinstance(block, Block)
            heads = block.attention
            query, key = heads.split(heads.query(x[:, length:])), heads.split(heads.key(x))
            visible = heads.visible(x, slice(length, None))
            weights = heads.weights(heads.scores(query, key), visible)  # [string, head, step, token]
            same_place = weights[:, :, rows, rows] + weights[:, :, rows, length + rows]
            most = max(most, float(same_place.mean(dim=(0, 2)).max()))
    return most


# ---------------------------------------------------------------- claims


def right_share(row: lab.Row) -> float:
    """The share of fresh strings whose parity is right."""
    return float(row["right"] / row["asked"])


def has_learned(row: lab.Row) -> bool:
    """Whether nearly all parities are right."""
    return right_share(row) >= RIGHT


def at_chance(row: lab.Row) -> bool:
    """Whether hardly more parities are right than by guessing."""
    return right_share(row) <= CHANCE


def judge_gap(table: lab.Rows) -> lab.Judgement:
    """At some length most chains learn, and most single passes stay at chance.

    Lengths with too few models of a way do not count; the longest must count, since that is where a single pass has
    most to learn.
    """
    rows = table.having("way")
    if not rows:
        return lab.Judgement.without("no model is done")
    by_length = list(rows.by("length"))
    large = [
        (length, models)
        for length, models in by_length
        if min(len(of_way) for _, of_way in models.each("way", NAMES)) >= MODELS
    ]
    if not large or large[-1][0] != by_length[-1][0]:
        longest, models = by_length[-1]
        counts = ", ".join(f"{len(of_way)} by {NAMES[way]}" for way, of_way in models.each("way", NAMES))
        return lab.Judgement.without(f"too few models at T = {longest}: {counts}", f"at least {MODELS} each way")
    confidence = lab.confidence(len(NAMES) * len(large))
    judged = [_at_length(length, models, confidence) for length, models in large]
    order = ("reproduced", "undecided", "contradicted")
    best = min(reversed(judged), key=lambda each: order.index(each.verdict))  # the longest of these
    lengths = [str(length) for (length, _), each in zip(large, judged, strict=True) if each.verdict == "reproduced"]
    parts = tuple(part for each in judged for part in each.parts)
    note = f"{best.note}; so at T = {', '.join(lengths)}" if lengths else best.note
    return replace(best, parts=parts, note=note)


def _at_length(length: int, rows: lab.Rows, confidence: float) -> lab.Judgement:
    """Whether most chains have learned the parity of this length, and most single passes are at chance."""
    chains, passes = (rows.where(way=way) for way in NAMES)
    return lab.all_of(
        [
            lab.of_models(
                chains, has_learned, "most", f"share of chains that learn, T = {length}", confidence=confidence
            ),
            lab.of_models(
                passes, at_chance, "most", f"share of single passes at chance, T = {length}", confidence=confidence
            ),
        ]
    )


def judge_chain(table: lab.Rows) -> lab.Judgement:
    """Most chains learn, and at every length some do."""
    rows = table.where(way="steps")
    if not rows:
        return lab.Judgement.without("no model is done")
    by_length = list(rows.by("length"))
    for count, fewest, what in ((len(by_length), LENGTHS, "lengths"), (len(rows), MODELS, "chains")):
        if count < fewest:
            return lab.Judgement.without(f"too few {what}: {count}", f"at least {fewest} {what}")
    confidence = lab.confidence(1 + len(by_length))
    most = lab.of_models(rows, has_learned, "most", "share of chains that learn, all lengths", confidence=confidence)
    some = [
        lab.of_models(chains, has_learned, "some", f"share of chains that learn, T = {length}", confidence=confidence)
        for length, chains in by_length
    ]
    stuck = [f"T = {row['length']}, seed {row['seed']}" for row in rows if not has_learned(row)]
    judged = lab.all_of([most, *some])
    return replace(judged, note=f"{judged.note}; not learned: {'; '.join(stuck)}") if stuck else judged


def judge_written(table: lab.Rows) -> lab.Judgement:
    """The network of App. G is right on every string at every step."""
    rows = table.having("wrong_anywhere")
    note = f"T = {', '.join(map(str, rows.values('written')))}" if rows else ""
    wrong, strings = rows.total("wrong_anywhere"), rows.total("strings")
    return lab.never(wrong, strings, "share of strings with a wrong step, network written down", note)


def judge_factor(factor: float) -> lab.Judge:
    """A judge: the exponent of one pass is at least factor * T times the chain's, and the ratio grows with T."""

    def judge(table: lab.Rows) -> lab.Judgement:
        rows = lab.Rows({**row, "quotient": row["core_pass"] / row["core_chain"]} for row in table.having("core_pass"))
        words = "exponent of one pass over that of the chain"
        cases = [(row["quotient"] / (factor * row["bits"]), row["bits"]) for row in rows]
        if odd := [at for quotient, at in cases if math.isnan(quotient)]:
            return lab.Judgement.without(f"{words}: not a number at T = {odd[0]}")
        growing = (growth_exponent("quotient", f"the {words}") >= 1 - ROUNDING)(rows)
        if growing.measured is None:
            return growing
        least, at = min(cases)
        above = lab.at_least(
            lab.exactly(least),
            1 - ROUNDING,
            f"{words}, over {factor:g} T, least",
            f"at T = {at}, of {len(cases)} lengths",
        )
        return lab.all_of([above, growing])

    return judge


def growth_exponent(column: str, words: str) -> lab.Quantity:
    """The exponent of T in a column between neighbouring lengths, the least of them."""

    def exponents(rows: lab.Rows) -> list[float]:
        slopes = np.diff([math.log(row[column]) for row in rows]) / np.diff([math.log(row["bits"]) for row in rows])
        return [float(slope) for slope in slopes]

    return _extreme(column, f"exponent of T in {words}", "the least between neighbouring T", exponents, min, 1)


def added_exponent(column: str, words: str, *, log: bool) -> lab.Quantity:
    """The exponent of T in the increase per bit of a column, or of its exponential: at most 0 for linear growth.

    The exponent of T in the column itself would be small next to any intercept, however fast the rest grows.
    """

    def exponents(rows: lab.Rows) -> list[float]:
        lengths = [float(row["bits"]) for row in rows]
        slopes = _steepening(lengths, [row[column] if log else math.log(row[column]) for row in rows])
        return [slope if abs(slope) > LOG_ROUNDING else 0.0 for slope in slopes]

    which = "the largest from one pair of neighbouring T to the next"
    return _extreme(column, f"exponent of T in what a bit adds to {words}", which, exponents, max, 2)


def _extreme(
    column: str,
    words: str,
    which: str,
    exponents: Callable[[lab.Rows], list[float]],
    worst: Callable[[list[float]], float],
    span: int,
) -> lab.Quantity:
    """The worst of the exponents that follow from a column at all lengths, each from `span` neighbouring steps."""

    def estimate(rows: lab.Rows, confidence: float) -> Estimate | str:
        if len(rows) < LENGTHS:
            return f"bounds at {len(rows)} lengths"
        values = [row[column] for row in rows]
        # Infinite numbers have no exponents.
        if any(map(math.isnan, values)) or any(map(math.isnan, exponents(rows))):
            return f"not a number at one of {len(rows)} lengths"
        return lab.exactly(worst(exponents(rows)))

    def note(rows: lab.Rows) -> str:
        place = exponents(rows).index(worst(exponents(rows)))
        return f"from T = {rows[place]['bits']} to {rows[place + span]['bits']}"

    def by_length(table: lab.Rows) -> lab.Rows:
        return lab.Rows(sorted(table.having(column), key=lambda row: row["bits"]))

    return lab.Quantity(words, estimate, "lengths", chosen=by_length, group_words=which, note=note)


def _steepening(lengths: Sequence[float], logs: Sequence[float]) -> list[float]:
    """Exponents of T in the increase per bit of exp(logs), from one pair of neighbouring lengths to the next."""
    added = [
        high + math.log(-math.expm1(low - high)) - math.log(longer - shorter) if high > low else -math.inf
        for (low, high), (shorter, longer) in zip(itertools.pairwise(logs), itertools.pairwise(lengths), strict=True)
    ]
    middles = [math.log((shorter + longer) / 2) for shorter, longer in itertools.pairwise(lengths)]
    return [
        0.0 if later == -math.inf else (later - earlier) / (after - before)  # an increase of 0 does not grow
        for (earlier, later), (before, after) in zip(
            itertools.pairwise(added), itertools.pairwise(middles), strict=True
        )
    ]


SAME_PLACE = quantities.mean(
    lab.Column("attention to bit i and step i - 1", lambda row: row["attention"]), fewest=CHAINS
).where("chains that learned", has_learned, way="steps")
CLAIMS = (
    lab.Claim(
        "a chain of thought learns where one pass fails",
        "§ 3",
        "PARITY is learnable with intermediate parities written out, and not without them",
        f"at some T with {MODELS} or more models each way, the longest among these: share of chains that have at "
        f"least {RIGHT:g} of parities right, written by themselves, and share of single passes that have at most "
        f"{CHANCE:g}, with the same model, steps and strings: at least a half each",
        judge_gap,
        decided_from="laptop",
    ),
    lab.Claim(
        "a chain of thought learns at every length",
        "§ 3",
        "each step has degree 2, whatever T",
        f"share of chains, of all T, that have at least {RIGHT:g} of parities right: at least a half; and at every "
        "T some chain has",
        judge_chain,
        decided_from="laptop",
    ),
    lab.Claim(
        "the network written down is right",
        "App. G",
        "a network of degree 2 with positions of period T writes every parity without error",
        "share of strings with a wrong step: never",
        judge_written,
    ),
    lab.Claim(
        "the exponent of one pass is T/2 times that of the chain",
        "Thms 7, 8",
        "gradient and norm bounds are superlinear in the degree, which is T in one pass and 2 in the chain",
        "exponent without what both have, at the chain's best sigma: at least T/2 times the other's at every T; "
        "exponent of T in their quotient, between neighbouring T: at least 1",
        judge_factor(0.5),
    ),
    lab.claim(
        "the bound of one pass grows exponentially",
        "Thm 8",
        "in one pass the bound on the error is exponential in T",
        growth_exponent("core_pass", "the exponent of one pass, but for what both have") >= 1 - ROUNDING,
    ),
    lab.claim(
        "the bound of the chain grows linearly",
        "Thm 7",
        "with a chain of thought the bound on the error is linear in T",
        added_exponent("log_chain", "the bound of the chain", log=True) <= 0.0,
    ),
    lab.Claim(
        "the exponent of one pass is T times that of the chain",
        "Thm 8, as read by others",
        "the same with a factor of T",
        "the same: at least T times the other's at every T",
        judge_factor(1.0),
        exploratory=True,
    ),
    lab.claim(
        "the chain needs no more than linearly many samples",
        "Thm 7",
        "not stated: the number of samples from which the bound is below 1, with the norm that the network has",
        added_exponent("needed_network", "the samples needed", log=False) <= 0.0,
        exploratory=True,
    ),
    lab.claim(
        "chains attend as the network written down does",
        "App. G",
        "not stated: whether a learned step attends to the tokens of its own position",
        (SAME_PLACE >= 0.5).saying(
            "attention to bit i and step i - 1 by the head that pays most, mean of chains that learned: at least a half"
        ),
        exploratory=True,
        decided_from="laptop",
    ),
)


# ---------------------------------------------------------------- figures


def figure_of_models(table: lab.Rows, title: str) -> lab.Figure:
    """The share of right parities against the length, and how the loss went at the longest."""
    rows = table.having("way")
    right = [
        lab.estimates(
            NAMES[way],
            [row["length"] + APART * (2 * colour - 1) for row in models],
            [lab.share(row["right"], row["asked"]) for row in models],
            "points",
            colour=colour,
        )
        for colour, (way, models) in enumerate(rows.each("way", NAMES))
        if models
    ]
    written = table.having("wrong")
    if written:
        shares = [1 - row["wrong"] / row["strings"] for row in written]
        lengths = written.column("written")
        right.append(lab.Series("network written down", lengths, shares, "line", dashed=True, colour=2))
    rules = [lab.Rule(0.5, "chance")]
    panels = [lab.Panel("", "length T", "share of right parities", right, y_range=(0.4, 1.02), rules=rules)]
    longest = rows.where(length=max(rows.column("length"), default=0))
    along = lab.Rows(
        [
            {"way": row["way"], "step": step, "loss": loss}
            for row in longest
            for step, loss in zip(row["epochs"], row["losses"], strict=True)
        ]
    )
    if along:
        label = f"squared error on validation strings, T = {longest[0]['length']}"
        rules = [lab.Rule(0.25, "says 1/2")]
        panels.append(lab.chart(along, "step", "loss", by="way", labels=NAMES, y_label=label, rules=rules))
    caption = (
        "Left: a point per model with its 95 % interval, parities of fresh strings, every step written by the model. "
        "Right: means over models, with bands to the least and largest; of a chain over all its tokens, of which the "
        "bits are half."
    )
    return lab.Figure("parities", title, caption, panels, where="§ 3")


def figure_of_bounds(table: lab.Rows) -> lab.Figure:
    """Samples from which each bound says something, and the exponents."""
    rows = table.having("needed_chain")
    lines = [
        lab.line(rows, "bits", f"needed_{name}", label, band=False, colour=colour, dashed=name == "network")
        for colour, (name, label) in enumerate(
            (("chain", "chain of thought"), ("pass", "one pass"), ("network", "chain, norm of the network"))
        )
    ]
    exponents = [
        lab.line(rows, "bits", f"core_{name}", label, band=False, colour=colour)
        for colour, (name, label) in enumerate((("chain", "chain of thought"), ("pass", "one pass")))
    ]
    rules = [lab.Rule(float(samples), "strings of a training") for samples in rows.values("samples")]
    panels = [
        lab.Panel("", "length T", "samples needed", lines, x_log=True, y_log=True, rules=rules),
        lab.Panel("", "length T", "exponent of the bound", exponents, x_log=True, y_log=True),
    ]
    caption = (
        "Left: samples from which the bound on a wrong parity is below 1. Right: the exponent of the bound but for "
        "-m / 8 Σ², at the σ that is best for the chain. Both bounds are for a training loss of 0."
    )
    return lab.Figure("bounds", "Bounds of PARITY with and without a chain of thought", caption, panels, where="Thm 16")


# ---------------------------------------------------------------- the study


class CotParity(lab.Study):
    """Whether PARITY is learned step by step where it is not learned at once, and what the bounds say of it."""

    name, paper = "cot-parity", "002"
    title = "PARITY with a chain of thought and in one pass"
    figures = ("Thms 7, 8, 16",)
    sample_sizes = ("longest", "passes")
    scales = lab.scales(
        "{seeds} models each way for T in {lengths}, {longest} for the longest, {steps} steps of {batch} strings",
        smoke=(0.1, {"lengths": (4, 5), "seeds": 1, "longest": 1, "first_seed": 0, "steps": 10, "batch": 16, "lr": 1e-3}
               | {"width": 16, "strings": 200, "passes": 400}),
        # Seeds from 1,000 on: those from 0 on were judged by an earlier criterion, on every model.
        laptop=(17, {"lengths": (4, 8, 12, 16, 20), "seeds": 3, "longest": 10, "first_seed": 1_000, "steps": 1_500}
                | {"batch": 128, "lr": 1e-3, "passes": 20_000}),
        paper=(1_500, {"lengths": (4, 8, 12, 16, 20, 30, 40), "seeds": 10, "longest": 10, "first_seed": 0}
               | {"steps": 20_000, "batch": 256, "lr": 1e-3, "passes": 20_000}),
    )  # fmt: skip
    deviations = lab.deviations(
        ("experiment", "none: Thms 7, 8 and 16 are theorems", "one model trained both ways", "to test them"),
        ("model", "2 layers, no norm, one MLP", "paper 001's, causal, positions of period T",
         "the paper's learned no chain of T = 20 in 1,500 steps at three settings; chosen by chains, not by passes"),
        ("budget", "m samples of all steps jointly", "the same strings and steps", "a string has T steps to learn"),
        ("labels at the bits", "not stated", "the bit itself: parity of its place so far", "each token has an answer"),
        ("learned, chance", "not stated", f"at least {RIGHT:g}; at most {CHANCE:g}", "of fresh strings"),
        ("learnable", "does not say how often", "by most models; one that is stuck is shown", "of many seeds some are"),
        ("learner", "norm and trace penalised (Def 1)", "AdamW, weight decay 1e-4, lr 1e-3", "as is usual"),
        ("factor of exponents", "T (by a reading of it)", "T/2 judged; T beside it", "T fails at T = 3"),
        ("linear in T", "L(1, 2, T) taken for a constant", "with its log² T, over 2σ²", "4T alone is linear"),
        ("sigma", "the same at every T", "the one that is best for the chain at each T", "a bound at its best"),
        ("lengths, seeds, steps, batch (laptop)", "none; up to 40, 10, 20,000, 256 (paper scale)",
         "up to 20, 3 from the first seed 1,000 on, 10 at the longest T, 1,500, 128", "minutes; no look used these"),
        ("norm of the network", "L(1, 2, T)", "the same, and the one it has beside it", "T entries, not one"),
    )  # fmt: skip
    claims = CLAIMS

    def trials(self, scale: str) -> list[Learned | Written | Bounded]:
        plan = dict(self.scales[scale].settings)
        lengths, first = plan.pop("lengths"), plan.pop("first_seed")
        counts = dict.fromkeys(lengths, plan.pop("seeds")) | {lengths[-1]: plan.pop("longest")}
        samples = plan["steps"] * plan["batch"]
        more = {"one-pass": {"strings": plan.pop("passes")}}  # near chance more strings are needed
        models = [
            Learned(way, n, seed, **(plan | more.get(way, {})))
            for way, n in itertools.product(get_args(Way), lengths)
            for seed in range(first, first + counts[n])
        ]
        return [*models, *map(Written, lengths), *(Bounded(bits, samples) for bits in BOUNDS)]

    def provenance(self, table: lab.Rows) -> list[str]:
        rows = table.having("way")
        done = rows.where(has_learned)
        by_way = rows.each("way", NAMES)
        counts = [f"{len(done.where(way=way))} of {len(models)} {NAMES[way]}" for way, models in by_way]
        seconds = [f"{sum(models.column('seconds')):.0f} s {NAMES[way]}" for way, models in by_way]
        return [
            f"at least {RIGHT:g} of parities right: {', '.join(counts)}; all are in the figure and are judged",
            f"time of all trainings: {', '.join(seconds)}; a step of a chain reads up to twice as many tokens",
        ]

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return [figure_of_models(table, self.title), figure_of_bounds(table)]


STUDY = CotParity()
