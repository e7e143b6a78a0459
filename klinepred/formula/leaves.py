"""In: a column or a literal of SQL. Out: the `Column` or `Number` it stands for."""

from __future__ import annotations

import math

from sqlglot import exp

from klinepred.formula.expression import short, sql_text
from klinepred.formula.fault import FormulaError
from klinepred.formula.names import nearest
from klinepred.formula.tree import VALUES, Column, Number


def column_of(sql: exp.Column) -> Column:
    """The column, whose name has no capitals unless it is quoted.

    Raises
    ------
    FormulaError
        A formula may not read it as a number.
    """
    name = sql.name if sql.this.args.get("quoted") else sql.name.lower()
    if sql.args.get("table") is not None:
        raise FormulaError(expected="a column alone", got=f"{sql_text(sql)}: a column of a table", do=f"write {name}")
    if name in VALUES:
        return Column(name)
    known = f"one of the columns {', '.join(VALUES)}"
    if name in ("ts", "symbol", "session", "segment", "calendar"):
        use = {"ts": "use it in ORDER BY ts only", "calendar": "leave it out"}
        do = use.get(name, f"use it in PARTITION BY {name} only")
        raise FormulaError(expected=known, got=f"{name}, which is no number", do=do)
    near = nearest(name, VALUES)
    raise FormulaError(
        expected=known,
        got=f"{short(name)!r}, which is none",
        do=f"did you mean {near}?" if near else "use these; one feature cannot read another",
    )


def number_of(sql: exp.Literal) -> Number:
    """The number.

    Raises
    ------
    FormulaError
        It is a text, or not finite.
    """
    if sql.is_string:
        raise FormulaError(expected="numbers", got=f"a text: {sql_text(sql)}", do="write columns without quotes")
    try:
        value = float(sql.this)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FormulaError(expected="a finite number", got=short(str(sql.this)), do="write a smaller one")
    return Number(value)
