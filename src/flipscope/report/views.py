"""The content of a study's page as plain dictionaries, for the terminal, the HTML report and other displays.

Nothing here depends on the display: texts are plain, numbers are formatted, and figures are Vega-Lite specifications.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flipscope import __version__
from flipscope.basics import wording
from flipscope.basics.wording import count_text, number_text, time_text
from flipscope.figures import Figure
from flipscope.figures.vegalite import specification
from flipscope.lab import registry
from flipscope.lab.findings import Findings
from flipscope.lab.history import Look
from flipscope.lab.registry import address
from flipscope.lab.rows import Rows
from flipscope.lab.settings import split_name
from flipscope.lab.study import Claim, Study
from flipscope.lab.verdict import VERDICTS, Judgement
from flipscope.report.drawing import file_stems

View = dict[str, Any]

MAX_ROWS = 200  # rows shown of a table
OPEN_ROWS = 25  # a longer table is folded
PAPERS = {  # keys are the numbers that studies use; CITATION.cff has full references
    "000": ("Kövér et al. 2026, parameter-space geometry", "https://arxiv.org/abs/2606.08768"),
    "001": ("Hahn and Rofin 2024, sensitive functions are hard", "https://arxiv.org/abs/2402.09963"),
    "002": ("Lintilhac and Shaikh 2026, a sharper picture", "https://arxiv.org/abs/2605.20988"),
    "003": ("Edelman et al. 2022, sparse variable creation", "https://arxiv.org/abs/2110.10090"),
    "004": ("Vasudeva et al. 2025, low-sensitivity functions", "https://arxiv.org/abs/2403.06925"),
}


@dataclass(frozen=True)
class StudyPage:
    """A measured study with everything that its page shows."""

    run: Findings
    figures: Sequence[Figure]
    settings: Mapping[str, Sequence[Any]]  # the distinct values of each field of the trials
    machines: Sequence[str]  # descriptions of the machines that measured it
    revision: int  # of the study that measured it
    command: str  # the command that repeats it
    finished: str = ""  # the time of the last trial
    notes: Sequence[str] = ()  # notices at the top of the page
    older: str = ""  # the version that measured it, if that was not the present code


# ---------------------------------------------------------------- all studies


def in_order(pages: Sequence[StudyPage]) -> list[StudyPage]:
    """The pages in display order: studies that decided a claim first."""
    return sorted(pages, key=lambda page: all(found.verdict == "undecided" for _, found in page.run.judgements))


def report_view(pages: Sequence[StudyPage], missing: Sequence[tuple[str, str]] = ()) -> View:
    """All studies `in_order`; `missing` lists studies that cannot be shown, with the reasons.

    Claims whose results are from older code are shown but not counted.
    """
    pages = in_order(pages)
    judged = [each for page in pages if not page.older for each in page.run.judgements]
    older = sum(len(page.run.judgements) for page in pages if page.older)
    found = [judgement.verdict for _, judgement in judged]
    limits = [judgement.verdict for claim, judgement in judged if claim.asymptotic]
    return {
        "version": __version__,
        "summary": _summary(pages, len(judged) + older),
        "counts": {verdict: found.count(verdict) for verdict in VERDICTS},
        "apart": [*_limits_text(limits, len(judged)), *_older_text(older)],
        "pages": [study_view(page, f"study-{number}") for number, page in enumerate(pages)],
        "missing": list(missing),
    }


def _summary(pages: Sequence[StudyPage], claims: int) -> str:
    if not pages:
        return "No study has results."
    seconds = time_text(sum(page.run.seconds for page in pages))
    judged = count_text(claims, "claim").replace("1 claim", "one claim", claims == 1)
    studies = "1 study" if len(pages) == 1 else f"{len(pages)} studies"
    return f"{studies}, {judged}, {seconds} of computing time. Every verdict comes with the interval it rests on."


def _limits_text(limits: Sequence[str], claims: int) -> list[str]:
    """A note on claims that no measured length can contradict."""
    if not limits:
        return []
    held = f"{limits.count('reproduced')} reproduced, {limits.count('undecided')} undecided"
    return [
        f"{len(limits)} of the {claims} claims are limit theorems ({held}): they hold for all sufficiently "
        "long strings, so no measured length can contradict them, and their verdicts carry less weight than the others."
    ]


def _older_text(claims: int) -> list[str]:
    """A note on claims that were measured by older code."""
    if not claims:
        return []
    measured = f"{count_text(claims, 'claim')} of studies that were measured by older code"
    return [f"{measured}: marked below, and not counted here."]


# ---------------------------------------------------------------- one study


def study_view(page: StudyPage, name: str) -> View:
    """One study; `name` is the prefix of the identifiers of its parts."""
    run, study = page.run, page.run.study
    paper, link = PAPERS.get(study.paper, (study.paper, ""))
    if not link and re.fullmatch(r"https?://[^\s\"'<>]+", study.paper):
        link = study.paper
    seeds = {key: values for key, values in page.settings.items() if "seed" in key.lower()}
    others = {key: values for key, values in page.settings.items() if key not in seeds}
    known = {claim.name for claim in study.claims}
    return {
        "id": name,
        "name": study.name,
        "title": study.title,
        "paper": paper,
        "link": link,
        "where": ", ".join(study.figures),
        "scale": run.scale,
        "scale_note": "" if page.older else _scale_note(run),  # the plan may have changed since
        "progress": _progress(run),
        "time": time_text(run.seconds),
        "older": page.older,
        "notes": [*_warnings(run), *page.notes],
        "provenance": run.provenance,
        "deviations": study.deviations,
        "differences": [
            (setting, _setting_text(there), _setting_text(here))
            for setting, there, here in ([] if page.older else study.differences(run.scale))
        ],
        "claims": [{"id": f"{name}-{place}", **view} for place, view in enumerate(claim_views(run))],
        "gone": [look_view(look, study) for look in run.looks if look.claim not in known],
        "figures": figure_views(study.name, page.figures),
        "table": table_view(run.table),
        "command": page.command,
        "facts": _facts(page),
        "settings": [(key, wording.values_text(values)) for key, values in others.items()],
        "seeds": [(key, wording.values_text(values)) for key, values in seeds.items()],
    }


def _progress(run: Findings) -> str:
    if run.complete:
        return count_text(run.trials, "trial")
    failed = f", {run.failed:,} failed" if run.failed else ""
    return f"{run.done:,} of {count_text(run.trials, 'trial')}{failed}"


def changes_text(run: Findings) -> str:
    """The settings changed by the user, as text; "" if there are none."""
    said = [
        f"{name} {_setting_text(here)}" + ("" if own is None else f" instead of {_setting_text(own)}")
        for name, (own, here) in run.changes.items()
    ]
    return ", ".join(said)


def differences_texts(run: Findings) -> list[str]:
    """One line for each setting that differs from the paper's."""
    return [
        f"{name}: {_setting_text(here)}, in the paper {_setting_text(there)}"
        for name, there, here in run.study.differences(run.scale)
    ]


