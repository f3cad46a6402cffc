"""flipscope bound pac-bayes: the bound for a class of functions, or for a model on its training strings."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flipscope.basics import npz
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_memory
from flipscope.cli.common import print_json
from flipscope.cli.opening import Work, open_model
from flipscope.cli.progress import progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flipscope.basics.bits import Bits

SAMPLES = 8192  # training strings in the paper's experiments
STRING_BYTES = 150  # memory per string of --data beside three copies of its bits: half of the measured amount


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that are specific to pac-bayes."""
    group = parser.add_argument_group("pac-bayes, for a class of functions")
    group.add_argument("--sparsity", type=int, metavar="W", help="number of parities in the sum")
    group.add_argument("--degree", type=int, metavar="D", help="bits of each parity")
    group.add_argument(
        "--form",
        choices=("truncated", "semi-analytic", "analytic"),
        default="truncated",
        help="truncated: without P; semi-analytic: with P as measured; analytic: with P of Thm 17 (default truncated)",
    )
    group.add_argument(
        "--subgaussian", type=float, metavar="S", help="sub-Gaussian parameter Sigma of the loss (default 0.01)"
    )
    group.add_argument("--sigma", type=float, metavar="S", help="standard deviation of the noise (default: the best)")
    group.add_argument(
        "--perturbation",
        type=float,
        metavar="P",
        help="perturbation term P of semi-analytic (default: measured at sigma)",
    )
    group.add_argument("--mend", action="store_true", help="with analytic: include the sigma that is missing in G_p")
    group.add_argument("--all-terms", action="store_true", help="sigma^2 (2 G + P) / 2, and all of P's last term")
    group.add_argument("--tight", action="store_true", help="the sum of the gradients' own bounds instead of G_u")
    group = parser.add_argument_group("pac-bayes, for a model")
    group.add_argument(
        "--data", metavar="FILE.npz", help="its training set: strings [sample, position] and labels [sample]"
    )
    group.add_argument(
        "--largest", type=float, default=1.0, metavar="B", help="squared errors are truncated at this value (default 1)"
    )
    group.add_argument(
        "--draws", type=int, default=100, metavar="K", help="draws of the noise, for each sigma (default 100)"
    )
    group.add_argument(
        "--trace",
        type=float,
        metavar="TR",
        help="trace of the Hessian of its loss with respect to the same parameters: a quick bound",
    )
    group.add_argument(
        "--fixed",
        action="append",
        metavar="PATTERN",
        help="parameters and buffers that were fixed before the data, as in a shell; repeatable (default: none)",
    )
    group.add_argument(
        "--test", metavar="LOW,HIGH", help="without data: testers find its class; its outputs lie between LOW and HIGH"
    )
    group.add_argument("--tolerance", type=float, metavar="T", help="with --test: tolerance of the degree tester")
    group.add_argument(
        "--trials",
        type=int,
        metavar="K",
        help="with --test: trials of the degree tester (default: as its guarantee requires)",
    )
    group.add_argument(
        "--tail", type=float, default=1e-3, metavar="E", help="with --test: energy outside its parities (default 0.001)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Bound the loss, and list the assumptions."""
    found, notes = (_of_class(arguments), []) if arguments.model is None else _of_model(arguments)
    if arguments.json:
        print_json(found)
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.pac_bayes_page(arguments.model or "a class of functions", found, notes))
    return 0


