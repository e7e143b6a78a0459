"""In: Yahoo's answers over weeks. Out: the store grows, never shrinks, and the command's exit code tells the truth."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from klinepred.bars.store import scan_bars, store_version
from klinepred.cli import main
from klinepred.paths import Workspace
from tests.yahoo_server import FakeYahoo, Row, bars_of, busy, chart, history, not_found, serve, yfinance_on


@pytest.fixture
def yahoo(tmp_path: Path) -> Iterator[FakeYahoo]:
    with serve() as server, yfinance_on(server, tmp_path / "cache"):
        yield server


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "space")


def take(
    space: Workspace, capsys: pytest.CaptureFixture[str], *words: str, now: str = "2026-06-30T22:00:00Z"
) -> tuple[int, dict[str, Any], str]:
    code = main(["ingest", "-w", str(space.root), "--now", now, "--format", "json", *words])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_the_default_source_of_the_command_is_yahoo(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = bars_of(day("2026-06-29"), day("2026-07-01"))
    for name in ("AAPX", "MSFX"):
        yahoo.answers[name] = history(name, rows)
    code, report, _ = take(space, capsys, "--symbols", "AAPX,MSFX")
    assert code == 0
    assert [(row["symbol"], row["status"], row["new"], row["missing"]) for row in report["symbols"]] == [
        ("AAPX", "ok", 156, 0),
        ("MSFX", "ok", 156, 0),
    ]
    assert report["symbols"][0]["first_ts"] == "2026-06-29T13:30:00Z"
    assert report["version"] == store_version(space)
    code, report, _ = take(space, capsys, "--symbols", "AAPX,MSFX")
    assert (code, {row["status"] for row in report["symbols"]}) == (0, {"unchanged"})


def test_the_pipeline_s_symbols_are_asked_for_without_arguments(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report, err = take(space, capsys)
    assert code == 1  # the server knows none of them
    assert len(report["symbols"]) == 30
    assert {row["status"] for row in report["symbols"]} == {"unknown-symbol"}
    assert "SPY" in {symbol for symbol, _ in yahoo.asked}
    assert "Traceback" not in err


def test_rate_limited_symbols_keep_their_bars_and_the_others_are_stored(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 05."""
    old = bars_of(day("2026-06-25"), day("2026-06-27"))
    names = ["A", "B", "C", "D", "E"]
    for name in names:
        yahoo.answers[name] = history(name, old)
    assert take(space, capsys, "--symbols", ",".join(names), now="2026-06-27T22:00:00Z")[0] == 0
    before = scan_bars(space, symbols=["B", "D"]).collect()
    for name in names:
        yahoo.answers[name] = (
            busy() if name in ("B", "D") else history(name, bars_of(day("2026-06-25"), day("2026-07-01")))
        )
    code, report, err = take(space, capsys, "--symbols", ",".join(names))
    assert code == 3
    status = {row["symbol"]: row["status"] for row in report["symbols"]}
    assert status == {"A": "ok", "B": "rate-limited", "C": "ok", "D": "rate-limited", "E": "ok"}
    assert scan_bars(space, symbols=["B", "D"]).collect().equals(before)
    assert "rate limit" in next(row["message"] for row in report["symbols"] if row["symbol"] == "B")
    assert "delisted" not in err


