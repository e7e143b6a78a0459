"""In: nothing. Out: what a formula is made of, how many bars it reaches back, and its text in one spelling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

VALUES: Final = ("open", "high", "low", "close", "volume", "bar", "session_bars")
"""Columns a formula may read, each as a number; documented in docs/features-custom.md."""
WITHIN: Final = ("session", "segment")
"""What a window may be cut at besides the symbol."""

ARITHMETIC: Final = ("+", "-", "*", "/")
COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")
FUNCTIONS: Final = {
    "ABS": (1, 1),
    "LN": (1, 1),
    "LOG10": (1, 1),
    "EXP": (1, 1),
    "SQRT": (1, 1),
    "SIGN": (1, 1),
    "POWER": (2, 2),
    "LEAST": (2, 16),
    "GREATEST": (2, 16),
    "COALESCE": (2, 16),
    "NULLIF": (2, 2),
}
"""Functions of one bar, with the fewest and the most arguments."""
WINDOWS: Final = ("AVG", "SUM", "MIN", "MAX", "STDDEV", "COUNT")
"""Functions over the last n + 1 bars."""


@dataclass(frozen=True)
class Number:
    """A number as written; None is NULL."""

    value: float | None


@dataclass(frozen=True)
class Column:
    """One of `VALUES`."""

    name: str


@dataclass(frozen=True)
class Call:
    """An operator or function of one bar: `ARITHMETIC`, `COMPARISONS`, `FUNCTIONS`, NEG, AND, OR, NOT, IS NULL."""

    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True)
class Case:
    """CASE WHEN condition THEN value … ELSE otherwise END."""

    whens: tuple[tuple[Node, Node], ...]
    otherwise: Node


@dataclass(frozen=True)
class Lag:
    """`of` as it was `bars` bars before; `within` is "" or one of `WITHIN`."""

    of: Node
    bars: int
    within: str


@dataclass(frozen=True)
class Window:
    """`name` (one of `WINDOWS`) of `of` over the present bar and the `bars` before it; `within` as in `Lag`."""

    name: str
    of: Node
    bars: int
    within: str


Node = Number | Column | Call | Case | Lag | Window
Kind = Literal["number", "truth"]


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below."""
    match node:
        case Call():
            return node.args
        case Case():
            return (*(part for pair in node.whens for part in pair), node.otherwise)
        case Lag() | Window():
            return (node.of,)
        case _:
            return ()


def kind_of(node: Node) -> Kind:
    """What the node gives for a bar."""
    truths = (*COMPARISONS, "AND", "OR", "NOT", "IS NULL")
    return "truth" if isinstance(node, Call) and node.name in truths else "number"


def reach(node: Node) -> int:
    """How many bars before the present one its value can depend on."""
    own = node.bars if isinstance(node, Lag | Window) else 0
    return own + max((reach(child) for child in children(node)), default=0)


def columns(node: Node) -> frozenset[str]:
    """The columns it reads."""
    own = {node.name} if isinstance(node, Column) else set()
    return frozenset(own.union(*(columns(child) for child in children(node))))


def size(node: Node) -> tuple[int, int]:
    """Number of nodes, and how deep they are nested."""
    below = [size(child) for child in children(node)]
    return 1 + sum(count for count, _ in below), 1 + max((deep for _, deep in below), default=0)


_BINDS: Final = {
    "OR": 1,
    "AND": 2,
    "NOT": 3,
    **dict.fromkeys((*COMPARISONS, "IS NULL"), 4),
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "NEG": 7,
}


def text_of(node: Node) -> str:
    """SQL that means the node, in one spelling: case, blanks, comments and spare brackets of the user are gone."""
    return _text(node, 0)


def _text(node: Node, outer: int) -> str:
    match node:
        case Number():
            return "NULL" if node.value is None else _number(node.value)
        case Column():
            return node.name
        case Case():
            whens = " ".join(f"WHEN {_text(when, 0)} THEN {_text(then, 0)}" for when, then in node.whens)
            return f"CASE {whens} ELSE {_text(node.otherwise, 0)} END"
        case Lag():
            return f"LAG({_text(node.of, 0)}, {node.bars}) OVER ({_cut(node.within)}ORDER BY ts)"
        case Window():
            frame = f"ROWS BETWEEN {node.bars} PRECEDING AND CURRENT ROW"
            return f"{node.name}({_text(node.of, 0)}) OVER ({_cut(node.within)}ORDER BY ts {frame})"
        case Call():
            return _call(node, outer)


def _call(node: Call, outer: int) -> str:
    binds = _BINDS.get(node.name)
    if binds is None:
        return f"{node.name}({', '.join(_text(arg, 0) for arg in node.args)})"
    if node.name == "NOT":
        text = f"NOT {_text(node.args[0], binds)}"
    elif node.name == "NEG":
        text = f"-{_text(node.args[0], binds + 1)}"
    elif node.name == "IS NULL":
        text = f"{_text(node.args[0], binds + 1)} IS NULL"
    else:
        left = binds + 1 if node.name in COMPARISONS else binds
        text = f"{_text(node.args[0], left)} {node.name} {_text(node.args[1], binds + 1)}"
    return f"({text})" if binds < outer else text


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _cut(within: str) -> str:
    return f"PARTITION BY {within} " if within else ""
