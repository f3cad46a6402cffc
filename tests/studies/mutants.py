"""Mutants: small faults that are put into the running code, each of which golden numbers must notice.

    python -m tests.studies.mutants [MUTANT…]     a table of all studies and trainings that notice each mutant (slow)

The suite runs each mutant against the cheap goldens that it names (tests/studies/test_mutants.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch import nn

from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.bounds import noise_stability
from flipscope.data import image_data
from flipscope.lab import registry
from flipscope.models import init, transformer
from flipscope.models.addition_network import AdditionNetwork
from flipscope.models.marker import linear, noisy
from flipscope.models.token_attention import TokenAttention
from flipscope.models.transformer import MLP, Attention, Embedding, LayerNorm
from flipscope.probes import kernels, sharpness, token_actions
from flipscope.training import fit, terms
from flipscope.training.targets import Aim


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A fault, and the cheapest studies and trainings that must notice it."""

    name: str
    fault: Callable[[], AbstractContextManager[object]]
    studies: Sequence[str] = ()
    trainings: Sequence[str] = ()


def wrapped(place: Any, name: str, change: Callable[..., Any]) -> Callable[[], AbstractContextManager[object]]:
    """The fault that a function gives `change(what it gave, *its arguments)`."""

    def fault() -> AbstractContextManager[object]:
        function = getattr(place, name)

        @functools.wraps(function)
        def changed(*arguments: Any, **options: Any) -> Any:
            return change(function(*arguments, **options), *arguments)

        return mock.patch.object(place, name, changed)

    return fault


def times(factor: float) -> Callable[..., Any]:
    """The result times a factor."""
    return lambda result, *_: factor * result


@contextlib.contextmanager
def _marker_path() -> Iterator[None]:
    """Attention at the marker, without and with dropout."""
    read = noisy.noisy_read

    def noisier(*arguments: Any) -> Any:
        x, mixed = read(*arguments)
        return x, 1.05 * mixed

    with wrapped(linear.Means, "mixed", times(1.05))(), mock.patch.object(noisy, "noisy_read", noisier):
        yield


@contextlib.contextmanager
def _more_dropout() -> Iterator[None]:
    """Dropout of one half wherever there is any."""

    def half(config: Any) -> nn.Module:
        return nn.Dropout(0.5) if config.dropout else nn.Identity()

    kept = noisy.kept_by_dropout
    with (
        mock.patch.object(transformer, "_dropout", half),
        mock.patch.object(noisy, "kept_by_dropout", lambda size, rate: kept(size, 0.5)),
    ):
        yield


def _larger_eps() -> AbstractContextManager[object]:
    """Layer norms with an eps a hundred times as large."""
    build = LayerNorm.__init__
    return mock.patch.object(
        LayerNorm, "__init__", lambda self, width, eps, affine: build(self, width, 100 * eps, affine)
    )


@contextlib.contextmanager
def _negated_term() -> Iterator[None]:
    """The trace of the Hessian with the wrong sign."""
    trace = terms.trace

    @functools.wraps(trace)
    def negated(around: Any, **settings: Any) -> fit.Term:
        term = trace(around, **settings)
        return lambda *arguments: -term(*arguments)

    with mock.patch.object(terms, "trace", negated), mock.patch.dict(terms.TERMS.definitions, {"trace": negated}):
        yield


def _doubled(found: Estimate, *_: Any) -> Estimate:
    """An estimate of twice the size."""
    return dataclasses.replace(found, value=2 * found.value, low=2 * found.low, high=2 * found.high)


def _shifted(positions: torch.Tensor, *_: Any) -> torch.Tensor:
    """The vector of each position at the next one."""
    return positions.roll(1, dims=0)


def _larger_moment(moments: tuple[Any, Any], *_: Any) -> tuple[Any, Any]:
    """The covariance behind a ReLU, a little too large."""
    return 1.02 * moments[0], moments[1]


def _faster(stepper: torch.optim.Optimizer, *_: Any) -> torch.optim.Optimizer:
    """An optimiser with a larger learning rate."""
    for group in stepper.param_groups:
        group["lr"] *= 1.02
    return stepper


