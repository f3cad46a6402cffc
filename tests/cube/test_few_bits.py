from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.cube.few_bits import all_tables, description_length, full_table, measures
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.sensitivity import average_sensitivity, zero_strings
from flipscope.cube.spectrum import degree


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, 2 ** (2**n) - 1))))
def test_measures_are_those_of_single_functions(given: tuple[int, int]) -> None:
    n, table = given
    f = BooleanFunction.from_table(table, n)
    found = measures([table], n)
    assert found.zero_strings[0] == zero_strings(f)
    assert found.average_sensitivity[0] == float(average_sensitivity(f))
    assert found.degree[0] == degree(f)


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, 2 ** (2**n) - 1))))
def test_a_complement_measures_the_same(given: tuple[int, int]) -> None:
    n, table = given
    one, other = measures([table], n), measures([table ^ int(full_table(n))], n)
    for name in ("zero_strings", "average_sensitivity", "degree", "description"):
        assert getattr(one, name) == getattr(other, name)


def test_a_random_function_has_one_string_of_sensitivity_0_on_average() -> None:
    for n in (2, 3, 4):
        assert measures(all_tables(n), n).zero_strings.mean() == 1.0


def test_simple_tables_have_short_descriptions() -> None:
    tables = [0, 0xAAAAAAAAAAAAAAAA, 0x1B873593CC9E2D51]
    found = description_length(tables, 6)
    assert found[0] < found[1] < found[2]


def test_bad_tables_are_refused() -> None:
    with pytest.raises(InputError, match="more than the 2\\^2 values"):
        measures([16], 2)
    with pytest.raises(InputError, match="n=7 is too large"):
        measures([0], 7)
    with pytest.raises(InputError, match="one row"):
        measures(np.zeros((2, 2), np.uint64), 2)
    with pytest.raises(InputError, match="too many to list"):
        all_tables(5)
