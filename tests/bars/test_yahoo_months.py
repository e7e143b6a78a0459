"""In: a Yahoo that keeps 60 days, asked every week for half a year. Out: one history of all of it, a split included."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from klinepred.bars.store import scan_bars
from klinepred.cli import main
from klinepred.paths import Workspace
from klinepred.schema import PRICES
from tests.yahoo_server import FakeYahoo, Reply, Row, bars_of, chart, error, serve, split_at, yfinance_on

FIRST, LAST = datetime(2026, 2, 2, tzinfo=UTC), datetime(2026, 8, 1, tzinfo=UTC)
START = datetime(2026, 4, 1, 22, 0, tzinfo=UTC)
WEEKS = 16
SPLIT = datetime(2026, 5, 20, 13, 30, tzinfo=UTC)
"""The open of the day on which one share becomes four."""
TRADED = bars_of(FIRST, SPLIT, price=400.0) + bars_of(SPLIT, LAST, price=100.0)


@pytest.fixture
def yahoo(tmp_path: Path) -> Iterator[FakeYahoo]:
    with serve() as server, yfinance_on(server, tmp_path / "cache"):
        yield server


def by_four(row: Row) -> Row:
    ts, *values = row
    return (ts, *(None if value is None else value / 4 for value in values[:4]), (values[4] or 0) * 4)  # type: ignore[return-value]


def sixty_days(symbol: str, clock: list[datetime], *, split: bool) -> Callable[[dict[str, str]], Reply]:
    """As Yahoo answers on the day `clock` says: older days are refused; after a split all is on the new basis."""

    def answer(query: dict[str, str]) -> Reply:
        low, high = (datetime.fromtimestamp(int(query[name]), UTC) for name in ("period1", "period2"))
        if low < clock[0] - timedelta(days=60):
            return error(422, "Unprocessable Entity", "The requested range must be within the last 60 days.")
        seen = [row for row in TRADED if low <= row[0] < min(high, clock[0])]
        if not split or clock[0] < SPLIT:
            return chart(symbol, seen)
        after = [by_four(row) if row[0] < SPLIT else row for row in seen]
        return chart(symbol, after, events={"splits": split_at(SPLIT, 4.0, 1.0)} if low <= SPLIT else None)

    return answer


def test_weekly_runs_keep_half_a_year_on_one_basis_through_a_split(
    yahoo: FakeYahoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """AAPX is split four for one in the middle; PLNX, of the same traded prices, is not."""
    clock = [START]
    yahoo.answers["AAPX"] = sixty_days("AAPX", clock, split=True)
    yahoo.answers["PLNX"] = sixty_days("PLNX", clock, split=False)
    space = Workspace(tmp_path / "space")
    heights, rescaled = [], []
    for week in range(WEEKS):
        clock[0] = START + timedelta(weeks=week)
        now = f"{clock[0]:%Y-%m-%dT%H:%M:%SZ}"
        code = main(["ingest", "-w", str(space.root), "--now", now, "--format", "json", "--symbols", "AAPX,PLNX"])
        report = json.loads(capsys.readouterr()[0])
        assert code == 0, report
        rescaled.append([row["symbol"] for row in report["symbols"] if row["rescaled"]])
        heights.append(scan_bars(space).collect().height)
    assert heights == sorted(set(heights))  # it grew every week
    assert [names for names in rescaled if names] == [["AAPX"]]
    assert rescaled[(SPLIT - START) // timedelta(weeks=1) + 1] == ["AAPX"]  # the first run after the split

    bars = scan_bars(space).collect()
    begin = datetime(2026, 2, 2, tzinfo=UTC)  # the first run reached back to the 1st of February, a Sunday
    wanted = [row for row in TRADED if begin <= row[0] < clock[0]]
    assert (wanted[-1][0] - wanted[0][0]).days > 160
    for symbol, rows in {
        "AAPX": [by_four(row) if row[0] < SPLIT else row for row in wanted],
        "PLNX": wanted,
    }.items():
        here = bars.filter(pl.col("symbol") == symbol)
        assert here["ts"].to_list() == [row[0] for row in rows]
        for number, name in enumerate(PRICES, 1):
            assert here[name].to_list() == pytest.approx([row[number] for row in rows], rel=1e-12)
        assert here["volume"].to_list() == pytest.approx([row[5] for row in rows], rel=1e-12)
