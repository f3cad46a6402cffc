"""The kinds of data that a recipe may name.

    RealData      a real-valued function: the mean of the bits, or a weighted sum of Boolean functions
    TableData     a truth table written down, learned from all of its rows or from a random subset of them
    LengthsData   strings of all lengths from one to another, answered at the end, or at every position
    SparseData    a gate of a few hidden bits among many

Each is a frozen record that JSON can hold, under its name in BY_NAME. `validation_sets`, `source` and `draw_inputs` are
what training asks of it.
"""

from __future__ import annotations

from flipscope.data.lengths import LengthsData
from flipscope.data.real import RealData
from flipscope.data.sparse import SparseData
from flipscope.data.tables import TableData

BY_NAME: dict[str, type] = {"real": RealData, "table": TableData, "lengths": LengthsData, "sparse": SparseData}