def test_a_rate_limit_that_passes_leaves_all_five_stored(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 05, the variant."""
    rows = bars_of(day("2026-06-29"), day("2026-07-01"))
    for name in "ABCDE":
        yahoo.answers[name] = [*[busy()] * 4, chart(name, rows)] if name in "BD" else chart(name, rows)
    code, report, _ = take(space, capsys, "--symbols", "A,B,C,D,E")
    assert code == 0
    assert {row["status"] for row in report["symbols"]} == {"ok"}
    assert scan_bars(space).collect().height == 5 * 156


def test_each_symbol_gets_its_own_bars(yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["A", "B", "C", "D"]
    for k, name in enumerate(names):
        rows = bars_of(day("2026-06-30"), day("2026-07-01"), price=100.0 * (k + 1))
        yahoo.answers[name] = chart(name, rows, named="A" if name == "C" else None)
    code, report, _ = take(space, capsys, "--symbols", ",".join(names))
    assert code == 3
    assert "when asked for C" in report["symbols"][2]["message"]
    opens = scan_bars(space).collect().group_by("symbol").agg(pl.col("open").first().floor()).sort("symbol")
    assert opens.rows() == [("A", 100.0), ("B", 200.0), ("D", 400.0)]


def test_90_days_are_clamped_and_both_dates_are_in_the_report(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 02."""
    yahoo.answers["AAPX"] = history("AAPX", bars_of(day("2026-04-01"), day("2026-07-01")))
    code, report, err = take(space, capsys, "--symbols", "AAPX", "--start", "2026-04-01")
    assert code == 0
    assert report["symbols"][0]["first_ts"] == "2026-05-04T13:30:00Z"  # a Monday
    (remark,) = report["remarks"]
    assert "2026-04-01" in remark
    assert "2026-05-02" in remark
    assert "delisted" not in err + remark


def test_days_before_the_wall_fail_with_the_limit_and_leave_the_store_alone(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    yahoo.answers["AAPX"] = history("AAPX", bars_of(day("2026-06-29"), day("2026-07-01")))
    take(space, capsys, "--symbols", "AAPX")
    before = scan_bars(space).collect()
    code, report, err = take(space, capsys, "--symbols", "AAPX", "--start", "2026-04-01", "--end", "2026-04-30")
    assert code == 1
    assert "60 calendar days" in report["symbols"][0]["message"]
    assert "delisted" not in err
    assert scan_bars(space).collect().equals(before)


def test_a_run_on_a_closed_day_is_done_not_failed(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    yahoo.answers["AAPX"] = history("AAPX", bars_of(day("2026-06-25"), day("2026-07-01")))
    code, report, _ = take(
        space, capsys, "--symbols", "AAPX", "--start", "2026-06-27", "--end", "2026-06-28", now="2026-06-28T22:00:00Z"
    )
    assert (code, report["symbols"][0]["status"]) == (0, "unchanged")


def test_rows_without_prices_are_reported_as_missing(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = bars_of(day("2026-06-30"), day("2026-07-01"))
    yahoo.answers["AAPX"] = chart("AAPX", [*rows[:5], (rows[5][0], None, None, None, None, None), *rows[6:]])
    code, report, _ = take(space, capsys, "--symbols", "AAPX")
    row = report["symbols"][0]
    assert (code, row["received"], row["new"], row["empty"], row["missing"]) == (0, 78, 77, 1, 1)


def test_round_the_clock_symbols_keep_their_weekends(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = bars_of(day("2026-06-27"), day("2026-06-29"), calendar="24/7")
    yahoo.answers["BTX-USD"] = chart("BTX-USD", rows, zone="UTC", calendar="24/7")
    code, report, _ = take(space, capsys, "--symbols", "BTX-USD", "--calendar", "24/7")
    row = report["symbols"][0]
    assert (code, row["new"], row["missing"]) == (0, 576, 0)


def test_a_split_of_the_whole_history_is_named_and_never_a_silent_jump(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Yahoo divides its 60 days by a split's factor on the day; what is stored was traded at the old price."""
    old = bars_of(day("2026-06-24"), day("2026-06-27"), price=400.0)
    yahoo.answers["AAPX"] = chart("AAPX", old)
    take(space, capsys, "--symbols", "AAPX", now="2026-06-26T22:00:00Z")
    stored = scan_bars(space).collect()
    rescaled: list[Row] = [
        (ts, (o or 0.0) / 4.0, (h or 0.0) / 4.0, (low or 0.0) / 4.0, (c or 0.0) / 4.0, v) for ts, o, h, low, c, v in old
    ]
    yahoo.answers["AAPX"] = chart("AAPX", [*rescaled, *bars_of(day("2026-06-29"), day("2026-07-01"))])
    code, report, _ = take(space, capsys, "--symbols", "AAPX")
    assert (code, report["symbols"][0]["status"]) == (1, "rejected")
    assert "a split" in report["symbols"][0]["message"]
    assert scan_bars(space).collect().equals(stored)


def test_the_store_grows_past_the_60_days_by_repeated_runs(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 02."""
    yahoo.answers["AAPX"] = history("AAPX", bars_of(day("2026-02-02"), day("2026-08-01")))
    for now in ("2026-04-15T22:00:00Z", "2026-06-01T22:00:00Z", "2026-07-20T22:00:00Z"):
        code, report, err = take(space, capsys, "--symbols", "AAPX", "--start", "2026-01-02", now=now)
        assert code == 0
        assert "2026-01-02" in err  # asked from, taken from: both are said
        assert report["symbols"][0]["revised"] == 0
    stored = scan_bars(space).collect()
    assert stored["ts"].min() == datetime(2026, 2, 17, 14, 30, tzinfo=UTC)
    assert stored["ts"].max() == datetime(2026, 7, 20, 19, 55, tzinfo=UTC)
    days = stored["ts"].dt.date().unique()
    # weekdays from 17 February to 20 July 2026: 9 + 22 + 22 + 21 + 22 + 14; holidays 3 April, 25 May, 19 June, 3 July
    assert len(days) == 110 - 4


def test_a_shorter_or_empty_answer_never_shrinks_the_store_and_a_revision_is_counted(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = bars_of(day("2026-06-26"), day("2026-07-01"))
    yahoo.answers["AAPX"] = history("AAPX", rows)
    take(space, capsys, "--symbols", "AAPX")
    before = scan_bars(space).collect()
    late = list(rows[-10:])
    ts, o, h, low, c, _ = late[4]
    assert o is not None
    late[4] = (ts, o, h, low, c, 999_999)
    yahoo.answers["AAPX"] = history("AAPX", late)
    code, report, _ = take(space, capsys, "--symbols", "AAPX")
    assert (code, report["symbols"][0]["revised"], report["symbols"][0]["new"]) == (0, 1, 0)
    after = scan_bars(space).collect()
    assert after.height == before.height
    changed = after.filter(pl.col("volume") != before["volume"])
    assert changed["ts"].to_list() == [ts]
    for answer in (chart("AAPX", []), not_found()):
        yahoo.answers["AAPX"] = answer
        code, _, _ = take(space, capsys, "--symbols", "AAPX")
        assert code == 1
        assert scan_bars(space).collect().equals(after)


def test_the_bar_that_is_still_open_is_held_back(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    yahoo.answers["AAPX"] = history("AAPX", bars_of(day("2026-06-30"), day("2026-07-01")))
    code, report, _ = take(space, capsys, "--symbols", "AAPX", now="2026-06-30T14:02:00Z")
    assert code == 0
    assert report["symbols"][0]["last_ts"] == "2026-06-30T13:55:00Z"
    code, report, _ = take(space, capsys, "--symbols", "AAPX", now="2026-06-30T14:05:00Z")
    assert report["symbols"][0]["last_ts"] == "2026-06-30T14:00:00Z"


def test_the_half_day_s_extra_row_never_becomes_a_bar(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 08: 42 bars on the day after Thanksgiving, none of them expected after the early close."""
    rows = bars_of(day("2026-11-27"), day("2026-11-28"))
    extra = (datetime(2026, 11, 27, 18, 0, tzinfo=UTC), 310.0, 310.0, 310.0, 310.0, 1_250_000)
    yahoo.answers["AAPX"] = chart("AAPX", [*rows, extra])
    code, report, _ = take(space, capsys, "--symbols", "AAPX", now="2026-11-27T23:00:00Z")
    row = report["symbols"][0]
    assert (code, row["new"], row["expected"], row["missing"]) == (0, 42, 42, 0)
    assert row["last_ts"] == "2026-11-27T17:55:00Z"
