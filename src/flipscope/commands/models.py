"""The commands that look at transformers: sensitivity, random-model, blowup."""

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
from flipscope.basics.estimates import Estimate, Floats, mean_from_samples
from flipscope.basics.limits import check_memory, check_work, cores
from flipscope.basics.progress import Progress
from flipscope.basics.seeds import check_strings_fit, generators, random_strings
from flipscope.commands.cube import print_json
from flipscope.commands.progress import progress
from flipscope.lab.run.pool import WorkerError, run_tasks
from flipscope.models.config import TransformerConfig
from flipscope.models.header import peek
from flipscope.models.presets import encoder
from flipscope.models.shapes import random_shape
from flipscope.models.size import check_attention, check_model, multiplications

# PyTorch and the compiled loops are loaded after the sizes have been checked: what is too large is refused at once.
if TYPE_CHECKING:
    from flipscope.models.init import Scheme
    from flipscope.models.transformer import Transformer
    from flipscope.probes.results import Flips, SensitivityProfile
    from flipscope.probes.sensitivity import Options

DEFAULT_LENGTH = 100  # that of the geometry paper's experiments
ESTIMATE_BYTES = 500  # of an estimate and its parts, of which a spectrum has two a bit
MAX_STRINGS = 100_000  # that are asked for a precision
FEWER = "give fewer or shorter strings"
PIECES = 8  # the work of all random models is cut so that no piece is more than this part of it
FEWEST = 4  # strings a piece: each piece copies the model and compares its signs with float64 anew


def run_sensitivity(arguments: argparse.Namespace) -> int:
    """Measure the sensitivity spectrum of a model."""
    if arguments.precision is not None:
        check_confidence(arguments.confidence)
    model, length = _loaded(arguments)

    from flipscope.probes.sensitivity import sensitivity_profile

    with progress("flips") as report:
        options: Options = {**_how(arguments), "threshold": arguments.threshold, "progress": report}
        found = sensitivity_profile(
            model,
            length,
            strings=arguments.strings,
            precision_target=arguments.precision,
            max_strings=MAX_STRINGS,
            exhaustive=arguments.exhaustive,
            seed=arguments.seed,
            confidence=arguments.confidence,
            **options,
        )
    if arguments.json:
        print_json(found.as_json())
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.sensitivity_page(found, arguments.model, arguments.confidence))
    return 0


def _loaded(arguments: argparse.Namespace) -> tuple[Transformer, int]:
    """The model of a file, and the length of the strings it is to be asked; what is too much is refused before."""
    config = peek(arguments.model)
    if config is not None:
        _checked_length(config, arguments)

    from flipscope.models.checkpoint import load

    model = load(arguments.model)
    return model, _checked_length(model.config, arguments)


def _checked_length(config: TransformerConfig, arguments: argparse.Namespace) -> int:
    """The length of the strings that the model is to be asked, after making sure that they can be."""
    if config.inputs == "patches":
        raise InputError(f"{arguments.model} reads patches of images, which have no bits to flip")
    length = arguments.length
    if length is None:
        length = config.max_length or DEFAULT_LENGTH
    length = check_count("length", length)
    if config.layers > 1:  # a single layer may need no more than the row that is read
        check_attention(config, length, length)
    if arguments.strings is not None:
        strings = check_count("strings", arguments.strings)
        check_strings_fit(strings, length)
        check_work(strings * _flip_work(config, length), f"{strings:,} strings", FEWER)
    if getattr(arguments, "precision", None) is not None:
        _check_precision(arguments.precision, length, check_confidence(arguments.confidence))
    return length


def _flip_work(config: TransformerConfig, length: int) -> int:
    """Multiplications for a string and all its flips, without the fast path."""
    return (length + 1) * multiplications(config, length)


def _check_precision(precision: float, length: int, confidence: float) -> None:
    """Raise InputError if no outcome of as many strings as are drawn at most would be known that precisely."""
    most = MAX_STRINGS
    # The narrowest interval is that of strings without any flip that matters.
    least = mean_from_samples(np.zeros(most), 0, length, confidence, "anytime").half_width
    if 0 < precision < least:
        enough = f"{1.06 * least:.2g}"  # and not less, by rounding
        raise InputError(
            f"precision {precision:g} cannot be reached with {most:,} strings of {length:,} bits: give {enough} or more"
        )


def _how(arguments: argparse.Namespace) -> Options:
    return {
        "path": arguments.path,
        "precision": "float64" if arguments.float64 else "auto",
        "heuristic": arguments.heuristic,
    }


# ---------------------------------------------------------------- random models


@dataclass(frozen=True)
class Draw:
    """A random model and the strings that it is asked; its seed gives its shape, its weights and its strings."""

    seed: int
    config: TransformerConfig
    init: Scheme
    length: int
    strings: int
    options: Options

    @property
    def cost(self) -> float:
        """Multiplications of all its forwards, without the fast path."""
        return float(self.strings * _flip_work(self.config, self.length))


