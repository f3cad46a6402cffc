"""The command line. Nothing heavy is imported here: ``flipscope --help`` must feel instant."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

from flipscope import __version__
from flipscope.basics.errors import InputError, printable
from flipscope.basics.streams import forgiving

DESCRIPTION = "See what it takes to flip a model's mind: sensitivity of Boolean functions and of transformers."
LONGEST = 1000  # characters of an error message: a name in it may have ten thousand
EXAMPLES = """examples:
  flipscope function "maj(x1..x5) ^ x6"           profile, spectrum, influences
  flipscope function "majority(101)" --json       exact integers as JSON
  flipscope function "random(100)" --strings 5000 estimates with intervals
  flipscope compare "majority(9)" "maj(x1..x7)"   two functions side by side
  flipscope zoo                                   the named functions
  flipscope verdict "parity(100)" --width 64 --layers 2
  flipscope random-model --width 32 --layers 2 --heads 2 draw transformers and measure their sensitivity
  flipscope train "majority(15)" -o m.safetensors train a transformer; the same command resumes it
  flipscope sensitivity m.safetensors             its sensitivity profile
  flipscope tokens bert --texts reviews.txt --at bert.embeddings which words a classifier depends on
  flipscope sharpness m.safetensors               its outputs and loss under noise on the weights
  flipscope bounds m.safetensors                  what the theorems say about it, and where they are vacuous
  flipscope bound covering m.safetensors          a bound on its loss on new strings
  flipscope bound pac-bayes --sparsity 10 --degree 2 --length 20 the same for a class of functions
  flipscope construct "x3 & x7 & x11" --length 64 a constructed network with proven error and norms
  flipscope data check ~/datasets                 which image and text sets are there
  flipscope studies                               the experiments of the papers
  flipscope run random-init                       run one: figures, verdicts, resumable
  flipscope report -o report.html                 all results on one page
