"""Curvature: second derivatives of a loss at a model, H = d^2 L / d theta^2 on the data given.

    trace          tr H, exact for few parameters, else Hutch++ or Hutchinson with an interval
    eigenvalues    the largest and the smallest, converged, with their residuals
    density        the distribution of the eigenvalues: stochastic Lanczos quadrature
    gauss_newton   tr J' H_out J, the part of the trace without second derivatives of the outputs. Where every squared
                   error is 0 it is all of it: tr H = 2 mean |grad f|^2                        (sharper paper, Thm 5)
    fisher_rao     the Fisher-Rao norm of the parameters: sqrt of mean_x <theta, grad loss_x>^2 with the labels as they
                   are, and of theta' J' H_out J theta, with labels as the model would draw them (for mse, bce and ce)

The expected loss at theta + N(0, s^2) is L + s^2 tr H / 2 up to fourth order in s (sharper paper, Thms 6 and 12).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from flipscope.adapters.parameters import Choice
from flipscope.adapters.subject import Model
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_confidence, check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.basics.limits import check_memory, machine_memory
from flipscope.basics.resampling import student_mean
from flipscope.basics.seeds import Seed, seed_number
from flipscope.basics.wording import count_text
from flipscope.figures import Figure, Panel, Rule, Series
from flipscope.figures.panels import bars_panel
from flipscope.figures.results import Result
from flipscope.probes.asking import Loss
from flipscope.probes.extreme_eigenvalues import Extremes, extremes
from flipscope.probes.hessian_products import Data, LossSurface, loss_surface
from flipscope.probes.spectral import (
    Traces,
    exact_traces,
    hutchinson,
    hutchpp,
    length,
    signs,
)
from flipscope.probes.spectral_density import Density, spectral_density

What: TypeAlias = Literal["trace", "eigenvalues", "density", "gauss_newton", "fisher_rao"]
WHAT: tuple[What, ...] = get_args(What)
Method: TypeAlias = Literal["auto", "exact", "hutchinson", "hutch++"]
METHODS: tuple[Method, ...] = get_args(Method)

MAX_BLOCKS = 24  # most blocks in a picture
EXACT = 500  # most products for an exact trace with "auto"
_SKETCH = 1 / 16  # share of memory that the sketch of Hutch++ may take with "auto"
_GAUSS_NEWTON = 3  # kind of probes, beside those of `spectral`


@dataclass(frozen=True, eq=False, repr=False)
class Trace(Result):
    """The trace of a matrix of second derivatives: `value` in total, `of(pattern)` for a block of parameters."""

    value: Estimate
    method: Literal["exact", "hutchinson", "hutch++"]
    products: int
    names: tuple[str, ...]
    parts: Traces  # by name
    first_names: Mapping[str, str]  # for each name of a parameter the one that is in `names`: tied ones have several

    def of(self, pattern: str | Sequence[str]) -> Estimate:
        """The trace over the parameters whose names match, by the same probes."""
        patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        found = {first for name, first in self.first_names.items() if any(fnmatchcase(name, each) for each in patterns)}
        meant = [k for k, name in enumerate(self.names) if name in found]
        if not meant:
            raise InputError(f"pattern={pattern!r} matches none of {', '.join(self.names[:4])} …")
        return _estimate(self.parts, meant, self.value.confidence)

    def by_name(self) -> dict[str, Estimate]:
        """The trace of every parameter's own block, each with a separate interval."""
        return {name: _estimate(self.parts, [k], self.value.confidence) for k, name in enumerate(self.names)}

    def summary(self) -> dict[str, object]:
        """The main numbers by label."""
        return {"trace": self.value, "method": f"{self.method}, {self.products:,} products", "blocks": len(self.names)}

    def plot(self) -> Figure:
        """The trace of each parameter's own block."""
        caption = "Trace of the block of each parameter, with its interval where it is sampled."
        return Figure("trace", "Trace of second derivatives", caption, [self.panel()], columns=1)

    def panel(self, title: str = "") -> Panel:
        """The same as a panel, with the largest blocks if there are many."""
        found = self.by_name()
        kept = set(sorted(found, key=lambda name: -abs(found[name].value))[:MAX_BLOCKS])
        return bars_panel({name: value for name, value in found.items() if name in kept}, "trace", title)

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        groups = {name: each.as_json() for name, each in self.by_name().items()}
        return self.value.as_json() | {"method": self.method, "products": self.products, "by_name": groups}


