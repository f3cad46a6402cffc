"""The command line. Nothing heavy is imported here: ``flipscope --help`` must feel instant."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

from flipscope import __version__
from flipscope.errors import InputError, printable
from flipscope.lab.streams import forgiving

DESCRIPTION = "See what it takes to flip a model's mind: sensitivity of Boolean functions and of transformers."
LONGEST = 1000  # characters of a sentence: a name may have ten thousand
EXAMPLES = """examples:
  flipscope function "maj(x1..x5) ^ x6"           profile, spectrum, influences
  flipscope function "majority(101)" --json       exact integers as JSON
  flipscope function "random(100)" --samples 5000 estimates with intervals
  flipscope compare "majority(9)" "maj(x1..x7)"   two functions side by side
  flipscope zoo                                   the named functions
  flipscope verdict "parity(100)" --width 64 --layers 2
  flipscope random-model --init gaussian --count 20 draw transformers and measure their sensitivity
  flipscope train "majority(40)" -o m.safetensors train a transformer; the same command goes on with it
  flipscope sensitivity MODEL.safetensors         the sensitivity spectrum of a saved transformer
  flipscope studies                               the experiments of the papers
  flipscope run random-init                       run one: figures, verdicts, resumable
  flipscope report -o report.html                 everything that was measured on one page
"""


class _Parser(argparse.ArgumentParser):
    """Errors in one sentence, exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message.rstrip('.')}; try {self.prog} --help.\n")


