"""run, studies and status as a user types them, and the view of a running study."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from lab import example_studies
from lab.example_studies import Deed, Deeds
from waiting import LIMIT, waited_for

from flipscope.basics.streams import Outlet
from flipscope.cli import live, main
from flipscope.cli.live import Live
from flipscope.lab import registry
from flipscope.lab.history import interim
from flipscope.lab.rows import Rows
from flipscope.lab.run.events import Advanced, Failed, Finished, Retried, Started
from flipscope.lab.store.store import Store
from flipscope.lab.study import Result
from flipscope.lab.verdict import Judgement


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _install(monkeypatch: pytest.MonkeyPatch, *studies: Any) -> None:
    known = {study.name: study for study in studies}
    monkeypatch.setattr(registry, "names", lambda: sorted(known))
    monkeypatch.setattr(registry, "find", lambda name: known[name])


def _json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_run_studies_and_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _install(monkeypatch, example_studies.Blinks())
    (row,) = _json(capsys, "studies")
    assert {"name", "paper", "figures", "scales", "state"} <= set(row)
    assert (row["state"], row["scales"]["smoke"]) == ("not run", {"note": "all of it", "minutes": 0.1})
    assert not Path("results").exists()  # looking leaves nothing behind

    found = _json(capsys, "run", "blinks", "--scale", "smoke", "--workers", "0", "--limit", "3")
    assert list(found)[:6] == ["study", "scale", "trials", "failed", "seconds", "claims"]
    assert list(found["claims"][0])[:6] == ["claim", "statement", "measured", "low", "high", "verdict"]
    assert (found["done"], found["trials"], found["complete"]) == (3, 200, False)
    assert _json(capsys, "studies")[0]["state"] == "partly done, smoke: 3 of 200"
    (state,) = _json(capsys, "status")
    assert (state["study"], state["done"], state["total"]) == ("blinks", 3, 200)
    assert state["state"] != "running"


def test_the_page_of_a_run_and_of_its_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, Deeds(Deed("nothing", 1), Deed("nothing", 2), Deed("fail")))
    assert main(["run", "deeds", "--scale", "smoke", "--workers", "0", "--results", "there"]) == 1
    page = capsys.readouterr().out
    assert "2 of 3 trials, 1 failed" in page
    assert "flipscope results deeds --failed --results there" in page
    assert re.search(r"… +mean +0\.5 \[\S+, \S+\] ≥ 0\.2", page)
    assert "interim; 2 of 3 trials" in page
    assert main(["status", "--results", "there"]) == 0
    assert "2 of 3 trials, 1 failed" in capsys.readouterr().out


def _delete(*_: Any) -> None:
    shutil.rmtree("results", ignore_errors=True)


def _rename(*_: Any) -> None:
    if Path("results").exists():
        Path("results").rename("elsewhere")


def _empty(*_: Any) -> None:
    os.truncate("results/flipscope.sqlite", 0)


def test_a_database_that_is_emptied_ends_the_run_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Deed, "report", _empty)
    _install(monkeypatch, Deeds(Deed("nothing", 1), Deed("report", 2), Deed("nothing", 3)))
    assert main(["run", "deeds", "--scale", "smoke", "--workers", "0"]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert "flipscope.sqlite was emptied while this process used it" in captured.err


@pytest.mark.parametrize("harm", [_delete, _rename])
def test_a_results_folder_that_goes_away_ends_the_run_with_exit_code_1(
    harm: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Deed, "report", harm)
    _install(monkeypatch, Deeds(Deed("nothing", 1), Deed("report", 2), Deed("nothing", 3)))
    assert main(["run", "deeds", "--scale", "smoke", "--workers", "0"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "was deleted or moved while this process used it" in captured.err
    if harm is _rename:
        assert _json(capsys, "results", "--results", "elsewhere")[0]["done"] == 1


def test_status_and_results_load_no_reader_of_data_and_no_torch(folder: Path) -> None:
    with Store(folder) as store:
        store.end_run(store.begin_run("deeds", "smoke", 1, 1, ""), "done", done=1, failed=0)
    code = f"""
import sys
from flipscope.cli import main
for command in ("status", "results"):
    assert main([command, "--results", {str(folder)!r}]) == 0
loaded = [name for name in sys.modules if name == "torch" or name.startswith("flipscope.data.")]
assert loaded == ["flipscope.data.finding"], loaded
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr


