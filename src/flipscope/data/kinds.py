"""The kinds of data by the names that recipes hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.basics.registry import Registry
from flipscope.data.fourier import FourierData
from flipscope.data.image_data import ImageData
from flipscope.data.lengths import LengthsData
from flipscope.data.real import RealData
from flipscope.data.sparse import SparseData
from flipscope.data.steps import StepsData
from flipscope.data.strings import Data, StringData
from flipscope.data.tables import TableData
from flipscope.data.text_data import TextData

STRINGS = "strings"  # the kind of a recipe that names none

KINDS: Registry[type[Data]] = Registry(
    "kind of data",
    {
        STRINGS: StringData,
        "real": RealData,
        "table": TableData,
        "lengths": LengthsData,
        "sparse": SparseData,
        "fourier": FourierData,
        "steps": StepsData,
        "images": ImageData,
        "texts": TextData,
    },
    former={
        "flipscope.training.sharper_sets:FourierData": "fourier",
        "flipscope.training.step_sets:StepsData": "steps",
    },
    extensible=True,
)


def data_from_json(document: Mapping[str, Any]) -> Data:
    """The data of a recipe in JSON, of the kind that it names; StringData where it names none."""
    fields = dict(document)
    kind = KINDS.get(fields.pop("kind", STRINGS))
    # A file may name any definition of any package: what is no record of data is not called.
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind) and hasattr(kind, "validation_sets")):
        raise InputError(f"{document['kind']!r} is no kind of data: it must be a dataclass with the methods of Data")
    return kind(**fields)
