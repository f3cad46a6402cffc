"""The inputs of `flipscope tokens`: a folder of images, a file of texts, or arrays."""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipscope.basics import npz
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError, blamed_on, reason
from flipscope.basics.importing import imported
from flipscope.basics.limits import check_memory
from flipscope.basics.opening import check_inside, content, text_lines
from flipscope.cli.other_models import is_other_model
from flipscope.data.finding import data_in
from flipscope.data.pictures import SUFFIXES, check_pixels, pillow, read_picture
from flipscope.models.baselines.presets import ImageShape

_LARGEST_ID = 2**63 - 1
_TAKEN = ("mask", "feature_mask")  # arrays of a file that are arguments of the measurement


@dataclass(frozen=True)
class TokenInputs:
    """What the model is called with, and what goes with it into the measurement."""

    inputs: NDArray[Any] | dict[str, NDArray[Any]]
    options: dict[str, Any] = field(default_factory=dict)
    names: Sequence[str] = ()  # of the inputs: files or texts

    def first(self, count: int | None) -> TokenInputs:
        """The first ``count`` inputs; None is all."""
        if count is None:
            return self
        inputs = (
            {name: each[:count] for name, each in self.inputs.items()}
            if isinstance(self.inputs, dict)
            else self.inputs[:count]
        )
        options = dict(self.options)
        for name in ("mask", "words"):
            if name in options:
                options[name] = options[name][:count]
        return TokenInputs(inputs, options, self.names[:count])


def read_inputs(arguments: argparse.Namespace, model: Any) -> TokenInputs:
    """The inputs that the options name."""
    given = [arguments.images, arguments.texts, arguments.inputs, arguments.test_set or None]
    if sum(each is not None for each in given) != 1:
        raise InputError("give the inputs by one of --images DIR, --texts FILE, --inputs FILE.npz and --test-set")
    if arguments.data is not None and not arguments.test_set:
        raise InputError("--data is the folder of the set of --test-set: leave it out")
    if arguments.count is not None:
        check_count("count", arguments.count)
    if arguments.texts is None and arguments.tokenizer is not None:
        raise InputError("--tokenizer is for --texts")
    if arguments.test_set:
        return _test_set(arguments, model)
    if arguments.images is not None:
        return _images(arguments)
    if arguments.patch is not None and arguments.texts is not None:
        raise InputError("--patch is for images: leave it out for texts")
    return _arrays(arguments) if arguments.texts is None else _texts(arguments, model)


# ---------------------------------------------------------------- arrays


def _arrays(arguments: argparse.Namespace) -> TokenInputs:
    """One array is the input, several are keywords; `mask` and `feature_mask` are those of the measurement."""
    path = Path(arguments.inputs)
    try:
        with npz.opened(path) as arrays:
            arrays.check(*arrays.names)
            found = {name: arrays[name] for name in arrays.names}
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except npz.DAMAGE as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read as a file of arrays (.npz): {reason(error)}") from error
    options: dict[str, Any] = {name: found.pop(name) for name in _TAKEN if name in found}
    if not found:
        raise InputError(f"{path} has no array for the model")
    options |= _patches(arguments)
    return TokenInputs(next(iter(found.values())) if len(found) == 1 else found, options)


