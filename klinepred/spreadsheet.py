"""In: rows that become CSV. Out: the same with no cell that a spreadsheet would take for a formula; and back."""

from __future__ import annotations

import re
from typing import Final

import polars as pl

_FORMULA: Final = r"^'*[=+\-@\t\r\n\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}]"
_NAME: Final = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""How a cell begins that Excel, LibreOffice or Google Sheets may compute, apostrophes in front left aside. The wide
signs are those of East Asian keyboards."""


def guarded(frame: pl.DataFrame) -> pl.DataFrame:
    """Text that begins like a formula gets an apostrophe in front, which spreadsheets take for "this is text".

    Numbers stay as they are, negative ones too; `unguarded` takes exactly that apostrophe off again.
    """
    texts = [name for name, kind in frame.schema.items() if kind in (pl.String, pl.Categorical, pl.Enum)]
    begins = frame.select(pl.col(texts).cast(pl.String).str.contains(_FORMULA).any())
    odd = [name for name in texts if begins[name].item()]
    out = frame.with_columns(_prefixed(pl.col(name).cast(pl.String)).alias(name) for name in odd) if odd else frame
    return out.rename({name: f"'{name}" for name in frame.columns if _NAME.match(name)})


def _prefixed(text: pl.Expr) -> pl.Expr:
    return pl.when(text.str.contains(_FORMULA)).then(pl.lit("'") + text).otherwise(text)


def unguarded(column: pl.Series) -> pl.Series:
    """Text as it was before `guarded`; text that it does not touch comes out as it is."""
    found = column.cast(pl.String).str.contains(_FORMULA) & column.cast(pl.String).str.starts_with("'")
    if not found.any():
        return column
    text = pl.col(column.name).cast(pl.String)
    return column.to_frame().select(pl.when(pl.lit(found)).then(text.str.slice(1)).otherwise(text)).to_series()
