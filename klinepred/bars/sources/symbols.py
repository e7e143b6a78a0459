"""In: a column of symbols of whatever type. Out: the same as text, and a word where letters may have been lost."""

from __future__ import annotations

import polars as pl
from polars.exceptions import PolarsError

from klinepred.bars.sources.member import Member
from klinepred.errors import SourceError


def decoded(column: pl.Series, member: Member) -> pl.Series:
    """Bytes as the text they are in UTF-8.

    Raises
    ------
    SourceError
        They are none.
    """
    try:
        return column.cast(pl.String, strict=False)
    except PolarsError as error:
        raise SourceError(
            f"{member.where}: column {column.name!r}",
            expected="text in UTF-8",
            got="bytes that are none",
            do="write the column as text",
        ) from error


def to_text(symbols: pl.Series, member: Member) -> tuple[pl.Series, tuple[str, ...]]:
    """Symbols as text, letter for letter where they were text before.

    Raises
    ------
    SourceError
        They are true and false, fractions, dates, nested, or bytes of no text: none can be made of them that is sure
        to be theirs.
    """
    kind = symbols.dtype
    if kind in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        return symbols.cast(pl.String), ()
    if kind == pl.Binary:
        return decoded(symbols, member), ()
    whole = symbols
    if kind.is_float() or kind.is_decimal():
        whole = symbols.cast(pl.Int64, strict=False)
        if whole.null_count() != symbols.null_count() or not (whole == symbols).fill_null(True).all():
            whole = symbols.clear()
    if (not whole.dtype.is_integer()) or len(whole) != len(symbols):
        raise SourceError(
            f"{member.where}: column {symbols.name!r}",
            expected="symbols as text",
            got=f"values of type {kind}",
            do="write the symbols as text",
        )
    text = whole.cast(pl.String)
    some = text.drop_nulls().head(1).to_list()
    return text, (f"{member.label}: symbols are numbers there ({', '.join(some)}): zeros in front may be lost",)