@dataclass(frozen=True)
class Piece:
    """Some of the strings of a random model, so that a large model does not keep all other workers waiting."""

    draw: Draw
    first: int
    count: int

    @property
    def cost(self) -> float:
        """Its part of the model's cost."""
        return self.draw.cost * self.count / self.draw.strings


def pieces(draws: Sequence[Draw]) -> list[Piece]:
    """All strings of all models, in pieces of about an eighth of the work or less, whatever the number of workers."""
    total = sum(draw.cost for draw in draws)
    found = []
    for draw in draws:
        parts = min(math.ceil(PIECES * draw.cost / total), max(1, draw.strings // FEWEST))
        ends = np.linspace(0, draw.strings, parts + 1).astype(int).tolist()
        found += [Piece(draw, first, last - first) for first, last in itertools.pairwise(ends)]
    return found


def measure_piece(piece: Piece, report: Progress) -> Flips:
    """The sensitivity of the strings of a piece."""
    from flipscope.models.transformer import Transformer
    from flipscope.probes.sensitivity import sensitivities

    draw = piece.draw
    model = Transformer(draw.config, scheme=draw.init, seed=draw.seed)
    (stream,) = generators(draw.seed, 1)
    strings = random_strings(stream, draw.strings, draw.length)[piece.first : piece.first + piece.count]
    options: Options = {**draw.options, "progress": report}
    return sensitivities(model, strings, **options)


def run_random_model(arguments: argparse.Namespace) -> int:
    """Draw transformers at random and measure each."""
    start = time.perf_counter()
    draws = _draws(arguments)
    workers = cores() if arguments.workers is None else check_count("workers", arguments.workers)
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
    """The models to draw, after making sure of every option."""
    check_confidence(arguments.confidence)
    length, strings = check_count("length", arguments.length), check_count("strings", arguments.strings)
    for name in ("width", "layers", "heads"):
        if getattr(arguments, name) is not None:
            check_count(name, getattr(arguments, name))
    options = _how(arguments)
    count = check_count("count", arguments.count)
    check_memory(count * 2 * length * ESTIMATE_BYTES, f"the results of {count:,} models", "give fewer")
    # Numbers all over the place rather than 0, 1, 2: runs with neighbouring seeds then share no model.
    seeds = np.random.SeedSequence(check_count("seed", arguments.seed, 0)).generate_state(count).tolist()
    draws = [Draw(seed, _shape(seed, arguments), arguments.init, length, strings, options) for seed in seeds]
    _check_sizes(draws)
    return draws


def _check_sizes(draws: Sequence[Draw]) -> None:
    """Raise InputError if the models are too large for this machine, or too much work for any."""
    length, strings = draws[0].length, draws[0].strings
    check_strings_fit(strings, length)
    for draw in draws:
        check_model(draw.config)
        if draw.config.layers > 1 or draw.options["path"] != "general":  # whose tables hold all pairs of bits
            check_attention(draw.config, length, length)
    work = sum(strings * _flip_work(draw.config, length) for draw in draws)
    check_work(work, f"{strings:,} strings of {length:,} bits for {len(draws):,} models", FEWER)


def _shape(seed: int, arguments: argparse.Namespace) -> TransformerConfig:
    """A shape of App. F.1, with what was fixed on the command line put in its place."""
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
    """The models together; the estimates are of the mean over all models that could have been drawn."""
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


# ---------------------------------------------------------------- blowup


def run_blowup(arguments: argparse.Namespace) -> int:
    """Measure what the layer norms of a model do to random strings."""
    model, length = _loaded(arguments)

    from flipscope.probes.blowup import blowup

    (stream,) = generators(arguments.seed, 1)
    strings = random_strings(stream, check_count("strings", arguments.strings), length)
    found = blowup(model, strings)
    document = {
        "length": length,
        "strings": found.strings,
        "norms": [
            {"name": name, "eps": eps, "tau": _spread(found.tau[:, column])}
            for column, (name, eps) in enumerate(zip(found.names, found.eps, strict=True))
        ],
        "beta": _spread(found.beta),
        "bound": _finite(found.bound),
        "infinite": found.infinite,
    }
    if arguments.json:
        print_json(document)
        return 0
    from flipscope.report import models as pages
    from flipscope.report.terminal import show

    show(pages.blowup_page(arguments.model, document))
    return 0


def _spread(values: Floats) -> dict[str, float | None]:
    """The ends and the middle of what the strings showed; None stands for infinity, which JSON does not know."""
    return {
        "smallest": _finite(float(values.min())),
        "median": _finite(float(np.quantile(values, 0.5, method="lower"))),
        "largest": _finite(float(values.max())),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