def _scale_note(run: Findings) -> str:
    """The study's description of a scale, and the changed settings."""
    note, changed = run.study.scales[split_name(run.scale)[0]].note, changes_text(run)
    return f"{note}; changed: {changed}" if changed else note


def _setting_text(value: Any) -> str:
    return wording.values_text(value if isinstance(value, tuple) else [value])


def _warnings(run: Findings) -> list[str]:
    found = []
    if changed := changes_text(run):
        base = split_name(run.scale)[0]
        found.append(f"The settings are the user's, not those of the scale {base} of this study: {changed}.")
    found += [f"The study's own code failed: {error}." for error in run.errors]
    if run.missing:
        left = f"{run.missing:,} of {count_text(run.trials, 'trial')}"
        found.append(f"{left} {'has' if run.missing == 1 else 'have'} not been measured yet: verdicts are interim.")
    if run.failed:
        first = f" The first error: {run.first_failure.rstrip('.')}." if run.first_failure else ""
        found.append(
            f"{count_text(run.failed, 'trial')} failed; flipscope results {run.study.name} --failed lists the errors."
            f"{first}"
        )
    return found


def _facts(page: StudyPage) -> list[tuple[str, str]]:
    run = page.run
    facts = [
        ("Trials", f"{run.done:,} of {run.trials:,} done, {run.failed:,} failed"),
        ("Time spent", f"{time_text(run.seconds)}, all trials together"),
        ("Finished", page.finished),
        ("Version", page.older or f"flipscope {__version__}, revision {page.revision} of the study"),
        ("Measured on", "; ".join(page.machines)),
    ]
    return [(name, said) for name, said in facts if said]


def figure_views(study: str, figures: Sequence[Figure]) -> list[View]:
    """The figures of a study, each with the name of its files and a text description."""
    return [
        {
            "stem": stem,
            "title": figure.title,
            "caption": figure.caption,
            "where": figure.where,
            "alt": figure.alt_text(),
            "data": specification(figure, "light"),
        }
        for stem, figure in zip(file_stems(study, list(figures)), figures, strict=True)
    ]


def table_view(table: Rows) -> View:
    """The first rows of a table, each cell as text, with the exact number for sorting if the text is rounded."""
    names = list(dict.fromkeys(name for row in table for name in row))
    numbers = {name: all(wording.is_number(row.get(name)) for row in table) for name in names}

    def cell(name: str, value: Any) -> View:
        text, value = wording.cell_text(value), wording.sort_value(value)
        return {"text": text, "value": value if value != text else "", "number": numbers[name]}

    return {
        "columns": [{"name": name, "number": numbers[name]} for name in names],
        "rows": [[cell(name, row.get(name)) for name in names] for row in table[:MAX_ROWS]],
        "count": f"{len(table):,}",
        "more": f"{len(table) - MAX_ROWS:,}" if len(table) > MAX_ROWS else "",
        "long": len(table) > OPEN_ROWS,
        "shortened": any(wording.is_shortened(value) for row in table[:MAX_ROWS] for value in row.values()),
    }


