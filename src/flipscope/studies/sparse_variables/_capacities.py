"""What `capacity` measures: capacities of given and of constructed weights, perturbations, and trained networks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

import flipscope.lab as lab
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
STRINGS = 500  # of these that are asked together
RATE = 0.01
PERTURBED_WIDTH, TOKENS = 3, 4
LIMITS = (2**256, 2**512)  # lengths at which only the fastest-growing term counts
LONGEST_BUILT = 256  # bits, beyond which norms of constructions are known without their matrices


@dataclass(frozen=True)
class Formula(lab.Trial):
    """A result at norms of 1, for strings of a length and networks of a depth."""

    tag = "formula"

    result: Result
    length: int
    layers: int = 1


@dataclass(frozen=True)
class Constructed(lab.Trial):
    """The head that App. B writes down for so many relevant bits, in an orthonormal basis."""

    tag = "constructed"

    mapping: Mapping
    length: int
    relevant: int


@dataclass(frozen=True)
class Limit(lab.Trial):
    """The same head at lengths beyond all bounds, T = 2^256 and 2^512."""

    tag = "limit"

    mapping: Mapping
    relevant: int


@dataclass(frozen=True)
class Perturbed(lab.Trial):
    """Pairs of networks of two layers."""

    tag = "perturbed"

    seed: int
    pairs: int


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


def formula(trial: Formula) -> dict[str, float]:
    """ln N at eps = 1 with all constants, by the largest norms of rows, and the order without them."""
    one = MatrixNorms(WIDTH, 1.0, 1.0, float(WIDTH))
    count = SAMPLES * (trial.length + 1)
    if trial.result == "Lem 4.5":
        return {"log_size": math.log(matrix_cover(WIDTH, 1.0, 1.0, count, largest=1.0))}
    covers: dict[str, Cover] = {
        "Cor 4.4": heads_cover([HeadNorms(one, one)]),
        "Lem A.11": heads_cover([HeadNorms(one, one)], positions=1.0),
        "Lem A.12": heads_cover([HeadNorms(one, one)] * HEADS),
        "Thm A.17": network_cover(NetworkNorms.uniform(trial.layers, WIDTH)),
    }
    found = covers[trial.result]
    size = found.log_size(0.0, math.log(SAMPLES), trial.length, "rows").item()
    return {"log_size": size, "log_order": found.log_order()}


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
    """The same from the weights of the network that is written down for an AND."""
    function = " & ".join(f"x{place + 1}" for place in range(relevant))
    model = construct(parse(function, length), mapping, mlp=False).model
    (head,) = model.heads(0)
    query, key, value, mix = (part.detach().numpy() for part in (head.query, head.key, head.value, head.mix))
    joined = (value @ mix)[:, :1]  # the others are 0, and w reads the first
    return HeadNorms.of(query, key, joined), norms_of(model, length).radius


def constructed(trial: Constructed) -> dict[str, float]:
    """ln N of the class that holds the construction, at eps = 1, by both forms of Lem 4.5."""
    if trial.length <= LONGEST_BUILT:
        head, radius = built_head(trial.mapping, trial.length, trial.relevant)
    else:
        width = trial.length + (3 if trial.mapping == "deterministic" else 1)
        head, radius = constructed_head(trial.mapping, math.log(trial.length), width, trial.relevant)
    cover = heads_cover([head], radius=radius)
    sizes = {form: cover.log_size(0.0, math.log(SAMPLES), trial.length, form).item() for form in ("rows", "sums")}
    return {"log_rows": sizes["rows"], "log_sums": sizes["sums"]}


def limit(trial: Limit) -> dict[str, float]:
    """The power of ln T in ln N by sums of norms between the two lengths: with all constants, and of the order."""
    logs, sizes, orders = [], [], []
    for length in LIMITS:
        logs.append(math.log(length))
        width = length + (3 if trial.mapping == "deterministic" else 1)
        head, radius = constructed_head(trial.mapping, logs[-1], width, trial.relevant)
        cover = heads_cover([head], radius=radius)
        sizes.append(cover.log_size(0.0, math.log(SAMPLES), length, "sums").item())
        orders.append(cover.log_order("sums") + math.log(math.log(SAMPLES) + logs[-1]))
    doubled = math.log(logs[1] / logs[0])
    return {"power": (sizes[1] - sizes[0]) / doubled, "power_of_order": (orders[1] - orders[0]) / doubled}


def perturbed(trial: Perturbed) -> dict[str, float]:
    """Of how many pairs the change exceeds what A.17 allows, with its product as it is and as printed."""
    rng = np.random.default_rng(trial.seed)
    config = AttentionNetworkConfig(
        length=TOKENS, width=PERTURBED_WIDTH, layers=2, activation="relu", normalise=True, mapping="bag", basis="random"
    )
    ours, theirs = (AttentionNetwork(config, dtype=torch.float64) for _ in range(2))
    over: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(trial.pairs):
        for layer in range(2):
            size, step = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-3, 0)
            for name in ("query", "key", "value", "mix"):
                first = size * rng.normal(size=(PERTURBED_WIDTH, PERTURBED_WIDTH))
                for model, matrix in ((ours, first), (theirs, first + step * rng.normal(size=first.shape))):
                    getattr(model.heads(layer)[0], name).data = torch.from_numpy(matrix)
        rows = torch.from_numpy(rng.normal(size=(1, TOKENS, PERTURBED_WIDTH)))
        rows = rows / rows.norm(dim=2, keepdim=True).clamp(min=1)
        changed, own, factors = network_change(ours, theirs, rows)
        for printed, found in over.items():
            found.append(changed / float(np.exp(log_amplifications(factors, as_printed=printed)) @ own))
    return {
        "broken": sum(not ratio <= 1 + 1e-9 for ratio in over[False]),  # NaN breaks it as well
        "broken_printed": sum(not ratio <= 1 + 1e-9 for ratio in over[True]),
        "worst": float(np.max(over[False])),
        "worst_printed": float(np.max(over[True])),
    }


@torch.no_grad()
def network_change(
    ours: AttentionNetwork, theirs: AttentionNetwork, rows: torch.Tensor
) -> tuple[float, list[float], list[float]]:
    """What the output differs by, what each layer adds to that by A.15, and ln Lambda of each layer."""
    first, second = rows, rows
    own, factors = [], []
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
        own.append(_largest(inner @ (a.mix - b.mix)) + passed)
        factors.append(math.log(layer_factor([head])))
        first, second = layer(first), other(second)
    return _largest(first - second), own, factors


def _largest(rows: torch.Tensor) -> float:
    return float(rows.norm(dim=-1).max())


def trained(trial: Trained) -> dict[str, float | None]:
    """Training and test loss of a network, and what Lem 2.2 says of their difference from its own norms."""
    config = AttentionNetworkConfig(
        length=trial.length,
        width=trial.width,
        layers=trial.layers,
        activation="relu",
        normalise=True,
        basis="random",
        basis_seed=trial.seed,
    )
    sizes = {"train": trial.samples, "test": TEST}
    sets = draw(parse(FUNCTION, trial.length), trial.length, sizes, trial.seed)
    model = AttentionNetwork(config, seed=trial.seed)
    fit(
        model,
        sets["train"],
        sets["train"],  # the loss that is made small, and no look at other strings
        learning_rate=RATE,
        batch=trial.samples,
        seed=trial.seed,
        decay_after=None,
        stop_after=None,
        max_epochs=None,
        max_steps=trial.steps,
    )
    before, after = (_losses(model, sets[name]) for name in ("train", "test"))
    best = next(each for each in summary(model, trial.length, trial.samples).bounds if each.form == "best")
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


@torch.no_grad()
def _losses(model: AttentionNetwork, strings: LabelledStrings) -> tuple[float, float]:
    parts = torch.from_numpy(strings.bits.copy()).split(STRINGS)
    logits = torch.cat([model(part) for part in parts]).double()
    labels = torch.from_numpy(strings.labels.astype(np.float64))
    loss = binary_cross_entropy_with_logits(logits, labels)
    return float(loss), float(((logits > 0) == (labels > 0)).double().mean())