def _of_class(arguments: argparse.Namespace) -> dict[str, Any]:
    for name in ("sparsity", "degree", "length"):
        if getattr(arguments, name) is None:
            raise InputError(f"pac-bayes needs a MODEL, or --sparsity, --degree and --length: --{name} is missing")
    of_model = ("data", "trace", "test", "tolerance", "trials", "fixed")
    _refuse(arguments, of_model, "is for a MODEL: give one, or leave it out")
    if arguments.mend and arguments.form != "analytic":
        raise InputError(f"--mend is for --form analytic, and --form {arguments.form} was given")
    from flipscope.bounds.pac_bayes import class_bound

    sizes = (arguments.sparsity, arguments.degree, arguments.length)
    samples = SAMPLES if arguments.train_strings is None else arguments.train_strings
    settings: dict[str, Any] = {
        "delta": arguments.delta,
        "subgaussian": _subgaussian(arguments),
        "tight": arguments.tight,
        "strict": arguments.all_terms,
        "sigma": arguments.sigma,
    }
    if arguments.form != "semi-analytic":
        if arguments.perturbation is not None:
            raise InputError(f"--perturbation is for --form semi-analytic, and --form {arguments.form} was given")
        return class_bound(*sizes, samples, form=arguments.form, mend=arguments.mend, **settings).as_json()
    added = arguments.perturbation
    if added is None:
        from flipscope.constructions.class_perturbation import class_perturbations

        # The sigma at which the truncated bound is smallest, as in E.3.
        settings["sigma"] = class_bound(*sizes, samples, **settings).sigma
        measured = class_perturbations(*sizes, settings["sigma"], seed=arguments.seed)
        added = max(each.perturbation for each in measured)
    return class_bound(*sizes, samples, form="semi-analytic", perturbation=added, **settings).as_json()


