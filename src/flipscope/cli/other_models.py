"""Models that are not flipscope files: `package.module:factory`, `path/file.py:factory`, and ONNX files.

A factory is a function or class that is called without arguments; a model object, such as a module, an estimator or a
function of bits, is used directly. Modules are imported from the environment; the current folder is searched last,
after all installed packages.
"""

from __future__ import annotations

import importlib
import inspect
import operator
import os
import re
import sys
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError, reason
from flipscope.basics.importing import search_folder

_PLACE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_FILE = re.compile(r"(.+)\.py:([A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")
_ONNX = ".onnx"


def is_other_model(text: str) -> bool:
    """Whether the text names a Python object or an ONNX file, not a flipscope file."""
    named = _PLACE.fullmatch(text) is not None or _FILE.fullmatch(text) is not None
    return text.endswith(_ONNX) or (named and not Path(text).exists())


def other_model(text: str) -> Any:
    """The named model; if it cannot be created, an InputError that names the cause."""
    if text.endswith(_ONNX):
        return _onnx_session(text)
    found = imported(text, "model")
    if not _is_factory(found):
        return found
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise InputError(f"the factory {text} failed with {reason(error)}") from error


def imported(place: str, what: str) -> Any:
    """The object at "package.module:name" or "path/file.py:name"; the folder of a file is searched last."""
    folder, (module, _, name) = os.getcwd(), place.partition(":")
    if (in_file := _FILE.fullmatch(place)) is not None:
        path = Path(f"{in_file[1]}.py")
        if not path.is_file():
            raise InputError(f"the {what} {place} cannot be imported: {path} is not a file")
        folder, module, name = str(path.resolve().parent), path.stem, in_file[2]
    elif _PLACE.fullmatch(place) is None:
        raise InputError(f"{place!r} does not name a {what}: write package.module:name")
    search_folder(folder, module.partition(".")[0])
    try:
        return operator.attrgetter(name)(importlib.import_module(module))
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"the {what} {place} cannot be imported: {reason(error)}") from error


def _is_factory(found: Any) -> bool:
    """Whether calling the object gives the model: a class, or a function that needs no arguments."""
    if isinstance(found, type):
        return True
    torch = sys.modules.get("torch")
    if not callable(found) or (torch is not None and isinstance(found, torch.nn.Module)):
        return False
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return False
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return not any(each.default is inspect.Parameter.empty and each.kind not in variable for each in parameters)


def _onnx_session(path: str) -> Any:
    if not Path(path).is_file():
        raise InputError(f"{path} is not a file")
    try:
        onnxruntime = importlib.import_module("onnxruntime")  # it has no type annotations
    except ImportError as error:
        raise InputError(f"{path} needs ONNX Runtime: pip install onnxruntime") from error
    try:
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InputError(f"{path} cannot be read as an ONNX model: {reason(error)}") from error


def own_length(model: Any) -> int | None:
    """The number of bits that a model reads, if it declares it."""
    features = getattr(model, "n_features_in_", None)  # scikit-learn
    if isinstance(features, int):
        return features
    if callable(getattr(model, "get_inputs", None)):  # ONNX Runtime
        shape = model.get_inputs()[0].shape
        return shape[1] if len(shape) > 1 and isinstance(shape[1], int) else None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Sequential) and len(model):
        first = model[0]
        return first.in_features if isinstance(first, torch.nn.Linear) else None
    return None
