"""In: the source of a module. Out: its mutants: the same with one small change each that a test ought to notice."""

# The operators are those of mutmut (https://github.com/boxed/mutmut), on libcst, without two kinds: changes of texts,
# and None in the place of a value, which nearly always falls over at its first use and would flatter the figure. Two
# are added for code that is chains of calls: a link left out, and a statement that only calls left out.

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

import libcst as cst
from libcst.metadata import CodePosition, MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

Operator = Callable[[Any], Iterable[cst.CSTNode]]

NOT_USED: Final = ("string", "dict_arguments", "assignment", "lambda")
"""Of mutmut's: texts, and None for a value."""
TALK: Final = ("say", "_say", "_words", "_times", "__repr__", "__str__")
"""Functions that make sentences for people begin so: nothing in them is changed, nor in what is raised or logged."""
HELD: Final = ("strict", "name", "formula", "source")
"""Keywords that check (zip), or are texts: their removal says nothing."""
_NOWHERE: Final = CodePosition(0, 0)
_SPEECHLESS: Final = (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom, cst.Raise, cst.FormattedString)


@dataclass(frozen=True)
class Mutant:
    """One change of one module.

    Attributes
    ----------
    module
        The file, as a path inside the tree.
    spot
        operator:line:column-line:column:number, unique in its module.
    code
        The whole source with the change.
    was, now
        The changed lines, stripped and joined by blanks.
    """

    module: str
    spot: str
    code: str
    was: str
    now: str


class Source:
    """A module and the places where it can be changed.

    Attributes
    ----------
    spots
        One a change, in the order of the source; `mutant` makes it.
    """

    def __init__(self, module: str, code: str) -> None:
        self.module = module
        self.code = code
        wrapper = MetadataWrapper(cst.parse_module(code))
        finder = _Finder(_imported(wrapper.module))
        wrapper.visit(finder)
        self._tree = wrapper.module
        self._changes = finder.changes
        self.spots = list(finder.changes)

    def mutant(self, spot: str) -> Mutant | None:
        """The mutant of a spot; None where the change is none to the interpreter, or no program."""
        old, new = self._changes[spot]
        changed = self._tree.deep_replace(old, new)
        assert isinstance(changed, cst.Module)
        try:
            if ast.dump(ast.parse(changed.code)) == ast.dump(ast.parse(self.code)):
                return None
            compile(changed.code, self.module, "exec")
        except SyntaxError:
            return None
        was, now = self.code.splitlines(), changed.code.splitlines()
        blocks = [
            block for block in SequenceMatcher(None, was, now, autojunk=False).get_opcodes() if block[0] != "equal"
        ]
        return Mutant(
            module=self.module,
            spot=spot,
            code=changed.code,
            was=" ".join(line.strip() for _, low, high, _, _ in blocks for line in was[low:high]),
            now=" ".join(line.strip() for _, _, _, low, high in blocks for line in now[low:high]),
        )


class _Finder(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, imported: frozenset[str]) -> None:
        super().__init__()
        self.changes: dict[str, tuple[cst.CSTNode, cst.CSTNode]] = {}
        link = _without_link(imported)
        self._operators = [*_of_mutmut(), ("link", cst.Call, link), ("statement", cst.Expr, _without_statement(link))]

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, _SPEECHLESS) or _is_talk(node):
            return False
        for name, kind, operator in self._operators:
            if isinstance(node, kind):
                place = self.get_metadata(PositionProvider, node, None)
                for number, new in enumerate(operator(node)):
                    low, high = (place.start, place.end) if place else (_NOWHERE, _NOWHERE)
                    where = f"{low.line}:{low.column}-{high.line}:{high.column}"
                    spot = f"{name}:{where}:{number}"
                    while spot in self.changes:  # signs without a place of their own, such as `is not`
                        spot += "+"
                    self.changes[spot] = (node, new)
        return True


def _of_mutmut() -> Iterator[tuple[str, type, Operator]]:
    for kind, operator in mutation_operators:
        name = operator.__name__.removeprefix("operator_")
        if name == "arg_removal":
            yield name, kind, _fewer(operator)
        elif name not in NOT_USED:
            yield name, kind, operator


def _fewer(operator: Operator) -> Operator:
    """Arguments left out; not None in their place, and not those of `HELD`."""

    def made(node: cst.Call) -> Iterator[cst.CSTNode]:
        held = [arg for arg in node.args if arg.keyword is not None and arg.keyword.value in HELD]
        for new in operator(node):
            if isinstance(new, cst.Call) and len(new.args) < len(node.args) and all(arg in new.args for arg in held):
                yield new

    return made


def _without_link(imported: frozenset[str]) -> Operator:
    """`a.f(x)` becomes `a`, unless a is a module or a class."""

    def made(node: cst.Call) -> Iterator[cst.CSTNode]:
        if isinstance(node.func, cst.Attribute):
            root: cst.BaseExpression = node.func.value
            while isinstance(root, cst.Attribute):
                root = root.value
            if not (isinstance(root, cst.Name) and root.value in imported):
                yield node.func.value

    return made


def _without_statement(link: Operator) -> Operator:
    """A statement that only calls becomes `pass`, where leaving out the link does not come to the same."""

    def made(node: cst.Expr) -> Iterator[cst.CSTNode]:
        if isinstance(node.value, cst.Call) and not list(link(node.value)):
            yield cst.Pass()

    return made


def _is_talk(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.FunctionDef):
        return node.name.value.startswith(TALK)
    if isinstance(node, cst.Arg):
        return node.keyword is not None and node.keyword.value in HELD
    if not isinstance(node, cst.Call):
        return False
    if isinstance(node.func, cst.Name):
        return node.func.value.endswith("Error")
    owner = node.func.value if isinstance(node.func, cst.Attribute) else None
    return isinstance(owner, cst.Name) and owner.value in ("log", "logging", "warnings")


def _imported(tree: cst.Module) -> frozenset[str]:
    """Names that stand for modules, classes and functions of other modules; constants of others are values."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(tree.code)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
    return frozenset(name for name in names if not name.isupper())