def _of_model(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    ways = {"data": "its training set", "trace": "the trace of its Hessian", "test": "the range of its outputs"}
    if arguments.test is not None and (arguments.data is not None or arguments.trace is not None):
        raise InputError("--test uses no data: leave out --data and --trace")
    if all(getattr(arguments, name) is None for name in ways):
        told = ", ".join(f"--{name} ({what})" for name, what in ways.items())
        raise InputError(f"a bound for {arguments.model} needs one of {told}")
    of_class = ("sparsity", "degree", "perturbation", "sigma", "mend", "all_terms", "tight")
    _refuse(arguments, of_class, "is for a class of functions: leave it out, or leave out the MODEL")
    if arguments.form != "truncated":
        raise InputError("--form is for a class of functions: leave it out, or leave out the MODEL")
    if arguments.test is None:
        _refuse(arguments, ("tolerance", "trials"), "is for --test: leave it out")
    work = count = bits = None
    if arguments.data is not None:
        count, bits = data_shape(arguments.data)
        if arguments.train_strings not in (None, count):
            raise InputError(
                f"--train-strings {arguments.train_strings} and the {count} strings of --data differ: give one"
            )
        work = _work(arguments)
    opened = open_model(arguments, work=work, bits=bits, strings=count)
    model, length = opened.model, opened.length
    data = None if arguments.data is None else read_data(arguments.data)
    from flipscope.bounds import pac_bayes

    if arguments.test is not None:
        _refuse(arguments, ("fixed",), "is for --data and --trace: leave it out")
        samples = opened.train_strings or SAMPLES
        found = pac_bayes.black_box_bound(
            model,
            length,
            samples,
            value_range=_range(arguments.test),
            tolerance=arguments.tolerance,
            trials=arguments.trials,
            tail=arguments.tail,
            delta=arguments.delta,
            subgaussian=_subgaussian(arguments),
            seed=arguments.seed,
        )
        return found.as_json() | opened.as_json(), opened.notes
    if arguments.trace is not None:
        if opened.train_strings is None:
            raise InputError("--trace needs --train-strings or --data: how many strings was the model trained on?")
        _, norm, outside = pac_bayes.counted(model, arguments.fixed)
        quick = pac_bayes.trace_bound(
            norm,
            arguments.trace,
            opened.train_strings,
            loss=0.0 if data is None else _loss(model, *data),
            delta=arguments.delta,
            subgaussian=_subgaussian(arguments),
        )
        whole = replace(quick, assumptions=(*quick.assumptions, *outside.assumptions))
        return whole.as_json() | outside.as_json() | opened.as_json(), opened.notes
    assert data is not None
    if arguments.subgaussian is not None:
        raise InputError("--subgaussian is half of --largest with --data: leave it out")
    with progress("draws") as report:
        posterior = pac_bayes.posterior_bound(
            model,
            *data,
            largest=arguments.largest,
            delta=arguments.delta,
            draws=arguments.draws,
            fixed=arguments.fixed,
            seed=arguments.seed,
            progress=report,
        )
    return posterior.as_json() | opened.as_json(), opened.notes


def _work(arguments: argparse.Namespace) -> Work:
    """The number of evaluations of the model on the strings of --data."""
    if arguments.trace is not None:
        return Work(1, options=("the strings of --data",))
    draws = check_count("draws", arguments.draws, 2)
    from flipscope.bounds.pac_bayes.inequalities import POSTERIOR_SIGMAS

    what = f"{draws:,} draws for each of {len(POSTERIOR_SIGMAS)} sigmas"
    return Work(len(POSTERIOR_SIGMAS) * draws + 1, what, ("--draws", "the strings of --data"), distinct=True)


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    """Raise InputError if one of these was given."""
    for name in names:
        if getattr(arguments, name) not in (None, False):
            raise InputError(f"--{name.replace('_', '-')} {why}")


def _subgaussian(arguments: argparse.Namespace) -> float:
    return 0.01 if arguments.subgaussian is None else float(arguments.subgaussian)


def _loss(model: Any, strings: Bits, labels: NDArray[np.float64]) -> float:
    """The mean squared error of the model on its training set."""
    from flipscope.adapters.settled import as_settled
    from flipscope.probes.asking import asked

    with asked(as_settled(model), strings, None) as (_, outputs):
        if tuple(outputs.shape) != labels.shape:
            raise InputError(f"the model gives outputs of shape {tuple(outputs.shape)}, not one number per string")
        return float(((outputs.double().numpy() - labels) ** 2).mean())


def _range(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--test {text} is not a range: write for example 0,2") from None
    if not low < high:
        raise InputError(f"--test {text} is not a range: the first number must be the smaller one")
    return low, high


def data_shape(path: str) -> tuple[int, int]:
    """Number and length of the strings in a file of `numpy.savez`, after checking that they fit into memory."""
    with _data(path) as arrays:
        strings, labels = arrays.header("strings"), arrays.header("labels")
    if len(strings.shape) != 2 or min(strings.shape) < 1 or strings.dtype.kind not in "biu":
        raise InputError(_no_strings(path, strings.shape))
    if labels.shape != strings.shape[:1] or labels.dtype.kind not in "biuf":
        raise InputError(_no_labels(path, labels.shape))
    count, length = strings.shape
    need = max(strings.size + labels.size, count * (3 * length + STRING_BYTES))
    check_memory(need, f"{count:,} strings of {length:,} bits in {path}", "give fewer")
    return count, length


def read_data(path: str) -> tuple[Bits, NDArray[np.float64]]:
    """The strings and labels in a file that `data_shape` has checked."""
    with _data(path) as arrays:
        strings, labels = arrays["strings"], arrays["labels"]
    if strings.min() < 0 or strings.max() > 1:
        raise InputError(_no_strings(path, strings.shape))
    if not np.isfinite(labels).all():
        raise InputError(_no_labels(path, labels.shape))
    return strings.astype(np.uint8, copy=False), labels.astype(np.float64, copy=False)


@contextmanager
def _data(path: str) -> Iterator[npz.Arrays]:
    try:
        with npz.opened(Path(path)) as arrays:
            yield arrays
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: give a file that numpy.savez wrote") from None
    except InputError:
        raise
    except npz.DAMAGE:
        raise InputError(f"{path} must hold strings and labels, as numpy.savez writes them") from None


def _no_strings(path: str, shape: tuple[int, ...]) -> str:
    return f"{path} has strings of shape {shape}, which must be zeros and ones [sample, position]"


def _no_labels(path: str, shape: tuple[int, ...]) -> str:
    return f"{path} has labels of shape {shape}, which must be a finite number for each string"
