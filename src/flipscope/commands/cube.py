"""The commands that look at Boolean functions: function, zoo, compare, test-degree, test-sparsity, verdict."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from flipscope.commands.progress import progress
from flipscope.cube.compose import NotExact
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.portrait import DEFAULT_STRINGS, RHOS, Portrait, exact_portrait, sampled_portrait
from flipscope.errors import InputError


def print_json(document: Any) -> None:
    """One JSON document on standard output; NaN is a bug, not a number."""
    print(json.dumps(document, allow_nan=False))


def run_function(arguments: argparse.Namespace) -> int:
    """Describe one function."""
    f = parse(arguments.expression, arguments.n)
    found = _portrait(f, arguments.expression, arguments)
    _draw(arguments, [found])
    if arguments.json:
        print_json(found.as_json())
    else:
        from flipscope.report import terminal

        terminal.show(terminal.function_page(found))
    return 0


def _portrait(f: BooleanFunction, name: str, arguments: argparse.Namespace) -> Portrait:
    rhos = tuple(arguments.rho) if arguments.rho else RHOS
    with progress(f"{name[:40]}") as report:
        if arguments.samples is None:
            try:
                return exact_portrait(f, name, rhos, report)
            except NotExact as error:
                if arguments.exact:
                    raise
                print(f"{error} Sampling {DEFAULT_STRINGS:,} strings.", file=sys.stderr)
        return sampled_portrait(
            f,
            name,
            DEFAULT_STRINGS if arguments.samples is None else arguments.samples,
            seed=arguments.seed,
            confidence=arguments.confidence,
            rhos=rhos,
            progress=report,
        )


def _draw(arguments: argparse.Namespace, portraits: list[Portrait]) -> None:
    if arguments.plot:
        from flipscope.report.figures import function_figure, save_figure

        print(f"wrote {save_figure(function_figure(portraits), arguments.plot)}", file=sys.stderr)


def run_compare(arguments: argparse.Namespace) -> int:
    """Describe two functions side by side, and how far apart they are."""
    first, second = (parse(text, arguments.n) for text in (arguments.first, arguments.second))
    size = max(first.n, second.n)
    first, second = first.extend(size), second.extend(size)
    portraits = [_portrait(f, name, arguments) for f, name in ((first, arguments.first), (second, arguments.second))]
    distance, sentence = _distance(first, second, arguments)
    _draw(arguments, portraits)
    if arguments.json:
        print_json(
            {"first": portraits[0].as_json(), "second": portraits[1].as_json(), "disagreement": distance}
        )
    else:
        from flipscope.report import terminal

        terminal.show(terminal.compare_page(portraits[0], portraits[1], sentence))
    return 0


def _distance(first: BooleanFunction, second: BooleanFunction, arguments: argparse.Namespace) -> tuple[Any, str]:
    """The share of strings on which the two differ, exact if it can be, with a sentence."""
    from flipscope.cube.intervals import proportions
    from flipscope.cube.sensitivity import count_ones

    difference = first ^ second
    try:
        if arguments.samples is None:
            share = Fraction(count_ones(difference), 1 << difference.n)
            words = "The two are the same function." if not share else "They differ on a share of"
            return float(share), words if not share else f"{words} {float(share):.6g} of all strings (exact)."
    except NotExact:
        pass
    import numpy as np

    strings = arguments.samples or 100_000
    bits = np.random.default_rng(arguments.seed).integers(0, 2, (strings, difference.n), np.uint8)
    found = proportions([int(difference(bits).sum(dtype=np.int64))], strings, arguments.confidence)[0]
    sentence = (
        f"They differ on a share of {found.value:.4g} of {strings:,} sampled strings "
        f"[{found.low:.4g}, {found.high:.4g}] at confidence {arguments.confidence:g}."
    )
    return found.as_json(), sentence


def run_zoo(arguments: argparse.Namespace) -> int:
    """List the named functions with an example each."""
    from flipscope.cube.zoo import ZOO

    rows = []
    for entry in ZOO:
        found = exact_portrait(parse(entry.example), entry.example)
        rows.append(
            {
                "name": entry.name,
                "usage": entry.usage,
                "meaning": entry.meaning,
                "example": entry.example,
                "average_sensitivity": found.average_sensitivity,
                "zero_strings": found.profile[0],
                "degree": found.degree,
            }
        )
    if arguments.json:
        print_json(rows)
        return 0
    from rich.table import Table

    from flipscope.report import terminal

    table = Table(box=None, padding=(0, 2), header_style="bold")
    for heading in ("function", "is 1 when", "example", "average sensitivity", "degree"):
        table.add_column(heading, justify="right" if heading in ("average sensitivity", "degree") else "left")
    for row in rows:
        table.add_row(
            row["usage"],
            row["meaning"],
            row["example"],
            f"{row['average_sensitivity']:.5g}",
            terminal.number(row["degree"]),
        )
    terminal.show(table)
    return 0


def run_test_degree(arguments: argparse.Namespace) -> int:
    """Test, by queries only, whether a function has low degree."""
    from flipscope.cube.testers import first_accepted_degree, low_degree_test

    f = parse(arguments.expression, arguments.n)
    options = {"epsilon": arguments.epsilon, "confidence": arguments.confidence, "seed": arguments.seed}
    if arguments.degree is None:
        return _print_sweep(arguments, "degree", first_accepted_degree(f, f.n, **options))
    return _print_test(arguments, "degree", low_degree_test(f, f.n, arguments.degree, **options))


def run_test_sparsity(arguments: argparse.Namespace) -> int:
    """Test, by queries only, whether a function has few Fourier coefficients."""
    from flipscope.cube.testers import first_accepted_sparsity, fourier_sparsity_test

    f = parse(arguments.expression, arguments.n)
    options = {
        "epsilon": arguments.epsilon,
        "confidence": arguments.confidence,
        "seed": arguments.seed,
        "free": min(arguments.free, f.n),
    }
    if arguments.sparsity is None:
        return _print_sweep(arguments, "sparsity", first_accepted_sparsity(f, f.n, **options))
    return _print_test(arguments, "sparsity", fourier_sparsity_test(f, f.n, arguments.sparsity, **options))


def _print_sweep(arguments: argparse.Namespace, what: str, sweep: Any) -> int:
    if arguments.json:
        print_json(
            {
                "function": arguments.expression,
                f"first_accepted_{what}": sweep.value,
                "queries": sweep.queries,
                "note": sweep.note,
            }
        )
    else:
        print(f"{arguments.expression}: {sweep.note} ({sweep.queries:,} queries).")
    return 0


def _print_test(arguments: argparse.Namespace, what: str, result: Any) -> int:
    if arguments.json:
        document = {"function": arguments.expression, what: getattr(arguments, what), **asdict(result)}
        print_json(document)
    else:
        outcome = "accepted" if result.accepted else "rejected"
        bound = getattr(arguments, what)
        print(f"{arguments.expression}: {what} at most {bound} is {outcome} ({result.queries:,} queries). {result.note}")
    return 0


def run_verdict(arguments: argparse.Namespace) -> int:
    """What the theorems say of a function's family."""
    from flipscope.bounds.geometry import verdict
    from flipscope.cube.languages import language_of

    f = parse(arguments.expression, arguments.n)
    if f.n < 2:
        raise InputError("a verdict needs a function of at least 2 bits; add bits with -n N.")
    found = verdict(
        f, language_of(arguments.expression, f), arguments.expression, width=arguments.width, layers=arguments.layers
    )
    if arguments.json:
        print_json(found.as_json())
    else:
        from flipscope.report import terminal

        terminal.show(terminal.verdict_page(found))
    return 0
