"""What `bound-comparison` computes: every bound for tilings by pairs, and the perturbation term of their networks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scipy.optimize import minimize_scalar

import flipscope.lab as lab
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import generators, random_strings, seed_of
from flipscope.bounds.pac_bayes import (
    Setting,
    bound_at,
    bounded_subgaussian,
    catoni_bound,
    class_bound,
    closed_bound,
    fewest_samples,
    flip_threshold,
    gradient_blocks,
    gradient_bound,
    group_bound,
    mcallester_bound,
    mesh_sigma,
    norm_blocks,
    norm_bound,
    perturbation_term,
    scipy_sigma,
)
from flipscope.bounds.pac_bayes.norm_based import edelman_bound, edelman_template, printed_constant
from flipscope.constructions.fourier import fourier_network
from flipscope.cube.fourier_sums import FourierSum
from flipscope.probes.perturbed_trace import trace_changes

DEGREE = 2
LENGTH, SAMPLES, TRAINED = 20, 1_000_000, 8_192  # of E.3, and of the paper's experiments
CERTIFIED = bounded_subgaussian(1.0)  # Sigma of losses in [0, 1], by Hoeffding's lemma
DELTA, SUBGAUSSIAN = 0.05, 0.01
LOG_BETAS = (-12.0, 3.0)


def _check_length(length: int) -> None:
    if length % DEGREE or length < 4:
        raise InputError(f"length={length} is not tiled by pairs: give an even number from 4 on")


@dataclass(frozen=True)
class Formulas(lab.Trial):
    """All bounds that need no measurement, for the tiling of so many positions by pairs."""

    tag = "formulas"

    length: int
    samples: int

    def check(self) -> None:
        _check_length(self.length)


@dataclass(frozen=True)
class Measured(lab.Trial):
    """The tiling's network under noise, and the semi-analytic bounds that follow."""

    tag = "measured"

    length: int
    seed: int
    mesh: tuple[float, ...]
    samples: tuple[int, ...]
    strings: int
    probes: int

    def check(self) -> None:
        _check_length(self.length)

    @property
    def cost(self) -> float:
        return float(len(self.mesh) * self.strings * (self.length + 20) ** 2)


def tiling(length: int) -> FourierSum:
    """Disjoint pairs of neighbours with equal coefficients of norm 1 (E.3).

    >>> tiling(4).sets
    ((0, 1), (2, 3))
    """
    pairs = tuple((first, first + 1) for first in range(0, length, DEGREE))
    return FourierSum(length, pairs, (len(pairs) ** -0.5,) * len(pairs))


