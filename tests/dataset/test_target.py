"""In: closes with known steps. Out: targets agree with a slow loop and with numbers worked out by hand."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from klinepred.calendar import Clock, grid
from klinepred.dataset import target
from klinepred.dataset.target import BREAK, WITHIN, add_targets, blocks, raw_targets, relative_means
from klinepred.schema import CALENDAR
from klinepred.settings import DatasetSettings


def walk(
    symbol: str, calendar: str, days: tuple[datetime, datetime], *, seed: int, drop: tuple[int, ...] = ()
) -> pl.DataFrame:
    expected = grid(Clock(calendar), *days)
    steps = np.random.default_rng(seed).normal(0.0, 0.001, expected.height)
    closes = 100.0 * np.exp(np.cumsum(steps))
    frame = expected.select(
        pl.lit(symbol).alias("symbol"), "ts", close=pl.Series(closes), **{CALENDAR: pl.lit(calendar)}
    )
    keep = [index for index in range(frame.height) if index not in drop]
    return frame[keep]


SPRING = (datetime(2026, 2, 2, tzinfo=UTC), datetime(2026, 4, 4, tzinfo=UTC))


def slow_raw(frame: pl.DataFrame, horizon: int) -> list[float | None]:
    """The definition, one row at a time, from the calendar's own list of expected bars."""
    clock = Clock(frame[CALENDAR][0])
    table = grid(clock, *SPRING)
    number = {ts: i for i, ts in enumerate(table["ts"])}
    ts, close = frame["ts"].to_list(), frame["close"].to_list()
    expected = table["ts"].to_list()
    place = [number[t] for t in ts]

    def group(i: int) -> int:  # of the expected step i-1 -> i
        if (expected[i] - expected[i - 1]).total_seconds() == 300:
            return 0
        return 2 if table["session"][i] == table["session"][i - 1] else 1

    squares: list[tuple[int, float] | None] = [None]
    for k in range(1, len(ts)):
        neighbour = place[k] == place[k - 1] + 1
        squares.append((group(place[k]), math.log(close[k] / close[k - 1]) ** 2) if neighbour else None)
    out: list[float | None] = []
    for k in range(len(ts)):
        end = k + horizon
        if end >= len(ts) or place[end] != place[k] + horizon:
            out.append(None)
            continue
        within = [s[1] for s in squares[max(0, k - 77) : k + 1] if s and s[0] == 0]
        unit = 0.0
        known = True
        for step in range(place[k] + 1, place[k] + horizon + 1):
            kind = group(step)
            if kind == 0:
                known &= len(within) >= 26
                unit += sum(within) / len(within) if within else 0.0
            else:
                past = [s[1] for s in squares[: k + 1] if s and s[0] == kind][-20:]
                known &= len(past) >= 5
                unit += sum(past) / len(past) if past else 0.0
        out.append(math.log(close[end] / close[k]) / math.sqrt(unit) if known else None)
    return out


@pytest.mark.parametrize(("calendar", "horizon"), [("XNYS", 1), ("XNYS", 3), ("XHKG", 1), ("24/7", 2)])
def test_raw_target_equals_the_definition_taken_row_by_row(calendar: str, horizon: int) -> None:
    frame = walk("A", calendar, SPRING, seed=3, drop=(100, 101, 500, 1234))
    settings = DatasetSettings(target="raw", horizon=horizon)
    got = add_targets(frame, settings, universe=("A",))["raw"].to_list()
    want = slow_raw(frame, horizon)
    assert [v is None for v in got] == [v is None for v in want]
    assert [v for v in got if v is not None] == pytest.approx([v for v in want if v is not None], rel=1e-9)
    assert sum(v is not None for v in got) > 0.8 * len(got)


def test_target_of_a_session_s_last_bar_is_the_overnight_step_in_overnight_units() -> None:
    frame = walk("A", "XNYS", SPRING, seed=1)
    full = add_targets(frame, DatasetSettings(target="raw"), universe=("A",))
    friday = full.filter(pl.col("ts") == datetime(2026, 3, 6, 20, 55, tzinfo=UTC)).row(0, named=True)
    assert friday["kind"] == BREAK
    assert friday["last_session"].isoformat() == "2026-03-09"
    monday = full.filter(pl.col("ts") == datetime(2026, 3, 9, 13, 30, tzinfo=UTC)).row(0, named=True)
    assert friday["ret"] == pytest.approx(math.log(monday["close"] / friday["close"]))
    assert monday["kind"] == WITHIN


def test_no_target_across_a_missing_bar_and_none_for_the_newest() -> None:
    frame = walk("A", "XNYS", SPRING, seed=1, drop=(400,))
    full = add_targets(frame, DatasetSettings(target="raw"), universe=("A",))
    assert full["ret"][399] is None
    assert full["ret"][398] is not None
    assert full["ret"][-1] is None
    assert full["kind"][-1] == BREAK  # known from the calendar alone
    assert full["vol"][-1] is not None


