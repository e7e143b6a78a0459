"""In: requests, good, odd and hostile, to the real server on a free port. Out: numbers of predict, or 4xx and why."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import klinepred as kp
from klinepred.features.custom import features_for
from klinepred.model.bundle import ModelBundle, save_bundle
from klinepred.model.export import export_bundle
from klinepred.settings import FeatureSettings
from klinepred.training.registry import crown
from tests.asked import asked_bundle
from tests.conftest import Typed
from tests.serving.market import NOW, SYMBOLS, open_market

JSON = "application/json"
MOST = 20_000


@dataclass(frozen=True)
class Server:
    """A running `klinepred serve`."""

    process: subprocess.Popen[str]
    port: int

    def ask(self, body: bytes | str, *, kind: str = JSON, path: str = "/invocations") -> tuple[int, Any]:
        """Status and answer of a POST."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            link.request(
                "POST", path, body if isinstance(body, bytes) else body.encode(), {"Content-Type": kind} if kind else {}
            )
            answer = link.getresponse()
            text = answer.read().decode()
        finally:
            link.close()
        assert "Traceback" not in text
        assert 'File "' not in text
        return answer.status, json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a GET."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        link.request("GET", path)
        answer = link.getresponse()
        text = answer.read().decode()
        link.close()
        return answer.status, text


