"""In: a model, a store, symbols. Out: predictions of the newest bars, each new bar costing one step, not a history."""

# Shapes: S symbols, N of them with a new bar, F features.

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import polars as pl

from klinepred.bars.latest import last_bars
from klinepred.bars.store import has_bars, latest_version, scan_bars, stored_clocks
from klinepred.dataset.make import Dataset, make_dataset
from klinepred.features.build import FeatureFrame, features_and_moves
from klinepred.features.columns import placed_bars
from klinepred.features.newest import CODE, across_newest, newest_plan, own_newest
from klinepred.live.growth import grown_since
from klinepred.live.memory import Memory
from klinepred.live.trail import PLACED, Ints, Trail
from klinepred.live.units import units_of
from klinepred.model.bundle import ModelBundle, features_of
from klinepred.paths import Workspace
from klinepred.prediction import Forecast, broken, longest_day, nothing, reach_of, told, too_little
from klinepred.remarks import count_members
from klinepred.schema import BAR, BAR_SCHEMA, CALENDAR, TS

log = logging.getLogger("klinepred.live")

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Carried:
    """Predicts as `klinepred.prediction.forecast` does, from what it remembers of the bars before.

    The features of a new bar are computed from the trailing bars by the expressions of all rows, the LSTM goes one step
    on. Whatever is not just one bar more (a late bar, a revision, bars deleted) has all of it read again.

    Attributes
    ----------
    version
        Of the store that the last `refresh` saw.
    rebuilt
        How often all was read.
    """

    def __init__(self, bundle: ModelBundle, space: Workspace, symbols: Sequence[str]) -> None:
        self.version, self.rebuilt = -1, 0
        self._bundle, self._space, self._wanted = bundle, space, tuple(symbols)
        self._features = features_of(bundle)
        self._names: list[str] = []
        self._newest: dict[str, datetime] = {}
        self._there: dict[str, datetime] = {}
        self._ahead: pl.DataFrame | None = None  # bars that were not taken yet; None = all is to be read
        self._counted = pl.DataFrame()
        self._front = EPOCH

    @property
    def newest(self) -> Mapping[str, datetime]:
        """Open of the newest bar of each symbol there is, predicted or of the universe, by the last `refresh`."""
        return self._there

    def refresh(self, moment: datetime) -> None:
        """Take in what the store holds of bars that had closed by `moment`.

        Raises
        ------
        StoreError
            It cannot be read; the next try reads all of it.
        """
        latest = latest_version(self._space)
        newest = -1 if latest is None else latest
        if newest != self.version and self._ahead is not None:
            more = grown_since(self._space, self.version, newest, self._known())
            self._ahead = None if more is None else pl.concat([self._ahead, more])
        self.version = newest
        if self._ahead is None:
            self._rebuild(moment)
        due = self._due(moment).group_by("symbol").agg(pl.col("ts").max())
        self._there = {**self._newest, **{name: max(ts, self._newest.get(name, ts)) for name, ts in due.iter_rows()}}

    def _due(self, moment: datetime) -> pl.DataFrame:
        """Bars that came but were not taken yet."""
        return pl.DataFrame(schema=BAR_SCHEMA) if self._ahead is None else self._ahead.filter(_closed(moment))

    def _advance(self, moment: datetime) -> None:
        """Take the bars that are due: only now, so that those of one time may come one after another."""
        due = self._due(moment)
        if due.is_empty() or self._ahead is None:
            return
        if due["ts"].min() <= self._front or not {*due["symbol"]} <= {*self._names}:  # type: ignore[operator]
            self._rebuild(moment)
            return
        ahead, self._ahead = self._ahead.filter(~_closed(moment)), None  # should this fail, all is read again
        for rows in due.sort("ts", "symbol").partition_by("ts", maintain_order=True):
            self._step(rows)
        self._ahead = ahead

    def forecast(self, moment: datetime) -> Forecast:
        """Of the newest bar of each symbol that had closed by `moment`, the moment of the last `refresh`.

        Raises
        ------
        DatasetError
            No symbol can be predicted.
        """
        self._advance(moment)
        failures = {name: f"no data for {name} finished by {moment:%Y-%m-%dT%H:%M:%SZ}" for name in self._wanted}
        wanted = {*self._wanted}
        codes = np.array([code for code, name in enumerate(self._names) if name in wanted], dtype=np.int64)
        for code in codes[self._bars_S[codes] > 0] if codes.size else codes:
            name = self._names[code]
            failures.pop(name)
            if not self._usable_S[code]:
                failures[name] = too_little(
                    self._features, int(self._bars_S[code]), max(0, int(self._sessions_S[code]))
                )
            elif np.isnan(self._pred_S[code]):
                failures[name] = broken(self._bundle)
        codes = codes[[self._names[code] not in failures for code in codes]] if codes.size else codes
        if not codes.size:
            raise nothing(failures)
        rows = pl.DataFrame(
            {
                "symbol": [self._names[code] for code in codes],
                "bar_ts": pl.Series(self._trail.newest("ts", codes)).cast(pl.Datetime("us", "UTC")),
                "session": pl.Series(self._trail.newest("session", codes)).cast(pl.Date),
                "close": self._trail.newest("close", codes),
            }
        )
        answer = told(
            self._bundle,
            rows,
            self._pred_S[codes],
            self._kind_S[codes],
            self._vol_S[codes],
            self._x_SF[codes],
            calendars=self._calendars,
            now=moment,
            counted=self._counted,
            history=False,
        )
        return Forecast(answer[0], dict(sorted(failures.items())), answer[1])

    def rest(self) -> None:
        """Do now what the next bar will need, where sessions have ended."""
        codes = np.flatnonzero(self._bars_S > 0)
        last = self._trail.newest("bar", codes) + 1 == self._trail.newest("session_bars", codes)
        self._memory.look_ahead(codes[last & self._usable_S[codes]])

    def _known(self) -> list[str]:
        return list(dict.fromkeys([*self._bundle.universe, *self._wanted]))

    def _step(self, rows: pl.DataFrame) -> None:
        """Bars of one time, each the newest of its symbol."""
        calendar = pl.col("symbol").replace_strict(self._calendars, return_dtype=pl.String).alias(CALENDAR)
        placed = placed_bars(rows.select(*BAR_SCHEMA).with_columns(calendar))
        codes = np.array([self._codes[name] for name in placed["symbol"]], dtype=np.int64)
        session_N = placed.get_column("session").to_physical().to_numpy()
        turned_N = (self._bars_S[codes] > 0) & (session_N != self._trail.newest("session", codes))
        self._trail.push(codes, _plain(placed, PLACED))
        first_N = (self._bars_S[codes] == 0) & (placed.get_column("bar").to_numpy() > 0)
        self._bars_S[codes] += 1
        self._sessions_S[codes] += turned_N.astype(np.int64) - first_N
        clocks = [self._calendars[name] for name in self._names]
        with ThreadPoolExecutor(1, "klinepred-units") as pool:  # beside the features: neither needs the other
            units = pool.submit(units_of, self._trail, codes, clocks, self._bundle.dataset)
            x_NF = self._newest_rows(codes)
        self._x_SF[codes] = x_NF
        enough = self._bars_S[codes] >= self._features.lookback_bars
        usable_N = enough & (self._sessions_S[codes] >= self._features.lookback_sessions)
        self._usable_S[codes] = usable_N
        slot_N = placed.get_column("slot").to_numpy()
        self._pred_S[codes] = self._memory.step(codes, x_NF, slot_N, session_N.astype(np.int64), usable_N)
        self._kind_S[codes], self._vol_S[codes] = units.result()
        self._front = rows.item(0, "ts")
        self._newest.update(dict.fromkeys(placed["symbol"].to_list(), self._front))

    def _newest_rows(self, codes: Ints) -> np.ndarray:
        """Scaled features [N, F] of the newest bars."""

        def trailing(bars: int, *, seasonal: bool = False) -> pl.DataFrame:
            spots = self._trail.seasonal(codes, bars) if seasonal else self._trail.spots(codes, bars)
            return self._trail.frame(spots, PLACED)

        plan = self._plan
        own = own_newest(plan, trailing)
        if plan.reach:
            self._trail.amend(codes, _plain(own, ("_z", "_z_12")))
            oldest = self._trail.spots(codes, plan.reach)
            begin = int(self._trail.take("ts", oldest).min())
            moves = self._trail.frame(self._trail.since(begin, at_least=plan.reach + 1), ("ts", "_z", "_z_12"))
            moves = moves.with_columns(_row=pl.Series(self._bars_S).gather(moves.get_column(CODE)))
            there = moves.get_column(CODE).rle().struct.field("value").to_numpy()
            side = across_newest(plan, moves, codes=codes, member_S=self._member_S[there])
            own = own.hstack(side.drop(CODE))
        stamps = self._trail.frame(codes * self._trail.room + self._trail.end[codes] - 1, ("ts",)).drop(CODE)
        named = own.with_columns(stamps["ts"], symbol=pl.Series([self._names[code] for code in codes]))
        self._count(FeatureFrame(named, self._features, self._bundle.universe, self._calendars))
        return self._bundle.scaler.apply(own)

    def _count(self, table: FeatureFrame) -> None:
        """Members of the universe at a new time; what no newest bar is at any more is forgotten."""
        here = count_members(table, table.frame.get_column("ts"))
        kept = pl.col("bar_ts").is_in([*self._newest.values()]) & ~pl.col("bar_ts").is_in(here["bar_ts"].implode())
        self._counted = pl.concat([self._counted.filter(kept), here])

    def _rebuild(self, moment: datetime) -> None:
        """Read the store and compute all that is remembered, by the code of `klinepred.prediction.forecast`."""
        self.rebuilt += 1
        self._ahead = None  # should this fail, the next try begins here again
        bundle, features = self._bundle, self._features
        stored = has_bars(self._space, as_of=self.version) if self.version >= 0 else set()
        self._names = sorted(name for name in self._known() if name in stored)
        clocks = stored_clocks(self._space, as_of=self.version) if stored else {}
        self._calendars = {name: str(clocks[name]) for name in self._names}
        self._codes = {name: code for code, name in enumerate(self._names)}
        day = longest_day({*self._calendars.values(), *bundle.calendars.values()})
        keep = reach_of(bundle, features, day=day)
        recent, ahead = self._read(moment, keep)
        placed = placed_bars(recent)
        table, moves = features_and_moves(placed, features, universe=bundle.universe)
        data = make_dataset(table, bundle.dataset, scaler=bundle.scaler, split=bundle.split, need_rows=False)
        self._plan = newest_plan(features, day=day)
        self._member_S = np.array([name in set(bundle.universe) for name in self._names], dtype=bool)
        self._trail = Trail(len(self._names), keep=keep)
        self._fill(placed, moves, data)
        self._counted = count_members(table, pl.Series([*self._newest.values()], dtype=TS))
        self._ahead = ahead

    def _read(self, moment: datetime, keep: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The last bars of each symbol that had closed by `moment`; all that had not."""
        if not self._names:
            return pl.DataFrame(schema={**BAR_SCHEMA, CALENDAR: pl.String()}), pl.DataFrame(schema=BAR_SCHEMA)
        bars = scan_bars(self._space, symbols=self._names, as_of=self.version)
        ahead = bars.filter(~_closed(moment)).select(*BAR_SCHEMA).collect()
        return last_bars(bars, before=moment - BAR + timedelta(microseconds=1), reach=keep), ahead

    def _fill(self, placed: pl.DataFrame, moves: pl.DataFrame, data: Dataset) -> None:
        size = len(self._names)
        self._bars_S, self._sessions_S = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        self._usable_S = np.zeros(size, dtype=bool)
        self._pred_S, self._vol_S = np.full(size, np.nan, dtype=np.float32), np.full(size, np.nan, dtype=np.float32)
        self._kind_S = np.zeros(size, dtype=np.int8)
        self._x_SF = np.zeros((size, len(self._features.names)), dtype=np.float32)
        self._memory = Memory(
            self._bundle.network, self._bundle.dataset, symbols=size, features=len(self._features.names)
        )
        self._newest = {}
        whole = placed.hstack(moves.select("_z", "_z_12"))
        for part in whole.partition_by("symbol", maintain_order=True):
            code = self._codes[part.item(0, "symbol")]
            rows = _plain(part, (*PLACED, "_z", "_z_12"))
            self._trail.fill(code, rows)
            self._bars_S[code] = part.height
            self._sessions_S[code] = part.get_column("session").n_unique() - 1 - (part.item(0, "bar") > 0)
            self._newest[part.item(0, "symbol")] = part.item(-1, "ts")
        self._front = max(self._newest.values(), default=EPOCH)
        self._sequences(data)

    def _sequences(self, data: Dataset) -> None:
        """Let the network read the running sequences; usable rows of a symbol are its last ones."""
        sizes = data.rows.get_column("symbol").rle().struct.unnest()
        codes = np.array([self._codes[name] for name in sizes.get_column("value")], dtype=np.int64)
        counts = sizes.get_column("len").to_numpy().astype(np.int64)
        last_N = np.cumsum(counts) - 1
        self._usable_S[codes] = True
        self._kind_S[codes], self._vol_S[codes] = data.kind_N[last_N], data.vol_N[last_N]
        self._x_SF[codes] = data.x_NF[last_N]
        ends_S = data.sequences.start_S + data.sequences.length_S - 1
        starts = dict(zip(ends_S.tolist(), data.sequences.start_S.tolist(), strict=True))
        runs, leads = [], []
        for code, last, count in zip(codes, last_N, counts, strict=True):
            slots = self._trail.take("slot", self._trail.spots(np.array([code]), int(count)))
            broken_at = np.flatnonzero(np.diff(slots) != 1)
            first = last - count + 1 + (int(broken_at[-1]) + 1 if broken_at.size else 0)
            runs.append(data.x_NF[first : last + 1])
            leads.append(starts.get(int(last), int(last) + 1) - int(first))
        slot_N = self._trail.newest("slot", codes)
        session_N = self._trail.newest("session", codes).astype(np.int64)
        self._pred_S[codes] = self._memory.fill(codes, runs, np.array(leads, dtype=np.int64), slot_N, session_N)


def _closed(moment: datetime) -> pl.Expr:
    return pl.col("ts") <= moment - BAR  # so that files and row groups are skipped


def _plain(frame: pl.DataFrame, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns as numbers; null as not a number."""
    columns = {name: frame.get_column(name).to_physical() for name in names}
    return {
        name: (column.fill_null(float("nan")) if name.startswith("_") else column).to_numpy()
        for name, column in columns.items()
    }
