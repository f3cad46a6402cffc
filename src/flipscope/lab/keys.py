"""The key of a stored result, and the digest of the code that measured it.

A key is made of the study's name, the content of the trial, the study's `revision`, and its measuring code: `measure`,
the methods of trials that it uses, and all that these reach by name inside the file of the study's class. The code is
compared by what it computes. Comments, docstrings, annotations, layout, the texts of errors, and the names of
parameters, locals and definitions of the file do not count, nor does what `measure` does not reach, such as claims and
figures. What is imported counts by the name that it has where it comes from: another function in its place makes
another key, and moving its module does not.

So an edit of a study changes its keys, and no refactoring of imported code loses a result. If imported code gives other
numbers, golden numbers detect this (tests/studies/golden), and the study's `revision` is raised. Data files and names
composed at run time are not covered.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.lab.study import Study, Trial, digest

_PARSING = threading.Lock()  # Python 3.11 cannot parse in two threads of a worker at once
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_NO_CODE = frozenset({"ctx", "kind", "type_comment", "returns"})  # fields of syntax trees that compute nothing

Statements = list[ast.stmt]
Shape = list[Any]  # a piece of code as nested lists of what counts


def trial_key(study: Study, trial: Trial, code: str | None = None) -> str:
    """The key under which a result is stored."""
    return digest({"study": study.name, "trial": trial.hash, "code": code or code_version(study)})


def code_version(study: Study) -> str:
    """The study's revision and the digest of its measuring code, such as "1-3f9c…"."""
    return f"{study.revision}-{measuring_code(type(study))}"


def revision_of(code: str) -> int | None:
    """The revision of the study in a result of `code_version`; None for other texts.

    >>> revision_of("2-3f9c"), revision_of("3f9c")
    (2, None)
    """
    number, dash, _ = code.partition("-")
    return int(number) if dash and number.isdecimal() else None


def older_revisions(study: Study, codes: Mapping[str, int]) -> list[str]:
    """A sentence for each older revision of the study with stored results; `codes` counts results by their code."""
    counts: dict[int, int] = {}
    for code, count in codes.items():
        revision = revision_of(code)
        if revision is not None and revision < study.revision:
            counts[revision] = counts.get(revision, 0) + count
    return [
        f"{count:,} stored results of {study.name} are of its revision {revision}, which is now {study.revision}: "
        "no table, claim or figure uses them."
        for revision, count in sorted(counts.items())
    ]


@functools.cache
def measuring_code(kind: type[Study]) -> str:
    """SHA-256 of the measuring code of a class of studies."""
    reach = _Reach(_File(kind.__module__))
    if not isinstance(reach.file.top.get(kind.__qualname__, [None])[-1], ast.ClassDef):
        raise InputError(f"the study class {kind.__qualname__} must stand at the top of its module {kind.__module__}")
    for name in _first_members(kind, reach.file):
        reach.member(kind, name)
    return digest({"code": reach.shapes()})


@functools.cache
def definition_code(module: str, name: str) -> str:
    """SHA-256 of the code of one definition of a module, and of what it reaches inside the same file."""
    reach = _Reach(_File(module))
    if name in reach.file.top:
        reach.definition(name)
    return digest({"code": reach.shapes()})


@functools.cache
def sources_digest(package: str) -> str:
    """SHA-256 of all Python sources of a package or module: equal on two machines only if they have the same code."""
    spec = importlib.util.find_spec(package)
    folders = [Path(folder) for folder in (spec.submodule_search_locations or () if spec is not None else ())]
    files = {path.relative_to(folder).as_posix(): path for folder in folders for path in folder.rglob("*.py")}
    if spec is not None and not folders and spec.origin is not None:
        files = {"": Path(spec.origin)}
    return digest({name: hashlib.sha256(path.read_text("utf-8").encode()).hexdigest() for name, path in files.items()})


