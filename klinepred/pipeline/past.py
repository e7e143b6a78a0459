"""In: a checkpoint, a version of the store. Out: the version a run saw; features as the bars were then."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from klinepred.bars.store import scan_bars, store_version, stored_clocks
from klinepred.errors import StoreError, TrainingError
from klinepred.paths import Workspace
from klinepred.schema import BAR_SCHEMA, Bars

if TYPE_CHECKING:
    from klinepred.features.build import FeatureFrame
    from klinepred.features.cache import Cached
    from klinepred.features.spec import FeatureSet

log = logging.getLogger("klinepred.pipeline")


def seen_version(space: Workspace, checkpoint: Path) -> int | None:
    """Version of the store whose bars the run of a checkpoint saw; the newest where the checkpoint names none.

    Raises
    ------
    TrainingError
        The checkpoint cannot be read, or the store no longer has that version.
    """
    from klinepred.training.checkpoint import load_checkpoint

    seen, newest = load_checkpoint(checkpoint).get("store_version"), store_version(space)
    if seen is None or seen == newest:
        return newest
    try:
        scan_bars(space, as_of=seen)
    except StoreError as error:
        raise TrainingError(
            f"resume of {checkpoint.stem}",
            expected=f"the bars of store version {seen}, with which the run began",
            got=error.got,
            do="restore the store from a backup, or start a new run without --resume",
        ) from error
    log.warning(
        "the store has changed since (version %s): the run goes on with version %s, which it began with", newest, seen
    )
    return int(seen)


@contextmanager
def features_at(
    space: Workspace, symbols: Sequence[str], features: FeatureSet, *, version: int | None = None
) -> Iterator[FeatureFrame | Cached]:
    """Features of the bars of `symbols` as the store was at `version`; default: the newest.

    What is kept in the workspace belongs to the newest version, and stays as it is for the length of the block. An
    older one takes it where later deliveries only added bars after its last one; where they changed anything up to
    there, its features are computed anew in memory, which may differ in the last digits from those computed then.

    Raises
    ------
    StoreError
        Nothing is stored, or the version is gone.
    """
    from klinepred.features.build import build_features
    from klinepred.features.cache import kept_features

    bars = scan_bars(space, symbols=symbols, as_of=version)
    last = None
    if version is not None and version != store_version(space):
        last = bars.select(pl.col("ts").max()).collect().item()
        if not _only_added_to(space, bars, symbols, version=version):
            yield build_features(bars, features, universe=symbols)
            return
        bars = scan_bars(space, symbols=symbols)
    with kept_features(bars, features, universe=symbols, folder=space.features) as kept:
        yield replace(kept, until=last)


def _only_added_to(space: Workspace, bars: Bars, symbols: Sequence[str], *, version: int) -> bool:
    """Whether the newest store holds, up to the last of `bars`, just these by the same clocks."""
    then, now = stored_clocks(space, as_of=version), stored_clocks(space)
    if any(then[name] != now.get(name) for name in symbols):
        return False
    try:
        newest = scan_bars(space, symbols=symbols)
    except StoreError:  # a symbol was deleted since
        return False
    columns = [*BAR_SCHEMA]
    before = bars.select(columns)
    after = newest.select(columns).filter(pl.col("ts") <= before.select(pl.col("ts").max()).collect().item())
    for one, two in ((before, after), (after, before)):
        odd = one.join(two, on=columns, how="anti", nulls_equal=True)
        if odd.select(pl.len()).collect().item():
            return False
    return True
