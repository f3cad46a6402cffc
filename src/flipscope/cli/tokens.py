"""flipscope tokens: how often disturbing one word, patch or embedding changes a model's answer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.cli.common import data_folder_option, plot_option, print_json, sampling
from flipscope.cli.model_options import decision_options
from flipscope.cli.opening import output_of
from flipscope.cli.other_models import is_other_model, other_model
from flipscope.cli.plots import check_plot, save_plot
from flipscope.cli.progress import progress
from flipscope.cli.token_inputs import from_folder, read_inputs

EXAMPLES = """
  flipscope tokens my_models:vit --images photos --size 224 --patch 16 --precision 0.02
  flipscope tokens bert-folder --texts reviews.txt --at bert.embeddings --variance 15 --plot words.svg
  flipscope tokens my_models:lstm --texts reviews.txt --tokenizer tokenizer.json --how replace --draws 3
  flipscope tokens gpt2-folder --texts prompts.txt --how replace --label-words any
  flipscope tokens model.onnx --inputs digits.npz --patch 2 --variance 1 --json
  flipscope tokens model.safetensors --inputs strings.npz --how flip
  flipscope tokens digits.safetensors --test-set --variance 1 --precision 0.02
"""

MODEL_HELP = (
    "a flipscope file, a Python object package.module:factory, an .onnx file, or a folder that transformers saved"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    data = parser.add_argument_group("inputs (one of --images, --texts, --inputs and --test-set)")
    data.add_argument("--images", metavar="DIR", help="a folder of images; needs --patch or --at")
    data.add_argument("--texts", metavar="FILE", help="texts, one a line, cut to the length that the tokenizer allows")
    data.add_argument(
        "--inputs", metavar="FILE", help="arrays (.npz): the input, or keywords by name; mask, feature_mask"
    )
    data.add_argument(
        "--tokenizer",
        metavar="T",
        help="a folder that transformers saved, a tokenizer.json, or a function package.module:name of a list of texts "
        "(default: the MODEL's folder)",
    )
    data.add_argument(
        "--test-set",
        action="store_true",
        help="the test inputs of the data set on which flipscope train has trained MODEL, from --data",
    )
    data_folder_option(data)
    data.add_argument("--count", type=int, metavar="N", help="the first N inputs only (default all)")
    data.add_argument("--size", type=int, metavar="P", help="resize images to P x P pixels")
    data.add_argument("--grey", action="store_true", help="one channel in place of red, green and blue")
    data.add_argument(
        "--mean",
        type=float,
        default=0.5,
        metavar="M",
        help="number subtracted from pixels, which are 0 to 1 (default 0.5)",
    )
    data.add_argument(
        "--std", type=float, default=0.5, metavar="S", help="number by which pixels are then divided (default 0.5)"
    )
    done = parser.add_argument_group("disturbance")
    done.add_argument(
        "--how", choices=("noise", "replace", "flip"), default="noise", help="what is done to a token (default noise)"
    )
    done.add_argument("--at", metavar="MODULE", help="disturb the output of this module, such as bert.embeddings")
    done.add_argument("--patch", type=int, metavar="P", help="a token is a patch of P x P pixels")
    done.add_argument("--variance", type=float, default=1.0, metavar="V", help="variance of the noise (default 1)")
    done.add_argument("--normalise", action="store_true", help="noise in units of each token's root mean square")
    done.add_argument("--vocabulary", type=int, metavar="N", help="replace by ids 0..N-1 (default: the model's own)")
    done.add_argument(
        "--label-words",
        metavar="W",
        help="for a causal language model: the answer is the next token (any), or one of these ids, such as 31,57",
    )
    amount = parser.add_argument_group("amount")
    amount.add_argument("--draws", type=int, default=1, metavar="K", help="draws for each token (default 1)")
    amount.add_argument("--tokens", type=int, metavar="K", help="number of random tokens of each input (default all)")
    amount.add_argument("--precision", type=float, metavar="P", help="measure until the sensitivity is known to +-P")
    amount.add_argument("--first-order", action="store_true", help="also estimate it from gradients")
    decision_options(parser)
    sampling(parser)
    plot_option(parser, "the sensitivity of each token")


def run(arguments: argparse.Namespace) -> int:
    """Measure the token sensitivity of a model."""
    check_plot(arguments.plot)
    model = _model(arguments)
    data = read_inputs(arguments, model).first(arguments.count)

    from flipscope.adapters.subject import Subject
    from flipscope.probes.tokens import token_sensitivity

    options: dict[str, Any] = {}
    if arguments.vocabulary is not None:
        options["vocabulary"] = arguments.vocabulary
    if arguments.label_words is not None:
        options["label_words"] = _label_words(arguments.label_words)
    with progress("tokens") as report:
        found = token_sensitivity(
            Subject(model, output=output_of(arguments.decision), device=arguments.device),
            data.inputs,
            at=arguments.at,
            how=arguments.how,
            variance=arguments.variance,
            normalise=arguments.normalise,
            draws=arguments.draws,
            tokens="all" if arguments.tokens is None else arguments.tokens,
            precision=arguments.precision,
            first_order=arguments.first_order,
            confidence=arguments.confidence,
            seed=arguments.seed,
            progress=report,
            **options,
            **data.options,
        )
    if arguments.plot is not None:
        save_plot(found.plot(), arguments.plot)
    if arguments.json:
        print_json(found.as_json() | {"names": list(data.names)})
        return 0
    from flipscope.report.terminal import show
    from flipscope.report.tokens import tokens_page

    show(tokens_page(found, arguments.model, data.names))
    return 0


def _model(arguments: argparse.Namespace) -> Any:
    """The model that is named; a folder is one of transformers, for texts or for images."""
    if Path(arguments.model).is_dir():
        kind = "SequenceClassification" if arguments.label_words is None else "CausalLM"
        return from_folder(
            arguments.model, f"AutoModelFor{kind if arguments.images is None else 'ImageClassification'}"
        )
    if is_other_model(arguments.model):
        return other_model(arguments.model)
    from flipscope.models.checkpoint import load
    from flipscope.models.header import read_header

    return load(read_header(arguments.model))


def _label_words(text: str) -> Any:
    if text == "any":
        return text
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise InputError(f"--label-words {text} must be token ids such as 31,57, or any") from None
