"""flipscope train: a transformer for a function, or a model of images or texts, resumable from its own checkpoint."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import RenderableType
from rich.live import Live as RichLive
from rich.text import Text

from flipscope.basics.checks import check_confidence, check_count
from flipscope.basics.errors import InputError, RunError
from flipscope.basics.wording import time_text
from flipscope.cli.common import length_option, output_option, print_json, sampling
from flipscope.cli.hours import anyway, check_hours, training_seconds
from flipscope.cli.live import BAR, LINE_SECONDS, QUIET_SECONDS
from flipscope.cli.train_dataset import (
    check_options,
    dataset_options,
    dataset_recipe,
    epochs_table,
    next_command,
    tested_on_set,
    title_of,
)
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction
from flipscope.data.finding import data_in
from flipscope.data.real_functions import RealFunction, is_real
from flipscope.lab.context import CHECKPOINT, LOCK
from flipscope.lab.run.resources import one_thread
from flipscope.lab.store import locks
from flipscope.models.size import check_attention, check_model
from flipscope.report.terminal import SafeConsole, bar
from flipscope.training.presets import configured

if TYPE_CHECKING:
    from flipscope.training.checkpoints import Keeper
    from flipscope.training.fit import Accuracy, Epoch, Moment
    from flipscope.training.recipe import Recipe, Trained

EXAMPLES = """
  flipscope train "majority(40)" -o model.safetensors
  flipscope train "parity(20)" --width 64 --layers 2 --steps 5000 -o parity.safetensors
  flipscope train "maj(x1..x5) ^ x6" --length 30 --preset hardness --train-strings 10000 -o hard.safetensors
  flipscope train mean --length 20 --preset hardness --log norm --log blowup --log-every 50 -o mean.safetensors
  flipscope train "parity(10)" --preset hardness --optimiser adamw --learning-rate 3e-4 --weight-decay 0.1 \\
      --batch 1024 --steps 10000 --loss mse --labels bits --constant-rate --keep last -o paper.safetensors
  flipscope train --dataset digits --model cnn-small -o digits.safetensors
  flipscope train --dataset fashion-mnist --data ~/datasets --model vit-small --train-strings 10000 -o vit.safetensors
  flipscope train --dataset cifar-10 --model resnet-small --optimiser sgd --learning-rate 0.05 --momentum 0.9 \\
      --crop 4 --flip --decay-every 8 --epochs 30 -o resnet.safetensors
  flipscope train --dataset synthetic-paraphrases --model roberta-small --length 32 -o texts.safetensors
