"""Packs: results as one file, merged into another store, and shown without one."""

from __future__ import annotations

import json
import lzma
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from lab.stores import files, flat, refused
from lab.stores import results as stored_results
from lab.training_studies import recipe

from flipscope import lab
from flipscope.basics.progress import Progress
from flipscope.cli import main
from flipscope.lab import registry
from flipscope.lab.context import kept_in
from flipscope.lab.findings import findings
from flipscope.lab.looks import ALPHA, error_of
from flipscope.lab.rows import Rows
from flipscope.lab.run.driver import run_study
from flipscope.lab.run.runner import InProcess
from flipscope.lab.store import database, outcomes, packs
from flipscope.lab.store.merging import Merged, largest_difference, merge, variants
from flipscope.lab.store.repair import verify
from flipscope.lab.store.store import Store
from flipscope.lab.study import Claim, Outcome, Scale, Study, Trial
from flipscope.lab.verdict import Judgement
from flipscope.report.pages import packed_pages, stored_pages
from flipscope.report.views import report_view


@dataclass(frozen=True)
class Draw(Trial):
    shift: ClassVar[float] = 0.0  # with which the tests change outcomes
    seed: int
    shape: tuple[int, ...] = (2, 3)

    def measure(self, progress: Progress) -> Outcome:
        value = float(np.random.default_rng(self.seed).normal(0.3)) + self.shift
        return {"value": value, "none": math.nan, "noise": np.arange(self.seed + 1.0), "flags": np.ones((2, 0), bool)}


def judge(limit: float) -> Callable[[Rows], Judgement]:
    return lambda table: lab.at_least(lab.student_mean(table.column("value")), limit, "mean value")


class Draws(Study):
    """A study whose plan and claim the tests exchange."""

    name = "draws"
    paper = "000"
    title = "A study for tests"
    scales = {"smoke": Scale(0.1, {}, "all of it"), "demo": Scale(0.2, {}, "one more")}
    claims: ClassVar[tuple[Claim, ...]] = ()

    def __init__(self, seeds: Sequence[int] = range(6), limit: float = 0.0) -> None:
        self.seeds = seeds
        self.claims = (Claim("mean", "Fig 1", "the mean is positive", "mean", judge(limit)),)  # type: ignore[misc]

    def trials(self, scale: str) -> Sequence[Draw]:
        return [Draw(seed) for seed in [*self.seeds, *([99] if scale == "demo" else [])]]


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Draws:
    """The study that is found by name."""
    made = Draws()
    monkeypatch.setattr(registry, "find", lambda name: made)
    return made


def run(study: Study, folder: Path, scale: str = "smoke") -> None:
    with Store(folder) as store:
        run_study(study, scale, store, InProcess(), command=f"flipscope run {study.name} --scale {scale}")


def packed(folder: Path, target: Path, **options: Any) -> packs.Counts:
    with Store(folder) as store:
        return packs.write(target, store, ["draws"], **options)


def merged(source: Path, folder: Path) -> Merged:
    with packs.read([source]) as (pack,), Store(folder) as store:
        return merge(store, pack)


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
    assert packed(first, target) == packs.Counts(("draws",), 7, 0, 3, 0)
    assert target.read_bytes().startswith(b"flipscope pack: draws; 7 trials, 3 looks; flipscope ")
    assert merged(target, again) == Merged(7, 0, 0, 3, 0, ())
    assert report(again) == report(first)
    with Store(again) as store:
        assert verify(store).damaged == []
        assert findings(study, "smoke", store).judgements[0][1].seen.text == "look 2, at 99.2 %"  # type: ignore[union-attr]
        np.testing.assert_array_equal(
            stored_results(store, study, study.trials("smoke"))[5].outcome["noise"], np.arange(6.0)
        )
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
    with packs.read([target]) as (found,), Store(found.path.parent) as store:
        machine = next(iter(store.records([flat(store)[0]["key"]])[0].values())).machine
        assert "host" not in machine
        assert "cpu" in machine
        assert machine["flipscope"]
        (state,) = store.rows("runs")
        assert (state["host"], state["pid"], state["born"]) == ("", 0, "")


def test_a_scale_alone(study: Draws, tmp_path: Path) -> None:
    run(study, tmp_path / "a")
    run(study, tmp_path / "a", "demo")
    target = str(tmp_path / "x.flipscope")
    options = ["--scale", "smoke", "-o", target, "--results", str(tmp_path / "a")]
    assert main(["results", "pack", "draws", *options]) == 0
    assert opened(Path(target)) == packs.Counts(("draws",), 6, 0, 1, 0)


