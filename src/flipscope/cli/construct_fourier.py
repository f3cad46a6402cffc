"""flipscope construct --fourier and --parity-steps: the networks of paper 002, with errors, norms and gradients."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

from flipscope.basics.errors import InputError
from flipscope.cli.common import print_json

if TYPE_CHECKING:
    from flipscope.cube.fourier_sums import FourierSum
    from flipscope.models.fourier_network import FourierNetwork

GRADIENT_STRINGS = 64  # strings on which squared gradients are measured
ROUNDING = 1e-9  # allowance for float64 rounding in the output
# Options for functions of few bits only, with their defaults.
_OTHERS = {
    **dict.fromkeys(("positions", "gamma", "width")),
    **{"mapping": "deterministic", "heads": "1", "basis": "orthonormal", "general": False, "as_printed": False},
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for sums of parities."""
    group = parser.add_argument_group("sums of parities")
    what = group.add_mutually_exclusive_group()
    what.add_argument("--fourier", metavar="SUM", help='such as "0.6*x1x2x3 + 0.64*x3x4x5"; a set is a product')
    what.add_argument("--parity-steps", action="store_true", help="the parity of --length bits, one at a time")
    group.add_argument(
        "--mask", type=float, metavar="L", help="0: the paper's network; 40: exact (default 40, or 0 if linear)"
    )
    group.add_argument(
        "--readout",
        choices=("attention", "linear"),
        default="attention",
        help="read-out of the second layer (default attention)",
    )
    group.add_argument(
        "--code-width", type=int, metavar="D", help="positions as random vectors of this width (default: one-hot)"
    )
    group.add_argument("--rescale", action="store_true", help="the same function with the smallest norm (App. D)")


def run(arguments: argparse.Namespace) -> int:
    """Construct the network and report its error, and the bounds that the theorems give for it."""
    for name, usual in _OTHERS.items():
        if getattr(arguments, name) != usual:
            raise InputError(f"--{name.replace('_', '-')} is for a function of few bits: leave it out")
    if arguments.expression is not None:
        raise InputError("give an expression of few bits, --fourier or --parity-steps, and only one of them")
    network, document = _of_steps(arguments) if arguments.parity_steps else _of_sum(arguments)
    if arguments.output is not None:
        from flipscope.models.checkpoint import save

        save(network, arguments.output, {"construction": document["function"]})
        document["model"] = arguments.output
    passed = not arguments.check or _passed(document)
    if arguments.json:
        print_json(document)
        return int(not passed)
    from flipscope.report.constructions import fourier_page
    from flipscope.report.terminal import show

    show(fourier_page(document["function"], document, passed))
    return int(not passed)


def _passed(document: dict[str, Any]) -> bool:
    """Whether the check found at most the known error bound, or no error if there is no known bound.

    The comparison is written so that NaN fails.
    """
    check = document["check"]
    if "wrong_steps" in check:
        return not check["wrong_steps"]
    return bool(check["output"] <= (document["error_bound"] or 0.0) + ROUNDING)


def refuse_settings(arguments: argparse.Namespace) -> None:
    """Raise InputError if an option is given that is only for sums of parities."""
    usual = {"mask": None, "code_width": None, "readout": "attention", "rescale": False}
    for name, value in usual.items():
        if getattr(arguments, name) != value:
            raise InputError(f"--{name.replace('_', '-')} is for --fourier: leave it out")


def _of_sum(arguments: argparse.Namespace) -> tuple[FourierNetwork, dict[str, Any]]:
    from flipscope.cube.fourier_sums import parse_sum

    target = parse_sum(arguments.fourier, arguments.length)
    linear = arguments.readout == "linear"

    from flipscope.constructions import fourier

    mask = arguments.mask if arguments.mask is not None else 0.0 if linear else fourier.EXACT
    settings = {"readout": arguments.readout, "code_width": arguments.code_width, "seed": arguments.seed}
    network = fourier.fourier_network(target, mask=mask, **settings)
    paper = network if mask == 0 else fourier.fourier_network(target, **settings)
    if arguments.rescale:
        network, paper = (fourier.rescaled(each, fourier.norm_scale(each)) for each in (network, paper))
    known = arguments.code_width is None
    document = {
        "function": arguments.fourier,
        "length": target.length,
        "sparsity": target.sparsity,
        "degree": target.degree,
        "mask": mask,
        "readout": arguments.readout,
        **_sizes(network),
        "error_bound": 0.0 if linear and known else fourier.output_error(target, mask) if known else None,
        "paper": _paper(paper, target, linear),
    }
    if arguments.check:
        document["check"] = vars(fourier.check_network(network, target, seed=arguments.seed))
    return network, document


def _sizes(network: FourierNetwork) -> dict[str, Any]:
    return {
        "width": network.config.width,
        "neurons": network.config.neurons,
        "parameters": sum(each.numel() for each in network.parameters()),
        "squared_norm": network.squared_norm(),
    }


def _paper(network: FourierNetwork, target: FourierSum, linear: bool) -> dict[str, Any]:
    """Norm and gradient with mask 0, and the paper's bounds if the target belongs to its class."""
    from flipscope.basics.seeds import random_strings
    from flipscope.bounds.pac_bayes import gradient_bound, norm_bound
    from flipscope.probes.gradients import squared_gradients

    strings = random_strings(np.random.default_rng(0), GRADIENT_STRINGS, target.length)
    largest = float(squared_gradients(network, strings).total.max())
    # Thm 10 assumes |log c + 2 log T| <= 2 log T and Z <= sqrt(omega).
    small = min(target.coefficients) >= target.length**-4 and target.norm <= 1 + 1e-12
    covered = target.is_homogeneous and small and not linear and network.config.code_width is None
    sizes = (target.sparsity, target.degree)
    return {
        "squared_norm": network.squared_norm(),
        "norm_bound": norm_bound(*sizes, target.length) if covered else None,
        "squared_gradient": largest,
        "gradient_bound": gradient_bound(*sizes) if covered else None,
    }


def _of_steps(arguments: argparse.Namespace) -> tuple[FourierNetwork, dict[str, Any]]:
    refuse_settings(arguments)
    if arguments.length is None:
        raise InputError("--parity-steps needs --length: the parity of how many bits?")
    import torch

    from flipscope.basics.bits import index_bits
    from flipscope.basics.seeds import generators, random_strings
    from flipscope.bounds.pac_bayes import norm_bound, steps_norm_bound
    from flipscope.constructions.chain_of_thought import parity_steps, write_steps

    length = arguments.length
    network = parity_steps(length)
    document = {
        "function": f"parity of {length} bits, step by step",
        "length": length,
        "sparsity": 1,
        "degree": 2,
        **_sizes(network),
        "norm_bound": steps_norm_bound(length),
        "paper": {"squared_norm": network.squared_norm(), "norm_bound": norm_bound(1, 2, length)},
    }
    if arguments.check:
        (stream,) = generators(arguments.seed, 1)
        everything = length <= 10
        strings = index_bits(0, 1 << length, length) if everything else random_strings(stream, 1000, length)
        wrong = write_steps(network, torch.from_numpy(strings)).numpy() != np.cumsum(strings, axis=1) % 2
        checked = {"wrong_steps": int(wrong.sum()), "strings": len(strings), "exhaustive": everything}
        document["check"] = checked
    return network, document
