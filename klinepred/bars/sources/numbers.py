"""In: numbers as people and programs write them. Out: floats; the one style of a file decided from all its prices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import polars as pl

from klinepred.errors import SourceError

Style = Literal["point", "comma"]
NOTHING: Final = ("", "null", "none", "nan", "na", "n/a", "-", "--", "#n/a", "nil")
"""Words that stand for no value, in any case."""
GROUPED: Final = r"^[-+]?\d{1,3}(['’\u00a0\u202f ]\d{3})+([.,]\d*)?$"
"""Thousands apart by an apostrophe (Switzerland) or a blank."""


def read_numbers(frame: pl.DataFrame, names: Sequence[str], *, prices: Sequence[str], where: str) -> pl.DataFrame:
    """Text columns `names` as Float64; words for nothing become null, and so does what is no number.

    Parameters
    ----------
    prices
        Those of `names` by which the decimal sign is decided (a volume rarely has one).

    Raises
    ------
    SourceError
        More than half of a column is no number, or `1,234` could be both a thousand and one.
    """
    texts = [name for name in names if frame.schema[name] == pl.String]
    if not texts:
        return frame.with_columns(pl.col(name).cast(pl.Float64) for name in names)
    frame = frame.with_columns(pl.col(name).str.strip_chars(" \t$€£") for name in texts)
    frame = frame.with_columns(_without_gaps(frame.get_column(name)) for name in texts)
    style = _style(frame, [name for name in prices if name in texts], where)
    for name in texts:
        text = frame.get_column(name)
        text = text.set(text.str.to_lowercase().is_in(NOTHING).fill_null(False), None)
        if style == "comma":
            text = text.str.replace_all(r"\.(\d{3})", "${1}").str.replace(",", ".", literal=True)
        else:
            # a comma is a sign of thousands only in front of three digits
            grouped = text.str.contains(r"^[-+]?\d{1,3}(,\d{3})+(\.\d*)?$").fill_null(False)
            text = text.zip_with(~grouped, text.str.replace_all(",", "", literal=True))
        number = text.cast(pl.Float64, strict=False)
        wrong = text.is_not_null() & number.is_null()
        if int(wrong.sum()) * 2 > max(1, len(text) - text.null_count()):
            raise SourceError(
                f"{where}: column {name!r}",
                expected="numbers",
                got=repr(frame.get_column(name).filter(wrong)[0]),
                do="write numbers like 1234.5, or like 1234,5 in a file separated by semicolons",
            )
        frame = frame.with_columns(number)
    return frame.with_columns(pl.col(name).cast(pl.Float64) for name in names)


def _without_gaps(text: pl.Series) -> pl.Series:
    """`1'234.50` to `1234.50`."""
    grouped = text.str.contains(GROUPED).fill_null(False)
    return text.zip_with(~grouped, text.str.replace_all(r"['’\u00a0\u202f ]", "")) if grouped.any() else text


def _style(frame: pl.DataFrame, prices: Sequence[str], where: str) -> Style:
    if not prices:
        return "point"
    text = pl.concat([frame.get_column(name).rename("price") for name in prices]).drop_nulls()
    comma = text.filter(text.str.contains(",", literal=True))
    if comma.is_empty():
        return "point"
    decimal = comma.str.contains(r",\d{1,2}$|,\d{4,}$|\.\d{3},\d+$")
    thousand = comma.str.contains(r",\d{3}\.|,\d{3},\d{3}$") | comma.str.contains(r"^\d{1,3},\d{3}\.\d+$")
    if decimal.any() and not thousand.any():
        return "comma"
    if thousand.any() and not decimal.any():
        return "point"
    if decimal.any():
        raise SourceError(
            where,
            expected="one decimal sign in all prices",
            got=f"both {comma.filter(decimal)[0]!r} and {comma.filter(thousand)[0]!r}",
            do="write all prices with a decimal point",
        )
    if text.str.contains(".", literal=True).any():
        return "point"
    raise SourceError(
        where,
        expected="prices that show whether the comma is a decimal sign",
        got=f"only prices like {comma[0]!r}, which can be read both ways",
        do="write prices with a decimal point",
    )
