"""Formulas in plain sentences, typeset as MathML: "at least N^((D-1)/2L - 5) strings" needs no markup.

Studies write formulas as a terminal shows them. `typeset` finds them in a sentence: a single letter, a Greek letter or
its name, with the operators, numbers, brackets and functions that are joined to it. Text that cannot be parsed as a
formula stays as it is. Browsers draw MathML themselves, without a script and without external fonts.

The grammar, loosest binding first; a product may be written without a sign:

    relation   sum ((= | < | > | <= | >= | ≤ | ≥ | ≠ | ≈ | ± | →) sum)*
    sum        [-] product ((+ | -) product)*
    product    power ([/ | * | · | ×] power)*
    power      atom [_ script] [^ script] [fence], or a function with its argument
    atom       number | letter | fence
    fence      relations between brackets or bars, with commas
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from markupsafe import Markup

GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε", "epsilon": "ε", "zeta": "ζ", "eta": "η",
    "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ",
    "tau": "τ", "phi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ",
    "Lambda": "Λ", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω",
}  # fmt: skip
FUNCTIONS = {"log": "log", "ln": "ln", "exp": "exp", "max": "max", "min": "min", "sign": "sign", "grad": "∇"}
LOGARITHMS = {"log2": "2", "log10": "10"}
NAMED = ("as", "Var", "Blowup", "E", "Pr")  # quantities that are not set in italics
RELATIONS = {sign: sign for sign in "=<>≤≥≠≈±→"} | {"<=": "≤", ">=": "≥"}
SIGNS = {"+": "+", "-": "−", "−": "−"}
PRODUCTS = {"/": "/", "*": "·", "·": "·", "×": "×"}
FENCES = {"(": ")", "[": "]", "{": "}", "|": "|", "||": "||", "‖": "‖"}
RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789−")
WORDS = ("a", "A", "I")  # words of one letter
UNITS = ("s", "h", "d")  # after a number: seconds, hours, days
BREAKABLE = 48  # characters: a longer formula may be broken before a relation

_TOKEN = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e[-+−]?\d+)?)"
    r"|(?P<word>log(?:10|2)(?![A-Za-z0-9])|[A-Za-z]+|[α-ωΑ-Ω∞])"
    r"|(?P<raised>[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)"
    r"|(?P<mark><=|>=|\|\||[-−+*/^_()\[\]{}|‖<>=≤≥≠≈±→·×,√])"
    r"|(?P<prose>\S)"
)
_CITED = re.compile(r"(?:App\.|Appendix|Apps\.|Table|Class) $")  # "App. F" names no variable
_BEFORE = re.compile(r"[\w.'’^_&~/\\@#-]$")
_AFTER = re.compile(r"$|\s|[)\]}”\"]|[,.;:?!](?!\w)|[-–][A-Za-z]{2}|['’](?:s\b|\W|$)|-?th\b")


class Token(NamedTuple):
    """A piece of a sentence."""

    kind: str
    text: str
    start: int
    end: int
    spaced: bool  # whether a space stands before it


class Node(NamedTuple):
    """A part of a formula: number, letter, name, sign, relation, bracket, row, power, index or root."""

    kind: str
    text: str = ""
    parts: tuple[Node, ...] = ()


class _NoFormula(Exception):
    """Raised when the tokens do not continue a formula."""


def typeset(text: str) -> Markup:
    """The sentence as HTML, its formulas as MathML.

    >>> print(typeset("at most N^2 < 10"))
    at most <math alttext="N^2 &lt; 10"><msup><mi>N</mi><mn>2</mn></msup><mo>&lt;</mo><mn>10</mn></math>
    """
    from markupsafe import Markup, escape

    pieces, done = [], 0
    for start, end, node in formulas(text):
        pieces += [escape(text[done:start]), _elements(text[start:end], node)]
        done = end
    return Markup("").join([*pieces, escape(text[done:])])


def formulas(text: str) -> list[tuple[int, int, Node]]:
    """Start, end and parse tree of each formula in a sentence."""
    tokens = [
        Token(match.lastgroup or "prose", match[0], match.start(), match.end(), text[: match.start()][-1:].isspace())
        for match in _TOKEN.finditer(text)
    ]
    found, place = [], 0
    while place < len(tokens):
        reader = _Reader(tokens, place)
        try:
            node = reader.relation()
        except _NoFormula:
            place += 1
            continue
        start, end = tokens[place].start, tokens[reader.place - 1].end
        apart = not _BEFORE.search(text[:start]) and not _CITED.search(text[:start]) and _AFTER.match(text[end:])
        if apart and _telling(node) and not _word(tokens, place, reader.place):
            found.append((start, end, node))
            place = reader.place
        else:
            place += 1
    return found


def _telling(node: Node) -> bool:
    """Whether the formula contains more than numbers and names, which look the same in plain text."""
    return node.kind in ("letter", "power", "index", "root") or any(map(_telling, node.parts))


def _word(tokens: list[Token], first: int, end: int) -> bool:
    """Whether the tokens are only a word or a unit of one letter."""
    token = tokens[first]
    counted = first > 0 and tokens[first - 1].kind == "number" and token.spaced
    return end == first + 1 and (token.text in WORDS or (token.text in UNITS and counted))


class _Reader:
    """Reads the longest formula that begins at a token."""

    def __init__(self, tokens: list[Token], place: int) -> None:
        self.tokens, self.first, self.place = tokens, place, place
        self.bars = 0  # number of open bars; if there is one, the next bar closes it

    @property
    def ahead(self) -> Token:
        """The next token."""
        if self.place < len(self.tokens):
            return self.tokens[self.place]
        end = self.tokens[-1].end
        return Token("end", "", end, end, True)

    def take(self) -> Token:
        """Consume and return the next token."""
        token = self.ahead
        self.place += 1
        return token

    def touching(self, *marks: str) -> bool:
        """Whether one of these marks comes next, without a space before it."""
        return self.ahead.text in marks and not self.ahead.spaced

    def relation(self) -> Node:
        """Sums with relations between them."""
        return self._joined(self.sum, RELATIONS, "relation")

    def sum(self) -> Node:
        """Products with signs between them."""
        return self._joined(self.product, SIGNS, "operator")

    def _joined(self, part: Callable[[], Node], signs: dict[str, str], kind: str) -> Node:
        """Parts with signs between them; a sign has spaces on both sides or on none."""
        parts = []
        if kind == "operator" and self.ahead.text in ("-", "−"):
            self.take()
            if self.ahead.spaced:
                raise _NoFormula
            parts.append(Node("sign", "−"))
        parts.append(part())
        while self.ahead.text in signs:
            before, sign = self.place, self.take()
            try:
                if self.ahead.spaced != sign.spaced:
                    raise _NoFormula
                parts += [Node(kind, signs[sign.text]), part()]
            except _NoFormula:
                self.place = before
                break
        return _row(parts)

    def product(self) -> Node:
        """Powers side by side, or with a sign between them."""
        parts = [self.power()]
        while self.ahead.text in PRODUCTS or self._goes_on():
            before = self.place
            try:
                if self.ahead.text in PRODUCTS:
                    parts.append(Node("operator", PRODUCTS[self.take().text]))
                parts.append(self.power())
            except _NoFormula:
                self.place = before
                return _row(parts[: -1 if parts[-1].kind == "operator" else None])
        return _row(parts)

    def _goes_on(self) -> bool:
        """Whether the next token is a further factor."""
        token, last = self.ahead, self.tokens[self.place - 1]
        if token.kind == "word":
            word = token.text in WORDS[::2] or (token.text == "A" and last.kind != "word")
            unit = token.text in UNITS and token.spaced and last.kind == "number"
            article = last.text in WORDS and self.place == self.first + 1
            return not (word or unit or article)
        return token.text in ("(", "√") or (token.text in ("|", "||", "‖") and not self.bars)

    def power(self) -> Node:
        """An atom with its index, exponent and argument in brackets, or a function with its argument."""
        token = self.ahead
        if token.kind == "word" and token.text in FUNCTIONS:
            return self._function(Node("name", FUNCTIONS[self.take().text]))
        if token.kind == "word" and token.text in LOGARITHMS:
            node = Node("index", parts=(Node("name", "log"), Node("number", LOGARITHMS[self.take().text])))
            return _row([node, self._fence()]) if self.touching("(") else node
        node = self._root() if token.text in ("√", "sqrt") else self._atom()
        if self.touching("_"):
            self.take()
            node = Node("index", parts=(node, self._script()))
        node = self._raised(node)
        if token.kind == "word" and (self.touching("(") or (token.text == "E" and self.touching("["))):
            node = self._raised(_row([node, self._fence()]))
        return node

    def _raised(self, node: Node) -> Node:
        """The node with its exponent, if it has one."""
        if self.ahead.kind == "raised" and not self.ahead.spaced:
            return Node("power", parts=(node, Node("number", self.take().text.translate(RAISED))))
        if self.touching("^"):
            self.take()
            sign = [Node("sign", SIGNS[self.take().text])] if self.ahead.text in ("-", "−") else []
            exponent = self._atom() if sign else self._script(letter=True)  # after a sign the brackets are needed
            return Node("power", parts=(node, _row([*sign, exponent])))
        following = self.tokens[self.place + 1 : self.place + 2]
        if self.touching("*") and node.kind == "letter" and all(each.spaced or each.text in ",)" for each in following):
            self.take()
            return Node("power", parts=(node, Node("name", "*")))
        return node

    def _script(self, letter: bool = False) -> Node:
        """An index or exponent: an atom, or the inside of brackets; with `letter`, x^(n) keeps its brackets."""
        if self.ahead.spaced:
            raise _NoFormula
        if self.ahead.text in ("(", "{"):
            fence = self._fence()
            inside = list(fence.parts[1:-1])
            return fence if letter and [part.kind for part in inside] == ["letter"] else _row(inside)
        if self.ahead.text == "inf":
            self.take()
            return Node("name", "∞")
        return self._atom()

    def _root(self) -> Node:
        if self.take().text == "sqrt" and not self.touching("("):
            raise _NoFormula
        return Node("root", parts=(self._script(),))

    def _function(self, name: Node) -> Node:
        name = self._raised(name)
        if self.touching("("):
            return self._raised(_row([name, self._fence()]))
        argument = self.power()
        if not _telling(argument):
            raise _NoFormula  # "max 5", "log file"
        return _row([name, argument]) if name.text == "∇" else _row([name, Node("space"), argument])

    def _fence(self) -> Node:
        """Relations inside brackets or bars; a dot stands for any argument."""
        opening = self.take().text
        bar = opening == FENCES[opening]
        self.bars += bar
        if self.ahead.text in (".", "·"):
            self.take()
            parts = [Node("name", "·")]
        else:
            parts = [self.relation()]
        while self.ahead.text == ",":
            self.take()
            parts += [Node("operator", ","), self.relation()]
        if self.take().text != FENCES[opening]:
            raise _NoFormula
        self.bars -= bar
        left, right = (Node("bracket", sign.replace("||", "‖")) for sign in (opening, FENCES[opening]))
        return Node("row", parts=(left, *parts, right))

    def _atom(self) -> Node:
        token = self.ahead
        if token.text in FENCES:
            return self._fence()
        self.take()
        if token.kind == "number":
            return _number(token.text)
        if token.kind != "word":
            raise _NoFormula
        if token.text in GREEK:
            return Node("letter", GREEK[token.text])
        if len(token.text) > 1:
            named = token.text in NAMED and (token.text != "as" or self.touching("_"))
            if named or self.touching("("):
                return Node("name", token.text)
            raise _NoFormula
        if self.ahead.kind == "number" and not self.ahead.spaced:
            raise _NoFormula  # "x1" belongs to an expression
        return Node("name" if token.text in ("∞", *NAMED) and self.touching("[", "(") else "letter", token.text)


def _number(text: str) -> Node:
    """A number; one like 2e-3 with its power of ten."""
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return Node("number", text)
    sign = exponent.lstrip("+").replace("-", "−")
    power = Node("power", parts=(Node("number", "10"), Node("number", sign)))
    return power if mantissa == "1" else _row([Node("number", mantissa), Node("operator", "·"), power])


def _row(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Node("row", parts=tuple(parts))


# ---------------------------------------------------------------- MathML


def _elements(source: str, node: Node) -> Markup:
    """A formula as one element, or as several where it is long, since browsers do not break one over two lines."""
    from markupsafe import Markup

    element = Markup('<math alttext="{}">{}</math>')
    if len(source) <= BREAKABLE or node.kind != "row" or not any(part.kind == "relation" for part in node.parts):
        return element.format(source, Markup(_mathml(node)))
    groups: list[list[Node]] = [[]]
    for part in node.parts:
        if part.kind == "relation":
            groups.append([])
        groups[-1].append(part)
    return Markup(" ").join(Markup("<math>{}</math>").format(Markup("".join(map(_mathml, each)))) for each in groups)


def _mathml(node: Node) -> str:
    """The formula as MathML without the enclosing <math> element."""
    from markupsafe import escape

    parts = [_mathml(part) for part in node.parts]
    match node.kind:
        case "number":
            return f"<mn>{escape(node.text)}</mn>"
        case "letter" | "name":
            upright = ' mathvariant="normal"' if node.kind == "name" and len(node.text) == 1 else ""
            return f"<mi{upright}>{escape(node.text)}</mi>"
        case "sign":
            return f'<mo form="prefix">{escape(node.text)}</mo>'
        case "operator" if node.text == "/":
            return '<mo lspace="0" rspace="0">/</mo>'
        case "operator" | "relation":
            return f"<mo>{escape(node.text)}</mo>"
        case "bracket":
            return f'<mo stretchy="false">{escape(node.text)}</mo>'
        case "space":
            return '<mspace width="0.17em"/>'
        case "root":
            return f"<msqrt>{parts[0]}</msqrt>"
        case "power" | "index":
            tag = "msup" if node.kind == "power" else "msub"
            return f"<{tag}>{_single(node.parts[0])}{_single(node.parts[1])}</{tag}>"
        case _:
            return "".join(parts)


def _single(node: Node) -> str:
    """The formula as one element, as MathML requires for an index or exponent."""
    return f"<mrow>{_mathml(node)}</mrow>" if node.kind == "row" else _mathml(node)