def _first_members(kind: type[Study], file: _File) -> list[str]:
    """The members of a study from which measuring starts."""
    bases = [base for base in kind.__mro__ if issubclass(base, Study) and base is not Study]
    if all(base.__module__ == file.module for base in bases):
        return ["measure"]
    # A base class in another file may use any member; other members declared by Study do not affect results.
    declared = {*vars(Study), *inspect.get_annotations(Study)} - {"measure"}
    return [name for name in file.members(kind) if name not in declared]


class _File:
    """A source file: the statements that bind each name at its top, its imports, and what it does when loaded."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.values = vars(importlib.import_module(module))
        self.top: dict[str, Statements] = {}
        self.imports: dict[str, str] = {}
        self.effects: Statements = []
        for statement in _parsed(module).body:
            imports = _imported(statement)
            self.imports |= imports
            names = [] if imports else list(dict.fromkeys(_bound(statement)))
            for name in names:
                self.top.setdefault(name, []).append(statement)
            # A decorator of this file may register its function in a table, which no name reveals.
            decorators = [_free(each, frozenset()) for each in getattr(statement, "decorator_list", ())]
            entered = any(name in self.top for each in decorators for name in each)
            if entered or not (names or imports or _is_inert(statement)):
                self.effects.append(statement)

    def members(self, kind: type) -> dict[str, Statements]:
        """The names bound by a class and its bases in this file, each with all statements that bind it."""
        found: dict[str, Statements] = {}
        for base in kind.__mro__:
            node = self.top.get(base.__qualname__, [None])[-1] if base.__module__ == self.module else None
            for statement in node.body if isinstance(node, ast.ClassDef) else ():
                for name in _bound(statement):
                    found.setdefault(name, []).append(statement)
        return found

    def trials(self) -> list[type[Trial]]:
        """The classes of trials that are defined here."""
        kinds = [value for value in self.values.values() if isinstance(value, type) and issubclass(value, Trial)]
        return [kind for kind in dict.fromkeys(kinds) if kind.__module__ == self.module]

    def study(self, name: str) -> type[Study] | None:
        """The class of studies, defined here, that a name stands for: itself or an object of it."""
        value = self.values.get(name)
        kind = value if isinstance(value, type) else type(value)
        return kind if issubclass(kind, Study) and kind.__module__ == self.module else None


class _Reach:
    """The code that is reached from some definitions of a file, in the order in which it is found."""

    def __init__(self, file: _File) -> None:
        self.file = file
        self._numbers: dict[tuple[str, ...], int] = {}
        self._queue: deque[tuple[Shape, Statements, type[Study] | None]] = deque()
        self._own: type[Study] | None = None  # the class of studies whose member is being read
        self._locals: dict[str, int] = {}  # of the statement that is being read
        self._root: ast.stmt = ast.Pass()  # that statement
        self._in_error = False  # whether an error is being raised in it
        self._trials = {kind: file.members(kind) for kind in file.trials()}

    def shapes(self) -> Shape:
        """The shape of all that is reached."""
        found: Shape = [self._statement(effect) for effect in self.file.effects]
        for kind, members in self._trials.items():
            for name in filter(re.compile("__.*__").fullmatch, members):  # Python calls these without a name
                self._method(kind, name)
        while self._queue:
            title, statements, self._own = self._queue.popleft()
            found.append([title, *map(self._statement, statements)])
        return found

    def definition(self, name: str) -> Shape:
        """A definition at the top of the file."""
        return self._reached(("", name), self.file.top[name])

    def member(self, kind: type[Study], name: str) -> Shape:
        """A member of a study; by its name where it is not defined in the file."""
        statements = self.file.members(kind).get(name)
        return ["name", name] if statements is None else self._reached((kind.__qualname__, name), statements, own=kind)

    def _reached(
        self, place: tuple[str, ...], statements: Statements, title: Shape | None = None, own: type[Study] | None = None
    ) -> Shape:
        """Put statements in the queue, the first time; they are known by their number unless they have a title."""
        new = place not in self._numbers
        number = self._numbers.setdefault(place, len(self._numbers))
        shape = title or ["defined", number]
        if new:
            self._queue.append((shape, statements, own))
        return shape

    def _method(self, kind: type[Trial], name: str) -> None:
        """A method, property or constant of a class of trials."""
        own = [each for each in self._trials[kind].get(name, ()) if not _is_field(each)]
        if own:
            self._reached(("trial", kind.__qualname__, name), own, ["method", kind.tag, name])

    def _trial(self, kind: type[Trial]) -> Shape:
        """A class of trials, by its tag. Code that names it may make one: the defaults of its fields count then."""
        members = self._trials.get(kind, {})
        fields = [each for statements in members.values() for each in statements if _is_field(each)]
        return self._reached(("trial", kind.__qualname__), fields, ["trial", kind.tag])

    def _statement(self, node: ast.stmt) -> Shape:
        """The shape of a whole statement, in which locals are numbered and what it binds itself has no name."""
        self._locals = dict.fromkeys(_locals(node), -1)
        self._root = node
        shape: Shape = self._shape(node)
        return shape

    def _name(self, name: str) -> Shape:
        """The shape of what a name refers to."""
        if name in self._locals:
            if self._locals[name] < 0:
                self._locals[name] = max(self._locals.values()) + 1
            return ["local", self._locals[name]]
        if self._own is not None and not isinstance(self._root, _FUNCTIONS) and name in _bound(self._root):
            return self.member(self._own, name)
        value = self.file.values.get(name)
        if isinstance(value, type) and issubclass(value, Trial) and value is not Trial:
            return self._trial(value)
        if self.file.study(name) is not None:
            return ["study"]
        return self.definition(name) if name in self.file.top else ["name", self.file.imports.get(name, name)]

    def _study(self, node: ast.expr) -> type[Study] | None:
        """The class of studies that an expression stands for: `self`, `cls`, the class, or its object."""
        if not isinstance(node, ast.Name):
            return None
        local = node.id in self._locals
        return (self._own if node.id in ("self", "cls") else None) if local else self.file.study(node.id)

    def _parameters(self, function: ast.expr) -> dict[str | None, int]:
        """The places of a function's parameters by name, where it is defined in the file."""
        found: Statements = []
        if isinstance(function, ast.Name) and function.id not in self._locals:
            found = self.file.top.get(function.id, [])
        elif isinstance(function, ast.Attribute) and (kind := self._study(function.value)) is not None:
            found = self.file.members(kind).get(function.attr, [])
        match found:
            case [ast.FunctionDef(args=args)]:
                return {each.arg: at for at, each in enumerate([*args.posonlyargs, *args.args, *args.kwonlyargs])}
        return {}

    def _shape(self, node: Any) -> Any:
        """The part of a syntax tree that counts for the key."""
        match node:
            case list():
                return [self._shape(each) for each in node if not self._computes_nothing(each)]
            case ast.Constant(value=value):
                return ["text"] if self._in_error and isinstance(value, str) else self._constant(value)
            case ast.JoinedStr() if self._in_error:
                return ["text"]
            case ast.Name(id=name) | ast.arg(arg=name):
                return self._name(name)
            case ast.Attribute(value=value, attr=name):
                for kind in self._trials:
                    self._method(kind, name)
                if (study := self._study(value)) is not None:
                    return ["member", self.member(study, name)]
                return ["attribute", self._shape(value), name]
            case ast.Call(func=function, args=arguments, keywords=keywords):
                places = self._parameters(function)
                named = [[places.get(each.arg, each.arg), self._shape(each.value)] for each in keywords]
                return ["Call", self._shape(function), self._shape(arguments), named]
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                return ["Import", [[self._shape(_binds(each)), _own_name(each)] for each in names]]
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return self._shape(ast.Assign([target], value))
            case ast.Assert(test=test):
                return ["Assert", self._shape(test)]
            case ast.AST():
                self._in_error |= isinstance(node, ast.Raise)
                nameless = _NO_CODE | {"name"} if node is self._root else _NO_CODE
                fields = [(name, value) for name, value in ast.iter_fields(node) if value and name not in nameless]
                shape = [type(node).__name__, *([name, self._shape(value)] for name, value in fields)]
                self._in_error &= not isinstance(node, ast.Raise)
                return shape
            case str():  # a name that is bound without a node of its own, such as that of a function or an exception
                return self._name(node) if node in self._locals else node
        return node

    def _computes_nothing(self, node: object) -> bool:
        """Whether a statement is `pass`, a docstring, or the annotation of a local that gets no value."""
        match node:
            case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                return True
            case ast.AnnAssign(target=ast.Name(id=name), value=None):
                return name in self._locals
        return False

    def _constant(self, value: object) -> Shape:
        if isinstance(value, str):
            module, _, name = value.partition(":")  # as the recipe of a training names a definition
            if module == self.file.module and name in self.file.top:
                self.definition(name)
        return [type(value).__name__, repr(value)]