# ---------------------------------------------------------------- claims


def claim_views(run: Findings) -> list[View]:
    """The claims of a study, undecided ones last: verdict, numbers, looks, and the reason if undecided."""
    return [_claim_view(claim, found, run) for claim, found in run.decided_first]


def _claim_view(claim: Claim, found: Judgement, run: Findings) -> View:
    return {
        "name": claim.name,
        "source": claim.source,
        "statement": claim.statement,
        "criterion": claim.criterion,
        "exploratory": claim.exploratory,
        "asymptotic": claim.asymptotic,
        **judgement_view(found),
        "seen": "" if found.seen is None else found.seen.text,
        "looks": _looks_of(claim, run),
        "note": found.note,
        "remedy": found.remedy,
        "reason": _reason(claim, found, run),
        "bar": wording.interval_places(found.measured, found.low, found.high, found.limit),
        "parts": [judgement_view(part) for part in found.parts],
    }


def judgement_view(found: Judgement) -> View:
    """A verdict with its number, both as separate parts and as one short text."""
    measured = number_text(found.measured)
    return {
        "verdict": found.verdict,
        "interim": found.seen is not None and found.seen.standing == "interim",
        "quantity": found.quantity,
        "measured": measured,
        "interval": wording.interval_text(found.low, found.high) if measured else "",
        "limit": found.limit,
        "numbers": _numbers(found),
    }


def _numbers(found: Judgement) -> str:
    """The number with its interval and its limit as text, "" if there is none."""
    if found.measured is None:
        return ""
    measured, low, high = (number_text(end, 3, "?") for end in (found.measured, found.low, found.high))
    return f"{measured} [{low}, {high}]" + (f" {found.limit}" if found.limit else "")


def _reason(claim: Claim, found: Judgement, run: Findings) -> str:
    """The text beside the number: which look it is, why it is not reproduced, what would decide it."""
    seen = "" if found.seen is None else found.seen.text
    if found.verdict == "reproduced":
        return seen
    if found.verdict == "contradicted":
        return "; ".join(text for text in (seen, found.note) if text)
    why = found.quantity if found.measured is None else _open_because(found)
    if found.measured is None and found.note:
        why = f"{found.note}: {why}"
    exploratory = found.seen is not None and found.seen.standing == "exploratory"
    command = "" if exploratory else _next_command(claim, run)  # an exploratory judgement already suggests new seeds
    remedy = ": ".join(text for text in (found.remedy, command) if text)
    return "; ".join(text for text in (seen, why, f"to decide it: {remedy}" if remedy else "") if text)


def _open_because(found: Judgement) -> str:
    """Why the interval does not decide; the number shown for a claim of several parts may seem to decide it."""
    if found.note:
        return found.note
    still = sum(part.verdict == "undecided" for part in found.parts)
    return f"{still} of {len(found.parts)} parts are undecided" if still else "the interval contains the limit"


def _next_command(claim: Claim, run: Findings) -> str:
    """The command that measures data that may decide the claim, at this scale or a larger one; "" if none."""
    base, changes = split_name(run.scale)
    if changes and not run.complete:
        return registry.repeat_command(run.study, run.scale)
    if run.study.look_scale(run.scale) != base:  # no other scale has these settings
        return ""
    names = list(run.study.scales)
    first = names.index(base) + int(run.complete)
    if claim.decided_from is not None:
        first = max(first, names.index(claim.decided_from) if claim.decided_from else len(names))
    return f"flipscope run {address(run.study)} --scale {names[first]}" if first < len(names) else ""


def _looks_of(claim: Claim, run: Findings) -> list[View]:
    """The recorded looks at a claim, if there are more than the one shown."""
    looks = [look for look in run.looks if look.claim == claim.name]
    return [look_view(look, run.study) for look in looks] if len(looks) > 1 else []


def look_view(look: Look, study: Study) -> View:
    """A recorded look with its numbers, both as separate parts and as one line."""
    found = look.judgement
    measured, low, high = (number_text(found[name], 3, "?") for name in ("measured", "low", "high"))
    known = found["measured"] is not None
    what = "exploratory" if look.exploratory else f"look {look.number}"
    made, confidence = look.made[:10], f"{100 * (1 - look.error):.3g} %"
    withdrawn = study.withdrawn.get(look.revision, "")
    said = f"{measured} [{low}, {high}] {found['limit']}".rstrip() if known else "no number"
    end = f"; withdrawn: {withdrawn}" if withdrawn else ""
    return {
        "claim": look.claim,
        "exploratory": look.exploratory,
        "what": what,
        "made": made,
        "confidence": confidence,
        "measured": measured if known else "",
        "interval": f"[{low}, {high}]" if known else "",
        "limit": found["limit"],
        "verdict": found["verdict"],
        "withdrawn": withdrawn,
        "line": f"{what} ({made}, at {confidence}): {said}, {found['verdict']}{end}",
    }
