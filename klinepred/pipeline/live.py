"""In: a saved model, a pipeline, a workspace. Out: its predictions as each bar closes, live or replayed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import polars as pl

from klinepred.bars.store import list_symbols, stored_clocks
from klinepred.errors import StoreError, UsageError
from klinepred.paths import Workspace
from klinepred.pipeline.symbols import choose_symbols
from klinepred.schema import BAR
from klinepred.settings import Pipeline

if TYPE_CHECKING:
    from klinepred.live.follow import Sink
    from klinepred.live.stop import Stops
    from klinepred.model.bundle import ModelBundle

log = logging.getLogger("klinepred.pipeline")

DELAY: Final = timedelta(seconds=10)
PATIENCE: Final = timedelta(seconds=60)


@dataclass(frozen=True)
class Following:
    """How to follow.

    Attributes
    ----------
    start
        Replay from here, on a clock that jumps from close to close; None = live.
    until
        The last close followed; None = for ever, in a replay the last one stored.
    ingest
        Whether the pipeline's source is asked for bars; None = live yes, in a replay no: it shows what is stored.
    delay, patience
        See `klinepred.live.follow.Plan`; in a replay nothing is waited for.
    """

    start: datetime | None = None
    until: datetime | None = None
    ingest: bool | None = None
    delay: timedelta = DELAY
    patience: timedelta = PATIENCE


def follow_bars(
    bundle: ModelBundle,
    space: Workspace,
    run: Pipeline,
    *,
    how: Following,
    sink: Sink,
    stops: Stops,
    symbols: tuple[str, ...] = (),
    shown: dict[str, datetime] | None = None,
) -> None:
    """Predict `symbols` (default: the pipeline's that are stored) as each bar closes; ends by `how` or by a signal.

    Parameters
    ----------
    shown
        By symbol, the newest bar whose prediction is out already.

    Raises
    ------
    StoreError, ModelError
        Nothing is stored, or the features are not the model's.
    UsageError
        The source can never bring a bar, or a replay has no end.
    """
    from klinepred.live.carried import Carried
    from klinepred.live.feed import feed_of
    from klinepred.live.follow import Follower, Plan
    from klinepred.live.watch import RealWatch, ReplayWatch

    stored = list_symbols(space)
    wanted = symbols or choose_symbols(run, space)
    clocks = stored_clocks(space)
    known = [name for name in wanted if name in set(stored["symbol"])]
    if not known:
        raise StoreError(
            f"following {', '.join(wanted[:5])}",
            expected="symbols with bars in the store",
            got="none of them",
            do="see `klinepred bars list`, and ingest their history first",
        )
    for name in wanted:
        if name not in known:
            log.warning("no data for %s in the store: it is not followed", name)
    watch = RealWatch() if how.start is None else ReplayWatch(how.start)
    everyone = [name for name in dict.fromkeys([*bundle.universe, *known]) if name in clocks]
    ingest = how.start is None if how.ingest is None else how.ingest
    until = how.until
    if until is not None and until < watch.now():
        raise UsageError(
            "--until",
            expected=f"a moment from {watch.now():%Y-%m-%dT%H:%M:%SZ} on, where it begins",
            got=f"{until:%Y-%m-%dT%H:%M:%SZ}",
            do="move --until to later, or --now to earlier",
        )
    if how.start is not None and until is None:
        if ingest:
            raise UsageError(
                "--follow --now with --ingest",
                expected="--until, the last close of the replay",
                got="none",
                do=f"add --until {how.start + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}",
            )
        last: datetime = stored.filter(pl.col("symbol").is_in(known))["last_ts"].max()  # type: ignore[assignment]
        until = last + BAR
    feed = feed_of(run.data, space, everyone, now=watch.now()) if ingest else None
    live = how.start is None
    plan = Plan(
        clocks={name: clocks[name] for name in everyone},
        universe=bundle.universe,
        delay=how.delay if live else timedelta(0),
        patience=how.patience if live else timedelta(0),
        until=until,
        again=live,
    )
    predictor = Carried(bundle, space, known)
    Follower(plan, space, predictor, feed, watch, sink, stops=stops, shown={} if shown is None else shown).run()