def _patches(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.patch is None:
        return {}
    from flipscope.adapters.disturbing import patches

    return {"feature_mask": patches(arguments.patch)}


# ---------------------------------------------------------------- images


def _images(arguments: argparse.Namespace) -> TokenInputs:
    """The images of a folder [image, channel, row, column], pixels from 0 to 1 less --mean over --std."""
    folder = Path(arguments.images)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder of images")
    files = sorted(each for each in folder.iterdir() if each.suffix.lower() in SUFFIXES)[: arguments.count]
    if not files:
        raise InputError(f"{folder} has no images: files must end in {', '.join(SUFFIXES)}")
    if not arguments.std > 0:
        raise InputError(f"--std {arguments.std:g} must be greater than 0")
    size = None if arguments.size is None else check_count("size", arguments.size)
    if size is not None:
        check_pixels((size, size), "--size: a picture")
    found = []
    for file in files:
        picture = read_picture(check_inside(file, folder), grey=arguments.grey)
        width, height = picture.size if size is None else (size, size)
        need = len(files) * width * height * (1 if arguments.grey else 3) * 2 * 4  # the pixels and a copy, in float32
        what = f"{len(files):,} images of {width:,} x {height:,} pixels"
        check_memory(need, what, "give a smaller --size or --count")
        if size is not None:
            picture = picture.resize((size, size), pillow().Resampling.BILINEAR)
        pixels = np.asarray(picture, np.float32) / 255
        found.append(pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0))
    sizes = {each.shape for each in found}
    if len(sizes) > 1:
        raise InputError(f"the images of {folder} have {len(sizes)} different sizes: give --size for all")
    pixels = (np.stack(found) - np.float32(arguments.mean)) / np.float32(arguments.std)
    if arguments.patch is None and arguments.at is None:
        raise InputError("say how many pixels a side of a patch has: --patch 16")
    options = {} if arguments.at is not None and arguments.patch is None else _patches(arguments)
    return TokenInputs(pixels, options, [each.name for each in files])


# ---------------------------------------------------------------- the test set of the training


def _test_set(arguments: argparse.Namespace, model: Any) -> TokenInputs:
    """The inputs on which the model's file says that it was evaluated, as it reads them."""
    from flipscope.adapters.disturbing import patches
    from flipscope.data.image_data import ImageData
    from flipscope.data.text_data import TextData
    from flipscope.models.seal import NotWhole
    from flipscope.training.artefact import describe

    if is_other_model(arguments.model) or Path(arguments.model).is_dir():
        raise InputError("--test-set is for a file that flipscope train has written: give the inputs another way")
    try:
        data = describe(arguments.model).recipe.data
    except NotWhole as error:
        raise InputError(f"{error}: give the inputs another way") from error
    if not isinstance(data, ImageData | TextData):
        raise InputError(f"{arguments.model} was trained on a function and has no test set: give --inputs")
    with data_in(arguments.data):
        ids = np.asarray(data.test_set().bits)
        if isinstance(data, ImageData):
            if arguments.at is not None and arguments.patch is None:
                return TokenInputs(ids)
            own = getattr(model.config, "patch_size", None)
            size = arguments.patch or own or ImageShape(data.name, data.image_size, data.channels).patch_size
            return TokenInputs(ids, {"feature_mask": patches(size)})
        if arguments.patch is not None:
            raise InputError("--patch is for images: leave it out for texts")
        tokenizer = data.bpe().tokenizer
    words = [[tokenizer.id_to_token(each) or "" for each in row] for row in ids.tolist()]
    special = [number for number, added in tokenizer.get_added_tokens_decoder().items() if added.special]
    return TokenInputs(ids, {"mask": ids != data.padding, "words": words, "special": special})


# ---------------------------------------------------------------- texts


def _texts(arguments: argparse.Namespace, model: Any) -> TokenInputs:
    """The texts of a file, one a line, as token ids with a mask."""
    path = Path(arguments.texts)
    lines = text_lines(path)[: arguments.count]
    empty = next((number for number, line in enumerate(lines, start=1) if not line.strip()), None)
    if empty is not None:
        what = f"line {empty} of {path} is empty" if len(lines) > 1 else f"{path} has no text"
        raise InputError(f"{what}: give a text a line")
    place = arguments.tokenizer
    if place is None and Path(arguments.model).is_dir():
        place = arguments.model
    if place is None:
        raise InputError(
            "texts need a tokenizer: give --tokenizer, a folder of transformers, a tokenizer.json, or a function "
            "package.module:name of a list of texts"
        )
    if place.endswith(".json"):
        ids, mask, words, special = _by_tokenizers(place, lines)
    elif ":" in place:
        ids, mask, words, special = _by_function(place, lines)
    else:
        ids, mask, words, special = _by_transformers(place, lines)
    inputs: NDArray[Any] | dict[str, NDArray[Any]] = {"input_ids": ids, "attention_mask": mask}
    options: dict[str, Any] = {"mask": mask, "words": words, "special": special}
    if not _reads(model, "attention_mask"):
        inputs = {"input_ids": ids} if _reads(model, "input_ids") else ids
    return TokenInputs(inputs, options, lines)


