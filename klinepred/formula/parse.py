"""In: the text of a formula. Out: its tree; what could read the future, the whole series or the world is refused."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from klinepred.errors import ConfigError
from klinepred.formula.expression import read_expression, sql_text, too_large
from klinepred.formula.fault import OVER, PAST, FormulaError, refuse
from klinepred.formula.leaves import column_of, number_of
from klinepred.formula.spans import span_of
from klinepred.formula.tree import (
    FUNCTIONS,
    VALUES,
    WINDOWS,
    Call,
    Case,
    Column,
    Kind,
    Lag,
    Node,
    Number,
    Window,
    columns,
    kind_of,
    reach,
    size,
)

MOST_NODES: Final = 200
MOST_DEPTH: Final = 64
MOST_REPEATED: Final = 20
MOST_BARS: Final = 5000
"""Bars a formula may look back over; a window of 24/7 trading of more than two weeks."""


def parse_formula(text: str, *, where: str) -> Node:
    """Read a formula.

    Parameters
    ----------
    text
        One SQL expression over the bars of one symbol in time order; see docs/features-custom.md.
    where
        What the message of an error begins with, such as `pipeline my: features.custom.custom__spread`.

    Raises
    ------
    ConfigError
        It is no such expression; the message names the construct at fault.
    """
    try:
        return _checked(_node(read_expression(text)))
    except FormulaError as fault:
        raise ConfigError(where, expected=fault.expected, got=fault.got, do=fault.do) from fault
    except RecursionError as error:
        raise ConfigError(where, expected="a formula", got="one nested too deeply", do="shorten it") from error


def _checked(node: Node) -> Node:
    count, depth = size(node)
    if count > MOST_NODES or depth > MOST_DEPTH:
        raise too_large(
            f"{count} operations and values, nested {depth} deep", f"{MOST_NODES} of them, {MOST_DEPTH} deep"
        )
    if reach(node) > MOST_BARS:
        raise FormulaError(
            expected=f"at most {MOST_BARS} bars of lookback, LAGs and windows inside one another added up",
            got=f"{reach(node)} bars",
            do="use shorter windows",
        )
    if not columns(node):
        raise FormulaError(expected="at least one column", got="a constant", do=f"use one of {', '.join(VALUES)}")
    return _of(node, "number")


def _node(sql: exp.Expression) -> Node:
    """The tree of one expression; every part of it that is not understood is refused."""
    match sql:
        case exp.Paren():
            return _node(sql.this)
        case exp.Literal():
            return number_of(sql)
        case exp.Null():
            return Number(None)
        case exp.Column():
            return column_of(sql)
        case exp.Case():
            return _case(sql)
        case exp.Between():
            return _between(sql)
        case exp.Is():
            return _is_null(sql)
        case exp.Window() | exp.Lag() | exp.Lead():
            return _over(sql)
        case exp.Log():
            return _log(sql)
    name = _name(sql)
    if type(sql) in _OPERATORS:
        _only(sql, "this", "expression")
        word, takes = _OPERATORS[type(sql)]
        parts = [sql.this] if sql.args.get("expression") is None else [sql.this, sql.expression]
        return Call(word, tuple(_of(_node(part), takes) for part in parts))
    if name in FUNCTIONS:
        return _function(sql, name)
    if isinstance(sql, exp.AggFunc) and name in (*WINDOWS, "STDDEVSAMP"):
        if sql.expressions and name in ("MIN", "MAX"):
            raise FormulaError(
                expected=f"{name}(x) over a window, or LEAST and GREATEST of several values",
                got=sql_text(sql),
                do="write LEAST(…) or GREATEST(…)",
            )
        raise FormulaError(
            expected=PAST,
            got=f"{sql_text(sql)} without OVER: {name} of all bars, later ones too",
            do=f"write {sql_text(sql)} {OVER}",
        )
    raise refuse(name, got=sql_text(sql))


_OPERATORS: Final[dict[type[exp.Expression], tuple[str, Kind]]] = {
    exp.Add: ("+", "number"),
    exp.Sub: ("-", "number"),
    exp.Mul: ("*", "number"),
    exp.Div: ("/", "number"),
    exp.Neg: ("NEG", "number"),
    exp.EQ: ("=", "number"),
    exp.NEQ: ("<>", "number"),
    exp.LT: ("<", "number"),
    exp.LTE: ("<=", "number"),
    exp.GT: (">", "number"),
    exp.GTE: (">=", "number"),
    exp.And: ("AND", "truth"),
    exp.Or: ("OR", "truth"),
    exp.Not: ("NOT", "truth"),
}


def _function(sql: exp.Expression, name: str) -> Node:
    _only(sql, "this", "expression", "expressions", "ignore_nulls")
    parts = [sql.this, sql.args.get("expression"), *sql.expressions]
    args = tuple(_of(_node(part), "number") for part in parts if part is not None)
    fewest, most = FUNCTIONS[name]
    if not fewest <= len(args) <= most:
        takes = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        raise FormulaError(
            expected=f"{takes} argument{'s' if most > 1 else ''} in {name}",
            got=f"{len(args)}: {sql_text(sql)}",
            do="add or remove some",
        )
    return Call(name, args)


def _log(sql: exp.Log) -> Node:
    """LOG10(x), LOG(x, base) as polars has it, LOG(base, x) as others do: the base is the one that is a number."""
    parts = [_of(_node(part), "number") for part in (sql.this, sql.args.get("expression")) if part is not None]
    bases = [part.value for part in parts if isinstance(part, Number) and part.value]
    values = [part for part in parts if not isinstance(part, Number)]
    if len(bases) != 1 or len(values) != 1 or bases[0] <= 1.0:
        raise refuse("LOG", got=sql_text(sql))
    return Call("LOG10", (values[0],)) if bases[0] == 10 else Call("/", (Call("LN", (values[0],)), _ln(bases[0])))


def _ln(base: float) -> Node:
    return Call("LN", (Number(base),))


def _over(sql: exp.Expression) -> Node:
    """LAG, or a function over a window; LAG alone stands for LAG … OVER (ORDER BY ts)."""
    over = sql if isinstance(sql, exp.Window) else None
    inner: exp.Expression = sql.this if over is not None else sql
    name = _name(inner)
    if isinstance(inner, exp.IgnoreNulls | exp.RespectNulls | exp.Filter | exp.WithinGroup):
        raise FormulaError(expected="a function with OVER and nothing between", got=sql_text(sql), do="use CASE WHEN")
    if isinstance(inner, exp.Lag):
        bars = _lag(inner)
        within = span_of(over, lag=True, text=sql_text(sql)).within if over is not None else ""
        return Lag(_read(inner.this, inner), bars, within)
    name = "STDDEV" if name == "STDDEVSAMP" else name
    if name not in WINDOWS or over is None:
        raise refuse(name, got=sql_text(sql))
    span = span_of(over, lag=False, text=sql_text(sql))
    _only(inner, "this", "big_int")
    if name == "COUNT" and isinstance(inner.this, exp.Star):
        return Window(name, Column("close"), span.bars, span.within)
    return Window(name, _read(inner.this, inner), span.bars, span.within)


def _lag(sql: exp.Lag) -> int:
    offset = sql.args.get("offset")
    if sql.args.get("default") is not None:
        raise FormulaError(
            expected="LAG(x, n); the bars before the first are masked",
            got=f"a third argument: {sql_text(sql)}",
            do="leave it out, or write COALESCE(LAG(x, n), value)",
        )
    if offset is None:
        return 1
    if isinstance(offset, exp.Literal) and not offset.is_string and offset.this.isdecimal() and int(offset.this) > 0:
        return int(offset.this)
    if isinstance(offset, exp.Neg):
        raise FormulaError(expected=PAST, got=f"{sql_text(sql)}: reads bars that are not known yet", do="use LAG(x, n)")
    raise FormulaError(expected="LAG(x, n) with a whole number n from 1 on", got=sql_text(sql), do="write the number")


def _read(sql: exp.Expression | None, around: exp.Expression) -> Node:
    """What a LAG or window is taken of: a number that depends on the bar."""
    if sql is None:
        raise FormulaError(expected=f"{_name(around)}(x)", got=sql_text(around), do="name a column in the brackets")
    if isinstance(sql, exp.Distinct):
        raise FormulaError(expected=f"{_name(around)}(x)", got=sql_text(around), do="leave DISTINCT out")
    node = _of(_node(sql), "number")
    if not columns(node):
        raise FormulaError(expected="an expression with a column", got=sql_text(around), do="take it of a column")
    return node


def _case(sql: exp.Case) -> Node:
    _only(sql, "this", "ifs", "default")
    subject = _once(_node(sql.this), "CASE x WHEN") if sql.this is not None else None
    whens = []
    for branch in sql.args["ifs"]:
        when = _node(branch.this)
        when = Call("=", (subject, _of(when, "number"))) if subject is not None else _of(when, "truth")
        whens.append((when, _of(_node(branch.args["true"]), "number")))
    default = sql.args.get("default")
    return Case(tuple(whens), _of(_node(default), "number") if default is not None else Number(None))


def _between(sql: exp.Between) -> Node:
    _only(sql, "this", "low", "high")
    low, high = (_of(_node(sql.args[name]), "number") for name in ("low", "high"))
    value = _once(_node(sql.this), "BETWEEN")
    return Call("AND", (Call(">=", (value, low)), Call("<=", (value, high))))


def _is_null(sql: exp.Is) -> Node:
    _only(sql, "this", "expression", "negate")
    if not isinstance(sql.expression, exp.Null):
        raise FormulaError(expected="IS NULL or IS NOT NULL", got=sql_text(sql), do="use = or <> to compare numbers")
    test = Call("IS NULL", (_of(_node(sql.this), "number"),))
    return Call("NOT", (test,)) if sql.args.get("negate") else test


def _once(node: Node, what: str) -> Node:
    """A number that stands once in the text and more than once in the tree: such trees grow fast inside one another."""
    if size(node)[0] > MOST_REPEATED:
        raise too_large(f"{size(node)[0]} operations and values before {what}", f"{MOST_REPEATED} of them there")
    return _of(node, "number")


def _of(node: Node, kind: Kind) -> Node:
    if kind_of(node) == kind or (node == Number(None) and kind == "number"):
        return node
    if kind == "number":
        raise FormulaError(
            expected="a number", got="a comparison, which is true or false", do="write CASE WHEN … THEN 1 ELSE 0 END"
        )
    raise FormulaError(expected="a comparison", got="a number where true or false belongs", do="write x > 0, say")


def _only(sql: exp.Expression, *names: str) -> None:
    """Refuse parts that would be passed over in silence."""
    beside = [name for name, value in sql.args.items() if value and name not in names]
    if beside:
        raise FormulaError(
            expected="nothing but values in it",
            got=f"{', '.join(beside).upper()} in {sql_text(sql)}",
            do="leave it out",
        )


def _name(sql: exp.Expression) -> str:
    """In capitals, without underscores; of a function that sqlglot does not know, the one the user wrote."""
    if isinstance(sql, exp.Anonymous):
        return str(sql.this).upper().replace("_", "")
    return "POWER" if isinstance(sql, exp.Pow) else str(sql.key).upper()