def bounds(trial: Formulas) -> dict[str, Any]:
    """Every bound by name; at the samples of E.3 also how many each needs, and where the covering template overtakes.

    McAllester's and Catoni's are for losses cut off at 1, at the sigma that is best for Sigma = 1/2; Catoni's beta is
    the best, since all that it is chosen by is known before the data.
    """
    about = (trial.length // DEGREE, DEGREE, trial.length)
    truncated = class_bound(*about, trial.samples)
    certified = class_bound(*about, trial.samples, subgaussian=CERTIFIED)
    loss, divergence = min(1.0, certified.sharpness_term), certified.norm_bound / (2 * certified.sigma**2)
    blocks = norm_blocks(*about), gradient_blocks(*about[:2])
    found = {
        "gradient_bound": gradient_bound(*about[:2]),
        "norm_bound": norm_bound(*about),
        "sigma": truncated.sigma,
        "threshold": flip_threshold(DEGREE, trial.length),
        "truncated": truncated.bound,
        "tight": class_bound(*about, trial.samples, tight=True).bound,
        "mended": _analytic(about, trial.samples, mend=True),
        "released": _analytic(about, trial.samples, mend=False),
        "certified": certified.bound,
        "groups": group_bound(*blocks, trial.samples).bound,
        "mcallester": mcallester_bound(loss, divergence, trial.samples),
        "catoni": _catoni(loss, divergence, trial.samples),
        "template": edelman_template(*about, trial.samples),
        "scaled": edelman_template(*about, trial.samples, printed_constant()),
        "theorem": edelman_bound(*about, trial.samples),
    }
    if trial.samples != SAMPLES:
        return found
    mended, released = (class_bound(*about, SAMPLES, form="analytic", mend=mend) for mend in (True, False))
    return found | {
        "needed_truncated": _log10(truncated.samples_needed),
        "needed_mended": _log10(mended.samples_needed),
        "needed_released": _log10(released.samples_needed),
        "crossover": _crossover(about, 1.0),
        "crossover_scaled": _crossover(about, printed_constant()),
    }


def _setting(about: tuple[int, int, int], samples: int) -> Setting:
    return Setting(norm_bound(*about), samples, DELTA, SUBGAUSSIAN)


def _analytic(about: tuple[int, int, int], samples: int, mend: bool) -> float:
    """The analytic bound at its best sigma: `class_bound` would look for the samples it needs as well."""
    setting, gradient = _setting(about, samples), gradient_bound(*about[:2])

    def sharpness(sigma: float) -> float:
        return sigma**2 * (gradient + perturbation_term(sigma, *about, mend=mend).value)

    return bound_at(setting, sharpness, scipy_sigma(setting, sharpness))


def _catoni(loss: float, divergence: float, samples: int) -> float:
    def at(log_beta: float) -> float:
        return catoni_bound(loss, divergence, samples, math.exp(log_beta))

    return float(minimize_scalar(at, bounds=LOG_BETAS, method="bounded", options={"xatol": 1e-6}).fun)


def _log10(samples: int | None) -> float | None:
    return None if samples is None else math.log10(samples)


def _crossover(about: tuple[int, int, int], constant: float) -> float | None:
    """log10 of the samples from which on the template is below the truncated bound (without log 1/delta)."""
    gradient = gradient_bound(*about[:2])
    return _log10(
        fewest_samples(
            lambda samples: (
                edelman_template(*about, samples, constant) / closed_bound(_setting(about, samples), gradient)
            )
        )
    )


def measured(trial: Measured) -> dict[str, Any]:
    """The change of the trace at each sigma of the mesh and at the sigma of E.3."""
    for_strings, stream = generators(seed_of(trial.seed, trial.length), 2)
    best = class_bound(trial.length // DEGREE, DEGREE, trial.length, SAMPLES).sigma
    found = trace_changes(
        fourier_network(tiling(trial.length)),
        random_strings(for_strings, trial.strings, trial.length),
        (*trial.mesh, best),
        probes=trial.probes,
        seed=stream,
    )
    return {"best": best, "base": found[0].base, "changes": [each.change for each in found]}


def by_samples(content: Mapping[str, Any], outcome: Mapping[str, Any]) -> list[lab.Row]:
    """A row for each number of samples: the semi-analytic bound at its best sigma of the mesh, and at E.3's sigma."""
    length = content["length"]
    about = (length // DEGREE, DEGREE, length)
    *changes, last = outcome["changes"]
    by_sigma: dict[float, float] = dict(zip(content["mesh"], changes, strict=True))
    gradient = gradient_bound(*about[:2])
    rows = []
    for samples in content["samples"]:
        setting = _setting(about, samples)

        def sharpness(sigma: float) -> float:
            return sigma**2 * (gradient + by_sigma[sigma])

        best = mesh_sigma(setting, sharpness, content["mesh"])
        same = class_bound(*about, samples, form="semi-analytic", perturbation=last, sigma=outcome["best"])
        rows.append(
            {
                "kind": "measured",
                "length": length,
                "seed": content["seed"],
                "samples": samples,
                "semi": bound_at(setting, sharpness, best),
                "semi_sigma": best,
                "semi_same": same.bound,
                "perturbation": last,
                "base": outcome["base"],
                "template": edelman_template(*about, samples),
            }
        )
    return rows
