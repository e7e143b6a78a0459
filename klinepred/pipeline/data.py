"""In: a pipeline or a saved model, and a workspace. Out: the dataset, from what the store holds."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from klinepred.bars.store import list_symbols, scan_bars, simulated_symbols, store_version
from klinepred.engine.engine import HERE, Engine
from klinepred.paths import Workspace
from klinepred.pipeline.symbols import choose_symbols
from klinepred.settings import Pipeline

if TYPE_CHECKING:
    import polars as pl

    from klinepred.dataset.make import Dataset
    from klinepred.dataset.scale import Scaler
    from klinepred.features.cache import Cached
    from klinepred.model.bundle import ModelBundle

log = logging.getLogger("klinepred.pipeline")


def build_dataset(
    run: Pipeline, space: Workspace, *, version: int | None = None, scaler: Scaler | None = None
) -> Dataset:
    """The training dataset of a pipeline from what the store holds; of a walk-forward, its first fold.

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
    return next(build_folds(run, space, version=version, scaler=scaler))


def build_folds(
    run: Pipeline, space: Workspace, *, skip: int = 0, version: int | None = None, scaler: Scaler | None = None
) -> Iterator[Dataset]:
    """The training dataset of each fold of a pipeline's walk-forward after the first `skip`; one split is one fold.

    The datasets come one after another, each from the features that are kept in the workspace, so that a caller who
    lets go of one before asking for the next holds one at a time. The rest as `build_dataset`.
    """
    from klinepred.dataset.make import make_dataset, say_parts
    from klinepred.features.custom import features_for
    from klinepred.pipeline.past import features_at

    features = features_for(run.features)
    version = store_version(space) if version is None else version
    symbols = choose_symbols(run, space, as_of=version)
    for fold in range(1 + skip, run.dataset.split.folds + 1):
        with features_at(space, symbols, features, version=version) as table:
            data = make_dataset(table, run.dataset, fold=fold, scaler=scaler, folder=space.data)
        log.info("%s", say_parts(data))  # not of each of the datasets that an audit makes
        if fold == 1 + skip:
            _mind_universe(data, space)
        yield data
        del data


def refresh_features(run: Pipeline, space: Workspace, *, engine: Engine = HERE) -> Cached:
    """Bring the features that are kept of the pipeline's symbols up to date, by whatever engine.

    Raises
    ------
    StoreError, FeatureError
        Nothing is stored; or as `klinepred.features.cache.cached_features`.
    """
    from klinepred.features.cache import cached_features
    from klinepred.features.custom import features_for

    symbols = choose_symbols(run, space)
    bars = scan_bars(space, symbols=symbols)
    return cached_features(bars, features_for(run.features), universe=symbols, folder=space.features, engine=engine)


def describe_dataset(run: Pipeline, space: Workspace) -> tuple[pl.DataFrame, dict[str, int]]:
    """What `klinepred dataset describe` shows: parts of every fold, and the memory of the largest dataset in bytes.

    Raises
    ------
    StoreError, DatasetError
        As `build_folds`.
    """
    import polars as pl

    from klinepred.dataset.describe import describe
    from klinepred.training.budget import expected_memory

    found, memory = [], {"matrix": 0, "rows": 0, "weights": 0, "batch": 0}
    for data in build_folds(run, space):
        found.append(describe(data))
        budget = expected_memory(data, run.model, run.train)
        memory = {name: max(value, getattr(budget, name)) for name, value in memory.items()}
    return pl.concat(found), memory


def _mind_universe(data: Dataset, space: Workspace) -> None:
    """A word on symbols with too little history, and on a universe chosen with hindsight."""
    import polars as pl

    from klinepred.bars.hindsight import judge_universe

    for symbol, (bars, sessions) in sorted(data.lacking.items()):
        log.warning("%s has too little history to be trained on: %d bars, %d sessions", symbol, bars, sessions)
    real = data.spans().filter(~pl.col("symbol").is_in(list(simulated_symbols(space))))
    for line in judge_universe(real):
        log.warning("%s", line)


def dataset_of(bundle: ModelBundle, space: Workspace, *, now: datetime | None = None) -> Dataset:
    """Rows of the store scaled, split and cut as the model was trained. Errors as `evaluate_model`."""
    import polars as pl

    from klinepred.dataset.make import make_dataset
    from klinepred.features.build import build_features
    from klinepred.features.cache import kept_features
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
        with kept_features(bars, features, universe=bundle.universe, folder=space.features) as kept:
            return make_dataset(kept, bundle.dataset, scaler=bundle.scaler, split=bundle.split, folder=space.data)
    # an earlier state of the store: what is kept of the newest one stays
    table = build_features(Bars(bars.filter(pl.col("ts") + BAR <= now)), features, universe=bundle.universe)
    return make_dataset(table, bundle.dataset, scaler=bundle.scaler, split=bundle.split)
