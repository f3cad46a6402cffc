"""Packs: results as one file, merged into another store, and shown without one."""

from __future__ import annotations

import hashlib
import json
import lzma
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from lab.stores import files, refused

from flipscope import lab
from flipscope.basics.progress import Progress
from flipscope.cli import main
from flipscope.lab import registry
from flipscope.lab.looks import ALPHA, error_of
from flipscope.lab.rows import Rows
from flipscope.lab.run.driver import judged, run_study
from flipscope.lab.run.runner import InProcess
from flipscope.lab.store import packs, tables
from flipscope.lab.store.merging import Merged, largest_difference, merge, variants
from flipscope.lab.store.salvage import verify
from flipscope.lab.store.store import Store
from flipscope.lab.study import Claim, Outcome, Scale, Study, Trial
from flipscope.lab.verdict import Judgement
from flipscope.report.pages import packed_pages, stored_pages
from flipscope.report.views import report_view


@dataclass(frozen=True)
class Draw(Trial):
    seed: int
    shape: tuple[int, ...] = (2, 3)


def judge(limit: float) -> Callable[[Rows], Judgement]:
    return lambda table: lab.at_least(lab.student_mean(table.column("value")), limit, "mean value")


class Draws(Study):
    """A study whose plan, claim and outcomes the tests exchange."""

    name = "draws"
    paper = "000"
    title = "A study for tests"
    scales = {"smoke": Scale(0.1, {}, "all of it"), "demo": Scale(0.2, {}, "one more")}
    claims: ClassVar[tuple[Claim, ...]] = ()

    def __init__(self, seeds: Sequence[int] = range(6), limit: float = 0.0, shift: float = 0.0) -> None:
        self.seeds, self.shift = seeds, shift
        self.claims = (Claim("mean", "Fig 1", "the mean is positive", "mean", judge(limit)),)  # type: ignore[misc]

    def trials(self, scale: str) -> Sequence[Draw]:
        return [Draw(seed) for seed in [*self.seeds, *([99] if scale == "demo" else [])]]

    def measure(self, trial: Draw, progress: Progress) -> Outcome:
        value = float(np.random.default_rng(trial.seed).normal(0.3)) + self.shift
        return {"value": value, "none": math.nan, "noise": np.arange(trial.seed + 1.0), "flags": np.ones((2, 0), bool)}


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Draws:
    """The study that is found by name."""
    made = Draws()
    monkeypatch.setattr(registry, "find", lambda name: made)
    return made


def run(study: Study, folder: Path, scale: str = "smoke") -> None:
    with Store(folder) as store:
        run_study(study, scale, store, InProcess(), command=f"flipscope run {study.name} --scale {scale}")


def packed(folder: Path, target: Path, **options: Any) -> packs.Header:
    with Store(folder) as store:
        return packs.write(target, store, ["draws"], **options)


def merged(source: Path, folder: Path) -> Merged:
    with Store(folder) as store:
        return merge(store, packs.read(source))


def report(folder: Path) -> dict[str, Any]:
    with Store(folder) as store:
        return report_view(*stored_pages(store))


# ---------------------------------------------------------------- there and back


def test_a_pack_in_an_empty_store_gives_the_same_report_and_the_same_pack(study: Draws, tmp_path: Path) -> None:
    first, again, target = tmp_path / "a", tmp_path / "b", tmp_path / "x.flipscope"
    for seeds in (range(4), range(6)):  # two looks
        study.seeds = seeds
        run(study, first)
    run(study, first, "demo")
    header = packed(first, target)
    assert (header.rows["results"], header.rows["looks"], header.rows["runs"], header.files["arrays"]) == (7, 3, 2, 7)
    assert merged(target, again) == Merged(7, 0, 0, 3, 0, ())
    assert report(again) == report(first)
    with Store(again) as store:
        assert verify(store).damaged == []
        assert judged(study, "smoke", store).judgements[0][1].seen.text == "look 2, at 99.2 %"  # type: ignore[union-attr]
        np.testing.assert_array_equal(store.results(study, study.trials("smoke"))[5].outcome["noise"], np.arange(6.0))
    assert report_view(*packed_pages([target])) == report(first)
    packed(again, tmp_path / "y.flipscope")
    assert (tmp_path / "y.flipscope").read_bytes() == target.read_bytes()
    before = files(again)
    assert merged(target, again) == Merged(0, 7, 0, 0, 0, ())
    assert {name for name in files(again) if name not in before} == set()