"""
SIZES = ("width", "layers", "heads", "ffn_width", "dropout")
PROTOCOL = (
    "steps", "batch", "learning_rate", "optimiser", "weight_decay", "loss", "goal", "labels", "clip", "decay_on",
    "constant_rate", "keep",
)  # fmt: skip
DEFAULTS = {
    "preset": "encoder", "steps": 1_000, "batch": 64, "learning_rate": 3e-3, "weight_decay": 0.0, "init": "pytorch",
    "optimiser": "adam", "labels": "signs", "decay_on": "all", "keep": "best",
}  # of a training on a function, whose options are None unless given  # fmt: skip
CHOICES = {
    "init": "initialisation of the weights",
    "optimiser": "optimiser",
    "labels": "labels with --loss mse: -1 and +1, or 0 and 1",
    "decay-on": "weights that decay: all, or all but biases, norms and embeddings",
    "keep": "keep the weights of the smallest validation loss, or the last",
}
TESTED = 10_000  # fresh strings for the final accuracy


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "expression", nargs="?", metavar="EXPR", help='such as "majority(40)" or "maj(x1..x5) ^ x6"; or "mean"'
    )
    length_option(parser, "bits of each string (default: as many as EXPR uses), or tokens of a text (default 64)")
    output_option(parser, "write the model here, such as model.safetensors", required=True)
    parser.add_argument(
        "--preset", choices=("encoder", "recognizer", "hardness", "fourier", "mingpt"),
        help="the paper's model to train (default encoder, of width 32, 2 layers, 2 heads)",
    )  # fmt: skip
    for name, kind, what in (
        ("width", int, "width of the model"),
        ("layers", int, "number of layers"),
        ("heads", int, "heads of each layer"),
        ("ffn-width", int, "hidden units of each MLP"),
        ("dropout", float, "dropout during training"),
    ):
        parser.add_argument(f"--{name}", type=kind, metavar="X", help=f"{what} (default: the preset's)")
    for name, kind, default, what in (
        ("steps", int, 1_000, "steps of the optimiser"),
        ("batch", int, 64, "strings per step"),
        ("learning-rate", float, 3e-3, "initial learning rate; halved when the loss stops falling"),
        ("weight-decay", float, 0.0, "weight decay of the optimiser"),
    ):
        other = {"batch": "; 100 images, 50 of MNIST, 32 texts", "learning-rate": "; 1e-3 for a data set"}
        said = f"{what} (default {default:g}{other.get(name, '')})"
        parser.add_argument(f"--{name}", type=kind, metavar="X", help=said)
    for name, choices in (
        ("init", ("pytorch", "uniform", "gaussian", "xavier_uniform", "xavier_normal")),
        ("optimiser", ("adam", "adamw", "sgd")),
        ("labels", ("signs", "bits")),
        ("decay-on", ("all", "matrices")),
        ("keep", ("best", "last")),
    ):
        parser.add_argument(f"--{name}", choices=choices, help=f"{CHOICES[name]} (default {choices[0]})")
    parser.add_argument("--loss", choices=("bce", "mse"), help="loss (default bce, and mse for a real-valued function)")
    parser.add_argument("--clip", type=float, metavar="X", help="largest norm of the gradient (default: no limit)")
    parser.add_argument("--constant-rate", action="store_true", help="never lower the learning rate")
    parser.add_argument(
        "--log", action="append", default=[], metavar="NAME",
        help="measure this during training: validation, norm, blowup, sensitivity, sharpness; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--log-every", type=int, default=100, metavar="K", help="steps between measurements (default 100)"
    )
    parser.add_argument(
        "--train-strings",
        type=int,
        metavar="M",
        help="train on a fixed set of M strings (default: fresh strings in every step), or on M inputs of a data set",
    )
    parser.add_argument("--goal", type=float, metavar="A", help="stop early at this accuracy on the validation set")
    parser.add_argument("--device", metavar="D", help="where to train: cpu, cuda, cuda:1, mps (default cpu)")
    parser.add_argument("--restart", action="store_true", help="start again, ignoring any checkpoint")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument(
        "--checkpoint-seconds", type=float, default=5.0, metavar="S", help="seconds between checkpoints (default 5)"
    )
    anyway(parser)
    sampling(parser)
    dataset_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train a model, or resume its training, and write it to its file."""
    check_options(arguments)
    function = None
    if arguments.dataset is None:
        arguments = _with_defaults(arguments)
        function = _checked(arguments)
    target = Path(arguments.output)
    if not target.parent.is_dir():
        raise InputError(f"{target} cannot be written: the folder {target.parent} does not exist")
    if target.is_dir():
        raise InputError(f"{target} is a folder: give -o the name of a file, such as model.safetensors")
    with locks.alone(target.with_name(f".{target.name}{LOCK}"), seconds=0) as mine, one_thread():
        if not mine:
            raise InputError(f"{target} is being trained by another process: wait for it, or give another -o")
        with data_in(arguments.data):
            return _train(arguments, function, target)


def _with_defaults(arguments: argparse.Namespace) -> argparse.Namespace:
    """The arguments of a training on a function, which has other defaults than one on a data set."""
    missing = {name: default for name, default in DEFAULTS.items() if getattr(arguments, name) is None}
    return argparse.Namespace(**vars(arguments) | missing)


def _checked(arguments: argparse.Namespace) -> BooleanFunction | RealFunction:
    """The function, after checking that memory and time suffice, before PyTorch is loaded."""
    check_confidence(arguments.confidence)
    function = _function(arguments.expression, arguments.length)
    check_count("log-every", arguments.log_every)
    steps, batch = check_count("steps", arguments.steps), check_count("batch", arguments.batch)
    config = configured(arguments.preset, function.n, _sizes(arguments))
    check_model(config, 16)  # weights, gradients and two moments
    check_attention(config, function.n, function.n)
    seconds = training_seconds(config, function.n, batch, steps)
    check_hours(arguments, seconds, f"{steps:,} steps of {batch:,} strings", ("--steps", "--batch"))
    return function


def _function(expression: str, n: int | None) -> BooleanFunction | RealFunction:
    if not is_real(expression):
        return parse(expression, n)
    if n is None:
        raise InputError(f"{expression!r} is a real-valued function: give its number of bits with --length")
    return RealFunction(expression, n)


def _sizes(arguments: argparse.Namespace) -> dict[str, int | float]:
    return {name: value for name in SIZES if (value := getattr(arguments, name)) is not None}


def _function_recipe(arguments: argparse.Namespace, function: BooleanFunction | RealFunction) -> Recipe:
    """The recipe of a training on a function."""
    from flipscope.training.named import measurement
    from flipscope.training.train import protocol_for, recipe_for

    return recipe_for(
        arguments.expression,
        arguments.preset,
        protocol_for(arguments.expression, **{name: getattr(arguments, name) for name in PROTOCOL}),
        length=function.n,
        train_strings=arguments.train_strings,
        seed=arguments.seed,
        init=arguments.init,
        log=[measurement(name, arguments.log_every) for name in arguments.log],
        sizes=_sizes(arguments),
    )


