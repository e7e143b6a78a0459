"""In: a workspace, symbols, the time. Out: `Health`: how complete, fresh and plausible the stored bars are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

import polars as pl

from klinepred.bars import tables
from klinepred.bars.check import value_rules
from klinepred.bars.gaps import (
    DAYTIMES,
    GAPS,
    MOVES,
    SESSIONS,
    count_moves,
    count_sessions,
    find_gaps,
    share_by_time,
)
from klinepred.bars.groups import groups
from klinepred.bars.hindsight import judge_universe
from klinepred.bars.oddities import JUMPS, ODD, look_over
from klinepred.bars.rescalings import SCHEMA as RESCALINGS
from klinepred.bars.rescalings import list_rescalings
from klinepred.bars.spans import add_sessions, find_renames, mark_ended, newest_sessions, read_clocks
from klinepred.bars.store import list_symbols, scan_bars, simulated_symbols, store_version
from klinepred.bars.summary import summarise
from klinepred.calendar import Clock, known_span, place
from klinepred.headway import stepwise
from klinepred.paths import Workspace
from klinepred.schema import BAR, BAR_SCHEMA, CALENDAR, TS, Bars

ROWS_AT_ONCE: Final = 1_000_000
"""Whole symbols are read together up to this many bars: memory is that of these, not of the store."""
NAMED: Final = 8
SEEN: Final[dict[str, pl.DataType]] = {
    "symbol": pl.String(),
    CALENDAR: pl.String(),
    "first_ts": TS,
    "last_ts": TS,
    "first_open": pl.Float64(),
    "last_close": pl.Float64(),
    "duplicates": pl.Int64(),
    "impossible": pl.Int64(),
}
QUARANTINED: Final[dict[str, pl.DataType]] = {
    "symbol": pl.String(),
    "reason": pl.String(),
    "rows": pl.Int64(),
    "first_ts": TS,
    "last_ts": TS,
}


@dataclass(frozen=True)
class Health:
    """What a look over the stored bars found.

    Attributes
    ----------
    symbols
        One row a symbol: symbol, calendar, sessions, expected, received, missing, worst (session with most missing;
        null if none), gaps, longest_gap (bars), zero_volume, zero_run, stale, stale_run, jumps, spikes, rescaled,
        duplicates, impossible (rows that break what `check_bars` guarantees: none unless the store was damaged),
        quarantined, first_ts, last_ts, late (bars the calendar finished since), ended (last session of one that no
        longer trades), renamed_to.
    sessions, gaps, jumps
        See `klinepred.bars.gaps` and `klinepred.bars.oddities`.
    daytimes
        Expected and missing bars by the venue's time of day.
    quarantine
        symbol, reason, rows, first_ts, last_ts: what was ever set aside, also of symbols without a stored bar.
    rescalings
        See `klinepred.bars.rescalings`.
    renames
        See `klinepred.bars.spans.find_renames`.
    hindsight
        Sentences about the choice of the universe, see `klinepred.bars.hindsight`.
    ahead
        Stored bars that are not finished at `now`; they are in none of the tables.
    """

    symbols: pl.DataFrame
    sessions: pl.DataFrame
    gaps: pl.DataFrame
    jumps: pl.DataFrame
    daytimes: pl.DataFrame
    quarantine: pl.DataFrame
    rescalings: pl.DataFrame
    renames: pl.DataFrame
    hindsight: tuple[str, ...]
    ahead: int
    now: datetime
    version: int | None = None

    @property
    def damaged(self) -> int:
        """Rows that can be in no sound store: repeated, off the grid, with impossible values."""
        return int(self.symbols["duplicates"].sum()) + int(self.symbols["impossible"].sum())

    def remarks(self) -> tuple[str, ...]:
        """Sentences on what a reader must know before trusting the numbers."""
        lines = list[str]()
        if self.damaged:
            torn = self.symbols.filter((pl.col("duplicates") > 0) | (pl.col("impossible") > 0))
            lines.append(
                f"{self.damaged:,} rows of {_some(torn['symbol'].to_list())} are repeated or no possible bars: "
                "something else than klinepred wrote into the store; go back to an older version of it"
            )
        if self.ahead:
            lines.append(f"{self.ahead:,} stored bars are not finished at {self.now:%Y-%m-%d %H:%M}Z and were left out")
        bare = self.quarantine.join(self.symbols, on="symbol", how="anti", nulls_equal=True)
        if bare.height:
            names = [str(name) for name in bare["symbol"].unique().sort()]
            lines.append(
                f"rows in quarantine of symbols without a stored bar: {bare['rows'].sum():,}, of {_some(names)}"
            )
        gone = self.symbols.drop_nulls("ended").filter(~pl.col("symbol").is_in(self.renames["symbol"].to_list()))
        if gone.height:
            named = [f"{symbol} ({day})" for symbol, day in gone.select("symbol", "ended").iter_rows()]
            lines.append(f"no bar any more, while others of the calendar go on: {_some(named)}")
        for row in self.renames.iter_rows(named=True):
            lines.append(
                f"a rename? {row['symbol']} ended {row['ended']}, {row['renamed_to']} began {row['began']} at nearly "
                f"the same price ({row['last_close']:g} and {row['first_open']:g})"
            )
        return (*lines, *self.hindsight)


def check_store(
    space: Workspace, *, now: datetime, symbols: Sequence[str] | None = None, as_of: int | datetime | None = None
) -> Health:
    """Look over the stored bars of a workspace.

    Parameters
    ----------
    now
        Bars that are not finished by then (aware) are neither expected nor looked at.
    symbols
        None = all.
    as_of
        The store as it was; the quarantine is that of today.

    Raises
    ------
    StoreError
        The store is empty, has not this version, or lacks one of `symbols`.
    """
    bars = scan_bars(space, symbols=symbols, as_of=as_of)
    listed = read_clocks(list_symbols(space, as_of=as_of))
    newest = newest_sessions(listed, now=now)
    aside = read_quarantine(space, symbols=symbols)
    version = store_version(space, as_of=as_of)
    moved = list_rescalings(space, symbols=symbols, version=version)
    return examine(
        bars,
        now=now,
        newest=newest,
        simulated=simulated_symbols(space),
        quarantine=aside,
        rescalings=moved,
        version=version,
    )


def read_quarantine(space: Workspace, *, symbols: Sequence[str] | None = None) -> pl.DataFrame:
    """Rows set aside, counted: columns `QUARANTINED`, the most first within each symbol."""
    rows = tables.scan_table(space.store, tables.QUARANTINE)
    if symbols is not None:
        rows = rows.filter(pl.col("symbol").is_in(list(symbols)))
    counts = rows.group_by("symbol", "reason").agg(
        rows=pl.len().cast(pl.Int64), first_ts=pl.col("ts").min(), last_ts=pl.col("ts").max()
    )
    return counts.select(QUARANTINED.keys()).sort("symbol", "rows", "reason", descending=[False, True, False]).collect()


def examine(
    bars: Bars,
    *,
    now: datetime,
    newest: dict[str, date] | None = None,
    simulated: set[str] | None = None,
    quarantine: pl.DataFrame | None = None,
    rescalings: pl.DataFrame | None = None,
    version: int | None = None,
) -> Health:
    """`check_store` for bars from anywhere, sound or not: what `check_bars` would refuse is counted here.

    Parameters
    ----------
    newest
        By calendar the newest session of all symbols, also of those not in `bars`; default: of `bars`.
    simulated
        Symbols that no hindsight can have chosen.
    quarantine
        As `read_quarantine` gives it.
    rescalings
        As `list_rescalings` gives them.
    """
    finished = pl.col("ts") + BAR <= now
    sizes = bars.group_by("symbol").agg(bars=pl.len(), ahead=(~finished).sum()).sort("symbol").collect()
    found: dict[str, list[pl.DataFrame]] = {name: [] for name in ("seen", "sessions", "gaps", "jumps", "odd")}
    moves: dict[str, list[pl.DataFrame]] = {}
    together = list(groups(sizes, most=ROWS_AT_ONCE))
    for some in stepwise(together, "groups of symbols looked over"):
        chosen = bars.filter(pl.col("symbol").is_in(some) & finished.fill_null(True))
        table = chosen.select(*BAR_SCHEMA, CALENDAR).collect()
        for (name,), part in table.group_by(CALENDAR, maintain_order=True):
            clock = Clock.parse(str(name))
            rows, seen = _sound(part, clock)
            odd, jumps = look_over(rows)
            found["seen"].append(seen)
            found["sessions"].append(count_sessions(rows, clock, now=now))
            found["gaps"].append(find_gaps(rows, clock, now=now))
            found["odd"].append(odd)
            found["jumps"].append(jumps)
            moves.setdefault(str(clock), []).append(count_moves(rows, clock, now=now))
    seen, odd = _stack(found["seen"], SEEN), _stack(found["odd"], ODD)
    sessions, gaps, jumps = (
        _stack(found[name], schema).sort("symbol", maintain_order=True)
        for name, schema in (("sessions", SESSIONS), ("gaps", GAPS), ("jumps", JUMPS))
    )
    daytimes = [share_by_time(_stack(parts, MOVES), Clock.parse(name)) for name, parts in sorted(moves.items())]
    aside = pl.DataFrame(schema=QUARANTINED) if quarantine is None else quarantine
    moved = pl.DataFrame(schema=RESCALINGS) if rescalings is None else rescalings
    spans = mark_ended(add_sessions(seen), newest)
    real = spans.filter(~pl.col("symbol").is_in(list(simulated or ())))
    renames = find_renames(spans.drop_nulls(["first_session", "last_session"]))
    return Health(
        symbols=summarise(spans, odd, sessions, gaps, aside, moved, renames, now=now),
        sessions=sessions,
        gaps=gaps,
        jumps=jumps,
        daytimes=_stack(daytimes, DAYTIMES),
        quarantine=aside,
        rescalings=moved,
        renames=renames,
        hindsight=judge_universe(real),
        ahead=int(sizes["ahead"].sum()),
        now=now,
        version=version,
    )


def _sound(part: pl.DataFrame, clock: Clock) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows of one calendar that are bars, each once, with session and slot; and `SEEN` of its symbols."""
    low, high = known_span(clock)
    known = pl.col("ts").is_between(low, high, closed="left").fill_null(False)
    table = place(part.with_columns(ts=pl.when(known).then("ts")))
    broken = pl.any_horizontal(pl.col("slot").is_null(), *(rule.fill_null(True) for _, rule in value_rules()))
    table = table.with_columns(broken=broken)
    rows = table.filter(~pl.col("broken")).drop("broken")
    again = (pl.col("ts") == pl.col("ts").shift(1)) & (pl.col("symbol") == pl.col("symbol").shift(1))
    rows = rows.with_columns(again=again.fill_null(False))
    counts = table.group_by("symbol", maintain_order=True).agg(
        pl.col(CALENDAR).first().cast(pl.String), impossible=pl.col("broken").sum().cast(pl.Int64)
    )
    spans = rows.group_by("symbol").agg(
        first_ts=pl.col("ts").first(),
        last_ts=pl.col("ts").last(),
        first_open=pl.col("open").first(),
        last_close=pl.col("close").last(),
        duplicates=pl.col("again").sum().cast(pl.Int64),
    )
    seen = counts.join(spans, on="symbol", how="left", maintain_order="left")
    return rows.filter(~pl.col("again")).drop("again"), seen.select(SEEN.keys())


def _stack(parts: list[pl.DataFrame], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=schema), *parts])


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
