"""Terminal pages of the list of studies, of one study, and of the state of runs; they load no study."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from flipscope.basics.wording import time_text, values_text
from flipscope.lab.summaries import Summary
from flipscope.report.terminal import INTERIM, MARKS

if TYPE_CHECKING:
    from flipscope.lab.store.store import RunState


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
        costs = (f"{name}: about {time_text(60 * scale['minutes'])}" for name, scale in row["scales"].items())
        where = "\n".join([row["paper"], *row["figures"]])
        table.add_row(about, where, "\n".join(costs), row["state"])
    return table


def study_page(study: Summary, state: str) -> RenderableType:
    """The page of ``flipscope studies NAME``: its scales, its claims, and its deviations from the paper."""
    parts: list[RenderableType] = [Text(study.title, style="bold"), Text(f"paper {study.paper}, {state}", style="dim")]
    costs = [
        (name, f"{scale['note']}; about {time_text(60 * scale['minutes'])}")
        for name, scale in (study.scales or {}).items()
    ]
    parts += [Text(), Text("Scales", style="bold"), _listed(costs)]
    if study.settings:
        parts += [Text(), Text("Settings, changed by --set NAME=VALUE", style="bold"), _settings_table(study)]
        parts += [Text(said, style="dim") for said in _settings_notes(study)]
    claims = [
        (claim["name"], f"{claim['statement']} ({claim['source']}); judged by: {claim['criterion']}")
        for claim in study.claims
    ]
    parts += [Text(), Text("Claims", style="bold"), _listed(claims)]
    if study.deviations:
        departures = [
            (each["what"], f"paper: {each['paper']}; here: {each['ours']}; {each['why']}") for each in study.deviations
        ]
        parts += [Text(), Text("Deviations from the paper", style="bold"), _listed(departures)]
    return Group(*parts)


def _settings_table(study: Summary) -> Table:
    """The settings with their values at each scale."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    scales = list(study.scales or ())
    for heading in ("setting", *scales):
        table.add_column(heading, overflow="fold")
    for name, values in study.settings.items():
        cells = (
            values_text(values[scale] if isinstance(values[scale], list) else [values[scale]])
            if scale in values
            else ""
            for scale in scales
        )
        table.add_row(Text(name, style="cyan"), *map(Text, cells))
    return table


def _settings_notes(study: Summary) -> list[str]:
    """Notes for users who want to change settings."""
    seeds = (
        f"--seed S sets {study.base_seed}."
        if study.base_seed
        else "This study has no first seed, so --seed does not apply."
    )
    if not study.sample_sizes:
        return [seeds]
    return [f"Sample sizes (a change is the next look at the same claims): {', '.join(study.sample_sizes)}.", seeds]


def _listed(rows: Sequence[tuple[str, str]]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
    table.add_column(overflow="fold", max_width=34)
    table.add_column(overflow="fold")
    for name, said in rows:
        table.add_row(Text(name, style="cyan"), Text(said))
    return table


def status_page(states: Sequence[RunState]) -> RenderableType:
    """The page of ``flipscope status``."""
    parts: list[RenderableType] = []
    for state in states:
        line = Text(f"{state.study} ", style="bold")
        line.append(f"{state.scale}: {state.state}, {state.done:,} of {state.total:,} trials", style="not bold")
        if state.failed:
            line.append(f", {state.failed:,} failed", style="red")
        line.append(f"; started {_ago(state.started)}, last update {_ago(state.updated)}", style="not bold dim")
        parts.append(line)
        if state.state == "running":
            parts += [Text(f"  process {state.pid} on {state.host}: {state.command}", style="dim")]
            parts += [Text(f"  now: {_now(trial)}", style="dim") for trial in state.running]
        parts += [_verdict_line(entry) for entry in state.verdicts]
    return Group(*parts)


def _ago(moment: str) -> str:
    """The time since a moment, in words."""
    passed = (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    return f"{time_text(max(0.0, passed))} ago"


def _now(trial: dict[str, Any]) -> str:
    share = f", {100 * trial['share']:.0f} %" if trial.get("share") else ""
    fields = ", ".join(f"{name} {value}" for name, value in trial["trial"].items())
    return f"{fields} for {time_text(trial['seconds'])}{share}"


def _verdict_line(entry: dict[str, Any]) -> Text:
    interim = entry.get("standing") == "interim"
    mark, colour = INTERIM if interim else MARKS[entry["verdict"]]
    return Text(f"  {mark} {'interim' if interim else entry['verdict']:<12} {entry['claim']}", style=colour)
