"""In: a model, the stored bars. Out: their rows as its network reads them, its training span, the newest sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from klinepred.bars.store import list_symbols, scan_bars
from klinepred.calendar import Clock, segments
from klinepred.dataset.make import Dataset, make_dataset
from klinepred.errors import StoreError
from klinepred.features.build import FeatureFrame, build_features
from klinepred.features.cache import Cached, kept_features
from klinepred.model.bundle import ModelBundle, features_of
from klinepred.paths import Workspace
from klinepred.schema import BAR, Bars

SESSIONS: Final = 10
"""Newest finished sessions that are compared, unless told otherwise."""
TIMES: Final = 4
"""The training span must have so many times the sessions that are compared, else chance cannot be told."""


def stored_rows(bundle: ModelBundle, space: Workspace, *, now: datetime | None) -> Dataset:
    """Rows of the store scaled and cut as the model was trained."""
    features = features_of(bundle)
    stored = set(list_symbols(space).get_column("symbol").to_list())
    symbols = [symbol for symbol in bundle.universe if symbol in stored]
    if not symbols:
        raise StoreError(
            f"universe of model {bundle.name}",
            expected="at least one of its symbols in the store",
            got="none of them",
            do="ingest them, or name another model",
        )
    bars = scan_bars(space, symbols=symbols)
    if now is None:
        with kept_features(bars, features, universe=bundle.universe, folder=space.features) as kept:
            return _rows(kept, bundle, folder=space.data)
    table = build_features(Bars(bars.filter(pl.col("ts") + BAR <= now)), features, universe=bundle.universe)
    if table.frame.is_empty():
        raise StoreError(
            f"bars of the universe of model {bundle.name}",
            expected=f"some that had finished by {now:%Y-%m-%dT%H:%M:%SZ}",
            got="none",
            do="check --now against `klinepred bars list`",
        )
    return _rows(table, bundle, folder=space.data)


def _rows(table: FeatureFrame | Cached, bundle: ModelBundle, *, folder: Path) -> Dataset:
    return make_dataset(table, bundle.dataset, scaler=bundle.scaler, split=bundle.split, need_rows=False, folder=folder)


def spans(
    data: Dataset, bundle: ModelBundle, now: datetime, *, since: datetime | None
) -> tuple[list[date], list[date]]:
    """The sessions to compare, and those of the training span."""
    split = bundle.split
    days = data.rows.get_column("session").unique().sort()
    begun = days if split.train_start is None else days.filter(days >= split.train_start)
    reference = begun.filter(begun <= split.calibration_end).to_list()
    over = days.filter((days > split.calibration_end) & days.is_in(_ended(data.calendars, now).implode()))
    if since is not None:
        first = data.rows.filter(pl.col("ts") >= since).get_column("session").min()
        over = over.filter(over >= first) if first is not None else over.clear()
    most = len(reference) // TIMES if since is not None else min(SESSIONS, len(reference) // TIMES)
    return over.tail(most).to_list(), reference


def _ended(calendars: Mapping[str, str], now: datetime) -> pl.Series:
    """Sessions that are over by `now` on every clock of the universe."""
    ended = None
    for name in sorted(set(calendars.values())):
        days = segments(Clock.parse(name)).group_by("session").agg(pl.col("close").max())
        here = days.filter(pl.col("close") <= now).get_column("session")
        last = here.max()
        ended = here if ended is None else pl.concat([ended, here]).unique()
        ended = ended.filter(ended <= last)
    return pl.Series("session", [], pl.Date) if ended is None else ended


def codes(session: pl.Series, days: Sequence[date]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of these sessions, as a mask, and their sessions' places among them."""
    place = session.replace_strict(list(days), list(range(len(days))), default=-1, return_dtype=pl.Int64).to_numpy()
    mask_N = place >= 0
    return mask_N, place[mask_N]