def test_closing_print_is_not_the_target_of_15_55() -> None:
    """Case 23: 250.99 -> 251.02 is +0.000120 for the 15:50 bar; 15:55 looks at the next session's first bar."""
    rows = [
        ("2026-06-03T19:50:00", 250.99),
        ("2026-06-03T19:55:00", 251.02),
        ("2026-06-04T13:30:00", 251.93),
        ("2026-06-04T13:35:00", 252.11),
    ]
    frame = pl.DataFrame(
        {
            "symbol": "AUCX",
            "ts": [datetime.fromisoformat(t).replace(tzinfo=UTC) for t, _ in rows],
            "close": [c for _, c in rows],
            CALENDAR: "XNYS",
        },
        schema_overrides={"ts": pl.Datetime("us", "UTC")},
    )
    ret = add_targets(frame, DatasetSettings(target="raw"), universe=("AUCX",))["ret"]
    assert ret[0] == pytest.approx(0.000120, abs=5e-7)
    assert ret[1] == pytest.approx(math.log(251.93 / 251.02))


def test_relative_target_subtracts_the_universe_s_mean_and_needs_five_symbols() -> None:
    frames = [walk(name, "XNYS", SPRING, seed=seed) for seed, name in enumerate("ABCDEF")]
    frames[5] = frames[5].filter(pl.col("ts") < datetime(2026, 3, 2, tzinfo=UTC))
    frames[4] = frames[4].filter(pl.col("ts") < datetime(2026, 3, 16, tzinfo=UTC))
    universe = ("A", "B", "C", "D", "E")
    full = add_targets(pl.concat(frames), DatasetSettings(), universe=universe)
    at = datetime(2026, 2, 20, 15, 0, tzinfo=UTC)
    now = full.filter(pl.col("ts") == at)
    raw = dict(zip(now["symbol"], now["raw"], strict=True))
    mean = sum(raw[s] for s in universe) / 5
    got = dict(zip(now["symbol"], now["y"], strict=True))
    assert got["A"] == pytest.approx(raw["A"] - mean)
    assert got["F"] == pytest.approx(raw["F"] - mean)  # not in the universe: measured against it, not part of it
    late = full.filter(pl.col("ts") > datetime(2026, 3, 17, tzinfo=UTC))
    assert late["y"].count() == 0  # four symbols left
    assert late["raw"].count() > 0


def test_within_session_setting_leaves_break_labels_out_but_keeps_their_raw_return() -> None:
    frame = walk("A", "XNYS", SPRING, seed=2)
    full = add_targets(frame, DatasetSettings(target="raw", steps="within-session"), universe=("A",))
    breaks = full.filter(pl.col("kind") == BREAK)
    assert breaks["y"].count() == 0
    assert breaks["raw"].count() > 20


def test_each_symbol_is_computed_by_itself_in_its_own_calendar_and_the_label_says_its_sessions() -> None:
    """Three bars ahead; what one symbol knows is not carried over into the next, and rows keep their order."""
    names = {"A": "24/7", "B": "XNYS", "C": "XHKG", "D": "24/7", "E": "XNYS"}
    weeks = (datetime(2026, 2, 2, tzinfo=UTC), datetime(2026, 2, 21, tzinfo=UTC))
    frames = [walk(name, calendar, weeks, seed=seed) for seed, (name, calendar) in enumerate(names.items())]
    settings = DatasetSettings(target="raw", horizon=3)
    whole = add_targets(pl.concat(frames), settings, universe=tuple(names))
    assert whole.select("symbol", "ts").equals(pl.concat(frames).select("symbol", "ts")), "features lie beside them"
    for frame in frames:
        alone = add_targets(frame, settings, universe=tuple(names))
        assert whole.filter(pl.col("symbol") == frame["symbol"][0]).equals(alone)
        days = alone["session"].to_list()
        labelled = alone["ret"].is_not_null().to_list()
        assert labelled == [True] * (len(days) - 3) + [False] * 3
        assert alone["last_session"].to_list() == [*days[3:], None, None, None]
        assert alone["first_session"].to_list() == [*days[1:-2], None, None, None]
    assert (whole.schema["kind"], whole.schema["vol"]) == (pl.Int8(), pl.Float64())
    start = {name: whole.filter((pl.col("symbol") == name) & (pl.col("kind") == BREAK))["vol"] for name in "BE"}
    for vol in start.values():  # three steps ahead that cross a night: five nights and 26 steps must lie behind
        assert vol[:15].null_count() == 15
        assert vol[15:].null_count() == 0