def _train(arguments: argparse.Namespace, function: BooleanFunction | RealFunction | None, target: Path) -> int:
    from flipscope.training.checkpoints import Keeper, sweep

    recipe = dataset_recipe(arguments) if function is None else _function_recipe(arguments, function)
    keeper = Keeper(
        target.with_name(target.name + CHECKPOINT),
        recipe.as_json(),
        seconds=arguments.checkpoint_seconds,
        advice="repeat that training's command to continue it, or start again with --restart",
    )
    trained = None if arguments.force else _finished(target, recipe)
    if trained is None:
        if arguments.restart:
            keeper.clear()
        with View(sys.stderr, arguments, recipe, keeper) as view:
            trained = recipe.train(device=arguments.device, keeper=keeper, step=view.step, epoch=view.epoch)
        _write(target, trained, keeper)
        keeper.clear()
    else:
        print(f"flipscope: {target} is trained already; --force trains it again.", file=sys.stderr)
        if _is_of(keeper.path, recipe):  # the training was killed before it could remove the checkpoint
            keeper.clear()
    sweep(target)
    return _tell(arguments, function, trained, keeper, target)


def _is_of(checkpoint: Path, recipe: Recipe) -> bool:
    """Whether there is a checkpoint of this very training; that of another one must not be removed."""
    from flipscope.models.seal import NotWhole
    from flipscope.training.checkpoints import about

    try:
        found, wanted = about(checkpoint)[0], recipe.as_json()
    except NotWhole:
        return False
    return {name: found.get(name) for name in wanted} == wanted


def _finished(target: Path, recipe: Recipe) -> Trained | None:
    """The model written by this very training; None if there is no file, InputError if it is another model."""
    from flipscope.models.seal import NotWhole
    from flipscope.training.artefact import read

    advice = "give another -o, or --force to replace it"
    try:
        found = read(target)
    except FileNotFoundError:
        return None
    except NotWhole as error:
        raise InputError(f"{error}: {advice}") from error
    if found.recipe != recipe:
        raise InputError(f"{target} exists, and is a model that was trained with other settings: {advice}")
    return found


def _write(target: Path, trained: Trained, keeper: Keeper) -> None:
    from flipscope.lab.machine import machine
    from flipscope.training.artefact import write

    if trained.fitted.stopped == "diverged" and trained.fitted.kept_epoch == 0:
        keeper.clear()
        raise RunError(f"{_diverged(trained)}; no epoch was completed, so nothing is written")
    try:
        write(target, trained, {"machine": machine()})
    except InputError as error:
        if keeper.kept_at == trained.fitted.steps:
            so = f"the finished training is saved in {keeper.path}: solve this, and the same command writes the model"
        else:
            so = f"solve this, and the same command continues after step {keeper.kept_at or 0:,}"
        raise RunError(f"{error}; {so}") from error


def _diverged(trained: Trained) -> str:
    assert trained.recipe is not None
    rate = trained.recipe.protocol.learning_rate
    step = trained.fitted.steps + 1
    return f"the training diverged at step {step:,} (its loss is not finite): lower --learning-rate, now {rate:g}"


def _tell(
    arguments: argparse.Namespace,
    function: BooleanFunction | RealFunction | None,
    trained: Trained,
    keeper: Keeper,
    target: Path,
) -> int:
    """Report the accuracy on inputs outside the training set, and suggest the next command."""
    if function is None:
        tested, following = tested_on_set(trained, arguments), next_command(arguments, target)
    else:
        tested = _tested(function, trained, arguments)
        probe = "blowup" if isinstance(function, RealFunction) else "sensitivity"
        following = shlex.join(["flipscope", probe, str(target)])
    if arguments.json:
        print_json(_document(arguments, trained, tested, keeper, target))
    else:
        from flipscope.report.terminal import show
        from flipscope.report.training import trained_page

        average = _average(function) if isinstance(function, BooleanFunction) else None
        show(trained_page(_title(arguments), trained, tested, keeper.resumed_at, average, str(target), following))
    if trained.fitted.stopped == "diverged":
        raise RunError(f"{_diverged(trained)}; {target} has the weights of epoch {trained.fitted.kept_epoch}")
    return 0


