"""The terminal page of a run: its claims with their verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flipscope.basics.wording import time_text
from flipscope.lab.findings import Findings
from flipscope.lab.registry import address
from flipscope.report.terminal import mark_of
from flipscope.report.views import changes_text, claim_views, differences_texts


def run_page(run: Findings, results: str, verbose: bool = False) -> RenderableType:
    """The page at the end of ``flipscope run``: a line per claim; with `verbose`, all numbers behind each verdict."""
    title = Text(f"{run.study.name}", style="bold")
    title.append(f"  paper {run.study.paper}, scale {run.scale}", style="not bold dim")
    told = [f"{run.done:,} of {run.trials:,} trials"]
    told += [f"{run.failed:,} failed"] if run.failed else []
    told += [f"{run.reused:,} of them stored earlier"] if run.reused else []
    told.append(time_text(run.seconds))
    parts: list[RenderableType] = [title]
    if changed := changes_text(run):
        parts.append(Text(f"The settings are yours, not the study's: {changed}.", style="yellow"))
    parts += [Text(), claims_table(run, verbose), Text()]
    if verbose:
        parts += [Text(said, style="dim") for said in differences_texts(run)]
        parts += [Text(said, style="dim") for said in run.provenance]
    parts.append(Text(", ".join(told) + ".", style="dim"))
    parts += [Text(f"The study's own code failed: {error}.", style="red") for error in run.errors]
    if run.failed:
        if run.first_failure:
            parts.append(Text(f"The first error: {run.first_failure}", style="red"))
        command = f"flipscope results {run.study.name} --failed --results {results}"
        parts.append(Text(f"Why trials failed: {command}", style="dim"))
    parts += [Text(note, style="yellow") for note in run.notes]
    parts.append(Text(f"The figures: flipscope report {address(run.study)} --results {results}", style="dim"))
    return Group(*parts)


def claims_table(run: Findings, verbose: bool = False) -> RenderableType:
    """One line per claim, decided ones first: mark, name, number and limit; below it at most one reason."""
    parts: list[RenderableType] = []
    views = claim_views(run)
    widest = max((len(view["numbers"]) for view in views), default=0)
    for view in views:
        mark, colour = mark_of(view)
        line = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False, expand=True)
        for options in ({"no_wrap": True}, {"ratio": 1}, {"no_wrap": True, "min_width": widest}):
            line.add_column(overflow="fold", **options)
        line.add_row(Text(mark, style=colour), Text(view["name"], style="bold"), Text(view["numbers"], style="cyan"))
        parts.append(line)
        beneath = _details(view) if verbose else Text(view["reason"], style="dim")
        if verbose or view["reason"]:
            parts.append(Padding(beneath, (0, 0, 0, 3)))
    return Group(*parts)


def _details(view: Mapping[str, Any]) -> RenderableType:
    """All numbers behind a verdict, and every earlier look at the claim."""
    lines = [f"{view['statement']} ({view['source']})", f"judged by: {view['criterion']}", view["quantity"]]
    lines += [view["note"]] if view["note"] else []
    lines += [f"to decide it: {view['remedy']}"] if view["remedy"] else []
    lines += [f"now: {view['seen']}"] if view["seen"] else []
    lines += [look["line"] for look in view["looks"]]
    parts: list[RenderableType] = [Text("\n".join(lines), style="dim")]
    if view["parts"]:
        table = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")
        for part in view["parts"]:
            mark, colour = mark_of(part)
            table.add_row(Text(mark, style=colour), part["quantity"], Text(part["numbers"], style="cyan"))
        parts.append(table)
    return Group(*parts)
