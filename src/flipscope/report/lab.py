"""Terminal pages of the laboratory: what a run found, which studies there are, what is running."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from flipscope.lab.driver import Run
from flipscope.lab.registry import address
from flipscope.lab.store import RunState
from flipscope.lab.study import Claim
from flipscope.lab.verdict import Judgement

MARKS = {"reproduced": ("✓", "green"), "contradicted": ("✗", "red"), "undecided": ("?", "yellow")}


def run_page(run: Run, results: str) -> RenderableType:
    """The page at the end of ``flipscope run``."""
    told = [f"{run.done:,} of {run.trials:,} trials"]
    told += [f"{run.failed:,} failed"] if run.failed else []
    told += [f"{run.reused:,} of them from before"] if run.reused else []
    told.append(span(run.seconds))
    parts: list[RenderableType] = [claims_table(run.judgements), Text(), Text(", ".join(told) + ".", style="dim")]
    if run.failed:
        parts.append(Text(f"What failed: flipscope results {run.study.name} --failed --results {results}", style="dim"))
    parts.append(Text(f"The figures: flipscope report {address(run.study)} --results {results}", style="dim"))
    title = f"{run.study.name} (paper {run.study.paper}), scale {run.scale}"
    return Panel(Group(*parts), title=title, title_align="left", padding=(1, 2))


def claims_table(judgements: Sequence[tuple[Claim, Judgement]]) -> Table:
    """One claim a row: verdict, what the paper says, the number with its interval."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for claim, judgement in judgements:
        mark, colour = MARKS[judgement.verdict]
        words = Text(f"{claim.name}\n", style="bold")
        words.append(f"{claim.says} ({claim.where})\n", style="not bold")
        words.append(measured(judgement), style="not bold cyan")
        if judgement.note:
            words.append(f"\n{judgement.note}", style="not bold dim")
        table.add_row(Text(f"{mark} {judgement.verdict}", style=colour), words)
    return table


def measured(judgement: Judgement) -> str:
    """What was measured, in words and numbers."""
    if judgement.measured is None:
        return judgement.quantity
    ends = ["?" if end is None else f"{end:.4g}" for end in (judgement.low, judgement.high)]
    return f"{judgement.quantity}: {judgement.measured:.4g} [{ends[0]}, {ends[1]}]"


def studies_page(rows: Sequence[dict[str, Any]]) -> RenderableType:
    """The page of ``flipscope studies``."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for heading in ("study", "paper", "cost on two cores", "state"):
        table.add_column(heading, overflow="fold", vertical="top")
    for row in rows:
        if row.get("error"):
            table.add_row(Text(row["name"], style="cyan"), "", Text(row["error"], style="red"), "")
            continue
        about = Text(row["name"], style="cyan")
        about.append(f"\n{row['title']}", style="dim")
        costs = (f"{name}: about {span(60 * scale['minutes'])}" for name, scale in row["scales"].items())
        where = "\n".join([row["paper"], *row["figures"]])
        table.add_row(about, where, "\n".join(costs), row["state"])
    return table


def status_page(states: Sequence[RunState]) -> RenderableType:
    """The page of ``flipscope status``."""
    parts: list[RenderableType] = []
    for state in states:
        line = Text(f"{state.study} ", style="bold")
        line.append(f"{state.scale}: {state.state}, {state.done:,} of {state.total:,} trials", style="not bold")
        if state.failed:
            line.append(f", {state.failed:,} failed", style="red")
        line.append(f"; began {_ago(state.started)}, last sign of life {_ago(state.updated)}", style="not bold dim")
        parts.append(line)
        if state.state == "running":
            parts += [Text(f"  process {state.pid} on {state.host}: {state.command}", style="dim")]
            parts += [Text(f"  now: {_now(trial)}", style="dim") for trial in state.running]
        parts += [_verdict_line(entry) for entry in state.verdicts]
    return Group(*parts)


def _ago(moment: str) -> str:
    """How long ago a moment was."""
    passed = (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    return f"{span(max(0.0, passed))} ago"


def _now(trial: dict[str, Any]) -> str:
    share = f", {100 * trial['share']:.0f} %" if trial.get("share") else ""
    fields = ", ".join(f"{name} {value}" for name, value in trial["trial"].items())
    return f"{fields} for {span(trial['seconds'])}{share}"


def _verdict_line(entry: dict[str, Any]) -> Text:
    mark, colour = MARKS[entry["verdict"]]
    return Text(f"  {mark} {entry['verdict']:<12} {entry['claim']}", style=colour)


def span(seconds: float) -> str:
    """A span of time as people say it."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    whole = round(seconds / 60)
    if whole < 120:
        return f"{whole} min"
    hours = whole // 60
    return (
        f"{hours} h" + (f" {whole % 60} min" if hours < 10 and whole % 60 else "")
        if hours < 48
        else f"{hours // 24} days"
    )
