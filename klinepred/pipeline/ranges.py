"""In: models, a workspace, a range of time. Out: its predictions slice by slice, each bar by the model that is due."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

from klinepred.bars.latest import last_bars
from klinepred.bars.store import list_symbols, scan_bars, stored_clocks
from klinepred.headway import Work
from klinepred.paths import Workspace
from klinepred.pipeline.folds import WalkForward
from klinepred.pipeline.judge import known_symbols, mind_leaks

if TYPE_CHECKING:
    from klinepred.model.bundle import ModelBundle
    from klinepred.prediction import Forecast
    from klinepred.settings import Pipeline

log = logging.getLogger("klinepred.pipeline")

Span = tuple[datetime, datetime]

HOUR: Final = timedelta(hours=1)
SLICE_BARS: Final = 1_000_000
"""Bars predicted in one go, beside those that they look back over."""


@dataclass(frozen=True)
class Turn:
    """A model, and the bars that are its own: those whose predicted bar lies in a session after `after`, to `until`.

    None is no border.
    """

    bundle: ModelBundle
    after: date | None = None
    until: date | None = None


def turns_of(record: WalkForward, space: Workspace) -> tuple[Turn, ...]:
    """The models of a walk-forward, each with its test span; the first one has all bars before as well.

    Raises
    ------
    ModelError
        A model is gone or damaged.
    """
    from klinepred.model.bundle import load_bundle

    bundles = [load_bundle(space.trained / one.model) for one in record.models]
    ends = [bundle.split.test_end for bundle in bundles[:-1]]
    return tuple(
        Turn(bundle, after, until) for bundle, after, until in zip(bundles, [None, *ends], [*ends, None], strict=True)
    )


def predict_range(
    turns: Sequence[Turn],
    space: Workspace,
    run: Pipeline,
    *,
    span: Span,
    symbols: tuple[str, ...] = (),
    now: datetime | None = None,
    slice_bars: int = SLICE_BARS,
) -> Iterator[Forecast]:
    """Every finished bar with `span[0] <= ts < span[1]`, oldest slice first; of many symbols one batch after another.

    A slice holds some days of all symbols of a batch, and the bars before it that it looks back over are kept from the
    one before: memory grows neither with the range nor with the symbols. Slices and batches change no number.

    Parameters
    ----------
    turns
        Oldest first.
    symbols
        Default: the pipeline's that are stored.

    Yields
    ------
    Forecast
        A slice; one without any prediction has no rows. Its failures are of this slice.

    Raises
    ------
    StoreError, ModelError
        No symbol is stored, or the features are not a model's.
    """
    from klinepred.crowd import batches_of
    from klinepred.prediction import mind_absent

    known, unknown = known_symbols(space, run, symbols)
    clock = now or datetime.now(UTC)
    high = min(span[1], clock)
    mind_absent(turns[0].bundle, list_symbols(space).get_column("symbol"))
    for turn in turns:
        mind_leaks(turn.bundle)
        for batch in batches_of(known, turn.bundle):
            for part in _slices(turn, space, batch, span=(span[0], high), now=clock, slice_bars=slice_bars):
                yield replace(part, failures={**part.failures, **unknown})


def _slices(
    turn: Turn, space: Workspace, known: list[str], *, span: Span, now: datetime, slice_bars: int
) -> Iterator[Forecast]:
    import polars as pl

    from klinepred.model.bundle import features_of
    from klinepred.prediction import forecast, longest_day, reach_of
    from klinepred.schema import Bars

    bundle = turn.bundle
    low, high = _within(turn, span)
    if low >= high:
        return
    stored = list_symbols(space)
    members = set(stored.get_column("symbol"))
    needed = [name for name in dict.fromkeys([*bundle.universe, *known]) if name in members]
    clocks = {name: str(clock) for name, clock in stored_clocks(space).items() if name in set(needed)}
    day = longest_day({*clocks.values(), *bundle.calendars.values()})
    reach = reach_of(bundle, features_of(bundle), day=day)
    bars = scan_bars(space, symbols=needed)
    begins = dict(stored.select("symbol", "first_ts").iter_rows())
    earlier = last_bars(bars, before=low, reach=reach, begins={name: begins[name] for name in needed})
    step = timedelta(days=max(1, slice_bars // max(1, len(needed) * day)))
    first = low
    with Work("hours of the range predicted", total=(high - low) // HOUR) as work:
        while low < high:
            # slices end at midnight, so that they do not depend on the moment the range begins at
            end = min(high, datetime.combine(low.date(), time(), UTC) + step)
            part = bars.filter(pl.col("ts").is_between(low, end, closed="left")).collect()
            if part.height:
                frame = pl.concat([earlier, part]).sort("symbol", "ts")
                answer = forecast(bundle, Bars(frame.lazy()), symbols=known, span=(low, end), now=now, need_rows=False)
                yield _own(answer, turn, clocks)
                earlier = frame.group_by("symbol", maintain_order=True).tail(reach).select(part.columns)
            low = end
            work.at((low - first) // HOUR)


def _within(turn: Turn, span: Span) -> Span:
    """The part of a span in which a turn's own bars lie, with some days more on either side."""
    margin = timedelta(days=10 + turn.bundle.dataset.horizon // 20)
    low, high = span
    if turn.after is not None:
        low = max(low, datetime.combine(turn.after, time(), UTC) - margin)
    if turn.until is not None:
        high = min(high, datetime.combine(turn.until, time(), UTC) + timedelta(days=3))
    return low, high


def _own(answer: Forecast, turn: Turn, clocks: dict[str, str]) -> Forecast:
    """The rows of a slice that are the turn's."""
    import polars as pl

    from klinepred.calendar import place
    from klinepred.schema import CALENDAR

    if turn.after is None and turn.until is None:
        return answer
    calendar = pl.col("symbol").replace_strict(clocks, return_dtype=pl.String)
    placed = place(answer.rows.select(ts="target_ts", **{CALENDAR: calendar}))
    session = pl.col("session")
    own = placed.select((session > (turn.after or date.min)) & (session <= (turn.until or date.max))).to_series()
    return replace(answer, rows=answer.rows.filter(own), prices=answer.prices.filter(own))
