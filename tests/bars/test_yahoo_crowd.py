"""In: many symbols asked of a Yahoo that answers in any order. Out: one commit, each symbol with its own bars."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from klinepred.bars.store import scan_bars, store_version
from klinepred.cli import main
from klinepred.paths import Workspace
from tests.yahoo_server import FakeYahoo, Reply, Row, bars_of, busy, chart, not_found, serve, yfinance_on

LOW, HIGH = datetime(2026, 6, 30, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)
NAMES = [f"S{k}" for k in range(24)]


@pytest.fixture
def yahoo(tmp_path: Path) -> Iterator[FakeYahoo]:
    with serve() as server, yfinance_on(server, tmp_path / "cache"):
        yield server


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "space")


def take(space: Workspace, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    now = "2026-06-30T22:00:00Z"
    code = main(["ingest", "-w", str(space.root), "--now", now, "--format", "json", *words])
    return code, json.loads(capsys.readouterr()[0])


def delayed(reply: Reply, wait_s: float) -> Callable[[dict[str, str]], Reply]:
    return lambda query: Reply(reply.status, reply.body, wait_s)


def test_answers_in_any_order_never_mix_symbols(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every symbol has its own price, volume and number of bars; two answers are of another symbol than asked for."""
    dice = random.Random(5)  # noqa: S311  # how late, not a secret
    wrong = {"S3": "S2", "S17": "S18"}
    for k, name in enumerate(NAMES):
        rows: list[Row] = [(*row[:5], 10_000 * (k + 1)) for row in bars_of(LOW, HIGH, price=100.0 * (k + 1))[: 40 + k]]
        yahoo.answers[name] = delayed(chart(name, rows, named=wrong.get(name)), dice.random() * 0.05)
    code, report = take(space, capsys, "--symbols", ",".join(NAMES))
    assert code == 3
    status = {row["symbol"]: row["status"] for row in report["symbols"]}
    assert status == {name: "failed" if name in wrong else "ok" for name in NAMES}
    table = (
        scan_bars(space)
        .collect()
        .group_by("symbol")
        .agg(bars=pl.len(), first=pl.col("open").first(), low=pl.col("volume").min(), high=pl.col("volume").max())
    )
    assert {row[0]: row[1:] for row in table.iter_rows()} == {
        name: (40 + k, 100.0 * (k + 1), 10_000.0 * (k + 1), 10_000.0 * (k + 1))
        for k, name in enumerate(NAMES)
        if name not in wrong
    }


def test_all_symbols_of_a_batch_are_one_commit(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = bars_of(LOW, HIGH)
    for name in NAMES:
        yahoo.answers[name] = chart(name, rows)
    yahoo.answers["S4"], yahoo.answers["S9"] = busy(), not_found()
    code, report = take(space, capsys, "--symbols", ",".join(NAMES))
    assert (code, report["version"], store_version(space)) == (3, 0, 0)
    status = {row["symbol"]: row["status"] for row in report["symbols"]}
    assert status == {**dict.fromkeys(NAMES, "ok"), "S4": "rate-limited", "S9": "unknown-symbol"}
    assert scan_bars(space).collect().height == 22 * 78


def test_small_letters_do_not_make_a_second_symbol(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    yahoo.answers["AAPX"] = chart("AAPX", bars_of(LOW, HIGH))
    take(space, capsys, "--symbols", "AAPX")
    code, report = take(space, capsys, "--symbols", "aapx")
    assert (code, [row["symbol"] for row in report["symbols"]]) == (0, ["AAPX"])
    assert report["symbols"][0]["status"] == "unchanged"
    assert report["remarks"] == ["aapx is AAPX at Yahoo: its bars are kept under that name"]


def test_a_bar_without_a_volume_is_set_aside_and_counted(
    yahoo: FakeYahoo, space: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = bars_of(LOW, HIGH)
    yahoo.answers["AAPX"] = chart("AAPX", [*rows[:7], (*rows[7][:5], None), *rows[8:]])
    code, report = take(space, capsys, "--symbols", "AAPX")
    row = report["symbols"][0]
    assert (code, row["new"], row["missing"], row["zero_volume"]) == (0, 77, 1, 0)
    assert row["quarantined"] == [{"ts": "2026-06-30T14:05:00Z", "reason": "volume is missing"}]
    yahoo.answers["AAPX"] = chart("AAPX", rows)  # Yahoo has it later
    code, report = take(space, capsys, "--symbols", "AAPX")
    assert (code, report["symbols"][0]["new"], report["symbols"][0]["missing"]) == (0, 1, 0)
