"""Terminal pages: numbers and small histograms, plain when the output is not a terminal."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from flipscope.basics.errors import printable
from flipscope.basics.estimates import Estimate
from flipscope.basics.wording import number_text
from flipscope.figures.panels import log10_share

if TYPE_CHECKING:  # these modules load slowly, and few pages need them
    from flipscope.bounds.geometry import FamilyVerdict, Verdict
    from flipscope.bounds.noise_stability import NoiseBounds
    from flipscope.cube.portrait import Portrait

BAR = 36
EIGHTHS = " ▏▎▍▌▋▊▉█"
MAX_ROWS = 16
WIDTH = 100  # columns if the output is not a terminal
MARKS = {"reproduced": ("✓", "green"), "contradicted": ("✗", "red"), "undecided": ("?", "yellow")}
INTERIM = ("…", "dim")  # shown instead of a verdict's mark while trials are missing
WIDEST = 100_000  # columns of such a page if it must not be truncated


def mark_of(view: Mapping[str, Any]) -> tuple[str, str]:
    """The mark of a verdict and its colour, from the view of its judgement."""
    return INTERIM if view["interim"] else MARKS[view["verdict"]]


def number(value: float | Estimate | None) -> str:
    """A number with six digits, or an estimate with four; "-" for None."""
    return number_text(value, 4 if isinstance(value, Estimate) else 6, "-")


def bar(share: float, width: int = BAR) -> str:
    """A bar of at most ``width`` characters, in steps of one eighth of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


@dataclass(frozen=True)
class Bar:
    """A bar whose length is a share of the available width."""

    share: float

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(4, BAR)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        width = min(BAR, options.max_width)
        text = "#" * round(self.share * width) if options.ascii_only else bar(self.share, width)
        yield Text(text, style="cyan")


def function_page(portrait: Portrait, bounds: Sequence[NoiseBounds] = ()) -> RenderableType:
    """The page of ``flipscope function``: the numbers of a portrait, and bounds on its noise sensitivity."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    relevant = "" if portrait.relevant == portrait.n else f", {portrait.relevant:,} relevant"
    for label, value in (
        ("bits", f"{portrait.n:,}{relevant}"),
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
        rows = [(number(d), number(w), w) for d, w in enumerate(portrait.weight_by_degree) if w > 0]
        parts += [Text(), histogram("degree", "weight", rows)]
    parts += [Text(), _influence_table(portrait)]
    if bounds:
        parts += [Text(), _noise_table(bounds)]
    for note in portrait.notes:
        parts += [Text(), Text(note, style="italic dim")]
    return Panel(Group(*parts), title=Text(portrait.name), title_align="left", expand=False, padding=(1, 2))


def _profile_table(portrait: Portrait) -> Table:
    rows = []
    for s, entry in enumerate(portrait.profile):
        if isinstance(entry, Estimate):
            if entry.value > 0:
                rows.append((number(s), number(entry), entry.value))
        elif entry:
            rows.append((number(s), number(entry), 10 ** log10_share(entry, portrait.n)))
    return histogram("sensitivity", "strings" if portrait.exact else "share of strings", rows)


def _influence_table(portrait: Portrait) -> Table:
    entries = [(x.value if isinstance(x, Estimate) else x, i, x) for i, x in enumerate(portrait.influences, 1)]
    if portrait.exact and len({value for value, _, _ in entries}) == 1:
        return histogram("position", "influence", [("each", number(entries[0][2]), entries[0][0])])
    chosen = sorted((e for e in entries if e[0] > 0), key=lambda e: (-e[0], e[1]))
    return histogram("position", "influence", [(f"x{i}", number(x), value) for value, i, x in chosen])


def _noise_table(bounds: Sequence[NoiseBounds]) -> Table:
    """The probability that noise changes the value, and its upper bounds (`bounds.noise_stability`).

    The bounds by degree and by maximal sensitivity are omitted for sampled portraits: a sample says nothing about the
    degree and gives only a lower bound on the maximal sensitivity.
    """
    sampled = isinstance(bounds[0].by_max_sensitivity, Estimate)
    table = Table(box=None, padding=(0, 1), header_style="bold")
    headings = ["rho", "P(value changes)", "at most, by average sensitivity"]
    for heading in headings if sampled else [*headings, "by degree", "by max sensitivity (Prop 3.2)"]:
        table.add_column(heading, justify="right")
    for each in bounds:
        cells = [f"{each.rho:g}", number(each.probability), number(each.by_average_sensitivity)]
        table.add_row(*cells, *([] if sampled else [number(each.by_degree), number(each.by_max_sensitivity)]))
    return table


def histogram(label: str, heading: str, rows: Sequence[tuple[str, str, float]]) -> Table:
    """A table of (name, value as text, size of the bar); of a long list only the largest entries."""
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column(label, justify="right", no_wrap=True)
    table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    largest = max((share for _, _, share in rows), default=1.0) or 1.0
    # Of a long list, keep the largest entries in their original order.
    kept = set(sorted(range(len(rows)), key=lambda i: -rows[i][2])[:MAX_ROWS])
    for i, (name, text, share) in enumerate(rows):
        if i in kept:
            table.add_row(name, text, Bar(share / largest))
    if len(rows) > len(kept):
        table.add_row("", f"and {len(rows) - len(kept):,} more", "")
    return table


def compare_page(first: Portrait, second: Portrait, distance: str) -> RenderableType:
    """The page of ``flipscope compare``: the same numbers side by side."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("", style="dim", no_wrap=True)
    for portrait in (first, second):
        table.add_column(Text(portrait.name), overflow="fold")
    both_exact = first.exact and second.exact
    zeros = [portrait.profile[0] if both_exact else _share(portrait, 0) for portrait in (first, second)]
    for label, a, b in (
        ("bits", first.n, second.n),
        ("relevant bits", first.relevant, second.relevant),
        ("share of ones", first.ones_share, second.ones_share),
        ("average sensitivity", first.average_sensitivity, second.average_sensitivity),
        ("max sensitivity", first.max_sensitivity, second.max_sensitivity),
        ("min sensitivity", first.min_sensitivity, second.min_sensitivity),
        ("sensitivity-0 strings" if both_exact else "sensitivity-0 share", zeros[0], zeros[1]),
        ("degree", first.degree, second.degree),
        ("sparsity", first.sparsity, second.sparsity),
    ):
        table.add_row(label, number(a), number(b))
    stabilities = [portrait.noise_stability or {} for portrait in (first, second)]
    for rho in {**stabilities[0], **stabilities[1]}:
        table.add_row(f"noise stability {rho:g}", *(number(known.get(rho)) for known in stabilities))
    return Group(table, Text(), Text(distance))


