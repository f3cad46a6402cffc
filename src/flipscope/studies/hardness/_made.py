"""Models that no training made, to try a bound with: random ones, PARITY by hand, and ascents towards the bound."""

from __future__ import annotations

import copy
import dataclasses
import math
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

import flipscope.lab as lab
from flipscope.basics.bits import Bits
from flipscope.basics.errors import InputError
from flipscope.bounds.hardness import Constants, measure, product_bound
from flipscope.bounds.hardness.overview import string_sensitivities
from flipscope.models.hooks import watching
from flipscope.models.init import initialise
from flipscope.models.presets import hardness
from flipscope.models.transformer import Block, LayerNorm, Transformer
from flipscope.studies.hardness._shared import strings_of

Norm = Literal["post", "pre", "none"]
NORMS: tuple[Norm, ...] = ("post", "pre", "none")
ROUNDS, STEPS, RATE = 4, 25, 0.02  # of an ascent: the true bound is computed after each round


@dataclass(frozen=True)
class Made(lab.Trial):
    """A model that is not trained: `scale` multiplies random weights, or says how far attention outweighs a bit."""

    tag = "made"

    kind: Literal["random", "constructed", "adversarial"]
    length: int
    width: int
    scale: float
    eps: float
    norm: Norm
    seed: int
    strings: int

    @property
    def cost(self) -> float:
        """About as much as a hundred steps of a training."""
        return 3e10


def made(trial: Made) -> Transformer:
    """The model of a trial, in float64."""
    config = dataclasses.replace(hardness(trial.length, trial.width), eps=trial.eps, norm=trial.norm)
    model = Transformer(config, scheme="gaussian", seed=trial.seed, dtype=torch.float64)
    if trial.kind == "constructed":
        return parity_by_hand(model, trial.length, trial.scale * trial.length)
    initialise(model, "gaussian", trial.seed, scale=trial.scale / math.sqrt(trial.width))
    return (
        ascended(model, strings_of(trial.length, trial.strings, trial.seed)) if trial.kind == "adversarial" else model
    )


@torch.no_grad()
def parity_by_hand(model: Transformer, length: int, gain: float) -> Transformer:
    """PARITY on {0, 1} with the weights of `hardness()`, nearly: attention counts, the MLP's ReLUs fold the count.

    Even attention brings `gain` times the mean of the bits, as ±1, along a direction u of mean zero, and a bias along
    another, v. After the norm this is a growing function of the count, off by what the own bit adds, 1 / gain of it. A
    sum of n ReLUs goes up and down between its values at the counts and is written along w, which is read; the second
    layer passes it on.
    """
    width = model.config.width
    if width < 8 or width < length:
        raise InputError(f"width={width} must be at least 8 and the length {length}, for as many ReLUs")
    for parameter in model.parameters():
        parameter.zero_()
    for module in model.modules():
        if isinstance(module, LayerNorm):
            module.reset_parameters()
    u, w, v = (torch.zeros(width, dtype=torch.float64) for _ in range(3))
    for vector, place in ((u, 0), (w, 2), (v, width // 2)):
        vector[place], vector[place + 1] = math.sqrt(0.5), -math.sqrt(0.5)
    assert model.embedding.symbol is not None
    model.embedding.symbol.weight.copy_(torch.stack([-u, u])[:, : width // 2] / gain)
    block = cast("Block", model.blocks[0])
    assert block.attention.output is not None
    assert block.mlp is not None
    block.attention.value.weight.copy_(torch.eye(width))
    block.attention.output.weight.copy_(gain * torch.outer(u, u))
    block.attention.output.bias.copy_(v)
    level = np.linspace(-1, 1, length + 1)  # the mean of the bits at each count
    knots = math.sqrt(width) * level / np.sqrt(level**2 + 1 + width * model.config.eps)  # along u after the norm
    height = math.sqrt(width) * (-1.0) ** np.arange(1, length + 2)
    slopes = np.diff(height) / np.diff(knots)
    block.mlp.up.weight[:length] = u
    block.mlp.up.bias[:length] = torch.from_numpy(-knots[:-1])
    block.mlp.down.weight[:, :length] = torch.outer(w, torch.from_numpy(np.diff(slopes, prepend=0.0)))
    block.mlp.down.bias.copy_(float(height[0]) * w)
    model.head.weight.copy_(w[None] / math.sqrt(2 * width))  # w is sqrt(width / 2) after the norm
    if model.head.bias is not None:
        model.head.bias.fill_(0.5)
    return model


def ascended(model: Transformer, strings: Bits) -> Transformer:
    """The model on a climb of s(x, T) / Blowup(x)^2 of one string, its norm fixed, that came nearest to its bound."""
    bits = torch.from_numpy(strings[:1].astype(np.int64))
    flips = torch.cat([bits, bits ^ torch.eye(bits.shape[1], dtype=torch.int64)])  # the string, then its flips
    parameters = list(model.parameters())
    size = _size(parameters)
    climber = torch.optim.Adam(parameters, lr=RATE)
    best, nearest = copy.deepcopy(model), slack(model, strings[:1])
    for _ in range(ROUNDS):
        for _ in range(STEPS):
            climber.zero_grad()
            (-_height(model, flips)).backward()
            climber.step()
            with torch.no_grad():
                factor = size / _size(parameters)
                for parameter in parameters:
                    parameter.mul_(factor)
        found = slack(model, strings[:1])
        if found < nearest:
            best, nearest = copy.deepcopy(model), found
    return best


def _height(model: Transformer, flips: Tensor) -> Tensor:
    """ln of s(x, T) / Blowup(x)^2, x being the first string and the others its flips."""
    logs: list[Tensor] = []

    def visit(name: str, module: nn.Module, x: Tensor) -> None:
        assert isinstance(module, LayerNorm)
        logs.append(torch.log1p(module.normalizer(x[0]).amax()))

    norms = {name: module for name, module in model.named_modules() if isinstance(module, LayerNorm)}
    with watching(norms, inputs=visit):
        out = model.read(model.states(flips)[-1])
    return ((out[1:] - out[0]).square().sum() / 4 + 1e-300).log() - 2 * sum(logs, torch.zeros(()))


def slack(model: Transformer, strings: Bits) -> float:
    """ln of the bound of Eq 6 over s(x, T) on one string; infinite where nothing changes."""
    (seen,) = string_sensitivities(model, strings)
    (found,) = measure(model, strings, attention=False)
    bound = product_bound(Constants.of(model, strings.shape[1]), found.log_blowup).log
    return bound - math.log(seen) if seen > 0 else math.inf


def _size(parameters: list[nn.Parameter]) -> float:
    return math.sqrt(sum(float(parameter.detach().square().sum()) for parameter in parameters))
