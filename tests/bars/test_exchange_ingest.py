"""In: pages of an exchange over several runs. Out: a store that grows, goes on where it stopped, and true reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from klinepred.bars.sources import batch
from klinepred.bars.store import list_symbols, scan_bars, store_version
from klinepred.cli import main
from klinepred.paths import Workspace
from klinepred.schema import BAR
from tests.binance_server import FakeBinance, Reply, busy, ccxt_on, kline, klines, serve

T0 = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def fake() -> Iterator[FakeBinance]:
    with serve() as server, ccxt_on(server):
        yield server


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "space")


def at(bars: int) -> datetime:
    return T0 + bars * BAR


def words(space: Workspace, now: datetime, *more: str) -> list[str]:
    where = ["-w", str(space.root), "--now", f"{now:%Y-%m-%dT%H:%M:%SZ}", "--format", "json"]
    return ["ingest", *where, "--exchange", "binance", *more]


def take(
    space: Workspace, capsys: pytest.CaptureFixture[str], now: datetime, *more: str, symbols: str = "BTC/USDT"
) -> tuple[int, dict[str, Any], str]:
    code = main(words(space, now, "--symbols", symbols, *more))
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def test_markets_are_stored_by_their_names_and_the_open_bar_is_held_back(
    fake: FakeBinance, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.klines["BTCUSDT"] = fake.klines["fapi BTCUSDT"] = klines(T0, 1_201)
    now = at(1_200) + timedelta(minutes=3)
    code, report, err = take(space, capsys, now, "--start", "2026-06-01", symbols="BTC/USDT,BTC/USDT:USDT,NO/COIN")
    assert code == 3
    assert [(row["symbol"], row["status"], row["new"], row["missing"]) for row in report["symbols"]] == [
        ("BTC/USDT", "ok", 1_200, 0),
        ("BTC/USDT:USDT", "ok", 1_200, 0),
        ("NO/COIN", "unknown-symbol", 0, None),
    ]
    assert report["symbols"][0]["last_ts"] == f"{at(1_199):%Y-%m-%dT%H:%M:%SZ}"
    assert "24/7, not the pipeline's XNYS" in err
    assert store_version(space) == 0  # one commit
    listed = list_symbols(space)
    assert listed["calendar"].to_list() == ["24/7", "24/7"]
    assert listed["source"][0].startswith("exchange binance (ccxt ")


def test_the_next_run_goes_on_from_the_last_hour_stored(
    fake: FakeBinance, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.klines["BTCUSDT"] = klines(T0, 600)
    take(space, capsys, at(500), "--start", "2026-06-01")
    fake.asked.clear()
    fake.klines["BTCUSDT"][498] = kline(at(498), 30_498.0, volume=77.0)  # a late trade
    code, report, _ = take(space, capsys, at(600))
    row = report["symbols"][0]
    assert (code, row["new"], row["revised"], row["unchanged"], row["missing"]) == (0, 100, 1, 12, 0)
    assert fake.since("BTCUSDT") == [at(487)]
    bars = scan_bars(space).collect()
    assert bars["ts"].to_list() == [at(k) for k in range(600)]
    assert bars["volume"][498] == 77.0
    code, report, _ = take(space, capsys, at(600))
    assert (code, report["symbols"][0]["status"]) == (0, "unchanged")


def test_the_same_command_again_asks_only_for_what_is_missing(
    fake: FakeBinance, space: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "ROWS", 1_000)
    fake.klines["BTCUSDT"] = klines(T0, 4_500)
    fake.instead["BTCUSDT"] = lambda query: busy() if len(fake.asked) > 2 else None
    code, report, _ = take(space, capsys, at(4_500), "--start", "2026-06-01")
    row = report["symbols"][0]
    assert (code, row["status"], row["new"]) == (1, "rate-limited", 2_000)
    fake.instead.clear()
    fake.asked.clear()
    code, report, _ = take(space, capsys, at(4_500), "--start", "2026-06-01")
    row = report["symbols"][0]
    assert (code, row["status"], row["new"], row["missing"]) == (0, "ok", 2_500, 0)
    assert fake.since("BTCUSDT")[0] >= at(2_000 - 13)
    assert scan_bars(space).collect()["ts"].to_list() == [at(k) for k in range(4_500)]


def test_holes_are_filled_and_what_is_stored_between_is_not_called_missing(
    fake: FakeBinance, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stored: days 2 and 3 of six. The exchange itself lacks ten bars of the fifth day."""
    fake.klines["BTCUSDT"] = [row for k, row in enumerate(klines(T0, 288 * 6)) if not 1_200 <= k < 1_210]
    take(space, capsys, at(288 * 6), "--start", "2026-06-02", "--end", "2026-06-03")
    code, report, _ = take(space, capsys, at(288 * 6), "--start", "2026-06-01")
    row = report["symbols"][0]
    assert (code, row["expected"], row["missing"]) == (0, 288 * 6, 10)
    assert scan_bars(space).collect()["ts"].to_list() == [at(k) for k in range(288 * 6) if not 1_200 <= k < 1_210]
    code, report, _ = take(space, capsys, at(288 * 6), "--start", "2026-06-01")  # the hole is asked for once more
    row = report["symbols"][0]
    assert (code, row["status"], row["new"], row["missing"]) == (0, "unchanged", 0, 0)