def _tested(function: BooleanFunction | RealFunction, trained: Trained, arguments: argparse.Namespace) -> Accuracy:
    """The accuracy on uniformly random strings, from a stream that the training has not seen."""
    import numpy as np

    from flipscope.basics.seeds import random_strings
    from flipscope.data.batches import Examples
    from flipscope.training.fit import evaluate

    bits = random_strings(np.random.default_rng([arguments.seed, TESTED]), TESTED, function.n)
    assert trained.recipe is not None
    aim = trained.recipe.protocol.aim
    data = Examples(bits, function(bits))
    return evaluate(
        trained.model,
        data,
        loss=aim.loss,
        labels=aim.labels,
        device=arguments.device,
        confidence=arguments.confidence,
    )


def _average(function: BooleanFunction) -> Fraction | None:
    """The average sensitivity of the function if it is quick to compute, else None."""
    from flipscope.cube.sensitivity import average_sensitivity

    try:
        return average_sensitivity(function)
    except InputError:
        return None


def _document(
    arguments: argparse.Namespace, trained: Trained, tested: Accuracy, keeper: Keeper, target: Path
) -> dict[str, Any]:
    import dataclasses

    from flipscope.models.checkpoint import model_tensors
    from flipscope.models.seal import seal

    assert trained.recipe is not None
    fitted = dataclasses.asdict(trained.fitted)
    return {
        **({"function": arguments.expression} if arguments.dataset is None else {"dataset": arguments.dataset}),
        "file": str(target),
        "recipe": trained.recipe.as_json(),
        "digest": trained.recipe.digest,
        "weights": seal(model_tensors(trained.model), {}),
        "accuracy": tested.accuracy.as_json(),
        "loss": tested.loss,
        "resumed_at": keeper.resumed_at,
        **{name: fitted[name] for name in ("steps", "strings", "seconds", "stopped", "kept_epoch", "history", "log")},
    }


def _title(arguments: argparse.Namespace) -> str:
    return str(arguments.expression) if arguments.dataset is None else title_of(arguments)


class View:
    """Shows loss and accuracy during training: live on a terminal, otherwise a line now and then.

    For a data set the live view is a table of the epochs, since there are few of them.
    """

    def __init__(self, stream: TextIO, arguments: argparse.Namespace, recipe: Recipe, keeper: Keeper) -> None:
        self._console = SafeConsole(file=stream, highlight=False)
        self._title, self._keeper = _title(arguments), keeper
        self._real = arguments.dataset is None and is_real(arguments.expression)
        self._history: list[Epoch] | None = None if arguments.dataset is None else []
        self._most = recipe.protocol.most_steps(recipe.data.train) or 1
        self._moment: Moment | None = None
        self._epoch: Epoch | None = None
        self._first = 0  # steps done before resuming
        self._start = self._last_line = time.monotonic()
        self._view: RichLive | None = None

    def __enter__(self) -> View:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._view = RichLive(
                get_renderable=self._page, console=self._console, refresh_per_second=4, transient=True
            )
            self._view.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._view is not None:
            self._view.stop()
        if isinstance(error, KeyboardInterrupt) and self._moment is not None:
            kept, step = self._keeper.kept_at, self._moment.step
            so = "no checkpoint was written yet" if kept is None else f"the same command continues after step {kept:,}"
            self._console.print(f"{self._title}: stopped at step {step:,}; {so}.", soft_wrap=True)

    def step(self, moment: Moment) -> None:
        """Update the view after a step."""
        if self._moment is None:
            self._first = moment.step - 1
            if self._first:
                self._console.print(f"{self._title}: resumed after step {self._first:,}.", soft_wrap=True)
        self._moment = moment
        now = time.monotonic()
        if self._view is None and now - self._start > QUIET_SECONDS and now - self._last_line > LINE_SECONDS:
            self._last_line = now
            self._console.print(self._line(), soft_wrap=True)

    def epoch(self, line: Epoch) -> None:
        """Update the view after a validation."""
        self._epoch = line
        if self._history is not None:
            self._history.append(line)

    def _line(self) -> str:
        if self._moment is None:
            return f"{self._title}: begins"
        done, here = self._moment.step, self._moment.step - self._first
        said = [f"{self._title}: step {done:,} of {self._most:,}", f"loss {self._moment.loss:.4f}"]
        if self._epoch is not None and not self._real:
            which = "validation" if self._history is None else "test"
            said.append(f"{which} accuracy {self._epoch.validation_accuracy:.3f}")
        left = (time.monotonic() - self._start) / here * (self._most - done)
        return ", ".join([*said, f"about {time_text(left)} left"])

    def _page(self) -> RenderableType:
        width = min(BAR, self._console.width - 1)  # one column for the space after the bar
        filled = bar(0.0 if self._moment is None else self._moment.step / self._most, width)
        page = Text(filled, style="cyan")
        page.append("░" * (width - len(filled)) + " ", style="dim")
        page.append(self._line())
        return page if self._history is None else epochs_table(self._history, page)
