"""In: what Yahoo should answer for each symbol. Out: a server on 127.0.0.1 in Yahoo's chart format, for yfinance."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import polars as pl
import pytest

from klinepred.calendar import Clock, grid, segments

Row = tuple[datetime, float | None, float | None, float | None, float | None, int | None]


@dataclass(frozen=True)
class Reply:
    """One HTTP answer; `wait_s` before it is sent."""

    status: int
    body: str
    wait_s: float = 0.0


@dataclass
class FakeYahoo:
    """The answers by symbol: a `Reply`, a list of them (the last one repeats), or a function of the query."""

    answers: dict[str, Reply | list[Reply] | Callable[[dict[str, str]], Reply]] = field(default_factory=dict)
    crumb: Reply = Reply(200, "crumb.of.test")
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    visited: list[str] = field(default_factory=list)
    url: str = ""

    def reply(self, symbol: str, query: dict[str, str]) -> Reply:
        """The next answer for `symbol`; unknown symbols get Yahoo's 404."""
        self.asked.append((symbol, query))
        answer = self.answers.get(symbol, not_found())
        if isinstance(answer, list):
            return answer.pop(0) if len(answer) > 1 else answer[0]
        return answer if isinstance(answer, Reply) else answer(query)


def chart(
    symbol: str,
    rows: list[Row],
    *,
    zone: str = "America/New_York",
    calendar: str = "XNYS",
    currency: str = "USD",
    events: dict[str, Any] | None = None,
    named: str | None = None,
    spacing: str = "5m",
) -> Reply:
    """Bars in the form Yahoo's v8 chart gives them; the answer says it is of `named`, of bars of `spacing`."""
    stamps = [int(row[0].timestamp()) for row in rows]
    low = rows[0][0] if rows else datetime(2026, 6, 1, tzinfo=UTC)
    high = rows[-1][0] if rows else low
    spans = (
        segments(Clock(calendar))
        .filter((pl.col("close") > low - timedelta(days=1)) & (pl.col("open") <= high + timedelta(days=1)))
        .select("open", "close")
    )
    periods = [
        [{"timezone": "EST", "start": int(o.timestamp()), "end": int(c.timestamp()), "gmtoffset": -18000}]
        for o, c in spans.iter_rows()
    ]
    meta = {
        "currency": currency,
        "symbol": named or symbol,
        "exchangeName": "NMS",
        "instrumentType": "EQUITY",
        "firstTradeDate": 345479400,
        "regularMarketTime": stamps[-1] if stamps else 0,
        "gmtoffset": -18000,
        "timezone": "EST",
        "exchangeTimezoneName": zone,
        "regularMarketPrice": 1.0,
        "priceHint": 2,
        "dataGranularity": spacing,
        "range": "",
        "validRanges": ["1d", "5d", "1mo"],
        "tradingPeriods": periods,
    }
    quote = {
        name: [row[index] for row in rows] for index, name in enumerate(("open", "high", "low", "close", "volume"), 1)
    }
    result: dict[str, Any] = {"meta": meta, "indicators": {"quote": [quote if rows else {}]}}
    if rows:
        result["timestamp"] = stamps
    if events:
        result["events"] = events
    return Reply(200, json.dumps({"chart": {"result": [result], "error": None}}))


def bars_of(start: datetime, end: datetime, *, calendar: str = "XNYS", price: float = 100.0) -> list[Row]:
    """One plain bar for each that the calendar expects in `start <= ts < end`; the price climbs by a cent a bar."""
    return [
        (ts, price + 0.01 * k, price + 0.01 * k + 0.05, price + 0.01 * k - 0.05, price + 0.01 * k + 0.01, 1000 + k)
        for k, ts in enumerate(grid(Clock(calendar), start, end)["ts"])
    ]


def history(symbol: str, rows: list[Row], **kwargs: Any) -> Callable[[dict[str, str]], Reply]:
    """Answers as Yahoo does: the bars of the range asked for."""

    def answer(query: dict[str, str]) -> Reply:
        low, high = int(query["period1"]), int(query["period2"])
        return chart(symbol, [row for row in rows if low <= row[0].timestamp() < high], **kwargs)

    return answer


