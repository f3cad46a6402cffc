"""A tour of three minutes: from a flipped bit to verdicts on a paper, and to your own model."""

from __future__ import annotations

import inspect
import io
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flipscope import cli
from flipscope.basics.errors import InputError, printable
from flipscope.basics.streams import forgiving
from flipscope.basics.wording import count_text, time_text
from flipscope.cli.progress import progress
from flipscope.cli.run import watched
from flipscope.cube.expression import parse
from flipscope.cube.portrait import Portrait, exact_portrait
from flipscope.lab import registry
from flipscope.lab.findings import Findings
from flipscope.lab.rows import Rows
from flipscope.lab.run.runner import open_runner
from flipscope.lab.store.store import Store
from flipscope.lab.study import Trial
from flipscope.lab.verdict import VERDICTS
from flipscope.report.terminal import INTERIM, MARKS, Bar, mark_of, number, show
from flipscope.report.views import claim_views

FUNCTIONS = ("parity(21)", "majority(21)", "first(21)", "maj(x1..x5) ^ (x6 & x7)")
RESULTS = Path("results") / "demo"
PICTURE = RESULTS / "functions.svg"
REPORT = RESULTS / "report.html"
MEANINGS = {
    "reproduced": "the whole interval agrees with the claim",
    "contradicted": "no part of the interval agrees with it",
    "undecided": "the interval contains the limit: more data are needed",
    "interim": "not all planned trials have been measured yet, so nothing is decided",
}
NEXT = (
    'flipscope function "maj(x1..x5) ^ (x6 & x7)"   # all numbers of a function, exactly',
    'flipscope train "majority(20)" -o model.safetensors   # train a transformer, then measure it:',
    "flipscope sensitivity model.safetensors",
    "flipscope studies   # every experiment, with its claims and its cost",
)


@dataclass(frozen=True)
class Stop:
    """A study on the tour: its question, an introduction, the claims that answer it, a picture of its table."""

    study: str
    question: str
    lead: str
    claims: tuple[str, ...]
    picture: Callable[[Rows], RenderableType]


def main() -> int:
    """Show the tour; 0 unless something failed, 130 after Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without Unicode gets "?" instead of a traceback
        sys.stdout.reconfigure(errors="replace")
    with forgiving():
        try:
            return tour(TOUR)
        except InputError as error:
            print(f"flipscope: {printable(str(error)).rstrip('.')}.", file=sys.stderr)
            return error.exit_code
        except OSError as error:
            if error.filename is None:
                raise
            print(f"flipscope: {error.filename} cannot be used: {error.strerror}.", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("flipscope: interrupted; the same command continues from here.", file=sys.stderr)
            return 130


def tour(stops: Sequence[Stop], scale: str = "demo", workers: int | None = None) -> int:
    """Show functions, studies and a model, write the report, count the verdicts; 1 if a trial failed."""
    start, steps = time.monotonic(), len(stops) + 3
    RESULTS.mkdir(parents=True, exist_ok=True)
    _head(1, steps, "What does it mean for a function to be sensitive?")
    show(functions_page(_portraits()))
    plans = [(study, study.checked_trials(scale)) for study in (registry.find(stop.study) for stop in stops)]
    runs = []
    with open_runner(workers) as runner, Store(RESULTS) as store:
        for place, (stop, (study, trials)) in enumerate(zip(stops, plans, strict=True)):
            _head(2 + place, steps, stop.question, stop.lead)
            if not place:
                show(meanings_page())
                _compile(trials)
            runs.append(watched(study, scale, trials, store, runner))
            show(stop_page(stop, runs[-1]))
    _head(steps - 1, steps, "Your model, in one line")
    show(model_page())
    _head(steps, steps, "What was decided")
    if code := cli.main(["report", *(stop.study for stop in stops), "--results", str(RESULTS), "-o", str(REPORT)]):
        return code
    show(last_page(runs, time.monotonic() - start))
    return 1 if any(run.failed for run in runs) else 0


def _head(place: int, steps: int, title: str, lead: str = "") -> None:
    heading = Text(f"\n{place} of {steps}. {title}\n", style="bold")
    show(heading.append(f"{lead}\n", style="not bold") if lead else heading)
    sys.stdout.flush()


def _compile(trials: Sequence[Trial]) -> None:
    """Measure two trials to compile the loops, which every worker would otherwise do separately and silently."""
    by_cost = sorted(trials, key=lambda trial: trial.cost)
    with _waiting("Compiling: half a minute after an installation, a few seconds otherwise"):
        for trial in (by_cost[0], by_cost[-1]):
            trial.measure(lambda done, total: None)


@contextmanager
def _waiting(what: str) -> Iterator[None]:
    """Show that work of unknown duration is in progress: a spinner on a terminal, a line elsewhere."""
    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        with console.status(what):
            yield
    else:
        print(f"{what} ...", file=sys.stderr, flush=True)
        yield


def _table(*headings: str) -> Table:
    """A table whose first column is text, the last a bar, and the others numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", show_header=any(headings))
    for place, heading in enumerate(headings):
        middle = 0 < place < len(headings) - 1
        table.add_column(heading, justify="right" if middle else "left", no_wrap=middle, overflow="fold")
    return table