def test_what_belongs_to_one_machine_stays_behind(study: Draws, tmp_path: Path) -> None:
    run(study, tmp_path / "a")
    target = tmp_path / "x.flipscope"
    packed(tmp_path / "a", target)
    found = packs.read(target)
    ((_, machine),) = found.rows["machines"]
    assert "host" not in json.loads(machine)
    assert "cpu" in json.loads(machine)
    assert json.loads(machine)["flipscope"]
    (row,) = (dict(zip(tables.COLUMNS["runs"], row, strict=True)) for row in found.rows["runs"])
    assert (row["host"], row["pid"], row["born"]) == ("", 0, "")


def test_a_scale_alone(study: Draws, tmp_path: Path) -> None:
    run(study, tmp_path / "a")
    run(study, tmp_path / "a", "demo")
    target = str(tmp_path / "x.flipscope")
    options = ["--scale", "smoke", "-o", target, "--results", str(tmp_path / "a")]
    assert main(["results", "pack", "draws", *options]) == 0
    found = packs.read(Path(target))
    assert (len(found.rows["results"]), len(found.rows["looks"]), len(found.rows["runs"])) == (6, 1, 1)


def test_a_store_with_some_of_the_trials(study: Draws, tmp_path: Path) -> None:
    target = tmp_path / "x.flipscope"
    run(study, tmp_path / "a")
    packed(tmp_path / "a", target)
    study.seeds = range(4)
    run(study, tmp_path / "b")
    with Store(tmp_path / "b") as store:
        store.fail("f" * 64, "draws", {}, "c", "Traceback", 1.0)
    # The look at four trials is another than that at six, which is the next one here.
    assert merged(target, tmp_path / "b") == Merged(2, 4, 0, 1, 0, ())
    with Store(tmp_path / "b") as store:
        assert [look.number for _, look in store.looks("draws")] == [2, 1]
        assert len(store.failures("draws")) == 1


# ---------------------------------------------------------------- another outcome


def test_another_outcome_is_kept_beside_the_first(study: Draws, tmp_path: Path) -> None:
    run(study, tmp_path / "a")
    study.shift = 1e-6
    run(study, tmp_path / "b")
    target = tmp_path / "x.flipscope"
    packed(tmp_path / "b", target)
    before = report(tmp_path / "a")
    assert merged(target, tmp_path / "a").variants == 6
    assert merged(target, tmp_path / "a").variants == 0
    with Store(tmp_path / "a") as store:
        found = variants(store, "draws")
        assert len(found) == 6
        assert {each.column for each in found} == {"value"}
        assert found[0].difference == max(each.difference for each in found)
        assert float(found[0].theirs) - float(found[0].ours) == pytest.approx(1e-6, rel=1e-3)
        assert "cpu" in found[0].their_machine
        assert verify(store).damaged == []
        assert variants(store, "other") == []
    after = report(tmp_path / "a")
    assert after["pages"][0]["table"] == before["pages"][0]["table"]
    (note,) = after["pages"][0]["notes"]
    assert note.startswith("6 trials of 6 had a different outcome elsewhere, which is kept but not judged; the largest")
    # Variants travel too, and go with their trials.
    packed(tmp_path / "a", target)
    assert merged(target, tmp_path / "c").variants == 6
    with Store(tmp_path / "a") as store:
        store.forget_study("draws")
        assert store.prune().files == 6
        assert list(store.stored("variants")) == []


