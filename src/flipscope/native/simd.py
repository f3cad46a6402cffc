"""Vectors of float32 numbers, and tiles of such vectors, as values inside compiled loops.

A loop is written once for every width: its first argument is a ``Span``, whose type tells the compiler how many numbers
stand side by side, and how many tokens share a tile. Both are part of a loop's signature, by which its machine code is
cached. LLVM turns a vector into whatever instructions the processor has, several where it has none as wide. Arrays are
flat and contiguous, indices are trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import float32, int64, njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from flipscope.native.span import SpanType, lanes_of_register

UNITS = 4  # columns of a tile: units, keys or coordinates


class Vector(types.Type):  # type: ignore[misc]
    """The type of numbers side by side."""

    def __init__(self, lanes: int) -> None:
        self.lanes, self.count = lanes, 1
        super().__init__(name=f"FlipscopeVector({lanes})")


class Tile(types.Type):  # type: ignore[misc]
    """The type of rows and columns of vectors, which live in registers."""

    def __init__(self, rows: int, columns: int, lanes: int) -> None:
        self.rows, self.columns, self.lanes, self.count = rows, columns, lanes, rows * columns
        super().__init__(name=f"FlipscopeTile({rows} x {columns} x {lanes})")


def floats(lanes: int) -> Any:
    """The type of so many numbers side by side in the code that is being generated."""
    return ir.VectorType(ir.FloatType(), lanes)


def integers(lanes: int) -> Any:
    """The same of whole numbers."""
    return ir.VectorType(ir.IntType(32), lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, floats(kind.lanes))


@register_model(Tile)
class _TileModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.ArrayType(floats(kind.lanes), kind.count))


class Array:
    """An array inside the code that is being generated."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any) -> None:
        self.builder, self.data = builder, context.make_array(kind)(context, builder, array).data

    def place(self, at: Any, *steps: tuple[Any, int]) -> Any:
        """The address of number ``at``, so many times some steps further."""
        for step, times in steps:
            if times:
                at = self.builder.add(at, self.builder.mul(step, ir.Constant(ir.IntType(64), times)))
        return self.builder.gep(self.data, [at])

    def load(self, place: Any, lanes: int) -> Any:
        found = self.builder.load(self.builder.bitcast(place, floats(lanes).as_pointer()))
        found.align = 4
        return found

    def store(self, place: Any, value: Any) -> None:
        self.builder.store(value, self.builder.bitcast(place, value.type.as_pointer())).align = 4

    def spread(self, place: Any, lanes: int) -> Any:
        return _in_every_lane(self.builder, self.builder.load(place), lanes)


def _in_every_lane(builder: Any, number: Any, lanes: int) -> Any:
    empty = ir.Constant(floats(lanes), ir.Undefined)
    one = builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, empty, ir.Constant(integers(lanes), [0] * lanes))


def vectors_of(builder: Any, kind: Any, value: Any) -> list[Any]:
    """The vectors of a vector or tile, row by row."""
    return [value] if isinstance(kind, Vector) else [builder.extract_value(value, k) for k in range(kind.count)]


def joined(builder: Any, kind: Any, vectors: list[Any]) -> Any:
    """The vector or tile that is made of these vectors, row by row."""
    if isinstance(kind, Vector):
        return vectors[0]
    tile = ir.Constant(ir.ArrayType(floats(kind.lanes), kind.count), ir.Undefined)
    for k, one in enumerate(vectors):
        tile = builder.insert_value(tile, one, k)
    return tile


def _nothing(context: Any, _builder: Any, _signature: Any, _arguments: Any) -> Any:
    return context.get_dummy_value()


@intrinsic  # type: ignore[untyped-decorator]
def one_token(_typing: Any, span: Any) -> Any:
    """A span as wide, for one token."""
    return span.of(1)(span), _nothing


def _of(rows: int) -> Any:
    """A span as wide, for so many vectors."""

    def typed(_typing: Any, span: Any) -> Any:
        return span.of(rows)(span), _nothing

    return intrinsic(typed)


two_vectors, three_vectors, four_vectors = _of(2), _of(3), _of(4)


@intrinsic  # type: ignore[untyped-decorator]
def eights(_typing: Any) -> Any:
    """Eight lanes, whatever the processor has, where rows of eight numbers are needed."""
    return SpanType(8, 1)(), _nothing


