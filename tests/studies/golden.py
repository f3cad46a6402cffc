"""Golden numbers: the outcomes of every study's smoke trials as they were measured, in `golden/STUDY.json`.

A stored result is kept when code that the study imports is edited; these files notice an edit that changes numbers.
They also give the tests of claims and figures their smoke tables, so that each smoke trial is measured once.

    python -m tests.studies.golden STUDY…             write new trials and the digest of the measuring code
    python -m tests.studies.golden STUDY… --numbers   write the numbers anew too, without a new revision

Numbers may change where `revision` was raised, and with --numbers; else the command refuses.

A float may differ by the tolerance "relative" of its file, all else must be equal. The file says where a column has a
tolerance of its own, wide enough for another processor: {"relative": r, "absolute": a} allows the larger of the two,
"first": k compares the first k entries of a list, where those of a long training are chaotic, and "any" allows all.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipscope.lab import registry
from flipscope.lab.run.resources import one_thread
from flipscope.lab.store import outcomes
from flipscope.lab.study import Result, Study, Trial

FOLDER = Path(__file__).parent / "golden"
RELATIVE = 0.005  # below the smallest mutant (tests/studies/mutants.py), above what processors differ by


@dataclass(frozen=True)
class Golden:
    """What a file holds: for each trial its content and its outcome, in the order of the smoke scale."""

    study: str
    revision: int
    relative: float
    columns: Mapping[str, Any]  # tolerances of their own, by name
    trials: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]

    @classmethod
    def read(cls, study: str) -> Golden:
        """The golden numbers of a study."""
        document = json.loads(_path(study).read_text("utf-8"))
        trials = [(each["trial"], _decoded(each["outcome"])) for each in document.pop("trials")]
        return cls(**document, trials=trials)

    def write(self) -> None:
        """Write the file: one line for each trial."""
        head = {name: getattr(self, name) for name in ("study", "revision", "relative", "columns")}
        lines = [json.dumps({"trial": trial, "outcome": _encoded(outcome)}) for trial, outcome in self.trials]
        rest = "".join(f"{json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
        _path(self.study).write_text("{\n" + rest + '"trials": [\n' + ",\n".join(lines) + "\n]}\n", "utf-8")


def smoke_results(study: Study) -> list[Result]:
    """The results of the smoke trials, as the golden file has them."""
    trials = {_content(trial): trial for trial in study.checked_trials("smoke")}
    golden = Golden.read(study.name)
    return [Result(trials[_text(content)], outcome, 0.0) for content, outcome in golden.trials]


def measured(trials: Sequence[Trial]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The contents of trials, each with what it gives now, as it would be read from a store."""
    with one_thread():
        for trial in trials:
            outcome = trial.measure(_check_progress)
            yield json.loads(_content(trial)), _decoded(_encoded(outcome))


def differences(study: Study, golden: Golden, stop: bool = False) -> list[str]:
    """A line for each number that is not what it was; with `stop` the lines of the first trial that has any."""
    trials = {_content(trial): trial for trial in study.checked_trials("smoke")}
    known = {_text(content): outcome for content, outcome in golden.trials}
    found = [f"trial {text} is not in the golden file" for text in trials if text not in known]
    found += [f"trial {text} is no smoke trial any more" for text in known if text not in trials]
    for text in [text for text in known if text in trials]:
        if stop and found:
            break
        for content, outcome in measured([trials[text]]):
            found += compared(content, known[text], outcome, golden.relative, golden.columns)
    return found


def compared(
    content: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    relative: float = RELATIVE,
    columns: Mapping[str, Any] | None = None,
) -> list[str]:
    """A line for each column of an outcome that differs by more than its tolerance."""
    found = []
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            found.append(f"{_text(content)}: the column {name} is {'new' if name in after else 'missing'}")
            continue
        own = (columns or {}).get(name)
        if own == "any":
            continue
        old, new = before[name], after[name]
        if own is not None and "first" in own:
            old, new = old[: own["first"]], new[: own["first"]]
        if not _close(old, new, relative, own):
            found.append(f"{_text(content)}: {name} was {_short(before[name])} and is {_short(after[name])}")
    return found


