"""What `perturbed-sharpness` measures: the trace of a construction's Hessian under noise, and slices of its loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64
from scipy.signal import find_peaks

import flipscope.lab as lab
from flipscope.basics.bits import Bits
from flipscope.basics.seeds import generators, random_strings, seed_of
from flipscope.bounds.pac_bayes import flip_threshold, gradient_bound, perturbation_term
from flipscope.bounds.pac_bayes.inequalities import MESH
from flipscope.constructions.fourier import fourier_network
from flipscope.cube.fourier_sums import random_sum
from flipscope.models.fourier_network import FourierNetwork
from flipscope.models.movable_parameters import MovableParameters
from flipscope.models.parameters import chosen
from flipscope.probes.asking import asked
from flipscope.probes.landscape import landscape
from flipscope.probes.perturbed_trace import trace_changes

Noise = Literal["std", "variance"]  # what the paper's text, and what its code takes a value of the mesh for
NOISE: dict[Noise, str] = {"std": "a standard deviation", "variance": "a variance"}
DEGREES, SPARSITIES = (1, 2, 3, 4, 5), (1, 7, 14, 20)
SOME = tuple(MESH[k] for k in (19, 18, 17, 15, 10, 0))
SHIFT, DEEP = 1.2, 0.1  # how far the MLP's input is moved; a minimum is as deep as this part of the largest loss
NOISIEST = 0.1  # of a random slice, in units of a standard deviation of every parameter


@dataclass(frozen=True)
class Perturbed(lab.Trial):
    """The construction of one random function under noise of several sizes."""

    length: int
    sparsity: int
    degree: int
    seed: int
    noise: Noise
    mesh: tuple[float, ...]
    strings: int
    probes: int
    draws: int = 1

    @property
    def cost(self) -> float:
        """Of a trace: as many numbers as there are parameters, mostly those of three square matrices."""
        return float(len(self.mesh) * self.draws * (self.length + 20) ** 2)


@dataclass(frozen=True)
class Slice(lab.Trial):
    """The loss of a construction along a shift of the MLP's input, and along random directions."""

    length: int
    sparsity: int
    degree: int
    seed: int
    strings: int
    points: int
    directions: int = 2

    @property
    def cost(self) -> float:
        return float(self.points * self.length / 20)


def _drawn(trial: Perturbed | Slice) -> tuple[FourierNetwork, Bits, np.random.Generator]:
    """The network with mask 0, the strings it is asked, and a stream for the rest."""
    own = seed_of(trial.seed, trial.length, trial.sparsity, trial.degree)  # no two classes have the same noise
    for_function, for_strings, rest = generators(own, 3)
    network = fourier_network(random_sum(trial.length, trial.sparsity, trial.degree, for_function))
    return network, random_strings(for_strings, trial.strings, trial.length), rest


def changes(trial: Perturbed) -> dict[str, Any]:
    """The trace without noise, and at each size of it: its change, the largest trace, what signs leave open."""
    network, strings, stream = _drawn(trial)
    sigmas = tuple(each if trial.noise == "std" else math.sqrt(each) for each in trial.mesh)
    found = trace_changes(network, strings, sigmas, draws=trial.draws, probes=trial.probes, seed=stream)
    return {
        "base": found[0].base,
        "sigma": list(sigmas),
        "change": [each.change for each in found],
        "trace": [each.largest for each in found],
        "error": [each.error for each in found],
    }


def by_size(content: Mapping[str, Any], outcome: Mapping[str, Any]) -> list[lab.Row]:
    """A row for each size of the noise, with the bounds of Thms 5 and 17 beside it."""
    about = {name: value for name, value in content.items() if name != "mesh"}
    sparsity, degree, length = (content[name] for name in ("sparsity", "degree", "length"))
    twice, limit = 2 * gradient_bound(sparsity, degree), flip_threshold(degree, length)
    rows = []
    for place, value in enumerate(content["mesh"]):
        sigma, change = outcome["sigma"][place], outcome["change"][place]
        mended, released = (
            perturbation_term(sigma, sparsity, degree, length, mend=mend).value for mend in (True, False)
        )
        rows.append(
            {
                "kind": "perturbed",
                **about,
                "value": value,
                "sigma": sigma,
                "base": outcome["base"],
                **{name: outcome[name][place] for name in ("change", "trace", "error")},
                "relative": change / outcome["base"],
                "analytic": mended,
                "released": released,
                "gradient": twice / 2,
                "thm17": twice + mended,
                "valid": sigma <= limit,
                "threshold": limit,
            }
        )
    return rows


def sliced(trial: Slice) -> dict[str, Any]:
    """Losses against the network's own outputs: shift of all biases of the MLP, and Gaussian directions."""
    network, strings, stream = _drawn(trial)
    offsets = np.linspace(-SHIFT, SHIFT, trial.points)
    losses = np.empty(trial.points)
    with (
        asked(network, strings, None, None) as (asking, before),
        MovableParameters(chosen(network, ["bias"])) as moving,
    ):
        for place, offset in enumerate(offsets):
            moving.to(torch.ones(moving.count), float(offset))
            losses[place] = float((asking.outputs() - before).square().mean())
        own = before.numpy()
    numbers = sum(each.numel() for each in network.parameters())
    reach = NOISIEST * math.sqrt(numbers)  # a draw of noise has about this length
    found = landscape(
        network,
        strings,
        own,
        directions=trial.directions,
        points=trial.points,
        reach=reach,
        normalise="none",
        seed=stream,
    )
    return {
        "offset": offsets,
        "loss": losses,
        "minima": minima(losses),
        "random_offset": found.offsets / math.sqrt(numbers),
        "random_loss": found.losses,
    }


def minima(losses: Float64[np.ndarray, " point"]) -> int:
    """How many minima a slice has that are a tenth of its largest loss deep; its ends do not count.

    >>> minima(np.array([0.0, 1.0, 0.01, 0.05, 0.0, 1.0, 0.0]))
    1
    """
    return len(find_peaks(-losses, prominence=DEEP * float(losses.max()))[0])
