"""The commands that look at Boolean functions: function, zoo, compare, test-degree, test-sparsity, verdict."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from flipscope.basics.checks import check_confidence, check_count
from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_memory
from flipscope.commands.progress import progress
from flipscope.cube.compose import NotExact
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.portrait import DEFAULT_CELLS, RHOS, Portrait, default_strings, exact_portrait, sampled_portrait


def print_json(document: Any) -> None:
    """One JSON document on standard output; NaN is a bug, not a number."""
    print(json.dumps(document, allow_nan=False))


def run_function(arguments: argparse.Namespace) -> int:
    """Describe one function."""
    f = parse(arguments.expression, arguments.n)
    _check_options(arguments)
    found = _portrait(f, arguments.expression, arguments)
    _draw(arguments, [found])
    if arguments.json:
        print_json(found.as_json())
    else:
        from flipscope.report import terminal

        terminal.show(terminal.function_page(found))
    return 0


def _check_options(arguments: argparse.Namespace) -> None:
    """Refuse what could not be used, also where an exact answer happens not to need it, before any work."""
    check_confidence(arguments.confidence)
    check_count("seed", arguments.seed, 0)
    if arguments.samples is not None:
        samples = check_count("samples", arguments.samples)
        check_memory(8 * samples, f"{samples:,} samples", "give fewer")  # each leaves a number behind
    if arguments.plot is not None:
        from flipscope.report.drawing import checked_target

        checked_target(arguments.plot)


def _portrait(f: BooleanFunction, name: str, arguments: argparse.Namespace) -> Portrait:
    rhos = tuple(arguments.rho) if arguments.rho else RHOS
    strings = default_strings(f.n) if arguments.samples is None else arguments.samples
    with progress(name[:40]) as report:
        if arguments.samples is None:
            try:
                return exact_portrait(f, name, rhos, report)
            except NotExact as error:
                if arguments.exact:
                    raise
                reason = str(error).partition(";")[0]
                print(f"{reason}: sampling {strings:,} strings instead.", file=sys.stderr)
        return sampled_portrait(
            f,
            name,
            strings,
            seed=arguments.seed,
            confidence=arguments.confidence,
            rhos=rhos,
            progress=report,
        )


def _draw(arguments: argparse.Namespace, portraits: list[Portrait]) -> None:
    if arguments.plot is not None:
        from flipscope.report.drawing import save_figure
        from flipscope.report.figures import function_figure

        print(f"wrote {save_figure(function_figure(portraits), arguments.plot)}", file=sys.stderr)


def run_compare(arguments: argparse.Namespace) -> int:
    """Describe two functions side by side, and how far apart they are."""
    first, second = (parse(text, arguments.n) for text in (arguments.first, arguments.second))
    _check_options(arguments)
    size = max(first.n, second.n)
    first, second = first.extend(size), second.extend(size)
    portraits = [_portrait(f, name, arguments) for f, name in ((first, arguments.first), (second, arguments.second))]
    distance, sentence = _distance(first ^ second, arguments)
    _draw(arguments, portraits)
    if arguments.json:
        print_json({"first": portraits[0].as_json(), "second": portraits[1].as_json(), **distance})
    else:
        from flipscope.report import terminal

        terminal.show(terminal.compare_page(portraits[0], portraits[1], sentence))
    return 0


def _distance(difference: BooleanFunction, arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """On how many strings the two differ, exact if it can be: for JSON, and as a sentence."""
    from flipscope.cube.estimate import fourier_coefficient
    from flipscope.cube.sensitivity import count_ones
    from flipscope.report.terminal import number

    if arguments.samples is None:
        try:
            count = count_ones(difference)
        except NotExact:
            if arguments.exact:
                raise
        else:
            share = count / (1 << difference.n)
            sentence = f"They differ on {number(count)} strings, a share of {share:.6g} (exact)."
            same = "The two are the same function."
            return {"disagreement": share, "differing_strings": count}, sentence if count else same
    strings = min(100_000, DEFAULT_CELLS // difference.n) if arguments.samples is None else arguments.samples
    # The coefficient of the empty set is 1 - 2 P(different).
    found = fourier_coefficient(
        difference,
        difference.n,
        (),
        samples=strings,
        seed=arguments.seed,
        confidence=arguments.confidence,
    ).scaled(-0.5, 0.5)
    sentence = (
        f"They differ on a share of {number(found)} of all strings, estimated from {strings:,} at confidence "
        f"{arguments.confidence:g}."
    )
    return {"disagreement": found.as_json(), "differing_strings": found.as_count_json(difference.n)}, sentence


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
    from flipscope.report import terminal

    terminal.show(terminal.zoo_page(rows))
    return 0


def run_test_degree(arguments: argparse.Namespace) -> int:
    """Test, by queries only, whether a function has low degree."""
    from flipscope.cube.testers import first_accepted_degree, low_degree_test

    f = parse(arguments.expression, arguments.n)
    options = _test_options(arguments)
    if arguments.degree is None:
        return _print_sweep(arguments, "degree", first_accepted_degree(f, f.n, **options))
    return _print_test(arguments, "degree", low_degree_test(f, f.n, arguments.degree, **options))


def run_test_sparsity(arguments: argparse.Namespace) -> int:
    """Test, by queries only, whether a function has few Fourier coefficients."""
    from flipscope.cube.testers import first_accepted_sparsity, fourier_sparsity_test

    f = parse(arguments.expression, arguments.n)
    options = _test_options(arguments) | {"free": arguments.free}
    if arguments.sparsity is None:
        return _print_sweep(arguments, "sparsity", first_accepted_sparsity(f, f.n, **options))
    return _print_test(arguments, "sparsity", fourier_sparsity_test(f, f.n, arguments.sparsity, **options))


def _test_options(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in ("epsilon", "confidence", "seed", "max_queries")}


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
        # A rejection is proof, an acceptance is not.
        least = "" if sweep.value is None else f", so the true {what} is at least {sweep.value}"
        print(f"{arguments.expression}, after {sweep.queries:,} queries: {sweep.note}{least}.")
    return 0


def _print_test(arguments: argparse.Namespace, what: str, result: Any) -> int:
    bound = getattr(arguments, what)
    if arguments.json:
        print_json({"function": arguments.expression, what: bound, **asdict(result)})
    else:
        outcome = f"{what} at most {bound} is {'accepted' if result.accepted else 'rejected'}"
        print(f"{arguments.expression}, after {result.queries:,} queries: {outcome}, since {result.note}.")
    return 0


def run_verdict(arguments: argparse.Namespace) -> int:
    """What the theorems say of a function's family."""
    from flipscope.bounds.geometry import verdict
    from flipscope.cube.languages import language_of

    f = parse(arguments.expression, arguments.n)
    if f.n < 2:
        raise InputError("a verdict needs a function of at least 2 bits; add bits with -n N.")
    found = verdict(
        f,
        language_of(arguments.expression, f),
        arguments.expression,
        width=arguments.width,
        layers=arguments.layers,
    )
    if arguments.json:
        print_json(found.as_json())
    else:
        from flipscope.report import terminal

        terminal.show(terminal.verdict_page(found))
    return 0
