"""In: a workspace, symbols, a model. Out: `Evidence`: the stored bars that an audit is carried out on."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from klinepred.audit.stages import Evidence
from klinepred.bars.store import list_symbols, scan_bars, store_version
from klinepred.errors import StoreError
from klinepred.features.spec import FeatureSet
from klinepred.model.bundle import ModelBundle, features_of
from klinepred.paths import Workspace
from klinepred.settings import DatasetSettings

FEWEST = 6
"""Symbols that are always taken where there are so many: one more than a cross-section needs."""


def pipeline_evidence(
    space: Workspace,
    symbols: Sequence[str],
    *,
    features: FeatureSet,
    settings: DatasetSettings,
    rows: int | None,
    as_of: int | None = None,
) -> Evidence:
    """Whole histories of as many symbols as hold `rows` bars (None: of all), evenly chosen among the long ones."""
    chosen = tuple(symbols) if rows is None else _choose(space, symbols, rows=rows, as_of=as_of)
    bars = scan_bars(space, symbols=chosen, as_of=as_of).collect()
    some = "" if len(chosen) == len(symbols) else f" of {len(symbols)}"
    about = f"{_words(bars)} of {len(chosen)}{some} symbols, store version {store_version(space, as_of=as_of)}"
    return Evidence(bars, chosen, features, settings, about)


def model_evidence(space: Workspace, bundle: ModelBundle) -> Evidence:
    """All bars that a model was trained on, as the store was then; as it is today where that is gone.

    Raises
    ------
    StoreError
        No symbol of the model is stored.
    ModelError
        This version of klinepred does not compute the features of the model.
    """
    version = bundle.provenance.get("store_version")
    stored = set(list_symbols(space).get_column("symbol").to_list())
    symbols = [symbol for symbol in bundle.universe if symbol in stored]
    if not symbols:
        raise StoreError(
            f"bars of model {bundle.name}",
            expected=f"its {len(bundle.universe)} symbols in the store",
            got="none of them",
            do="ingest them first, or pass -w with the workspace it was trained in",
        )
    try:
        bars, when = scan_bars(space, symbols=symbols, as_of=version).collect(), f"store version {version}"
    except StoreError:
        bars, when = scan_bars(space, symbols=symbols).collect(), f"the store of today: version {version} is gone"
    about = f"{_words(bars)} of {len(symbols)} of {len(bundle.universe)} symbols, {when}; model {bundle.name}"
    return Evidence(bars, tuple(bundle.universe), features_of(bundle), bundle.dataset, about)


def _choose(space: Workspace, symbols: Sequence[str], *, rows: int, as_of: int | None) -> tuple[str, ...]:
    stored = list_symbols(space, as_of=as_of).filter(pl.col("symbol").is_in(list(symbols)))
    if stored.get_column("bars").sum() <= rows:
        return tuple(symbols)
    long = stored.filter(pl.col("bars") >= 0.5 * pl.col("bars").max())
    if long.height < FEWEST:
        long = stored.sort("bars", "symbol", descending=[True, False]).head(FEWEST)
    names = long.get_column("symbol").sort()
    count = min(len(names), max(FEWEST, int(rows / float(long.select(pl.col("bars").mean()).item()))))
    return tuple(names[round(at * (len(names) - 1) / max(1, count - 1))] for at in range(count))


def _words(bars: pl.DataFrame) -> str:
    low, high = bars.select(low=pl.col("ts").min(), high=pl.col("ts").max()).row(0)
    return f"{bars.height:,} bars from {low:%Y-%m-%dT%H:%MZ} to {high:%Y-%m-%dT%H:%MZ}" if low else "no bars"