def _parsed(module: str) -> ast.Module:
    """The syntax tree of a module."""
    file = getattr(sys.modules[module], "__file__", None)
    if file is None or not file.endswith(".py"):
        raise InputError(f"the source of the module {module} cannot be read, so the version of its code is not known")
    with _PARSING:
        return ast.parse(Path(file).read_text("utf-8"))


def _is_inert(statement: ast.stmt) -> bool:
    """Whether loading a module does nothing here: a docstring, or what is for the command line only."""
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return True
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
    return False


def _is_field(statement: ast.stmt) -> bool:
    """Whether a statement of a class of trials declares a field, which is part of a trial's content."""
    return isinstance(statement, ast.AnnAssign) and "ClassVar" not in ast.unparse(statement.annotation)


def _imported(statement: ast.stmt) -> dict[str, str]:
    """The names that an import binds, each with the name that its object has where it comes from."""
    names = statement.names if isinstance(statement, ast.Import | ast.ImportFrom) else ()
    return {each.asname or each.name.partition(".")[0]: _own_name(each) for each in names}


def _own_name(alias: ast.alias) -> str:
    """What is imported, by its own name: b of `import a.b as c`, and a of `import a.b`, which binds a."""
    return alias.name.rpartition(".")[2] if alias.asname else alias.name.partition(".")[0]


