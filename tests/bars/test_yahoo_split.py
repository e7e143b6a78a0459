"""In: Yahoo's answers before and after a split. Out: what Yahoo no longer serves follows into new shares."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from klinepred.bars.store import scan_bars
from klinepred.cli import main
from klinepred.paths import Workspace
from tests.yahoo_server import FakeYahoo, Row, bars_of, history, serve, split_at, yfinance_on

SPLIT = datetime(2026, 8, 3, 13, 30, tzinfo=UTC)  # a Monday
OLD = bars_of(datetime(2026, 5, 4, tzinfo=UTC), datetime(2026, 8, 3, tzinfo=UTC), price=400.0)
NEW = bars_of(datetime(2026, 8, 3, tzinfo=UTC), datetime(2026, 8, 8, tzinfo=UTC), price=112.0)


def _quarter(row: Row) -> tuple[float, float, float, float]:
    open_, high, low, close = (price or 0.0 for price in row[1:5])
    return open_ / 4.0, high / 4.0, low / 4.0, close / 4.0


def in_new_shares(rows: list[Row]) -> list[Row]:
    return [(row[0], *_quarter(row), (row[5] or 0) * 4) for row in rows]


@pytest.fixture
def yahoo(tmp_path: Path) -> Iterator[FakeYahoo]:
    with serve() as server, yfinance_on(server, tmp_path / "cache"):
        yield server


def take(space: Path, now: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], str]:
    code = main(["ingest", "-w", str(space), "--symbols", "AAPX", "--now", now, "--format", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out)["symbols"][0], err


def closes(space: Path) -> pl.DataFrame:
    return scan_bars(Workspace(space)).select("ts", "close", "volume").collect()


def test_a_long_history_survives_a_split(yahoo: FakeYahoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = tmp_path / "space"
    yahoo.answers["AAPX"] = history("AAPX", OLD)
    for now in ("2026-06-30T22:00:00Z", "2026-08-01T22:00:00Z"):
        assert take(space, now, capsys)[0] == 0
    yahoo.answers["AAPX"] = history("AAPX", [*in_new_shares(OLD), *NEW], events={"splits": split_at(SPLIT, 4.0, 1.0)})
    code, row, err = take(space, "2026-08-07T22:00:00Z", capsys)
    assert (code, row["status"], row["new"]) == (0, "ok", len(NEW))
    assert (row["rescaled"]["factor"], row["rescaled"]["evidence"]) == ("1/4", "source")
    assert row["rescaled"]["bars"] + row["revised"] == len(OLD)
    assert row["rescaled"]["bars"] > 1500
    assert "prices times 1/4, volumes times 4 (a split that the source tells of" in err
    want = [*in_new_shares(OLD), *NEW]
    got = closes(space)
    assert got["ts"].to_list() == [one[0] for one in want]
    assert got["close"].to_list() == pytest.approx([one[4] for one in want], rel=1e-12)
    assert got["volume"].to_list() == [float(one[5] or 0) for one in want]
    assert take(space, "2026-08-07T22:00:00Z", capsys)[1]["status"] == "unchanged"


def test_a_split_that_yahoo_takes_into_account_a_day_late_is_followed_then(
    yahoo: FakeYahoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """First the bars of the split day come beside unadjusted older ones, which is said; then all are adjusted."""
    space = tmp_path / "space"
    day = [row for row in NEW if row[0].day == 3]
    yahoo.answers["AAPX"] = history("AAPX", OLD)
    for now in ("2026-06-30T22:00:00Z", "2026-08-01T22:00:00Z"):
        take(space, now, capsys)
    yahoo.answers["AAPX"] = history("AAPX", [*OLD, *day])
    code, row, err = take(space, "2026-08-03T22:00:00Z", capsys)
    assert (code, row["new"], row["rescaled"]) == (0, len(day), None)
    assert "warning: AAPX: the open of 2026-08-03 13:30Z, 112, is about 1/4 of the close before it" in err
    yahoo.answers["AAPX"] = history("AAPX", [*in_new_shares(OLD), *NEW], events={"splits": split_at(SPLIT, 4.0, 1.0)})
    code, row, _ = take(space, "2026-08-07T22:00:00Z", capsys)
    assert (code, row["new"]) == (0, len(NEW) - len(day))
    assert row["rescaled"]["evidence"] == "source"
    want = [*in_new_shares(OLD), *NEW]
    assert closes(space)["close"].to_list() == pytest.approx([one[4] for one in want], rel=1e-12)