def test_arrays_of_variants_are_not_pruned(study: Draws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(study, tmp_path / "a")
    monkeypatch.setattr(Draws, "measure", lambda self, trial, progress: {"value": 0.5, "noise": np.ones(3)})
    run(study, tmp_path / "b")
    packed(tmp_path / "b", tmp_path / "x.flipscope")
    assert merged(tmp_path / "x.flipscope", tmp_path / "a").variants == 6
    with Store(tmp_path / "a") as store:
        assert store.prune(dry_run=True).files == store.prune().files == 0
        assert {(each.column, each.difference) for each in variants(store)} == {("flags", math.inf)}


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ({"a": 1}, {"a": 1}, ("", "", "", 0.0)),
        ({"a": math.nan}, {"a": math.nan}, ("", "", "", 0.0)),
        ({"a": 0.0}, {"a": 0}, ("", "", "", 0.0)),
        ({"a": 4.0}, {"a": 5.0}, ("a", "4", "5", 0.2)),
        ({"a": [1, 2], "b": np.array([1.0, 3.0])}, {"a": [1, 2], "b": np.array([1.0, 4.0])}, ("b", "3", "4", 0.25)),
        ({"a": 1.0}, {"a": math.inf}, ("a", "1", "inf", math.inf)),
        ({"a": "x"}, {"a": "y"}, ("a", "x", "y", math.inf)),
        ({"a": [1]}, {"a": [1, 2]}, ("a", "[1]", "[1, 2]", math.inf)),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 4}}, ("a", "2", "4", 0.5)),
        ({"a": 10**30}, {"a": 2 * 10**30}, ("a", "1e+30", "2e+30", 0.5)),
        ({}, {"a": None}, ("", "", "", 0.0)),
    ],
)
def test_the_size_of_a_difference(first: Any, second: Any, found: Any) -> None:
    assert largest_difference(first, second) == found


# ---------------------------------------------------------------- looks


def test_no_look_is_lost_and_none_is_counted_twice(study: Draws, tmp_path: Path) -> None:
    for folder, seeds in (("a", range(6)), ("b", range(10, 16))):  # somebody else's first look, at other seeds
        study.seeds = seeds
        run(study, tmp_path / folder)
        packed(tmp_path / folder, tmp_path / f"{folder}.flipscope")
    assert merged(tmp_path / "b.flipscope", tmp_path / "a").looks == 1
    with Store(tmp_path / "a") as store:
        looks = [look for _, look in store.looks("draws")]
        assert sorted((look.number, look.error) for look in looks) == [(1, ALPHA), (2, ALPHA)]
        assert len({look.made for look in looks}) == 2
    assert merged(tmp_path / "b.flipscope", tmp_path / "a").looks == 0
    assert merged(tmp_path / "a.flipscope", tmp_path / "a").looks == 0
    study.seeds = range(20, 26)
    run(study, tmp_path / "a")
    with Store(tmp_path / "a") as store:
        last = max((look for _, look in store.looks("draws")), key=lambda look: look.number)
        assert (last.number, last.error) == (3, error_of(3))


def test_exploratory_and_withdrawn_looks_keep_their_place(study: Draws, tmp_path: Path) -> None:
    run(study, tmp_path / "a")
    study.claims = Draws(limit=-3.0).claims  # type: ignore[misc]
    run(study, tmp_path / "a")  # exploratory
    study.revision, study.withdrawn, study.seeds = 2, {1: "rows were drawn twice"}, range(50, 56)  # type: ignore[misc]
    run(study, tmp_path / "b")
    packed(tmp_path / "b", tmp_path / "b.flipscope")
    assert merged(tmp_path / "b.flipscope", tmp_path / "a").looks == 1
    with Store(tmp_path / "a") as store:
        looks = [look for _, look in store.looks("draws")]
        assert [(look.number, look.revision, look.exploratory) for look in looks] == [
            (1, 1, False),
            (2, 1, True),
            (1, 2, False),  # the first that counts
        ]


