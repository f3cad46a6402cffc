"""flipscope random-model: the sensitivity of random transformers."""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flipscope.basics.checks import check_confidence, check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate, mean_from_samples
from flipscope.basics.limits import check_memory, cores
from flipscope.basics.progress import Progress
from flipscope.basics.seeds import check_strings_fit, generators, random_strings
from flipscope.cli.common import length_option, print_json, sampling
from flipscope.cli.hours import anyway, check_hours, flip_work, flipping_seconds
from flipscope.cli.model_options import engine_keywords, engine_options
from flipscope.cli.progress import progress
from flipscope.lab.run.pool import WorkerError, run_tasks
from flipscope.models.config import TransformerConfig
from flipscope.models.presets import encoder
from flipscope.models.shapes import random_shape
from flipscope.models.size import check_attention, check_model
from flipscope.studies.geometry.random_models import measured

# PyTorch and the compiled loops are loaded after the sizes have been checked, so that errors appear at once.
if TYPE_CHECKING:
    from flipscope.models.init import Scheme
    from flipscope.probes.results import Flips, SensitivityProfile
    from flipscope.probes.sensitivity import Options

ESTIMATE_BYTES = 500  # memory of an estimate and its parts; a spectrum has two estimates per bit
PIECES = 8  # no piece of work is larger than the total divided by this
FEWEST = 4  # strings per piece: each piece copies the model and compares its signs with float64 anew

