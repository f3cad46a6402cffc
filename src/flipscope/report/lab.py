"""Terminal pages of the laboratory: what a run found, which studies there are, what is running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flipscope.basics.wording import number_text
from flipscope.lab.history import Look
from flipscope.lab.registry import address
from flipscope.lab.run.driver import Run
from flipscope.lab.store.store import RunState
from flipscope.lab.study import Claim, Study
from flipscope.lab.verdict import Judgement

MARKS = {"reproduced": ("✓", "green"), "contradicted": ("✗", "red"), "undecided": ("?", "yellow")}
INTERIM = ("…", "dim")  # instead of a mark, where only a part of the trials is done


def mark_of(judgement: Judgement) -> tuple[str, str]:
    """The sign of a verdict and its colour."""
    interim = judgement.seen is not None and judgement.seen.standing == "interim"
    return INTERIM if interim else MARKS[judgement.verdict]


def run_page(run: Run, results: str, verbose: bool = False) -> RenderableType:
    """The page at the end of ``flipscope run``: a line per claim, with `verbose` everything that it rests on."""
    title = Text(f"{run.study.name}", style="bold")
    title.append(f"  paper {run.study.paper}, scale {run.scale}", style="not bold dim")
    told = [f"{run.done:,} of {run.trials:,} trials"]
    told += [f"{run.failed:,} failed"] if run.failed else []
    told += [f"{run.reused:,} of them from before"] if run.reused else []
    told.append(span(run.seconds))
    parts: list[RenderableType] = [title, Text(), claims_table(run, verbose), Text()]
    if verbose:
        parts += [Text(said, style="dim") for said in run.provenance]
    parts.append(Text(", ".join(told) + ".", style="dim"))
    if run.failed:
        parts.append(Text(f"What failed: flipscope results {run.study.name} --failed --results {results}", style="dim"))
    parts += [Text(note, style="yellow") for note in run.notes]
    parts.append(Text(f"The figures: flipscope report {address(run.study)} --results {results}", style="dim"))
    return Group(*parts)


def claims_table(run: Run, verbose: bool = False) -> RenderableType:
    """One line per claim, decided ones first: mark, name, number against its limit; beneath it at most one reason."""
    parts: list[RenderableType] = []
    shown = [(claim, judgement, numbers(judgement)) for claim, judgement in run.decided_first]
    widest = max((len(found) for _, _, found in shown), default=0)
    for claim, judgement, found in shown:
        mark, colour = mark_of(judgement)
        line = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False, expand=True)
        for options in ({"no_wrap": True}, {"ratio": 1}, {"no_wrap": True, "min_width": widest}):
            line.add_column(overflow="fold", **options)
        line.add_row(Text(mark, style=colour), Text(claim.name, style="bold"), Text(found, style="cyan"))
        parts.append(line)
        reason = _reason(claim, judgement, run)
        beneath = _details(claim, judgement, run) if verbose else Text(reason, style="dim")
        if verbose or reason:
            parts.append(Padding(beneath, (0, 0, 0, 3)))
    return Group(*parts)


def _reason(claim: Claim, judgement: Judgement, run: Run) -> str:
    """What a reader must know beside the number: which look it is, why it is not reproduced, what would decide it."""
    seen = "" if judgement.seen is None else judgement.seen.text
    if judgement.verdict == "reproduced":
        return seen
    if judgement.verdict == "contradicted":
        return "; ".join(text for text in (seen, judgement.note) if text)
    why = judgement.quantity if judgement.measured is None else _open_because(judgement)
    if judgement.measured is None and judgement.note:
        why = f"{judgement.note}: {why}"
    exploratory = (
        judgement.seen is not None and judgement.seen.standing == "exploratory"
    )  # which says what would decide
    command = "" if exploratory else _next_command(claim, run)
    remedy = ": ".join(text for text in (judgement.remedy, command) if text)
    return "; ".join(text for text in (seen, why, f"would decide: {remedy}" if remedy else "") if text)


def _open_because(judgement: Judgement) -> str:
    """Why a number with an interval does not decide; a claim of several shows one that may look as if it did."""
    if judgement.note:
        return judgement.note
    still = sum(part.verdict == "undecided" for part in judgement.parts)
    return f"{still} of {len(judgement.parts)} parts are open" if still else "the interval straddles the limit"


def _next_command(claim: Claim, run: Run) -> str:
    """The command for data that may decide the claim: the rest of this scale, or the next that can; "" if none."""
    names = list(run.study.scales)
    first = names.index(run.scale) + int(run.complete)
    if claim.decided_from is not None:
        first = max(first, names.index(claim.decided_from) if claim.decided_from else len(names))
    return f"flipscope run {address(run.study)} --scale {names[first]}" if first < len(names) else ""


def _details(claim: Claim, judgement: Judgement, run: Run) -> RenderableType:
    """Everything that a verdict rests on, and every look that was made before it."""
    lines = [f"{claim.statement} ({claim.source})", f"judged by: {claim.criterion}", judgement.quantity]
    lines += [judgement.note] if judgement.note else []
    lines += [f"would decide: {judgement.remedy}"] if judgement.remedy else []
    lines += [f"now: {judgement.seen.text}"] if judgement.seen is not None and judgement.seen.text else []
    lines += [look_text(look, run.study) for look in looks_of(run, claim)]
    parts: list[RenderableType] = [Text("\n".join(lines), style="dim")]
    if judgement.parts:
        table = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")
        for part in judgement.parts:
            mark, colour = mark_of(part)
            table.add_row(Text(mark, style=colour), part.quantity, Text(numbers(part), style="cyan"))
        parts.append(table)
    return Group(*parts)


def looks_of(run: Run, claim: Claim) -> list[Look]:
    """The looks that were kept of a claim, where there is more than the one that is shown."""
    looks = [look for look in run.looks if look.claim in (claim.name, *claim.formerly)]
    return looks if len(looks) > 1 else []


def look_view(look: Look, study: Study) -> dict[str, Any]:
    """A look that was kept, with its numbers, in words."""
    found = look.judgement
    measured, low, high = (number_text(found[name], 3, "?") for name in ("measured", "low", "high"))
    known = found["measured"] is not None
    return {
        "claim": look.claim,
        "exploratory": look.exploratory,
        "what": "exploratory" if look.exploratory else f"look {look.number}",
        "made": look.made[:10],
        "confidence": f"{100 * (1 - look.error):.3g} %",
        "measured": measured if known else "",
        "interval": f"[{low}, {high}]" if known else "",
        "limit": found["limit"],
        "verdict": found["verdict"],
        "withdrawn": study.withdrawn.get(look.revision, ""),
    }


def look_text(look: Look, study: Study) -> str:
    """The same on one line."""
    view = look_view(look, study)
    said = f"{view['measured']} {view['interval']} {view['limit']}".rstrip() if view["measured"] else "no number"
    end = f"; withdrawn: {view['withdrawn']}" if view["withdrawn"] else ""
    return f"{view['what']} ({view['made']}, at {view['confidence']}): {said}, {view['verdict']}{end}"


def numbers(judgement: Judgement) -> str:
    """The number with its interval against its limit, "" where there is none."""
    if judgement.measured is None:
        return ""
    measured, low, high = (number_text(end, 3, "?") for end in (judgement.measured, judgement.low, judgement.high))
    return f"{measured} [{low}, {high}]" + (f" {judgement.limit}" if judgement.limit else "")


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


def study_page(study: Study, state: str) -> RenderableType:
    """The page of ``flipscope studies NAME``: what it runs, what it judges, where it departs from the paper."""
    parts: list[RenderableType] = [Text(study.title, style="bold"), Text(f"paper {study.paper}, {state}", style="dim")]
    parts += [Text(), Text("Scales", style="bold"), _listed(_scale_rows(study))]
    claims = [
        (claim.name, f"{claim.statement} ({claim.source}); judged by: {claim.criterion}") for claim in study.claims
    ]
    parts += [Text(), Text("Claims", style="bold"), _listed(claims)]
    if study.deviations:
        departures = [(each.what, f"paper: {each.paper}; here: {each.ours}; {each.why}") for each in study.deviations]
        parts += [Text(), Text("Where it departs from the paper", style="bold"), _listed(departures)]
    return Group(*parts)


def _scale_rows(study: Study) -> list[tuple[str, str]]:
    return [(name, f"{scale.note}; about {span(60 * scale.minutes)}") for name, scale in study.scales.items()]


def _listed(rows: Sequence[tuple[str, str]]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
    table.add_column(overflow="fold", max_width=34)
    table.add_column(overflow="fold")
    for name, said in rows:
        table.add_row(Text(name, style="cyan"), Text(said))
    return table


def status_page(states: Sequence[RunState], notes: Mapping[str, Sequence[str]]) -> RenderableType:
    """The page of ``flipscope status``; `notes` are by the name of the study."""
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
        parts += [Text(f"  {note}", style="yellow") for note in notes.get(state.study, ())]
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
    interim = entry.get("standing") == "interim"
    mark, colour = INTERIM if interim else MARKS[entry["verdict"]]
    return Text(f"  {mark} {'interim' if interim else entry['verdict']:<12} {entry['claim']}", style=colour)


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