# ---------------------------------------------------------------- functions


def _portraits() -> list[Portrait]:
    """The numbers of the functions, and their picture as a file."""
    from flipscope.report.drawing import save_figure
    from flipscope.report.figures import function_figure

    found = []
    with progress("four functions") as report:
        for text in FUNCTIONS:
            found.append(exact_portrait(parse(text), text))
            report(len(found), len(FUNCTIONS) + 1)
        save_figure(function_figure(found), PICTURE)
    return found


def functions_page(portraits: Sequence[Portrait]) -> RenderableType:
    """How many strings of each function have which sensitivity."""
    lead = (
        "Take a string x of bits and flip one of them: does the value of the function change? The sensitivity s(x) is "
        "the number of bits for which it does.\n"
    )
    table = _table("function", "average", "s(x)", "strings", "share of the strings with this s(x)")
    for portrait in portraits:
        name, average = portrait.name, number(portrait.average_sensitivity)
        for sensitivity, count in enumerate(portrait.profile):
            if isinstance(count, int) and count:
                table.add_row(name, average, str(sensitivity), number(count), Bar(count / 2**portrait.n))
                name = average = ""
    after = (
        "\nParity reacts to every flip of every string; Majority only where the vote is close; First to a single bit. "
        "A random function reacts to half of all flips. Five papers ask on which side transformers "
        f"are.\nThe same as a picture: {PICTURE}"
    )
    return Group(Text(lead), table, Text(after))


# ---------------------------------------------------------------- studies


def random_picture(table: Rows) -> RenderableType:
    """The average sensitivity of random transformers, by initialisation, beside that of a random function."""
    drawn = _table("initialisation", "models", "constant", "average s(x)", "")
    length = max(table.column("length"))
    for init, rows in table.by("init"):
        mean = float(np.mean(rows.column("average_sensitivity")))
        constant = sum(map(bool, rows.column("constant")))
        drawn.add_row(init.replace("_", " "), f"{len(rows)}", f"{constant}", f"{mean:.2f}", Bar(2 * mean / length))
    drawn.add_row("a random function", "", "", f"{length / 2:.2f}", Bar(1.0))
    return drawn


def trained_picture(table: Rows) -> RenderableType:
    """What models learned of each language: how many, how well, and how sensitive they are."""
    drawn = _table("trained on", "learned by", "accuracy", "average s(x)", "")
    length = max(table.column("length"))
    for language, rows in table.by("language"):
        accuracies = rows.column("accuracy")
        learned = f"{sum(rows.column('learned'))} of {len(rows)} models"
        accuracy = f"{min(accuracies):.3f} to {max(accuracies):.3f}"
        mean = float(np.mean(rows.column("average_sensitivity")))
        drawn.add_row(language.capitalize(), learned, accuracy, f"{mean:.2f}", Bar(mean / length))
    own = float(length)
    drawn.add_row("Parity itself", "", "", f"{own:.2f}", Bar(1.0))
    return drawn


def bound_picture(table: Rows) -> RenderableType:
    """The largest probability in units of each bound, by width: above 1 the bound is broken."""
    drawn = _table("width D", "printed", "corrected", "probability / printed bound")
    worst: dict[int, dict[str, float]] = {}
    for name in ("printed", "corrected"):
        for width, rows in table.having(name).by("width"):
            worst.setdefault(width, {})[name] = max(row["hits"] / row["samples"] / row[name] for row in rows)
    top = max(1.0, *(each.get("printed", 0.0) for each in worst.values()))
    for width, each in sorted(worst.items()):
        texts = (f"{each[name]:.2f}" if name in each else "-" for name in ("printed", "corrected"))
        drawn.add_row(str(width), *texts, Bar(each.get("printed", 0.0) / top))
    drawn.add_row("limit", "1.00", "1.00", Bar(1.0 / top))
    return drawn


TOUR = (
    Stop(
        "random-init",
        "Is a transformer with random weights sensitive?",
        "The paper: almost no flip changes the answer of a random transformer, under every initialisation. Here 60 "
        'small ones are drawn for each of four, on strings of 100 bits; "constant" are those that always answered the '
        "same.",
        ("most strings are insensitive", "random transformers are far below a random function"),
        random_picture,
    ),
    Stop(
        "trained-profiles",
        "What does a trained one learn: Majority? Parity?",
        "The same small transformer and the same training for each function of 20 bits, six seeds. The paper: First "
        "and Majority are learned; Parity, which reacts to every flip, never is.",
        ("Majority is learned", "Parity is not learned", "Parity: a wrong profile"),
        trained_picture,
    ),
    Stop(
        "low-variance",
        "Does a lemma of the proof hold, as printed and corrected?",
        "The proof needs that the variance in front of a layer norm is seldom small. Its probability is estimated by "
        "Monte Carlo and divided by the bound: above 1 the bound is broken. Printed: (sqrt(D) eta/rho)^(D-1).",
        ("printed bound on small variance", "corrected bound on small variance"),
        bound_picture,
    ),
)