def test_several_studies_in_one_call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _install(monkeypatch, Deeds(Deed("nothing")), example_studies.Blinks())
    found = _json(capsys, "run", "deeds", "blinks", "--scale", "smoke", "--workers", "0", "--limit", "1")
    assert [run["study"] for run in found] == ["deeds", "blinks"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "deeds", "--scale", "huge"), "no scale 'huge'"),
        (("run", "deeds", "--workers", "-1"), "workers"),
        (("run", "deeds", "--limit", "0"), "limit"),
        (("run", "deeds", "--queue", "cpu"), "--queue is for jobs of a cluster: add --slurm"),
        (("run", "deeds", "--workers", "2", "--slurm"), "not allowed with"),
        (("status", "--results", "nowhere"), "nowhere"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _install(monkeypatch, Deeds(Deed("nothing")))
    try:
        code = main(arguments)
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    error = capsys.readouterr().err
    assert code == 2
    assert sentence in error
    assert error.count("\n") == 1


# ---------------------------------------------------------------- names and places that are no good


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[None]:
    """A user who may not look into the folders of the tests; root may look into any."""
    (tmp_path / "closed" / "results").mkdir(parents=True)
    (tmp_path / "closed").chmod(0)
    mine = os.geteuid()
    if mine == 0:
        tmp_path.chmod(0o755)
        os.seteuid(65534)
    yield
    os.seteuid(mine)
    (tmp_path / "closed").chmod(0o700)


def _told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence that a call ends in."""
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert len(said.err) < 1100
    return said.err


FOLDER_COMMANDS = [("status",), ("studies",), ("results",), ("report",), ("run", "deeds", "--scale", "smoke")]


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("command", FOLDER_COMMANDS)
def test_a_folder_that_may_not_be_read(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _install(monkeypatch, Deeds(Deed("nothing")))
    for place in ("closed/results", "closed"):
        assert "Permission denied" in _told(capsys, *command, "--results", str(tmp_path / place))


@pytest.mark.parametrize("command", FOLDER_COMMANDS)
def test_a_folder_with_a_name_that_is_too_long(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, Deeds(Deed("nothing")))
    assert "File name too long" in _told(capsys, *command, "--results", "r" * 10_000)


@pytest.mark.parametrize("command", FOLDER_COMMANDS[2:])
def test_a_folder_that_leads_to_itself(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, Deeds(Deed("nothing")))
    Path("loop").symlink_to("loop")
    for place in ("loop", "loop/results"):
        assert "loop" in _told(capsys, *command, "--results", place)


def test_a_database_that_leads_to_itself(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _install(monkeypatch, Deeds(Deed("nothing")))
    Path("results").mkdir()
    Path("results/flipscope.sqlite").symlink_to("flipscope.sqlite")
    assert "there are no results" in _told(capsys, "status")
    assert "flipscope.sqlite is not a file" in _told(capsys, "run", "deeds", "--scale", "smoke")


def test_a_folder_whose_name_is_not_unicode(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, Deeds(Deed("nothing")))
    folder = os.fsdecode(b"r\xff\xfe %41?#")
    assert _json(capsys, "run", "deeds", "--scale", "smoke", "--workers", "0", "--results", folder)["done"] == 1
    assert _json(capsys, "status", "--results", folder)[0]["done"] == 1
    assert [path.name for path in Path().iterdir()] == [folder]
    assert _json(capsys, "report", "--results", folder, "-o", folder + ".html")["studies"] == ["deeds"]
    assert "\\udcff" in _told(capsys, "status", "--results", os.fsdecode(b"none\xff"))


def test_a_pipe_is_no_database(capsys: pytest.CaptureFixture[str]) -> None:
    Path("results").mkdir()
    os.mkfifo("results/flipscope.sqlite")
    pipe = os.open("results/flipscope.sqlite", os.O_RDWR)
    os.write(pipe, bytes(100))  # lest a reader wait for ever
    assert "flipscope.sqlite is not a file" in _told(capsys, "status")
    os.close(pipe)


def test_a_report_replaces_files_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _install(monkeypatch, Deeds(Deed("nothing")))
    assert main(["run", "deeds", "--scale", "smoke", "--workers", "0"]) == 0
    os.mkfifo("page.html")
    capsys.readouterr()
    assert "page.html: it is not a file" in _told(capsys, "report", "-o", "page.html")
    assert Path("page.html").is_fifo()
    Path("loop").symlink_to("loop")
    for name, reason in (("o" * 10_000, "File name too long"), ("loop", "loop"), ("loop/page.html", "loop")):
        assert reason in _told(capsys, "report", "-o", name)
        assert reason in _told(capsys, "report", "-o", "fine.html", "--figures", name)


@pytest.mark.parametrize("name", ["a:b:c", ":", "a:", ":b", "a b:c", "a::b"])
def test_what_cannot_name_a_study(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{name!r} does not name a study" in _told(capsys, "run", name)


def test_a_module_that_ends_the_process_when_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("quits.py").write_text("import sys\nsys.exit(7)\n")
    assert "the study quits:STUDY cannot be loaded: SystemExit: 7" in _told(capsys, "run", "quits:STUDY")


def test_a_folder_to_work_in_that_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for command in (["run", "deeds"], ["studies"], ["function", "x1"]):
        assert "the folder this was started in does not exist any more" in _told(capsys, *command)


def test_words_for_a_terminal_are_short_and_plain(capsys: pytest.CaptureFixture[str]) -> None:
    said = _told(capsys, "run", "\x1b[2J" + "x" * 5000)
    assert "\x1b" not in said
    assert "\\x1b[2J" in said


# ---------------------------------------------------------------- output that goes nowhere

RUN = (sys.executable, "-m", "flipscope.cli", "run", "--scale", "smoke", "--workers", "1")


def test_a_reader_that_goes_away_does_not_stop_a_run() -> None:
    """As with `2>&1 | head -1`: the trials print, the first page is shown, and the second study is still to come."""
    studies = ("lab.example_studies:TALK", "lab.example_studies:BLINK")
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run([*RUN, *studies], stdout=writer, stderr=writer, env=example_studies.environment())
    os.close(writer)
    assert process.returncode == 0
    with Store("results", create=False) as store:
        assert [(run.study, run.state, run.done) for run in store.runs()] == [
            ("deeds", "done", 2),
            ("blink", "done", 1),
        ]


def test_words_of_trials_stay_out_of_the_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, Deeds(Deed("say")))
    assert _json(capsys, "run", "deeds", "--scale", "smoke", "--workers", "0")["done"] == 1


class _Leaky(Deeds):
    def summarise(self, results: Sequence[Result]) -> Rows:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_broken_pipe_of_a_study_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, Deeds(Deed("leak")))
    assert _json(capsys, "run", "deeds", "--scale", "smoke", "--workers", "0", code=1)["failed"] == 1
    _install(monkeypatch, _Leaky(Deed("nothing")))
    (error,) = _json(capsys, "run", "deeds", "--scale", "smoke", "--workers", "0", code=1)["errors"]
    assert error.startswith("the table cannot be made: BrokenPipeError")


class _Broken(io.StringIO):
    """The end of a pipe that nobody reads."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


class _Torn(_Broken):
    """A terminal that is gone."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [_Broken, _Torn])
def test_a_view_that_nobody_sees_does_no_harm(stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream())
    _install(monkeypatch, Deeds(Deed("nothing", 1), Deed("nothing", 2)))
    monkeypatch.setattr(live, "QUIET_SECONDS", -1.0)
    monkeypatch.setattr(live, "LINE_SECONDS", -1.0)
    assert main(["run", "deeds", "--scale", "smoke", "--workers", "0"]) == 0


def test_a_stream_in_trouble_is_silent_and_says_so_when_asked() -> None:
    outlet = Outlet(_Broken())
    assert outlet.write("words") == 5
    assert isinstance(outlet.trouble, BrokenPipeError)
    outlet.flush()
    outlet.writelines(["more ", "words"])
    fine = Outlet(io.StringIO())
    print("words", file=fine)
    assert (fine.trouble, fine.getvalue()) == (None, "words\n")
    fine.close()
    print("words", file=fine)
    assert isinstance(fine.trouble, ValueError)


def test_a_termination_leaves_the_terminal_as_it_was_and_says_what_is_kept(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    terminal, end = pty.openpty()
    environment = {**example_studies.environment(), "TERM": "xterm", example_studies.MARK: str(mark)}
    command = [*RUN[:-1], "0", "lab.example_studies:HANG"]
    process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=environment)
    os.close(end)
    waited_for(mark.exists)
    process.terminate()
    text = b""
    with contextlib.suppress(OSError):  # which is how the end of a terminal is told
        while part := os.read(terminal, 1 << 16):
            text += part
    os.close(terminal)
    assert process.wait() == 143
    assert text.rindex(b"\x1b[?25h") > text.rindex(b"\x1b[?25l")  # the cursor is shown again
    assert b"deeds: stopped; 0 of 1 trials are stored" in text
    with Store("results", create=False) as store:
        assert [run.state for run in store.runs()] == ["stopped"]


# ---------------------------------------------------------------- the view


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _follow(watch: Live) -> None:
    study = Deeds(*(Deed("nothing", number) for number in range(4)))
    watch.begin(study, "smoke", 4, 1, {"a": 1.0, "b": 2.0, "c": 1.0})
    watch.event(Started("a", "w1"))
    watch.event(Started("b", "w2"))
    watch.event(Advanced("b", 0.5))
    watch.event(Retried("a", "the worker died"))
    watch.event(Finished("b", {}, 1.0, 1))
    watch.judged([(study.claims[0], interim(Judgement("reproduced", "q", 0.9, 0.8, 1.0), 2, 4))])
    watch.event(Started("c", "w1"))
    watch.event(Failed("c", "Traceback\nValueError: no", 1.0, 1))


def test_a_plain_view_is_quiet_at_first_and_then_says_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    with Live(stream) as watch:
        _follow(watch)
        assert stream.getvalue() == ""
        now[0] = 30.0
        watch.event(Started("a", "w1"))
        watch.event(Advanced("a", 0.1))
        now[0] = 31.0
        watch.event(Advanced("a", 0.2))
    # 3.1 of the cost of 4 are done after 30 seconds; two trials ended in this run
    assert stream.getvalue() == "deeds smoke: 2 of 4 trials, 1 failed, 1 retried, 15 s each, about 10 s left\n"


def test_a_terminal_gets_a_live_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")  # a dumb one cannot go back to what it has written
    stream = _Terminal()
    with Live(stream) as watch:
        _follow(watch)
    text = stream.getvalue()
    assert "2 of 4 trials" in text
    assert "mean: 2 of 4 trials, reproduced so far" in text
    assert "ValueError: no" in text


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    now = [0.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    stream = _Terminal()
    with Live(stream) as watch:
        _follow(watch)
        now[0] = 30.0
        watch.event(Started("a", "w1"))
    assert stream.getvalue() == "deeds smoke: 2 of 4 trials, 1 failed, 1 retried, 15 s each, about 10 s left\n"


def test_a_narrow_terminal_gets_a_narrow_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    stream = _Terminal()
    with Live(stream) as watch:
        watch.begin(Deeds(), "smoke", 1, 0, {"a": 1.0})
    assert max(map(len, re.findall("░+", stream.getvalue()))) == 19
    assert "░\n░" not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", stream.getvalue())


class _Costs(dict[str, float]):
    """Costs that know how often all of them were looked at."""

    looks = 0

    def values(self) -> Any:
        self.looks += 1
        return super().values()

    def items(self) -> Any:
        self.looks += 1
        return super().items()


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_an_event_does_not_add_up_all_costs(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(live, "QUIET_SECONDS", -1.0)
    monkeypatch.setattr(live, "LINE_SECONDS", -1.0)
    costs = _Costs({str(number): 1.0 + number for number in range(100)})
    with Live(_Terminal()) as watch:
        watch.begin(Deeds(), "smoke", 100, 0, costs)
        for key in costs:
            watch.event(Started(key, "w1"))
            watch.event(Advanced(key, 0.5))
            watch.event(Finished(key, {}, 1.0, 1))
    assert costs.looks <= 1


def test_the_share_that_is_done_is_that_of_the_costs() -> None:
    watch = Live(io.StringIO())
    watch.begin(Deeds(), "smoke", 4, 1, {"a": 1.0, "b": 2.0, "c": 1.0})
    seen = []
    for event in (
        Started("a", "w"),
        Advanced("a", 0.5),
        Started("b", "w"),
        Advanced("b", 0.25),
        Retried("a", "died"),
        Advanced("a", 0.5),
        Finished("b", {}, 1.0, 1),
        Failed("a", "no", 1.0, 1),
        Finished("c", {}, 1.0, 1),
    ):
        watch.event(event)
        seen.append(watch.share)
    assert seen == [0, 0.125, 0.125, 0.25, 0.125, 0.25, 0.625, 0.75, 1]


def test_an_interrupt_says_what_is_kept() -> None:
    stream = io.StringIO()
    watch = Live(stream)
    _follow(watch)
    watch.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert "deeds: stopped; 2 of 4 trials are stored, and the same command continues from there." in stream.getvalue()
