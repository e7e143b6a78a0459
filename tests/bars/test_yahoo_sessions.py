"""In: Yahoo over changes of the clock, half days, extended hours, other venues. Out: the right bars in the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from klinepred.bars.store import list_symbols, scan_bars
from klinepred.cli import main
from klinepred.paths import Workspace
from tests.yahoo_server import FakeYahoo, Reply, Row, chart, serve, yfinance_on


@pytest.fixture
def yahoo(tmp_path: Path) -> Iterator[FakeYahoo]:
    with serve() as server, yfinance_on(server, tmp_path / "cache"):
        yield server


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "space")


def take(space: Workspace, capsys: pytest.CaptureFixture[str], now: str, *words: str) -> dict[str, Any]:
    assert main(["ingest", "-w", str(space.root), "--now", now, "--format", "json", *words]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr()[0])
    return report


def span(start: str, bars: int, price: float = 100.0) -> list[Row]:
    """So many bars from a moment in UTC, whatever any calendar says."""
    low = datetime.fromisoformat(start).replace(tzinfo=UTC)
    return [(low + timedelta(minutes=5 * k), price, price + 1.0, price - 1.0, price, 100 + k) for k in range(bars)]


def opens(space: Workspace) -> dict[date, str]:
    first = scan_bars(space).collect().group_by(day=pl.col("ts").dt.date()).agg(pl.col("ts").min()).sort("day")
    return {day: f"{ts:%H:%M}" for day, ts in first.iter_rows()}


@pytest.mark.parametrize(
    ("before", "after", "now"),
    [
        ("2026-03-06T14:30", "2026-03-09T13:30", "2026-03-09T22:00:00Z"),  # Friday, then summer time on Sunday 8 March
        ("2026-10-30T13:30", "2026-11-02T14:30", "2026-11-02T22:00:00Z"),  # and back on Sunday 1 November
    ],
)
def test_new_york_opens_at_half_past_nine_of_its_own_clock(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str], before: str, after: str, now: str
) -> None:
    yahoo.answers["AAPX"] = chart("AAPX", [*span(before, 78), *span(after, 78)])
    row = take(space, capsys, now, "--symbols", "AAPX")["symbols"][0]
    assert (row["new"], row["expected"], row["missing"], row["quarantined"]) == (156, 156, 0, [])
    assert list(opens(space).values()) == [before[-5:], after[-5:]]


def test_london_is_kept_in_pence_and_opens_at_eight_of_its_own_clock(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Summer time begins there on Sunday 29 March, three weeks after New York; a session has 102 bars."""
    rows = [*span("2026-03-27T08:00", 102, 4_012.5), *span("2026-03-30T07:00", 102, 4_012.5)]
    yahoo.answers["BPX.L"] = chart("BPX.L", rows, zone="Europe/London", calendar="XLON", currency="GBp")
    report = take(space, capsys, "2026-03-30T22:00:00Z", "--symbols", "BPX.L", "--calendar", "XLON")
    row = report["symbols"][0]
    assert (row["new"], row["missing"], row["quarantined"]) == (204, 0, [])
    assert list(opens(space).values()) == ["08:00", "07:00"]
    assert scan_bars(space).collect()["close"].unique().to_list() == [4_012.5]
    assert report["remarks"] == ["BPX.L is quoted in GBp (pence): prices are stored as quoted"]


def test_coins_have_288_bars_on_the_day_the_clocks_change(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    yahoo.answers["BTX-USD"] = chart("BTX-USD", span("2026-03-07T00:00", 3 * 288), zone="UTC", calendar="24/7")
    words = ("--symbols", "BTX-USD", "--calendar", "24/7")
    row = take(space, capsys, "2026-03-10T00:00:00Z", *words)["symbols"][0]
    assert (row["new"], row["expected"], row["missing"]) == (864, 864, 0)


def extended(reply: Reply, days: list[tuple[str, int, int, int]]) -> Reply:
    """The answer with pre-market, session and post-market of each day: the first moment, then bars of each part."""
    table = json.loads(reply.body)
    parts: dict[str, list[list[dict[str, Any]]]] = {"pre": [], "regular": [], "post": []}
    for start, *lengths in days:
        at = int(datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp())
        for name, bars in zip(parts, lengths, strict=True):
            parts[name].append([{"timezone": "EDT", "start": at, "end": at + bars * 300, "gmtoffset": -14_400}])
            at += bars * 300
    table["chart"]["result"][0]["meta"]["tradingPeriods"] = parts
    return Reply(200, json.dumps(table))


def test_pre_and_post_market_are_stored_with_extended_hours_only(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """04:00 to 20:00 in New York: 66 bars before the open, 78 in the session, 48 after the close."""
    rows = span("2026-06-30T08:00", 192)
    yahoo.answers["AAPX"] = extended(chart("AAPX", rows), [("2026-06-30T08:00", 66, 78, 48)])
    words = ("--symbols", "AAPX", "--hours", "extended")
    row = take(space, capsys, "2026-07-01T02:00:00Z", *words)["symbols"][0]
    assert (row["new"], row["expected"], row["missing"], row["quarantined"]) == (192, 192, 0, [])
    assert (row["first_ts"], row["last_ts"]) == ("2026-06-30T08:00:00Z", "2026-06-30T23:55:00Z")
    assert list_symbols(space)["hours"].to_list() == ["extended"]

    yahoo.answers["AAPX"] = chart("AAPX", rows)  # as Yahoo sometimes does: they come although nobody asked
    other = Workspace(tmp_path / "regular")
    row = take(other, capsys, "2026-07-01T02:00:00Z", "--symbols", "AAPX")["symbols"][0]
    assert (row["new"], row["missing"], row["first_ts"]) == (78, 0, "2026-06-30T13:30:00Z")


def test_a_half_day_ends_at_one_with_extended_hours_at_five(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """The day after Thanksgiving: 04:00 to 17:00 in New York, 66 + 42 + 48 bars."""
    rows = span("2026-11-27T09:00", 156)
    yahoo.answers["AAPX"] = extended(chart("AAPX", rows), [("2026-11-27T09:00", 66, 42, 48)])
    words = ("--symbols", "AAPX", "--hours", "extended")
    row = take(space, capsys, "2026-11-28T02:00:00Z", *words)["symbols"][0]
    assert (row["new"], row["expected"], row["missing"]) == (156, 156, 0)
    assert row["last_ts"] == "2026-11-27T21:55:00Z"