EXAMPLES = """
  flipscope random-model --width 32 --layers 2 --heads 2
  flipscope random-model --init uniform --length 100 --count 20 --strings 50
  flipscope random-model --init xavier_normal --width 64 --layers 2 --heads 4 --json

Without sizes each model has a random shape of the geometry paper, up to width 1024: about 15 minutes on two cores.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--init",
        choices=("uniform", "gaussian", "xavier_uniform", "xavier_normal", "pytorch"),
        default="uniform",
        help="how the weights are drawn (default uniform)",
    )
    length_option(parser, "bits of each string (default 100)", 100)
    for name, default, what in (
        ("count", 20, "number of models"),
        ("strings", 50, "random strings for each model, each with all its flips"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{what} (default {default})")
    for name in ("width", "layers", "heads"):
        parser.add_argument(
            f"--{name}", type=int, metavar="N", help=f"{name} of every model (default: drawn for each model)"
        )
    parser.add_argument("--workers", type=int, metavar="W", help="number of processes (default: one per core)")
    anyway(parser)
    engine_options(parser)
    sampling(parser)


@dataclass(frozen=True)
class Draw:
    """A random model and its strings; the seed determines its shape, its weights and its strings."""

    seed: int
    config: TransformerConfig
    init: Scheme
    length: int
    strings: int
    options: Options

    @property
    def cost(self) -> float:
        """Multiplications of all its forward passes, without the fast path."""
        return float(self.strings * flip_work(self.config, self.length))


@dataclass(frozen=True)
class Piece:
    """Some of the strings of a random model, so that a large model does not keep all other workers waiting."""

    draw: Draw
    first: int
    count: int

    @property
    def cost(self) -> float:
        """The piece's share of the model's cost."""
        return self.draw.cost * self.count / self.draw.strings


def pieces(draws: Sequence[Draw]) -> list[Piece]:
    """All strings of all models in pieces of at most about an eighth of the work, independent of the workers."""
    total = sum(draw.cost for draw in draws)
    found = []
    for draw in draws:
        parts = min(math.ceil(PIECES * draw.cost / total), max(1, draw.strings // FEWEST))
        ends = np.linspace(0, draw.strings, parts + 1).astype(int).tolist()
        found += [Piece(draw, first, last - first) for first, last in itertools.pairwise(ends)]
    return found


def measure_piece(piece: Piece, report: Progress) -> Flips:
    """The sensitivity of the strings of a piece."""
    draw = piece.draw
    (stream,) = generators(draw.seed, 1)
    strings = random_strings(stream, draw.strings, draw.length)[piece.first : piece.first + piece.count]
    options: Options = {**draw.options, "progress": report}
    return measured(draw.config, draw.init, draw.seed, strings, **options)


def run(arguments: argparse.Namespace) -> int:
    """Draw transformers at random and measure each."""
    start = time.perf_counter()
    workers = cores() if arguments.workers is None else check_count("workers", arguments.workers)
    draws = _draws(arguments)
    _check_hours(draws, workers, arguments)
    tasks = pieces(draws)
    costs = [piece.cost for piece in tasks]
    try:
        with progress(f"{len(draws)} {arguments.init} models") as report:
            parts = run_tasks(measure_piece, tasks, workers=workers, costs=costs, progress=report)
    except WorkerError as error:
        print(f"flipscope: {str(error).rstrip('.')}; try fewer --workers.", file=sys.stderr)
        return 1
    from flipscope.probes.results import estimated, joined

    found = []
    for draw in draws:
        own = [part for piece, part in zip(tasks, parts, strict=True) if piece.draw is draw]
        found.append(estimated(joined(own), arguments.confidence))
    summary = _summary(found, arguments.confidence) | {"seconds": time.perf_counter() - start}
    if arguments.json:
        models = [_model_json(draw, spectrum) for draw, spectrum in zip(draws, found, strict=True)]
        print_json(
            {
                "init": arguments.init,
                "length": arguments.length,
                "strings": arguments.strings,
                "models": models,
                "summary": summary,
            }
        )
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.random_page(arguments.init, [draw.config for draw in draws], found, summary))
    return 0


def _draws(arguments: argparse.Namespace) -> list[Draw]:
    """The models to draw, after checking every option."""
    check_confidence(arguments.confidence)
    length, strings = check_count("length", arguments.length), check_count("strings", arguments.strings)
    for name in ("width", "layers", "heads"):
        if getattr(arguments, name) is not None:
            check_count(name, getattr(arguments, name))
    options = engine_keywords(arguments)
    count = check_count("count", arguments.count)
    check_memory(count * 2 * length * ESTIMATE_BYTES, f"the results of {count:,} models", "give fewer")
    # Spread the seeds instead of using 0, 1, 2, so that runs with neighbouring seeds share no model.
    seeds = np.random.SeedSequence(check_count("seed", arguments.seed, 0)).generate_state(count).tolist()
    draws = [Draw(seed, _shape(seed, arguments), arguments.init, length, strings, options) for seed in seeds]
    _check_sizes(draws)
    return draws


def _check_sizes(draws: Sequence[Draw]) -> None:
    """Raise InputError if the models are too large for this machine."""
    length, strings = draws[0].length, draws[0].strings
    check_strings_fit(strings, length)
    for draw in draws:
        check_model(draw.config)
        if draw.config.layers > 1 or draw.options["path"] != "general":  # the fast path's tables hold all pairs of bits
            check_attention(draw.config, length, length)


def _check_hours(draws: Sequence[Draw], workers: int, arguments: argparse.Namespace) -> None:
    """Raise InputError if the models take too long."""
    length, strings = draws[0].length, draws[0].strings
    how = {"general": arguments.path == "general", "screened": arguments.heuristic, "workers": workers}
    seconds = sum(flipping_seconds(draw.config, length, strings, **how) for draw in draws)
    what = f"{strings:,} strings of {length:,} bits for {len(draws):,} models"
    check_hours(arguments, seconds, what, ("--count", "--strings", "--length"))


def _shape(seed: int, arguments: argparse.Namespace) -> TransformerConfig:
    """A random shape of App. F.1 with the sizes given on the command line."""
    drawn = random_shape(seed)
    heads = arguments.heads or drawn.heads
    width = arguments.width or heads * drawn.key_width
    if arguments.heads is None and width % heads:
        raise InputError(f"width {width} is not a multiple of the {heads} heads drawn with seed {seed}: give --heads")
    multiple = drawn.hidden_width // drawn.width
    return encoder(width=width, layers=arguments.layers or drawn.layers, heads=heads, ffn_width=multiple * width)


def _model_json(draw: Draw, found: SensitivityProfile) -> dict[str, Any]:
    told = found.as_json()
    kept = ("average_sensitivity", "zero_share", "profile")
    return {
        "seed": draw.seed,
        "config": draw.config.as_dict(),
        **{name: told[name] for name in kept},
        **found.how(),
    }


def _summary(found: list[SensitivityProfile], confidence: float) -> dict[str, Any]:
    """Statistics of all models; the estimates are of the mean over all models that could have been drawn."""
    averages = [_value(spectrum.average_sensitivity) for spectrum in found]
    zeros = [_value(spectrum.zero_share) for spectrum in found]
    return {
        "models": len(found),
        "average_sensitivity": mean_from_samples(averages, 0, found[0].n, confidence).as_json(),
        "zero_share": mean_from_samples(zeros, 0, 1, confidence).as_json(),
        "median_average_sensitivity": float(np.median(averages)),
        "largest_average_sensitivity": max(averages),
        "models_without_sensitive_string": sum(spectrum.largest_seen == 0 for spectrum in found),
        "rechecked": sum(spectrum.rechecked for spectrum in found),
        "near_ties": sum(spectrum.near_ties for spectrum in found),
    }


def _value(found: float | Estimate) -> float:
    return found.value if isinstance(found, Estimate) else found
