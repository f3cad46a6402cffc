"""Parity with a chain of thought and in one pass: one training, the network written down, the bounds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import flipscope.lab as lab
from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.seeds import random_strings
from flipscope.bounds.pac_bayes.parity import parity_failure
from flipscope.constructions import chain_of_thought
from flipscope.data.steps import START, StepsData, Way, write_steps
from flipscope.models.config import TransformerConfig
from flipscope.models.modes import eval_mode
from flipscope.models.presets import hardness
from flipscope.models.transformer import Block, Transformer
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.hardness import hardness_protocol

ALL = 12  # bits up to which every string is asked
ATTENDED = 256  # strings on which attention is measured
_FRESH = 0x70617269  # sets the strings that are asked apart from those of the training


@dataclass(frozen=True)
class Learned(lab.Trial):
    """One training, one way."""

    way: Way
    length: int
    seed: int
    steps: int
    batch: int
    lr: float
    width: int = 64
    strings: int = 4_000

    @property
    def cost(self) -> float:
        """Tokens that are read, and as much as a few of them for what a step costs anyhow."""
        tokens = 2 * self.length if self.way == "steps" else self.length
        return float(self.steps * self.batch * (4 + tokens))


@dataclass(frozen=True)
class Written(lab.Trial):
    """The network of App. G on all strings, or on so many random ones."""

    written: int  # bits
    strings: int = 4_000


@dataclass(frozen=True)
class Bounded(lab.Trial):
    """The bounds of Thms 7 and 8."""

    bits: int
    samples: int


def model_of(trial: Learned) -> TransformerConfig:
    """The hardness paper's model, which learns PARITY where one does, causal and with positions of period T (App. G).

    Both ways have the same parameters; it is read at every token, or at START only.
    """
    return dataclasses.replace(
        hardness(2 * trial.length, trial.width),
        inputs="tokens",
        vocabulary=3,
        causal=True,
        positions="cyclic",
        period=trial.length,
        position_width=max(trial.length, trial.width // 2),
        readout="every" if trial.way == "steps" else "last",
    )


def recipe_of(trial: Learned) -> Recipe:
    """The training: both ways have the same model, start, optimiser, and number of strings."""
    return Recipe(
        data=StepsData(length=trial.length, way=trial.way, seed=trial.seed),
        model=model_of(trial),
        protocol=hardness_protocol(
            batch=trial.batch, steps=trial.steps, lr=trial.lr, weight_decay=1e-4, epoch_steps=100
        ),
        seed=trial.seed,
    )


def learned(trial: Learned, progress: lab.Progress) -> lab.Outcome:
    """How many parities are right of fresh strings, each step being written by the model itself."""
    recipe = recipe_of(trial)
    trained = lab.trained(recipe, progress)
    model = trained.transformer
    bits = torch.from_numpy(_strings(trial.length, trial.strings, trial.seed))
    wanted = bits.long().sum(dim=1) % 2
    found: dict[str, float | list[float] | None] = {}
    if trial.way == "steps":
        written = write_steps(model, bits)
        answers = written[:, -1]
        found["step_errors"] = (written != bits.long().cumsum(dim=1) % 2).double().mean(dim=0).tolist()
        found["attention"] = same_place_attention(model, bits[:ATTENDED])
    else:
        answers = (_asked(model, bits) > 0.5).long()
    return {
        **found,
        "right": int((answers == wanted).sum()),
        "asked": len(bits),
        "epochs": [line.steps for line in trained.history],
        "losses": [line.validation_loss for line in trained.history],
        "stopped": trained.fitted.stopped,
        "seconds": trained.fitted.seconds,
    }


@torch.no_grad()
def _asked(model: Transformer, bits: Tensor) -> Tensor:
    with eval_mode(model):
        read = torch.cat([bits.long(), torch.full((len(bits), 1), START)], dim=1)
        return torch.cat([model(part) for part in read.split(512)])


def _strings(length: int, strings: int, seed: int) -> Bits:
    return random_strings(np.random.default_rng([seed, length, _FRESH]), strings, length)


@torch.no_grad()
def same_place_attention(model: Transformer, bits: Tensor) -> float:
    """The share of attention that a step pays to the tokens of its own place, bit i and step i - 1.

    Averaged over steps and strings, in the layer and head that pay most; what was written is right. The network of
    App. G pays nearly all.
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
            own = weights[:, :, rows, rows] + weights[:, :, rows, length + rows]
            most = max(most, float(own.mean(dim=(0, 2)).max()))
    return most


def written(trial: Written) -> lab.Outcome:
    """How often the network of App. G is wrong, at the end and at any step."""
    length = trial.written
    bits = index_bits(0, 1 << length, length) if length <= ALL else _strings(length, trial.strings, 0)
    given = torch.from_numpy(bits)
    steps = chain_of_thought.write_steps(chain_of_thought.parity_steps(length), given)
    wrong = steps != given.long().cumsum(dim=1) % 2
    return {"wrong": int(wrong[:, -1].sum()), "wrong_anywhere": int(wrong.any(dim=1).sum()), "strings": len(bits)}


def bounded(trial: Bounded) -> lab.Outcome:
    """Both bounds at the sigma that is best for the chain, and the samples from which each says something."""
    chain = parity_failure("steps", trial.bits, trial.samples)
    own = {
        "chain": chain,
        "pass": parity_failure("one-pass", trial.bits, trial.samples, sigma=chain.sigma),
        "network": parity_failure("steps", trial.bits, trial.samples, norm="construction"),
    }
    best = parity_failure("one-pass", trial.bits, trial.samples)
    m = trial.samples
    return {
        "sigma": chain.sigma,
        **{f"log_{name}": each.log_probability for name, each in own.items()},
        "log_pass_best": best.log_probability,
        **{f"needed_{name}": each.samples_needed for name, each in own.items()},
        # The exponent without -m / 8 Sigma^2, which both have, and without the prefactor (Sigma is 0.01).
        **{
            f"core_{name}": m * chain.sigma**2 * each.gradient_bound / (2 * 0.01**2)
            + each.norm_bound / (2 * chain.sigma**2)
            for name, each in own.items()
        },
    }