@dataclass(frozen=True, eq=False, repr=False)
class Eigenvalues(Result):
    """Both ends of the spectrum, the outermost first, with multiplicity.

    Residuals are at most `tolerance` times the norm of H, and with probability 0.999 no value is further than that
    from the eigenvalue of its rank (`flipscope.probes.extreme_eigenvalues`).
    """

    top: Extremes
    bottom: Extremes
    tolerance: float
    products: int

    def summary(self) -> dict[str, object]:
        """The main numbers by label."""
        ends = {"largest": self.top.values, "smallest": self.bottom.values}
        found: dict[str, object] = {
            name: ", ".join(f"{each:.4g}" for each in values[:5]) for name, values in ends.items()
        }
        return found | {"residuals": f"at most {self.tolerance:g} of the norm, {self.products:,} products"}

    def plot(self) -> Figure:
        """The eigenvalues by rank, with their residuals."""
        caption = "Outermost eigenvalues by rank, with the residuals of their vectors."
        return Figure("eigenvalues", "Eigenvalues of the Hessian", caption, [self.panel()], columns=1)

    def panel(self, title: str = "") -> Panel:
        """The same as a panel."""
        series = [
            Series(
                name,
                list(range(1, len(end.values) + 1)),
                end.values.tolist(),
                "points",
                (end.values - end.residuals).tolist(),
                (end.values + end.residuals).tolist(),
            )
            for name, end in (("largest", self.top), ("smallest", self.bottom))
        ]
        return Panel(title, "rank", "eigenvalue", series, rules=[Rule(0.0, "")])

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        ends = {"top": self.top, "bottom": self.bottom}
        told = {
            name: {"values": end.values.tolist(), "residuals": end.residuals.tolist()} for name, end in ends.items()
        }
        return told | {"tolerance": self.tolerance, "products": self.products}


@dataclass(frozen=True)
class FisherRao:
    """The Fisher-Rao norm: with the given labels, and with labels drawn from the model."""

    empirical: float
    model: float

    def as_json(self) -> dict[str, float]:
        """The result as a JSON object."""
        return {"empirical": self.empirical, "model": self.model}


@dataclass(frozen=True, eq=False, repr=False)
class Curvature(Result):
    """The requested second derivatives of a loss; the rest is None."""

    loss: float
    gradient_norm: float
    parameters: int  # number of parameters
    names: tuple[str, ...]
    strings: int
    outputs: tuple[int, ...]  # shape of the outputs of one string
    precision: str  # number type in which the model was evaluated
    trace: Trace | None = None
    gauss_newton: Trace | None = None
    eigenvalues: Eigenvalues | None = None
    density: Density | None = None
    fisher_rao: FisherRao | None = None

    def summary(self) -> dict[str, object]:
        """The main numbers by label."""
        found: dict[str, object] = {
            "loss": f"{self.loss:.4g}, gradient of norm {self.gradient_norm:.4g}",
            "parameters": f"{self.parameters:,}, on {count_text(self.strings, 'string')}",
        }
        if self.trace is not None:
            found["trace"] = self.trace.value
        if self.gauss_newton is not None:
            found["Gauss-Newton trace"] = self.gauss_newton.value
        if self.eigenvalues is not None:
            ends = self.eigenvalues
            found["largest, smallest eigenvalue"] = f"{ends.top.values[0]:.4g}, {ends.bottom.values[0]:.4g}"
        if self.density is not None:
            found["mean eigenvalue"] = self.density.mean
        if self.fisher_rao is not None:
            found["Fisher-Rao norm"] = self.fisher_rao.empirical
        return found

    def plot(self) -> Figure:
        """Traces by parameter, the ends of the spectrum and its density, as far as they were measured."""
        panels = [
            each.panel(title)
            for title, each in (
                ("Hessian", self.trace),
                ("Gauss-Newton matrix", self.gauss_newton),
                ("ends of the spectrum", self.eigenvalues),
                ("density of the spectrum", self.density),
            )
            if each is not None
        ]
        if not panels:  # the Fisher-Rao norm alone
            norms = {} if self.fisher_rao is None else self.fisher_rao.as_json()
            panels = [bars_panel({"gradient": self.gradient_norm, **norms}, "norm")]
        caption = "Second derivatives of the loss: traces by parameter, outermost eigenvalues, spectral density."
        return Figure("curvature", "Curvature of the loss", caption, panels)

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        told = {name: getattr(self, name) for name in WHAT}
        return {
            "loss": self.loss,
            "gradient_norm": self.gradient_norm,
            "parameters": self.parameters,
            "strings": self.strings,
            "precision": self.precision,
            **{name: None if each is None else each.as_json() for name, each in told.items()},
        }


