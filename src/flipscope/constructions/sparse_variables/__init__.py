"""Constructed attention networks for functions of few bits: Lemmas B.2 to B.8 of the sparse-variables paper.

>>> from flipscope.cube.expression import parse
>>> from flipscope.constructions.sparse_variables import construct
>>> built = construct(parse("x3 & x7 & x11", 64))
>>> built.lemma, built.error < built.gamma / 4, built.hidden
('B.2 + B.5', True, (16, 8))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flipscope.basics.lazy import lazily

if TYPE_CHECKING:
    from flipscope.constructions.sparse_variables.build import Construction, construct
    from flipscope.constructions.sparse_variables.export import as_transformer
    from flipscope.constructions.sparse_variables.functions import (
        SparseFunction,
        is_injective,
        is_monotone,
        is_symmetric,
        sparse_function,
    )
    from flipscope.constructions.sparse_variables.gates import compose

__all__ = [
    "Construction",
    "SparseFunction",
    "as_transformer",
    "compose",
    "construct",
    "is_injective",
    "is_monotone",
    "is_symmetric",
    "sparse_function",
]

__getattr__, __dir__ = lazily(__name__)
