"""The task of a trained model from its file: the function, the length of its strings, the loss, the labels.

Measurements of a trained model use these as defaults. They are read from the file's header without PyTorch, which is
loaded only to compute the function's values.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from numpy.typing import NDArray

from flipscope.basics.bits import Bits
from flipscope.basics.errors import InputError

if TYPE_CHECKING:
    from flipscope.data.strings import Data

VERSION = 1
KEY = "flipscope.training"  # metadata entry: {"version", "recipe", "fitted", "finished", "notes"} as JSON

Function: TypeAlias = Callable[[Bits], NDArray[Any]]  # strings [string, position] to their labels or values [string]


class NoFunction(InputError):
    """The file does not determine the labels of arbitrary strings of this length."""


@dataclass(frozen=True)
class Task:
    """The training task of a model."""

    data_document: Mapping[str, Any]  # the data of the recipe, as JSON
    length: int  # length of the longest string
    loss: Literal["mse", "bce"]
    labels: Literal["signs", "bits"]  # what 0 and 1 stand for with mse
    train: int | None  # size of a fixed training set

    @property
    def threshold(self) -> float:
        """The output above which the model decides 1."""
        return 0.5 if self.labels == "bits" and self.loss == "mse" else 0.0

    @functools.cached_property
    def data(self) -> Data:
        """The data of the recipe; UnknownName if their kind is not installed."""
        from flipscope.data.kinds import data_from_json

        return data_from_json(self.data_document)

    @property
    def function(self) -> str | None:
        """The function in words; None for a random language."""
        return self.data.function

    def function_at(self, length: int) -> Function:
        """The function on strings of this length; NoFunction if the file does not determine it."""
        from flipscope.cube.functions import BooleanFunction
        from flipscope.data.fourier import FourierData
        from flipscope.data.lengths import LengthsData, prefix_values
        from flipscope.data.real import RealData
        from flipscope.data.sparse import SparseData
        from flipscope.data.strings import StringData
        from flipscope.data.tables import TableData

        data = self.data
        if data.answer != "string":
            raise NoFunction(f"the model was trained to answer at every position ({data.function})")
        if isinstance(data, StringData) and data.function is None:
            raise NoFunction(
                f"the model was trained on a random language, which labels only its own {data.train:,} strings"
            )
        if isinstance(data, LengthsData):  # parity, majority, first, mean: one function for each length
            return lambda bits: prefix_values(data.function, bits)[:, -1]
        if length != data.length:
            raise NoFunction(f"the function in the file, {data.function}, has {data.length:,} bits, not {length:,}")
        if isinstance(data, StringData):
            language = data.language()
            assert language is not None  # a random language was rejected above
            return language
        if isinstance(data, TableData):
            return BooleanFunction.from_table(data.values())
        if isinstance(data, RealData | SparseData | FourierData):
            return data.values
        kind = self.data_document.get("kind")
        raise NoFunction(f"the model was trained on data of kind {kind!r}, whose function the file does not give")


def read_task(path: object, metadata: Mapping[str, str]) -> Task | None:
    """The task in the metadata of a model's file; None if the file has no record of its training."""
    if KEY not in metadata:
        return None
    try:
        document = json.loads(metadata[KEY])
        if (version := document["version"]) != VERSION:
            raise InputError(f"{path} was trained by format {version}, but this flipscope reads {VERSION}: update it")
        data, protocol = document["recipe"]["data"], document["recipe"]["protocol"]
        if data.get("kind") == "images":
            return None  # whose training says nothing of strings
        # For two outputs, the cross entropy is the binary cross entropy of their difference.
        loss: Literal["mse", "bce"] = "mse" if protocol.get("loss") == "mse" else "bce"
        labels: Literal["signs", "bits"] = "bits" if protocol.get("labels") == "bits" else "signs"
        return Task(data, int(data["length"]), loss, labels, data.get("train"))
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} has a damaged metadata entry {KEY!r}") from error
