"""Terminal pages of the laboratory: the results of a run, the list of studies, the state of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flipscope.basics.wording import time_text, values_text
from flipscope.lab.catalogue import Entry
from flipscope.lab.registry import address
from flipscope.lab.run.driver import Run
from flipscope.lab.store.store import RunState
from flipscope.report.views import changes_text, claim_views, differences_texts

MARKS = {"reproduced": ("✓", "green"), "contradicted": ("✗", "red"), "undecided": ("?", "yellow")}
INTERIM = ("…", "dim")  # shown instead of a verdict's mark while trials are missing


def mark_of(view: Mapping[str, Any]) -> tuple[str, str]:
    """The mark of a verdict and its colour, from the view of its judgement."""
    return INTERIM if view["interim"] else MARKS[view["verdict"]]


def run_page(run: Run, results: str, verbose: bool = False) -> RenderableType:
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


def claims_table(run: Run, verbose: bool = False) -> RenderableType:
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


def study_page(study: Entry, state: str) -> RenderableType:
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


def _settings_table(study: Entry) -> Table:
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


def _settings_notes(study: Entry) -> list[str]:
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


def status_page(states: Sequence[RunState], notes: Mapping[str, Sequence[str]]) -> RenderableType:
    """The page of ``flipscope status``; the keys of `notes` are names of studies."""
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
        parts += [Text(f"  {note}", style="yellow") for note in notes.get(state.study, ())]
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
