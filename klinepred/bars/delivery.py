"""In: what a source could get. Out: `Delivery`, the raw bars of some symbols with the failures of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import polars as pl

from klinepred.schema import TS

SPLIT_SCHEMA: Final[dict[str, pl.DataType]] = {"symbol": pl.String(), "ts": TS, "ratio": pl.Float64()}
"""Splits a source tells of; see `Delivery.splits`."""
Status = Literal["ok", "unchanged", "rate-limited", "unknown-symbol", "rejected", "failed"]


@dataclass(frozen=True)
class Failure:
    """Why a symbol came with no bars, or with fewer than it should have."""

    status: Status
    message: str


@dataclass(frozen=True)
class Understood:
    """How a file was read, for `--dry-run`.

    Attributes
    ----------
    file, form
        Its name, and what kind of file it is.
    vendor
        Title of the vendor whose conventions were followed; empty = none.
    columns
        Column of the file by the part it plays.
    zone
        Zone of the stamps, and who said so.
    stamp
        open or close.
    spacing
        Distance of the rows in words, by symbol; symbols with one stamp have none.
    rows
        Rows of the file.
    """

    file: str
    form: str
    vendor: str
    columns: Mapping[str, str]
    zone: str
    stamp: Literal["open", "close"]
    spacing: Mapping[str, str]
    rows: int


@dataclass(frozen=True)
class Delivery:
    """Raw bars one source delivered for a group of symbols; nothing is checked yet.

    Attributes
    ----------
    frame
        `klinepred.schema.BAR_SCHEMA` exactly: symbol, ts (bar open, UTC, us), open, high, low, close, volume. Any
        order; duplicates, nulls, NaN, off-grid and out-of-session rows allowed: `clean` decides about them.
    source
        Provenance in words, for the commit: `yahoo (yfinance 1.7.0)`, `file spy.csv sha256:…`, `simulate seed=7`.
    failures
        By symbol.
    remarks
        Lines for the user, such as a clamped start date with both dates.
    rejects
        Rows the source itself had to set aside (minutes that cannot be added up, stamps no clock shows), in the
        shape of `frame` with a `reason`; None = none. They are not in `frame`.
    splits
        `SPLIT_SCHEMA`: the splits that the source itself tells of for these symbols, and by which the prices in
        `frame` are adjusted already. `ts` is the first moment traded in new shares; `ratio` says how many new shares
        one old share became: 4.0 for four for one, 0.1 for one for ten. None or no row = it tells of none.
    understood
        How the file was read; None where the source is no file, or the file could not be read.
    """

    frame: pl.DataFrame
    source: str
    failures: Mapping[str, Failure] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    rejects: pl.DataFrame | None = None
    splits: pl.DataFrame | None = None
    understood: Understood | None = None