@checked_arguments
def curvature(
    model: Model,
    loss: Loss,
    data: Data,
    *,
    what: What | Sequence[What] = WHAT,
    parameters: Choice = None,
    method: Method = "auto",
    probes: int = 99,
    eigenvalues: int = 3,
    tolerance: float = 1e-3,
    restarts: int = 300,
    density_probes: int = 4,
    density_steps: int = 40,
    confidence: float = 0.95,
    seed: Seed = 0,
    forward: Callable[..., Any] | None = None,
    reduction: Literal["mean", "sum"] = "mean",
) -> Curvature:
    """Trace, extreme eigenvalues, density, Gauss-Newton trace and Fisher-Rao norm of a loss at a model.

    `loss` of outputs and targets: "mse", "bce" and "cross_entropy" by name, or a function that returns one number.
    `data`: (inputs, targets), or an iterable of such pairs, such as a DataLoader; inputs are an array whose first axis
    is the string, a tuple of arguments, or a mapping of keywords; of a `flipscope.Subject` with an encoding, strings
    of bits. The losses of several batches are treated as means over their strings and averaged over all of them;
    reduction="sum" adds them instead. The strings differentiated at once are limited by the size of their graphs; for a
    custom loss, which need not be a mean, they are all strings of a pair unless the subject has a `batch`.
    `parameters`: patterns of names or a function of a name; the Hessian is then the block of these. By default all but
    the learned positions of flipscope's transformers, as in `sharpness`; "*" includes those. Parameters that the loss
    does not use have zeros in H.

    `method` of both traces: "exact" takes a product per parameter (the Gauss-Newton one a pass per output), "hutch++"
    and "hutchinson" take `probes` of them and give Student's interval over the random part; "auto" is exact up to 500,
    else Hutch++ while its sketch is small. Products are in the model's own number type: pass it in float64 for more
    digits.

    `eigenvalues`: the number at either end, counted with multiplicity. With N the norm of H, |H v - lambda v|
    is at most `tolerance` N; up to rounding the k-th largest is never above the true one and, with probability 0.999
    over the random starts, at most `tolerance` N below it; likewise at the lower end. `restarts` bounds the work.

    `density`: by `density_probes` Gaussian vectors with `density_steps` Lanczos steps each. Shares of eigenvalues have
    intervals that are valid for every H and include the error of the quadrature; the mean has Student's interval.

    >>> from torch import nn
    >>> model = nn.Linear(2, 1, bias=False)
    >>> found = curvature(model, "mse", (np.array([[1.0, 0.0], [0.0, 2.0]]), np.zeros(2)), eigenvalues=1)
    >>> found.trace.value.value, found.eigenvalues.top.values.round(6).tolist()
    (5.0, [4.0])
    """
    wanted = _checked(what, method, tolerance)
    check_confidence(confidence)
    count = check_count("probes", probes, 3)
    start = seed_number(seed)
    with loss_surface(
        model,
        loss,
        data,
        parameters=parameters,
        forward=forward,
        reduction=reduction,
    ) as surface:
        found: dict[str, Any] = {}
        if "trace" in wanted:
            found["trace"] = _hessian_trace(surface, method, count, confidence, start)
        if "gauss_newton" in wanted:
            found["gauss_newton"] = _gauss_newton(surface, method, count, confidence, start)
        if "fisher_rao" in wanted:
            found["fisher_rao"] = _fisher_rao(surface)
        if "eigenvalues" in wanted:
            many = min(check_count("eigenvalues", eigenvalues), surface.size)
            before = surface.products_made
            ends = extremes(surface, many, tolerance, start, check_count("restarts", restarts))
            found["eigenvalues"] = Eigenvalues(*ends, tolerance, surface.products_made - before)
        if "density" in wanted:
            found["density"] = _density(surface, density_probes, density_steps, start, confidence)
        norm = length(surface.gradient)
        about = (surface.size, surface.names, surface.strings, surface.outputs, surface.precision)
        return Curvature(surface.loss, norm, *about, **found)