def _common(parser: argparse.ArgumentParser, function: str, module: str = "cube") -> None:
    parser.set_defaults(module=module, function=function)
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def _sampling(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of whatever is random (default 0)")
    parser.add_argument(
        "--confidence", type=float, default=0.95, metavar="C", help="of every interval or test (default 0.95)"
    )


def _testing(parser: argparse.ArgumentParser, epsilon: float, noticed: str) -> None:
    parser.add_argument("--epsilon", type=float, default=epsilon, metavar="E", help=f"{noticed} (default {epsilon:g})")
    parser.add_argument(
        "--max-queries",
        type=int,
        default=10_000_000,
        metavar="Q",
        help="most queries to ask (default 10,000,000)",
    )
    _sampling(parser)


def _portrait(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--exact", action="store_true", help="exact or nothing: never fall back to sampling")
    how.add_argument("--samples", type=int, metavar="M", help="estimate from M random strings and all their flips")
    _sampling(parser)
    parser.add_argument(
        "--rho", type=float, action="append", metavar="R", help="correlation for noise stability; repeatable"
    )
    parser.add_argument("--plot", metavar="FILE", help="draw the function to FILE (.svg, .pdf or .png)")


def _add(commands: argparse._SubParsersAction[_Parser], name: str, summary: str, examples: str) -> _Parser:
    return commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="examples:\n" + "".join(f"  {line.strip()}\n" for line in examples.strip().splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command."""
    parser = _Parser(
        prog="flipscope",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"flipscope {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_cube(commands)
    _add_models(commands)
    _add_training(commands)
    _add_lab(commands)
    _add_results(commands)
    return parser


def _add_cube(commands: argparse._SubParsersAction[_Parser]) -> None:
    size_help = "number of bits (default: as many as the expression uses)"
    function = _add(
        commands,
        "function",
        "describe a Boolean function: sensitivity, spectrum, influences",
        """flipscope function "maj(x1..x5) ^ (x6 & x7)"
        flipscope function "majority(21)" --json
        flipscope function "sparse_parity(3, n=40, seed=1)" --plot parity.svg
        flipscope function "random(100)" --samples 10000 --confidence 0.99""",
    )
    function.add_argument("expression", metavar="EXPR", help='such as "maj(x1..x5) ^ x6" or "majority(21)"')
    function.add_argument("-n", type=int, metavar="N", help=size_help)
    _portrait(function)
    _common(function, "run_function")

    compare = _add(
        commands,
        "compare",
        "describe two functions side by side, and on how many strings they differ",
        """flipscope compare "majority(9)" "maj(x1..x7)"
        flipscope compare "x1 -> x2" "~x1 | x2" """,
    )
    compare.add_argument("first", metavar="EXPR")
    compare.add_argument("second", metavar="EXPR")
    compare.add_argument("-n", type=int, metavar="N", help=size_help)
    _portrait(compare)
    _common(compare, "run_compare")

    zoo = _add(commands, "zoo", "list the named functions", "flipscope zoo\nflipscope zoo --json")
    _common(zoo, "run_zoo")

    degree = _add(
        commands,
        "test-degree",
        "test by queries alone whether a function has low Fourier degree",
        """flipscope test-degree "sparse_parity(3, n=100)"
        flipscope test-degree "sparse_parity(3, n=100)" --degree 2""",
    )
    degree.add_argument("expression", metavar="EXPR")
    degree.add_argument("-n", type=int, metavar="N", help=size_help)
    degree.add_argument("--degree", type=int, metavar="D", help="test this degree only (default: the first accepted)")
    _testing(degree, 0.1, "weight above the degree that must be noticed")
    _common(degree, "run_test_degree")

    sparsity = _add(
        commands,
        "test-sparsity",
        "test by queries alone whether a function has few Fourier coefficients",
        """flipscope test-sparsity "maj(x1..x5) ^ x6"
        flipscope test-sparsity "sparse_majority(5, n=20)" --free 16
        flipscope test-sparsity "sparse_majority(5, n=20)" --free 16 --sparsity 8""",
    )
    sparsity.add_argument("expression", metavar="EXPR")
    sparsity.add_argument("-n", type=int, metavar="N", help=size_help)
    sparsity.add_argument(
        "--sparsity", type=int, metavar="W", help="test this sparsity only (default: the first accepted)"
    )
    sparsity.add_argument(
        "--free", type=int, default=10, metavar="R", help="free bits of each random restriction (default 10)"
    )
    _testing(sparsity, 1e-3, "energy outside that must be noticed")
    _common(sparsity, "run_test_sparsity")

    verdict = _add(
        commands,
        "verdict",
        "what the theorems say of a function's family for transformers of a shape",
        """flipscope verdict "parity(100)" --width 64 --layers 2
        flipscope verdict "majority(101)" --width 64 --layers 2 --json""",
    )
    verdict.add_argument("expression", metavar="EXPR")
    verdict.add_argument("-n", type=int, metavar="N", help=size_help)
    verdict.add_argument("--width", type=int, required=True, metavar="D", help="width of the transformer")
    verdict.add_argument("--layers", type=int, required=True, metavar="L", help="number of layers")
    _common(verdict, "run_verdict")


def _engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--path", choices=("auto", "general", "fast"), default="auto", help="how to compute the flips (default auto)"
    )
    parser.add_argument("--float64", action="store_true", help="float64 throughout, not only near the threshold")
    skip = parser.add_mutually_exclusive_group()
    skip.add_argument(
        "--heuristic", action="store_true", help="skip flips that are unlikely to matter, and audit the skipping"
    )
    skip.add_argument(
        "--certified", action="store_true", help="skip flips that provably do not matter, while that is faster"
    )


def _model_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL.safetensors", help="written by flipscope.models.save")
    parser.add_argument("--length", type=int, metavar="N", help="of the strings (default: the model's longest, or 100)")


def _add_models(commands: argparse._SubParsersAction[_Parser]) -> None:
    sensitivity = _add(
        commands,
        "sensitivity",
        "measure the sensitivity spectrum of a saved transformer",
        """flipscope sensitivity model.safetensors --length 40 --strings 1000
        flipscope sensitivity model.safetensors --precision 0.1 --json
        flipscope sensitivity model.safetensors --length 16 --exhaustive""",
    )
    _model_file(sensitivity)
    how = sensitivity.add_mutually_exclusive_group()
    how.add_argument("--strings", type=int, metavar="M", help="random strings, each with all its flips (default 200)")
    how.add_argument(
        "--precision", type=float, metavar="P", help="as many as the average sensitivity needs to be known to +-P"
    )
    how.add_argument("--exhaustive", action="store_true", help="all strings, exactly (at most 20 bits)")
    sensitivity.add_argument(
        "--threshold", type=float, default=0.0, metavar="T", help="the answer is 1 where logit > T (default 0)"
    )
    _engine(sensitivity)
    _sampling(sensitivity)
    _common(sensitivity, "run_sensitivity", "models")

    random = _add(
        commands,
        "random-model",
        "draw transformers at random, measure the sensitivity of each, summarise",
        """flipscope random-model --init uniform --length 100 --count 20 --strings 50
        flipscope random-model --init xavier_normal --width 64 --layers 2 --heads 4 --json""",
    )
    random.add_argument(
        "--init",
        choices=("uniform", "gaussian", "xavier_uniform", "xavier_normal", "pytorch"),
        default="uniform",
        help="how the weights are drawn (default uniform)",
    )
    for name, default, what in (
        ("length", 100, "bits of each string"),
        ("count", 20, "models"),
        ("strings", 50, "random strings for each model, each with all its flips"),
    ):
        random.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{what} (default {default})")
    for name in ("width", "layers", "heads"):
        random.add_argument(f"--{name}", type=int, metavar="N", help="fix it (default: drawn for each model)")
    random.add_argument("--workers", type=int, metavar="W", help="processes (default: one a core)")
    _engine(random)
    _sampling(random)
    _common(random, "run_random_model", "models")

    blowup = _add(
        commands,
        "blowup",
        "measure how much the layer norms of a saved transformer amplify",
        """flipscope blowup model.safetensors --length 40
        flipscope blowup model.safetensors --strings 500 --json""",
    )
    _model_file(blowup)
    blowup.add_argument("--strings", type=int, default=100, metavar="M", help="random strings (default 100)")
    blowup.add_argument("--seed", type=int, default=0, metavar="S", help="of the strings (default 0)")
    _common(blowup, "run_blowup", "models")


def _add_training(commands: argparse._SubParsersAction[_Parser]) -> None:
    train = _add(
        commands,
        "train",
        "train a transformer on a function; after Ctrl-C or kill -9 the same command goes on",
        """flipscope train "majority(40)" -o model.safetensors
        flipscope train "parity(20)" --width 64 --layers 2 --steps 5000 -o parity.safetensors
        flipscope train "maj(x1..x5) ^ x6" -n 30 --preset hardness --train-strings 10000 -o hard.safetensors""",
    )
    train.add_argument("expression", metavar="EXPR", help='such as "majority(40)" or "maj(x1..x5) ^ x6"')
    train.add_argument("-n", type=int, metavar="N", help="number of bits (default: as many as the expression uses)")
    train.add_argument("-o", "--output", required=True, metavar="FILE", help="the model, such as model.safetensors")
    train.add_argument(
        "--preset", choices=("encoder", "recognizer", "hardness", "fourier", "mingpt"), default="encoder",
        help="the paper's model to train (default encoder, of width 32, 2 layers, 2 heads)",
    )  # fmt: skip
    for name, kind, what in (
        ("width", int, "of the model"),
        ("layers", int, "of the model"),
        ("heads", int, "in each layer"),
        ("ffn-width", int, "hidden units of each MLP"),
        ("dropout", float, "while it is trained"),
    ):
        train.add_argument(f"--{name}", type=kind, metavar="X", help=f"{what} (default: the preset's)")
    for name, kind, default, what in (
        ("steps", int, 1_000, "of the optimiser"),
        ("batch", int, 64, "strings per step"),
        ("learning-rate", float, 3e-3, "at the start; halved when the loss stays where it is"),
        ("weight-decay", float, 0.0, "of the optimiser"),
    ):
        train.add_argument(f"--{name}", type=kind, default=default, metavar="X", help=f"{what} (default {default:g})")
    for name, choices in (
        ("init", ("pytorch", "uniform", "gaussian", "xavier_uniform", "xavier_normal")),
        ("optimiser", ("adam", "adamw", "sgd")),
        ("loss", ("bce", "mse")),
    ):
        train.add_argument(f"--{name}", choices=choices, default=choices[0], help=f"(default {choices[0]})")
    train.add_argument(
        "--train-strings", type=int, metavar="M", help="a fixed set of so many (default: fresh ones for every step)"
    )
    train.add_argument("--goal", type=float, metavar="A", help="stop early at this accuracy on the validation set")
    train.add_argument("--restart", action="store_true", help="begin anew, whatever checkpoint there is")
    train.add_argument("--force", action="store_true", help="replace FILE if it exists")
    train.add_argument(
        "--checkpoint-seconds", type=float, default=5.0, metavar="S", help="between checkpoints (default 5)"
    )
    _sampling(train)
    _common(train, "run_train", "train")

    models = _add(
        commands,
        "models",
        "list the trained models of a results folder: function, shape, accuracy, steps, file",
        """flipscope models
        flipscope models --results ./results --json""",
    )
    _results(models)
    _common(models, "run_models", "stored_models")


def _results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results", default="results", metavar="DIR", help="where results are kept (default ./results)"
    )


def _add_lab(commands: argparse._SubParsersAction[_Parser]) -> None:
    run = _add(
        commands,
        "run",
        "run studies: measure what is not measured yet, judge every claim",
        """flipscope run random-init --scale smoke
        flipscope run random-init trained-profiles --workers 2
        flipscope run zero-strings --scale paper --slurm --jobs 20 --queue cpu
        flipscope run my_package.my_study:STUDY --json""",
    )
    run.add_argument(
        "study", nargs="+", metavar="STUDY", help="by name (see flipscope studies), or package.module:NAME"
    )
    run.add_argument("--scale", default="laptop", metavar="SCALE", help="smoke, laptop or paper (default laptop)")
    run.add_argument("--limit", type=int, metavar="K", help="measure at most K trials now; the next call goes on")
    run.add_argument("--verbose", action="store_true", help="show every number that a verdict rests on")
    where = run.add_mutually_exclusive_group()
    where.add_argument("--workers", type=int, metavar="W", help="processes (default: one a core; 0: in this process)")
    where.add_argument("--cluster", metavar="ADDRESS", help="of a Dask scheduler, such as tls://node1:8786")
    where.add_argument(
        "--slurm", action="store_true", help="start Dask workers as Slurm jobs (needs flipscope[cluster])"
    )
    for name, what in (
        ("ca", "certificate of the scheduler's authority"),
        ("cert", "our certificate"),
        ("key", "the key of our certificate"),
    ):
        run.add_argument(f"--tls-{name}", metavar="FILE", help=f"with --cluster tls://...: {what} (PEM)")
    for name, what in (
        ("jobs", "with --slurm: number of jobs (default 1)"),
        ("queue", "with --slurm: partition"),
        ("account", "with --slurm: account"),
        ("walltime", "with --slurm: of each job, such as 02:00:00"),
        ("memory", "with --slurm: of each job (default 4GiB)"),
        ("cores", "with --slurm: of each job, one worker each (default 1)"),
    ):
        run.add_argument(f"--{name}", metavar="X", type=int if name in ("jobs", "cores") else str, help=what)
    _results(run)
    _common(run, "run_run", "lab")

    studies = _add(
        commands,
        "studies",
        "list all studies: paper, figures, cost at each scale, state",
        """flipscope studies
        flipscope studies random-init
        flipscope studies --results ./results --json""",
    )
    studies.add_argument("study", nargs="?", metavar="STUDY", help="tell all of this one: claims, scales, deviations")
    _results(studies)
    _common(studies, "run_studies", "lab")

    status = _add(
        commands,
        "status",
        "say what is running, from any shell",
        """flipscope status
        watch flipscope status --results ./results""",
    )
    status.add_argument("study", nargs="?", metavar="STUDY", help="only this one")
    _results(status)
    _common(status, "run_status", "lab")

    report = _add(
        commands,
        "report",
        "write what was measured as one HTML file: claims, verdicts, figures, tables",
        """flipscope report -o report.html
        flipscope report random-init zero-strings --results ./results
        flipscope report random-init --scale laptop --figures figures --format pdf,svg""",
    )
    report.add_argument("study", nargs="*", metavar="STUDY", help="by name (default: all that have results)")
    report.add_argument("--scale", metavar="SCALE", help="smoke, laptop or paper (default: that of the latest run)")
    report.add_argument("-o", "--output", default="report.html", metavar="FILE", help="to write (default report.html)")
    report.add_argument("--figures", metavar="DIR", help="write the figures as files there too")
    report.add_argument("--format", metavar="LIST", help="with --figures: of svg, png, pdf (default all three)")
    _results(report)
    _common(report, "run_report", "report")


def _add_results(commands: argparse._SubParsersAction[_Parser]) -> None:
    results = _add(
        commands,
        "results",
        "list, filter, export, verify and prune what is stored",
        """flipscope results
        flipscope results random-init --where init=gaussian --where "length>=40"
        flipscope results random-init --export table.parquet
        flipscope results random-init --failed --forget
        flipscope results --prune --dry-run
        flipscope results --verify""",
    )
    results.add_argument(
        "study", nargs="?", metavar="STUDY", help="one row for each of its trials (default: all studies)"
    )
    results.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="only trials like this, also with !=, <, <=, >, >= (quote them); repeatable",
    )
    results.add_argument(
        "--failed", action="store_true", help="the trials that failed, with tracebacks, instead of those done"
    )
    results.add_argument(
        "--limit", type=int, metavar="K", help="only the first K rows (default: 100 on a page, all elsewhere)"
    )
    what = results.add_mutually_exclusive_group()
    what.add_argument("--export", metavar="FILE", help="write the rows to FILE (.csv or .parquet)")
    what.add_argument(
        "--prune", action="store_true", help="remove results of code that has changed, and files nobody uses"
    )
    what.add_argument(
        "--forget", action="store_true", help="remove the trials of STUDY (narrowed by --where, --failed) for good"
    )
    what.add_argument("--verify", action="store_true", help="read all rows and arrays, and say which are damaged")
    what.add_argument(
        "--repair", action="store_true", help="keep what is whole of a damaged database, and the old one beside it"
    )
    results.add_argument("--dry-run", action="store_true", help="with --prune or --forget: only say what would go")
    _results(results)
    _common(results, "run_results", "results")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 1 when a claim is contradicted or a run failed, 2 on bad input.

    Trouble with the output never stops a command. At the end it is told, with 1; a reader that went away, such as
    head, has had what it wanted.
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
    """The exit code of one command, after a sentence where it is not the command's own."""
    try:
        # With arguments it is called by a program, whose own end is not for us to prevent.
        with _terminable() if arguments is None else contextlib.nullcontext():
            parsed = _parsed(arguments)
            if isinstance(parsed, int):
                return parsed
            _check_working_folder()
            module = importlib.import_module(f"flipscope.commands.{parsed.module}")
            code: int = getattr(module, parsed.function)(parsed)
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
    except OSError as error:
        if error.filename is None:
            raise
        _say(f"{error.filename} cannot be used: {error.strerror}")
        return 2
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "DefaultCPUAllocator" not in str(error):  # which is torch's
            raise
        _say("there is not enough memory for this: ask for less")
        return 1


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace | int:
    """What was asked for, or the exit code where that was help or a mistake."""
    try:
        return build_parser().parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)


def _check_working_folder() -> None:
    """Raise InputError if the current folder was removed: relative paths lead nowhere, and MKL ends the process."""
    try:
        os.getcwd()
    except OSError:
        raise InputError("the folder this was started in does not exist any more: change into one that does") from None


def _say(text: str) -> None:
    """One sentence on standard error; further lines, such as those that point into an expression, follow it."""
    sentence, line, rest = text.partition("\n")
    plain = printable(sentence)
    if len(plain) > LONGEST:
        plain = f"{plain[: LONGEST // 2]} … {plain[-LONGEST // 2 :]}"
    print(f"flipscope: {plain.rstrip('.')}.{line}{printable(rest)}", file=sys.stderr)


class Terminated(KeyboardInterrupt):
    """The system asked this process to end: it does as after Ctrl-C, with terminal and results in order."""


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let a signal to terminate unwind what is going on; who sends it twice does not want to wait for that."""

    def unwind(number: int, frame: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