"""


# Every command: the module with its arguments and implementation, and its line in the list of commands.
COMMANDS = {
    "function": ("function", "describe a Boolean function: sensitivity, spectrum, influences"),
    "compare": ("compare", "describe two functions side by side, and on how many strings they differ"),
    "zoo": ("zoo", "list the named functions"),
    "test-degree": ("degree", "test by queries alone whether a function or a model has low Fourier degree"),
    "test-sparsity": ("sparsity", "test by queries alone whether a function or a model has few Fourier coefficients"),
    "verdict": ("verdict", "what the theorems say about a family of functions for transformers of a shape"),
    "sensitivity": ("sensitivity", "measure the sensitivity profile of a model"),
    "tokens": ("tokens", "measure how often disturbing one word, patch or embedding changes a model's answer"),
    "random-model": ("random_model", "draw transformers at random, measure the sensitivity of each, summarise"),
    "blowup": ("blowup", "measure how much the layer norms of a model amplify a change"),
    "sharpness": ("sharpness", "measure how a model's outputs and loss change under random noise on its weights"),
    "curvature": ("curvature", "measure the second derivatives of a model's loss: trace, eigenvalues, density"),
    "landscape": ("landscape", "draw slices of the loss around a model"),
    "construct": (
        "construct",
        "construct a network for a function of few bits or a sum of parities, with its error and norms",
    ),
    "bounds": ("bounds", "evaluate every bound of the geometry and hardness papers for a transformer"),
    "bound": (
        "bound",
        "bound the loss on new strings, for a model or a class of functions, and say where it is vacuous",
    ),
    "train": ("train", "train a transformer on a function; after Ctrl-C or kill -9 the same command resumes"),
    "models": ("models", "list the trained models of a results folder: function, shape, accuracy, steps, file"),
    "data check": ("data_check", "say which data sets a folder has, and whether they are what they claim"),
    "run": ("run", "run studies: measure all trials that are not stored yet, judge every claim"),
    "studies": ("studies", "list all studies: paper, figures, cost at each scale, state"),
    "status": ("status", "show the progress of runs, from any shell"),
    "report": ("report", "write stored results as one HTML file: claims, verdicts, figures, tables"),
    "results": ("results", "list, filter, export, verify and prune stored results"),
    "results pack": ("results_pack", "write the stored results of studies as one file, for another machine or reader"),
    "results unpack": ("results_unpack", "merge packs of results into a results folder"),
}


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors in one sentence, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message.rstrip('.')}; try {self.prog} --help.\n")


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands; only the called command's module is loaded, so only its arguments are known."""
    parser = _Parser(
        prog="flipscope",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"flipscope {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for name, (file, summary) in COMMANDS.items():
        own = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == command:
            module = importlib.import_module(f"flipscope.cli.{file}")
            own.formatter_class, own.epilog = argparse.RawDescriptionHelpFormatter, f"examples:{module.EXAMPLES}"
            module.arguments(own)
            own.add_argument("--json", action="store_true", help="print one JSON document")
            own.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 1 when a run failed (with --strict also for a contradicted claim), 2 on bad input.

    Output errors never stop a command. They are reported at the end, with exit code 1, unless the reader of a pipe,
    such as head, has gone away.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without Unicode gets "?" instead of a traceback
        sys.stdout.reconfigure(errors="replace")
    with forgiving() as output:
        code = _called(arguments)
        output.flush()
        if output.trouble is None or isinstance(output.trouble, BrokenPipeError):
            return code
        reason = getattr(output.trouble, "strerror", None) or output.trouble
        _say(f"the output cannot be written: {reason}")
        return code or 1


def _called(arguments: Sequence[str] | None) -> int:
    """Run one command and return its exit code; exceptions become one sentence on standard error."""
    try:
        # With arguments it is called by a program, whose signal handling is left alone.
        with _terminable() if arguments is None else contextlib.nullcontext():
            parsed = _parsed(arguments)
            if isinstance(parsed, int):
                return parsed
            _check_working_folder()
            code: int = parsed.run(parsed)
            return code
    except InputError as error:
        _say(str(error))
        return error.exit_code
    except Terminated:
        _say("terminated")
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except (OSError, MemoryError, RuntimeError, ImportError) as error:
        said = _shortage(error)
        if said is not None:
            _say(said)
            return 1
        if not isinstance(error, OSError) or error.filename is None:
            raise
        _say(f"{error.filename} cannot be used: {error.strerror}")
        return 2


def _shortage(error: BaseException) -> str | None:
    """A sentence if an exception or its cause means that the machine or a limit lacks a resource, else None."""
    number, text = getattr(error, "errno", None), str(error)
    if number in (errno.EMFILE, errno.ENFILE):
        return "too many files are open: raise the limit (ulimit -n 1024), or use fewer --workers"
    if "can't start new thread" in text:
        return "no further thread can be started: raise the limits of processes and memory (ulimit -u, ulimit -v)"
    if isinstance(error, MemoryError) or number == errno.ENOMEM or any(sign in text for sign in _NO_MEMORY):
        return "there is not enough memory for this: use smaller sizes, or raise the limit (ulimit -v)"
    before = error.__cause__ or error.__context__
    return None if before is None else _shortage(before)


# Messages of torch, of the loader of shared libraries, and of the operating system.
_NO_MEMORY = ("DefaultCPUAllocator", "failed to map segment from shared object", "Cannot allocate memory")


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace | int:
    """The parsed arguments, or the exit code after help or a mistake."""
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        if " ".join(given[:2]) in COMMANDS:  # a command of two words
            given = [" ".join(given[:2]), *given[2:]]
        command = next((each for each in given if not each.startswith("-")), None)
        if command is not None and command not in COMMANDS:
            raise InputError(f"there is no command {command!r}; {_nearest_commands(command)}")
        parser = build_parser(command)
        return parser.parse_args(given)
    except SystemExit as stop:
        return int(stop.code or 0)


def _nearest_commands(word: str) -> str:
    """The commands that begin with this word, or are spelled nearly like it."""
    near = [name for name in COMMANDS if name.startswith(f"{word} ")] or difflib.get_close_matches(word, COMMANDS, 3)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(COMMANDS)}"


def _check_working_folder() -> None:
    """Raise InputError if the current folder was removed: relative paths lead nowhere, and MKL ends the process."""
    try:
        os.getcwd()
    except OSError:
        raise InputError("the folder this was started in does not exist any more: change into one that does") from None


def _say(text: str) -> None:
    """Print a sentence on standard error; further lines, such as a pointer into an expression, follow it."""
    sentence, line, rest = text.partition("\n")
    plain = printable(sentence)
    if len(plain) > LONGEST:
        plain = f"{plain[: LONGEST // 2]} … {plain[-LONGEST // 2 :]}"
    end = "" if plain.endswith("?") else "."
    print(f"flipscope: {plain.rstrip('.')}{end}{line}{printable(rest)}", file=sys.stderr)


class Terminated(KeyboardInterrupt):
    """A termination signal, handled like Ctrl-C so that terminal and results stay in order."""


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Turn a termination signal into an exception that unwinds the command; a second one ends it at once."""

    def unwind(number: int, frame: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