@pytest.mark.parametrize("seed", range(5))
def test_a_market_that_stops_moving_has_no_unit_and_no_target(seed: int) -> None:
    """Sums that run over the window leave some rounding, below zero too: that is no volatility."""
    frame = walk("A", "24/7", (datetime(2026, 2, 2, tzinfo=UTC), datetime(2026, 2, 4, tzinfo=UTC)), seed=seed)
    closes = frame["close"].to_numpy().copy()
    closes[300:] = closes[299]
    full = add_targets(frame.with_columns(close=pl.Series(closes)), DatasetSettings(target="raw"), universe=("A",))
    assert full["vol"][26:377].null_count() == 0  # row 376 has one step of the 78 that moved
    for name in ("vol", "raw", "y"):
        assert full[name][377:].null_count() == full.height - 377
    assert full["ret"][377:-1].to_list() == [0.0] * (full.height - 378)


def test_the_unit_of_a_night_needs_no_step_within_a_session() -> None:
    """Stored are the last and the first bar of each session: no step within is known, every night is."""
    frame = walk("A", "XNYS", SPRING, seed=4)
    days = pl.col("ts").dt.date()
    frame = frame.filter(
        (pl.col("ts") == pl.col("ts").min().over(days)) | (pl.col("ts") == pl.col("ts").max().over(days))
    )
    full = add_targets(frame, DatasetSettings(target="raw"), universe=("A",))
    nights = full.filter(pl.col("kind") == BREAK)
    closes = frame["close"].to_list()
    steps = [math.log(after / before) ** 2 for before, after in zip(closes[1::2], closes[2::2], strict=False)]
    want = [None if n < 5 else math.sqrt(sum(steps[:n][-20:]) / min(n, 20)) for n in range(nights.height)]
    assert nights["vol"].to_list() == [None if unit is None else pytest.approx(unit, rel=1e-9) for unit in want]
    assert full.filter(pl.col("kind") == WITHIN)["vol"].null_count() == nights.height


def test_rows_are_cut_into_blocks_between_symbols_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "BLOCK", 10)
    frame = pl.DataFrame({"symbol": list("aaaabbbbbccccccccccccdde"), "row": range(24)})  # 4, 5, 12, 2 and 1 rows
    parts = blocks(frame)
    assert [part["symbol"].unique(maintain_order=True).to_list() for part in parts] == [["a", "b"], ["c"], ["d", "e"]]
    assert pl.concat(parts).equals(frame)
    assert [part.height for part in blocks(frame.head(10))] == [10]
    monkeypatch.setattr(target, "BLOCK", 9)
    assert [part.height for part in blocks(frame)] == [9, 12, 3]  # a block may be full
    monkeypatch.setattr(target, "BLOCK", 8)
    assert [part.height for part in blocks(frame)] == [4, 5, 12, 3]


def test_means_are_the_same_to_the_bit_in_slices_of_time_and_in_any_order_of_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names, settings = tuple("ABCDEFG"), DatasetSettings(target="relative")
    parts = [raw_targets(walk(name, "XNYS", SPRING, seed=seed), settings) for seed, name in enumerate(names)]
    whole = relative_means(parts, settings, universe=names[:6])
    assert whole is not None
    known = pl.concat(parts[:6]).filter(pl.col("raw").is_not_null())
    at = known.group_by("ts", "kind").agg(_mean=pl.col("raw").mean()).sort("ts", "kind")
    assert whole.sort("ts", "kind")["ts"].equals(at["ts"])
    np.testing.assert_allclose(whole.sort("ts", "kind")["_mean"], at["_mean"], rtol=1e-12)
    for size in (len(names) * parts[0].height // 2, 3000, 1000):  # two, seven and twenty slices
        monkeypatch.setattr(target, "SLICE", size)
        for order in (parts, parts[::-1], [parts[3], *parts[:3], *parts[4:]]):
            again = relative_means(order, settings, universe=names[:6])
            assert again is not None
            assert whole.equals(again)


@pytest.mark.parametrize("target", ["raw", "relative"])
def test_changed_future_closes_leave_units_and_past_targets_bit_identical(target: str) -> None:
    frames = pl.concat([walk(name, "XNYS", SPRING, seed=seed) for seed, name in enumerate("ABCDE")])
    cut = datetime(2026, 3, 12, 15, 0, tzinfo=UTC)
    rng = np.random.default_rng(9)
    noisy = frames.with_columns(
        close=pl.when(pl.col("ts") > cut)
        .then(pl.col("close") * pl.Series(rng.uniform(0.5, 2.0, frames.height)))
        .otherwise("close")
    )
    settings = DatasetSettings.model_validate({"target": target})
    known = pl.col("ts") <= cut
    one = add_targets(frames, settings, universe=tuple("ABCDE")).filter(known)
    two = add_targets(noisy, settings, universe=tuple("ABCDE")).filter(known)
    assert one["vol"].equals(two["vol"])
    before = pl.col("ts") < cut
    assert one.filter(before)["y"].equals(two.filter(before)["y"])
    assert not one["y"].equals(two["y"])  # the target of the cut bar itself lies in the future
    three = add_targets(frames.filter(known), settings, universe=tuple("ABCDE"))
    assert three["vol"].equals(one["vol"])
    assert three["kind"].equals(one["kind"])
