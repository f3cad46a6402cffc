"""The expression language: ``parse("maj(x1..x5) ^ x6")`` is a BooleanFunction on 6 bits.

Operators, tightest first. A chain of one operator is one gate on all its operands.

    ~a         ¬   not
    a & b      ∧   and
    a ^ b      ⊕   exclusive or
    a | b      ∨   or
    a -> b     →   implies; a -> b -> c means a -> (b -> c)
    a <-> b    ↔   equals; a <-> b <-> c means (a <-> b) <-> c

Operands are variables ``x1, x2, ...`` (x1 is position 0), the constants ``0 1 true false``, expressions in
parentheses, and calls. Upper and lower case are the same; white space separates and means nothing else.

Calls on expressions. A range ``x2..x5`` stands for the arguments x2, x3, x4, x5 and is allowed nowhere else.

    and(a, ...)  or(a, ...)  xor(a, ...)   also named conjunction, disjunction, parity
    maj(a, ...)                            more than half are 1, so a tie is 0; also named majority
    thr(k, a, ...)                         at least k are 1, 0 <= k <= arguments + 1; also named threshold
    mux(select, if0, if1)                  if1 where select is 1, if0 elsewhere
    tribes(width, a, ...)                  some group of width neighbours is all 1; a shorter rest is ignored

Calls on numbers make a function of x1..xn from the zoo (see ``functions``), which may be an operand too:
``majority(5) ^ x6`` has 6 bits. Numbers are decimal, ``0x`` or ``0b``; those given by name come last.

    parity(n)  majority(n)  first(n)  conjunction(n)  disjunction(n)  threshold(k, n)  tribes(n, width=...)
    address(k)  dictator(position, n), the first position being 1
    sparse_parity(m, n, seed=0)  sparse_majority(m, n, seed=0)
    random(n, seed=0)  random_symmetric(n, seed=0)  random_junta(m, n, seed=0)
    symmetric(v0, v1, ..., vn)             the values on strings with 0, 1, ..., n ones
    table(0x96)  table(0b0110)             bit i is the value on string i; all digits together say how many
    table(150, n=3)                        the same with n said

Which of the two a call is: with bare numbers only, it is on numbers wherever its name has that form, so
``parity(1)`` is x1; else it is on expressions, and bare 0 and 1 among them are constants. A call on constants
alone is written with ``true``, ``false`` or parentheses: ``xor(true, (1))``.

The function has as many bits as its largest variable or zoo function (at least one), or ``n`` if given. The
limits below keep every text, however written, from using up time, memory or the stack.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, NoReturn, SupportsIndex, TypeAlias

import numpy as np
from lark import Lark, ParseTree, Token, Transformer_NonRecursive, UnexpectedInput
from lark.exceptions import VisitError

from flipscope.basics.bits import pack
from flipscope.basics.errors import InputError
from flipscope.cube import structure
from flipscope.cube.functions import MAX_BITS, BooleanFunction, checked_bits
from flipscope.cube.structure import Const, Kernel, Node, Table, and_kernel, or_kernel, xor_kernel
from flipscope.cube.zoo import ZOO, at_least

MAX_TEXT = 100_000  # characters
MAX_SYMBOLS = 22_000  # names, numbers and signs; x1 ^ x2 ^ ... ^ x10000 has 20,000
MAX_NESTING = 64  # parentheses in parentheses, and gates in gates
MAX_SIZE = 20_000  # variables, with ranges and zoo functions spelled out, and _OPERATION for each gate
MAX_TABLE = 26  # all tables of an expression together have at most 2^26 values
MAX_DIGITS = 1_000  # of a decimal number, whose conversion takes quadratic time
_OPERATION = 16  # what making a gate costs, measured in variables
_WINDOW = 72  # characters of the text shown around a caret

# ---------------------------------------------------------------- names


_ZOO = {entry.name: entry for entry in ZOO if entry.build is not None}  # those called on numbers
_GATES = {entry.name: entry.gate for entry in ZOO if entry.gate is not None}  # called on expressions, any number
# The index is select + 2 * if0 + 4 * if1.
_MUX = Table(3, pack(np.array([0, 0, 1, 0, 0, 1, 1, 1], np.uint8)))

# What each function may be called with, in words.
_ON_EXPRESSIONS = dict.fromkeys(_GATES, "x1, x2, ...") | {
    "threshold": "k, x1, x2, ...",
    "tribes": "width, x1, x2, ...",
    "mux": "select, if0, if1",
}
_ON_NUMBERS = {
    name: [", ".join([*entry.required, *(f"{optional}=..." for optional in entry.optional)])]
    for name, entry in _ZOO.items()
}
_ON_NUMBERS |= {"symmetric": ["0, 1, 1, 0"], "table": ["0x96", "150, n=3"]}

_ALIASES = {entry.alias: entry.name for entry in ZOO if entry.alias is not None}
_FUNCTIONS = {*_ON_EXPRESSIONS, *_ON_NUMBERS, *_ALIASES}
_CONSTANTS = {"false": 0, "true": 1}
_KEYWORDS = {name for entry in ZOO for name in (*entry.required, *entry.optional)}
# What other languages write, and this one writes differently.
_SIGNS = {"and": "&", "or": "|", "xor": "^", "implies": "->", "iff": "<->", "=": "<->", "not": "~", "!": "~"}


def _usage(name: str) -> str:
    """How a function is called, for a message: "thr(k, x1, x2, ...) or thr(k, n)"."""
    full = _ALIASES.get(name.lower(), name.lower())
    forms = [_ON_EXPRESSIONS[full]] if full in _ON_EXPRESSIONS else []
    return " or ".join(f"{name}({form})" for form in forms + _ON_NUMBERS.get(full, []))


# ---------------------------------------------------------------- errors


class ExpressionError(InputError):
    """One sentence on what is wrong and what was expected, then the text with a caret under the place."""

    def __init__(self, sentence: str, text: str, at: int) -> None:
        super().__init__(sentence, text, at)
        self.sentence = sentence
        self.text = text
        self.at = at

    def __str__(self) -> str:
        return f"{self.sentence}\n{_with_caret(self.text, self.at)}"


def _with_caret(text: str, at: int) -> str:
    """The part of the text around a place on one line, and below it a caret under the place."""
    start = max(0, min(at - _WINDOW // 2, len(text) - _WINDOW))
    stop = min(len(text), start + _WINDOW)
    before, after = _printable(text[start:at]), _printable(text[at:stop])
    lead, trail = "…" if start else "", "…" if stop < len(text) else ""
    # East Asian wide characters take two columns of a terminal.
    columns = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in before)
    return f"  {lead}{before}{after}{trail}\n  {' ' * (len(lead) + columns)}^"


def _printable(text: str) -> str:
    """The text with every character replaced that would not fill a place of its own on the line."""

    def shown(char: str) -> str:
        if char.isspace():
            return " "
        fills = char.isprintable() and not unicodedata.category(char).startswith("M")
        return char if fills else "\N{REPLACEMENT CHARACTER}"

    return "".join(map(shown, text))


def _quoted(text: str) -> str:
    """The text in quotes, shortened when long."""
    return f"'{_printable(text if len(text) <= 24 else text[:20] + '…')}'"


def _place(token: Token) -> int:
    return token.start_pos or 0


def _word_error(text: str, token: Token) -> ExpressionError:
    """What is wrong with a name that is unknown, or known and used in the wrong way."""
    name = token.lower()
    if name in _CONSTANTS:
        sentence = f"{token} is a constant; expected an operator after it, not arguments."
    elif name in _FUNCTIONS:
        sentence = f"{token} has no arguments; expected {_usage(token)}."
    elif name in _KEYWORDS:
        sentence = f"{token} is the name of a number in a call; expected '=' and the number after it."
    elif name in _SIGNS:
        sentence = f"unknown name {_quoted(token)}; expected the sign {_SIGNS[name]} in its place."
    elif re.fullmatch(r"[a-z]?_?[0-9]*", name):
        sentence = f"unknown name {_quoted(token)}; expected a variable, written x1, x2 and so on."
    else:
        near = get_close_matches(name[:40], sorted({*_FUNCTIONS, *_CONSTANTS}), n=1)
        hint = f"perhaps {near[0]} was meant" if near else "expected a variable or a function such as maj"
        sentence = f"unknown name {_quoted(token)}; {hint}."
    return ExpressionError(sentence, text, _place(token))


# ---------------------------------------------------------------- from the text to its tree


@cache
def _parser() -> Lark:
    return Lark.open_from_package(__package__, "grammar.lark", parser="lalr", lexer="contextual")


def _read(text: str) -> ParseTree:
    """The syntax tree of a text within the limits."""
    if not text.strip():
        raise ExpressionError("the expression is empty; expected something like maj(x1, x2) ^ x3.", text, 0)
    if len(text) > MAX_TEXT:
        sentence = f"the expression has {len(text)} characters; expected at most {MAX_TEXT}."
        raise ExpressionError(sentence, text, MAX_TEXT)
    depth = 0
    for count, symbol in enumerate(re.finditer(r"[0-9A-Za-z_]+|[^\s0-9A-Za-z_]", text)):
        depth += {"(": 1, ")": -1}.get(symbol.group(), 0)
        if count == MAX_SYMBOLS:
            sentence = f"there are too many names, numbers and signs; expected at most {MAX_SYMBOLS}."
            raise ExpressionError(sentence, text, symbol.start())
        if depth > MAX_NESTING:
            sentence = f"parentheses are nested too deeply; expected at most {MAX_NESTING} levels."
            raise ExpressionError(sentence, text, symbol.start())
    try:
        return _parser().parse(text)
    except UnexpectedInput as error:
        raise _explained(text, error) from None


def _explained(text: str, error: UnexpectedInput) -> ExpressionError:
    """What is wrong with a text that the grammar refuses: the place, what is there, and what could be."""
    token = getattr(error, "token", None)
    ended = token is not None and token.type == "$END"
    at = len(text.rstrip()) if ended else error.pos_in_stream or 0
    # The offending symbol may have moved the parser on, so a second parser finds what was possible before it.
    before: Any = _parser().parse_interactive(text[:at])
    read = before.exhaust_lexer()
    accepted = before.accepts()
    if read and read[-1].type == "NAME" and read[-1].lower() not in _CONSTANTS:
        return _word_error(text, read[-1])
    if ended and "RPAR" in accepted:
        return ExpressionError("this '(' is never closed; expected a ')' for it.", text, _never_closed(text))
    if ended:
        problem = "the expression ends too early"
    else:
        problem = _refusal(text[at] if token is None else str(token), text[at:], "_AND" in accepted)
    return ExpressionError(f"{problem}; expected {_in_words(accepted)}.", text, at)


def _refusal(symbol: str, rest: str, after_operand: bool) -> str:
    """What is wrong with a symbol the grammar refuses at its place."""
    if symbol == ")" and after_operand:
        return "this ')' closes nothing"
    if symbol == "..":
        return "a range must be an argument by itself, as in maj(x1..x5)"
    if re.match(r"-\s*[0-9]", rest) and not after_operand:
        return "numbers cannot be negative"
    sign = _SIGNS.get(symbol.lower())
    if sign is not None and after_operand != (sign == "~"):
        return f"write {sign} instead of {_quoted(symbol)}"
    return f"unexpected {_quoted(symbol)}"


def _in_words(accepted: set[str]) -> str:
    """The terminals that a parser accepts, as "a, b or c"."""
    words = []
    if "NOT" in accepted:
        words += ["a variable like x1", "a function like maj(x1, x2, x3)", "a number", "'('", "'~'"]
    elif "VARIABLE" in accepted:
        words.append("a variable like x5")
    elif "NUMBER" in accepted:
        words.append("a number from 0 on")
    if "_AND" in accepted:
        words.append("an operator (& ^ | -> <->)")
    names = {"_RANGE": "'..'", "COMMA": "','", "RPAR": "')'", "$END": "the end"}
    words += [word for terminal, word in names.items() if terminal in accepted]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _never_closed(text: str) -> int:
    """Where the innermost parenthesis that is never closed stands."""
    opened: list[int] = []
    for sign in re.finditer(r"[()]", text):
        if sign.group() == "(":
            opened.append(sign.start())
        else:
            opened.pop()
    return opened[-1]


# ---------------------------------------------------------------- from the tree to the function


@dataclass(frozen=True)
class _Operand:
    """A part of the expression that is a function, and where it starts."""

    node: Node
    at: int


@dataclass(frozen=True)
class _Number:
    """A bare number, which may turn out to be a constant or the argument of a zoo function."""

    token: Token
    at: int


@dataclass(frozen=True)
class _Range:
    """The variables at these positions, as arguments."""

    positions: range
    at: int


@dataclass(frozen=True)
class _Keyword:
    """A number given by name."""

    name: str
    number: _Number
    at: int


_Argument: TypeAlias = _Operand | _Number | _Range | _Keyword


class _Builder(Transformer_NonRecursive[Token, Any]):
    """Makes the function of a tree, leaves first: a method for each rule of the grammar, then helpers."""

    def __init__(self, text: str) -> None:
        super().__init__(visit_tokens=False)
        self.text = text
        self.bits = 0  # needed so far
        self.widest = 0  # and the place that needs them
        self.size = 0
        self.table_values = 0

    def variable(self, children: list[Token]) -> _Operand:
        position, at = self.position(children[0]), _place(children[0])
        self.use(position + 1, 1, at)
        return _Operand(structure.variable(position), at)

    def number(self, children: list[Token]) -> _Number:
        return _Number(children[0], _place(children[0]))

    def word(self, children: list[Token]) -> _Operand:
        token = children[0]
        if token.lower() not in _CONSTANTS:
            raise _word_error(self.text, token)
        return _Operand(Const(_CONSTANTS[token.lower()]), _place(token))

    def group(self, children: list[_Argument]) -> _Operand:
        return self.operand(children[0])

    def negated(self, children: list[Any]) -> _Operand:
        *signs, argument = children
        node = self.operand(argument).node
        return _Operand(structure.negate(node) if len(signs) % 2 else node, _place(signs[0]))

    def conjunction(self, children: list[_Argument]) -> _Operand:
        return self.gate(and_kernel(len(children)), children)

    def disjunction(self, children: list[_Argument]) -> _Operand:
        return self.gate(or_kernel(len(children)), children)

    def exclusive(self, children: list[_Argument]) -> _Operand:
        return self.gate(xor_kernel(len(children)), children)

    def implication(self, children: list[_Argument]) -> _Operand:
        # a -> (b -> c) is ~a | ~b | c, so a chain of any length is one gate.
        *premises, conclusion = map(self.operand, children)
        parts = [_Operand(structure.negate(premise.node), premise.at) for premise in premises]
        return self.gate(or_kernel(len(children)), [*parts, conclusion])

    def equivalence(self, children: list[_Argument]) -> _Operand:
        # Every <-> is an exclusive or and a negation, and the negations of a chain add up.
        kernel = xor_kernel(len(children))
        return self.gate(kernel if len(children) % 2 else kernel.negated(), children)

    def span(self, children: list[Token]) -> _Range:
        low, high = map(self.position, children)
        at = _place(children[0])
        if low > high:
            span = _quoted("..".join(children))
            self.fail(f"the range {span} runs down; expected its smaller end first.", at)
        self.use(high + 1, high - low + 1, at)
        return _Range(range(low, high + 1), at)

    def keyword(self, children: list[Token]) -> _Keyword:
        return _Keyword(children[0].lower(), self.number(children[1:]), _place(children[0]))

    def call(self, children: list[Any]) -> _Operand:
        token: Token = children[0]
        arguments: list[_Argument] = children[1:]
        name = _ALIASES.get(token.lower(), token.lower())
        if name not in _FUNCTIONS or not arguments:
            raise _word_error(self.text, token)
        keywords = [argument for argument in arguments if isinstance(argument, _Keyword)]
        numbers = [argument for argument in arguments if isinstance(argument, _Number)]
        others = [argument for argument in arguments if isinstance(argument, (_Operand, _Range))]
        if name in _ON_EXPRESSIONS and (others or name not in _ON_NUMBERS):
            if keywords:
                problem = f"{token} takes no {_quoted(keywords[0].name)} with expressions"
                self.fail(f"{problem}; expected {token}({_ON_EXPRESSIONS[name]}).", keywords[0].at)
            return self.call_on_expressions(name, token, arguments)
        if others:
            self.fail(f"{token} takes numbers, not expressions; expected {_usage(token)}.", others[0].at)
        if keywords and isinstance(arguments[-1], _Number):
            self.fail("numbers given by name come last; expected a name for this one too.", arguments[-1].at)
        return self.call_on_numbers(name, token, numbers, keywords)

    def call_on_expressions(self, name: str, token: Token, arguments: list[_Argument]) -> _Operand:
        at = _place(token)
        if name in _GATES:
            operands = self.operands(arguments)
            return self.gate(_GATES[name](len(operands)), operands, at)
        if name == "mux":
            operands = self.operands(arguments)
            if len(operands) != 3:
                self.fail(f"{token} has {len(operands)} arguments; expected three, {_usage(token)}.", at)
            return self.gate(_MUX, operands, at)
        size, *rest = arguments
        if not isinstance(size, _Number):
            self.fail(f"{token} needs a number first; expected {token}({_ON_EXPRESSIONS[name]}).", size.at)
        operands = self.operands(rest)
        if name == "threshold":
            ones = self.integer(size, 0, len(operands) + 1, f"the threshold of {token}")
            return self.gate(at_least(ones, len(operands)), operands, at)
        width = self.integer(size, 1, len(operands), f"the width of {token}")
        starts = range(0, len(operands) - width + 1, width)
        groups = [self.gate(and_kernel(width), operands[start : start + width], at) for start in starts]
        return self.gate(or_kernel(len(groups)), groups, at)

    def call_on_numbers(self, name: str, token: Token, numbers: list[_Number], keywords: list[_Keyword]) -> _Operand:
        at = _place(token)
        if name == "symmetric":
            self.bind(token, numbers, keywords, [str(place) for place in range(len(numbers))], 0)
            values = [self.integer(number, 0, 1, f"a value of {token}") for number in numbers]
            return self.embed(lambda: BooleanFunction.symmetric(values), at)
        if name == "table":
            return self.table(token, self.bind(token, numbers, keywords, ["the table", "n"], 1))
        zoo = _ZOO[name]
        given = self.bind(token, numbers, keywords, [*zoo.required, *zoo.optional], len(zoo.required))
        most = 2**63 - 1
        chosen = {key: self.integer(number, 0, most, f"{key} of {token}") for key, number in given.items()}
        build = zoo.build
        assert build is not None  # `_ZOO` has no others
        return self.embed(lambda: build(**chosen), at)

    def table(self, token: Token, given: dict[str, _Number]) -> _Operand:
        literal = given["the table"]
        if "n" in given:
            n = self.integer(given["n"], 1, MAX_TABLE, f"n of {token}")
        else:
            values = {"0x": 4, "0b": 1}.get(literal.token[:2].lower(), 0) * (len(literal.token) - 2)
            if values < 2 or values & (values - 1):
                problem = f"the digits of {_quoted(literal.token)} do not say the number of bits"
                self.fail(f"{problem}; expected n as well, as in table(150, n=3).", literal.at)
            n = values.bit_length() - 1
        self.table_values += 1 << n
        if self.table_values > 1 << MAX_TABLE:
            self.fail(f"the tables are too large; expected at most 2^{MAX_TABLE} values in all.", literal.at)
        table = self.integer(literal)
        return self.embed(lambda: BooleanFunction.from_table(table, n), literal.at)

    def fail(self, sentence: str, at: int) -> NoReturn:
        raise ExpressionError(sentence, self.text, at)

    def use(self, bits: int, size: int, at: int) -> None:
        """Count what a part of the expression adds: the bits it reaches up to, and its size."""
        self.size += size
        if self.size > MAX_SIZE:
            limit = f"at most {MAX_SIZE} variables, an operation counting as {_OPERATION}"
            self.fail(f"the expression is too large; expected {limit}.", at)
        if bits > self.bits:
            self.bits, self.widest = bits, at

    def position(self, token: Token) -> int:
        digits = token[1:].lstrip("0")
        if not digits:
            self.fail(f"there is no variable {_quoted(token)}; variables start at x1.", _place(token))
        if len(digits) > len(str(MAX_BITS)) or int(digits) > MAX_BITS:
            self.fail(f"there is no variable {_quoted(token)}; expected x1 to x{MAX_BITS}.", _place(token))
        return int(digits) - 1

    def integer(self, number: _Number, low: int = 0, high: int | None = None, what: str = "") -> int:
        """The value of a number, within bounds if they are given."""
        token = number.token
        if token[:2].lower() in ("0x", "0b"):
            value = int(token, 0)
        elif len(token) > MAX_DIGITS:
            self.fail(f"the number is too long; expected at most {MAX_DIGITS} decimal digits.", number.at)
        else:
            value = int(token)
        if high is not None and not low <= value <= high:
            self.fail(f"{what} is {_quoted(token)}; expected a number from {low} to {high}.", number.at)
        return value

    def operand(self, argument: _Argument) -> _Operand:
        """The function that an argument is; a bare number is a constant."""
        if isinstance(argument, _Operand):
            return argument
        assert isinstance(argument, _Number)  # the grammar keeps ranges and keywords inside calls
        value = self.integer(argument)
        if value > 1:
            self.fail(f"{_quoted(argument.token)} is not a constant; expected 0 or 1.", argument.at)
        return _Operand(Const(value), argument.at)

    def operands(self, arguments: Sequence[_Argument]) -> list[_Operand]:
        """The functions that arguments are, ranges spelled out."""
        spelled: list[_Operand] = []
        for argument in arguments:
            if isinstance(argument, _Range):
                spelled += (_Operand(structure.variable(i), argument.at) for i in argument.positions)
            else:
                spelled.append(self.operand(argument))
        return spelled

    def gate(self, kernel: Kernel, arguments: Sequence[_Argument], at: int | None = None) -> _Operand:
        """The kernel applied to the arguments."""
        operands = [self.operand(argument) for argument in arguments]
        place = operands[0].at if at is None else at
        self.use(0, _OPERATION, place)
        node = structure.apply(kernel, [operand.node for operand in operands])
        if node.depth > MAX_NESTING:
            self.fail(f"operations are nested too deeply; expected at most {MAX_NESTING} levels.", place)
        return _Operand(node, place)

    def bind(
        self, token: Token, numbers: list[_Number], keywords: list[_Keyword], names: list[str], required: int
    ) -> dict[str, _Number]:
        """The numbers of a call by parameter name; the first ``required`` names must be given."""
        if len(numbers) > len(names):
            self.fail(f"{token} has too many numbers; expected {_usage(token)}.", numbers[len(names)].at)
        given = dict(zip(names, numbers, strict=False))
        for keyword in keywords:
            if keyword.name not in names:
                problem = f"{token} has no argument {_quoted(keyword.name)}"
                self.fail(f"{problem}; expected {_usage(token)}.", keyword.at)
            if keyword.name in given:
                self.fail(f"{keyword.name} is given twice; expected {_usage(token)}.", keyword.at)
            given[keyword.name] = keyword.number
        for name in names[:required]:
            if name not in given:
                self.fail(f"{token} lacks {name}; expected {_usage(token)}.", _place(token))
        return given

    def embed(self, build: Callable[[], BooleanFunction], at: int) -> _Operand:
        """A zoo function as a part of the expression."""
        try:
            function = build()
        except InputError as error:
            self.fail(str(error), at)
        # A constant is made from as many variables as any other function.
        self.use(function.n, _OPERATION + (len(function.support) or function.n), at)
        return _Operand(function.node, at)


def parse(text: str, n: SupportsIndex | None = None) -> BooleanFunction:
    """The function that ``text`` describes, on ``n`` bits or on as many as it needs.

    The language is that of the module's docstring; what it does not understand is an InputError that shows the place.

    >>> f = parse("maj(x1..x3) ^ x4")
    >>> f.n, f([[1, 1, 0, 0], [1, 1, 0, 1]]).tolist()
    (4, [1, 0])
    """
    if not isinstance(text, str):
        raise InputError(f"an expression is a string such as 'x1 ^ x2', not a {type(text).__name__}.")
    size = None if n is None else checked_bits(n)
    builder = _Builder(text)
    try:
        whole = builder.operand(builder.transform(_read(text)))
    except VisitError as error:
        raise error.orig_exc from None
    if size is not None and size < builder.bits:
        builder.fail(f"n = {size} is too small; this needs {builder.bits} bits.", builder.widest)
    return BooleanFunction(size or max(1, builder.bits), whole.node)
