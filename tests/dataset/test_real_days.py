"""In: bars of real calendars, some missing, symbols that come late. Out: what holds for every sequence of them."""

# Shapes: N rows, S sequences.

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from klinepred.calendar import Clock, grid, place
from klinepred.dataset.make import Dataset, make_dataset
from klinepred.dataset.sequences import Sequences, batches
from klinepred.dataset.split import PARTS
from klinepred.features.build import FeatureFrame
from klinepred.features.spec import Feature, FeatureSet
from klinepred.schema import CALENDAR
from klinepred.settings import DatasetSettings, SplitSettings

PLAIN = FeatureSet(
    "plain",
    (
        Feature(
            "price__plain", "price", pl.col("close"), first_value=1, lookback_bars=30, lookback_sessions=2, source=""
        ),
    ),
)
"""A row needs 30 bars and two whole sessions behind it."""

DAYS = {
    "DST": ("XNYS", datetime(2026, 2, 23, tzinfo=UTC), datetime(2026, 3, 21, tzinfo=UTC)),
    "DST in London": ("XLON", datetime(2026, 3, 16, tzinfo=UTC), datetime(2026, 4, 11, tzinfo=UTC)),
    "half days": ("XNYS", datetime(2025, 11, 17, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)),
    "lunch in Hong Kong": ("XHKG", datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 28, tzinfo=UTC)),
    "lunch in Tokyo": ("XTKS", datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 28, tzinfo=UTC)),
    "never closed": ("24/7", datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 21, tzinfo=UTC)),
}
CUTS = [
    {"cut": "session", "burn_in": 0},
    {"cut": "session", "burn_in": 26},
    {"cut": "session", "burn_in": 100},
    {"cut": "window", "window": 78},
    {"cut": "window", "window": 5, "horizon": 3},
]