@intrinsic  # type: ignore[untyped-decorator]
def load(_typing: Any, span: Any, array: Any, _at: Any) -> Any:
    """The numbers of a vector, from an index on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = Array(context, builder, signature.args[1], arguments[1])
        return source.load(source.place(arguments[2]), span.lanes)

    return Vector(span.lanes)(span, array, int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def load_bytes(_typing: Any, span: Any, array: Any, _at: Any) -> Any:
    """The numbers of as many bytes, from an index on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = Array(context, builder, signature.args[1], arguments[1])
        kind = ir.VectorType(ir.IntType(8), span.lanes)
        found = builder.load(builder.bitcast(source.place(arguments[2]), kind.as_pointer()))
        found.align = 1
        return builder.uitofp(found, floats(span.lanes))

    return Vector(span.lanes)(span, array, int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def store(_typing: Any, array: Any, _at: Any, value: Any) -> Any:
    """Write the numbers of a vector from an index on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = Array(context, builder, signature.args[0], arguments[0])
        target.store(target.place(arguments[1]), arguments[2])
        return context.get_dummy_value()

    return types.none(array, int64, value), generate


@intrinsic  # type: ignore[untyped-decorator]
def spread(_typing: Any, span: Any, array: Any, _at: Any) -> Any:
    """The number at an index, in every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = Array(context, builder, signature.args[1], arguments[1])
        return source.spread(source.place(arguments[2]), span.lanes)

    return Vector(span.lanes)(span, array, int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def splat(_typing: Any, like: Any, _number: Any) -> Any:
    """A number in every lane of a vector, or of as many as there are in a vector or tile."""
    kind = Vector(like.lanes) if isinstance(like, SpanType) else like

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return joined(builder, kind, [_in_every_lane(builder, arguments[1], kind.lanes)] * kind.count)

    return kind(like, float32), generate


def each(arity: int, one: Callable[..., Any]) -> Any:
    """What does the same with every vector: ``one`` of a builder, the lanes and the arguments' vectors."""

    def typed(kind: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            parts = zip(*(vectors_of(builder, kind, argument) for argument in arguments), strict=True)
            return joined(builder, kind, [one(builder, kind.lanes, *some) for some in parts])

        return kind(*([kind] * arity)), generate

    if arity == 1:
        return intrinsic(lambda _typing, a: typed(a))
    if arity == 2:
        return intrinsic(lambda _typing, a, b: typed(a))
    return intrinsic(lambda _typing, a, b, c: typed(a))


def call(builder: Any, name: str, lanes: int, *arguments: Any) -> Any:
    """LLVM's own function of a name, of vectors."""
    kind = ir.FunctionType(floats(lanes), [floats(lanes)] * len(arguments))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{lanes}f32"), arguments)


def _is_nonzero(builder: Any, lanes: int, a: Any) -> Any:
    return builder.fcmp_unordered("!=", a, ir.Constant(floats(lanes), [0.0] * lanes))


add: Any = each(2, lambda builder, _lanes, a, b: builder.fadd(a, b))
subtract: Any = each(2, lambda builder, _lanes, a, b: builder.fsub(a, b))
multiply: Any = each(2, lambda builder, _lanes, a, b: builder.fmul(a, b))
divide: Any = each(2, lambda builder, _lanes, a, b: builder.fdiv(a, b))
# a * b + c, with one rounding where the processor can.
multiply_add: Any = each(3, lambda builder, lanes, a, b, c: call(builder, "fmuladd", lanes, a, b, c))
square_root: Any = each(1, lambda builder, lanes, a: call(builder, "sqrt", lanes, a))
# a where a > b, or a < b, else b: also where one of them is NaN.
larger: Any = each(2, lambda builder, _lanes, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
smaller: Any = each(2, lambda builder, _lanes, a, b: builder.select(builder.fcmp_ordered("<", a, b), a, b))
# b where a is not 0, else c.
chosen: Any = each(3, lambda builder, lanes, a, b, c: builder.select(_is_nonzero(builder, lanes, a), b, c))


def _across(one: Callable[..., Any]) -> Any:
    """What is left of a vector's numbers: ``one`` of a builder and its halves, of which halves are taken again."""

    def typed(_typing: Any, kind: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            found, lanes = arguments[0], kind.lanes
            while lanes > 1:
                lanes //= 2
                places = (ir.Constant(integers(lanes), list(range(at, at + lanes))) for at in (0, lanes))
                found = one(builder, *(builder.shuffle_vector(found, found, half) for half in places))
            return builder.extract_element(found, ir.Constant(ir.IntType(32), 0))

        return float32(kind), generate

    return intrinsic(typed)


sum_across: Any = _across(lambda builder, a, b: builder.fadd(a, b))
largest_across: Any = _across(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))


@njit(inline="always")  # type: ignore[untyped-decorator]
def inverse_root(x: Any) -> Any:
    """1 / sqrt(x) as sqrt(x) / x: a variance that has overflowed gives NaN, not zero."""
    return divide(square_root(x), x)


def _any(builder: Any, lanes: int, found: list[Any]) -> Any:
    """1 if some bit of these vectors of bits is set, else 0."""
    every = found[0]
    for bits in found[1:]:
        every = builder.or_(every, bits)
    mask = builder.bitcast(every, ir.IntType(lanes))
    return builder.zext(builder.icmp_unsigned("!=", mask, ir.Constant(ir.IntType(lanes), 0)), ir.IntType(64))


@intrinsic  # type: ignore[untyped-decorator]
def any_nonzero(_typing: Any, kind: Any) -> Any:
    """1 if some lane is not zero (NaN is not), else 0."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        vectors = vectors_of(builder, kind, arguments[0])
        return _any(builder, kind.lanes, [_is_nonzero(builder, kind.lanes, vector) for vector in vectors])

    return int64(kind), generate


@intrinsic  # type: ignore[untyped-decorator]
def any_reaches(_typing: Any, kind: Any, _low: Any) -> Any:
    """1 if some lane is not below its bound (NaN is not), else 0."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pairs = zip(*(vectors_of(builder, kind, argument) for argument in arguments), strict=True)
        return _any(builder, kind.lanes, [builder.fcmp_unordered(">=", a, low) for a, low in pairs])

    return int64(kind, kind), generate


def _splat_tile(columns: int) -> Any:
    """A tile of the span's rows with a number in every lane."""

    def typed(_typing: Any, span: Any, _number: Any) -> Any:
        kind = Tile(span.tokens, columns, span.lanes)

        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return joined(builder, kind, [_in_every_lane(builder, arguments[1], kind.lanes)] * kind.count)

        return kind(span, float32), generate

    return intrinsic(typed)


def _spread_tile(columns: int) -> Any:
    """A tile of the span's rows: row r, column c is the number at ``at + r * step + c`` in every lane."""

    def typed(_typing: Any, span: Any, array: Any, _at: Any, _step: Any) -> Any:
        kind = Tile(span.tokens, columns, span.lanes)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, (at, step) = Array(context, builder, signature.args[1], arguments[1]), arguments[2:]
            one = ir.Constant(ir.IntType(64), 1)
            places = [
                source.place(at, (step, row), (one, column))
                for row in range(kind.rows)
                for column in range(kind.columns)
            ]
            return joined(builder, kind, [source.spread(place, span.lanes) for place in places])

        return kind(span, array, int64, int64), generate

    return intrinsic(typed)


def _load_tile(columns: int) -> Any:
    """A tile of the span's rows: row r, column c are the numbers from ``at + r * step + c * across`` on."""

    def typed(_typing: Any, span: Any, array: Any, _at: Any, _step: Any, _across: Any) -> Any:
        kind = Tile(span.tokens, columns, span.lanes)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, (at, step, across) = Array(context, builder, signature.args[1], arguments[1]), arguments[2:]
            places = [
                source.place(at, (step, row), (across, column))
                for row in range(kind.rows)
                for column in range(kind.columns)
            ]
            return joined(builder, kind, [source.load(place, span.lanes) for place in places])

        return kind(span, array, int64, int64, int64), generate

    return intrinsic(typed)


splat_column, splat_units = _splat_tile(1), _splat_tile(UNITS)
spread_column, spread_units = _spread_tile(1), _spread_tile(UNITS)
_load_one, load_units = _load_tile(1), _load_tile(UNITS)


@njit(inline="always")  # type: ignore[untyped-decorator]
def load_column(span: Any, array: Any, at: Any, step: Any) -> Any:
    """A tile of one column: row r are the numbers from ``at + r * step`` on."""
    return _load_one(span, array, at, step, 0)


@intrinsic  # type: ignore[untyped-decorator]
def store_tile(_typing: Any, array: Any, _at: Any, _step: Any, _across: Any, kind: Any) -> Any:
    """Write row r, column c of a tile from ``at + r * step + c * across`` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, (at, step, across) = Array(context, builder, signature.args[0], arguments[0]), arguments[1:4]
        for k, vector in enumerate(vectors_of(builder, kind, arguments[4])):
            row, column = divmod(k, kind.columns)
            target.store(target.place(at, (step, row), (across, column)), vector)
        return context.get_dummy_value()

    return types.none(array, int64, int64, int64, kind), generate


def pinned(builder: Any, kind: Any, vectors: list[Any]) -> list[Any]:
    """The same vectors, in registers: all are computed before the next is used, and no load moves across.

    An instruction of no length that claims to change them. Left to itself the compiler loads ahead, until it has no
    registers left for the sums, or computes one chain of steps after the other, each of which waits for the one before.
    """
    if len(vectors) == 1 or lanes_of_register() < kind.lanes:
        return vectors
    one, count = floats(kind.lanes), len(vectors)
    form = ir.FunctionType(ir.LiteralStructType([one] * count), [one] * count)
    order = ",".join(["=v"] * count + [str(k) for k in range(count)] + ["~{memory}"])
    found = builder.call(ir.InlineAsm(form, "", order, side_effect=True), vectors)
    return [builder.extract_value(found, k) for k in range(count)]


def _add_products(spreading: bool, of_each_row: bool) -> Any:
    def typed(_typing: Any, kind: Any, x: Any, _at: Any, _step: Any, y: Any, _begin: Any, _by: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            tile, _, at, step, _, begin, by = arguments
            left = Array(context, builder, signature.args[1], arguments[1])
            right = Array(context, builder, signature.args[4], arguments[4])
            sums, one = vectors_of(builder, kind, tile), ir.Constant(ir.IntType(64), 1)
            if of_each_row:  # row by row: few factors are needed at a time
                for row in range(kind.rows):
                    number = left.load(left.place(at, (step, row)), kind.lanes)
                    for column in range(kind.columns):
                        factor = right.spread(right.place(begin, (by, row), (one, column)), kind.lanes)
                        k = row * kind.columns + column
                        sums[k] = call(builder, "fmuladd", kind.lanes, factor, number, sums[k])
                        sums[k], _ = pinned(builder, kind, [sums[k], factor])  # else it would stand in its register
                return joined(builder, kind, sums)
            rows = [left.load(left.place(at, (step, row)), kind.lanes) for row in range(kind.rows)]
            for column in range(kind.columns):  # column by column, for the same reason
                place = right.place(begin, (by, column))
                factor = right.spread(place, kind.lanes) if spreading else right.load(place, kind.lanes)
                for k in range(column, kind.count, kind.columns):
                    sums[k] = call(builder, "fmuladd", kind.lanes, factor, rows[k // kind.columns], sums[k])
                sums[column :: kind.columns] = pinned(builder, kind, sums[column :: kind.columns])
            return joined(builder, kind, sums)

        return kind(kind, x, int64, int64, y, int64, int64), generate

    return intrinsic(typed)


# A tile, and added to its row r and column c the product of two factors. One are the numbers of x from
# ``at + r * step`` on. The other are the numbers of y from ``begin + c * by`` on; or the one number there, in every
# lane; or that at ``begin + r * by + c``.
add_loaded: Any = _add_products(spreading=False, of_each_row=False)
add_spread_by: Any = _add_products(spreading=True, of_each_row=False)
add_each: Any = _add_products(spreading=True, of_each_row=True)


@intrinsic  # type: ignore[untyped-decorator]
def loaded_products(_typing: Any, span: Any, x: Any, _at: Any, _step: Any, y: Any, _begin: Any, _by: Any) -> Any:
    """What ``add_loaded`` adds, as a tile of its own: a product reads one register less than a sum of it."""
    kind = Tile(span.tokens, UNITS, span.lanes)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, at, step, _, begin, by = arguments
        left = Array(context, builder, signature.args[1], arguments[1])
        right = Array(context, builder, signature.args[4], arguments[4])
        rows = [left.load(left.place(at, (step, row)), kind.lanes) for row in range(kind.rows)]
        sums: list[Any] = [None] * kind.count
        for column in range(kind.columns):
            factor = right.load(right.place(begin, (by, column)), kind.lanes)
            some = [builder.fmul(factor, row) for row in rows]
            sums[column :: kind.columns] = pinned(builder, kind, some)
        return joined(builder, kind, sums)

    return kind(span, x, int64, int64, y, int64, int64), generate


@njit(inline="always")  # type: ignore[untyped-decorator]
def add_spread(sums: Any, x: Any, at: Any, step: Any, y: Any, begin: Any) -> Any:
    """The second of these, of numbers that stand together."""
    return add_spread_by(sums, x, at, step, y, begin, 1)


@intrinsic  # type: ignore[untyped-decorator]
def columns_of(_typing: Any, kind: Any) -> Any:
    """The columns of a tile, each a tile of its own."""
    column = Tile(kind.rows, 1, kind.lanes)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = vectors_of(builder, kind, arguments[0])
        parts = [joined(builder, column, vectors[c :: kind.columns]) for c in range(kind.columns)]
        return context.make_tuple(builder, signature.return_type, parts)

    return types.UniTuple(column, kind.columns)(kind), generate


@intrinsic  # type: ignore[untyped-decorator]
def times_column(_typing: Any, kind: Any, column: Any) -> Any:
    """A tile, every column of which is multiplied by the same other one."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        factors = vectors_of(builder, column, arguments[1])
        vectors = enumerate(vectors_of(builder, kind, arguments[0]))
        return joined(builder, kind, [builder.fmul(vector, factors[k // kind.columns]) for k, vector in vectors])

    return kind(kind, column), generate


@intrinsic  # type: ignore[untyped-decorator]
def first_row(_typing: Any, kind: Any) -> Any:
    """The first vector of a tile of one column."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return vectors_of(builder, kind, arguments[0])[0]

    return Vector(kind.lanes)(kind), generate


def _shuffle(chosen: list[int]) -> Any:
    """Lanes of a (0 to 7) and b (8 to 15) in a new order."""

    def one(builder: Any, lanes: int, a: Any, b: Any) -> Any:
        return builder.shuffle_vector(a, b, ir.Constant(integers(lanes), chosen))

    return each(2, one)


_ones_low: Any = _shuffle([0, 8, 1, 9, 4, 12, 5, 13])
_ones_high: Any = _shuffle([2, 10, 3, 11, 6, 14, 7, 15])
_twos_low: Any = _shuffle([0, 1, 8, 9, 4, 5, 12, 13])
_twos_high: Any = _shuffle([2, 3, 10, 11, 6, 7, 14, 15])
_fours_low: Any = _shuffle([0, 1, 2, 3, 8, 9, 10, 11])
_fours_high: Any = _shuffle([4, 5, 6, 7, 12, 13, 14, 15])


@njit(inline="always")  # type: ignore[untyped-decorator]
def turned(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """The columns of eight rows of eight numbers."""
    ab0, ab1, cd0, cd1 = _ones_low(a, b), _ones_high(a, b), _ones_low(c, d), _ones_high(c, d)
    ef0, ef1, gh0, gh1 = _ones_low(e, f), _ones_high(e, f), _ones_low(g, h), _ones_high(g, h)
    p0, p1, p2, p3 = _twos_low(ab0, cd0), _twos_high(ab0, cd0), _twos_low(ab1, cd1), _twos_high(ab1, cd1)
    q0, q1, q2, q3 = _twos_low(ef0, gh0), _twos_high(ef0, gh0), _twos_low(ef1, gh1), _twos_high(ef1, gh1)
    return (
        _fours_low(p0, q0),
        _fours_low(p1, q1),
        _fours_low(p2, q2),
        _fours_low(p3, q3),
        _fours_high(p0, q0),
        _fours_high(p1, q1),
        _fours_high(p2, q2),
        _fours_high(p3, q3),
    )


@intrinsic  # type: ignore[untyped-decorator]
def abreast(_typing: Any, kind: Any) -> Any:
    """The same tile, all of whose vectors are computed before any is used."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        vectors = vectors_of(builder, kind, arguments[0])
        return joined(builder, kind, pinned(builder, kind, vectors))

    return kind(kind), generate
