"""In: bars of some markets. Out: a server on 127.0.0.1 that answers as Binance does, for ccxt's own client."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

Kline = list[Any]
STEP_MS = 300_000


@dataclass(frozen=True)
class Reply:
    """One HTTP answer."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[dict[str, str]], Reply | None]


@dataclass
class FakeBinance:
    """The klines by Binance's own name (`BTCUSDT`, of perpetuals `fapi BTCUSDT`), and what comes instead of them.

    Attributes
    ----------
    listed
        Spot markets as (base, quote).
    swaps
        Perpetual futures settled in the quote currency, likewise.
    instead
        By market: asked before every answer; None = answer as usual.
    markets
        The answer to every request for the list of markets; None = as usual.
    asked
        Every request for klines, in order.
    """

    klines: dict[str, list[Kline]] = field(default_factory=dict)
    listed: list[tuple[str, str]] = field(default_factory=lambda: [("BTC", "USDT"), ("ETH", "USDT"), ("SOL", "USDT")])
    swaps: list[tuple[str, str]] = field(default_factory=lambda: [("BTC", "USDT")])
    instead: dict[str, Answer] = field(default_factory=dict)
    markets: Reply | None = None
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str, query: dict[str, str]) -> Reply:
        """What the exchange says."""
        if path.endswith("/exchangeInfo"):
            return self.markets or Reply(200, json.dumps({"symbols": self._listed(path)}))
        if not path.endswith("/klines"):
            return Reply(404, "{}")
        kind = path.split("/")[1]
        name = query["symbol"] if kind == "api" else f"{kind} {query['symbol']}"
        self.asked.append((name, query))
        odd = self.instead[name](query) if name in self.instead else None
        if odd is not None:
            return odd
        since, limit = int(query.get("startTime", 0)), int(query["limit"])
        rows = [row for row in self.klines.get(name, []) if row[0] >= since]
        return Reply(200, json.dumps(rows[:limit]))

    def since(self, name: str) -> list[datetime]:
        """From when the market was asked for, request by request."""
        return [
            datetime.fromtimestamp(int(query["startTime"]) / 1000, UTC) for asked, query in self.asked if asked == name
        ]

    def _listed(self, path: str) -> list[dict[str, Any]]:
        filters = [{"filterType": "PRICE_FILTER", "minPrice": "0.01", "maxPrice": "1000000.00", "tickSize": "0.01"}]
        spot = {"status": "TRADING", "isSpotTradingAllowed": True, "permissions": ["SPOT"], "filters": filters}
        swap = {
            "status": "TRADING",
            "contractType": "PERPETUAL",
            "deliveryDate": 4133404800000,
            "marginAsset": "USDT",
            "contractSize": 1,
            "filters": filters,
        }
        chosen = {"api": (self.listed, spot), "fapi": (self.swaps, swap)}.get(path.split("/")[1], ([], spot))
        return [
            {"symbol": base + quote, "baseAsset": base, "quoteAsset": quote, **chosen[1]} for base, quote in chosen[0]
        ]


def kline(ts: datetime, close: float, *, volume: float = 3.5) -> Kline:
    """A row as Binance writes it: numbers as text, the end of the bar in milliseconds."""
    ms = int(ts.timestamp() * 1000)
    prices = [f"{close + step:.8f}" for step in (-1.0, 2.0, -3.0, 0.0)]
    return [ms, *prices, f"{volume:.8f}", ms + STEP_MS - 1, "1000.0", 42, "1.0", "500.0", "0"]


def klines(start: datetime, bars: int, *, price: float = 30_000.0) -> list[Kline]:
    """Bars without a gap; the close climbs by one a bar, the volume by a hundredth."""
    return [kline(start + timedelta(minutes=5 * k), price + k, volume=1.0 + k / 100.0) for k in range(bars)]


def busy(status: int = 429, *, after_s: int | None = None) -> Reply:
    """Too many requests; 418 is Binance's ban."""
    headers = {} if after_s is None else {"Retry-After": str(after_s)}
    return Reply(status, json.dumps({"code": -1003, "msg": "Too much request weight used; please wait."}), headers)


def at_first(*replies: Reply) -> Answer:
    """These answers, one after the other, then the usual ones."""
    left = list(replies)
    return lambda query: left.pop(0) if left else None


@contextmanager
def serve() -> Iterator[FakeBinance]:
    """Run a server until the block ends."""
    fake = FakeBinance()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            spot = urlsplit(self.path)
            reply = fake.answer(spot.path, {key: values[0] for key, values in parse_qs(spot.query).items()})
            body = reply.body.encode()
            try:
                self.send_response(reply.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                return

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's name
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def ccxt_on(fake: FakeBinance) -> Iterator[list[float]]:
    """ccxt's own Binance, all its addresses led to the local server; waits are noted, not waited."""
    import ccxt

    from klinepred.bars.sources import exchange

    class Led(ccxt.binance):  # type: ignore[misc]
        def describe(self) -> Any:
            table = super().describe()
            table["rateLimit"] = 0.01
            for name, url in table["urls"]["api"].items():
                spot = urlsplit(url)
                kind = spot.hostname.partition(".")[0]
                path = spot.path.replace("/api/", f"/{kind}/", 1) if kind not in spot.path else spot.path
                table["urls"]["api"][name] = f"{fake.url}{path}"
            return table

    waits: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("no_proxy", "127.0.0.1")
        patch.setattr(ccxt, "binance", Led)
        patch.setattr(exchange, "rest", waits.append)
        yield waits