# ---------------------------------------------------------------- older code


def test_results_of_older_code_are_shown_as_such_and_not_counted(
    study: Draws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "x.flipscope"
    run(study, tmp_path / "a")
    packed(tmp_path / "a", target)
    today = report_view(*packed_pages([target]))
    assert (today["pages"][0]["older"], sum(today["counts"].values())) == ("", 1)
    for module in ("lab.run.driver", "report.pages"):
        monkeypatch.setattr(f"flipscope.{module}.code_version", lambda study: "another")
    study.seeds = range(40, 50)  # another plan, too
    found = report_view(*packed_pages([target]))
    (page,) = found["pages"]
    assert page["older"].startswith("flipscope ")
    assert "revision 1 of the study, code " in page["older"]
    assert page["notes"][0].startswith("Measured by older code (flipscope ")
    assert "and judged by today's rules" in page["notes"][0]
    assert sum(found["counts"].values()) == 0
    assert found["apart"] == [
        "1 claim of studies that were measured by older code: marked below, and not counted here."
    ]
    assert page["claims"][0]["numbers"] == today["pages"][0]["claims"][0]["numbers"]
    assert page["table"] == today["pages"][0]["table"]

    def summarise(self: Draws, results: object) -> Rows:
        raise KeyError("what the code of then did not measure")

    monkeypatch.setattr(Draws, "summarise", summarise)
    (recorded,) = report_view(*packed_pages([target]))["pages"]
    assert "and as it was judged then" in recorded["notes"][0]
    assert recorded["claims"][0]["numbers"] == page["claims"][0]["numbers"]
    assert recorded["table"]["rows"] == []


def test_to_show_a_pack_is_no_look(study: Draws, tmp_path: Path) -> None:
    target = tmp_path / "x.flipscope"
    run(study, tmp_path / "a")
    packed(tmp_path / "a", target)
    study.claims = Draws(limit=-3.0).claims  # type: ignore[misc]
    (page,), missing = packed_pages([target])
    assert missing == []
    ((_, judgement),) = page.run.judgements
    assert judgement.seen is not None
    assert judgement.seen.standing == "exploratory"
    assert len(page.run.looks) == 1


# ---------------------------------------------------------------- damaged, hostile, too new


@pytest.fixture
def pack(study: Draws, tmp_path: Path) -> Path:
    study.seeds = range(2)
    run(study, tmp_path / "a")
    packed(tmp_path / "a", tmp_path / "x.flipscope")
    return tmp_path / "x.flipscope"


def test_every_damaged_byte_is_noticed(pack: Path) -> None:
    whole = pack.read_bytes()
    packs.read(pack)
    for place in [*range(0, 40), *range(40, len(whole), 37)]:
        pack.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        refused("is damaged|is not a pack|newer flipscope", packs.read, pack)
    for length in (0, 5, 30, 400, len(whole) // 2, len(whole) - 1):
        pack.write_bytes(whole[:length])
        refused("is not a pack|is damaged", packs.read, pack)
    pack.write_bytes(whole + b"x")
    refused("something follows its end", packs.read, pack)


def forged(path: Path, entries: Sequence[Any], **changes: Any) -> Path:
    """A pack with these lines and files, and a header that fits them but for the changes."""
    body = b"".join(entry if isinstance(entry, bytes) else json.dumps(entry).encode() + b"\n" for entry in entries)
    lines = [entry for entry in entries if isinstance(entry, list)]
    compressed = changes.pop("stream", None) or lzma.compress(body)
    header = {
        "version": "0.1.0",
        "studies": ["draws"],
        "rows": {table: sum(line[0] == table for line in lines) for table in packs.TABLES},
        "files": {kind: sum(line[0] == kind for line in lines) for kind in packs.FILES},
        "in_rows": sum(len(json.dumps(line)) + 1 for line in lines if line[0] in packs.TABLES),
        "size": len(body),
        "compressed": len(compressed),
        "sha256": hashlib.sha256(body).hexdigest(),
    } | changes
    first = b"flipscope pack 1\n" + json.dumps(header).encode() + b"\n"
    path.write_bytes(first + hashlib.sha256(first).hexdigest().encode() + b"\n" + compressed)
    return path


def row(table: str, *values: Any) -> list[Any]:
    return [table, *tables.sealed(table, values)]


MACHINE = row("machines", tables.document_id("{}"), "{}")
NOW = "2026-01-01T00:00:00+00:00"


def result(**changes: Any) -> list[Any]:
    fields = dict(zip(tables.COLUMNS["results"], ("k", "draws", "c", "{}", 1.0, NOW, 1, "{}", None, 0, MACHINE[1])))  # noqa: B905
    return row("results", *(fields | changes).values())


def test_a_forged_pack_that_fits_is_read(tmp_path: Path) -> None:
    assert len(packs.read(forged(tmp_path / "x", [MACHINE, result()])).rows["results"]) == 1


JUDGEMENT = {"verdict": "reproduced", "quantity": "q", "measured": 1, "low": 0, "high": 2}
JUDGEMENT |= {"limit": "", "note": "", "remedy": "", "parts": []}
PLAN = row("plans", tables.document_id("[]"), "[]")


def look(judgement: Any = None, error: float = 0.05) -> list[Any]:
    told = json.dumps(JUDGEMENT if judgement is None else judgement)
    return row("looks", "l", "draws", "smoke", "mean", 1, 0, error, PLAN[1], "d", 1, "c", told, NOW)


def model(name: str, content: bytes = b"w") -> list[Any]:
    return [["models", name, len(content), hashlib.sha256(content).hexdigest()], content]


@pytest.mark.parametrize(
    "entries",
    [
        [MACHINE, result(arrays="../../x", outcome='{"a":{"!array":["int8",[1]]}}')],
        [MACHINE, result(arrays="0" * 64, outcome='{"a":{"!array":["int8",[1]]}}')],  # arrays that are missing
        [MACHINE, result(arrays="0" * 64)],
        [MACHINE, result(study="../../x")],
        [MACHINE, result(finished="yesterday")],
        [MACHINE, result(seconds=-1.0)],
        [MACHINE, result(seconds="1")],
        [MACHINE, result(attempts=1 << 70)],
        [MACHINE, result(outcome="[]")],
        [MACHINE, result(outcome='{"a":{"!secret":1}}')],
        [MACHINE, result(outcome="[" * 100_000 + "]" * 100_000)],
        [MACHINE, result(trial="{")],
        [MACHINE, result(key="\ud800")],
        [MACHINE, result(), result()],
        [result()],  # its machine is missing
        [row("machines", "0" * 64, "{}")],
        [row("machines", tables.document_id("[]"), "[]")],
        [[*MACHINE[:-1], "0" * 32]],
        [[*MACHINE, 1]],
        [["failures", "k"]],
        [{"a": 1}],
        [b"[]\n"],
        [look()],  # its plan is missing
        [PLAN, look(error=2.0)],
        [PLAN, look({**JUDGEMENT, "verdict": "true"})],
        [PLAN, look({**JUDGEMENT, "measured": "1"})],
        [PLAN, look({"verdict": "reproduced"})],
        [row("runs", 0, "draws", "smoke", "c", "running", 1, 1, 0, NOW, NOW, 0, "", "", "", "[]", "[]")],
        [row("runs", 0, "draws", "smoke", "c", "done", 1, 1, 0, NOW, NOW, 0, "", "", "", "[]", '[{"verdict":1}]')],
        model("../x.safetensors"),
        model("a" * 32 + ".pickle"),
        [*model("a" * 32 + ".safetensors"), *model("a" * 32 + ".safetensors")],
        [*model("a" * 32 + ".safetensors"), MACHINE],  # a row after a file
        [["models", "a" * 32 + ".safetensors", -1, ""]],
        [["models", "a" * 32 + ".safetensors", 1 << 40, ""]],
        [["arrays", "0" * 64, 0, hashlib.sha256(b"").hexdigest()]],
    ],
)
def test_rows_that_no_store_wrote_are_refused(entries: Any, tmp_path: Path) -> None:
    refused("is damaged", packs.read, forged(tmp_path / "x", entries))


def test_nan_is_no_number_of_a_row(tmp_path: Path) -> None:
    line = json.dumps(result(seconds=math.nan)).encode() + b"\n"
    refused("NaN is no number", packs.read, forged(tmp_path / "x", [line], in_rows=len(line)))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"size": 1 << 50}, "bytes, more than the"),
        ({"in_rows": 1 << 31, "size": 1 << 32}, "bytes of rows, more than the"),
        ({"rows": dict.fromkeys(packs.TABLES, 10**9)}, "rows, more than the"),
        ({"files": dict.fromkeys(packs.FILES, 10**9)}, "files, more than the"),
        ({"size": -1}, "makes no sense"),
        ({"rows": {}}, "makes no sense"),
        ({"files": {"arrays": 0, "models": "1"}}, "makes no sense"),
        ({"studies": 3}, "is damaged"),
        ({"more": 1}, "is damaged"),
        ({"compressed": 3}, "something follows its end"),
    ],
)
def test_a_hostile_header_is_refused_before_anything_is_decompressed(
    changes: dict[str, Any], match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = forged(tmp_path / "x", [MACHINE, result()], **changes)
    monkeypatch.setattr(lzma, "LZMADecompressor", None)
    refused(match, packs.read, path)


def test_a_bomb_stops_where_its_header_ends(tmp_path: Path) -> None:
    bomb = lzma.compress(bytes(1 << 26))
    refused("holds more than its header says", packs.read, forged(tmp_path / "x", [MACHINE], stream=bomb))
    greedy = lzma.compress(b"x", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28}])
    refused("is damaged", packs.read, forged(tmp_path / "x", [MACHINE], stream=greedy))
    refused("is damaged", packs.read, forged(tmp_path / "x", [MACHINE], stream=b"no xz stream"))


