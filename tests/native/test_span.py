"""How many lanes the loops have: the processor's, or those that are asked for."""

from __future__ import annotations

import copy
import pickle
import platform
from unittest.mock import Mock

import pytest

from flipscope.basics.errors import InputError
from flipscope.native import span as spans
from flipscope.native.span import TOKENS, VARIABLE, Span, lanes_of_register, narrowest, preferred, span_of

X86 = "x86_64-unknown-linux-gnu"


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="its compiler knows no such processors")
@pytest.mark.parametrize(
    ("name", "features", "lanes"),
    [
        ("skylake-avx512", "", 16),
        ("icelake-server", "", 16),
        ("znver4", "", 16),
        ("haswell", "+avx512f,+avx512vl", 16),
        ("skylake-avx512", "-avx512f", 8),
        ("haswell", "", 8),
        ("znver3", "", 8),
        ("generic", "", 0),
    ],
)
def test_what_numba_compiles_for_decides(name, features, lanes, monkeypatch):
    target = Mock()
    target.target_context.codegen().magic_tuple.return_value = (X86, name, features)
    monkeypatch.setattr(spans, "cpu_target", target)
    assert lanes_of_register.__wrapped__() == lanes


@pytest.mark.parametrize(("register", "lanes"), [(16, 16), (8, 8), (0, 8)])
def test_the_processors_own_is_preferred(register, lanes, monkeypatch):
    monkeypatch.setattr(spans, "lanes_of_register", lambda: register)
    for asked in (None, ""):
        monkeypatch.delenv(VARIABLE, raising=False) if asked is None else monkeypatch.setenv(VARIABLE, asked)
        assert preferred() == span_of(lanes)


@pytest.mark.parametrize(
    ("lanes", "count", "chosen"), [(16, 1, 8), (16, 8, 8), (16, 9, 16), (16, 16, 16), (8, 1, 8), (8, 8, 8)]
)
def test_few_strings_take_the_narrowest_group(lanes, count, chosen):
    assert narrowest(span_of(lanes), count) is span_of(chosen)


@pytest.mark.parametrize("lanes", [8, 16])
def test_one_can_be_asked_for(lanes, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(lanes))
    assert preferred().lanes == lanes


@pytest.mark.parametrize("asked", ["4", "32", "016", "avx", "-8"])
def test_others_are_refused_with_a_sentence(asked, monkeypatch):
    monkeypatch.setenv(VARIABLE, asked)
    with pytest.raises(InputError, match=rf"^FLIPSCOPE_LANES is '{asked}': set it to 8 or 16, or .*\.$"):
        preferred()


def test_room_is_for_whole_tiles():
    assert [Span(8, 3).room(tokens) for tokens in (1, 3, 4, 101)] == [3, 3, 6, 102]
    assert [Span(16, 6).room(tokens) for tokens in (1, 6, 7, 101)] == [6, 6, 12, 102]


@pytest.mark.parametrize("span", [span_of(lanes) for lanes in TOKENS])
def test_a_span_stays_the_same_when_it_is_sent(span):
    assert pickle.loads(pickle.dumps(span)) == copy.deepcopy(span) == span