def split_at(ts: datetime, numerator: float, denominator: float) -> dict[str, dict[str, object]]:
    """`splits` of an answer's `events`: `numerator` new shares for `denominator` old ones from `ts` on."""
    second = int(ts.timestamp())
    text = f"{numerator:g}:{denominator:g}"
    return {
        str(second): {"date": second, "numerator": numerator, "denominator": denominator, "splitRatio": text},
    }


def error(status: int, code: str, text: str) -> Reply:
    """An error as the chart gives it."""
    return Reply(status, json.dumps({"chart": {"result": None, "error": {"code": code, "description": text}}}))


def not_found() -> Reply:
    """What a symbol gets that Yahoo does not know (any more)."""
    return error(404, "Not Found", "No data found, symbol may be delisted")


def busy() -> Reply:
    """The rate limit."""
    return Reply(429, "Too Many Requests")


@contextmanager
def serve() -> Iterator[FakeYahoo]:
    """Run a server until the block ends; the path of a request begins with the host it was meant for."""
    yahoo = FakeYahoo()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            spot = urlsplit(self.path)
            host, _, path = unquote(spot.path).lstrip("/").partition("/")
            query = {key: values[0] for key, values in parse_qs(spot.query).items()}
            yahoo.visited.append(f"{host}/{path}")
            cookie: str | None = None
            if path.startswith("v8/finance/chart/"):
                answer = yahoo.reply(path.removeprefix("v8/finance/chart/"), query)
            elif path == "v1/test/getcrumb":
                answer = yahoo.crumb
            elif host == "guce.yahoo.com" and path == "consent":
                form = '<form><input name="csrfToken" value="t"><input name="sessionId" value="s"></form>'
                answer = Reply(200, f"<html>{form}</html>")
            else:
                answer, cookie = Reply(404 if host == "fc.yahoo.com" else 200, ""), "A3=cookie; Path=/; Max-Age=3600"
            if answer.wait_s:
                stopped.wait(answer.wait_s)
            body = answer.body.encode()
            try:
                self.send_response(answer.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                if cookie:
                    self.send_header("Set-Cookie", cookie)
                self.end_headers()
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                return

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's name
            return

    stopped = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yahoo.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield yahoo
    finally:
        stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def yfinance_on(yahoo: FakeYahoo, cache: Path) -> Iterator[None]:
    """The real client, its whole traffic (cookies and crumbs too) led to the local server, its caches below `cache`.

    Nothing waits; a request for any host that is not Yahoo's is an error. Afterwards the client is as before.
    """
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import yfinance as yf
        from curl_cffi import requests
        from yfinance import cache as caches
        from yfinance import data

    from klinepred.bars.sources import yahoo as source

    class Led(requests.Session):  # type: ignore[type-arg]
        def request(self, method: Any, url: str, *args: Any, **kwargs: Any) -> Any:
            spot = urlsplit(url)
            host = spot.hostname or ""
            if not (host == "yahoo.com" or host.endswith(".yahoo.com")):
                raise AssertionError(f"a request left for {url}")
            query = f"?{spot.query}" if spot.query else ""
            return super().request(method, f"{yahoo.url}/{host}{spot.path}{query}", *args, **kwargs)

    managers = (caches._TzDBManager, caches._CookieDBManager, caches._ISINDBManager)
    before = [manager.get_location() for manager in managers]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("no_proxy", "127.0.0.1")
        patch.setattr(data.SingletonMeta, "_instances", {data.YfData: data.YfData.__new__(data.YfData)})
        patch.setattr(source, "rest", lambda seconds: None)
        data.YfData.__init__(data.YfData(), session=Led(impersonate="chrome"))
        patch.setattr(caches._CookieCacheManager, "_Cookie_cache", None)
        yf.set_tz_cache_location(str(cache))
        try:
            yield
        finally:
            for manager, folder in zip(managers, before, strict=True):
                manager.set_location(folder)
