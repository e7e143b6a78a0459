"""In: a pipeline or a saved model, and a workspace. Out: the dataset, from what the store holds."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from klinepred.bars.store import list_symbols, scan_bars, simulated_symbols
from klinepred.paths import Workspace
from klinepred.pipeline.symbols import choose_symbols
from klinepred.settings import Pipeline

if TYPE_CHECKING:
    from klinepred.dataset.make import Dataset
    from klinepred.dataset.scale import Scaler
    from klinepred.model.bundle import ModelBundle

log = logging.getLogger("klinepred.pipeline")


def build_dataset(
    run: Pipeline, space: Workspace, *, version: int | None = None, scaler: Scaler | None = None
) -> Dataset:
    """The training dataset of a pipeline from what the store holds.

    Parameters
    ----------
    version
        What it held at this version; default: the newest.
    scaler
        Of the model whose weights training begins from; default: one fitted on the train rows.

    Raises
    ------
    StoreError, DatasetError
        Too little is stored.
    """
    import polars as pl

    from klinepred.bars.hindsight import judge_universe
    from klinepred.dataset.make import make_dataset
    from klinepred.features.custom import features_for
    from klinepred.pipeline.past import features_at

    features = features_for(run.features)
    symbols = choose_symbols(run, space, as_of=version)
    data = make_dataset(features_at(space, symbols, features, version=version), run.dataset, scaler=scaler)
    for symbol, (bars, sessions) in sorted(data.lacking.items()):
        log.warning("%s has too little history to be trained on: %d bars, %d sessions", symbol, bars, sessions)
    real = data.spans().filter(~pl.col("symbol").is_in(list(simulated_symbols(space))))
    for line in judge_universe(real):
        log.warning("%s", line)
    return data


def dataset_of(bundle: ModelBundle, space: Workspace, *, now: datetime | None = None) -> Dataset:
    """Rows of the store scaled, split and cut as the model was trained. Errors as `evaluate_model`."""
    import polars as pl

    from klinepred.dataset.make import make_dataset
    from klinepred.features.build import build_features
    from klinepred.features.cache import cached_frame
    from klinepred.model.bundle import features_of
    from klinepred.schema import BAR, Bars

    features = features_of(bundle)
    stored = set(list_symbols(space).get_column("symbol").to_list())
    symbols = [symbol for symbol in bundle.universe if symbol in stored]
    if len(symbols) < len(bundle.universe):
        absent = [symbol for symbol in bundle.universe if symbol not in stored]
        log.warning("not in the store, though the model was trained on them: %s", ", ".join(absent))
    bars = scan_bars(space, symbols=symbols)
    if now is None:
        table = cached_frame(bars, features, universe=bundle.universe, folder=space.features)
    else:  # an earlier state of the store: what is kept of the newest one stays
        table = build_features(Bars(bars.filter(pl.col("ts") + BAR <= now)), features, universe=bundle.universe)
    return make_dataset(table, bundle.dataset, scaler=bundle.scaler, split=bundle.split)