def _checked(what: What | Sequence[What], method: str, tolerance: float) -> list[str]:
    wanted = [what] if isinstance(what, str) else list(what)
    for name in wanted:
        if name not in WHAT:
            raise InputError(f"what={name!r} is not one of {', '.join(WHAT)}")
    if not wanted:
        raise InputError(f"what is empty: give some of {', '.join(WHAT)}")
    if method not in METHODS:
        raise InputError(f"method={method!r} is not one of {', '.join(METHODS)}")
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance={tolerance} must lie between 0 and 1: it is relative to the norm of the Hessian")
    return list(wanted)


def _hessian_trace(surface: LossSurface, method: Method, probes: int, confidence: float, seed: int) -> Trace:
    before, taken = surface.products_made, method
    if taken == "auto":
        sketch = 8 * 4 * (probes // 3) * surface.size
        fits = sketch <= machine_memory() * _SKETCH
        taken = "exact" if surface.size <= EXACT else "hutch++" if fits else "hutchinson"
    if taken == "exact":
        parts = exact_traces(surface, surface.starts)
    elif taken == "hutch++":
        check_memory(8 * 4 * (probes // 3) * surface.size, "the sketch of Hutch++", "take method='hutchinson'")
        parts = hutchpp(surface, surface.starts, probes, seed)
    else:
        parts = hutchinson(surface, surface.starts, probes, seed)
    value = _estimate(parts, range(len(surface.names)), confidence)
    return Trace(value, taken, surface.products_made - before, surface.names, parts, surface.first_names)


def _gauss_newton(surface: LossSurface, method: Method, probes: int, confidence: float, seed: int) -> Trace:
    """In the space of outputs, which is usually much smaller: Hutchinson's probes have signs for the outputs."""
    outputs = surface.output_numbers
    exact = method == "exact" or (method == "auto" and outputs <= EXACT)
    if exact:
        parts = Traces(surface.gauss_newton_diagonal(), np.empty((0, len(surface.names))))
    else:
        draws = surface.gauss_newton_draws(probes, lambda k, size, start: signs(seed, k, size, _GAUSS_NEWTON, start))
        parts = Traces(np.zeros(len(surface.names)), draws)
    value = _estimate(parts, range(len(surface.names)), confidence)
    products = outputs if exact else probes
    return Trace(value, "exact" if exact else "hutchinson", products, surface.names, parts, surface.first_names)


def _fisher_rao(surface: LossSurface) -> FisherRao:
    """<theta, grad loss_x> is the slope of the string's loss in its outputs times J theta."""
    norm, model = 0.0, 0.0
    for moved, slope, bent in surface.along(surface.point):
        of_strings = (slope * moved).reshape(len(moved), -1).sum(dim=1)
        norm = math.hypot(norm, length(of_strings.cpu().numpy()))
        model += float((moved * bent).sum())
    return FisherRao(norm / math.sqrt(surface.strings), math.sqrt(max(model, 0.0)))


def _density(surface: LossSurface, probes: int, steps: int, seed: int, confidence: float) -> Density:
    count = check_count("density_probes", probes, 2)
    check_count("density_steps", steps, 2)
    check_memory(8 * steps * surface.size, "the vectors of Lanczos", "give a smaller density_steps")
    return spectral_density(surface, count, steps, seed, confidence, surface.rounding)


def _estimate(parts: Traces, blocks: Sequence[int], confidence: float) -> Estimate:
    base, draws = float(parts.base[list(blocks)].sum()), parts.draws[:, list(blocks)].sum(axis=1)
    if len(draws) == 0:
        return Estimate(base, base, base, confidence, 0)
    return student_mean(draws.tolist(), confidence).scaled(1.0, base)
