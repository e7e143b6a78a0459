"""In: sound stores, damaged ones, quarantines. Out: what `check_store` and `examine` say of them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars import health as module
from klinepred.bars.health import check_store, examine, read_quarantine
from klinepred.bars.ingest import ingest
from klinepred.errors import StoreError
from klinepred.paths import Workspace
from klinepred.schema import CALENDAR, PRICES, Bars
from tests.bars.made import NOW, ROUND, flat, from_files, rows, utc, walk


def _bars(frame: pl.DataFrame, calendar: str = "XNYS") -> Bars:
    """`frame` as it is, also where `check_bars` would refuse it."""
    return Bars(frame.with_columns(pl.lit(calendar).cast(pl.Categorical).alias(CALENDAR)).lazy())


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def _ingest(space: Workspace, frame: pl.DataFrame, name: str = "bars", **options: object) -> None:
    path = space.root / f"{name}.parquet"
    frame.write_parquet(path)
    ingest(from_files(path, **options), space, now=NOW)


def test_a_whole_store_is_said_to_be_whole(space: Workspace) -> None:
    _ingest(space, walk(["A", "B"]))
    found = check_store(space, now=utc("2026-06-03T20:00"))
    row = found.symbols.row(0, named=True)
    assert found.symbols["symbol"].to_list() == ["A", "B"]
    assert (row["sessions"], row["expected"], row["received"], row["late"], row["worst"]) == (3, 234, 234, 0, None)
    assert [row[name] for name in ("missing", "gaps", "duplicates", "impossible", "quarantined", "zero_volume")] == [
        0
    ] * 6
    assert (row["first_ts"], row["last_ts"]) == (utc("2026-06-01T13:30"), utc("2026-06-03T19:55"))
    assert found.remarks() == ()
    assert found.version == 0


def test_the_longest_gap_and_the_worst_session_are_those_of_the_symbol() -> None:
    frame = walk(["A", "B"])
    hole = pl.col("ts").is_between(utc("2026-06-02T14:00"), utc("2026-06-02T14:20")) & (pl.col("symbol") == "B")
    found = examine(_bars(frame.filter(~hole & (pl.col("ts") != utc("2026-06-03T15:00")))), now=NOW)
    table = found.symbols.select("symbol", "missing", "gaps", "longest_gap", "worst")
    assert table.rows() == [("A", 1, 1, 1, date(2026, 6, 3)), ("B", 6, 2, 5, date(2026, 6, 2))]


def test_bars_since_the_last_one_are_late_by_the_calendar() -> None:
    found = examine(_bars(walk(["A"])), now=utc("2026-06-05T14:00"))  # 78 on the 4th, six on the 5th
    assert found.symbols["late"].to_list() == [84]


def test_a_damaged_store_shows_its_repeated_rows_and_hides_no_gap_behind_them(space: Workspace) -> None:
    from klinepred.bars.tables import BARS, append

    frame = walk(["A", "B"])
    _ingest(space, frame.filter(pl.col("ts") != utc("2026-06-02T15:00")))
    again = frame.filter(pl.col("symbol") == "A").head(5).with_columns(pl.lit("2026-06").alias("month"))
    append(space.data, BARS, again, note={})  # past the door, as a stale writer would
    found = check_store(space, now=NOW)
    assert found.symbols.select("duplicates", "received", "missing").rows() == [(5, 233, 1), (0, 233, 1)]
    assert found.damaged == 5
    assert found.remarks()[0].startswith("5 rows of A are repeated")


def test_bars_without_a_calendar_are_named_and_the_others_can_still_be_looked_at(space: Workspace) -> None:
    from klinepred.bars.tables import BARS, append

    _ingest(space, walk(["A"]))
    append(space.data, BARS, walk(["ALIEN"]).with_columns(pl.lit("2026-06").alias("month")), note={})
    for symbols in (None, ["ALIEN"]):
        with pytest.raises(StoreError, match="bars of ALIEN"):
            check_store(space, now=NOW, symbols=symbols)
    assert check_store(space, now=NOW, symbols=["A"]).symbols["received"].to_list() == [234]


def test_rows_that_can_be_no_bars_are_counted_and_left_out_of_the_rest() -> None:
    frame = walk(["A"])
    odd = frame.head(1).with_columns(ts=pl.lit(utc("2026-06-01T13:32")).cast(frame.schema["ts"]))
    night = frame.head(1).with_columns(ts=pl.lit(utc("2026-06-02T03:00")).cast(frame.schema["ts"]))
    ancient = frame.head(1).with_columns(ts=pl.lit(utc("1066-10-14T09:00")).cast(frame.schema["ts"]))
    third = pl.int_range(pl.len()) == 2
    frame = frame.with_columns(
        close=pl.when(third).then(float("nan")).otherwise("close"),
        volume=pl.when(pl.int_range(pl.len()) == 3).then(-1.0).otherwise("volume"),
    )
    found = examine(_bars(pl.concat([ancient, frame, odd, night]).sort("symbol", "ts")), now=NOW)
    row = found.symbols.row(0, named=True)
    assert (row["impossible"], row["received"], row["missing"]) == (5, 232, 2)
    assert (row["jumps"], row["spikes"], row["first_ts"]) == (0, 0, utc("2026-06-01T13:30"))


def test_a_symbol_of_which_no_row_is_a_bar_is_still_shown() -> None:
    found = examine(_bars(walk(["A"]).head(4).with_columns(pl.lit(-1.0).alias(name) for name in PRICES)), now=NOW)
    row = found.symbols.row(0, named=True)
    assert (row["symbol"], row["impossible"], row["received"], row["expected"], row["last_ts"]) == ("A", 4, 0, 0, None)


def test_bars_after_now_are_left_out_and_said() -> None:
    found = examine(_bars(walk(["A"])), now=utc("2026-06-02T13:40"))
    assert found.symbols.select("expected", "received", "late").rows() == [(80, 80, 0)]
    assert found.ahead == 154
    assert "154 stored bars are not finished at 2026-06-02 13:40Z" in found.remarks()[0]


def test_calendars_live_apart_in_one_look() -> None:
    coins = walk(["BTC"], clock=ROUND).filter(pl.col("ts") != utc("2026-06-02T00:00"))
    mixed = pl.concat([_bars(walk(["A"])).collect(), _bars(coins, "24/7").collect()])
    found = examine(Bars(mixed.lazy()), now=NOW)
    assert found.symbols.select("symbol", "calendar", "expected", "missing").rows() == [
        ("A", "XNYS", 234, 0),
        ("BTC", "24/7", 864, 1),
    ]
    assert found.daytimes.filter(pl.col("missing") > 0).select("calendar", "time").rows() == [("24/7", "00:00")]


def test_a_few_symbols_at_a_time_give_the_same_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = walk(["A", "B", "C", "D"]).filter(pl.int_range(pl.len()) % 11 > 0)
    whole = examine(_bars(frame), now=NOW)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 300)
    parts = examine(_bars(frame), now=NOW)
    for name in ("symbols", "sessions", "gaps", "jumps", "daytimes"):
        assert getattr(parts, name).equals(getattr(whole, name))


def test_what_was_set_aside_is_counted_by_symbol_and_reason_also_without_a_stored_bar(space: Workspace) -> None:
    bad = rows(
        flat("A", "2026-06-01T20:00"),
        flat("A", "2026-06-01T21:00"),
        flat("A", "2026-06-01T13:30", price=-1.0),
        flat("GONE", "2026-06-01T22:00"),
    )
    _ingest(space, pl.concat([walk(["A", "B"]).filter(pl.col("ts") > utc("2026-06-01T13:30")), bad]))
    found = check_store(space, now=NOW)
    assert found.quarantine.select("symbol", "reason", "rows").rows() == [
        ("A", "outside the trading sessions", 2),
        ("A", "a price is zero or negative", 1),
        ("GONE", "outside the trading sessions", 1),
    ]
    assert found.symbols["quarantined"].to_list() == [3, 0]
    assert any("rows in quarantine of symbols without a stored bar: 1, of GONE" in line for line in found.remarks())
    assert read_quarantine(space, symbols=["B"]).is_empty()
    assert check_store(space, now=NOW, symbols=["B"]).remarks() == ()


def test_a_split_that_stored_bars_followed_is_told_with_its_factor(space: Workspace) -> None:
    whole = walk(["A", "B"])
    _ingest(space, whole.filter(pl.col("ts") < utc("2026-06-03")))
    quarter = [(pl.col(name) / 4.0).alias(name) for name in PRICES]
    after = whole.filter(pl.col("symbol") == "A", pl.col("ts") > utc("2026-06-02")).with_columns(
        *quarter, volume=pl.col("volume") * 4.0
    )
    _ingest(space, after, "after", rescale="always")
    found = check_store(space, now=NOW)
    told = found.rescalings.select(
        "symbol", "version", "kind", "price_factor", "volume_factor", "bars", "from_ts", "to_ts"
    )
    assert told.rows() == [
        ("A", 1, "split", 0.25, 4.0, 78, utc("2026-06-01T13:30"), utc("2026-06-01T19:55")),
    ]
    assert found.symbols["rescaled"].to_list() == [1, 0]
    assert found.symbols["jumps"].to_list() == [0, 0]
    assert check_store(space, now=NOW, as_of=0).rescalings.is_empty()
    assert check_store(space, now=NOW, symbols=["B"]).rescalings.is_empty()


def test_spans_are_measured_against_the_whole_store_and_a_rename_is_asked_about(space: Workspace) -> None:
    spy = walk(["SPY"], start="2026-06-01", days=19)
    old = walk(["FB"], start="2026-06-01", days=5)  # ends on Friday the 5th
    price = float(old["close"][-1] / old["open"][0])
    new = walk(["META"], start="2026-06-08", days=12)
    new = new.with_columns(pl.col(PRICES) * price * float(old["open"][0] / new["open"][0]))
    _ingest(space, pl.concat([spy, old, new]).sort("symbol", "ts"))
    found = check_store(space, now=NOW)
    assert found.symbols.select("symbol", "ended", "renamed_to").rows() == [
        ("FB", date(2026, 6, 5), "META"),
        ("META", None, None),
        ("SPY", None, None),
    ]
    assert any("FB ended 2026-06-05, META began 2026-06-08" in line for line in found.remarks())
    alone = check_store(space, now=NOW, symbols=["FB"])
    assert alone.symbols["ended"].to_list() == [date(2026, 6, 5)]
    assert any("FB (2026-06-05)" in line for line in alone.remarks())


def test_simulated_symbols_were_chosen_without_hindsight() -> None:
    late = walk(["NEW"], start="2026-06-15", days=5)
    bars = _bars(pl.concat([walk(["A", "B"], days=19), late]).sort("symbol", "ts"))
    assert any("NEW" in line for line in examine(bars, now=NOW).hindsight)
    assert examine(bars, now=NOW, simulated={"A", "B", "NEW"}).hindsight == ()