def _table(name: str) -> FeatureFrame:
    """Five symbols: whole, with bars missing at random, one that comes late amid a session, one that ends early."""
    calendar, start, end = DAYS[name]
    expected = grid(Clock(calendar), start, end)
    count = expected.height
    rng = np.random.default_rng(5)
    some = rng.random(count) > 0.01
    spans = {
        "EARLY": slice(0, count - count // 3),
        "GAPS": np.flatnonzero(some),
        "HOLE": np.r_[0 : count // 2, count // 2 + 7 : count],
        "LATE": slice(count // 5 + 13, count),
        "WHOLE": slice(0, count),
    }
    frames = []
    for symbol, keep in spans.items():
        closes = 100.0 * np.exp(np.cumsum(rng.normal(0.0, 1e-3, count)))
        frame = expected.select(
            pl.lit(symbol).alias("symbol"), "ts", close=pl.Series(closes), price__plain=pl.Series(closes - 100.0)
        ).with_columns(pl.col("price__plain").cast(pl.Float32))
        frames.append(frame[keep] if isinstance(keep, slice) else frame[keep.tolist()])
    frame = pl.concat(frames)
    return FeatureFrame(frame, PLAIN, tuple(spans), dict.fromkeys(spans, calendar))


def _dataset(name: str, cut: dict[str, object]) -> Dataset:
    settings = DatasetSettings.model_validate(
        {"target": "raw", "split": SplitSettings(train=0.5, validation=0.3), **cut}
    )
    return make_dataset(_table(name), settings)


def _owners(sequences: Sequences, rows: int) -> np.ndarray:
    """How many sequences own each row, counted one sequence at a time."""
    owners = np.zeros(rows, dtype=np.int64)
    for start, length, lead in zip(sequences.start_S, sequences.length_S, sequences.lead_S, strict=True):
        owners[start + lead : start + length] += 1
    return owners


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: "-".join(str(value) for value in cut.values()))
@pytest.mark.parametrize("name", DAYS)
def test_no_sequence_bridges_and_every_usable_label_has_one_owner(name: str, cut: dict[str, object]) -> None:
    data = _dataset(name, cut)
    rows = data.rows.with_columns(pl.lit(DAYS[name][0]).alias(CALENDAR))
    placed = place(rows.drop("session"))
    symbol_N, slot_N = rows["symbol"].rle_id().to_numpy(), placed["slot"].to_numpy()
    session_N = placed["session"].to_physical().to_numpy()
    count = rows.height
    for start, length, lead in zip(data.sequences.start_S, data.sequences.length_S, data.sequences.lead_S, strict=True):
        read = slice(start, start + length)
        assert len(set(symbol_N[read])) == 1
        assert (np.diff(slot_N[read]) == 1).all()  # nothing that the calendar expects is missing
        if cut["cut"] == "session":
            assert len(set(session_N[start + lead : start + length])) == 1
            assert 0 <= lead <= int(str(cut["burn_in"]))
        else:
            assert (length, lead) == (cut["window"], int(str(cut["window"])) - 1)
    owners = _owners(data.sequences, count)
    assert owners.max() == 1
    fresh_N = np.r_[True, (np.diff(symbol_N) != 0) | (np.diff(slot_N) != 1)]
    run_N = np.arange(count) - np.maximum.accumulate(np.where(fresh_N, np.arange(count), 0))
    reach = int(str(cut["window"])) - 1 if cut["cut"] == "window" else 0
    assert np.array_equal(owners == 1, run_N >= reach)  # whoever has enough behind it, and nobody else
    labels = sum(int(data.mask(part).sum()) for part in PARTS)
    assert labels == int(((data.part_N >= 0) & np.isfinite(data.y_N) & (run_N >= reach)).sum())
    assert labels > 1000


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: "-".join(str(value) for value in cut.values()))
def test_batches_give_every_label_once_whatever_their_size(cut: dict[str, object]) -> None:
    data = _dataset("half days", cut)
    train, mask_N = data.part("train"), data.mask("train")
    order = np.random.default_rng(1).permutation(len(train))
    for size in (1, 7, 64, len(train), len(train) + 1):
        seen = np.zeros(mask_N.size, dtype=np.int64)
        sizes = []
        for batch in batches(train, size=size, order=order):
            sizes.append(batch.rows_BT.shape[0])
            np.add.at(seen, batch.rows_BT[batch.own_BT], 1)
        assert sum(sizes) == len(train)
        assert sizes[-1] == (len(train) % size or size)  # the last, partial one included
        assert np.array_equal(np.minimum(seen, 1)[mask_N], np.ones(int(mask_N.sum())))
        assert seen.max() == 1


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: "-".join(str(value) for value in cut.values()))
@pytest.mark.parametrize("name", ["DST", "lunch in Hong Kong", "never closed"])
def test_a_bar_is_read_with_the_same_bars_before_it_in_training_and_when_asked_alone(
    name: str, cut: dict[str, object]
) -> None:
    data = _dataset(name, cut)
    train, every = data.part("train"), data.sequences
    reach = dict(zip((every.start_S + every.lead_S).tolist(), every.start_S.tolist(), strict=True))
    for start, lead in zip(train.start_S.tolist(), train.lead_S.tolist(), strict=True):
        assert reach[start + lead] == start  # the part takes whole sequences, none is cut again
    for row in np.flatnonzero(data.mask("train"))[:: max(1, int(data.mask("train").sum()) // 40)]:
        alone = np.zeros(data.part_N.size, dtype=bool)
        alone[row] = True
        (one,) = every.covering(alone).start_S.tolist()
        (two,) = train.covering(alone).start_S.tolist()
        assert one == two


def test_a_session_that_history_begins_amid_is_not_counted_as_whole() -> None:
    """LATE comes 13 bars after a session's open: two whole sessions behind a row begin with the next session."""
    data = _dataset("DST", {"cut": "session"})
    firsts = data.rows.group_by("symbol").agg(pl.col("ts").first()).sort("symbol")
    table = place(_table("DST").frame.select("symbol", "ts").with_columns(pl.lit("XNYS").alias(CALENDAR)))
    for symbol, first in firsts.iter_rows():
        own = table.filter(pl.col("symbol") == symbol)
        partial = int(own["bar"][0] > 0)
        days = own["session"].unique().sort()
        session = own.filter(pl.col("ts") == first)["session"][0]
        assert days.index_of(session) == 2 + partial
        assert partial == (symbol == "LATE")
