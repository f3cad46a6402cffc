"""Models that are not flipscope files: `package.module:factory`, `path/file.py:factory`, and ONNX files.

A factory is a function or class that is called without arguments; a model object, such as a module, an estimator or a
function of bits, is used directly. Modules are imported from the environment; the current folder is searched last,
after all installed packages.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError, reason
from flipscope.basics.importing import is_place, made

_ONNX = ".onnx"


def is_other_model(text: str) -> bool:
    """Whether the text names a Python object or an ONNX file, not a flipscope file."""
    return text.endswith(_ONNX) or (is_place(text) and not Path(text).exists())


def other_model(text: str) -> Any:
    """The named model; if it cannot be created, an InputError that names the cause."""
    if text.endswith(_ONNX):
        return _onnx_session(text)
    return made(text, "model")


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