def _undecayed(stepper: torch.optim.Optimizer, *_: Any) -> torch.optim.Optimizer:
    """An optimiser without weight decay."""
    for group in stepper.param_groups:
        group["weight_decay"] = 0.0
    return stepper


def _upside_down(images: torch.Tensor, *_: Any) -> torch.Tensor:
    """Training images with their rows in reverse order."""
    return images.flip(2)


MUTANTS = (
    Mutant("attention times 1.02", wrapped(Attention, "mix", times(1.02)), ["random-sensitivity"]),
    Mutant("MLP times 1.02", wrapped(MLP, "forward", times(1.02)), [], ["hardness"]),
    # In the few steps of a smoke trial the marker's attention, with weights of 0.02, changes a loss by 3e-6 only.
    Mutant("marker path times 1.05", _marker_path, [], ["sparse, fixed strings"]),
    Mutant("dropout 0.5", _more_dropout, ["sparse-and"], ["sparse, fresh strings", "fourier"]),
    Mutant("eps of layer norm times 100", _larger_eps, [], ["geometry, fresh strings"]),
    Mutant(
        "sharpness doubled",
        wrapped(sharpness, "_estimate", _doubled),
        ["parity-dynamics", "flatness"],
        ["hardness, logged"],
    ),
    Mutant("wrong sign of a loss term", _negated_term, ["low-sharpness"], ["fourier, trace"]),
    Mutant("positions shifted by one", wrapped(Embedding, "positions", _shifted), ["cot-parity"], ["steps"]),
    Mutant("initial weights times 1.02", wrapped(init._Law, "draw", times(1.02)), ["norm-blowup"], ["table"]),
    Mutant("learning rate times 1.02", wrapped(fit, "_stepper", _faster), ["norm-essential"], ["lengths"]),
    Mutant("no weight decay", wrapped(fit, "_stepper", _undecayed), [], ["hardness, mean"]),
    Mutant("ReLU of kernels times 1.02", wrapped(kernels, "relu_moments", _larger_moment), ["kernel-spectrum"]),
    Mutant("noise bounds times 1.02", wrapped(noise_stability, "change_bound", times(1.02)), ["noise-stability"]),
    Mutant("attention of Eq 3 times 1.02", wrapped(TokenAttention, "attention", times(1.02)), ["sparse-or-frequent"]),
    Mutant("answers of addition times 1.02", wrapped(AdditionNetwork, "_finish", times(1.02)), ["grokking"]),
    Mutant("vectors of tokens times 1.1", wrapped(Embedding, "symbols", times(1.1)), [], ["texts"]),
    Mutant(
        "noise on tokens times 3",
        wrapped(token_actions, "noise_tensor", times(3.0)),
        ["vision", "robustness", "pretrained", "language"],
    ),
    Mutant("images upside down", wrapped(image_data, "augmented", _upside_down), [], ["images"]),
    Mutant("loss times 1.02", wrapped(Aim, "total", times(1.02)), ["sparse-parity", "parity-progress"], ["scratchpad"]),
)


def main(names: Sequence[str]) -> None:
    """Print which studies and trainings notice each mutant."""
    from ..compile_loops import main as compile_loops
    from ..training import golden as trainings
    from .golden import Golden, differences

    compile_loops()  # else the first trials say that they took another path, which is no fault
    known = {name: Golden.read(name) for name in registry.names()}
    short = trainings.json.loads(trainings.FILE.read_text("utf-8"))["trainings"]
    for mutant in MUTANTS:
        if names and mutant.name not in names:
            continue

        def noticed(compare: Callable[[str], object], every: Iterable[str], fault: Any = mutant.fault) -> list[str]:
            found = []
            for name in every:
                with fault():
                    try:
                        found += [name] * bool(compare(name))
                    except InputError:  # bounds and norms refuse a transformer whose methods were replaced
                        found.append(name)
            return found

        long = noticed(lambda name: differences(registry.find(name), known[name], stop=True), known)
        brief = noticed(lambda name: trainings.differences(short[name], trainings.measured(name)), short)
        print(f"{mutant.name}\n  studies ({len(long)}): {', '.join(long)}", flush=True)
        print(f"  trainings ({len(brief)}): {', '.join(brief)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
