"""In: a `Health`. Out: one HTML file that works offline: how much is there, where bars are missing, what looks odd."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import polars as pl

from klinepred import __version__
from klinepred.bars.health import Health
from klinepred.bars.heatmap import LEVELS, draw_daytimes, draw_heatmap
from klinepred.bars.summary import telling
from klinepred.page import house
from klinepred.schema import CALENDAR

MOST_SYMBOLS: Final = 500
"""With more symbols than this those with most missing bars are drawn and listed."""
MOST_RUNS: Final = 20_000
"""Deviating rectangles of all heat maps together; with their titles some 3 MB."""
MOST_LINES: Final = 30
"""Rows of the other listings."""
WHOLE: Final = 0.999
"""From this share of the expected bars on the store is called complete."""


def render_health(health: Health) -> str:
    """The page as text. It loads nothing from elsewhere, runs no script, and every text in it is escaped.

    Its size is bounded: some 4 MB for 500 symbols and five years, however much is missing.
    """
    table, shown = health.symbols, _worst(health.symbols)
    sessions = health.sessions.join(shown.select("symbol", CALENDAR), on="symbol", maintain_order="left")
    calendars = shown[CALENDAR].unique().sort().to_list()
    maps = [
        draw_heatmap(part, calendar=name, most=MOST_RUNS // len(calendars))
        for name in calendars
        if (part := sessions.filter(pl.col(CALENDAR) == name)).height
    ]
    times = [
        draw_daytimes(part, calendar=str(name))
        for (name,), part in health.daytimes.group_by(CALENDAR, maintain_order=True)
        if part["missing"].sum()
    ]
    expected, missing = int(table["expected"].sum()), int(table["missing"].sum())
    share = (expected - missing) / expected if expected else 0.0
    stored = "" if health.version is None else f"store version {health.version}, "
    text: str = (
        house(cell=_cell, numeric=_numeric)
        .get_template("bars/health.html.j2")
        .render(
            health=health,
            word="damaged" if health.damaged else "complete" if share >= WHOLE else "gaps",
            share=f"{100.0 * min(share, 0.9999) if missing else 100.0:.2f} %",
            cards=_cards(health, expected, missing),
            maps=maps,
            times=times,
            levels=LEVELS,
            cut=f"the {shown.height} of {table.height} symbols with most missing bars"
            if shown.height < table.height
            else "",
            listings=[
                ("Symbols", "", telling(shown)),
                (
                    "Longest gaps",
                    f"Runs of missing bars, {health.gaps.height:,} in all; from and to are bar opens",
                    _gaps(health),
                ),
                ("Jumps and spikes", f"{health.jumps.height:,} found", _jumps(health)),
                ("Set aside", "Rows in quarantine, by symbol and reason", _aside(health)),
                ("Rescaled", "Stored bars put on another basis, a split or a unit", health.rescalings.tail(MOST_LINES)),
            ],
            made=f"klinepred {__version__}, {stored}as of {health.now:%Y-%m-%d %H:%M}Z",
        )
    )
    return text


def _worst(table: pl.DataFrame) -> pl.DataFrame:
    share = pl.col("missing") / pl.col("expected").clip(lower_bound=1)
    return table.sort(share, "symbol", descending=[True, False]).head(MOST_SYMBOLS).sort("symbol")


def _cards(health: Health, expected: int, missing: int) -> list[tuple[str, str]]:
    table = health.symbols
    total = {name: int(table[name].sum()) for name in ("zero_volume", "stale", "jumps", "spikes")}
    ended = table["ended"].count()
    days = health.sessions["session"].unique().sort()
    return [
        (f"{expected - missing:,}", f"bars of {expected:,} expected"),
        (f"{missing:,}", f"missing; runs of them: {health.gaps.height:,}"),
        (f"{table.height:,}", f"symbols, {ended:,} of them ended" if ended else "symbols, none of them ended"),
        (f"{len(days):,}", f"sessions, {days[0]} to {days[-1]}" if len(days) else "sessions"),
        (f"{total['zero_volume']:,}", f"bars without volume, {total['stale']:,} of them stale"),
        (f"{total['jumps']:,} + {total['spikes']:,}", "jumps between closes, isolated spikes"),
        (f"{int(health.quarantine['rows'].sum()):,}", "rows set aside in quarantine"),
    ]


def _gaps(health: Health) -> pl.DataFrame:
    return health.gaps.sort("bars", "symbol", "from_ts", descending=[True, False, False]).head(MOST_LINES)


def _jumps(health: Health) -> pl.DataFrame:
    size = pl.col("ratio").log().abs()
    return health.jumps.sort(size, "symbol", "ts", descending=[True, False, False]).head(MOST_LINES)


def _aside(health: Health) -> pl.DataFrame:
    return health.quarantine.sort("rows", "symbol", "reason", descending=[True, False, False]).head(MOST_LINES)


def _numeric(dtype: pl.DataType) -> bool:
    return dtype.is_numeric()


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}Z"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
