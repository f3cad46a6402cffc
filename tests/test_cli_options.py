"""Options of all commands: one meaning each, examples that parse, old spellings refused with the new one."""

from __future__ import annotations

import argparse
import re
import shlex
from collections import defaultdict
from pathlib import Path

import pytest

from flipscope.cli import COMMANDS, EXAMPLES, build_parser
from flipscope.cli.hours import check_hours


def _parser(command: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    (choices,) = (each for each in build_parser(command)._actions if isinstance(each, argparse._SubParsersAction))
    found: argparse.ArgumentParser = choices.choices[command]
    return found


# Of each option that several commands share: its spellings, and the kind of value that it takes.
SHARED = {
    "length": (["-n", "--length"], int),
    "strings": (["--strings"], int),
    "train_strings": (["--train-strings"], int),
    "seed": (["--seed"], int),
    "confidence": (["--confidence"], float),
    "delta": (["--delta"], float),
    "output": (["-o", "--output"], None),
    "plot": (["--plot"], None),
    "json": (["--json"], None),
    "function": (["--function"], None),
    "results": (["--results"], None),
    "data": (["--data"], None),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_shared_options_are_spelled_alike(command: str) -> None:
    for action in _parser(command)._actions:
        if action.dest in SHARED and action.option_strings:
            assert (action.option_strings, action.type) == SHARED[action.dest], (command, action.dest)


def test_an_option_is_a_flag_everywhere_or_nowhere() -> None:
    takes = defaultdict(set)
    for command in COMMANDS:
        for action in _parser(command)._actions:
            for option in action.option_strings:
                takes[option].add(action.nargs == 0)
    assert [option for option, kinds in takes.items() if len(kinds) > 1] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_of_the_help_parse(command: str) -> None:
    parser = _parser(command)
    assert parser.epilog is not None
    text = parser.epilog.replace("\\\n", " ")
    lines = [line.split("  #")[0] for line in text.splitlines() if line.startswith(f"  flipscope {command} ")]
    assert lines or f"flipscope {command}" in text
    for line in lines:
        words = shlex.split(line)[len(command.split()) + 1 :]
        parser.parse_args(words)  # which exits where it does not parse


def test_examples_of_the_first_page_name_commands() -> None:
    lines = [line.split() for line in EXAMPLES.splitlines() if line.startswith("  flipscope ")]
    assert len(lines) > 10
    assert {words[1] for words in lines} <= {command.split()[0] for command in COMMANDS}


def test_long_work_is_announced(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = argparse.Namespace(anyway=False)
    check_hours(arguments, 59.0, "a little", ("--strings",))
    assert capsys.readouterr().err == ""
    for seconds, said in ((100.0, "2 minutes"), (840.0, "14 minutes"), (7200.0, "2 hours"), (80_000.0, "22 hours")):
        check_hours(arguments, seconds, "much", ("--strings",))
        assert capsys.readouterr().err == f"flipscope: much will take about {said} on this machine.\n"


def test_the_table_of_options_is_true() -> None:
    page = (Path(__file__).parents[1] / "docs" / "command-line.md").read_text().split("## One meaning per option")[1]
    listed = re.findall(r"`(--?[a-z-]+)", "\n".join(line for line in page.splitlines() if line.startswith("| `")))
    known = {option for name in COMMANDS for action in _parser(name)._actions for option in action.option_strings}
    assert len(listed) > 15
    assert set(listed) <= known