def test_nothing_is_packed_that_could_not_be_read(
    study: Draws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(study, tmp_path / "a")
    for limit, match in (
        ("_LONGEST_LINE", "too long for a pack"),
        ("LONGEST_FILE", "too large for a pack"),
        ("MOST_BYTES", "more than the 10 of a pack: pack fewer studies at once"),
    ):
        with monkeypatch.context() as context:
            context.setattr(packs, limit, 10)
            refused(match, packed, tmp_path / "a", tmp_path / "x.flipscope")
    assert not (tmp_path / "x.flipscope").exists()
    (array, *_) = (tmp_path / "a" / "arrays").rglob("*.safetensors")
    array.write_bytes(b"damaged")
    refused("is damaged and cannot be packed", packed, tmp_path / "a", tmp_path / "x.flipscope")


def test_a_newer_pack_and_other_files_are_refused_in_a_sentence(pack: Path, tmp_path: Path) -> None:
    pack.write_bytes(pack.read_bytes().replace(b"flipscope pack 1", b"flipscope pack 2", 1))
    assert "update flipscope" in refused("newer flipscope", packs.read, pack)
    pack.write_bytes(bytes(100))
    refused("is not a pack of flipscope", packs.read, pack)
    refused("a folder", packs.read, tmp_path)
    refused("cannot be read", packs.read, tmp_path / "none")


def test_a_damaged_pack_changes_nothing(pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack.write_bytes(pack.read_bytes()[:-1])
    before = files(tmp_path / "a")
    assert main(["results", "unpack", str(pack), "--results", str(tmp_path / "a")]) == 2
    assert "is damaged (it is cut off) and nothing of it was used" in capsys.readouterr().err
    assert files(tmp_path / "a") == before
    assert main(["results", "unpack", str(pack), "--results", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()
    assert main(["report", "--from", str(pack), "-o", str(tmp_path / "r.html")]) == 2
    assert not (tmp_path / "r.html").exists()


def test_a_key_of_another_trial_merges_nothing(pack: Path, tmp_path: Path) -> None:
    found = packs.read(pack)
    key = found.rows["results"][0][0]
    forged(pack, [MACHINE, result(key="0"), result(key=key, trial='{"seed":7}', outcome='{"value":1}')])
    with Store(tmp_path / "a") as store:
        refused("as another one than the store", merge, store, packs.read(pack))
        assert store.done(["0"]) == set()


# ---------------------------------------------------------------- commands


def test_the_commands(study: Draws, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(study, tmp_path / "a")
    model = tmp_path / "a" / "models" / ("0" * 32 + ".safetensors")
    model.parent.mkdir()
    model.write_bytes(b"weights")
    (model.parent / (model.name + ".checkpoint")).write_bytes(b"of a training under way")
    target, folder = str(tmp_path / "x.flipscope"), str(tmp_path / "b")
    assert main(["results", "pack", "-o", target, "--results", str(tmp_path / "a")]) == 0
    assert "6 trials, 1 look (" in capsys.readouterr().err
    assert packs.read(Path(target)).header.files["models"] == 0
    assert main(["results", "pack", "--models", "-o", target, "--results", str(tmp_path / "a"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == {"arrays": 6, "models": 1}
    assert main(["results", "unpack", target, "--results", folder]) == 0
    assert capsys.readouterr().out == f"{target}: 6 new trials, 0 known, 1 new look, 1 new model.\n"
    kept = tmp_path / "b" / "models" / model.name
    assert kept.read_bytes() == b"weights"
    kept.write_bytes(b"other weights")
    assert main(["results", "unpack", target, "--results", folder, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["known"], told["models"], told["other_models"]) == (6, 0, [model.name])
    assert kept.read_bytes() == b"other weights"
    assert main(["results", "--variants", "--results", folder]) == 0
    assert "No stored trial has another outcome." in capsys.readouterr().out
    study.shift = 0.5
    run(study, tmp_path / "c")
    main(["results", "pack", "-o", target, "--results", str(tmp_path / "c")])
    capsys.readouterr()
    main(["results", "unpack", target, "--results", folder])
    assert "6 trials with a different outcome here" in capsys.readouterr().out
    assert main(["results", "--results", folder]) == 0
    assert "draws: 6 outcomes of another machine differ" in capsys.readouterr().out
    assert main(["results", "draws", "--variants", "--results", folder]) == 0
    assert "value" in capsys.readouterr().out
    assert main(["results", "--variants", "--results", folder, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pack", "other", "-o", "x.flipscope"], "there are no results of 'other'"),
        (["pack", "draws", "-o", "no/x.flipscope"], "the folder does not exist"),
        (["pack", "draws", "-o", "x.flipscope", "--scale", "huge"], "has no scale 'huge'"),
        (["unpack", "none.flipscope"], "cannot be read"),
    ],
)
def test_mistakes_end_in_a_sentence(
    arguments: list[str],
    said: str,
    study: Draws,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    study.seeds = range(2)
    run(study, tmp_path / "results")
    assert main(["results", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x.flipscope").exists()


def test_the_report_of_a_pack(study: Draws, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(study, tmp_path / "a")
    target, page = tmp_path / "x.flipscope", tmp_path / "r.html"
    packed(tmp_path / "a", target)
    assert main(["report", "--from", str(target), "-o", str(page), "--json"]) == 0
    (claim,) = json.loads(capsys.readouterr().out)["claims"]
    assert (claim["study"], claim["older"]) == ("draws", None)
    shown = page.read_text()
    assert main(["report", "--results", str(tmp_path / "a"), "-o", str(page)]) == 0
    assert page.read_text() == shown