def _binds(node: ast.AST) -> str | None:
    """The name that a node of a syntax tree binds by itself."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
        case ast.MatchMapping(rest=name):
            return name
        case ast.alias(name=name, asname=own):
            return own or name.partition(".")[0]
    return None


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a piece of code binds in the scope that it stands in."""
    if (name := _binds(node)) is not None:
        yield name
    if isinstance(node, _FUNCTIONS | ast.Lambda | ast.ClassDef):
        return
    # The variable of a comprehension is bound inside it alone.
    inner = [node.iter, *node.ifs] if isinstance(node, ast.comprehension) else ast.iter_child_nodes(node)
    for child in inner:
        yield from _bound(child)


def _locals(statement: ast.stmt) -> set[str]:
    """The names in a statement that are bound by a function or comprehension wherever they are mentioned."""
    bound = {name for node in ast.walk(statement) if (name := _binds(node)) is not None}
    return bound - set(_free(statement, frozenset()))


def _free(node: ast.AST, bound: frozenset[str]) -> Iterator[str]:
    """The names in a piece of code that no function or comprehension binds; those of a class are attributes."""
    name = node.id if isinstance(node, ast.Name) else _binds(node)
    if name is not None and name not in bound:
        yield name
    inner: list[ast.AST] = list(ast.iter_child_nodes(node))
    own: set[str] = set()
    match node:
        case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args) | ast.Lambda(args=args):
            inner = list(node.body) if isinstance(node.body, list) else [node.body]
            own = {each.arg for each in ast.walk(args) if isinstance(each, ast.arg)}
            own |= {name for each in inner for name in _bound(each)}
            own -= {name for each in ast.walk(node) if isinstance(each, ast.Global) for name in each.names}
            outer = [*args.defaults, *args.kw_defaults, *getattr(node, "decorator_list", ())]
            yield from (name for each in outer if each is not None for name in _free(each, bound))
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            own = {name for each in node.generators for name in _bound(each.target)}
            yield from _free(node.generators[0].iter, bound)
    for child in inner:
        yield from _free(child, bound | own)
