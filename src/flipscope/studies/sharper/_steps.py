"""Parity with a chain of thought and in one pass: one training, the network written down, the bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import flipscope.lab as lab
from flipscope.basics.bits import Bits, index_bits
from flipscope.basics.seeds import random_strings
from flipscope.bounds.pac_bayes.steps import parity_failure
from flipscope.constructions import chain_of_thought
from flipscope.models.config import TransformerConfig
from flipscope.models.modes import eval_mode
from flipscope.models.transformer import Block, Transformer
from flipscope.training.recipe import Recipe, TrainingProtocol
from flipscope.training.step_sets import START, StepsData, Way, write_steps

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
    width: int = 30  # coordinates of the symbol; positions have T more
    hidden: int = 128
    strings: int = 4_000

    @property
    def cost(self) -> float:
        """Tokens that are read, and as much as a hundred of them for what a step costs anyhow."""
        tokens = 1.5 * self.length if self.way == "steps" else self.length
        return float(self.steps * self.batch * (100 + tokens))


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
    """The paper's model (B12) with positions of period T, reading bits, START and what was written."""
    width = trial.length + trial.width
    return TransformerConfig(
        inputs="tokens",
        vocabulary=3,
        marker="none",
        max_length=2 * trial.length,
        positions="cyclic",
        period=trial.length,
        join="concatenate",
        position_width=trial.length,
        width=width,
        layers=2,
        combine="sum",
        qkv_bias=False,
        logit_scale=2 * math.log(trial.length) / math.sqrt(width),
        ffn_width=trial.hidden,
        mlp_layers=1,
        norm="none",
    )


def recipe_of(trial: Learned) -> Recipe:
    """The training: both ways have the same model, start, optimiser, and number of strings and labels."""
    return Recipe(
        data=StepsData(length=trial.length, way=trial.way, seed=trial.seed),
        model=model_of(trial),
        protocol=TrainingProtocol(
            batch=trial.batch,
            learning_rate=trial.lr,
            optimiser="adamw",
            weight_decay=1e-4,
            loss="mse",
            labels="bits",
            decay_after=None,
            stop_after=None,
            max_epochs=None,
            max_steps=trial.steps,
            epoch_steps=min(100, trial.steps),
            restore="last",
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
        found["attention"] = same_code_attention(model, bits[:ATTENDED])
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
def same_code_attention(model: Transformer, bits: Tensor) -> float:
    """The attention of the first layer that a step pays to the tokens of its own code, bit i and step i - 1.

    Averaged over steps and strings; what was written is right. The network of App. G pays nearly all of it.
    """
    length = bits.shape[1]
    parities = bits.long().cumsum(dim=1) % 2
    read = torch.cat([bits.long(), torch.full((len(bits), 1), START), parities[:, :-1]], dim=1)
    block = model.blocks[0]
    assert isinstance(block, Block)
    heads = block.attention
    shares = []
    with eval_mode(model):
        for step in range(1, length + 1):
            x = model.embed(read[:, : length + step])
            query, key = heads.split(heads.query(x[:, -1:])), heads.split(heads.key(x))
            weights = heads.weights(heads.scores(query, key))[:, :, 0]  # [string, head, token]
            shares.append(float(weights[..., [step - 1, length + step - 1]].sum(dim=-1).mean()))
    return float(np.mean(shares))


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