CHILD = """
import sys
from tests.binance_server import FakeBinance, ccxt_on
from klinepred.bars.sources import batch
from klinepred.cli import main
batch.ROWS = 1_000
with ccxt_on(FakeBinance(url=sys.argv[1])):
    sys.exit(main(sys.argv[2:]))
"""


def test_a_kill_in_the_middle_of_history_loses_nothing_that_was_committed(
    fake: FakeBinance, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.klines["BTCUSDT"] = klines(T0, 6_300)
    reached, killed = threading.Event(), threading.Event()

    def hang(query: dict[str, str]) -> Reply | None:
        if len(fake.asked) == 5 and not killed.is_set():
            reached.set()
            killed.wait(60.0)
        return None

    fake.instead["BTCUSDT"] = hang
    line = words(space, at(6_300), "--symbols", "BTC/USDT", "--start", "2026-06-01")
    root = Path(__file__).parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, fake.url, *line], cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert reached.wait(60.0)
    child.send_signal(signal.SIGKILL)
    child.wait()
    killed.set()
    bars = scan_bars(space).collect()
    assert bars["ts"].to_list() == [at(k) for k in range(4_000)]
    fake.asked.clear()
    code, report, _ = take(space, capsys, at(6_300), "--start", "2026-06-01")
    assert (code, report["symbols"][0]["new"], report["symbols"][0]["missing"]) == (0, 2_300, 0)
    assert fake.since("BTCUSDT")[0] >= at(4_000 - 13)
    whole = Workspace(space.root.parent / "undisturbed")
    take(whole, capsys, at(6_300), "--start", "2026-06-01")
    assert scan_bars(space).collect().equals(scan_bars(whole).collect())


def test_rows_that_are_no_bars_are_set_aside_with_their_reason(
    fake: FakeBinance, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = klines(T0, 20)
    rows[3][0], rows[5][5], rows[7][2] = None, None, "1.0"
    rows[9][0] += 60_000
    fake.klines["BTCUSDT"] = rows
    fake.instead["BTCUSDT"] = lambda query: Reply(200, json.dumps(rows))
    code, report, _ = take(space, capsys, at(20), "--start", "2026-06-01")
    row = report["symbols"][0]
    assert (code, row["new"], row["missing"]) == (0, 16, 4)
    assert sorted(one["reason"] for one in row["quarantined"]) == [
        "high is below low",
        "not on the 5-minute grid",
        "the time stamp cannot be read",
        "volume is missing",
    ]


def test_two_exchanges_never_share_one_history(
    fake: FakeBinance, space: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import ccxt

    monkeypatch.setattr(ccxt, "kraken", ccxt.binance)  # another name, the same local server
    fake.klines["BTCUSDT"] = fake.klines["ETHUSDT"] = klines(T0, 50)
    take(space, capsys, at(50), "--start", "2026-06-01")
    before = scan_bars(space).collect()
    line = words(space, at(50), "--symbols", "btc/usdt,ETH/USDT", "--start", "2026-06-01")
    code = main(["kraken" if word == "binance" else word for word in line])
    rows = json.loads(capsys.readouterr()[0])["symbols"]
    assert code == 3
    assert [row["status"] for row in rows] == ["ok", "rejected"]
    assert "stored from binance, this ingest is from kraken" in rows[1]["message"]
    assert scan_bars(space, symbols=["BTC/USDT"]).collect().equals(before)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--source", "exchange", "--symbols", "BTC/USDT"], "--exchange binance"),
        (["--exchange", "binance", "--symbols", "BTC/USDT", "--calendar", "XNYS"], "--calendar 24/7"),
        (["--exchange", "nowhere", "--symbols", "BTC/USDT"], "ccxt"),
        (["--exchange", "binance", "--set", "data.symbols=[]"], "--symbols BTC/USDT"),
    ],
)
def test_what_an_exchange_needs_is_said_before_anything_is_asked(
    fake: FakeBinance, space: Workspace, capsys: pytest.CaptureFixture[str], line: list[str], said: str
) -> None:
    assert main(["ingest", "-w", str(space.root), *line]) == 2
    err = capsys.readouterr()[1]
    assert said in err
    assert "Traceback" not in err
    assert fake.asked == []


def test_an_exchange_beside_another_source_is_not_used_and_said(
    fake: FakeBinance, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--source", "simulate", "-p", "demo", "--set", "data.simulate.symbols=1"]
    line += ["--set", "data.simulate.end=2026-01-05", "--exchange", "binance"]
    assert main(["ingest", "-w", str(space.root), *line]) == 0
    assert "--exchange is not used" in capsys.readouterr()[1]
