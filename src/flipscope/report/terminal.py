"""Terminal pages: numbers and small histograms, plain when the output is not a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from flipscope.bounds.geometry import Verdict
from flipscope.cube.estimate import Estimate
from flipscope.cube.portrait import Portrait
from flipscope.report.figures import log10_share

BAR = 36
EIGHTHS = " ▏▎▍▌▋▊▉█"
MAX_ROWS = 16


def number(value: float | int | Estimate | None) -> str:
    """A number as people read it: exact integers in full while short, estimates with their interval."""
    if value is None:
        return "-"
    if isinstance(value, Estimate):
        return f"{value.value:.4g}  [{value.low:.4g}, {value.high:.4g}]"
    if isinstance(value, int):
        text = f"{value:,}"
        # Not f"{value:e}": an integer of more than 308 digits has no float.
        return text if len(text) <= 24 else f"10^{math.log10(value):.2f} ({len(str(value))} digits)"
    return f"{value:.6g}"


def bar(share: float) -> str:
    """A bar of at most BAR characters in steps of an eighth."""
    eighths = round(max(0.0, min(1.0, share)) * BAR * 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def function_page(portrait: Portrait) -> RenderableType:
    """The page of ``flipscope function``."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    for label, value in (
        ("bits", f"{portrait.n:,}" + ("" if portrait.relevant == portrait.n else f", {portrait.relevant:,} relevant")),
        ("method", "exact" if portrait.exact else "sampled"),
        ("share of ones", number(portrait.ones_share)),
        ("average sensitivity", number(portrait.average_sensitivity)),
        ("max, min sensitivity", f"{number(portrait.max_sensitivity)}, {number(portrait.min_sensitivity)}"),
        ("degree", number(portrait.degree)),
        ("sparsity", number(portrait.sparsity)),
    ):
        facts.add_row(label, value)
    for rho, stability in (portrait.noise_stability or {}).items():
        facts.add_row(f"noise stability {rho:g}", number(stability))
    parts: list[RenderableType] = [facts, Text(), _profile_table(portrait)]
    if portrait.weight_by_degree is not None:
        weights = [(d, w) for d, w in enumerate(portrait.weight_by_degree) if w > 0]
        rows = [(str(d), number(w), w) for d, w in weights]
        parts += [Text(), _histogram("degree", "weight", rows, len(weights))]
    parts += [Text(), _influence_table(portrait)]
    parts += [Text(note, style="italic dim") for note in portrait.notes]
    return Panel(Group(*parts), title=portrait.name, title_align="left", expand=False, padding=(1, 2))


def _profile_table(portrait: Portrait) -> Table:
    rows = []
    for s, entry in enumerate(portrait.profile):
        if isinstance(entry, Estimate):
            if entry.value > 0:
                rows.append((str(s), number(entry), entry.value))
        elif entry:
            rows.append((str(s), number(entry), 10 ** log10_share(entry, portrait.n)))
    heading = "strings" if portrait.exact else "share of strings"
    return _histogram("sensitivity", heading, rows, len(rows))


def _influence_table(portrait: Portrait) -> Table:
    entries = [(x.value if isinstance(x, Estimate) else x, i, x) for i, x in enumerate(portrait.influences, 1)]
    values = {value for value, _, _ in entries}
    if len(values) == 1 and portrait.exact:
        return _histogram("position", "influence", [("each", number(entries[0][2]), entries[0][0])], 1)
    chosen = sorted((e for e in entries if e[0] > 0), key=lambda e: (-e[0], e[1]))
    return _histogram("position", "influence", [(f"x{i}", number(x), value) for value, i, x in chosen], len(chosen))


def _histogram(label: str, heading: str, rows: Sequence[tuple[str, str, float]], total: int) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column(label, justify="right")
    table.add_column(heading, justify="right")
    table.add_column("")
    largest = max((share for _, _, share in rows), default=1.0) or 1.0
    # Long lists: the largest entries, in their own order.
    kept = set(sorted(range(len(rows)), key=lambda i: -rows[i][2])[:MAX_ROWS])
    for i, (name, text, share) in enumerate(rows):
        if i in kept:
            table.add_row(name, text, Text(bar(share / largest), style="cyan"))
    if total > len(kept):
        table.add_row("", f"and {total - len(kept):,} smaller", "")
    return table


def compare_page(first: Portrait, second: Portrait, distance: str) -> RenderableType:
    """The page of ``flipscope compare``: the same numbers side by side."""
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for title in ("", first.name, second.name):
        table.add_column(title)
    for label, a, b in (
        ("bits", first.n, second.n),
        ("share of ones", first.ones_share, second.ones_share),
        ("average sensitivity", first.average_sensitivity, second.average_sensitivity),
        ("max sensitivity", first.max_sensitivity, second.max_sensitivity),
        ("min sensitivity", first.min_sensitivity, second.min_sensitivity),
        ("sensitivity-0 strings", first.profile[0], second.profile[0]),
        ("degree", first.degree, second.degree),
        ("sparsity", first.sparsity, second.sparsity),
    ):
        table.add_row(Text(label, style="dim"), number(a), number(b))
    for rho in first.noise_stability or {}:
        other = (second.noise_stability or {}).get(rho)
        table.add_row(
            Text(f"noise stability {rho:g}", style="dim"), number((first.noise_stability or {})[rho]), number(other)
        )
    return Panel(Group(table, Text(), Text(distance)), expand=False, padding=(1, 2))


def verdict_page(verdict: Verdict) -> RenderableType:
    """The page of ``flipscope verdict``."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("transformer", f"width {verdict.width}, {verdict.layers} layers")
    table.add_row("sensitivity-0 strings", f"{number(verdict.zero_strings)} at N = {verdict.length}")
    table.add_row("threshold", f"{verdict.threshold:.4g} at N = {verdict.length}")
    table.add_row("can bite from", "-" if verdict.from_length is None else f"N = {verdict.from_length}")
    outcome = f"ruled out by {verdict.theorem}" if verdict.ruled_out else "not ruled out"
    table.add_row("family", Text(outcome, style="bold red" if verdict.ruled_out else "bold green"))
    return Panel(
        Group(table, Text(), Text(verdict.note)), title=verdict.function, title_align="left", width=96, padding=(1, 2)
    )


def show(page: RenderableType) -> None:
    """Print a page to standard output."""
    page_console().print(page)


def page_console() -> Console:
    """A console on standard output: as wide as the terminal, or wide enough for every page where there is none."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=140, no_color=True)
