"""In: bars expected and missing per symbol and session. Out: the rectangles, labels and titles of two small charts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from typing import Final

import polars as pl

WIDTH: Final = 1080
"""Pixels a chart takes where its columns allow."""
MOST_COLUMNS: Final = 1300
"""More sessions than this share columns: below a pixel nothing can be seen."""
STEPS: Final = (1, 2, 5, 10, 21, 63, 126, 252, 1260)
"""How many sessions one column may hold."""
BOUNDS: Final = (0.05, 0.25, 0.75)
"""Shares missing at which the colour changes; below the first is palest, above the last comes all missing."""
LEVELS: Final = ("up to 5 %", "up to 25 %", "up to 75 %", "over 75 %", "all missing")


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels, its level of colour (0 = complete) and the text shown when pointed at."""

    x: int
    y: int
    width: int
    height: int
    level: int
    title: str


@dataclass(frozen=True)
class Label:
    """A text at a pixel of an axis."""

    at: int
    text: str


@dataclass(frozen=True)
class Chart:
    """What an SVG needs.

    Attributes
    ----------
    boxes
        In drawing order.
    across, down
        Labels below the columns, and beside the rows.
    side
        Pixels the longest label beside the rows takes.
    sessions
        How many sessions a column of a heat map holds.
    """

    calendar: str
    width: int
    height: int
    boxes: tuple[Box, ...]
    across: tuple[Label, ...]
    down: tuple[Label, ...]
    side: int
    sessions: int = 1


def draw_heatmap(sessions: pl.DataFrame, *, calendar: str, most: int) -> Chart:
    """Rows = symbols, columns = sessions; a row is drawn as one complete span, and over it what deviates, in runs.

    Parameters
    ----------
    sessions
        symbol, session, expected, missing of one calendar, sorted by symbol and session.
    most
        So many deviating runs may be drawn; if there are more, several sessions share a column.
    """
    days = sessions["session"].unique().sort()
    ranked = sessions.with_columns(day=pl.col("session").rank("dense").cast(pl.Int64) - 1)
    for step in STEPS:
        runs = _runs(ranked.with_columns(column=pl.col("day") // step))
        if -(-len(days) // step) <= MOST_COLUMNS and runs.filter(pl.col("level") > 0).height <= most:
            break
    symbols = sessions["symbol"].unique(maintain_order=True).to_list()
    columns = -(-len(days) // step)
    across, down = max(1, min(16, WIDTH // max(columns, 1))), _row_height(len(symbols))
    rows = {symbol: number * down for number, symbol in enumerate(symbols)}
    inner = down - 1 if down > 4 else down
    spans = ranked.group_by("symbol", maintain_order=True).agg(
        low=pl.col("day").min() // step,
        high=pl.col("day").max() // step,
        first=pl.col("session").min(),
        last=pl.col("session").max(),
        expected=pl.col("expected").sum(),
        missing=pl.col("missing").sum(),
    )
    drawn = pl.concat([spans.with_columns(level=pl.lit(0)).select(runs.columns), runs.filter(pl.col("level") > 0)])
    boxes = tuple(
        Box(
            x=low * across,
            y=rows[symbol],
            width=(high - low + 1) * across,
            height=inner,
            level=level,
            title=f"{_short(symbol)} {_days(first, last)}: {missing:,} of {expected:,} missing",
        )
        for symbol, low, high, first, last, expected, missing, level in drawn.iter_rows()
    )
    every = max(1, math.ceil(11 / down))
    names = tuple(Label(y + down // 2, _short(symbol)) for symbol, y in list(rows.items())[::every])
    return Chart(
        calendar=calendar,
        width=columns * across,
        height=len(symbols) * down,
        boxes=boxes,
        across=_months(days.gather_every(step).to_list(), across),
        down=names,
        side=_room(names),
        sessions=step,
    )


def draw_daytimes(daytimes: pl.DataFrame, *, calendar: str, height: int = 120) -> Chart:
    """Share of missing bars by the venue's time of day, in columns as high as the worst of them allows.

    Parameters
    ----------
    daytimes
        time, expected, missing of one calendar, in the order of its session.
    """
    across = max(2, min(16, WIDTH // max(daytimes.height, 1)))
    shares = (daytimes["missing"] / daytimes["expected"]).to_list()
    top = max(shares, default=0.0)
    boxes, labels = list[Box](), list[Label]()
    for column, (time, expected, missing) in enumerate(daytimes.select("time", "expected", "missing").iter_rows()):
        tall = round(height * shares[column] / top) if top else 0
        tall = max(tall, 1) if missing else 0
        title = f"{time}: {missing:,} of {expected:,} missing ({100 * shares[column]:.3g} %)"
        boxes.append(Box(column * across, height - tall, across - 1, tall, 2, title))
        if time.endswith(":00") and (not labels or column * across - labels[-1].at >= 44):
            labels.append(Label(column * across, time))
    width = daytimes.height * across
    scale = (Label(0, f"{100 * top:.3g} %"), Label(height, "0"))
    return Chart(calendar, width, height, tuple(boxes), tuple(labels), scale, _room(scale))


def _room(labels: tuple[Label, ...]) -> int:
    return 14 + 7 * max((len(label.text) for label in labels), default=0)


def _runs(ranked: pl.DataFrame) -> pl.DataFrame:
    """Columns next to each other with one level of colour, per symbol: symbol, low, high, first, last, …, level."""
    cells = ranked.group_by("symbol", "column", maintain_order=True).agg(
        first=pl.col("session").first(),
        last=pl.col("session").last(),
        expected=pl.col("expected").sum(),
        missing=pl.col("missing").sum(),
    )
    share = pl.col("missing") / pl.col("expected")
    level = pl.when(pl.col("missing") == 0).then(0).when(pl.col("missing") >= pl.col("expected")).then(len(LEVELS))
    for number, bound in enumerate(BOUNDS, 1):
        level = level.when(share <= bound).then(number)
    cells = cells.with_columns(level=level.otherwise(len(LEVELS) - 1))
    new = (
        (pl.col("symbol") != pl.col("symbol").shift(1))
        | (pl.col("level") != pl.col("level").shift(1))
        | (pl.col("column") != pl.col("column").shift(1) + 1)
    )
    return (
        cells.with_columns(run=new.fill_null(True).cum_sum())
        .group_by("run", maintain_order=True)
        .agg(
            pl.col("symbol").first(),
            low=pl.col("column").first(),
            high=pl.col("column").last(),
            first=pl.col("first").first(),
            last=pl.col("last").last(),
            expected=pl.col("expected").sum(),
            missing=pl.col("missing").sum(),
            level=pl.col("level").first(),
        )
        .drop("run")
    )


def _row_height(symbols: int) -> int:
    for most, height in ((8, 22), (40, 15), (160, 11), (300, 6)):
        if symbols <= most:
            return height
    return 3


def _months(days: list[date], across: int) -> tuple[Label, ...]:
    """A label at the first column of a month, as far apart as their text is wide."""
    labels = list[Label]()
    for column, day in enumerate(days):
        begins = column == 0 or (day.year, day.month) != (days[column - 1].year, days[column - 1].month)
        if begins and (not labels or column * across - labels[-1].at >= 56):
            labels.append(Label(column * across, f"{day:%Y-%m}"))
    return tuple(labels)


def _days(first: date, last: date) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _short(symbol: str) -> str:
    """A name of bounded length for a picture; signs that print nothing are shown by their code."""
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in symbol)
    return text if len(text) <= 16 else text[:15] + "…"
