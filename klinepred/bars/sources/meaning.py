"""In: rows of a file with their layout, what the user said. Out: a `Delivery` of 5-minute rows in UTC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from klinepred.bars.delivery import Delivery, Failure, Understood
from klinepred.bars.sources.columns import Layout, missing_columns
from klinepred.bars.sources.delimited import Rows
from klinepred.bars.sources.filenames import symbol_of_file
from klinepred.bars.sources.member import Member
from klinepred.bars.sources.spacing import look_otherwise, to_five_minutes
from klinepred.bars.sources.stamps import read_stamps
from klinepred.bars.sources.vendor_rows import settle
from klinepred.bars.sources.vendors import Look, Vendor, recognise
from klinepred.calendar import Clock
from klinepred.errors import SourceError
from klinepred.schema import BAR_SCHEMA


@dataclass(frozen=True)
class Asked:
    """What the user said about all files."""

    clock: Clock
    tz: str | None
    stamp: Literal["open", "close"] | None
    symbols: tuple[str, ...]
    vendor: str


def to_delivery(rows: Rows, member: Member, asked: Asked, *, digest: str, alone: bool) -> Delivery:
    """Make 5-minute rows in UTC of the rows of a file, and say what was assumed about them.

    Parameters
    ----------
    digest
        Of the file's bytes, for the commit.
    alone
        No other file is read with it.

    Raises
    ------
    SourceError
        The file does not say its symbol, its stamps cannot be read, or it is not of the vendor it is said to be of.
    """
    clock = asked.clock
    vendor = recognise(Look(member.named.name, rows.names, rows.first), vendor=asked.vendor)
    settled = settle(
        rows.frame,
        rows.layout,
        vendor=vendor,
        said=asked.vendor != "auto",
        file=member.named.name,
        calendar=clock.calendar,
    )
    frame, layout = settled.frame, settled.layout
    ends, lines = _stamp(vendor, asked)
    remarks = [*rows.remarks, *(f"{member.label}: {line}" for line in settled.lines), *lines]
    symbol, lines = _symbol(frame, layout, member, asked.symbols, settled.symbol, alone=alone)
    if symbol is None:
        nothing = {name: _absent(name, member) for name in asked.symbols}
        return Delivery(pl.DataFrame(schema=BAR_SCHEMA), f"file {member.label}", nothing, remarks=tuple(lines))
    remarks += lines
    zone, whose = _zone(rows, vendor, clock)
    stamps = read_stamps(
        frame.get_column(layout.stamp),
        time=None if layout.time is None else frame.get_column(layout.time),
        symbol=None if layout.symbol is None else symbol,
        tz=asked.tz,
        zone=zone,
        whose=whose,
        where=member.where,
    )
    remarks += stamps.remarks
    volume, taken, lines = _volume(frame, layout, member, rows.names, vendor)
    remarks += lines
    bars = pl.DataFrame(
        [
            symbol.alias("symbol"),
            stamps.ts.alias("ts"),
            *(frame.get_column(getattr(layout, name)).alias(name) for name in ("open", "high", "low", "close")),
            volume,
        ]
    )
    failures: dict[str, Failure] = {}
    if layout.symbol is not None and asked.symbols:
        bars = bars.filter(pl.col("symbol").is_in(list(asked.symbols)))
        absent = set(asked.symbols) - set(bars.get_column("symbol").unique())
        failures = {name: _absent(name, member) for name in absent}
    doubt = look_otherwise(bars, clock=clock, ends=ends)
    remarks += [f"{member.label}: {doubt}"] if doubt else []
    spaced = to_five_minutes(bars, clock=clock, ends=ends)
    return Delivery(
        frame=spaced.frame,
        source=f"file {member.label} sha256:{digest}",
        failures={**failures, **spaced.failures},
        remarks=(*remarks, *(f"{member.label}: {line}" for line in spaced.remarks)),
        rejects=spaced.rejects,
        understood=Understood(
            file=member.label,
            form=rows.form,
            vendor=vendor.title if vendor else "",
            columns={**layout.parts, "volume": taken},
            zone=stamps.zone,
            stamp="close" if ends else "open",
            spacing=spaced.spacing,
            rows=frame.height,
        ),
    )


def _zone(rows: Rows, vendor: Vendor | None, clock: Clock) -> tuple[str, str]:
    """The zone of stamps without one, when the user says none, and whose word it is."""
    if rows.zone is not None:
        return rows.zone, "as the file says"
    if vendor and vendor.zone:
        return vendor.zone, f"the one of {vendor.title}"
    return clock.zone, "the zone of the calendar"


def _stamp(vendor: Vendor | None, asked: Asked) -> tuple[bool, list[str]]:
    """Whether stamps are ends of bars, and what the vendor decided about them or was overruled in."""
    by_vendor = vendor.stamp if vendor else None
    words = {"open": "opens", "close": "ends"}
    lines = []
    if vendor and asked.tz and vendor.zone and asked.tz != vendor.zone:
        lines.append(f"--tz {asked.tz} is taken, although {vendor.title} writes {vendor.zone}")
    if vendor and vendor.note:
        lines.append(f"{vendor.title}: {vendor.note}")
    if asked.stamp:
        if vendor and by_vendor and by_vendor != asked.stamp:
            lines.append(
                f"--stamp {asked.stamp} is taken, although {vendor.title} stamps bars by their {words[by_vendor]}"
            )
        return asked.stamp == "close", lines
    if vendor and by_vendor == "close":
        lines.append(f"{vendor.title} stamps bars by their ends: read so (--stamp open says otherwise)")
    return by_vendor == "close", lines


def _symbol(
    frame: pl.DataFrame, layout: Layout, member: Member, symbols: tuple[str, ...], named: str | None, *, alone: bool
) -> tuple[pl.Series | None, list[str]]:
    """The symbol of each row, as text, and where it was taken from if not from a column; None: of none asked for."""
    if layout.symbol is not None:
        names = frame.get_column(layout.symbol).cast(pl.String)
        blank = names.unique().str.contains(r"^\s|\s$").any()
        return names.str.strip_chars() if blank else names, []
    line: list[str] = []
    if len(symbols) == 1 and alone:
        name = symbols[0]
    elif symbols:
        says, sure = (named, True) if named else _says(member)
        fits = [one for one in symbols if says and _bare(one) & _bare(says)]
        if not fits and (sure or len(symbols) > 1):
            by = f"it is of {says}, by its name" if sure else "its name does not say of which symbol it is"
            return None, [f"{member.label}: left out: {by}, and {', '.join(symbols[:10])} asked for"]
        name = fits[0] if fits else symbols[0]
    else:
        name, sure = (named, True) if named else symbol_of_file(member.named)
        line = [f"{member.label}: symbol {name} taken from the file name (--symbols says another)"]
        if not sure:
            line = [
                f"{member.label}: the file name says no symbol: taken in as {name!r}; --symbols NAME gives it its own"
            ]
    return pl.repeat(name, frame.height, dtype=pl.String, eager=True), line


def _says(member: Member) -> tuple[str, bool]:
    """The symbol that the file name says, and whether it surely is one; "" where it says none or several."""
    try:
        return symbol_of_file(member.named)
    except SourceError:
        return "", False


def _bare(symbol: str) -> set[str]:
    """Ways to write a symbol that count as one here: `BTC/USDT` as BTCUSDT, `SPY.us` as SPYUS and SPY."""
    return {"".join(char for char in text.upper() if char.isalnum()) for text in (symbol, symbol.partition(".")[0])}


def _absent(symbol: str, member: Member) -> Failure:
    return Failure("unknown-symbol", f"no row of {member.label} is of {symbol}")


def _volume(
    frame: pl.DataFrame, layout: Layout, member: Member, names: Sequence[str], vendor: Vendor | None
) -> tuple[pl.Series, str, list[str]]:
    """The first volume that is not 0 throughout, and its column; which one is said where there is a choice."""
    if not layout.volumes and vendor and vendor.name == "tradingview":
        raise SourceError(
            f"{member.where}: no column for volume",
            expected="the column Volume, which TradingView writes when the chart shows it",
            got=", ".join(map(repr, names[:20])),
            do="add the Volume indicator to the chart and export again, or pass --vendor tradingview to take volume 0",
        )
    if not layout.volumes:
        raise missing_columns(["volume"], names, member.where)
    for spot, name in enumerate(layout.volumes):
        column = frame.get_column(name)
        if bool((column.fill_null(0.0) != 0.0).any()):
            skipped = layout.volumes[:spot]
            line = [f"{member.label}: {', '.join(skipped)} is 0 throughout, {name} taken as volume"] if skipped else []
            return column.alias("volume"), name, line
    return frame.get_column(layout.volumes[0]).alias("volume"), layout.volumes[0], []