def meanings_page() -> RenderableType:
    """What the verdicts mean."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for word, meaning in MEANINGS.items():
        mark, colour = INTERIM if word == "interim" else MARKS[word]
        table.add_row(Text(mark, style=colour), Text(word, style=colour), Text(meaning))
    lead = "Each claim is judged by the confidence interval of what was measured. The verdicts:"
    return Group(Text(lead), Padding(table, (0, 0, 1, 2)))


def stop_page(stop: Stop, run: Findings) -> RenderableType:
    """What a study found: its picture, the claims of the story, and how many more the report has."""
    views = {view["name"]: view for view in claim_views(run)}
    shown = [views.pop(name) for name in stop.claims if name in views]
    parts: list[RenderableType] = [stop.picture(run.table), Text()] if run.table else []
    parts += [_claim(view) for view in shown]
    failed = f", {run.failed:,} failed" if run.failed else ""
    reused = f", {run.reused:,} of them measured earlier" if run.reused else ""
    ran = f"{run.study.name}: {run.done:,} of {run.trials:,} trials{failed}{reused}, {time_text(run.seconds)}."
    counted = Counter(view["verdict"] for view in views.values())
    others = ", ".join(f"{counted[verdict]} {verdict}" for verdict in VERDICTS if counted[verdict])
    more = f" {count_text(len(views), 'more claim')} in the report: {others}." if views else ""
    return Group(*parts, Text(f"\n{ran}{more}", style="dim"))


def _claim(view: dict[str, Any]) -> RenderableType:
    """A verdict with its numbers; beneath it the claim, and what a reader must know of the verdict."""
    mark, colour = mark_of(view)
    word = "interim" if view["interim"] else view["verdict"]
    line = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for options in ({"no_wrap": True}, {"no_wrap": True}, {"ratio": 1}, {"no_wrap": True}):
        line.add_column(overflow="fold", **options)
    name, numbers = Text(view["name"], style="bold"), Text(view["numbers"], style="cyan")
    line.add_row(Text(mark, style=colour), Text(word, style=colour), name, numbers)
    about = "; ".join(text for text in (view["statement"], view["reason"]) if text)
    return Group(line, Padding(Text(f"{about} ({view['source']})", style="dim"), (0, 0, 0, 3)))


# ---------------------------------------------------------------- a model


def measured_model() -> Any:
    """The sensitivities of eight random strings for a network that flipscope has never seen."""
    import torch

    import flipscope

    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    strings = torch.randint(0, 2, (8, 20))
    return flipscope.sensitivity(model, strings)


def model_page() -> RenderableType:
    """The lines that measure a model, as they were run, and what they return."""
    found = measured_model()
    source = inspect.getsource(measured_model).split('"""')[2]
    code = "\n".join(line for line in textwrap.dedent(source).strip().splitlines() if line)
    lead = "Any PyTorch module or callable on bits will do. These lines have just been run:\n"
    after = (
        f"\n{found.tolist()}\n\nOne number for each string: how many of its 20 flips change the network's answer. A "
        "random function would have about 10. flipscope.sensitivity_profile(model, 20) measures a whole profile, with "
        "intervals; the README shows spectra, sharpness, curvature and training."
    )
    return Group(Text(lead), Padding(Text(code.replace("return ", ""), style="cyan"), (0, 0, 0, 2)), Text(after))


# ---------------------------------------------------------------- the end


def last_page(runs: Sequence[Findings], seconds: float) -> RenderableType:
    """The verdicts of all studies, counted; which claims are contradicted; where to go from here."""
    found = [(run.study.name, Counter(judgement.verdict for _, judgement in run.judgements)) for run in runs]
    whole = sum((counts for _, counts in found), Counter())
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("")
    for name in VERDICTS:
        table.add_column(name, justify="right", header_style=f"bold {MARKS[name][1]}")
    for study, counts in found:
        table.add_row(study, *(str(counts[name] or "·") for name in VERDICTS))
    decided = whole["reproduced"] + whole["contradicted"]
    said = Text(f"{decided} of {whole.total()} claims were decided by data measured here", style="bold")
    said.append(f", in {time_text(seconds)}: {whole['reproduced']} reproduced, {whole['contradicted']} contradicted.")
    parts: list[RenderableType] = [table, Text(), said]
    mark, colour = MARKS["contradicted"]
    for run in runs:
        against = (claim for claim, judgement in run.judgements if judgement.verdict == "contradicted")
        parts += [Text(f"{mark}  {claim.name} ({claim.source})", style=colour) for claim in against]
    parts += [Text(f"\nThe report: {REPORT}, one file for any browser, with every claim, figure, table and setting.")]
    parts += [Text("Next, with .venv/bin on your PATH:\n")]
    parts += [Text(f"  {line}", style="cyan") for line in NEXT]
    return Group(*parts)


if __name__ == "__main__":
    sys.exit(main())