def test_a_store_with_some_of_the_trials(study: Draws, tmp_path: Path) -> None:
    target = tmp_path / "x.flipscope"
    run(study, tmp_path / "a")
    packed(tmp_path / "a", target)
    study.seeds = range(4)
    run(study, tmp_path / "b")
    with Store(tmp_path / "b") as store:
        store.fail("f" * 64, "draws", {}, 1, "Traceback", 1.0)
    # The look at four trials is another than that at six, which is the next one here.
    assert merged(target, tmp_path / "b") == Merged(2, 4, 0, 1, 0, ())
    with Store(tmp_path / "b") as store:
        assert [look.number for _, look in store.looks("draws")] == [2, 1]
        assert len(store.failures("draws")) == 1


# ---------------------------------------------------------------- another outcome


def test_another_outcome_is_kept_beside_the_first(
    study: Draws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(study, tmp_path / "a")
    monkeypatch.setattr(Draw, "shift", 1e-6)
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
        assert list(store.rows("variants")) == []


def test_arrays_of_variants_stay(study: Draws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(study, tmp_path / "a")
    monkeypatch.setattr(Draw, "measure", lambda self, progress: {"value": 0.5, "noise": np.ones(3)})
    run(study, tmp_path / "b")
    packed(tmp_path / "b", tmp_path / "x.flipscope")
    assert merged(tmp_path / "x.flipscope", tmp_path / "a").variants == 6
    with Store(tmp_path / "a") as store:
        store.forget([])
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
    monkeypatch.setattr(Draws, "revision", 2)
    study.seeds = range(40, 50)  # another plan, too
    found = report_view(*packed_pages([target]))
    (page,) = found["pages"]
    assert page["older"].startswith("flipscope ")
    assert page["older"].endswith("revision 1 of the study")
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


def opened(path: Path) -> packs.Counts:
    with packs.read([path]) as (found,):
        return found.counts


def test_every_damaged_byte_is_noticed(pack: Path) -> None:
    whole = pack.read_bytes()
    title = whole.index(b"\n") + 1
    opened(pack)
    for place in [*range(0, 16), *range(title, title + 40), *range(title + 40, len(whole), 37)]:
        pack.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        refused("is damaged|is not a pack", opened, pack)
    for length in (0, 5, 30, 400, len(whole) // 2, len(whole) - 1):
        pack.write_bytes(whole[:length])
        refused("is not a pack|is damaged", opened, pack)
    pack.write_bytes(whole + b"x")
    refused("something follows its end", opened, pack)


NOW = "2024-01-01T00:00:00.000000+00:00"
JUDGEMENT = Judgement("reproduced", "q", 1.0, 0.5, 1.5).as_json()
MACHINE, TRIALS = b"{}", b'{"a": "b"}'
Statements = Sequence[tuple[str, dict[str, Any]] | str | bytes]


def forged(path: Path, parts: Statements, *, compress: Callable[[bytes], bytes] = lzma.compress) -> Path:
    """A pack with these rows, contents and statements, whose checksums fit."""
    source = path.with_name("forged.sqlite")
    source.unlink(missing_ok=True)
    with closing(database.make_empty(source)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for part in parts:
            if isinstance(part, str):
                connection.executescript(part)
            elif isinstance(part, bytes):
                database.insert_content(connection, part)
            else:
                database.insert_row(connection, *part)
    path.write_bytes(b"flipscope pack: forged\n" + compress(source.read_bytes()))
    return path


def result(table: str = "results", **changes: Any) -> tuple[str, dict[str, Any]]:
    row = {
        "key": "k",
        "study": "draws",
        "revision": 1,
        "source": "",
        "trial": "{}",
        "seconds": 1.0,
        "finished": NOW,
        "attempts": 1,
    }
    row |= {"outcome": '{"value":0.5}', "arrays": None, "machine": database.digest_of(MACHINE)}
    return table, row | changes


def look(judgement: Any = None, **changes: Any) -> tuple[str, dict[str, Any]]:
    row = {
        "key": "l",
        "study": "draws",
        "scale": "smoke",
        "claim": "mean",
        "number": 1,
        "exploratory": 0,
        "error": 0.05,
    }
    row |= {"trials": database.digest_of(TRIALS), "revision": 1, "declared": 1, "drawn": "{}", "limits": "[[0.5]]"}
    row |= {"limit_by": "", "made": NOW}
    row["judgement"] = json.dumps(JUDGEMENT if judgement is None else judgement)
    return "looks", row | changes


def state(**changes: Any) -> tuple[str, dict[str, Any]]:
    row = {
        "id": 0,
        "study": "draws",
        "scale": "smoke",
        "revision": 1,
        "state": "done",
        "total": 1,
        "done": 1,
        "failed": 0,
    }
    row |= {"started": NOW, "updated": NOW, "pid": 0, "born": "", "host": "", "command": "", "running": "[]"}
    return "runs", {**row, "verdicts": "[]"} | changes


def model(name: str, content: bytes = b"weights") -> list[Any]:
    return [content, ("models", {"name": name, "content": database.digest_of(content)})]


def test_a_forged_pack_that_fits_is_read(tmp_path: Path) -> None:
    found = opened(forged(tmp_path / "x", [MACHINE, TRIALS, result(), look(), state()]))
    assert found == packs.Counts(("draws",), 1, 0, 1, 0)


ARRAY = '{"a":{"!array":["int8",[1]]}}'
UNLOADABLE = b"no safetensors"


@pytest.mark.parametrize(
    "parts",
    [
        [MACHINE, result(arrays="../../x", outcome=ARRAY)],
        [MACHINE, result(arrays="0" * 64, outcome=ARRAY)],  # arrays that are missing
        [MACHINE, UNLOADABLE, result(arrays=database.digest_of(UNLOADABLE), outcome=ARRAY)],
        [MACHINE, result(outcome=ARRAY)],
        [
            MACHINE,
            outcomes.packed({"b": np.zeros(1)}),
            result(arrays=database.digest_of(outcomes.packed({"b": np.zeros(1)}))),
        ],
        [MACHINE, result(study="../../x")],
        [MACHINE, result(finished="yesterday")],
        [MACHINE, result(seconds=-1.0)],
        [MACHINE, result(seconds="one")],
        [MACHINE, result(attempts="1.5")],
        [MACHINE, result(outcome="[]")],
        [MACHINE, result(outcome='{"a":{"!secret":1}}')],
        [MACHINE, result(outcome="[" * 100_000 + "]" * 100_000)],
        [MACHINE, result(trial="{")],
        [MACHINE, result(key=b"\xff")],
        [MACHINE, result("variants", seconds=-1.0)],
        [result()],  # its machine is missing
        [b"[]", result(machine=database.digest_of(b"[]"))],
        [MACHINE, result(), "UPDATE results SET outcome = '{}'"],
        [MACHINE, result(), "UPDATE contents SET content = x'00'"],
        [("failures", {**result()[1], "traceback": "x"})],
        [look()],  # its trials are missing
        [b"[]", look(trials=database.digest_of(b"[]"))],
        [TRIALS, look(limits="[]")],
        [TRIALS, look(limits='[["x"]]')],
        [TRIALS, look(drawn="[]")],
        [TRIALS, look(error=2.0)],
        [TRIALS, look({**JUDGEMENT, "verdict": "true"})],
        [TRIALS, look({**JUDGEMENT, "measured": "1"})],
        [TRIALS, look({"verdict": "reproduced"})],
        [state(state="running")],
        [state(verdicts='[{"verdict":1}]')],
        [state(started="yesterday")],
        model("../x.safetensors"),
        model("a" * 32 + ".pickle"),
        model("a" * 32 + ".safetensors"),  # without a seal
        ["CREATE TABLE more (a)"],
        ["CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM results; END"],
        ["CREATE VIEW v AS SELECT * FROM results"],
        ["CREATE INDEX i ON results(study)"],
        ["DROP TABLE models"],
        ["PRAGMA user_version = 7"],
        ["PRAGMA application_id = 1"],
        ["PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, 'seconds >= 0', 'seconds >= 1')"],
    ],
    ids=str,
)
def test_what_no_store_wrote_is_refused(parts: Any, tmp_path: Path) -> None:
    refused("is damaged|flipscope", opened, forged(tmp_path / "x", parts))
    with Store(tmp_path / "b") as store:
        assert flat(store) == []


def test_a_pack_of_another_format_is_told_as_such(tmp_path: Path) -> None:
    newer = forged(tmp_path / "x", ["PRAGMA user_version = 7"])
    assert refused("of a newer flipscope", opened, newer).endswith("update flipscope")
    view = forged(tmp_path / "y", ["CREATE VIEW v AS SELECT 1"])
    said = refused("its tables are not those", opened, view)
    assert said.startswith(f"{view} is damaged (its tables")
    assert "--repair" not in said


def test_a_view_in_the_place_of_a_table_is_refused(tmp_path: Path) -> None:
    names = ", ".join(f"1 AS {name}" for name in (*database.columns("runs"), "checksum"))
    bomb = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {names} FROM n"
    refused("its tables", opened, forged(tmp_path / "x", [f"DROP TABLE runs; CREATE VIEW runs AS {bomb}"]))


def test_a_bomb_is_not_written_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    written: list[int] = []
    blocks = packs._blocks

    def counted(file: Any) -> Iterator[bytes]:
        for block in blocks(file):
            written.append(len(block))
            yield block

    monkeypatch.setattr(packs, "_blocks", counted)
    zeros = forged(tmp_path / "x", [], compress=lambda content: lzma.compress(bytes(1 << 26)))
    refused("no SQLite file in it", opened, zeros)
    longer = forged(tmp_path / "x", [], compress=lambda content: lzma.compress(content + bytes(1 << 26)))
    refused("holds more than its header says", opened, longer)

    def claiming(content: bytes) -> bytes:
        return lzma.compress(content[:28] + (1 << 31).to_bytes(4, "big") + content[32:])

    refused("more than the .* that it may have here", opened, forged(tmp_path / "x", [], compress=claiming))
    assert sum(written) < 3 * packs._BLOCK
    greedy = lzma.compress(b"x", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28}])
    refused("is damaged", opened, forged(tmp_path / "x", [], compress=lambda content: greedy))
    refused("is damaged", opened, forged(tmp_path / "x", [], compress=lambda content: b"no xz stream"))


def test_nothing_is_packed_that_could_not_be_read(
    study: Draws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(study, tmp_path / "a")
    with monkeypatch.context() as context:
        context.setattr(packs, "MOST_BYTES", 10)
        refused("too many for a pack: pack fewer studies", packed, tmp_path / "a", tmp_path / "x.flipscope")
    assert not (tmp_path / "x.flipscope").exists()
    with Store(tmp_path / "a") as store, store.writing() as connection:
        connection.execute("UPDATE contents SET content = x'00' WHERE digest IN (SELECT arrays FROM results)")
    refused("are damaged and cannot be packed", packed, tmp_path / "a", tmp_path / "x.flipscope")


def test_other_files_are_refused_in_a_sentence(pack: Path, tmp_path: Path) -> None:
    pack.write_bytes(bytes(100))
    refused("is not a pack of flipscope", opened, pack)
    refused("a folder", opened, tmp_path)
    refused("cannot be read", opened, tmp_path / "none")


def test_a_damaged_pack_changes_nothing(pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = tmp_path / "whole.flipscope"
    whole.write_bytes(pack.read_bytes())
    pack.write_bytes(pack.read_bytes()[:-1])
    before = files(tmp_path / "a")
    assert main(["results", "unpack", str(whole), str(pack), "--results", str(tmp_path / "a")]) == 2
    assert "is damaged (it is cut off) and nothing of it was used" in capsys.readouterr().err
    assert files(tmp_path / "a") == before
    assert main(["results", "unpack", str(pack), "--results", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()
    assert main(["report", "--from", str(pack), "-o", str(tmp_path / "r.html")]) == 2
    assert not (tmp_path / "r.html").exists()


def test_a_key_of_another_trial_merges_nothing(pack: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "a") as store:
        key = flat(store)[0]["key"]
        before = files(tmp_path / "a")
        forged(pack, [MACHINE, result(key="0"), result(key=key, trial='{"seed":7}', outcome='{"value":1}')])
        with packs.read([pack]) as (found,):
            refused("as another one than the store", merge, store, found)
    assert files(tmp_path / "a") == before


def test_a_pack_mends_what_is_damaged(pack: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "a") as store:
        records = store.records(row["key"] for row in flat(store))[0]
        first, second = sorted(records)
        with store.writing() as connection:
            connection.execute("UPDATE results SET outcome = '{}' WHERE key = ?", (first,))
            connection.execute(
                "UPDATE contents SET content = x'00' WHERE digest = (SELECT arrays FROM results WHERE key = ?)",
                (second,),
            )
        assert store.records(records)[0] == {}
        with packs.read([pack]) as (found,):
            assert merge(store, found).results == 2
        assert store.records(records)[0].keys() == records.keys()
        assert verify(store).damaged == []


# ---------------------------------------------------------------- commands


def test_the_commands(
    study: Draws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(study, tmp_path / "a")
    with kept_in(str(tmp_path / "a")):
        lab.trained(recipe())
    (model,) = (tmp_path / "a" / "models").iterdir()
    (model.parent / (model.name + ".checkpoint")).write_bytes(b"of a training under way")
    target, folder = str(tmp_path / "x.flipscope"), str(tmp_path / "b")
    assert main(["results", "pack", "-o", target, "--results", str(tmp_path / "a")]) == 0
    assert "6 trials, 1 look (" in capsys.readouterr().err
    assert opened(Path(target)).models == 0
    assert main(["results", "pack", "--models", "-o", target, "--results", str(tmp_path / "a"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == 1
    assert main(["results", "unpack", target, "--results", folder]) == 0
    assert capsys.readouterr().out == f"{target}: 6 new trials, 0 known, 1 new look, 1 new model.\n"
    kept = tmp_path / "b" / "models" / model.name
    assert kept.read_bytes() == model.read_bytes()
    kept.write_bytes(b"other weights")
    assert main(["results", "unpack", target, "--results", folder, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["known"], told["models"], told["other_models"]) == (6, 0, [model.name])
    assert kept.read_bytes() == b"other weights"
    assert main(["results", "--variants", "--results", folder]) == 0
    assert "No stored trial has another outcome." in capsys.readouterr().out
    monkeypatch.setattr(Draw, "shift", 0.5)
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