def _close(before: Any, after: Any, relative: float, own: Mapping[str, float] | None) -> bool:
    """Whether two values are equal up to the tolerance."""
    if isinstance(before, np.ndarray) or isinstance(after, np.ndarray):
        same = isinstance(before, np.ndarray) and isinstance(after, np.ndarray)
        if not same or (before.dtype, before.shape) != (after.dtype, after.shape):
            return False
        return _close(before.tolist(), after.tolist(), relative, own)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(
            _close(*pair, relative, own) for pair in zip(before, after, strict=True)
        )
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(_close(before[k], after[k], relative, own) for k in before)
    if type(before) is not type(after):
        return False
    if isinstance(before, str | bool | None) or (isinstance(before, int) and own is None):
        return bool(before == after)
    if not math.isfinite(before):
        return str(before) == str(after)
    limits = {"relative": relative if own is None or "first" in own else 0.0, "absolute": 1e-12, **(own or {})}
    within = max(limits["relative"] * abs(before), limits["absolute"])
    return bool(abs(after - before) <= within)


def _short(value: Any) -> str:
    text = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _check_progress(done: int, total: int) -> None:
    assert 0 <= done <= total, f"progress of {done} in {total}"


def _path(study: str) -> Path:
    return FOLDER / f"{study}.json"


def _content(trial: Trial) -> str:
    return _text(trial.content())


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content)


def _encoded(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """An outcome as JSON, its arrays too."""
    text, arrays = outcomes.split(outcome)
    document = json.loads(text)
    for name, array in arrays.items():
        tagged = json.loads(outcomes.encode(array.reshape(-1).tolist(), name))
        document[name] = {"!array": [str(array.dtype), list(array.shape)], "values": tagged}
    return document


def _decoded(document: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome that was encoded."""
    plain, arrays = {}, {}
    for name, value in document.items():
        plain[name] = value
        if isinstance(value, dict) and "!array" in value:
            (kind, shape), values = value["!array"], outcomes.decode(json.dumps(value["values"]))
            plain[name] = {"!array": [kind, shape]}
            arrays[name] = np.array(values, kind).reshape(shape)
    return outcomes.join(json.dumps(plain), arrays)


def written_anew(study: Study, *, numbers: bool) -> str:
    """Write the golden file of a study from what it measures now; a sentence that says what changed."""
    trials = study.checked_trials("smoke")
    try:
        before = Golden.read(study.name)
    except FileNotFoundError:
        before = Golden(study.name, study.revision, RELATIVE, {}, [])
    known = {_text(content): outcome for content, outcome in before.trials}
    found, changed = [], []
    for content, outcome in measured(trials):
        old = known.get(_text(content))
        lines = [] if old is None else compared(content, old, outcome, before.relative, before.columns)
        changed += lines
        # Digits within the tolerance stay as they are, so that a file changes only where numbers do.
        found.append((content, outcome if old is None or lines else old))
    if changed and not numbers and study.revision == before.revision:
        raise SystemExit("\n".join([f"{CHANGED.format(study.name)}; --numbers writes them all the same", *changed]))
    Golden(study.name, study.revision, before.relative, before.columns, found).write()
    new = sum(_text(content) not in known for content, _ in found)
    return f"{study.name}: {len(found)} trials, {new} of them new, {len(changed)} changed numbers"


CHANGED = "the numbers of {} changed: find the bug, or raise its revision"


def main(arguments: Sequence[str]) -> None:
    """Write golden files anew."""
    parser = argparse.ArgumentParser(prog="python -m tests.studies.golden", description=main.__doc__)
    parser.add_argument("study", nargs="+", help="names of studies")
    parser.add_argument("--numbers", action="store_true", help="also where numbers changed without a new revision")
    options = parser.parse_args(arguments)
    for name in options.study:
        print(written_anew(registry.find(name), numbers=options.numbers))


if __name__ == "__main__":
    main(sys.argv[1:])
