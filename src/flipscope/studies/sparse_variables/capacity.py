"""Covering numbers by length and depth, the capacity that constructions need, and bounds against measured gaps.

Five kinds of trials: the covering theorems evaluated at norms of 1; the class that holds a construction of App. B, at
lengths that can be built and at astronomically large ones; pairs of networks that differ by a perturbation; and trained
networks, whose gap is compared with the bound at their own norms (Lem 2.2).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.nn.functional import binary_cross_entropy_with_logits

import flipscope.lab as lab
from flipscope.basics.estimates import Estimate
from flipscope.basics.resampling import straight_line
from flipscope.bounds.covering import (
    Cover,
    HeadNorms,
    MatrixNorms,
    NetworkNorms,
    heads_cover,
    layer_factor,
    log_amplifications,
    matrix_cover,
    network_cover,
    norms_of,
    summary,
)
from flipscope.constructions.sparse_variables import construct
from flipscope.cube.expression import parse
from flipscope.data.languages import LabelledStrings, draw
from flipscope.models.attention_network import AttentionNetwork
from flipscope.models.attention_network_config import AttentionNetworkConfig
from flipscope.training.fit import fit

Result = Literal["Lem 4.5", "Cor 4.4", "Lem A.11", "Lem A.12", "Thm A.17"]
RESULTS: tuple[Result, ...] = ("Lem 4.5", "Cor 4.4", "Lem A.11", "Lem A.12", "Thm A.17")
Mapping = Literal["deterministic", "bag"]
MAPPINGS: tuple[Mapping, ...] = ("deterministic", "bag")
WIDTH, SAMPLES, HEADS = 64, 100, 4
FUNCTION = "x1 & x2 & x3"
TEST = 4_000  # strings on which the loss of a trained network is measured
STRINGS = 500  # of these that are evaluated together
RATE = 0.01
PERTURBED_WIDTH, TOKENS = 3, 4
LIMITS = (2**256, 2**512)  # lengths at which only the fastest-growing term counts
LONGEST_BUILT = 256  # bits; beyond this the norms of constructions come from formulas, without matrices


@dataclass(frozen=True)
class Formula(lab.Trial):
    """A result at norms of 1, for strings of a length and networks of a depth."""

    tag = "formula"
    result: Result
    length: int
    layers: int = 1

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """ln N at eps = 1 with all constants, by the largest norms of rows, and the order without them."""
        one = MatrixNorms(WIDTH, 1.0, 1.0, float(WIDTH))
        count = SAMPLES * (self.length + 1)
        if self.result == "Lem 4.5":
            return {"log_size": math.log(matrix_cover(WIDTH, 1.0, 1.0, count, largest=1.0))}
        covers: dict[str, Cover] = {
            "Cor 4.4": heads_cover([HeadNorms(one, one)]),
            "Lem A.11": heads_cover([HeadNorms(one, one)], positions=1.0),
            "Lem A.12": heads_cover([HeadNorms(one, one)] * HEADS),
            "Thm A.17": network_cover(NetworkNorms.uniform(self.layers, WIDTH)),
        }
        cover = covers[self.result]
        size = cover.log_size(0.0, math.log(SAMPLES), self.length, "rows").item()
        return {"log_size": size, "log_order": cover.log_order()}


@dataclass(frozen=True)
class Constructed(lab.Trial):
    """The head that App. B constructs for `relevant` bits, in an orthonormal basis."""

    tag = "constructed"
    mapping: Mapping
    length: int
    relevant: int

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """ln N of the class that holds the construction, at eps = 1, by both forms of Lem 4.5."""
        if self.length <= LONGEST_BUILT:
            head, radius = built_head(self.mapping, self.length, self.relevant)
        else:
            width = self.length + (3 if self.mapping == "deterministic" else 1)
            head, radius = constructed_head(self.mapping, math.log(self.length), width, self.relevant)
        cover = heads_cover([head], radius=radius)
        sizes = {form: cover.log_size(0.0, math.log(SAMPLES), self.length, form).item() for form in ("rows", "sums")}
        return {"log_rows": sizes["rows"], "log_sums": sizes["sums"]}


@dataclass(frozen=True)
class Limit(lab.Trial):
    """The same head at the lengths T = 2^256 and 2^512."""

    tag = "limit"
    mapping: Mapping
    relevant: int

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """The power of ln T in ln N by sums of norms between the two lengths: with all constants, and of the order."""
        logs, sizes, orders = [], [], []
        for length in LIMITS:
            logs.append(math.log(length))
            width = length + (3 if self.mapping == "deterministic" else 1)
            head, radius = constructed_head(self.mapping, logs[-1], width, self.relevant)
            cover = heads_cover([head], radius=radius)
            sizes.append(cover.log_size(0.0, math.log(SAMPLES), length, "sums").item())
            orders.append(cover.log_order("sums") + math.log(math.log(SAMPLES) + logs[-1]))
        doubled = math.log(logs[1] / logs[0])
        return {"power": (sizes[1] - sizes[0]) / doubled, "power_of_order": (orders[1] - orders[0]) / doubled}


@dataclass(frozen=True)
class Perturbed(lab.Trial):
    """Pairs of networks of two layers."""

    tag = "perturbed"
    seed: int
    pairs: int

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """For how many pairs the change exceeds the bound of A.17, with the correct product and the printed one."""
        rng = np.random.default_rng(self.seed)
        config = AttentionNetworkConfig(
            length=TOKENS,
            width=PERTURBED_WIDTH,
            layers=2,
            activation="relu",
            normalise=True,
            mapping="bag",
            basis="random",
        )
        ours, theirs = (AttentionNetwork(config, dtype=torch.float64) for _ in range(2))
        over: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(self.pairs):
            for layer in range(2):
                size, step = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-3, 0)
                for name in ("query", "key", "value", "mix"):
                    first = size * rng.normal(size=(PERTURBED_WIDTH, PERTURBED_WIDTH))
                    for model, matrix in ((ours, first), (theirs, first + step * rng.normal(size=first.shape))):
                        getattr(model.heads(layer)[0], name).data = torch.from_numpy(matrix)
            rows = torch.from_numpy(rng.normal(size=(1, TOKENS, PERTURBED_WIDTH)))
            rows = rows / rows.norm(dim=2, keepdim=True).clamp(min=1)
            changed, contributions, factors = network_change(ours, theirs, rows)
            for printed, ratios in over.items():
                ratios.append(changed / float(np.exp(log_amplifications(factors, as_printed=printed)) @ contributions))
        return {
            "broken": sum(not ratio <= 1 + 1e-9 for ratio in over[False]),  # written so that NaN counts as broken
            "broken_printed": sum(not ratio <= 1 + 1e-9 for ratio in over[True]),
            "worst": float(np.max(over[False])),
            "worst_printed": float(np.max(over[True])),
        }


@dataclass(frozen=True)
class Trained(lab.Trial):
    """A network of § 4.3 trained on an AND of three bits."""

    tag = "trained"
    length: int
    samples: int
    width: int
    layers: int
    seed: int
    steps: int

    @property
    def cost(self) -> float:
        return self.steps * self.samples * self.length * self.width * (1.0 if self.layers == 1 else 4.0 * self.layers)

    def measure(self, progress: lab.Progress) -> lab.Outcome:
        """Training and test loss of a network, and the bound of Lem 2.2 on their difference from its own norms."""
        config = AttentionNetworkConfig(
            length=self.length,
            width=self.width,
            layers=self.layers,
            activation="relu",
            normalise=True,
            basis="random",
            basis_seed=self.seed,
        )
        sizes = {"train": self.samples, "test": TEST}
        sets = draw(parse(FUNCTION, self.length), self.length, sizes, self.seed)
        model = AttentionNetwork(config, seed=self.seed)
        fit(
            model,
            sets["train"],
            sets["train"],  # validated on the training set: no other strings are seen
            learning_rate=RATE,
            batch=self.samples,
            seed=self.seed,
            decay_after=None,
            stop_after=None,
            max_epochs=None,
            max_steps=self.steps,
        )
        before, after = (_losses(model, sets[name]) for name in ("train", "test"))
        best = next(each for each in summary(model, self.length, self.samples).bounds if each.form == "best")
        needed = best.log_samples_needed
        return {
            "train_loss": before[0],
            "test_loss": after[0],
            "test_accuracy": after[1],
            "gap": after[0] - before[0],
            "bound": best.value,
            "range": best.trivial,
            "log10_needed": None if needed is None else needed / math.log(10),
        }


def constructed_head(mapping: Mapping, log_length: float, width: int, relevant: int) -> tuple[HeadNorms, float]:
    """The norms of B.2 and B.4, one head with W_C joined to W_V, and B_X: all matrices have rank 1."""
    if mapping == "deterministic":  # R v_CLS (sum of v_i)', E_1 - E_0
        reach, size, radius = log_length + math.log(8 / min(1.0, 2 / relevant)), math.sqrt(2), math.sqrt(2)
        score = reach * math.sqrt(relevant)
    else:  # R v_CLS (sum of v_i + v_CLS)', sum of v_i - v_CLS
        reach, size, radius = log_length + math.log(8 * relevant**2), math.sqrt(relevant + relevant**2), 1.0
        score = reach * math.sqrt(relevant + 1)
    return HeadNorms(MatrixNorms(width, *[score] * 3), MatrixNorms(1, *[size] * 3)), radius


def built_head(mapping: Mapping, length: int, relevant: int) -> tuple[HeadNorms, float]:
    """The same norms from the weights of the network constructed for an AND."""
    function = " & ".join(f"x{place + 1}" for place in range(relevant))
    model = construct(parse(function, length), mapping, mlp=False).model
    (head,) = model.heads(0)
    query, key, value, mix = (part.detach().numpy() for part in (head.query, head.key, head.value, head.mix))
    joined = (value @ mix)[:, :1]  # the other columns are 0, and w reads the first
    return HeadNorms.of(query, key, joined), norms_of(model, length).radius


@torch.no_grad()
def network_change(
    ours: AttentionNetwork, theirs: AttentionNetwork, rows: torch.Tensor
) -> tuple[float, list[float], list[float]]:
    """The difference of the outputs, the contribution of each layer by A.15, and ln Lambda of each layer."""
    first, second = rows, rows
    contributions, factors = [], []
    norms = norms_of(ours, TOKENS)
    for number, (layer, other) in enumerate(zip(ours.layers, theirs.layers, strict=True)):
        (a,), (b,), (head,) = ours.heads(number), theirs.heads(number), norms.layers[number]
        assert head.mix is not None
        weights = (second @ b.query @ b.key.T @ second.transpose(1, 2)).softmax(dim=-1)
        inner = weights @ second @ b.value
        inner = (inner / inner.norm(dim=2, keepdim=True).clamp(min=1)).relu()
        score = _largest(second @ (a.query @ a.key.T - b.query @ b.key.T).T)
        value = _largest(second @ (a.value - b.value))
        passed = head.mix.spectral * (2 * head.value.spectral * score + value)
        contributions.append(_largest(inner @ (a.mix - b.mix)) + passed)
        factors.append(math.log(layer_factor([head])))
        first, second = layer(first), other(second)
    return _largest(first - second), contributions, factors


def _largest(rows: torch.Tensor) -> float:
    return float(rows.norm(dim=-1).max())


@torch.no_grad()
def _losses(model: AttentionNetwork, strings: LabelledStrings) -> tuple[float, float]:
    parts = torch.from_numpy(strings.bits.copy()).split(STRINGS)
    logits = torch.cat([model(part) for part in parts]).double()
    labels = torch.from_numpy(strings.labels.astype(np.float64))
    loss = binary_cross_entropy_with_logits(logits, labels)
    return float(loss), float(((logits > 0) == (labels > 0)).double().mean())


SHRINKS = 0.75  # ln(growth per layer), last step over first: 1 for exponentials, 0.26 for powers of L = 1 to 6
POLYLOG = 0.5
CUBE = (2.9, 3.1)
SPREAD = "interval: least and largest of all numbers of relevant bits"
FEWEST = 3  # lengths or depths
FEWEST_MODELS = 20
FEWEST_PAIRS = 1_000
AXES = {"length": "T", "samples": "m", "width": "d", "layers": "L"}
_MORE = "the scale laptop"


def exact(value: float, count: int) -> Estimate:
    """A computed number as an estimate without uncertainty."""
    return Estimate(value, value, value, 1.0, count)


def slope(x: ArrayLike, y: ArrayLike) -> float:
    """The slope of the straight line through points."""
    return float(straight_line(np.asarray(x, np.float64), np.asarray(y, np.float64))[0])


def judge_lengths(table: lab.Rows) -> lab.Judgement:
    """The power of ln(m (T + 1)) in ln N of each result, at norms of 1."""

    def one(result: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        shallow = rows.where(layers=1)
        if len(shallow) < FEWEST:
            return lab.Judgement.without(f"{result}: {len(shallow)} lengths", f"at least {FEWEST} lengths")
        counts = [math.log(math.log(SAMPLES * (length + 1))) for length in shallow.column("length")]
        power = slope(counts, shallow.column("log_size"))
        return lab.at_most(exact(power, len(shallow)), 1.0, f"power of ln(m (T + 1)) in ln N, {result}", unit="lengths")

    return lab.for_each(
        table.where(kind="formula").each("result", RESULTS), one, what="results", missing="no length was tried"
    )


LAWS: dict[str, Callable[[float], float]] = {"T": float, "ln T": math.log}


def judge_construction(table: lab.Rows, *, form: str, law: str, most: float) -> lab.Judgement:
    """The power of T or of ln T in ln N of the constructions, over numbers of relevant bits."""

    def one(mapping: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        groups = [lengths for _, lengths in rows.by("relevant") if len(lengths) >= FEWEST]
        powers = [
            slope([math.log(LAWS[law](each)) for each in lengths.column("length")], lengths.column(form))
            for lengths in groups
        ]
        if len(powers) < FEWEST:
            return lab.Judgement.without(
                f"{mapping}: {len(powers)} constructions at {FEWEST} lengths", f"at least {FEWEST} constructions"
            )
        return lab.at_most(spread(powers), most, f"power of {law} in ln N, {mapping}", SPREAD, unit="constructions")

    return lab.for_each(
        table.where(kind="constructed").each("mapping", MAPPINGS), one, what="mappings", missing="no construction"
    )


def judge_limit(table: lab.Rows) -> lab.Judgement:
    """The power of ln T in ln N with all constants, at T = 2^256 and 2^512."""

    def one(mapping: str, rows: lab.Rows, confidence: float) -> lab.Judgement:
        if len(rows) < FEWEST:
            return lab.Judgement.without(f"{mapping}: {len(rows)} constructions", f"at least {FEWEST} constructions")
        orders = rows.column("power_of_order")
        note = f"{SPREAD}; without 2 d_2 ln 2, which is linear in T, {min(orders):.3g} to {max(orders):.3g}"
        what = f"power of ln T in ln N, {mapping}"
        return lab.between(spread(rows.column("power")), *CUBE, what, note, unit="constructions")

    return lab.for_each(
        table.where(kind="limit").each("mapping", MAPPINGS), one, what="mappings", missing="no construction"
    )


def spread(values: Sequence[float]) -> Estimate:
    """The mean of computed numbers, with the least and the largest as its interval."""
    low, high = min(values), max(values)
    return Estimate(float(np.clip(np.mean(values), low, high)), low, high, 1.0, len(values))


def judge_depth(table: lab.Rows) -> lab.Judgement:
    """Whether the growth of Thm A.17's order from one depth to the next falls to 1, where all norms are 1.

    For a polynomial in L the logarithm of that growth falls like 1 / L; for an exponential it stays constant.
    """
    rows = table.where(lambda row: row["layers"] is not None, kind="formula", result="Thm A.17")
    depths = dict(sorted((row["layers"], row["log_order"]) for row in rows))
    if len(depths) < FEWEST:
        return lab.Judgement.without(f"{len(depths)} depths were tried", f"at least {FEWEST} depths")
    places, orders = list(depths), list(depths.values())
    if places != list(range(places[0], places[0] + len(places))):
        return lab.Judgement.without(f"depths {places} have gaps", "every depth")
    steps = np.diff(orders)
    ratios = ", ".join(f"{math.exp(each - orders[0]):,.0f}" for each in orders)
    return lab.at_most(
        exact(float(steps[-1] / steps[0]), len(depths)),
        SHRINKS,
        f"ln of the growth from L = {places[-2]} to {places[-1]}, over that from {places[0]} to {places[1]}",
        f"ratios to L = {places[0]}: {ratios}",
        unit="depths",
    )


def judge_product(table: lab.Rows, *, column: str) -> lab.Judgement:
    """How often a perturbation changes the output by more than A.17 allows."""
    rows = table.where(kind="perturbed")
    pairs = rows.total("pairs")
    if not pairs:
        return lab.Judgement.without("no network was perturbed", _MORE)
    worst = max(rows.column(column.replace("broken", "worst")))
    judged = lab.never(rows.total(column), pairs, "share of perturbations", f"largest change over bound {worst:.2g}")
    return lab.unless_few(judged, pairs, FEWEST_PAIRS, "pairs")


def judge_holds(table: lab.Rows) -> lab.Judgement:
    """No gap is above its bound, among networks whose bound is below the range of the loss."""
    rows = lab.Rows({**row, "size": abs(row["gap"])} for row in table.where(kind="trained"))
    if not rows:
        return lab.Judgement.without("no network was trained", _MORE)
    return lab.never_exceeds("size", "bound", possible="range", fewest=FEWEST_MODELS)(rows)


def judge_says(table: lab.Rows) -> lab.Judgement:
    """The share of trained networks for which the bound says something."""
    rows = table.where(kind="trained")
    if not rows:
        return lab.Judgement.without("no network was trained", _MORE)
    informative = lab.share_of(rows, lambda row: row["bound"] < row["range"])
    ratios = [row["bound"] / abs(row["gap"]) for row in rows if row["gap"]]
    needed = [row["log10_needed"] for row in rows if row["log10_needed"] is not None]
    note = f"bound over gap {np.median(ratios):.3g}" if ratios else "no gap at all"
    if needed:
        note += f", {np.median(rows.column('bound')):.3g} for a range of {np.median(rows.column('range')):.3g}; "
        note += f"it says something from 10^{min(needed):.3g} to 10^{max(needed):.3g} samples on"
    judged = lab.at_least(informative, 0.5, "share of networks", note, unit="networks")
    return lab.with_fewest(judged, informative, 0.5, "networks")


def judge_gap(table: lab.Rows) -> lab.Judgement:
    """The power of T in the measured gap."""
    rows = _along(table.where(kind="trained"), "length")
    power = lab.log_slope(rows, "length", "gap")
    if power is None:
        return lab.Judgement.without("too few seeds with positive gaps at 3 lengths", "at least 5 seeds")
    return lab.at_most(power, POLYLOG, "power of T in the gap", unit="seeds")


def _along(rows: lab.Rows, axis: str) -> lab.Rows:
    """The networks that differ from the most common ones only in this field."""
    others = [name for name in AXES if name != axis and rows]
    usual = {name: max(rows.values(name), key=rows.column(name).count) for name in others}
    return rows.where(**usual)


CLAIMS = (
    lab.Claim(
        "log T at fixed norms", "Thm 4.2, Cor 4.4, Lem A.11, A.12, Thm 4.6",
        "at fixed norms, covering numbers depend logarithmically on the context length",
        "power of ln(m (T + 1)) in ln N, from the shortest to the longest strings: at most 1", judge_lengths,
    ),
    lab.Claim(
        "log T for the constructions", "Prop 4.7, abstract",
        "sparse functions lie in a class whose capacity grows as log T",
        "power of ln T in ln N of the class that holds the construction, by sums of norms: at most 1",
        functools.partial(judge_construction, form="log_sums", law="ln T", most=1.0),
    ),
    lab.Claim(
        "ln^3 T for the constructions", "none: R = ln(8 T / gamma) enters twice",
        "since ||W_Q|| grows as ln T, that capacity grows as ln^3 T",
        "power of ln T in ln N, with all constants, between T = 2^256 and 2^512: from 2.9 to 3.1", exploratory=True,
        judge=judge_limit,
    ),
    lab.Claim(
        "Lem 4.5 as printed keeps that polylogarithmic", "Lem 4.5, Cor 4.4",
        "the factor d_2 B_inf suffices for the constructions, whose width is T + 1 or more",
        f"power of T in ln N by the largest norm of a row: at most {POLYLOG}", exploratory=True,
        judge=functools.partial(judge_construction, form="log_rows", law="T", most=POLYLOG),
    ),
    lab.Claim(
        "norms of at most 1 avoid exponential depth", "§ 4.3, after Thm 4.6",
        "if spectral norms are at most 1, the bound is not exponential in the number of layers",
        "ln of the growth by the deepest layer over ln of that by the first further layer, all norms 1: at most "
        f"{SHRINKS:g} (1 for any exponential, 0.26 for any power of L)", judge_depth,
    ),
    lab.Claim(
        "errors pass the layers before, as printed", "Thm A.17",
        "a change of layer i changes the output by at most alpha_i times its own, a product over j < i",
        f"pairs of networks of two layers that exceed it: none of {FEWEST_PAIRS:,} or more",
        functools.partial(judge_product, column="broken_printed"),
    ),
    lab.Claim(
        "errors pass the layers after", "Lem A.15, Thm A.17, corrected",
        "the same with the product over j > i", "as above", functools.partial(judge_product, column="broken"),
    ),
    lab.Claim(
        "no gap above its bound", "Lem 2.2", "the gap between test and training loss is at most the bound",
        f"networks whose bound is below the range of the loss and below the gap: none of {FEWEST_MODELS} or more",
        judge_holds,
        decided_from="",
    ),
    lab.Claim(
        "the bound says something of trained networks", "none: the paper has no constants",
        "at sizes that are trained, the bound is below the range of the loss",
        "share of trained networks for which it is: at least 0.5", judge_says, exploratory=True,
    ),
    lab.Claim(
        "the measured gap hardly grows with T", "none: the paper bounds samples",
        "at a fixed number of strings, a longer context hardly impairs generalisation",
        f"power of T in the gap of trained networks, averaged over seeds: at most {POLYLOG}", judge_gap,
        exploratory=True,
    ),
)  # fmt: skip


def panels(table: lab.Rows) -> list[lab.Figure]:
    """Capacity by length, the constructions, and trained networks."""
    out = []
    look: Any = {"centre": "geometric", "x_label": "T", "x_log": True, "y_log": True}
    formulas = table.where(kind="formula", layers=1)
    if formulas:
        rows = lab.Rows({**row, "size": math.exp(row["log_size"])} for row in formulas)
        panel = lab.chart(
            rows, "length", "size", by="result", order=RESULTS, title="norms of 1", y_label="ln N at eps = 1", **look
        )
        text = "The bounds with all constants, d = 64, m = 100. On the right the order of Thm A.17 by depth."
        deep = lab.Rows(
            {**row, "order": math.exp(row["log_order"])} for row in table.where(kind="formula", result="Thm A.17")
        )
        depth = lab.line(deep, "layers", "order", "Thm A.17", band=False)
        by_depth = lab.Panel("all norms 1", "L", "order of ln N", [depth], y_log=True)
        out.append(
            lab.Figure("capacity", "Capacity by length and depth", text, [panel, by_depth], where="Thm 4.2, 4.6")
        )
    constructions = lab.Rows(
        {**row, "rows": math.exp(row["log_rows"]), "sums": math.exp(row["log_sums"])}
        for row in table.where(kind="constructed", relevant=3)
    )
    if constructions:
        shown = [_construction(constructions.where(mapping=mapping), mapping) for mapping in MAPPINGS]
        text = "ln N at eps = 1 of the class that holds the construction for 3 relevant bits, by both forms of Lem 4.5."
        title = "Capacity that the constructions need"
        title_of_rows = "by the largest norm of a row"
        by_row = lab.chart(
            constructions, "length", "rows", by="mapping", order=MAPPINGS, title=title_of_rows, y_label="ln N", **look
        )
        out.append(lab.Figure("capacity-constructed", title, text, [*shown, by_row], columns=3, where="Prop 4.7"))
    models = table.where(kind="trained")
    if models:
        along = {axis: _along(models, axis) for axis in AXES}
        text = "Networks of § 4.3 trained on an AND of 3 bits: bands are the least and the largest of all seeds."
        title = "Measured gap, its bound, and what holds anyway"
        gaps = [_gaps(rows, axis) for axis, rows in along.items()]
        out.append(lab.Figure("capacity-gap", title, text, gaps, where="Lem 2.2"))
        text = "How many training strings it takes until the bound of these networks is below the range of the loss."
        needed = [_needed(rows, axis) for axis, rows in along.items()]
        out.append(lab.Figure("capacity-needed", "How vacuous the bound is", text, needed, where="Lem 2.2"))
    return out


def _construction(rows: lab.Rows, title: str) -> lab.Panel:
    """The capacity by sums of norms, between the curves of ln T and of ln^3 T through its first point."""
    curves = [lab.line(rows, "length", "sums", "sum of norms", band=False, colour=2)]
    lengths = rows.values("length")
    for power in (1, 3):
        scale = rows.where(length=lengths[0])[0]["sums"] / math.log(lengths[0]) ** power
        guide = [scale * math.log(length) ** power for length in lengths]
        name = "ln T" if power == 1 else "ln³ T"
        curves.append(lab.Series(f"{name}, through the first", lengths, guide, dashed=True, colour=2 + power))
    return lab.Panel(f"{title}, by sums of norms", "T", "ln N", curves, x_log=True, y_log=True)


def _gaps(rows: lab.Rows, axis: str) -> lab.Panel:
    labels = {"gap": "measured gap", "bound": "bound", "range": "range of the loss"}
    series = [
        lab.line(lab.Rows(row for row in rows if row[name] > 0), axis, name, label, colour=number)
        for number, (name, label) in enumerate(labels.items())
    ]
    return lab.Panel("", AXES[axis], "loss", series, x_log=axis != "layers", y_log=True)


def _needed(rows: lab.Rows, axis: str) -> lab.Panel:
    series = [lab.line(rows.having("log10_needed"), axis, "log10_needed", "needed", "mean", colour=1)]
    return lab.Panel("", AXES[axis], "log10 of training strings", series, x_log=axis != "layers")


AnyTrial = Formula | Constructed | Limit | Perturbed | Trained
RELEVANT = (2, 3, 4, 5, 6)  # bits of the constructions
USUAL = {"length": 50, "samples": 100, "width": 32, "layers": 1}


class Capacity(lab.Study):
    """What the covering theorems say about lengths, about constructions, and about trained networks."""

    name, paper = "capacity", "003"
    title = "Covering numbers of attention networks, and the generalisation they guarantee"
    figures = ("Lem 2.2", "Thm 4.2", "Cor 4.4", "Thm 4.6", "Prop 4.7")
    sample_sizes = ("pairs",)
    scales = lab.scales(
        "T up to 2^{log_length}; {pairs} perturbed pairs; networks on T = {length}, m = {samples}, d = {width}, "
        "L = {layers}, one choice at a time, {seeds} seeds of {steps} steps",
        common={"first_seed": 0},
        smoke=(
            0.05,
            {"log_length": 8, "pairs": 10, "length": (20,), "samples": (20,), "width": (16,), "layers": (1,),
             "seeds": 1, "steps": 3},
        ),
        laptop=(
            6,
            {"log_length": 17, "pairs": 4_000, "length": (20, 50, 100, 200), "samples": (50, 100, 200, 400),
             "width": (16, 32, 64), "layers": (1, 2, 3), "seeds": 8, "steps": 500},
        ),
        paper=(
            3_000,
            {"log_length": 20, "pairs": 40_000, "length": (50, 100, 200, 400, 800),
             "samples": (50, 100, 200, 500, 1_000), "width": (16, 32, 64, 128), "layers": (1, 2, 3, 4),
             "seeds": 50, "steps": 5_000},
        ),
    )  # fmt: skip
    deviations = lab.deviations(
        ("constants", 'hidden by "<~"', "36, 144, C = 2, c = 12, each ceil", "without them there is no bound"),
        ("vectors to cover", "m T", "m (T + 1)", "[CLS] is one of them"),
        ("Lem 2.2", "one formula", "4 c L A where it would fall", "for K > e A the formula is negative"),
        ("Thm A.17", "alpha_i is a product over j < i", "over j > i", "an error passes the layers after it"),
        ("norms", "fixed before the data", "those of the trained model, rounded up on a grid", "delta is shared"),
        ("networks", "none were measured", f"AND of 3 bits, Adam on all strings, gap on {TEST} others", "ours"),
        ("gap by T", "samples for a gap", "the gap at fixed m", "it jumps where m is too small; sparse-and measures m"),
    )
    claims = CLAIMS

    def trials(self, scale: str) -> list[AnyTrial]:
        plan = self.scales[scale].settings
        lengths = [2**power for power in range(4, plan["log_length"] + 1)]
        formulas = [Formula(result, length) for result in RESULTS for length in lengths]
        deep = [Formula("Thm A.17", lengths[0], layers) for layers in range(2, 7)]
        constructions = [Constructed(*each) for each in itertools.product(MAPPINGS, lengths, RELEVANT)]
        limits = [Limit(*each) for each in itertools.product(MAPPINGS, RELEVANT)]
        pairs = [Perturbed(seed, plan["pairs"] // 10) for seed in range(10)]
        shapes = [USUAL | {axis: value} for axis in AXES for value in plan[axis]]
        chosen = {tuple(shape.values()): shape for shape in shapes}.values()
        seeds = range(plan["first_seed"], plan["first_seed"] + plan["seeds"])
        models = [Trained(**shape, seed=seed, steps=plan["steps"]) for shape in chosen for seed in seeds]
        return [*formulas, *deep, *constructions, *limits, *pairs, *models]

    def row(self, trial: AnyTrial, outcome: lab.Outcome) -> lab.Row:
        return {"kind": type(trial).__name__.lower(), **super().row(trial, outcome)}

    def draw(self, table: lab.Rows) -> list[lab.Figure]:
        return panels(table)


STUDY = Capacity()