def _share(portrait: Portrait, s: int) -> float | Estimate:
    """The share of strings of sensitivity s."""
    entry = portrait.profile[s]
    return entry if isinstance(entry, Estimate) else entry / (1 << portrait.n)


def verdict_page(verdict: Verdict) -> RenderableType:
    """The page of ``flipscope verdict``."""
    from flipscope.bounds.geometry import Threshold

    threshold = Threshold(verdict.width, verdict.layers)
    size = f"{verdict.threshold:.4g}"
    if math.isinf(verdict.threshold):
        size = f"2^{threshold.log2_at(verdict.length):.0f}"
    zeros = "unknown" if verdict.zero_strings is None else number(verdict.zero_strings)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    plural = "" if verdict.layers == 1 else "s"
    table.add_row("transformer", f"width {verdict.width}, {verdict.layers} layer{plural}")
    table.add_row("sensitivity-0 strings", f"{zeros} at N = {verdict.length}")
    table.add_row("threshold", f"N^{threshold.exponent:.4g}, {size} at N = {verdict.length}")
    table.add_row("non-trivial from", "-" if verdict.from_length is None else f"N = {verdict.from_length}")
    outcome = f"ruled out by {verdict.theorem}" if verdict.ruled_out else "not ruled out"
    table.add_row("family", Text(outcome, style="bold red" if verdict.ruled_out else "bold green"))
    return Panel(
        Group(table, Text(), Text(verdict.note)),
        title=Text(verdict.function),
        title_align="left",
        width=96,
        padding=(1, 2),
    )


def family_page(verdict: FamilyVerdict) -> RenderableType:
    """The page of ``flipscope verdict`` for a family given by its K_0(N) or by examples."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    plural = "" if verdict.layers == 1 else "s"
    table.add_row("transformer", f"width {verdict.width}, {verdict.layers} layer{plural}")
    table.add_row("threshold", f"N^{verdict.exponent:.4g}")
    for example in verdict.examples:
        side = "below" if example.below else "not below"
        table.add_row(f"N = {example.length}", f"K_0 = {number(example.zero_strings)}, {side} the threshold")
    table.add_row("non-trivial from", verdict.start_text)
    outcomes = {
        True: Text("ruled out by Cor 4.6 (000)", style="bold red"),
        False: Text("not ruled out", style="bold green"),
        None: Text("not settled by examples", style="bold yellow"),
    }
    table.add_row("family", outcomes[verdict.ruled_out])
    return Panel(
        Group(table, Text(), Text(verdict.note)),
        title=Text(verdict.family),
        title_align="left",
        width=96,
        padding=(1, 2),
    )


def zoo_page(rows: Sequence[dict[str, Any]]) -> RenderableType:
    """The page of ``flipscope zoo``: two lines per function, so that it fits a narrow terminal."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("function", no_wrap=True)
    table.add_column("is 1 when")
    for row in rows:
        table.add_row(row["usage"], row["meaning"])
        numbers = f"average sensitivity {row['average_sensitivity']:.5g}, degree {number(row['degree'])}"
        table.add_row(Text(f"  {row['example']}", style="cyan"), Text(numbers, style="dim"))
    return table


def show(page: RenderableType, *, whole: bool = False) -> None:
    """Print a page to standard output; with `whole`, nothing is truncated unless that is a terminal."""
    console = page_console()
    if whole and not console.is_terminal:
        console.width = max(WIDTH, SafeConsole(highlight=False, width=WIDEST).measure(page).maximum)
    # Render to a string first: rich itself would end the process when the reader of a pipe has gone away.
    with console.capture() as captured:
        console.print(page)
    print(captured.get(), end="")


class SafeConsole(Console):
    """A console that escapes control characters, which stored texts and names may contain."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a page with control characters escaped, except for rich's own commands."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def page_console() -> Console:
    """A console on standard output, as wide as the terminal; without a terminal, COLUMNS or WIDTH columns."""
    console = SafeConsole(highlight=False)
    if console.is_terminal:
        return console
    return SafeConsole(highlight=False, width=None if "COLUMNS" in os.environ else WIDTH, no_color=True)
