"""The kinds of data by the names that recipes hold."""

from __future__ import annotations

from flipscope.basics.registry import Registry
from flipscope.data.fourier import FourierData
from flipscope.data.lengths import LengthsData
from flipscope.data.real import RealData
from flipscope.data.sparse import SparseData
from flipscope.data.steps import StepsData
from flipscope.data.strings import Data, StringData
from flipscope.data.tables import TableData

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
    },
    former={
        "flipscope.training.sharper_sets:FourierData": "fourier",
        "flipscope.training.step_sets:StepsData": "steps",
    },
    extensible=True,
)