def run_server(*words: str) -> Server:
    process = subprocess.Popen(
        [sys.executable, "-m", "klinepred", "serve", "--port", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line.startswith("http://127.0.0.1:"):
        assert process.stderr is not None
        pytest.fail(process.stderr.read())
    return Server(process, int(line.rpartition(":")[2]))


def stop(server: Server, number: int = signal.SIGTERM) -> tuple[int, str]:
    server.process.send_signal(number)
    _, err = server.process.communicate(timeout=60)
    return server.process.returncode, err


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[kp.Workspace, ModelBundle]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        space, bundle = open_market(tmp_path_factory.mktemp("kline été") / "№ 1")
        assert crown(space, pipeline="demo", run_id=bundle.run_id)
        yield space, bundle


@pytest.fixture(scope="module")
def server(market: tuple[kp.Workspace, ModelBundle]) -> Iterator[Server]:
    served = run_server("-p", "demo", "-w", str(market[0].root), "--max-rows", str(MOST))
    yield served
    code, err = stop(served)
    assert code == 128 + signal.SIGTERM
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def bars(market: tuple[kp.Workspace, ModelBundle]) -> pd.DataFrame:
    table = kp.scan_bars(market[0]).drop("calendar").collect()
    return table.with_columns(pl.col("ts").dt.strftime("%Y-%m-%dT%H:%M:%SZ")).to_pandas()


def split(frame: pd.DataFrame, **params: str) -> str:
    table = json.loads(frame.to_json(orient="split", index=False, double_precision=15))
    return json.dumps({"dataframe_split": table, **({"params": params} if params else {})})


def test_the_served_champion_answers_as_klinepred_predict(
    server: Server, market: tuple[kp.Workspace, ModelBundle], bars: pd.DataFrame, typed: Typed
) -> None:
    code, out, _ = typed("predict", "-p", "demo", "-w", str(market[0].root), "--format", "json", "--now", NOW)
    assert code == 0
    want = json.loads(out)
    assert [row["symbol"] for row in want] == list(SYMBOLS)
    records = json.dumps({"dataframe_records": bars.to_dict("records"), "params": {"now": NOW}})
    assert bars["volume"].dtype == float
    for body in (split(bars, now=NOW), records, split(bars.assign(volume=bars["volume"].astype(int)), now=NOW)):
        status, answer = server.ask(body)
        assert status == 200, answer
        assert list(answer) == ["predictions"]
        for got, row in zip(answer["predictions"], want, strict=True):
            assert list(got) == list(row)
            for name, value in row.items():
                near = pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value
                assert got[name] == near, name


def test_csv_and_parquet_are_answered_too(server: Server, bars: pd.DataFrame) -> None:
    import io

    want = server.ask(split(bars))[1]["predictions"]  # by the clock of today: stale, and said
    assert all(row["stale"] for row in want)
    packed = io.BytesIO()
    bars.to_parquet(packed)
    for kind, body in (
        ("text/csv", bars.to_csv(index=False).encode()),
        ("application/vnd.apache.parquet", packed.getvalue()),
    ):
        status, answer = server.ask(body, kind=kind)
        assert status == 200, answer
        for got, row in zip(answer["predictions"], want, strict=True):
            assert got["expected_return_bps"] == pytest.approx(row["expected_return_bps"], rel=1e-6, abs=1e-6)


def test_symbols_left_out_are_named_with_their_reason(server: Server, bars: pd.DataFrame) -> None:
    few = bars[(bars["symbol"] != "SIM002") | (bars["ts"] > "2026-04-28")]
    status, answer = server.ask(split(few, now=NOW))
    assert status == 200
    assert [row["symbol"] for row in answer["predictions"]] == ["SIM001", "SIM003"]
    assert list(answer["left_out"]) == ["SIM002"]
    assert answer["left_out"]["SIM002"].startswith("too little history: have ")


def test_requests_that_cannot_be_answered_get_4xx_and_the_reason(server: Server, bars: pd.DataFrame) -> None:
    good = split(bars.head(3))
    nan = good.replace(str(json.loads(good)["dataframe_split"]["data"][0][5]), "NaN", 1)
    odd: list[tuple[bytes | str, str, int, str]] = [
        ("{", JSON, 400, "not JSON"),
        ("", JSON, 400, "an empty body"),
        ("[1, 2]", JSON, 400, "a list of 2"),
        ("7", JSON, 400, "a number (7)"),
        ("null", JSON, 400, "null"),
        ("[" * 100_000, JSON, 400, "expected"),
        ('{"a": ' * 50_000, JSON, 400, ""),
        (b"\xff\xfe{}", JSON, 400, "JSON"),
        ('{"dataframe_split": 5}', JSON, 400, ""),
        ('{"dataframe_split": {"columns": ["a"], "data": [[1, 2]]}}', JSON, 400, ""),
        ('{"dataframe_records": []}', JSON, 400, ""),
        ('{"inputs": null}', JSON, 400, ""),
        ('{"instances": "text"}', JSON, 400, ""),
        ("{}", JSON, 400, ""),
        (split(bars.head(3).drop(columns="close")), JSON, 400, "close"),
        (split(bars.head(3).assign(close="dear")), JSON, 400, 'text ("dear") in row 1'),
        (split(bars.head(3).assign(symbol=None)), JSON, 400, "null in row 1"),
        (split(bars.head(3).assign(symbol="")), JSON, 400, "empty text in row 1"),
        (split(bars.head(3).assign(again=1.0)).replace('"again"', '"volume"'), JSON, 400, "volume more than once"),
        (split(bars.head(3).assign(ts="soon")), JSON, 400, "soon"),
        (split(bars.head(3).assign(ts=7)), JSON, 400, "a number (7) in row 1"),
        (nan, JSON, 400, "close is missing"),
        (split(bars.head(3).assign(close=None)), JSON, 400, ""),
        (split(bars.head(300), now="noon"), JSON, 400, "noon"),
        (json.dumps({**json.loads(good), "params": "x"}), JSON, 400, 'text ("x")'),
        (json.dumps({**json.loads(good), "params": {"now": 5}}), JSON, 400, "now: a number (5)"),
        (json.dumps({**json.loads(good), "params": {"nwo": NOW}}), JSON, 400, "nwo"),
        (split(bars.head(3)), JSON, 400, "too little history"),
        (split(pd.concat([bars, bars, bars, bars])), JSON, 400, f"at most {MOST:,} rows"),
        (b" " * 6_000_000, JSON, 413, "bytes"),
        (good, "text/html", 415, "application/json"),
        (good, "", 415, "application/json"),
        (good, "application/json; charset=latin-1", 415, "UTF-8"),
        ("a,b\n1", "text/csv", 400, "none named symbol"),
        ("", "text/csv", 400, "an empty body"),
        (b"PAR1 but not really PAR1", "application/vnd.apache.parquet", 400, "cannot be read as Parquet"),
    ]
    for body, kind, status, said in odd:
        got, answer = server.ask(body, kind=kind)
        about = (body[:60], kind, answer)
        assert got == status, about
        assert said in answer["message"], about
        assert all(f"\n  {part}: " in answer["message"] for part in ("expected", "got", "do this")), about
        assert "stack_trace" not in answer, about
    assert server.ask(split(bars, now=NOW))[0] == 200  # and it goes on answering


def test_it_says_that_it_lives_and_which_mlflow_it_is(server: Server) -> None:
    import mlflow

    assert server.get("/ping")[0] == 200
    assert server.get("/health")[0] == 200
    assert server.get("/version") == (200, mlflow.__version__)
    for path, status in (("/invocations", 405), ("/elsewhere", 404)):
        got, text = server.get(path)
        assert got == status
        assert f"\n  got:      GET {path}\n" in json.loads(text)["message"]


def test_a_body_too_large_by_its_header_is_refused_at_once_and_hung_up_on(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nContent-Length: 5000000000\r\n\r\n"
        link.sendall(head.encode())
        told = b""
        while part := link.recv(65_536):  # to the end of the connection
            told += part
    assert told.startswith(b"HTTP/1.1 413 ")
    assert b"one of 5,000,000,000" in told


def test_an_exported_bundle_is_served_and_an_interrupt_ends_it(
    market: tuple[kp.Workspace, ModelBundle], bars: pd.DataFrame, tmp_path: Path
) -> None:
    away = export_bundle(market[0].trained / market[1].name, tmp_path / "away")
    served = run_server("--model", str(away), "-w", str(tmp_path))
    try:
        status, answer = served.ask(split(bars, now=NOW))
    finally:
        code, err = stop(served, signal.SIGINT)
    assert status == 200
    assert [row["symbol"] for row in answer["predictions"]] == list(SYMBOLS)
    assert code == 128 + signal.SIGINT
    assert "at most 16,380,000 rows a request" in err  # 10,000 times 21 sessions of 78 bars
    assert "Traceback" not in err


def test_a_thousand_symbols_with_all_the_bars_they_need_are_answered(tmp_path: Path) -> None:
    """Of a model whose features look back over four bars; ten thousand take ten times as long (see LOG.md)."""
    names = [f"S{number:05d}" for number in range(1_000)]
    settings = FeatureSettings(
        exclude=("price", "trend", "volatility", "volume", "clock", "cross"),
        custom={"custom__lag": "close/LAG(close,3) - 1", "custom__spread": "(high - low) / close"},
    )
    own = features_for(settings)
    bundle = asked_bundle(dict.fromkeys(names, "XNYS"), features=own)
    folder = save_bundle(replace(bundle, name="many"), tmp_path / "many")
    stamps = [f"2026-06-10T{14 + bar // 12}:{bar % 12 * 5:02d}:00Z" for bar in range(own.lookback_bars)]
    close = 100.0 + np.arange(len(names) * len(stamps)) % 997 / 10.0
    frame = pd.DataFrame(
        {
            "symbol": np.repeat(names, len(stamps)),
            "ts": stamps * len(names),
            **dict.fromkeys(("open", "high", "low", "close"), close),
            "volume": 100.0,
        }
    )
    served = run_server("--model", str(folder), "-w", str(tmp_path))
    try:
        status, answer = served.ask(split(frame, now="2026-06-10T15:00:00Z"))
    finally:
        _, err = stop(served)
    assert status == 200, answer
    assert [row["symbol"] for row in answer["predictions"]] == names
    assert "left_out" not in answer
    assert f"at most {10_000 * max(own.lookback_bars, 78):,} rows a request" in err


def test_without_a_champion_it_says_how_to_get_one(typed: Typed, tmp_path: Path) -> None:
    code, out, err = typed("serve", "-p", "demo", "-w", str(tmp_path), "--port", "0")
    assert (code, out) == (1, "")
    assert "expected: a version of klinepred-demo with the alias champion" in err
    assert "klinepred models promote" in err


def test_a_port_in_use_and_a_foreign_address_are_usage(typed: Typed, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        code, _, err = typed("serve", "-w", str(tmp_path), "--port", str(busy.getsockname()[1]))
    assert code == 2
    assert "--port 0" in err
    assert typed("serve", "-w", str(tmp_path), "--host", "192.0.2.1", "--port", "0")[0] == 2
    code, _, err = typed("serve", "-p", "demo", "-w", str(tmp_path), "--host", "0.0.0.0", "--port", "0")  # noqa: S104
    assert code == 1
    assert "warning: 0.0.0.0 can be reached from other machines" in err
