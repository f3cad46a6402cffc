"""How many numbers stand side by side in the compiled loops: chosen by the processor, part of a loop's signature.

A processor with AVX-512 has 32 registers of sixteen floats, others mostly 16 of eight. FLIPSCOPE_LANES=8, or 16,
overrules the choice; both give the same numbers on every machine, but for roundings.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from numba import types
from numba.core.registry import cpu_target
from numba.extending import NativeValue, models, overload_attribute, register_model, unbox

from flipscope.basics.errors import InputError
from flipscope.native.compiled import compiled_by

TOKENS = {8: 3, 16: 6}  # tokens of a tile, by lanes: their sums with four units fill most of the registers
VARIABLE = "FLIPSCOPE_LANES"

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Span:
    """So many numbers side by side, and tokens of a tile."""

    lanes: int
    tokens: int

    def room(self, tokens: int) -> int:
        """Tokens of whole tiles that hold so many."""
        return -(-tokens // self.tokens) * self.tokens

    @functools.cached_property
    def _numba_type_(self) -> SpanType:  # where numba looks first
        return SpanType(self.lanes, self.tokens)

    def __reduce__(self) -> tuple[Any, ...]:
        return span_of, (self.lanes,)


class SpanType(types.Type):  # type: ignore[misc]
    """The type of a span, which is all there is to know of it."""

    def __init__(self, lanes: int, tokens: int) -> None:
        self.lanes, self.tokens = lanes, tokens
        super().__init__(name=f"FlipscopeSpan({lanes} x {tokens})")

    def of(self, tokens: int) -> SpanType:
        """As wide, for so many tokens."""
        return SpanType(self.lanes, tokens)


register_model(SpanType)(models.OpaqueModel)


@unbox(SpanType)  # type: ignore[untyped-decorator]
def _unbox(_kind: Any, _value: Any, native: Any) -> Any:
    return NativeValue(native.context.get_dummy_value())


@overload_attribute(SpanType, "lanes", strict=False)  # type: ignore[untyped-decorator]
def _lanes(span: Any) -> Any:
    lanes = span.lanes
    return lambda span: lanes


@overload_attribute(SpanType, "tokens", strict=False)  # type: ignore[untyped-decorator]
def _tokens(span: Any) -> Any:
    tokens = span.tokens
    return lambda span: tokens


_PROBE = "define <16 x float> @f(<16 x float> %a) { %b = fadd <16 x float> %a, %a ret <16 x float> %b }"


@functools.lru_cache(maxsize=1)
def lanes_of_register() -> int:
    """Floats of the widest register for which numba's compiler compiles: 16, 8, or fewer, which counts as 0.

    Asked of the compiler itself, with the processor and the features that numba gives it: NUMBA_CPU_NAME and
    NUMBA_CPU_FEATURES may say another than this machine's.
    """
    triple, name, features = cpu_target.target_context.codegen().magic_tuple()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=name, features=features)
    code = machine.emit_assembly(llvm.parse_assembly(_PROBE))
    return 16 if "zmm" in code else 8 if "ymm" in code else 0


def preferred() -> Span:
    """The span that FLIPSCOPE_LANES asks for, or else the processor's."""
    asked = os.environ.get(VARIABLE)
    if asked is None or asked == "":
        return span_of(max(8, lanes_of_register()))
    if asked not in map(str, TOKENS):
        raise InputError(f"{VARIABLE} is {asked!r}: set it to 8 or 16, or leave it unset for the processor's own.")
    return span_of(int(asked))


def narrowest(span: Span, count: int) -> Span:
    """The narrowest span, up to this one, of which one group holds so many strings."""
    fewest = min((lanes for lanes in TOKENS if count <= lanes <= span.lanes), default=span.lanes)
    return span if fewest == span.lanes else span_of(fewest)


@functools.cache
def span_of(lanes: int) -> Span:
    """The span of so many lanes."""
    return Span(lanes, TOKENS[lanes])


def compiled_by_span(signature: Callable[[SpanType], Any]) -> Callable[[Function], Function]:
    """Decorator: as ``compiled``, for the span that is the first argument."""
    signatures = {lanes: signature(SpanType(lanes, tokens)) for lanes, tokens in TOKENS.items()}
    return compiled_by(lambda span: span.lanes, signatures)