def _reads(model: Any, name: str) -> bool:
    """Whether the model has an input of this name."""
    if callable(getattr(model, "get_inputs", None)):
        return name in {each.name for each in model.get_inputs()}
    try:
        return name in inspect.signature(getattr(model, "forward", model)).parameters
    except (TypeError, ValueError):
        return False


Tokenised = tuple[NDArray[np.int64], NDArray[np.int64], list[list[str]], list[int]]


def _by_tokenizers(place: str, lines: list[str]) -> Tokenised:
    try:
        library = importlib.import_module("tokenizers")
    except ImportError:
        raise InputError("a tokenizer.json needs tokenizers: pip install tokenizers") from None
    try:
        tokenizer = library.Tokenizer.from_buffer(content(Path(place)))
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{place} cannot be read as a tokenizer: {reason(error)}") from error
    tokenizer.enable_padding()
    found = tokenizer.encode_batch(lines)
    special = {
        number for each in found for number, flag in zip(each.ids, each.special_tokens_mask, strict=True) if flag
    }
    ids = np.array([each.ids for each in found], np.int64)
    mask = np.array([each.attention_mask for each in found], np.int64)
    return ids, mask, [list(each.tokens) for each in found], sorted(special)


def _by_transformers(place: str, lines: list[str]) -> Tokenised:
    tokenizer = from_folder(place, "AutoTokenizer")
    with blamed_on("the tokenizer"):
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        found = tokenizer(lines, padding=True, truncation=True, return_tensors="np")
        words = [tokenizer.convert_ids_to_tokens(row.tolist()) for row in found["input_ids"]]
        ids, mask = (np.asarray(found[name], np.int64) for name in ("input_ids", "attention_mask"))
        return ids, mask, words, sorted(tokenizer.all_special_ids)


def _by_function(place: str, lines: list[str]) -> Tokenised:
    """Ids by a function of the user's: lists of ids, or a mapping as of transformers."""
    with blamed_on(f"the tokenizer {place}"):
        found = imported(place, "tokenizer")(lines)
        rows = [[index(each) for each in row] for row in (found["input_ids"] if isinstance(found, Mapping) else found)]
        kept = [[1] * len(row) for row in rows]
        if isinstance(found, Mapping) and "attention_mask" in found:
            kept = [[index(each) for each in row] for row in found["attention_mask"]]
    if len(rows) != len(lines) or not all(rows):
        raise InputError(f"the tokenizer {place} must give one token or more for each text")
    wrong = [each for row in rows for each in row if not 0 <= each <= _LARGEST_ID]
    if wrong:
        raise InputError(f"the tokenizer {place} gives the token {wrong[0]:.3g}, and ids are whole numbers from 0")
    if [len(row) for row in kept] != [len(row) for row in rows] or not {each for row in kept for each in row} <= {0, 1}:
        raise InputError(f"the tokenizer {place} must give an attention_mask of zeros and ones, one for each token")
    longest = max(map(len, rows))
    ids, mask = (np.array([row + [0] * (longest - len(row)) for row in each], np.int64) for each in (rows, kept))
    return ids, mask, [[str(each) for each in row] for row in ids.tolist()], []


def from_folder(folder: str, kind: str) -> Any:
    """A tokenizer or model of transformers from a local folder."""
    try:
        library = importlib.import_module("transformers")
    except ImportError:
        raise InputError(f"{folder} needs transformers: pip install 'flipscope[language]'") from None
    library.utils.logging.disable_progress_bar()  # standard error is for sentences
    library.utils.logging.set_verbosity_error()
    try:
        return getattr(library, kind).from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        what = "tokenizer" if kind == "AutoTokenizer" else "model"
        raise InputError(f"{folder} cannot be read as a {what} of transformers: {reason(error)}") from error
