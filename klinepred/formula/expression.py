"""In: a text. Out: the one expression of SQL it holds, as sqlglot reads it, once it is known to be small."""

from __future__ import annotations

import re
from typing import Final

from sqlglot import ErrorLevel, TokenType, exp, parse, tokenize
from sqlglot.errors import SqlglotError

from klinepred.formula.fault import FormulaError, refuse

MOST_CHARACTERS: Final = 2000
MOST_TOKENS: Final = 500
MOST_BRACKETS: Final = 24


def read_expression(text: str) -> exp.Expression:
    """The expression of a text.

    Raises
    ------
    FormulaError
        It is too large, no SQL, or anything but a single expression.
    """
    if len(text) > MOST_CHARACTERS:
        raise too_large(f"{len(text)} characters", f"{MOST_CHARACTERS} characters")
    if "\0" in text:
        raise FormulaError(expected="an expression of SQL", got="a text with zero bytes", do="remove them")
    try:
        _refuse_large([token.token_type for token in tokenize(text)])
        statements = parse(f"SELECT {text}\n")
    except SqlglotError as error:
        raise FormulaError(
            expected="an expression of SQL, such as close / LAG(close, 3) OVER (ORDER BY ts) - 1",
            got=f"{short(text)!r}, where {_reason(error)}",
            do="mend it; brackets must match, and there is one expression",
        ) from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        got = f"{len(statements)} statements" if len(statements) != 1 else "a query"
        raise FormulaError(expected="one expression", got=f"{got}: {short(text)!r}", do="write the expression alone")
    select = statements[0]
    beside = [name.strip("_").upper() for name, value in select.args.items() if value and name != "expressions"]
    if beside:
        raise refuse("SELECT", got=f"{', '.join(beside)} beside the expression")
    if len(select.expressions) != 1:
        count = len(select.expressions) or "no"
        raise FormulaError(expected="one expression", got=f"{count} expressions", do="give each feature one line")
    found: exp.Expression = select.expressions[0]
    if isinstance(found, exp.Alias):
        raise FormulaError(
            expected="one expression, named by its key",
            got=f"a second name or a stray word: {sql_text(found)}",
            do=f"write {sql_text(found.this)} alone, or mend the number or operator there",
        )
    return found


def _refuse_large(kinds: list[TokenType]) -> None:
    if len(kinds) > MOST_TOKENS:
        raise too_large(f"{len(kinds)} words and signs", f"{MOST_TOKENS} words and signs")
    depth = deepest = 0
    for kind in kinds:
        if kind == TokenType.SEMICOLON:
            raise FormulaError(expected="one expression", got="a semicolon", do="remove it and what follows")
        opens = kind in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
        shuts = kind in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)
        depth += int(opens) - int(shuts)
        deepest = max(deepest, depth)
    if deepest > MOST_BRACKETS:
        raise too_large(f"{deepest} brackets or CASEs inside one another", f"{MOST_BRACKETS} inside one another")


def sql_text(sql: exp.Expression) -> str:
    """The expression for a message."""
    return short(sql.sql(comments=False, unsupported_level=ErrorLevel.IGNORE))


def short(text: str) -> str:
    """The text on one line, cut."""
    flat = " ".join(text.split())
    return flat if len(flat) <= 80 else f"{flat[:79]}…"


def too_large(got: str, most: str) -> FormulaError:
    """A formula that could take long to read or to compute."""
    return FormulaError(expected=f"a formula of at most {most}", got=got, do="make several features of it")


def _reason(error: SqlglotError) -> str:
    first = (getattr(error, "errors", None) or [{}])[0]
    words = str(first.get("description") or str(error).splitlines()[0])
    if missing := re.search(r"missing for .*\.(\w+)", words):
        return f"{missing[1].upper()} lacks a part"
    return short(words[:1].lower() + words[1:])
