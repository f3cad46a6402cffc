"""Models of other libraries as functions of tensors: scikit-learn estimators and sessions of ONNX Runtime.

Both are recognised by their methods, so neither library is imported here, and compatible objects work too.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flipscope.adapters.encoding import Encoding
from flipscope.basics.errors import InputError

Declared: TypeAlias = Literal["logit", "logits", "probabilities", "labels"]
Array: TypeAlias = NDArray[Any]

_TYPES: dict[str, type] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


@runtime_checkable
class Estimator(Protocol):
    """The required interface of a scikit-learn estimator; ``predict_proba`` or ``decision_function`` is preferred."""

    def predict(self, X: Any) -> Any: ...


@runtime_checkable
class Session(Protocol):
    """The required interface of an ONNX Runtime session."""

    def run(self, output_names: Any, input_feed: Any) -> Any: ...
    def get_inputs(self) -> Any: ...
    def get_outputs(self) -> Any: ...


@runtime_checkable
class ForeignModel(Protocol):
    """A model of another library that is called with tensors on the CPU."""

    kind: str
    declared: Declared | None  # the kind of outputs, if the library declares it

    def __call__(self, *arguments: Tensor, **keywords: Tensor) -> Tensor: ...

    def usual_encoding(self) -> Encoding:
        """The encoding that the model declares."""

    def reads(self, name: str) -> bool:
        """Whether it has an input of this name."""


def foreign_model(model: object) -> ForeignModel | None:
    """The model as a function of tensors if it is an estimator or a session, else None."""
    if all(callable(getattr(model, name, None)) for name in ("run", "get_inputs", "get_outputs")):
        return SessionModel(model)  # type: ignore[arg-type]  # by its methods
    if not callable(model) and any(callable(getattr(model, name, None)) for name in EstimatorModel.METHODS):
        return EstimatorModel(model)
    return None


class EstimatorModel:
    """An estimator of scikit-learn: its probabilities, else its decision function, else its labels."""

    kind = "a scikit-learn estimator"
    METHODS = ("predict_proba", "decision_function", "predict")

    def __init__(self, estimator: Any) -> None:
        # hasattr, since scikit-learn hides methods that an estimator has only in some settings.
        self.estimator = estimator
        self._method = next(name for name in self.METHODS if hasattr(estimator, name))
        self.declared: Declared | None = "probabilities" if self._method == "predict_proba" else None
        if self._method == "predict" and hasattr(estimator, "classes_"):
            self.declared = "labels"
        # What a regressor predicts may be meant as a probability, even where it leaves [0, 1].
        self.is_regressor = self._method == "predict" and self.declared is None

    def usual_encoding(self) -> Encoding:
        return "bits"

    def reads(self, name: str) -> bool:
        return False

    def __call__(self, *arguments: Tensor, **keywords: Tensor) -> Tensor:
        if len(arguments) != 1 or keywords:
            raise InputError("an estimator takes one array: let encoding return a single tensor")
        given = as_numpy(arguments[0])
        found = getattr(self.estimator, self._method)(given)
        classes = getattr(self.estimator, "classes_", None)
        several = isinstance(classes, list) and any(np.ndim(each) for each in classes)
        if isinstance(found, list) or several:
            raise InputError("the estimator predicts several outputs at once: wrap it in a function that picks one")
        found = np.asarray(found)
        columns = found.shape[1] if found.ndim == 2 else 1
        pairs = getattr(self.estimator, "decision_function_shape", None) == "ovo" and columns > 1
        if self._method == "decision_function" and classes is not None and (pairs or columns not in (1, len(classes))):
            found = np.asarray(self.estimator.predict(given))  # numbers of pairs of classes, not of classes
        elif self._method != "predict":
            return torch.from_numpy(np.array(found, np.float64))
        return torch.from_numpy(self._labels(found, classes))

    @staticmethod
    def _labels(found: Array, classes: Array | None) -> Array:
        """The label of each string as a number: 0 or 1, a column of zeros and ones per class if there are more."""
        if classes is not None:
            found = np.searchsorted(classes, found)  # which are sorted
            if len(classes) > 2:
                return np.array(found[:, None] == np.arange(len(classes)), np.float64)
        if found.dtype.kind not in "biuf":
            raise InputError(f"the estimator predicts values of type {found.dtype}, not numbers")
        return np.array(found, np.float64)


class SessionModel:
    """An ONNX Runtime session: called with its inputs in order or by name, it returns its first real output."""

    kind = "an ONNX session"

    def __init__(self, session: Session) -> None:
        self.session = session
        self._inputs = {each.name: each for each in session.get_inputs()}
        outputs = session.get_outputs()
        # Classifiers converted from scikit-learn have a label first and their probabilities second.
        real = [each for each in outputs if each.type in ("tensor(float)", "tensor(double)", "tensor(float16)")]
        chosen = (real or list(outputs))[0]
        self._output = chosen.name
        self.declared: Declared | None = "probabilities" if "probabilit" in chosen.name.lower() else None
        if not real:
            self.declared = "labels"
        rows = next(iter(self._inputs.values())).shape[:1]
        self._rows = rows[0] if rows and isinstance(rows[0], int) else None  # fixed batch size of the export

    def usual_encoding(self) -> Encoding:
        if len(self._inputs) > 1:
            raise InputError(
                f"the ONNX model has the inputs {', '.join(self._inputs)}: say what they are for bits, by "
                "encoding=(t0, t1) for two tokens or by a function that returns a dict"
            )
        kind = next(iter(self._inputs.values())).type
        return "bits" if "int" in kind or "bool" in kind else "floats"

    def reads(self, name: str) -> bool:
        return name in self._inputs

    def __call__(self, *arguments: Tensor, **keywords: Tensor) -> Tensor:
        feed = {**dict(zip(self._inputs, arguments, strict=False)), **keywords}
        arrays = {name: self._typed(name, as_numpy(value)) for name, value in feed.items()}
        count = len(next(iter(arrays.values())))
        step = self._rows or count
        parts = [self._run({name: each[start : start + step] for name, each in arrays.items()}, step)
                 for start in range(0, count, step)]  # fmt: skip
        found = np.concatenate(parts)[:count]
        if found.dtype.kind not in "biuf":
            raise InputError(f"the ONNX model's output {self._output!r} holds {found.dtype}, not numbers")
        return torch.from_numpy(np.array(found))

    def _run(self, feed: dict[str, Array], rows: int) -> Array:
        """The output for these strings; if the batch size is fixed, the last string is repeated to fill it."""
        missing = rows - len(next(iter(feed.values())))
        if missing:
            feed = {name: np.concatenate([each, np.repeat(each[-1:], missing, axis=0)]) for name, each in feed.items()}
        return np.asarray(self.session.run([self._output], feed)[0])

    def _typed(self, name: str, array: Array) -> Array:
        kind = self._inputs[name].type if name in self._inputs else ""
        return array.astype(_TYPES.get(kind, array.dtype), copy=False)


def as_numpy(value: Any) -> Array:
    """A tensor or array-like object as an array."""
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
