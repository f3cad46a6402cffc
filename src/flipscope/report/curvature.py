"""The terminal page of ``flipscope curvature``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from flipscope.basics.estimates import Estimate
from flipscope.probes.curvature import Curvature, Trace
from flipscope.probes.extreme_eigenvalues import CHANCE
from flipscope.probes.spectral_density import Density
from flipscope.report.models import facts, note, panel
from flipscope.report.terminal import histogram

GROUPS = 12  # most rows in the table of traces


def curvature_page(name: str, document: dict[str, Any], found: Curvature, notes: Sequence[str] = ()) -> RenderableType:
    """The page of ``flipscope curvature``."""
    said = "all" if document["exhaustive"] else f"{found.strings:,} random"
    on = "the model's own outputs" if document["function"] is None else document["function"]
    rows = [
        (document["loss"]["name"], f"{found.loss:.4g} on {on}, gradient of norm {found.gradient_norm:.4g}"),
        ("parameters", f"{found.parameters:,} numbers"),
        ("strings", f"{said} strings of length {document['length']:,}"),
    ]
    for label, trace in (("trace", found.trace), ("Gauss-Newton trace", found.gauss_newton)):
        if trace is not None:
            rows.append((label, f"{_said(trace.value)}, {trace.method}, {trace.products:,} products"))
    if found.density is not None:
        rows.append(("mean eigenvalue", f"{_said(found.density.mean)}, {found.density.products:,} products"))
    if found.fisher_rao is not None:
        norm = found.fisher_rao
        rows.append(("Fisher-Rao norm", f"{norm.empirical:.4g}; {norm.model:.4g} with the model's own labels"))
    parts: list[RenderableType] = [facts(rows)]
    if found.eigenvalues is not None:
        parts += [Text(), _ends_table(document["eigenvalues"])]
    if found.trace is not None and len(found.trace.names) > 1:
        parts += [Text(), _groups_table(found.trace)]
    if found.density is not None:
        parts += [Text(), _density_bars(found.density)]
    parts += [Text(), note(_account(found)), *map(note, notes)]
    return panel(name, parts)


def _ends_table(told: dict[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for heading in ("largest", "residual", "smallest", "residual"):
        table.add_column(heading, justify="right", no_wrap=True)
    columns = [told[end][key] for end in ("top", "bottom") for key in ("values", "residuals")]
    for row in zip(*columns, strict=True):
        table.add_row(*(f"{value:.4g}" if k % 2 == 0 else f"{value:.1e}" for k, value in enumerate(row)))
    return table


def _groups_table(trace: Trace) -> Table:
    """A table of the trace of each module with parameters; if there are many, of the largest."""
    prefixes = list(dict.fromkeys(name.rpartition(".")[0] or name for name in trace.names))
    found = {
        each: trace.of([name for name in trace.names if (name.rpartition(".")[0] or name) == each]) for each in prefixes
    }
    kept = set(sorted(found, key=lambda each: -abs(found[each].value))[:GROUPS])
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column("module", no_wrap=True)
    table.add_column("trace of its block", justify="right", no_wrap=True)
    for each, value in found.items():
        if each in kept:
            table.add_row(each, _said(value))
    if len(found) > len(kept):
        table.add_row(f"and {len(found) - len(kept)} more", "")
    return table


def _density_bars(density: Density) -> Table:
    """The share of eigenvalues in each power of ten, from the most positive to the most negative.

    A bar is what is known to be there: it ends at the lower end of the interval.
    """
    shares = [share for _, _, share in density.by_powers_of_ten()]
    texts = [f"{share.value:.3g} [{share.low:.2g}, {share.high:.2g}]" for share in shares]
    bars = [_bar(share.low) for share in shares]
    return histogram("eigenvalues", "share", list(zip(density.range_names(), texts, bars, strict=True)))


def _bar(share: float) -> float:
    """The length of a bar, on a scale that makes a share of 1e-6 visible."""
    return max(0.0, 1 + math.log10(share) / 6) if share > 0 else 0.0


def _said(value: Estimate) -> str:
    if value.samples == 0:
        return f"{value.value:.4g}"
    return f"{value.value:.4g} [{value.low:.4g}, {value.high:.4g}]"


def _account(found: Curvature) -> str:
    sentences = []
    sampled = [each.value for each in (found.trace, found.gauss_newton) if each is not None and each.value.samples]
    sampled += [] if found.density is None else [found.density.mean]
    if sampled:
        sentences.append(f"Each interval holds separately with confidence {sampled[0].confidence:g}.")
    if found.eigenvalues is not None:
        sentences.append(
            f"Residuals are |H v − λ v|, at most {found.eigenvalues.tolerance:g} times the norm of H; with probability "
            f"{1 - CHANCE:g} no eigenvalue further out was missed."
        )
    if found.density is not None:
        density = found.density
        sentences.append(
            f"The density is from {density.probes} random starts with {density.steps} Lanczos steps. Its bars end at "
            "the lower ends of the intervals, on a logarithmic scale."
        )
    return " ".join(sentences) or "Second derivatives on the strings above."
